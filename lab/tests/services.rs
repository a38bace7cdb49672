//! Services as data: what files can say, and what they simulate.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lab::service::{Kind, LoadKind, OutageResponse, Rate, Service, Span};
use lab::stacks::{no_retry, reqwest_retry, steady_throttle};
use lab::workloads::{NEAR, thousand_writes, thousand_writes_with_retry_after};
use reqwest_steady::testing::Outcome;

const SEC: Duration = Duration::from_secs(1);

fn examples() -> Vec<(PathBuf, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let files = std::fs::read_dir(folder).unwrap();
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    };
    let all: Vec<_> = files.map(read).collect();
    assert!(all.len() >= 3);
    all
}

#[track_caller]
fn parse(text: &str) -> Service {
    Service::from_toml(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn run(text: &str) -> Outcome {
    parse(text).simulation().seed(1).run(&no_retry)
}

#[test]
fn every_example_is_valid_and_commented() {
    for (path, text) in examples() {
        let service = parse(&text);
        assert!(
            service.load.calls() <= 5000,
            "{path:?}: lab serve runs at most 5,000"
        );
        assert_ne!(service.name, Service::default().name, "{path:?}");
        let comments = text.lines().filter(|line| line.starts_with("# ")).count();
        assert!(comments >= 4, "{path:?}: {comments} lines of comments");
        let name = path.file_name().unwrap().to_str().unwrap();
        let command = format!("cargo run --release -p lab -- try --service lab/examples/{name}");
        assert!(text.contains(&command), "{path:?}");
    }
}

/// All settings are in some example, with a comment above.
#[test]
fn the_examples_show_every_setting() {
    let texts: Vec<_> = examples().into_iter().map(|(_, text)| text).collect();
    let commented = |name: &str| {
        texts.iter().any(|text| {
            let lines: Vec<_> = text.lines().collect();
            let is_it = |line: &str| line.starts_with(&format!("{name} = "));
            lines
                .windows(2)
                .any(|pair| pair[0].starts_with("# ") && is_it(pair[1]))
        })
    };
    // The names of a description with all settings, whatever their kinds.
    let mut all = Service::default();
    all.limit.rate = Some(Rate(1.0));
    all.limit.window = Some(Span(SEC));
    all.limit.burst = Some(1.0);
    all.limit.at_once = Some(1);
    all.limit.work = Some(Span(SEC));
    all.limit.status = Some(429);
    all.limit.hint = Some(Default::default());
    all.faults.error_status = Some(503);
    all.load.calls = Some(1);
    all.load.every = Some(Span(SEC));
    all.load.times = Some(1);
    let names = all.to_toml();
    let names = names.lines().filter_map(|line| line.split_once(" = "));
    let names: Vec<_> = names.map(|(name, _)| name.to_owned()).collect();
    assert!(names.len() >= 20, "{names:?}");
    for name in names
        .iter()
        .map(String::as_str)
        .chain(["from", "to", "response"])
    {
        let shown = texts
            .iter()
            .any(|text| text.contains(&format!("\n{name} = ")));
        assert!(shown, "{name} is in no example");
    }
    for name in [
        "kind", "rate", "status", "hint", "burst", "clients", "method", "errors", "resets", "from",
        "response",
    ] {
        assert!(commented(name), "{name} has no comment");
    }
}

#[test]
fn a_description_survives_writing_and_reading() {
    for (path, text) in examples() {
        let service = parse(&text);
        assert_eq!(parse(&service.to_toml()), service, "{path:?}");
    }
    let service = Service::default();
    assert_eq!(parse(&service.to_toml()), service);
    assert_eq!(parse(""), service);
}

#[test]
fn values_can_have_units() {
    let service = parse(
        "latency = '1.5s'\nlimit = { kind = 'gcra', rate = '600/min', burst = 2 }\n\
         faults = { outage = { from = '1m', to = '1m 30s', response = 'refused' } }\n\
         load = { kind = 'bursts', calls = 3, every = '500ms', times = 2 }",
    );
    assert_eq!(service.latency.0, Duration::from_millis(1500));
    assert_eq!(
        (service.limit.kind, service.limit.rate),
        (Kind::Gcra, Some(Rate(10.0)))
    );
    let outage = service.faults.outage.unwrap();
    assert_eq!((outage.from.0, outage.to.0), (60 * SEC, 90 * SEC));
    assert_eq!(outage.response, OutageResponse::Refused);
    assert_eq!(
        (service.load.kind, service.load.calls()),
        (LoadKind::Bursts, 6)
    );
}

/// Each file, and the whole message.
#[test]
fn a_bad_file_gets_an_error_with_path_value_and_fix() {
    let load = "load = { kind = 'at-once', calls = 1 }";
    let limit = |rest: &str| format!("limit = {{ {rest} }}\n{load}");
    let window = |rest: &str| limit(&format!("kind = 'window', {rest}"));
    let calls = |rest: &str| format!("load = {{ {rest} }}");
    let cases = [
        (
            "latency = 80".to_owned(),
            "latency: invalid value 80: write a duration with a unit, like \"200ms\", \"1.5s\" or \"1m 30s\"",
        ),
        (
            "latency = '80'".to_owned(),
            "latency: invalid value \"80\": write a duration with a unit, like \"200ms\", \"1.5s\" or \"1m 30s\"",
        ),
        (
            "latency = '2m'".to_owned(),
            "latency: invalid value 2m: write a value from 0s to 1m",
        ),
        (
            "jitter = 1.5".to_owned(),
            "jitter: invalid value 1.5: write a value from 0 to 1",
        ),
        (
            "jitter = nan".to_owned(),
            "jitter: invalid value NaN: write a value from 0 to 1",
        ),
        (
            "jitter = 'some'".to_owned(),
            "jitter: invalid type: string \"some\", expected a number, like 0.5",
        ),
        (
            "latancy = '80ms'".to_owned(),
            "latancy: unknown field `latancy`, expected one of `name`, `latency`, `jitter`, `limit`, `faults`, `load`",
        ),
        (
            limit("kind = 'windows'"),
            "limit.kind: unknown variant `windows`, expected one of `none`, `window`, `bucket`, `gcra`, `concurrency`, \
             `worker`",
        ),
        (
            limit("kind = 'window'"),
            "limit.rate: missing: limit.kind = \"window\" needs it, for example rate = \"10/s\"",
        ),
        (
            window("rate = '10/s'"),
            "limit.window: missing: limit.kind = \"window\" needs it, for example window = \"1s\"",
        ),
        (
            window("rate = '10', window = '1s'"),
            "limit.rate: invalid value \"10\": write a rate with a unit, like \"10/s\", \"600/min\" or \"5000/h\"",
        ),
        (
            window("rate = '-1/s', window = '1s'"),
            "limit.rate: invalid value \"-1/s\": write a rate with a unit, like \"10/s\", \"600/min\" or \"5000/h\"",
        ),
        (
            window("rate = '10/h', window = '1s'"),
            "limit.rate: invalid value \"10/h\": a window of 1s accepts no request; write a higher rate or a longer window",
        ),
        (
            window("rate = '10/s', window = '1s', burst = 5"),
            "limit.burst: invalid value 5: limit.kind = \"window\" does not have it; remove it, or write limit.kind = \
             \"bucket\" or \"gcra\"",
        ),
        (
            limit("kind = 'bucket', rate = '10/s'"),
            "limit.burst: missing: limit.kind = \"bucket\" needs it, for example burst = 10",
        ),
        (
            limit("kind = 'bucket', rate = '10/s', burst = 0.5"),
            "limit.burst: invalid value 0.5: write a value from 1 to 1000000",
        ),
        (
            limit("kind = 'bucket', rate = '5000/s', burst = 2"),
            "limit.burst: invalid value 2: a bucket for 5000/s must hold at least 5, because virtual time has whole \
             milliseconds",
        ),
        (
            limit("kind = 'concurrency', work = '1s'"),
            "limit.at_once: missing: limit.kind = \"concurrency\" needs it, for example at_once = 8",
        ),
        (
            limit("kind = 'concurrency', work = '1s', at_once = 1.5"),
            "limit.at_once: invalid type: floating point `1.5`, expected a whole number, like 8",
        ),
        (
            limit("kind = 'none', status = 429"),
            "limit.status: invalid value 429: limit.kind = \"none\" does not have it; remove it, or write limit.kind = \
             \"window\" or \"bucket\" or \"gcra\" or \"concurrency\"",
        ),
        (
            window("rate = '10/s', window = '1s', status = 200"),
            "limit.status: invalid value 200: write a value from 400 to 599",
        ),
        (
            window("rate = '10/s', window = '1s', hint = 'retry'"),
            "limit.hint: unknown variant `retry`, expected one of `none`, `retry-after`, `retry-after-ms`, `ratelimit`, \
             `x-ratelimit-seconds`, `x-ratelimit-epoch`",
        ),
        (
            "faults.errors = 2".to_owned(),
            "faults.errors: invalid value 2: write a value from 0 to 1",
        ),
        (
            "faults.error_status = 200".to_owned(),
            "faults.error_status: invalid value 200: write a value from 400 to 599",
        ),
        (
            "faults.outage = { from = '5s' }".to_owned(),
            "faults.outage: missing field `to`",
        ),
        (
            "faults.outage = { from = '5s', to = '5s' }".to_owned(),
            "faults.outage.to: invalid value 5s: write a time after faults.outage.from, which is 5s",
        ),
        (
            "faults.outage = { from = '5s', to = '9s', response = 200 }".to_owned(),
            "faults.outage.response: invalid value 200: write a status from 400 to 599, or \"refused\"",
        ),
        (
            "faults.stall = { from = '5s', to = '99h' }".to_owned(),
            "faults.stall.to: invalid value 99h: write a value from 0s to 24h",
        ),
        (
            calls("kind = 'steady', rate = '1/s'"),
            "load.duration: missing: load.kind = \"steady\" needs it, for example duration = \"20s\"",
        ),
        (
            calls("kind = 'at-once', calls = 0"),
            "load.calls: invalid value 0: write a value from 1 to 1000000",
        ),
        (
            calls("kind = 'at-once', calls = -1"),
            "load.calls: invalid value: integer `-1`, expected a whole number, like 100",
        ),
        (
            calls("kind = 'at-once', calls = 5, rate = '1/s'"),
            "load.rate: invalid value 1/s: load.kind = \"at-once\" does not have it; remove it, or write load.kind = \
             \"steady\"",
        ),
        (
            calls("kind = 'steady', rate = '1000/s', duration = '1h'"),
            "load: 3600000 calls start: there must be from 1 to 1000000",
        ),
        (
            calls("kind = 'steady', rate = '1/h', duration = '1s'"),
            "load: 0 calls start: there must be from 1 to 1000000",
        ),
        (
            calls("kind = 'bursts', calls = 5, every = '10h', times = 9"),
            "load.every: invalid value \"10h\": 9 bursts last longer than 24h",
        ),
        (
            calls("kind = 'at-once', calls = 5, clients = 0"),
            "load.clients: invalid value 0: write a value from 1 to 10000",
        ),
        (
            calls("kind = 'at-once', calls = 5, method = 'PATCH'"),
            "load.method: unknown variant `PATCH`, expected `GET` or `POST`",
        ),
        (
            "limit = 'none'".to_owned(),
            "limit: invalid type: string \"none\", expected a table for ServiceLimit",
        ),
    ];
    let wrong = cases.iter().filter_map(|(text, expected)| {
        let error = Service::from_toml(text).expect_err(text).to_string();
        (error != *expected).then(|| format!("{text}\n  gives {error}\n  not   {expected}"))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let error = Service::from_toml("latency = ").unwrap_err().to_string();
    assert!(
        error.starts_with("the text is not TOML: ") && error.contains("line 1"),
        "{error}"
    );
}

#[test]
fn a_described_limit_is_the_simulated_one() {
    let thousand = |hint: &str| {
        parse(&format!(
            "latency = '2ms'\nlimit = {{ kind = 'window', rate = '500/s', window = '100ms'{hint} }}\n\
             load = {{ kind = 'at-once', calls = 1000, method = 'POST' }}"
        ))
    };
    for (described, known) in [
        (thousand(""), thousand_writes(NEAR)),
        (
            thousand(", hint = 'retry-after'"),
            thousand_writes_with_retry_after(NEAR),
        ),
    ] {
        let described = described.simulation().seed(3).run(&steady_throttle);
        let known = known.seed(3).run(&steady_throttle);
        let times = |outcome: &Outcome| {
            outcome
                .arrivals
                .0
                .iter()
                .map(|it| (it.at, it.status))
                .collect::<Vec<_>>()
        };
        assert_eq!(times(&described), times(&known));
    }
}

#[test]
fn every_kind_of_limit_refuses_what_is_too_much() {
    let accepted = |limit: &str| {
        let text = format!("limit = {{ {limit} }}\nload = {{ kind = 'at-once', calls = 100 }}");
        let outcome = run(&text);
        (outcome.succeeded(), outcome.failures())
    };
    let refused = |count: usize, status: &str| [(status.to_owned(), count)].into();
    assert_eq!(accepted("kind = 'none'"), (100, [].into()));
    let window = "kind = 'window', rate = '30/s', window = '2s'";
    assert_eq!(accepted(window), (60, refused(40, "429")));
    let bucket = "kind = 'bucket', rate = '1/s', burst = 25, status = 503";
    assert_eq!(accepted(bucket), (25, refused(75, "503")));
    assert_eq!(
        accepted("kind = 'gcra', rate = '1/s', burst = 1"),
        (1, refused(99, "429"))
    );
    let concurrency = "kind = 'concurrency', at_once = 8, work = '2s'";
    assert_eq!(accepted(concurrency), (8, refused(92, "429")));
    // 50 within the 1 s of the gateway.
    assert_eq!(
        accepted("kind = 'worker', rate = '50/s'"),
        (50, refused(50, "504"))
    );
}

#[test]
fn faults_happen_when_and_as_often_as_described() {
    let load = "load = { kind = 'steady', rate = '100/s', duration = '20s' }";
    let outcome = run(&format!(
        "faults = {{ errors = 0.1, error_status = 500, resets = 0.05 }}\n{load}"
    ));
    let failures = outcome.failures();
    assert!((150..250).contains(&failures["500"]), "{failures:?}");
    let resets: usize = failures.values().sum::<usize>() - failures["500"];
    assert!((60..140).contains(&resets), "{failures:?}");

    let outcome = run(&format!(
        "faults.outage = {{ from = '5s', to = '10s', response = 502 }}\n{load}"
    ));
    assert_eq!(outcome.failures(), [("502".to_owned(), 500)].into());
    let failed = outcome.calls.iter().filter(|call| !call.succeeded());
    let outside = failed
        .filter(|call| call.begun < 4 * SEC || call.begun > 10 * SEC)
        .count();
    assert_eq!(outside, 0);

    // 4 of 5 s wait for the gateway, and the rest for the end of the stall.
    let outcome = run(&format!(
        "faults.stall = {{ from = '5s', to = '10s' }}\n{load}"
    ));
    assert_eq!(outcome.failures(), [("504".to_owned(), 400)].into());
    let slow = outcome
        .calls
        .iter()
        .filter(|call| call.succeeded() && call.ended - call.begun > SEC / 2);
    let slow = slow.count();
    assert!((40..60).contains(&slow), "{slow}");
}

#[test]
fn the_stalled_worker_of_the_examples_never_recovers() {
    let (_, text) = examples()
        .into_iter()
        .find(|(path, _)| path.ends_with("metastable.toml"))
        .unwrap();
    let service = parse(&text);
    let peer = service.simulation().seed(1).run(&reqwest_retry);
    assert_eq!(peer.successes_during(15 * SEC..60 * SEC), 0);
    let ours = service.simulation().seed(1).run(&steady_throttle);
    assert_eq!(ours.succeeded(), ours.calls.len());
}

#[test]
fn a_sentence_describes_the_service() {
    let (_, text) = examples()
        .into_iter()
        .find(|(path, _)| path.ends_with("github-like.toml"))
        .unwrap();
    assert_eq!(
        parse(&text).to_string(),
        "It accepts 900 requests in each window of 1m and refuses the rest with 429 and X-RateLimit as epoch. A round trip takes \
         120ms ± 30 %; 0.2 % of the responses are a random 502. 1500 calls start, 50/s for 30s, all from one client.",
    );
}

/// Runs `lab try` with this description, and these settings if there are any. Returns whether it succeeded, what it
/// printed, and the page.
fn lab_try(description: &str, settings: Option<&str>) -> (bool, String, Option<String>) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("steady-try-{}-{count}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [file, steady, page] =
        ["service.toml", "steady.toml", "page.html"].map(|name| folder.join(name));
    std::fs::write(&file, description).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.arg("try").arg("--service").arg(&file);
    command.arg("--out").arg(&page);
    if let Some(settings) = settings {
        std::fs::write(&steady, settings).unwrap();
        command.arg("--settings").arg(&steady);
    }
    let output = command.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let page = std::fs::read_to_string(page).ok();
    std::fs::remove_dir_all(&folder).unwrap();
    (
        output.status.success(),
        String::from_utf8(printed).unwrap(),
        page,
    )
}

#[test]
fn lab_try_prints_a_table_and_writes_a_page() {
    let (succeeded, printed, page) = lab_try(include_str!("../examples/small-api.toml"), None);
    assert!(succeeded, "{printed}");
    assert!(
        printed.contains("service: A small API, 1 client, seed 1"),
        "{printed}"
    );
    let page = page.expect("a page");
    for client in ["no retry", "reqwest-retry", "reqwest-steady"] {
        assert!(
            printed.contains(&format!("\n  {client}  ")),
            "{client}: {printed}"
        );
        assert!(
            page.contains(&format!(">{client}</span>")),
            "{client}: {page}"
        );
    }
    assert!(
        page.contains("It accepts 10 requests in each window of 1s"),
        "{page}"
    );
}

#[test]
fn lab_try_names_what_is_wrong_and_writes_no_page() {
    let (succeeded, printed, page) = lab_try("latency = '80'", None);
    assert!(!succeeded);
    assert!(printed.contains("service.toml is invalid"), "{printed}");
    assert!(
        printed.contains("latency: invalid value \"80\": write a duration"),
        "{printed}"
    );
    assert_eq!(page, None);
}

/// Returns the row of this client in a printed table.
#[track_caller]
fn row<'a>(printed: &'a str, client: &str) -> &'a str {
    let row = printed
        .lines()
        .find_map(|line| line.strip_prefix("  ")?.strip_prefix(client));
    row.unwrap_or_else(|| panic!("no row of {client}: {printed}"))
        .trim_start()
}

#[test]
fn lab_try_has_a_row_for_your_settings() {
    let small = include_str!("../examples/small-api.toml");
    let (succeeded, printed, page) = lab_try(small, Some("retry.max_retries = 0"));
    assert!(succeeded, "{printed}");
    assert!(printed.contains("\nWith your settings, "), "{printed}");
    assert_ne!(
        row(&printed, "your settings"),
        row(&printed, "reqwest-steady")
    );
    let page = page.expect("a page");
    assert!(page.contains(">your settings</span>"), "{page}");
    assert!(page.contains("the same with the settings of "), "{page}");
    assert!(page.contains("steady.toml</code>"), "{page}");

    // The file with all defaults is the client with the defaults.
    let defaults = include_str!("../../docs/steady.toml");
    let (_, printed, _) = lab_try(small, Some(defaults));
    assert_eq!(
        row(&printed, "your settings"),
        row(&printed, "reqwest-steady")
    );
}

#[test]
fn lab_try_names_the_file_and_the_place_of_a_bad_setting() {
    let small = include_str!("../examples/small-api.toml");
    for (settings, message) in [
        (
            "retry.max_retry = 3",
            "retry.max_retry is unknown: did you mean `max_retries`?",
        ),
        (
            "[retry]\ndeadline = 5",
            "retry.deadline: TOML parse error at line 2, column 12",
        ),
        (
            "throttle.max_in_flight = 0",
            "throttle.max_in_flight (0) should be",
        ),
        ("[retry", "the text is not TOML: TOML parse error at line 1"),
    ] {
        let (succeeded, printed, page) = lab_try(small, Some(settings));
        assert!(!succeeded, "{settings}");
        assert!(printed.contains("steady.toml is invalid"), "{printed}");
        assert!(printed.contains(message), "{settings}: {printed}");
        assert_eq!(page, None, "{settings}");
    }
}

/// The guide shows a file, a command and a table.
#[test]
fn the_table_of_the_guide_is_that_of_its_example() {
    let guide = include_str!("../../docs/guide/settings.md");
    let section = guide
        .split("# Try them without a server")
        .nth(1)
        .and_then(|rest| rest.split("\n# ").next())
        .expect("a section");
    let settings = section.split("```").nth(1).unwrap();
    let settings = settings.strip_prefix("toml\n").expect("a file in TOML");
    assert!(section.contains("--service lab/examples/small-api.toml --settings steady.toml"));
    let small = include_str!("../examples/small-api.toml");
    let (_, printed, _) = lab_try(small, Some(settings));
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1);
    let mut count = 0;
    for line in rows {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [client, figures @ ..] = &cells[..] else {
            panic!("no client: {line}");
        };
        let row = row(&printed, client);
        for figure in figures {
            assert!(
                format!(" {row} ").contains(&format!(" {figure} ")),
                "{figure}: {row}"
            );
        }
        count += 1;
    }
    assert_eq!(count, 4);
}
