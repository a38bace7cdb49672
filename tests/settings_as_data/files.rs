//! Settings that are read from files and written to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use regex::Regex;
use reqwest::StatusCode;
use reqwest_steady::dead_letter::Secrets;
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::observe::LogLevels;
use reqwest_steady::settings::{CoalesceSettings, KeyChoice, RateLimit};
use reqwest_steady::{
    AutoKey, Backoff, Budget, CoalesceMiddleware, Deposit, Jitter, KeyBy, Preset, RetryMiddleware,
    StatusClass, Steady, SteadySettings, ThrottleMiddleware,
};
use toml::{Table, Value};
use tracing::level_filters::LevelFilter;

pub(crate) const EXAMPLE: &str = include_str!("../../docs/steady.toml");

pub(crate) fn read_toml(text: &str) -> Result<SteadySettings, String> {
    let toml = toml::Deserializer::parse(text).map_err(|error| error.to_string())?;
    SteadySettings::read(toml).map_err(|error| error.to_string())
}

pub(crate) fn read_json(text: &str) -> Result<SteadySettings, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    SteadySettings::read(&mut json).map_err(|error| error.to_string())
}

/// Settings in which every setting is set, and none has its default.
pub(crate) fn unusual() -> SteadySettings {
    let mut settings = SteadySettings::default();
    settings.preset = Some(Preset::GitHub);
    let levels = LogLevels::default()
        .retry(LevelFilter::OFF)
        .refusal(LevelFilter::ERROR);
    let retry = &mut settings.retry;
    retry.max_retries = 7;
    retry.backoff = Backoff::exponential(Duration::from_micros(1500))
        .multiplier(1.5)
        .cap(Duration::from_secs(61))
        .jitter(Jitter::Additive(Duration::from_nanos(7)))
        .alone();
    retry.max_server_delay = Duration::MAX;
    retry.retry_window = Duration::from_secs(3600);
    retry.deadline = Some(Duration::from_secs(100));
    retry.attempt_timeout = Some(Duration::from_secs(10));
    retry.launch_spread = Duration::from_secs(1);
    retry.budget_per_host.ttl = Duration::from_secs(30);
    retry.budget_per_host.min_retries_per_sec = 0.125;
    retry.budget_per_host.retry_ratio = 0.1;
    retry.budget_per_host.deposit_on = Deposit::Request;
    retry
        .status
        .insert(StatusCode::NOT_FOUND, StatusClass::Conditional);
    retry.retry_without_key = true;
    retry.retry_unsent = true;
    retry.client_follows_redirects = false;
    retry.idempotency_header = Some("PayPal-Request-Id".to_owned());
    retry.auto_key = AutoKey::Content;
    retry.attempt_header = Some("X-Attempt".to_owned());
    retry.log_levels = levels;
    retry.dry_run = true;
    retry.dead_letter_max_body = usize::MAX;
    retry.dead_letter_timeout = Duration::from_millis(1);
    retry.secrets = Secrets::new().header("a").parameter("b").keep("c");
    retry.seed = Some(u64::MAX);
    let throttle = &mut settings.throttle;
    throttle.max_in_flight = 3;
    throttle.max_queue = usize::MAX;
    throttle.max_queue_wait = Duration::ZERO;
    throttle.rate = Some(RateLimit {
        per_second: 0.1,
        burst: 2,
    });
    throttle.adaptive = false;
    throttle.key_by = KeyChoice::HostAndPath(2);
    throttle.log_levels = levels;
    throttle.seed = Some(1);
    let mut coalesce = CoalesceSettings::default();
    coalesce.max_body = 1;
    coalesce.leader_timeout = Duration::from_secs(1);
    coalesce.ignore_header = vec!["X-Client-Start".to_owned()];
    coalesce.ignore_extensions = true;
    settings.coalesce = Some(coalesce);
    settings
}

/// The paths of all settings in a table, without what belongs to the value of a setting.
fn paths(table: &Table) -> BTreeSet<String> {
    const VALUES: [&str; 4] = ["rate", "key_by", "jitter", "status"];
    let mut paths = BTreeSet::new();
    for (name, value) in table {
        match value {
            Value::Table(section) if !VALUES.contains(&name.as_str()) => {
                paths.extend(
                    self::paths(section)
                        .iter()
                        .map(|path| format!("{name}.{path}")),
                );
            }
            _ => {
                paths.insert(name.clone());
            }
        }
    }
    paths
}

