//! The caller gets the same bytes, however they arrive, and no body blocks a call forever.

use std::io;

use futures_util::{StreamExt, stream};

use super::*;

/// A body that sends this text, and then nothing more.
pub(super) fn stalled(text: &'static str) -> Body {
    let text = stream::iter([Ok::<_, io::Error>(text)]);
    Body::wrap_stream(text.chain(stream::pending()))
}

/// A body that sends this text, and then breaks off.
fn broken(text: &'static str) -> Body {
    Body::wrap_stream(stream::iter([Ok(text), Err(cut_off())]))
}

/// What the caller reads until the body ends or breaks off, and the error.
async fn read(mut response: Response) -> (Vec<u8>, Option<reqwest::Error>) {
    let mut read = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => read.extend_from_slice(&chunk),
            Ok(None) => return (read, None),
            Err(error) => return (read, Some(error)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_chunking_and_limit_gives_the_same_bytes() {
    const BODY: &[u8] = b"0123456789";
    for first in 0..=BODY.len() {
        for second in first..=BODY.len() {
            for limit in [0, 1, 5, 9, 10, 11, 100] {
                let server = Server::new(move |_| {
                    let cut = [&BODY[..first], &BODY[first..second], &BODY[second..]];
                    Reply::status(200)
                        .header("x-own", "1")
                        .body(parts(cut.to_vec()))
                });
                let seen = Seen::default();
                let retry = seen.watch(quick(), Inspect::all().limit(limit));
                let response = client(&server, retry).get(URL).send().await.unwrap();
                let place = format!("{first}, {second}, limit {limit}");
                let seen = seen.all();
                let (start, is_complete) = &seen[0];
                assert_eq!((server.count(), seen.len()), (1, 1), "{place}");
                assert_eq!(start, &BODY[..limit.min(BODY.len())], "{place}");
                // Without a length, only the end of the body shows that it is complete.
                assert_eq!(*is_complete, limit > BODY.len(), "{place}");
                assert_eq!(
                    (response.url().as_str(), response.headers().len()),
                    (URL, 1)
                );
                assert!(RetryReport::of(&response).is_some());
                assert_eq!(response.bytes().await.unwrap(), BODY, "{place}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_exactly_the_limit_is_complete_if_its_length_says_so() {
    for (limit, sight) in [
        (3, ("abc", false)),
        (4, ("abcd", true)),
        (5, ("abcd", true)),
    ] {
        let server = Server::new(|_| Reply::status(200).body("abcd"));
        let seen = Seen::default();
        let retry = seen.watch(quick(), Inspect::all().limit(limit));
        let response = client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!(seen.all(), [(sight.0.as_bytes().to_vec(), sight.1)]);
        assert_eq!(response.content_length(), Some(4));
        assert_eq!(response.text().await.unwrap(), "abcd");
    }
}

#[tokio::test(start_paused = true)]
async fn reading_stops_at_the_limit_and_waits_for_no_further_byte() {
    for (limit, took) in [
        (0, Duration::ZERO),
        (4, Duration::ZERO),
        (5, Duration::ZERO),
        (6, 30 * SEC),
    ] {
        let server = Server::new(|_| Reply::status(200).body(stalled("12345")));
        let seen = Seen::default();
        let start = Instant::now();
        let retry = seen.watch(quick(), Inspect::all().limit(limit));
        let mut response = client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!(start.elapsed(), took, "limit {limit}");
        assert_eq!(seen.all(), [(b"12345"[..limit.min(5)].to_vec(), false)]);
        assert_eq!(
            (server.count(), stop_reason(&response)),
            (1, StopReason::Succeeded)
        );
        assert_eq!(response.chunk().await.unwrap().unwrap(), "12345");
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_body_is_read_up_to_the_limit() {
    let server = Server::new(|_| {
        Reply::status(503).body(Body::wrap_stream(stream::repeat_with(|| {
            Ok::<_, io::Error>("0123456789")
        })))
    });
    let seen = Seen::default();
    let retry = seen.watch(quick().max_retries(0), Inspect::errors());
    let mut response = client(&server, retry).get(URL).send().await.unwrap();
    let (start, is_complete) = &seen.all()[0];
    assert_eq!((start.len(), *is_complete), (16 * 1024, false));
    let mut read = Vec::new();
    while read.len() < 100_000 {
        read.extend_from_slice(&response.chunk().await.unwrap().unwrap());
    }
    let is_right = |(index, byte): (usize, &u8)| usize::from(byte - b'0') == index % 10;
    assert!(read.iter().enumerate().all(is_right));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_is_seen_as_far_as_it_came() {
    for (status, body, requests) in [(200, "so far", 1), (503, "stop", 1), (200, "again", 2)] {
        let server = Server::new(move |index| match index {
            0 => Reply::status(status).body(stalled(body)),
            _ => respond(200),
        });
        let seen = Seen::default();
        let retry = seen.watch(quick(), Inspect::all().timeout(7 * SEC));
        let start = Instant::now();
        let mut response = client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!((server.count(), seen.all().len()), (requests, requests));
        assert_eq!(seen.all()[0], (body.as_bytes().to_vec(), false));
        match requests {
            1 => {
                assert_eq!(start.elapsed(), 7 * SEC);
                assert_eq!(response.chunk().await.unwrap().unwrap(), body);
            }
            // The rest is drained for 100 ms at most.
            _ => assert!(server.gaps()[0] >= 7 * SEC && server.gaps()[0] <= 7 * SEC + 101 * MS),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_success_fails_at_the_end_of_the_attempt() {
    for with_deadline in [false, true] {
        let server = Server::new(|index| match index {
            0 => Reply::status(200).body(stalled("half")),
            _ => respond(200),
        });
        let seen = Seen::default();
        let mut retry = seen.watch(quick(), Inspect::all());
        retry = match with_deadline {
            true => retry.deadline(3 * SEC),
            false => retry.attempt_timeout(3 * SEC),
        };
        let start = Instant::now();
        let result = client(&server, retry).get(URL).send().await;
        if with_deadline {
            let error = result.unwrap_err();
            assert!(SteadyError::of(&error).unwrap().is_deadline());
            assert_eq!((server.count(), start.elapsed()), (1, 3 * SEC));
            assert_eq!(seen.all(), []);
        } else {
            assert_eq!(result.unwrap().status(), 200);
            assert_eq!((server.count(), server.gaps()), (2, vec![3 * SEC + MS]));
            assert_eq!(seen.all(), [(b"body of 200".to_vec(), true)]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_error_is_decided_by_what_arrived() {
    for (word, requests) in [("stop", 1), ("busy", 2)] {
        let server = Server::new(move |index| match index {
            0 => Reply::status(503).body(stalled(word)),
            _ => respond(200),
        });
        let seen = Seen::default();
        let retry = seen.watch(quick().attempt_timeout(3 * SEC), Inspect::errors());
        let start = Instant::now();
        let mut response = client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!(
            (server.count(), seen.all()),
            (requests, vec![(word.into(), false)])
        );
        if requests == 1 {
            assert_eq!(
                (response.status().as_u16(), start.elapsed()),
                (503, 3 * SEC)
            );
            assert_eq!(response.chunk().await.unwrap().unwrap(), word);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn time_in_the_queue_is_not_time_for_the_body() {
    let server = Server::new(|index| match index {
        0 => respond(200).after(5 * SEC),
        _ => {
            let late = stream::once(async {
                tokio::time::sleep(2 * SEC).await;
                Ok::<_, io::Error>("late")
            });
            Reply::status(200).body(Body::wrap_stream(late))
        }
    });
    let retry = quick().attempt_timeout(6 * SEC);
    let retry = retry.inspect_body(Inspect::all(), |_, _| None);
    let throttle = ThrottleMiddleware::builder()
        .adaptive(false)
        .max_in_flight(1);
    let client = throttled(&server, retry, throttle);
    let (first, second) = tokio::join!(client.get(URL).send(), client.get(URL).send());
    assert_eq!(first.unwrap().status(), 200);
    assert_eq!(second.unwrap().text().await.unwrap(), "late");
    assert_eq!((server.count(), server.gaps()), (2, vec![5 * SEC]));
}

#[tokio::test(start_paused = true)]
async fn a_success_that_breaks_off_is_a_failed_attempt() {
    for (method, requests) in [("GET", 2), ("POST", 1)] {
        let server = Server::new(|index| match index {
            0 => Reply::status(200).body(broken("stop")),
            _ => respond(200),
        });
        let seen = Seen::default();
        let client = client(&server, seen.watch(quick(), Inspect::all()));
        let slot = ReportSlot::new();
        let request = client
            .request(method.parse().unwrap(), URL)
            .report_to(&slot);
        let result = request.send().await;
        assert_eq!(
            (server.count(), server.gaps()),
            (requests, vec![MS; requests - 1])
        );
        match result {
            Ok(response) => assert_eq!(response.text().await.unwrap(), "body of 200"),
            Err(error) => {
                assert!(error.is_decode(), "{error:?}");
                assert_eq!(slot.get().unwrap().stop_reason(), StopReason::NotIdempotent);
                assert_eq!(slot.effect(), Effect::Happened); // by its status
            }
        }
        // The function saw only the response that is whole.
        assert_eq!(seen.all().len(), requests - 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_breaks_off_keeps_its_bytes_and_its_error() {
    for (word, reason) in [
        ("stop", StopReason::NotRetryable),
        ("busy", StopReason::RetriesExhausted),
    ] {
        let server = Server::new(move |_| Reply::status(503).body(broken(word)));
        let seen = Seen::default();
        let retry = seen.watch(quick().max_retries(1), Inspect::errors());
        let response = client(&server, retry).get(URL).send().await.unwrap();
        let requests = if word == "stop" { 1 } else { 2 };
        assert_eq!(
            (server.count(), server.gaps()),
            (requests, vec![MS; requests - 1])
        );
        assert_eq!(seen.all(), vec![(word.into(), false); requests]);
        assert_eq!(
            (response.status().as_u16(), stop_reason(&response)),
            (503, reason)
        );
        let (bytes, error) = read(response).await;
        assert_eq!(bytes, word.as_bytes());
        let error = format!("{:?}", error.unwrap());
        assert!(error.contains("cut off"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_utf_8_is_replaced_in_text_only() {
    const BODY: &[u8] = b"\xFFstop\xC3";
    let server = Server::new(|_| Reply::status(503).body(BODY));
    let retry = quick().inspect_body(Inspect::errors(), |attempt, start| {
        assert_eq!(start.text(), "\u{FFFD}stop\u{FFFD}");
        assert_eq!(start.bytes(), BODY);
        by_word(attempt, start)
    });
    let response = client(&server, retry).get(URL).send().await.unwrap();
    assert_eq!(
        (server.count(), stop_reason(&response)),
        (1, StopReason::NotRetryable)
    );
    assert_eq!(response.bytes().await.unwrap(), BODY);
}

proptest::proptest! {
    #[test]
    fn any_body_reaches_the_caller_unchanged(
        chunks in proptest::collection::vec(proptest::collection::vec(0_u8.., 0..6000), 0..8),
        limit in 0_usize..30_000,
        status in proptest::sample::select(vec![200_u16, 404]),
        is_stream in proptest::prelude::any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        let all = chunks.concat();
        let kind = if is_stream { "text/event-stream" } else { "text/plain" };
        let server = Server::new(move |_| {
            let body = match &chunks[..] {
                // Its length is known.
                [only] => Body::from(only.clone()),
                _ => parts(chunks.clone()),
            };
            Reply::status(status).header("content-type", kind).body(body)
        });
        let seen = Seen::default();
        let retry = quick().inspect_body(Inspect::all().limit(limit), {
            let seen = seen.0.clone();
            move |_, start| {
                seen.lock().unwrap().push((start.bytes().to_vec(), start.is_complete()));
                None
            }
        });
        let client = client(&server, retry);
        let read = runtime.block_on(async {
            client.get(URL).send().await.unwrap().bytes().await.unwrap()
        });
        proptest::prop_assert_eq!(server.count(), 1);
        proptest::prop_assert_eq!(&read[..], &all[..]);
        let (start, is_complete) = seen.all().remove(0);
        proptest::prop_assert!(start.len() <= limit && all.starts_with(&start));
        proptest::prop_assert!(!is_complete || start == all);
    }
}
