//! The fields of settings: those that change what happens in the lab.
//!
//! All other settings of a pasted file stay beside the form, as TOML.

use toml::{Table, Value};

use super::{Field, Form, Group, Values, flatten};
use crate::yours::{InvalidSettings, Yours, to_toml};

const JITTER: &str = "retry.backoff.jitter";
const ADDITIVE: &str = "retry.backoff.jitter.additive";
const RATE: &str = "throttle.rate.limit";
const YES_OR_NO: &[(&str, &str)] = &[("true", "yes"), ("false", "no")];

/// Reads the values of the form, and the settings that have no field, as TOML.
pub(in super::super) fn read(values: &Values, rest: &str) -> Result<Yours, InvalidSettings> {
    let mut settings: Table = rest.parse().map_err(|error| InvalidSettings {
        path: String::new(),
        message: format!("the settings without a field are not TOML: {error}"),
    })?;
    let written = Form::settings().read(values);
    for (path, value) in written.map_err(|error| InvalidSettings {
        message: error.to_string(),
        path: error.path,
    })? {
        insert(&mut settings, path, value);
    }
    Yours::from_table(&settings)
}

/// Returns the values of the form, and the changed settings that have no field, as TOML.
pub(in super::super) fn split(yours: &Yours) -> (Values, String) {
    let mut values = Values::new();
    flatten("", yours.all(), &mut values);
    if values.contains_key(ADDITIVE) {
        values.insert(JITTER.to_owned(), "additive".to_owned());
    }
    let mut rest = yours.changes();
    let form = Form::settings();
    for field in form.fields() {
        values
            .entry(field.path.to_owned())
            .or_insert_with(|| field.value.to_owned());
        remove(&mut rest, field.path);
    }
    values.retain(|path, _| form.fields().any(|field| field.path == path));
    (values, to_toml(&rest))
}

/// Sets the value at a path. A table on the way replaces a text, because a choice can have a value.
fn insert(table: &mut Table, path: &str, value: Value) {
    let Some((first, rest)) = path.split_once('.') else {
        table.insert(path.to_owned(), value);
        return;
    };
    let inner = table.entry(first).or_insert(Value::Table(Table::new()));
    if !inner.is_table() {
        *inner = Value::Table(Table::new());
    }
    insert(inner.as_table_mut().expect("a table"), rest, value);
}

/// Removes the value at a path, and the tables that are empty then.
fn remove(table: &mut Table, path: &str) {
    let Some((first, rest)) = path.split_once('.') else {
        table.remove(path);
        return;
    };
    if let Some(Value::Table(inner)) = table.get_mut(first) {
        remove(inner, rest);
        if inner.is_empty() {
            table.remove(first);
        }
    }
}