/// The example file with all settings that it shows in comments.
pub(crate) fn example_with_comments() -> String {
    let is_setting = |line: &&str| {
        let name = line.split(" = ").next().unwrap_or_default();
        line.starts_with('[') || (line.contains(" = ") && !name.contains(' '))
    };
    let line = |line: &'static str| line.strip_prefix("# ").filter(is_setting).unwrap_or(line);
    EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_file_has_the_defaults() {
    assert_eq!(read_toml(EXAMPLE).unwrap(), SteadySettings::default());
    let all = read_toml(&example_with_comments()).unwrap();
    assert_eq!(all.coalesce, Some(CoalesceSettings::default()));
}

#[test]
fn the_example_file_has_every_setting() {
    let all = Table::try_from(unusual()).unwrap();
    let example: Table = example_with_comments().parse().unwrap();
    // The other levels are accepted in each section, and do nothing.
    let throttle = ["pause", "pace", "refusal"];
    let is_used = |path: &String| match path.split_once(".log_levels.") {
        Some((section, level)) => (section == "throttle") == throttle.contains(&level),
        None => true,
    };
    let all: BTreeSet<_> = paths(&all).into_iter().filter(is_used).collect();
    assert_eq!(paths(&example), all);
    // Each is explained: no setting follows another one without a comment.
    let has_comment = |pair: &[&str]| pair[1].starts_with(['#', '[']) || pair[0].starts_with('#');
    let lines: Vec<_> = EXAMPLE.lines().filter(|line| !line.is_empty()).collect();
    let bare: Vec<_> = lines.windows(2).filter(|pair| !has_comment(pair)).collect();
    assert!(bare.is_empty(), "{bare:?}");
}

#[test]
fn no_setting_of_the_test_has_its_default() {
    let (unusual, usual) = (
        Table::try_from(unusual()).unwrap(),
        SteadySettings::default(),
    );
    let mut usual = Table::try_from(usual).unwrap();
    let coalesce = Table::try_from(CoalesceSettings::default()).unwrap();
    usual.insert("coalesce".to_owned(), coalesce.into());
    let value = |table: &Table, path: &str| {
        let mut value = Some(Value::Table(table.clone()));
        for name in path.split('.') {
            value = value.and_then(|it| it.get(name).cloned());
        }
        value
    };
    for path in paths(&unusual) {
        // Two levels are enough, of eighteen.
        if !path.contains("log_levels") {
            assert_ne!(value(&unusual, &path), value(&usual, &path), "{path}");
        }
    }
}

/// All Rust files of the crate.
fn sources(folder: &Path) -> Vec<String> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources.extend(self::sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            sources.push(std::fs::read_to_string(path).unwrap());
        }
    }
    sources
}

/// The section that has the settings of a type. `None` if it makes no settings of a client that are data.
fn section_of(name: &str) -> Option<&'static str> {
    match name {
        "SteadyBuilder" | "RetryMiddlewareBuilder" => Some("retry"),
        "ThrottleMiddlewareBuilder" => Some("throttle"),
        "CoalesceMiddlewareBuilder" => Some("coalesce"),
        "BudgetBuilder" => Some("retry.budget_per_host"),
        "Backoff" => Some("retry.backoff"),
        "Secrets" => Some("retry.secrets"),
        "LogLevels" => Some("retry.log_levels"),
        // A fleet, its store and a simulated server are made in code.
        "FleetLimitsBuilder" | "RedisStoreBuilder" | "SimulatedServiceBuilder" => None,
        other => panic!("{other} is new: say which section has its settings"),
    }
}

