//! Absurd hints of every kind.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use reqwest_steady::testing::Reply;
use reqwest_steady::{
    RetryMiddleware, RetryMiddlewareBuilder, RetryReport, StopReason, ThrottleMiddleware,
};
use tokio::time::Instant;

use crate::support::scripted::{Server, URL, throttled};
use crate::support::stacks::{MS, SEC, doubling};

const BACKOFFS: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(8);

fn limited() -> RetryMiddlewareBuilder {
    RetryMiddleware::builder()
        .max_retries(3)
        .backoff(doubling(BACKOFFS[0]))
        .max_server_delay(LONGEST_PAUSE)
        .deadline(DEADLINE)
}

const NAMES: &[&str] = &[
    "retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-ratelimit-reset-after",
    "x-ratelimit-reset",
    "x-rate-limit-reset",
    "x-ratelimit-reset-requests",
    "anthropic-ratelimit-requests-reset",
    "ratelimit-reset",
    "ratelimit",
];

fn absurd_values() -> Vec<Vec<u8>> {
    let texts = [
        "",
        "-1",
        "-99999999999999999999999999",
        "+5",
        "0",
        "-0",
        "00000000000000000000000000000001",
        "1000000000",
        "1e9",
        "1e999999999",
        "1.7976931348623157e308",
        "5e-324",
        "0.0000000000000000000000000000001",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "999999999999999999999999999999",
        "NaN",
        "-inf",
        "Infinity",
        "0x7fffffff",
        "1_000",
        "1,5",
        "0, 0, 0",
        "5 minutes",
        "tomorrow",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Sat, 01 Jan 0000 00:00:00 GMT",
        "Sun, 06 Nov 99999 08:49:37 GMT",
        "Wed, 31 Feb 2091 25:61:61 GMT",
        "9999-12-31T23:59:59Z",
        "-9999-01-01T00:00:00Z",
        "P9999999999Y",
        "999999999999h",
        "\"default\";r=0;t=99999999999999999999",
        "\"default\";r=0;t=999999999999999",
        "\"default\";r=0;t=-5",
        "\"default\";r=-1;t=0",
        "limit=1, remaining=0, reset=999999999999999",
        "\"a\";r=0;t=1, \"a\";r=0;t=999999999999",
        "\"unfinished",
    ];
    let mut values: Vec<_> = texts.map(|text| text.as_bytes().to_vec()).into();
    values.push(b"9".repeat(64 * 1024));
    values.push(
        b"0."
            .iter()
            .chain(&b"9".repeat(64 * 1024))
            .copied()
            .collect(),
    );
    values.push(b"\xff\xfe\xfd".to_vec());
    values.push("٣٠".as_bytes().to_vec());
    values.push(b"\"default\";r=0;t=1, ".repeat(1000));
    values
}

fn refusal(status: u16, name: &str, values: &[Vec<u8>]) -> Reply {
    let mut response = http::Response::new(reqwest::Body::from("later"));
    *response.status_mut() = status.try_into().unwrap();
    for value in values {
        let name: HeaderName = name.parse().unwrap();
        let value = HeaderValue::from_bytes(value).unwrap();
        response.headers_mut().append(name, value);
    }
    Reply::response(response)
}

/// Every hint, alone and combined with others, from a server that always refuses.
fn refusals() -> impl Iterator<Item = (u16, &'static str, Vec<Vec<u8>>)> {
    let values = absurd_values().into_iter().flat_map(|value| {
        let repeated = if value.len() < 100 { 100 } else { 2 };
        [
            vec![value.clone()],
            vec![value.clone(), b"0".to_vec()],
            vec![value; repeated],
        ]
    });
    let values: Vec<_> = values.collect();
    let names = NAMES.iter().flat_map(|name| [(503, *name), (429, *name)]);
    names.flat_map(move |(status, name)| {
        let values = values.clone().into_iter();
        values.map(move |values| (status, name, values))
    })
}

fn shown(values: &[Vec<u8>]) -> String {
    let first = String::from_utf8_lossy(&values[0]);
    let start: String = first.chars().take(60).collect();
    format!("{} of {start:?}", values.len())
}

#[tokio::test(start_paused = true)]
async fn no_hint_makes_a_call_exceed_its_limits() {
    let (mut kept, mut too_long) = (0, 0);
    for (status, name, values) in refusals() {
        let what = format!("{status} {name}: {}", shown(&values));
        let server = Server::new(move |_| refusal(status, name, &values));
        let start = Instant::now();
        let client = server.client(limited().build().unwrap());
        let response = client.get(URL).send().await.unwrap();
        assert_eq!(response.status(), status);
        assert!(start.elapsed() <= DEADLINE, "{what}");
        let gaps = server.gaps();
        for (gap, backoff) in gaps.iter().zip(BACKOFFS) {
            let latest = LONGEST_PAUSE + SEC + MS;
            assert!((backoff..=latest).contains(gap), "{what}: {gap:?}");
        }
        match RetryReport::of(&response).unwrap().stop_reason() {
            StopReason::RetriesExhausted => {
                assert_eq!(server.count(), 4, "{what}");
                kept += 1;
            }
            StopReason::ServerDelayTooLong => {
                assert_eq!(server.count(), 1, "{what}");
                too_long += 1;
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    assert!(kept > 0 && too_long > 0);
}

#[tokio::test(start_paused = true)]
async fn no_hint_holds_a_throttled_call_longer_than_its_deadline() {
    for (status, name, values) in refusals() {
        let what = format!("{status} {name}: {}", shown(&values));
        let server = Server::new(move |_| refusal(status, name, &values));
        let client = throttled(&server, limited(), ThrottleMiddleware::builder());
        let start = Instant::now();
        let response = client.get(URL).send().await.unwrap();
        assert_eq!(response.status(), status, "{what}");
        assert!(start.elapsed() <= DEADLINE, "{what}: {:?}", start.elapsed());
        assert!(server.count() <= 4, "{what}: {}", server.count());
    }
}
