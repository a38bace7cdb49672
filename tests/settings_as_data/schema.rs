//! The JSON schema of settings, and what it says about files.

use proptest::prelude::*;
use regex::Regex;
use reqwest_steady::SteadySettings;
use reqwest_steady::settings::RateLimit;
use serde_json::{Value, json};

use crate::files::{EXAMPLE, durations, example_with_comments, settings, unusual};

const COMMITTED: &str = include_str!("../../docs/steady.schema.json");

fn from_toml(text: &str) -> Option<Value> {
    toml::from_str(text).ok()
}

fn as_data(settings: &SteadySettings) -> Value {
    serde_json::to_value(settings).unwrap()
}

/// What the schema says against a value.
fn refused(value: &Value) -> Result<(), String> {
    let schema = serde_json::from_str(COMMITTED).unwrap();
    Checker { root: &schema }.check(&schema, value, "")
}

/// Checks values by the keywords that the schema uses, and knows no others.
struct Checker<'s> {
    root: &'s Value,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
        for (keyword, rule) in schema.as_object().expect("a schema is an object") {
            let is_valid = match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
                "$ref" => {
                    let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                    self.check(self.root.pointer(pointer).unwrap(), value, path)?;
                    true
                }
                "type" => match rule {
                    Value::Array(types) => types.iter().any(|it| has_type(it, value)),
                    one => has_type(one, value),
                },
                "enum" => rule.as_array().unwrap().contains(value),
                "const" => rule == value,
                "oneOf" | "anyOf" => {
                    let options = rule.as_array().unwrap().iter();
                    let fits = options.filter(|it| self.check(it, value, path).is_ok());
                    match keyword.as_str() {
                        "oneOf" => fits.count() == 1,
                        _ => fits.count() > 0,
                    }
                }
                "minimum" => value.as_f64().is_none_or(|it| it >= rule.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|it| it <= rule.as_f64().unwrap()),
                "pattern" => value
                    .as_str()
                    .is_none_or(|it| Regex::new(rule.as_str().unwrap()).unwrap().is_match(it)),
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{path}[{index}]"))?;
                    }
                    true
                }
                "required" => rule.as_array().unwrap().iter().all(|name| {
                    (value.as_object()).is_none_or(|it| it.contains_key(name.as_str().unwrap()))
                }),
                "properties" | "patternProperties" | "additionalProperties" => {
                    for (name, value) in value.as_object().into_iter().flatten() {
                        let path = format!("{path}.{name}");
                        match property(schema, name) {
                            Some(schema) => self.check(schema, value, &path)?,
                            None if schema["additionalProperties"] == json!(false) => {
                                return Err(format!("{path} is unknown"));
                            }
                            None => {}
                        }
                    }
                    true
                }
                other => panic!("the test does not know `{other}`"),
            };
            if !is_valid {
                return Err(format!("{path} ({value}): {keyword} {rule}"));
            }
        }
        Ok(())
    }
}

fn has_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type: {other}"),
    }
}

fn property<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let by_name = schema.get("properties").and_then(|it| it.get(name));
    by_name.or_else(|| {
        let patterns = schema.get("patternProperties")?.as_object()?;
        let mut patterns = patterns.iter();
        patterns.find_map(|(pattern, schema)| {
            (Regex::new(pattern).unwrap().is_match(name)).then_some(schema)
        })
    })
}

#[test]
fn the_committed_schema_is_that_of_the_settings() {
    let schema = schemars::schema_for!(SteadySettings);
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("STEADY_RENEW").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/steady.schema.json");
        std::fs::write(path, &schema).unwrap();
    }
    assert_eq!(schema, COMMITTED, "set STEADY_RENEW=1 to accept it");
    // Descriptions are for people who write files.
    for rust in ["crate::", "](", "```", "::"] {
        let line = COMMITTED.lines().find(|line| line.contains(rust));
        assert_eq!(line, None);
    }
}

#[test]
fn every_setting_of_the_schema_is_described() {
    let schema: Value = serde_json::from_str(COMMITTED).unwrap();
    let sections = (schema["$defs"].as_object().unwrap().values()).chain([&schema]);
    for section in sections {
        for (name, setting) in section["properties"].as_object().into_iter().flatten() {
            assert!(setting["description"].is_string(), "{name}");
        }
    }
}

#[test]
fn the_example_file_fits_the_schema() {
    for text in ["", EXAMPLE, &example_with_comments()] {
        assert_eq!(refused(&from_toml(text).unwrap()), Ok(()));
    }
    assert_eq!(refused(&as_data(&unusual())), Ok(()));
}

#[test]
fn values_in_every_documented_form_fit_the_schema() {
    for text in [
        "200ms",
        "1m 30s",
        "1.5s",
        "2h",
        "2 minutes",
        "1h30m",
        "7ns",
        "10µs",
        "0s",
    ] {
        let file = json!({ "retry": { "deadline": text, "max_server_delay": text } });
        assert_eq!(refused(&file), Ok(()));
    }
    for text in ["10/s", "600/min", " 600 / min ", "1000/h", "0.5/day"] {
        let file = json!({ "throttle": { "rate": { "limit": text, "burst": "2" } } });
        assert_eq!(refused(&file), Ok(()));
    }
    let text = r#"
        retry = { max_retries = "3", dry_run = "true", seed = "7", backoff = { multiplier = "1.5" } }
        throttle = { max_in_flight = "8", key_by = { host_and_path = "1" } }
        coalesce = { max_body = "10", ignore_extensions = "true" }
    "#;
    assert_eq!(refused(&from_toml(text).unwrap()), Ok(()));
    let nulls =
        json!({ "preset": null, "coalesce": null, "retry": { "deadline": null, "seed": null } });
    assert_eq!(refused(&nulls), Ok(()));
}

#[test]
fn files_that_cannot_be_read_do_not_fit_the_schema() {
    let mut count = 0;
    for block in include_str!("bad_files.txt").split("\n---\n") {
        let file = block.split("\n=>").next().unwrap();
        // Other files are no TOML, or can be read and have a value that `check` refuses.
        if toml::from_str::<SteadySettings>(file).is_err() {
            if let Some(value) = from_toml(file) {
                assert!(refused(&value).is_err(), "{file}");
                count += 1;
            }
        }
    }
    assert!(count >= 40, "{count} files");
    // Some ranges are in the schema, too.
    for file in [
        "retry.backoff.multiplier = 0.5",
        "retry.budget_per_host.retry_ratio = 10",
        "throttle.max_in_flight = 0",
        "throttle.rate = { limit = \"10/s\", burst = 0 }",
    ] {
        assert!(refused(&from_toml(file).unwrap()).is_err(), "{file}");
    }
}

proptest! {
    #[test]
    fn valid_settings_fit_the_schema_as_they_are_written(
        settings in settings(),
        duration in durations(),
        rate in 1e-5..1e6_f64,
    ) {
        if settings.check().is_ok() {
            prop_assert_eq!(refused(&as_data(&settings)), Ok(()));
        }
        let mut usual = SteadySettings::default();
        usual.retry.secrets = settings.retry.secrets;
        usual.retry.status = settings.retry.status;
        usual.retry.log_levels = settings.retry.log_levels;
        usual.retry.seed = settings.retry.seed;
        usual.retry.auto_key = settings.retry.auto_key;
        usual.retry.max_server_delay = duration;
        usual.throttle.key_by = settings.throttle.key_by;
        usual.throttle.rate = Some(RateLimit { per_second: rate, burst: 1 });
        usual.check().unwrap();
        prop_assert_eq!(refused(&as_data(&usual)), Ok(()));
    }
}