#[test]
fn every_setting_of_every_builder_is_data() {
    // Functions, sinks and what is shared with others are not.
    let not_data = [
        "settings",
        "observer",
        "observe_fn",
        "classify_fn",
        "inspect_body",
        "dead_letter_sink",
        "budget",
        "fleet",
    ];
    let all = Table::try_from(unusual()).unwrap();
    let block =
        Regex::new(r"(?ms)^impl (\w*Builder|Backoff|Secrets|LogLevels) \{\n(.*?)^\}").unwrap();
    let setter =
        Regex::new(r"pub (?:const )?fn (\w+)(?:<[^>]*>)?\(\s*(?:mut )?self,?[^{]*-> Self\b")
            .unwrap();
    let mut settings: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
        for found in block.captures_iter(&source) {
            let of_type = settings.entry(found[1].to_owned()).or_default();
            let setters = setter.captures_iter(&found[2]);
            of_type.extend(setters.map(|it| it[1].to_owned()));
        }
    }
    for (name, least) in [
        ("SteadyBuilder", 12),
        ("RetryMiddlewareBuilder", 25),
        ("ThrottleMiddlewareBuilder", 8),
        ("CoalesceMiddlewareBuilder", 4),
        ("BudgetBuilder", 4),
        ("Backoff", 4),
        ("Secrets", 3),
        ("LogLevels", 9),
    ] {
        let found = &settings[name];
        assert!(found.len() >= least, "{name}: {found:?}");
    }
    for (of_type, names) in &settings {
        let Some(section) = section_of(of_type) else {
            continue;
        };
        let section = section
            .split('.')
            .fold(&all, |table, name| table[name].as_table().unwrap());
        for name in names.iter().filter(|it| !not_data.contains(&it.as_str())) {
            // What concerns the whole bundle stands before the sections.
            let is_data = section.contains_key(name) || all.contains_key(name);
            assert!(is_data, "{of_type}: {name} is missing");
        }
    }
}

#[test]
fn settings_of_a_bundle_are_those_it_was_built_from() {
    for settings in [SteadySettings::default(), unusual()] {
        let steady = Steady::from_settings(&settings).unwrap();
        assert_eq!(steady.settings(), settings);
        let built = Steady::builder().settings(&settings).build().unwrap();
        assert_eq!(built.settings(), settings);
    }
}

#[test]
fn a_bundle_takes_settings_and_builders_in_any_order() {
    let mut settings = SteadySettings::default();
    settings.retry.max_retries = 2;
    settings.throttle.max_queue = 5;
    let builder = || {
        let key_by = KeyBy::from_fn(|_| "all".to_owned());
        let throttle = ThrottleMiddleware::builder().key_by(key_by).max_queue(1);
        Steady::builder()
            .deadline(Duration::from_secs(9))
            .throttle(throttle)
    };
    let retry = || RetryMiddleware::builder().dry_run(true);
    let coalesce = || CoalesceMiddleware::builder().max_body(7);
    for steady in [
        builder()
            .settings(&settings)
            .retry(retry())
            .coalesce(coalesce()),
        builder()
            .coalesce(coalesce())
            .retry(retry())
            .settings(&settings),
    ] {
        let read = steady.build().unwrap().settings();
        assert_eq!((read.retry.max_retries, read.retry.dry_run), (2, false));
        assert_eq!(read.retry.deadline, Some(Duration::from_secs(9)));
        assert_eq!(
            (read.throttle.max_queue, read.throttle.key_by),
            (5, KeyChoice::Host)
        );
        assert_eq!(read.coalesce.unwrap().max_body, 7);
    }
}

#[test]
fn errors_of_a_builder_name_the_place_as_those_of_a_file_do() {
    let builder = Steady::builder;
    let retry = RetryMiddleware::builder().backoff(Backoff::exponential(Duration::ZERO));
    let shared = RetryMiddleware::builder().budget(Budget::unlimited());
    for (builder, place) in [
        (builder().deadline(Duration::ZERO), "retry.deadline"),
        (builder().retry(retry), "retry.backoff.base"),
        (
            builder().throttle(ThrottleMiddleware::builder().max_in_flight(0)),
            "throttle.max_in_flight",
        ),
        (
            builder().coalesce(CoalesceMiddleware::builder().leader_timeout(Duration::ZERO)),
            "coalesce.leader_timeout",
        ),
        (
            // No file has a fleet.
            builder().retry(shared).fleet(FleetLimits::in_memory()),
            "fleet",
        ),
    ] {
        assert_eq!(builder.build().unwrap_err().setting(), place);
    }
}

#[test]
fn a_builder_starts_from_settings_and_changes_some() {
    let retry = RetryMiddleware::builder().settings(unusual().retry);
    let retry = retry.max_retries(1).build().unwrap();
    assert_eq!((retry.max_retries(), retry.retry_unsent()), (1, true));
    assert_eq!(retry.deadline(), Some(Duration::from_secs(100)));
}

