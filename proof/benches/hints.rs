//! The cost of reading a server's hint.
//!
//! `cargo bench -p proof --bench hints` prints instructions and allocations for each form of hint. It compares them with
//! one date read by `httpdate`. It needs `valgrind`. With `-- --check` it fails if the cost grows faster than the length
//! of a value.

mod support;

// These modules are private, so their files are compiled again here. Their tests do not run.
#[allow(dead_code, unused_imports)]
#[path = "../../src/clock.rs"]
mod clock;
#[allow(dead_code)]
#[path = "../../src/schedule/hint.rs"]
mod hint;

use std::hint::black_box;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use support::cases::plain_headers;
use support::count::{Cost, Counting, Job, costs, counted, print_allocations};
use support::table::{Table, ratio, whole};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const READS: u32 = 500;
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const LATER: &str = "Sun, 06 Nov 1994 08:51:37 GMT";
/// The baseline.
const ONE_DATE: &str = "httpdate alone, one date";
/// What a throttle reads in every response.
const QUOTA: &str = "quota in a success";
const DIGITS: [(&str, usize); 2] = [
    ("Retry-After, 1,000 digits", 1_000),
    ("Retry-After, 8,000 digits", 8_000),
];
/// The most by which the cost of eight times the length may grow.
const LINEAR: f64 = 8.8;

/// A response: its name, its status, and its headers besides ten plain ones.
type BenchResponse = (&'static str, u16, &'static [(&'static str, &'static str)]);

const RESPONSES: [BenchResponse; 8] = [
    ("no hint", 503, &[]),
    ("Retry-After in seconds", 503, &[("retry-after", "120")]),
    (
        "Retry-After as a date, and Date",
        503,
        &[("date", DATE), ("retry-after", LATER)],
    ),
    ("retry-after-ms", 429, &[("retry-after-ms", "1500")]),
    (
        "RateLimit, draft 10",
        429,
        &[("ratelimit", r#""default";r=0;t=30"#)],
    ),
    (
        "X-RateLimit-Reset",
        429,
        &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "30")],
    ),
    (
        "OpenAI's",
        429,
        &[
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "6m0s"),
        ],
    ),
    (
        "Anthropic's",
        429,
        &[
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "1994-11-06T08:51:37Z"),
        ],
    ),
];

fn headers_of(name: &str) -> (StatusCode, HeaderMap, bool) {
    let mut headers = plain_headers(10);
    if let Some((_, digits)) = DIGITS.iter().find(|(known, _)| *known == name) {
        headers.insert("retry-after", "9".repeat(*digits).parse().unwrap());
        return (StatusCode::SERVICE_UNAVAILABLE, headers, true);
    }
    let mut responses = RESPONSES.iter();
    let (_, status, pairs) = responses
        .find(|(known, ..)| *known == name)
        .expect("a response");
    for (name, value) in *pairs {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    let status = StatusCode::from_u16(*status).unwrap();
    (status, headers, !pairs.is_empty())
}

fn run(name: &str) {
    if name == ONE_DATE {
        for _ in 0..READS {
            let date = counted(|| httpdate::parse_http_date(black_box(DATE)));
            assert!(date.is_ok());
        }
        return print_allocations();
    }
    if name == QUOTA {
        let (_, headers, _) = headers_of("X-RateLimit-Reset");
        for _ in 0..READS {
            let quota = counted(|| hint::quota_left(black_box(&headers)));
            assert_eq!(quota, Some((0, Duration::from_secs(30))));
        }
        return print_allocations();
    }
    let (status, headers, has_hint) = headers_of(name);
    let now: SystemTime = httpdate::parse_http_date(DATE).unwrap();
    for _ in 0..READS {
        let hint = counted(|| hint::server_hint(status, black_box(&headers), now));
        assert_eq!(hint.is_some(), has_hint);
        assert!(hint.is_none_or(|hint| hint > Duration::from_secs(1)));
    }
    print_allocations();
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["--run", name] = args[..] {
        return run(name);
    }
    let responses = RESPONSES.iter().map(|(name, ..)| *name);
    let digits = DIGITS.iter().map(|(name, _)| *name);
    let names: Vec<&str> = [ONE_DATE]
        .into_iter()
        .chain(responses)
        .chain([QUOTA])
        .chain(digits)
        .collect();
    let jobs: Vec<Job> = names.iter().map(|name| Job::new(&[name], READS)).collect();
    let costs: Vec<Cost> = costs(&jobs);
    let mut table = Table::new(["response", "instructions", "× one date", "allocations"]);
    for (name, cost) in names.iter().zip(&costs) {
        table.row([
            (*name).to_owned(),
            whole(cost.instructions),
            ratio(cost.instructions / costs[0].instructions),
            whole(cost.allocations),
        ]);
    }
    println!("{table}");
    let [.., short, long] = &costs[..] else {
        unreachable!("at least two rows");
    };
    let grows = long.instructions / short.instructions;
    assert!(
        !args.contains(&"--check") || grows <= LINEAR,
        "eight times the digits cost {grows:.1} times as much"
    );
}
