//! Settings from a file and the environment, merged by the crate `config`, as the guide shows.

use std::collections::HashMap;
use std::time::Duration;

use config::{Config, Environment, File, FileFormat, Value, ValueKind};
use reqwest_steady::settings::{KeyChoice, RateLimit};
use reqwest_steady::{AutoKey, Jitter, Preset, SteadySettings};

fn read(file: &str, variables: &[(&str, &str)]) -> Result<SteadySettings, String> {
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    read_all(file, variables)
}

fn read_all(file: &str, variables: HashMap<String, String>) -> Result<SteadySettings, String> {
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

#[test]
fn a_choice_without_its_value_is_refused_and_no_panic() {
    let additive =
        "retry.backoff.jitter: `additive` needs a duration: write { additive = \"100ms\" }";
    let path =
        "throttle.key_by: `host_and_path` needs a number of segments: write { host_and_path = 1 }";
    for (file, variable, said) in [
        ("retry.backoff.jitter = \"additive\"", ("A", ""), additive),
        ("", ("STEADY__RETRY__BACKOFF__JITTER", "additive"), additive),
        ("throttle.key_by = \"host_and_path\"", ("A", ""), path),
        ("", ("STEADY__THROTTLE__KEY_BY", "host_and_path"), path),
    ] {
        let message = read(file, &[variable]).unwrap_err();
        assert!(message.starts_with(said), "{message}");
    }
    let settings = read(
        "preset = \"github\"",
        &[
            ("STEADY__RETRY__BACKOFF__JITTER__ADDITIVE", "100ms"),
            ("STEADY__RETRY__AUTO_KEY", "random"),
            ("STEADY__RETRY__BUDGET_PER_HOST__DEPOSIT_ON", "request"),
            ("STEADY__THROTTLE__KEY_BY__HOST_AND_PATH", "2"),
        ],
    )
    .unwrap();
    assert_eq!(settings.preset, Some(Preset::GitHub));
    let jitter = settings.retry.backoff.get_jitter();
    assert_eq!(jitter, Jitter::Additive(Duration::from_millis(100)));
    assert_eq!(settings.retry.auto_key, AutoKey::Random);
    assert_eq!(settings.throttle.key_by, KeyChoice::HostAndPath(2));
}

#[test]
fn the_nearest_name_is_found_among_the_names_of_the_section() {
    for (file, said) in [
        (
            "preset = \"gihub\"",
            "preset (`gihub`) is unknown: did you mean `github`?",
        ),
        (
            "retry.backoff.jitter = \"ful\"",
            "retry.backoff.jitter (`ful`) is unknown: did you mean `full`?",
        ),
        (
            "retry.backoff.zzz = 3",
            "retry.backoff.zzz is unknown: use one of `base`, `multiplier`, `cap`, `jitter`, `alone`",
        ),
        (
            "throttle.rate.limits = \"10/s\"",
            "throttle.rate.limits is unknown: did you mean `limit`?",
        ),
    ] {
        assert_eq!(read(file, &[]).unwrap_err(), said);
    }
}

/// Every value of a table as a variable. `None` if there is a list, which no variable can have.
fn variables(prefix: &str, value: Value) -> Option<Vec<(String, String)>> {
    match value.kind {
        ValueKind::Table(table) => {
            let mut all = Vec::new();
            for (name, value) in table {
                let name = format!("{prefix}__{}", name.to_uppercase());
                all.extend(variables(&name, value)?);
            }
            Some(all)
        }
        ValueKind::Array(_) => None,
        _ => Some(vec![(prefix.to_owned(), value.into_string().ok()?)]),
    }
}

/// The bad files of the library, as a file and as variables.
#[test]
fn bad_files_and_variables_are_refused_at_the_same_place() {
    let (mut files, mut in_variables) = (0, 0);
    let snapshot = include_str!("../../tests/settings_as_data/bad_files.txt");
    for block in snapshot.trim_end().split("\n---\n") {
        let (file, expected) = block.split_once("\n=>\n").unwrap();
        let Ok(parsed) = Config::builder()
            .add_source(File::from_str(file, FileFormat::Toml))
            .build()
        else {
            continue;
        };
        // `config` writes numbers as text where text is expected.
        if expected.ends_with("expected text") {
            continue;
        }
        let place = expected.split([':', ' ']).next().unwrap();
        let message = read(file, &[]).map_or_else(|message| message, |_| "no error".to_owned());
        match expected.contains(" is unknown: ") || expected.contains(" should ") {
            true => assert_eq!(message, expected, "{file}"),
            false => assert!(message.starts_with(place), "{file}: {message}"),
        }
        files += 1;
        let table: Value = parsed.try_deserialize().unwrap();
        // An empty table has no variable, and `config` writes 3.0 as 3.
        let variables =
            variables("STEADY", table).filter(|it| !it.is_empty() && !file.ends_with("= 3.0"));
        if let Some(variables) = variables {
            let message = read_all("", variables.into_iter().collect())
                .map_or_else(|message| message, |_| "no error".to_owned());
            assert!(message.starts_with(place), "{file} as variables: {message}");
            in_variables += 1;
        }
    }
    assert!(files > 90 && in_variables > 80, "{files} {in_variables}");
}
