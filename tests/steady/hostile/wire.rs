//! Attacks that need a real connection: endless headers and trailers, contradictory lengths, and
//! unrequested responses.

use std::time::Duration;

use reqwest_steady::{RequestBuilderExt, StopReason};

use crate::support::raw::{
    Reply, Server, Then, client, direct, in_time, outcomes, reply, reported, respond, retry,
};

/// For attempts that only their timeout ends.
const SHORT: Duration = Duration::from_millis(150);
/// For attempts that end by themselves.
const LONG: Duration = Duration::from_secs(5);

const OK: &str = "HTTP/1.1 200 OK\r\n";
const LENGTH_0: &str = "content-length: 0\r\n";
const CHUNKED: &str = "transfer-encoding: chunked\r\n\r\n";

/// Makes a call with up to two retries. Returns how its attempts ended, and why it stopped. Checks
/// that no other request arrived.
async fn attempts(
    patience: Duration,
    script: impl Fn(usize) -> Reply + Send + Sync + 'static,
) -> (Vec<String>, StopReason) {
    let server = Server::start(script).await;
    let patient = client(direct(), retry().max_retries(2).attempt_timeout(patience));
    let get = patient.get(server.url()).buffer_response(1024);
    let (_, report) = reported(get).await;
    let outcomes = outcomes(&report);
    assert_eq!(server.count(), outcomes.len());
    (outcomes, report.stop_reason())
}

fn finally(outcome: &str) -> (Vec<String>, StopReason) {
    (vec![outcome.to_owned()], StopReason::NotRetryable)
}

fn three_times(outcome: &str) -> (Vec<String>, StopReason) {
    (vec![outcome.to_owned(); 3], StopReason::RetriesExhausted)
}

#[tokio::test]
async fn a_flood_of_headers_is_an_error_and_not_retried() {
    let large = format!("x-flood: {}\r\n", "y".repeat(100_000)).repeat(50);
    for flood in [
        "x-flood: yes\r\n".repeat(101),
        "x-flood: yes\r\n".repeat(100_000),
        large,
    ] {
        let head = format!("{OK}{LENGTH_0}{flood}\r\n");
        let ended = attempts(LONG, move |_| reply(head.clone(), Then::KeepOpen)).await;
        assert_eq!(ended, finally("other"));
    }
    // 90 headers of 1000 bytes are not a flood.
    let many = format!("x-many: {}\r\n", "y".repeat(1000)).repeat(90);
    let head = format!("{OK}{LENGTH_0}{many}\r\n");
    let (outcomes, _) = attempts(LONG, move |_| reply(head.clone(), Then::KeepOpen)).await;
    assert_eq!(outcomes, ["200"]);
}

#[tokio::test]
async fn endless_headers_are_an_error() {
    let fast = Duration::ZERO;
    for line in ["x-flood: yes\r\n".repeat(5000), "x".repeat(64 * 1024)] {
        let line = line.into_bytes();
        let ended = attempts(LONG, move |_| reply(OK, Then::Repeat(line.clone(), fast))).await;
        assert_eq!(ended, finally("other"));
    }
    let slow = Duration::from_millis(10);
    let ended = attempts(SHORT, move |_| reply(OK, Then::Repeat(b"x".to_vec(), slow))).await;
    assert_eq!(ended, three_times("timeout"));
}

#[tokio::test]
async fn interim_responses_do_not_extend_an_attempt() {
    for status in [100, 102, 103, 199] {
        let line = format!("HTTP/1.1 {status} Wait\r\nx-wait: yes\r\n\r\n");
        let few = line.repeat(50) + OK + LENGTH_0 + "\r\n";
        let (outcomes, _) = attempts(LONG, move |_| reply(few.clone(), Then::KeepOpen)).await;
        assert_eq!(outcomes, ["200"]);

        for (lines, pause) in [(1000, Duration::ZERO), (1, Duration::from_millis(10))] {
            let line = line.repeat(lines).into_bytes();
            let ended =
                attempts(SHORT, move |_| reply("", Then::Repeat(line.clone(), pause))).await;
            assert_eq!(ended, three_times("timeout"), "{status}");
        }
    }
}

/// A body, and what follows it endlessly: trailers, a chunk extension, or a chunk size.
fn endless_chunked() -> [(&'static str, Vec<u8>); 3] {
    [
        ("1\r\nx\r\n0\r\n", b"x-flood: yes\r\n".repeat(5000)),
        ("1\r\nx\r\n1;", b"extension=".repeat(5000)),
        ("1\r\nx\r\n", b"0".repeat(5000)),
    ]
}

#[tokio::test]
async fn a_body_that_ends_in_a_flood_is_an_error() {
    // hyper does not limit zeros before a chunk size. The attempt timeout does.
    let endings = [
        (LONG, finally("decode")),
        (LONG, finally("decode")),
        (SHORT, three_times("timeout")),
    ];
    for ((begin, flood), (patience, ending)) in endless_chunked().into_iter().zip(endings) {
        let head = format!("{OK}{CHUNKED}{begin}");
        let then = Then::Repeat(flood, Duration::ZERO);
        let ended = attempts(patience, move |_| reply(head.clone(), then.clone())).await;
        assert_eq!(ended, ending, "{begin:?}");
    }
}

#[tokio::test]
async fn a_refusal_that_ends_in_a_flood_is_a_refusal() {
    for (begin, flood) in endless_chunked() {
        let head = format!("HTTP/1.1 503 Busy\r\n{CHUNKED}{begin}");
        let then = Then::Repeat(flood, Duration::ZERO);
        let ended = attempts(LONG, move |_| reply(head.clone(), then.clone())).await;
        assert_eq!(ended, three_times("503"), "{begin:?}");
    }
}

#[tokio::test]
async fn invalid_lengths_are_an_error_and_not_retried() {
    for length in [
        "5\r\ncontent-length: 6",
        "5, 6",
        "-5",
        "five",
        "99999999999999999999999",
        "18446744073709551615",
    ] {
        let whole = format!("{OK}content-length: {length}\r\n\r\nwhole");
        let ended = attempts(LONG, move |_| reply(whole.clone(), Then::Close)).await;
        assert_eq!(ended, finally("other"), "{length}");
    }
}

#[tokio::test]
async fn an_unrequested_response_is_not_used_for_the_next_request() {
    let server = Server::start(|index| match index {
        0 => {
            let whole = format!("{OK}content-length: 5\r\n\r\nfirst");
            reply(whole.repeat(2), Then::KeepOpen)
        }
        _ => respond(200, "second"),
    })
    .await;
    let client = client(direct(), retry());
    for body in ["first", "second"] {
        let response = in_time(client.get(server.url()).send()).await.unwrap();
        assert_eq!(in_time(response.text()).await.unwrap(), body);
    }
    assert_eq!(server.count(), 2);
    assert_eq!(server.connections(), 2);
}
