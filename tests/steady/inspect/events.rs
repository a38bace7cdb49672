//! Of an event stream, only the first event is read.

use std::io;

use futures_util::{StreamExt, stream};

use super::*;

fn events(body: Body) -> Reply {
    Reply::status(200)
        .header("content-type", "text/event-stream; charset=utf-8")
        .body(body)
}

/// These parts, and then nothing more.
fn open(parts: Vec<&'static [u8]>) -> Body {
    let parts = stream::iter(parts.into_iter().map(Ok::<_, io::Error>));
    Body::wrap_stream(parts.chain(stream::pending()))
}

fn breaking(text: &'static str) -> Body {
    Body::wrap_stream(stream::iter([Ok(text), Err(cut_off())]))
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_after_its_first_event() {
    for stream in [
        &b"data: x\n\n"[..],
        b"data: x\r\n\r\n",
        b"data: x\r\r",
        b"\xEF\xBB\xBFevent: a\r\ndata: x\r\n\r\n",
        b": ping\n\n: ping\r\n\r\ndata\n\n",
    ] {
        for cut in 0..=stream.len() {
            let server = Server::new(move |_| events(open(vec![&stream[..cut], &stream[cut..]])));
            let seen = Seen::default();
            let start = Instant::now();
            let retry = seen.watch(quick(), Inspect::all());
            let mut response = client(&server, retry).get(URL).send().await.unwrap();
            let place = format!("{} at {cut}", stream.escape_ascii());
            assert_eq!(
                (server.count(), start.elapsed()),
                (1, Duration::ZERO),
                "{place}"
            );
            let (first, is_complete) = seen.all().remove(0);
            // The LF of the last CR LF may still be missing.
            assert!(
                first.len() + 1 >= stream.len() && stream.starts_with(&first),
                "{place}"
            );
            assert!(!is_complete, "{place}");
            let mut read = Vec::new();
            while read.len() < stream.len() {
                read.extend_from_slice(&response.chunk().await.unwrap().unwrap());
            }
            assert_eq!(read, stream, "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn comments_are_not_an_event() {
    let server = Server::new(|_| events(open(vec![b": ping\n\n", b": ping\n\n"])));
    let seen = Seen::default();
    let retry = seen.watch(quick(), Inspect::all().timeout(5 * SEC));
    let start = Instant::now();
    client(&server, retry).get(URL).send().await.unwrap();
    assert_eq!((server.count(), start.elapsed()), (1, 5 * SEC));
    assert_eq!(seen.all(), [(b": ping\n\n: ping\n\n".to_vec(), false)]);
}

#[tokio::test(start_paused = true)]
async fn an_error_as_the_first_event_is_retried() {
    let server = Server::new(|index| match index {
        0 => events(open(vec![
            b"event: error\ndata: overloaded, ",
            b"again\n\n",
        ])),
        _ => events(open(vec![b"data: hello\n\n"])),
    });
    let retry = quick().inspect_body(Inspect::all(), by_word);
    let mut response = client(&server, retry).get(URL).send().await.unwrap();
    assert_eq!(server.count(), 2);
    assert!(server.gaps()[0] <= 101 * MS); // 100 ms to drain
    assert_eq!(response.chunk().await.unwrap().unwrap(), "data: hello\n\n");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_before_its_first_event_is_retried() {
    for (text, requests) in [(": ping\n\ndata: x\n", 2), ("data: x\n\ndata: y", 1)] {
        let server = Server::new(move |index| match index {
            0 => events(breaking(text)),
            _ => events(open(vec![b"data: hello\n\n"])),
        });
        let retry = quick().inspect_body(Inspect::all(), |_, _| None);
        let mut response = client(&server, retry).get(URL).send().await.unwrap();
        assert_eq!(
            (server.count(), server.gaps()),
            (requests, vec![MS; requests - 1])
        );
        let first = response.chunk().await.unwrap().unwrap();
        if requests == 1 {
            // It has begun, so the break is the caller's.
            assert_eq!(first, text);
            response.chunk().await.unwrap_err();
        } else {
            assert_eq!(first, "data: hello\n\n");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_without_an_event_is_complete() {
    let server = Server::new(|index| match index {
        0 => events(parts(vec![": again\n\n"])),
        _ => events(parts(vec![""])),
    });
    let seen = Seen::default();
    let retry = seen.watch(quick(), Inspect::all());
    let response = client(&server, retry).get(URL).send().await.unwrap();
    assert_eq!((server.count(), server.gaps()), (2, vec![MS]));
    assert_eq!(
        seen.all(),
        [(b": again\n\n".to_vec(), true), (vec![], true)]
    );
    assert_eq!(response.text().await.unwrap(), "");
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_for_streams_too() {
    let server = Server::new(|_| events(open(vec![b"data: 12", b"345"])));
    let seen = Seen::default();
    let retry = seen.watch(quick(), Inspect::all().limit(8));
    let start = Instant::now();
    let mut response = client(&server, retry).get(URL).send().await.unwrap();
    assert_eq!((server.count(), start.elapsed()), (1, Duration::ZERO));
    assert_eq!(seen.all(), [(b"data: 12".to_vec(), false)]);
    assert_eq!(response.chunk().await.unwrap().unwrap(), "data: 12");
    assert_eq!(response.chunk().await.unwrap().unwrap(), "345");
}
