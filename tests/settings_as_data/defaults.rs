//! Files that are read over the defaults of an SDK.

use std::time::Duration;

use proptest::prelude::*;
use reqwest::StatusCode;
use reqwest_steady::dead_letter::Secrets;
use reqwest_steady::settings::{CoalesceSettings, KeyChoice, RateLimit};
use reqwest_steady::{Backoff, Jitter, Preset, StatusClass, SteadySettings};

use crate::files::settings;

const SEC: Duration = Duration::from_secs(1);

fn read_over(defaults: &SteadySettings, toml: &str) -> Result<SteadySettings, String> {
    let file = toml::Deserializer::parse(toml).map_err(|error| error.to_string())?;
    SteadySettings::read_over(defaults, file).map_err(|error| error.to_string())
}

fn read_json_over(defaults: &SteadySettings, json: &str) -> Result<SteadySettings, String> {
    let mut file = serde_json::Deserializer::from_str(json);
    SteadySettings::read_over(defaults, &mut file).map_err(|error| error.to_string())
}

/// The defaults of an SDK: no section is as in this crate.
fn defaults() -> SteadySettings {
    let mut defaults = SteadySettings::default();
    defaults.preset = Some(Preset::Stripe);
    defaults.retry.max_retries = 3;
    defaults.retry.backoff = Backoff::exponential(2 * SEC).jitter(Jitter::Additive(SEC));
    defaults.retry.deadline = Some(60 * SEC);
    defaults.retry.idempotency_header = Some("Acme-Request-Id".to_owned());
    (defaults.retry.status).insert(StatusCode::CONFLICT, StatusClass::Retry);
    defaults.retry.secrets = Secrets::new().header("x-acme").keep("page_token");
    defaults.retry.budget_per_host.retry_ratio = 0.1;
    defaults.throttle.rate = Some(RateLimit {
        per_second: 10.0,
        burst: 20,
    });
    defaults.throttle.key_by = KeyChoice::HostAndPath(1);
    let mut coalesce = CoalesceSettings::default();
    coalesce.max_body = 7;
    defaults.coalesce = Some(coalesce);
    defaults
}

#[test]
fn a_file_changes_only_the_settings_that_it_names() {
    let mut expected = defaults();
    assert_eq!(read_over(&defaults(), "").unwrap(), expected);
    assert_eq!(read_over(&defaults(), "[retry.backoff]").unwrap(), expected);

    expected.retry.max_retries = 1;
    let retry = "[retry]\nmax_retries = 1";
    assert_eq!(read_over(&defaults(), retry).unwrap(), expected);
    expected.retry.backoff = expected.retry.backoff.cap(30 * SEC);
    expected.retry.budget_per_host.ttl = SEC;
    expected.throttle.max_in_flight = 8;
    expected.coalesce.as_mut().unwrap().leader_timeout = SEC;
    let nested = r#"
        retry = { max_retries = 1, backoff.cap = "30s", budget_per_host = { ttl = "1s" } }
        throttle.max_in_flight = 8
        [coalesce]
        leader_timeout = "1s"
    "#;
    assert_eq!(read_over(&defaults(), nested).unwrap(), expected);
}

#[test]
fn values_that_are_tables_are_merged_and_choices_replaced() {
    let mut expected = defaults();
    expected.throttle.rate.as_mut().unwrap().per_second = 5.0;
    (expected.retry.status).insert(StatusCode::NOT_FOUND, StatusClass::Never);
    let merged = "throttle.rate.limit = \"5/s\"\nretry.status.404 = \"never\"";
    assert_eq!(read_over(&defaults(), merged).unwrap(), expected);

    let mut expected = defaults();
    (expected.retry.status).insert(StatusCode::CONFLICT, StatusClass::Never);
    expected.retry.backoff = expected.retry.backoff.jitter(Jitter::Equal);
    expected.throttle.key_by = KeyChoice::Host;
    let replaced = r#"
        retry = { status.409 = "never", backoff.jitter = "equal" }
        throttle.key_by = "host"
    "#;
    assert_eq!(read_over(&defaults(), replaced).unwrap(), expected);
    let back = r#"
        retry = { status.409 = "retry", backoff.jitter = { additive = "1s" } }
        throttle.key_by = { host_and_path = 1 }
    "#;
    assert_eq!(read_over(&expected, back).unwrap(), defaults());
}

