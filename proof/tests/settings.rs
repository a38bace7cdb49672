//! Settings from a file and the environment, merged by the crate `config`, as the guide shows.

use std::collections::HashMap;
use std::time::Duration;

use config::{Config, Environment, File, FileFormat};
use reqwest_steady::SteadySettings;
use reqwest_steady::settings::RateLimit;

fn read(file: &str, variables: &[(&str, &str)]) -> Result<SteadySettings, String> {
    let variables: HashMap<_, _> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let environment = Environment::with_prefix("STEADY")
        .separator("__")
        .source(Some(variables));
    let merged = Config::builder()
        .add_source(File::from_str(file, FileFormat::Toml))
        .add_source(environment)
        .build()
        .map_err(|error| error.to_string())?;
    SteadySettings::read(merged).map_err(|error| error.to_string())
}

#[test]
fn variables_of_the_environment_win_over_a_file() {
    let file = "retry.max_retries = 1\nretry.deadline = \"60s\"\nthrottle.max_queue = 5";
    let settings = read(
        file,
        &[
            ("STEADY__RETRY__MAX_RETRIES", "3"),
            ("STEADY__RETRY__ATTEMPT_TIMEOUT", "1.5s"),
            ("STEADY__RETRY__DRY_RUN", "true"),
            ("STEADY__RETRY__BACKOFF__MULTIPLIER", "1.5"),
            ("STEADY__RETRY__STATUS__404", "conditional"),
            ("STEADY__THROTTLE__RATE__LIMIT", "600/min"),
            ("STEADY__THROTTLE__RATE__BURST", "2"),
            ("STEADY__RETRY__LOG_LEVELS__RETRY", "off"),
            ("UNRELATED__RETRY__MAX_RETRIES", "9"),
        ],
    )
    .unwrap();
    let retry = &settings.retry;
    assert_eq!((retry.max_retries, retry.dry_run), (3, true));
    assert_eq!(retry.deadline, Some(Duration::from_secs(60)));
    assert_eq!(retry.attempt_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(retry.backoff.get_multiplier(), 1.5);
    assert_eq!(retry.status.len(), 1);
    let (per_second, burst) = (10.0, 2);
    assert_eq!(
        settings.throttle.rate,
        Some(RateLimit { per_second, burst })
    );
    assert_eq!(settings.throttle.max_queue, 5);
}

#[test]
fn a_bad_variable_is_named() {
    let misspelt = read("", &[("STEADY__RETRY__MAX_RETRY", "3")]).unwrap_err();
    assert!(
        misspelt.contains("did you mean `max_retries`?"),
        "{misspelt}"
    );
    let invalid = read("", &[("STEADY__RETRY__DEADLINE", "soon")]).unwrap_err();
    assert!(invalid.starts_with("retry.deadline: "), "{invalid}");
    assert!(invalid.contains("invalid value \"soon\""), "{invalid}");
}