impl Form {
    /// Returns the fields of settings, with their defaults.
    pub(in super::super) fn settings() -> Self {
        let mut defaults = Values::new();
        flatten("", Yours::default().all(), &mut defaults);
        for path in ["retry.deadline", "retry.attempt_timeout", RATE] {
            defaults.insert(path.to_owned(), "none".to_owned());
        }
        let groups = vec![
            Group {
                title: "Retry",
                fields: vec![
                    Field::number("retry.max_retries", "Max retries", "of one call"),
                    Field::text("retry.deadline", "Deadline", "of a call, like 30s"),
                    Field::text(
                        "retry.attempt_timeout",
                        "Attempt timeout",
                        "until the headers arrive, like 2s",
                    ),
                    Field::text(
                        "retry.retry_window",
                        "Retry window",
                        "in which retries may start",
                    ),
                    Field::text(
                        "retry.max_server_delay",
                        "Max server delay",
                        "that the call waits for",
                    ),
                    Field::text(
                        "retry.launch_spread",
                        "Launch spread",
                        "random delay of the first attempt",
                    ),
                ],
            },
            Group {
                title: "Backoff",
                fields: vec![
                    Field::text("retry.backoff.base", "Base", "the longest first wait"),
                    Field::number("retry.backoff.multiplier", "Multiplier", ""),
                    Field::text("retry.backoff.cap", "Cap", "the longest wait"),
                    Field::choice(
                        JITTER,
                        "Jitter",
                        &[
                            ("full", "full"),
                            ("equal", "equal"),
                            ("decorrelated", "decorrelated"),
                            ("additive", "additive"),
                            ("none", "none"),
                        ],
                    ),
                    Field::text(ADDITIVE, "Added at most", "")
                        .or("100ms")
                        .only(JITTER, &["additive"]),
                    Field::choice(
                        "retry.backoff.alone",
                        "Grows with",
                        &[("false", "host's failures"), ("true", "own failures")],
                    ),
                ],
            },
            Group {
                title: "Retry budget",
                fields: vec![
                    Field::number(
                        "retry.budget_per_host.retry_ratio",
                        "Retry ratio",
                        "retries that a deposit pays for",
                    ),
                    Field::number(
                        "retry.budget_per_host.min_retries_per_sec",
                        "Min per second",
                        "times the TTL, this is the reserve",
                    ),
                    Field::text(
                        "retry.budget_per_host.ttl",
                        "TTL",
                        "how long deposits count",
                    ),
                    Field::choice(
                        "retry.budget_per_host.deposit_on",
                        "Deposit on",
                        &[("success", "success"), ("request", "all calls")],
                    ),
                ],
            },
            Group {
                title: "Throttle",
                fields: vec![
                    Field::choice("throttle.adaptive", "Adaptive", YES_OR_NO),
                    Field::text(RATE, "Rate", "a fixed one, like 10/s"),
                    Field::number(
                        "throttle.rate.burst",
                        "Burst",
                        "requests at once after idling",
                    )
                    .or("10")
                    .only(RATE, &[]),
                    Field::number(
                        "throttle.max_in_flight",
                        "Max in flight",
                        "requests at the same time",
                    ),
                    Field::number("throttle.max_queue", "Max queue", "calls that may wait"),
                    Field::text("throttle.max_queue_wait", "Max queue wait", "of one call"),
                ],
            },
        ];
        Self { groups, defaults }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn yours(text: &str) -> Yours {
        Yours::from_toml(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn every_setting_survives_the_form() {
        for text in [
            "",
            "retry.backoff.jitter = { additive = '50ms' }",
            "retry.backoff.jitter = 'none'",
            "throttle.rate = { limit = '50/s', burst = 3 }",
            "retry.deadline = '1m 30s'\nthrottle.key_by = { host_and_path = 2 }",
            include_str!("../../yours/every_setting.toml"),
        ] {
            let before = yours(text);
            let (values, rest) = split(&before);
            let after = read(&values, &rest).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(after.all(), before.all(), "{text}");
            assert_eq!(after.to_toml(), before.to_toml(), "{text}");
        }
    }

    #[test]
    fn only_settings_without_a_field_are_the_rest() {
        let text = "retry.max_retries = 3\nretry.backoff.cap = '5s'\nthrottle.rate = { limit = '5/s', burst = 2 }";
        assert_eq!(split(&yours(text)).1, "");
        let (values, rest) = split(&yours(
            "retry.max_retries = 3\nretry.status = { 404 = 'conditional' }",
        ));
        assert_eq!(rest, "[retry.status]\n404 = \"conditional\"\n");
        assert_eq!(values["retry.max_retries"], "3");
    }

    /// A field whose name is misspelt here would be an unknown setting.
    #[test]
    fn every_field_is_a_setting_and_changes_the_file() {
        let (defaults, _) = split(&yours(""));
        for field in Form::settings().fields() {
            let mut values = defaults.clone();
            let changed = match field.path {
                JITTER => "equal",
                ADDITIVE => {
                    values.insert(JITTER.to_owned(), "additive".to_owned());
                    "7ms"
                }
                RATE => "7/s",
                "throttle.rate.burst" => {
                    values.insert(RATE.to_owned(), "7/s".to_owned());
                    "7"
                }
                "retry.budget_per_host.deposit_on" => "request",
                "retry.budget_per_host.retry_ratio" => "0.7",
                "retry.backoff.alone" => "true",
                "throttle.adaptive" => "false",
                path => match (&field.input, path) {
                    (super::super::Input::Number, _) => "7",
                    _ => "7s",
                },
            };
            values.insert(field.path.to_owned(), changed.to_owned());
            let read = read(&values, "").unwrap_or_else(|error| panic!("{}: {error}", field.path));
            let mut written = Values::new();
            flatten("", &read.changes(), &mut written);
            assert_eq!(written[field.path], changed, "{}", field.path);
        }
    }

    #[test]
    fn an_empty_field_is_the_default() {
        let (mut values, _) = split(&yours("retry.max_retries = 3\nretry.deadline = '5s'"));
        for value in values.values_mut() {
            value.clear();
        }
        assert_eq!(read(&values, "").unwrap().to_toml(), "");
        // The page shows the default in the empty field.
        assert_eq!(Form::settings().defaults["retry.max_retries"], "5");
    }

    #[test]
    fn a_bad_value_is_named_without_a_line_of_a_file() {
        for (path, value, message) in [
            (
                "retry.max_retries",
                "many",
                "retry.max_retries: invalid value \"many\": write a whole number from 0 to 4294967295",
            ),
            (
                "retry.deadline",
                "5",
                "retry.deadline: invalid value \"5\": write a duration in h, m, s, ms, us or ns, like \"200ms\", \
                 \"1.5s\" or \"1m 30s\"",
            ),
            (
                "retry.backoff.multiplier",
                "0.5",
                "retry.backoff.multiplier (0.5) should be a finite number of at least 1.0",
            ),
            (
                JITTER,
                "much",
                "retry.backoff.jitter (`much`) is unknown: use one of",
            ),
            (
                RATE,
                "5",
                "throttle.rate.limit: invalid value \"5\": write a rate with a unit",
            ),
            (
                "retry.retries",
                "5",
                "retry.retries: no field has this name",
            ),
        ] {
            let (mut values, _) = split(&yours(""));
            values.insert(path.to_owned(), value.to_owned());
            let Err(error) = read(&values, "") else {
                panic!("{path} = {value} is valid");
            };
            assert_eq!(error.path, path);
            assert!(error.message.starts_with(message), "{error}");
            assert!(!error.message.contains('\n'), "{error}");
        }
    }
}
