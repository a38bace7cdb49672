//! The JSON schema of the forms in [`text`](super::text), for editors that check a file while it is written.
//!
//! A schema accepts every value that can be read. It may accept values that `check` refuses, such as a deadline of zero.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::text::{DurationText, NumberOrText, OptionalDuration, OptionalSeed, RateText};

const DURATION: &str = "^\\s*([0-9]+([.,][0-9]+)?\\s*\
    (h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|msecs?|millis?|milliseconds?\
    |[uµ]s|[uµ]secs?|micros?|microseconds?|ns|nsecs?|nanos?|nanoseconds?)[\\s,]*)+$";
const RATE: &str = "^\\s*[0-9.]+([eE][+-]?[0-9]+)?\\s*/\\s*(s|min|h|day)\\s*$";
const WHOLE_NUMBER: &str = "^\\s*[0-9]+\\s*$";

/// Implements `JsonSchema` for a form. The schema is repeated wherever the form is used, because some editors do not
/// show descriptions beside a reference.
macro_rules! form {
    ($form:ty, $schema:expr) => {
        impl JsonSchema for $form {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($form).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}
pub(crate) use form;

form!(
    DurationText,
    json_schema!({ "type": "string", "pattern": DURATION })
);
form!(
    OptionalDuration,
    json_schema!({ "type": ["string", "null"], "pattern": DURATION })
);
form!(
    RateText,
    json_schema!({ "type": "string", "pattern": RATE })
);
form!(
    OptionalSeed,
    json_schema!({
        "type": ["integer", "string", "null"],
        "minimum": 0,
        "maximum": u64::MAX,
        "pattern": WHOLE_NUMBER,
    })
);
form!(
    NumberOrText<bool>,
    json_schema!({ "type": ["boolean", "string"], "pattern": "^\\s*(true|false)\\s*$" })
);
form!(
    NumberOrText<f64>,
    json_schema!({
        "type": ["number", "string"],
        "pattern": "^\\s*[+-]?[0-9.]+([eE][+-]?[0-9]+)?\\s*$",
    })
);
form!(
    NumberOrText<u32>,
    json_schema!({
        "type": ["integer", "string"],
        "minimum": 0,
        "maximum": u32::MAX,
        "pattern": WHOLE_NUMBER,
    })
);
form!(
    NumberOrText<usize>,
    json_schema!({ "type": ["integer", "string"], "minimum": 0, "pattern": WHOLE_NUMBER })
);

/// Turns documentation into descriptions for an editor, and leaves out the defaults of whole sections.
pub(crate) fn tidy(schema: &mut Schema) {
    tidy_object(schema.ensure_object());
}

fn tidy_object(object: &mut serde_json::Map<String, Value>) {
    if object.get("default").is_some_and(Value::is_object) {
        object.remove("default");
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = description(text);
    }
    for value in object.values_mut() {
        match value {
            Value::Object(object) => tidy_object(object),
            Value::Array(values) => {
                let objects = values.iter_mut().filter_map(Value::as_object_mut);
                objects.for_each(tidy_object);
            }
            _ => {}
        }
    }
}

/// Keeps the first paragraph and a default that is not Rust, without links.
fn description(documentation: &str) -> String {
    let paragraphs = documentation.split("\n\n").enumerate();
    let kept = paragraphs.filter(|(index, text)| {
        *index == 0 || (text.starts_with("Default:") && !text.contains("::"))
    });
    let kept: Vec<_> = kept.map(|(_, text)| text.replace('\n', " ")).collect();
    // A link is `[text](target)`.
    let mut text = kept.join("\n\n");
    while let Some(start) = text.find("](") {
        let end = text[start..]
            .find(')')
            .map_or(text.len(), |end| start + end + 1);
        text.replace_range(start..end, "");
    }
    text.replace(['[', ']'], "")
}
