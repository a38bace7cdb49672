//! The JSON schemas of settings whose modules know nothing of schemas.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::config::schema::form;
use crate::config::text::ByStatus;
use crate::decide::{AutoKey, StatusClass};
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;

form!(
    AutoKey,
    json_schema!({ "type": "string", "enum": ["off", "random", "content"] })
);
form!(
    ByStatus<StatusClass>,
    json_schema!({
        "type": "object",
        "patternProperties": {
            "^[1-9][0-9][0-9]$": { "type": "string", "enum": ["retry", "conditional", "never"] },
        },
        "additionalProperties": false,
    })
);

#[cfg(feature = "tracing")]
form!(LogLevels, levels());

#[cfg(feature = "tracing")]
fn levels() -> Schema {
    let level = |default: &str, description: &str| {
        json_schema!({
            "description": description,
            "type": "string",
            "enum": ["off", "error", "warn", "info", "debug", "trace"],
            "default": default,
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "retry": level("info", "Retries. Only for the retry."),
            "success": level("trace", "Calls that succeed at their first attempt. Only for the retry."),
            "recovery": level("debug", "Calls that succeed after retries. Only for the retry."),
            "rejection": level("debug", "Calls that are not retried. Only for the retry."),
            "given_up": level("warn", "Calls that gave up. Only for the retry."),
            "abandoned": level("debug", "Calls that their caller drops. Only for the retry."),
            "pause": level("info", "Pauses, and their ends. Only for the throttle."),
            "pace": level("info", "Changes of the pace. Only for the throttle."),
            "refusal": level("warn", "Requests that a throttle refuses. Only for the throttle."),
        },
        "additionalProperties": false,
    })
}