#[test]
fn all_values_can_be_text() {
    let text = r#"
        retry = { max_retries = "3", dry_run = "true", seed = "7", backoff = { multiplier = "1.5", alone = "true" } }
        throttle = { max_in_flight = "8", rate = { limit = " 600 / min ", burst = "2" }, key_by = { host_and_path = "1" } }
        coalesce = { max_body = "10", ignore_extensions = "true" }
    "#;
    let settings = read_toml(text).unwrap();
    assert_eq!(
        (settings.retry.max_retries, settings.retry.seed),
        (3, Some(7))
    );
    assert!(settings.retry.dry_run && settings.retry.backoff.is_alone());
    assert_eq!(settings.retry.backoff.get_multiplier(), 1.5);
    let rate = RateLimit {
        per_second: 10.0,
        burst: 2,
    };
    assert_eq!(settings.throttle.rate, Some(rate));
    assert_eq!(settings.throttle.key_by, KeyChoice::HostAndPath(1));
    assert_eq!(settings.coalesce.unwrap().max_body, 10);
}

#[test]
fn durations_and_rates_have_the_usual_units() {
    for (text, nanos) in [
        ("200ms", 200_000_000),
        ("1.5s", 1_500_000_000),
        ("1m 30s", 90_000_000_000),
        ("2 minutes", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("0s", 0),
        ("7ns", 7),
    ] {
        let settings = read_toml(&format!("throttle.max_queue_wait = {text:?}")).unwrap();
        assert_eq!(settings.throttle.max_queue_wait.as_nanos(), nanos, "{text}");
    }
    for (text, per_second) in [
        ("10/s", 10.0),
        ("600/min", 10.0),
        ("36000/h", 10.0),
        ("864/day", 0.01),
    ] {
        let rate = format!("throttle.rate = {{ limit = {text:?}, burst = 1 }}");
        let rate = read_toml(&rate).unwrap().throttle.rate.unwrap();
        assert_eq!(rate.per_second, per_second, "{text}");
    }
}

#[test]
fn a_missing_setting_has_its_default() {
    assert_eq!(read_toml("").unwrap(), SteadySettings::default());
    assert_eq!(read_json("{}").unwrap(), SteadySettings::default());
    let nulls = r#"{ "coalesce": null, "retry": { "deadline": null, "seed": null } }"#;
    assert_eq!(read_json(nulls).unwrap(), SteadySettings::default());
}

pub(crate) fn durations() -> impl Strategy<Value = Duration> {
    let any = (any::<u64>(), 0..1_000_000_000_u32);
    prop_oneof![
        any.prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
        (1..10_000_u64).prop_map(Duration::from_millis),
        Just(Duration::MAX),
    ]
}

fn levels() -> impl Strategy<Value = LogLevels> {
    const LEVELS: [LevelFilter; 6] = [
        LevelFilter::OFF,
        LevelFilter::ERROR,
        LevelFilter::WARN,
        LevelFilter::INFO,
        LevelFilter::DEBUG,
        LevelFilter::TRACE,
    ];
    proptest::array::uniform9(prop::sample::select(&LEVELS[..])).prop_map(|at| {
        let levels = LogLevels::default()
            .retry(at[0])
            .success(at[1])
            .recovery(at[2]);
        let levels = levels.rejection(at[3]).given_up(at[4]).abandoned(at[5]);
        levels.pause(at[6]).pace(at[7]).refusal(at[8])
    })
}

fn backoffs() -> impl Strategy<Value = Backoff> {
    let jitter = prop_oneof![
        Just(Jitter::Full),
        Just(Jitter::Equal),
        Just(Jitter::Decorrelated),
        Just(Jitter::None),
        durations().prop_map(Jitter::Additive),
    ];
    (
        durations(),
        any::<f64>(),
        durations(),
        jitter,
        any::<bool>(),
    )
        .prop_filter_map(
            "NaN differs from itself",
            |(base, multiplier, cap, jitter, alone)| {
                let backoff = Backoff::exponential(base)
                    .multiplier(multiplier)
                    .cap(cap)
                    .jitter(jitter);
                let backoff = if alone { backoff.alone() } else { backoff };
                multiplier.is_finite().then_some(backoff)
            },
        )
}

const PRESETS: [Preset; 6] = [
    Preset::Stripe,
    Preset::OpenAi,
    Preset::Anthropic,
    Preset::GitHub,
    Preset::S3,
    Preset::Kubernetes,
];

prop_compose! {
    pub(crate) fn settings()(
        numbers in any::<[u32; 4]>(),
        sizes in any::<[usize; 4]>(),
        switches in any::<[bool; 6]>(),
        times in prop::array::uniform8(durations()),
        optional_times in prop::array::uniform2(prop::option::of(durations())),
        seeds in any::<[Option<u64>; 2]>(),
        levels in prop::array::uniform2(levels()),
        backoff in backoffs(),
        floats in prop::array::uniform3(-1e300..1e300_f64),
        texts in prop::array::uniform4(".*"),
        lists in prop::array::uniform4(prop::collection::vec(".*", 0..3)),
        choice in 0..3_usize,
        classes in prop::collection::btree_map(100..1000_u16, 0..3_usize, 0..4),
        coalesces in any::<bool>(),
        preset in prop::option::of(prop::sample::select(&PRESETS[..])),
        has_rate in any::<bool>(),
    ) -> SteadySettings {
        let mut settings = SteadySettings::default();
        settings.preset = preset;
        let retry = &mut settings.retry;
        retry.max_retries = numbers[0];
        retry.backoff = backoff;
        retry.max_server_delay = times[0];
        retry.retry_window = times[1];
        [retry.deadline, retry.attempt_timeout] = optional_times;
        retry.launch_spread = times[2];
        retry.budget_per_host.ttl = times[3];
        retry.budget_per_host.min_retries_per_sec = floats[0];
        retry.budget_per_host.retry_ratio = floats[1];
        retry.budget_per_host.deposit_on = [Deposit::Success, Deposit::Request][choice % 2];
        let class = [StatusClass::Retry, StatusClass::Conditional, StatusClass::Never];
        let status = |code| StatusCode::from_u16(code).unwrap();
        retry.status = classes.into_iter().map(|(code, at)| (status(code), class[at])).collect::<BTreeMap<_, _>>();
        [retry.retry_without_key, retry.retry_unsent, retry.dry_run, ..] = switches;
        retry.client_follows_redirects = switches[3];
        retry.idempotency_header = switches[4].then(|| texts[0].clone());
        retry.auto_key = [AutoKey::Off, AutoKey::Random, AutoKey::Content][choice];
        retry.attempt_header = switches[5].then(|| texts[1].clone());
        retry.dead_letter_max_body = sizes[0];
        retry.dead_letter_timeout = times[4];
        let secrets = lists[0].iter().fold(Secrets::new(), |secrets, name| secrets.header(name));
        let secrets = lists[1].iter().fold(secrets, |secrets, name| secrets.parameter(name));
        retry.secrets = lists[2].iter().fold(secrets, |secrets, name| secrets.keep(name));
        let throttle = &mut settings.throttle;
        throttle.max_in_flight = numbers[1];
        throttle.max_queue = sizes[1];
        throttle.max_queue_wait = times[5];
        throttle.rate = has_rate.then_some(RateLimit { per_second: floats[2], burst: numbers[2] });
        throttle.adaptive = switches[0];
        throttle.key_by = [KeyChoice::Host, KeyChoice::HostAndPath(sizes[2]), KeyChoice::FromFn][choice];
        [retry.seed, throttle.seed] = seeds;
        [retry.log_levels, throttle.log_levels] = levels;
        settings.coalesce = coalesces.then(|| {
            let mut coalesce = CoalesceSettings::default();
            coalesce.max_body = sizes[3];
            coalesce.leader_timeout = times[6];
            coalesce.ignore_header = lists[3].clone();
            coalesce.ignore_extensions = switches[1];
            coalesce
        });
        settings
    }
}

proptest! {
    /// Also settings that are invalid: what is written can be read.
    #[test]
    fn settings_come_back_unchanged(settings in settings()) {
        let toml = toml::to_string(&settings).unwrap();
        prop_assert_eq!(&toml::from_str::<SteadySettings>(&toml).unwrap(), &settings, "{}", toml);
        let json = serde_json::to_string(&settings).unwrap();
        prop_assert_eq!(&serde_json::from_str::<SteadySettings>(&json).unwrap(), &settings, "{}", json);
    }

    /// Whatever they are, they are refused with the place of an error, or they work.
    #[test]
    fn any_settings_are_valid_or_refused_by_name(settings in settings()) {
        let toml = toml::to_string(&settings).unwrap();
        let known = paths(&example_with_comments().parse().unwrap());
        match (settings.check(), read_toml(&toml)) {
            (Ok(()), Ok(read)) => prop_assert_eq!(read, settings),
            (Err(error), Err(said)) => {
                prop_assert_eq!(error.to_string(), said);
                let path = error.setting();
                let is_known = known.contains(path) || path.ends_with("rate.burst");
                prop_assert!(is_known, "{}", path);
            }
            (checked, read) => prop_assert!(false, "{:?} {:?}", checked, read),
        }
    }
}