#[test]
fn a_list_replaces_that_of_the_defaults() {
    let mut expected = defaults();
    expected.retry.secrets = Secrets::new().header("x-mine").keep("page_token");
    let file = "retry.secrets.header = [\"x-mine\"]";
    assert_eq!(read_over(&defaults(), file).unwrap(), expected);
    expected.retry.secrets = Secrets::new().keep("page_token");
    let empty = "retry.secrets.header = []";
    assert_eq!(read_over(&defaults(), empty).unwrap(), expected);
}

#[test]
fn an_optional_setting_can_be_added_changed_and_removed() {
    let mut expected = defaults();
    expected.retry.deadline = Some(90 * SEC);
    expected.retry.attempt_timeout = Some(10 * SEC);
    let file = "retry = { deadline = \"90s\", attempt_timeout = \"10s\" }";
    assert_eq!(read_over(&defaults(), file).unwrap(), expected);

    let mut expected = defaults();
    expected.preset = None;
    expected.retry.deadline = None;
    expected.throttle.rate = None;
    expected.coalesce = None;
    let nulls = r#"{
        "preset": null, "coalesce": null, "retry": { "deadline": null }, "throttle": { "rate": null }
    }"#;
    assert_eq!(read_json_over(&defaults(), nulls).unwrap(), expected);
    // An optional section begins with the defaults of this crate.
    let section = read_over(&SteadySettings::default(), "[coalesce]").unwrap();
    assert_eq!(section.coalesce, Some(CoalesceSettings::default()));
}

#[test]
fn a_bad_file_over_defaults_is_refused_with_its_place() {
    for (file, said) in [
        (
            "retry.max_retry = 3",
            "retry.max_retry is unknown: did you mean `max_retries`?",
        ),
        (
            "retry.deadline = \"soon\"",
            "retry.deadline: invalid value \"soon\": write a duration in h, m, s, ms, us or ns, \
             like \"200ms\", \"1.5s\" or \"1m 30s\"",
        ),
        (
            "retry = 3",
            "retry: invalid type: integer `3`, expected a table of settings",
        ),
        (
            "retry.backoff.jitter = { aditive = \"1s\" }",
            "retry.backoff.jitter (`aditive`) is unknown: did you mean `additive`?",
        ),
        // The file is at fault together with the defaults.
        (
            "retry.backoff.cap = \"1s\"",
            "retry.backoff.cap (1s) should not be shorter than the base (2s): \
             raise the cap, or lower the base",
        ),
    ] {
        assert_eq!(read_over(&defaults(), file).unwrap_err(), said);
    }
    let broken = read_json_over(&defaults(), "{ \"retry\": ").unwrap_err();
    assert!(broken.contains("EOF while parsing"), "{broken}");
}

proptest! {
    #[test]
    fn an_empty_file_leaves_any_defaults_as_they_are(defaults in settings()) {
        match (defaults.check(), read_over(&defaults, "")) {
            (Ok(()), Ok(read)) => prop_assert_eq!(read, defaults),
            (Err(error), Err(said)) => prop_assert_eq!(error.to_string(), said),
            (checked, read) => prop_assert!(false, "{:?} {:?}", checked, read),
        }
    }

    #[test]
    fn a_file_with_every_setting_wins_over_any_defaults(
        defaults in settings(),
        file in settings(),
    ) {
        // What a file cannot say stays as in the defaults.
        let mut expected = file.clone();
        expected.preset = file.preset.or(defaults.preset);
        let (retry, theirs) = (&mut expected.retry, defaults.retry.clone());
        retry.deadline = retry.deadline.or(theirs.deadline);
        retry.attempt_timeout = retry.attempt_timeout.or(theirs.attempt_timeout);
        retry.seed = retry.seed.or(theirs.seed);
        retry.idempotency_header = retry.idempotency_header.take().or(theirs.idempotency_header);
        retry.attempt_header = retry.attempt_header.take().or(theirs.attempt_header);
        for (status, class) in theirs.status {
            retry.status.entry(status).or_insert(class);
        }
        let (throttle, theirs) = (&mut expected.throttle, defaults.throttle.clone());
        throttle.rate = throttle.rate.or(theirs.rate);
        throttle.seed = throttle.seed.or(theirs.seed);
        expected.coalesce = file.coalesce.clone().or(defaults.coalesce.clone());
        let toml = toml::to_string(&file).unwrap();
        match (expected.check(), read_over(&defaults, &toml)) {
            (Ok(()), Ok(read)) => prop_assert_eq!(read, expected),
            (Err(error), Err(said)) => prop_assert_eq!(error.to_string(), said),
            (checked, read) => prop_assert!(false, "{:?} {:?}", checked, read),
        }
    }
}
