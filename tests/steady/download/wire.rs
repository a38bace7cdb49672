//! Downloads over real connections: what a server may send instead of the rest, redirects, and HTTP/2.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use reqwest_steady::{ClientBuilderExt, Steady};

use super::*;
use crate::support::raw::{Server, direct, in_time, reply};
use crate::support::raw::{Then as End, retry};

const LENGTH: usize = 42;

fn client(inner: reqwest::ClientBuilder) -> ClientWithMiddleware {
    crate::support::raw::client(inner, retry())
}

fn quick(request: RequestBuilder) -> DownloadRequest {
    let backoff = Backoff::exponential(Duration::from_nanos(1)).cap(Duration::from_millis(1));
    request.download().backoff(backoff)
}

fn raw(head: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {}\r\n\r\n", head.replace('\n', "\r\n"));
    [head.as_bytes(), body].concat()
}

fn chunked(body: &[u8]) -> Vec<u8> {
    let size = format!("{:x}\r\n", body.len());
    [size.as_bytes(), body, b"\r\n0\r\n\r\n"].concat()
}

const WHOLE: &str = "200 OK\netag: \"a\"\ncontent-length: 42";

/// A server that breaks off after `cut` bytes, and then sends these bytes to each request for the rest.
async fn broken_at(cut: usize, rest: Vec<u8>) -> Server {
    Server::start(move |index| match index {
        0 => reply(raw(WHOLE, &bytes(LENGTH)[..cut]), End::Close),
        _ => reply(rest.clone(), End::Close),
    })
    .await
}

#[tokio::test]
async fn the_rest_is_accepted_in_every_shape_that_is_right() {
    let file = bytes(LENGTH);
    for cut in [1, 20, 41] {
        let rest = &file[cut..];
        let length = rest.len();
        let part = format!("206 Partial Content\netag: \"a\"\ncontent-range: bytes {cut}-41/42");
        let unknown = format!("206 Partial Content\netag: \"a\"\ncontent-range: bytes {cut}-41/*");
        for (name, response) in [
            (
                "plain",
                raw(&format!("{part}\ncontent-length: {length}"), rest),
            ),
            (
                "unknown whole",
                raw(&format!("{unknown}\ncontent-length: {length}"), rest),
            ),
            (
                "chunked",
                raw(
                    &format!("{part}\ntransfer-encoding: chunked"),
                    &chunked(rest),
                ),
            ),
            (
                "until the end",
                raw(&format!("{part}\nconnection: close"), rest),
            ),
            // What follows the announced bytes is no part of the response.
            (
                "longer",
                raw(
                    &format!("{part}\ncontent-length: {length}"),
                    &[rest, &file].concat(),
                ),
            ),
        ] {
            let server = broken_at(cut, response).await;
            let mut download = quick(client(direct()).get(server.url())).await.unwrap();
            assert_eq!(in_time(read(&mut download)).await.unwrap(), file, "{name}");
            assert_eq!((server.count(), download.resumes()), (2, 1), "{name}");
            let range = format!("bytes={cut}-");
            assert_eq!(server.requests()[1].header("range"), Some(&*range));
            assert_eq!(server.requests()[1].header("if-range"), Some("\"a\""));
        }
    }
}

/// Responses that must not be taken for the bytes from 20 on.
fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    let file = bytes(LENGTH);
    let rest = &file[20..];
    let part = |head: &str, body: &[u8]| raw(&format!("206 Partial Content\n{head}"), body);
    let fits = "etag: \"a\"\ncontent-range: bytes 20-41/42";
    vec![
        ("ignores ranges", raw(WHOLE, &file)),
        (
            "wrong range",
            part(
                "etag: \"a\"\ncontent-range: bytes 0-21/42\ncontent-length: 22",
                rest,
            ),
        ),
        (
            "backwards",
            part(
                "etag: \"a\"\ncontent-range: bytes 42-41/42\ncontent-length: 0",
                b"",
            ),
        ),
        (
            "another tag",
            part(
                "etag: \"b\"\ncontent-range: bytes 20-41/42\ncontent-length: 22",
                rest,
            ),
        ),
        (
            "weak tag",
            part(
                "etag: W/\"a\"\ncontent-range: bytes 20-41/42\ncontent-length: 22",
                rest,
            ),
        ),
        (
            "not satisfiable",
            raw(
                "416 Range Not Satisfiable\ncontent-range: bytes */42\ncontent-length: 0",
                b"",
            ),
        ),
        // Not gzip, which reqwest decodes if another crate turns its feature on: see `proof/tests/real/gzip.rs`.
        (
            "encoded",
            part(
                &format!("{fits}\ncontent-encoding: compress\ncontent-length: 22"),
                rest,
            ),
        ),
        (
            "longer than its range",
            part(
                &format!("{fits}\ntransfer-encoding: chunked"),
                &chunked(&[7; 23]),
            ),
        ),
        (
            "longer than its range, by its length",
            part(&format!("{fits}\ncontent-length: 23"), &[7; 23]),
        ),
        (
            "shorter than its range, by its length",
            part(&format!("{fits}\ncontent-length: 21"), &rest[..21]),
        ),
        (
            "several parts",
            part(
                "etag: \"a\"\ncontent-type: multipart/byteranges; boundary=b\ncontent-length: 22",
                rest,
            ),
        ),
    ]
}

#[tokio::test]
async fn what_does_not_fit_ends_a_stream() {
    for (name, response) in wrong() {
        let server = broken_at(20, response).await;
        let download = quick(client(direct()).get(server.url()));
        let (received, text, error) = in_time(failed(download)).await;
        assert_eq!((received, server.count()), (20, 2), "{name}: {text}");
        assert!(
            DownloadError::of(&error).unwrap().is_changed(),
            "{name}: {text}"
        );
    }
}

#[tokio::test]
async fn the_rest_that_stops_early_is_asked_for_again() {
    let file = bytes(LENGTH);
    let part = |first: usize, sent: &[u8], length: &str| {
        let head = format!("206 OK\netag: \"a\"\ncontent-range: bytes {first}-41/42\n{length}");
        raw(&head, sent)
    };
    // Less than announced, a range that ends early, and the same in one chunk.
    let short = [
        part(20, &file[20..30], "content-length: 22"),
        raw(
            "206 OK\netag: \"a\"\ncontent-range: bytes 20-29/42\ncontent-length: 10",
            &file[20..30],
        ),
        raw(
            "206 OK\netag: \"a\"\ncontent-range: bytes 20-29/42\ntransfer-encoding: chunked",
            &chunked(&file[20..30]),
        ),
    ];
    for first in short {
        let (rest, file) = (part(30, &file[30..], "content-length: 12"), file.clone());
        let begin = raw(WHOLE, &file[..20]);
        let server = Server::start(move |index| match index {
            0 => reply(begin.clone(), End::Close),
            1 => reply(first.clone(), End::Close),
            _ => reply(rest.clone(), End::Close),
        })
        .await;
        let mut download = quick(client(direct()).get(server.url())).await.unwrap();
        assert_eq!(in_time(read(&mut download)).await.unwrap(), file);
        assert_eq!((server.count(), download.resumes()), (3, 2));
        assert_eq!(server.requests()[2].header("range"), Some("bytes=30-"));
    }
}

#[tokio::test]
async fn a_file_without_a_length_ends_where_it_broke() {
    let file = bytes(LENGTH);
    let head = "200 OK\netag: \"a\"\ntransfer-encoding: chunked";
    let all = chunked(&file);
    let whole = raw(head, &all);
    let server = Server::start(move |_| reply(whole.clone(), End::Close)).await;
    let mut download = quick(client(direct()).get(server.url())).await.unwrap();
    assert_eq!(download.length(), None);
    assert_eq!(in_time(read(&mut download)).await.unwrap(), file);

    let broken = raw(head, &all[..25]);
    let server = Server::start(move |_| reply(broken.clone(), End::Close)).await;
    let mut download = quick(client(direct()).get(server.url())).await.unwrap();
    let (received, error) = in_time(read(&mut download)).await.unwrap_err();
    assert!(file.starts_with(&received) && !received.is_empty());
    assert!(DownloadError::of(&error).is_some(), "{error}");
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_break_before_the_first_byte_is_mended() {
    let file = bytes(LENGTH);
    for end in [End::Close, End::Reset] {
        let (whole, end) = (file.clone(), end.clone());
        let server = Server::start(move |index| match index {
            0 => reply(raw(WHOLE, b""), end.clone()),
            _ => reply(raw(WHOLE, &whole), End::Close),
        })
        .await;
        let mut download = quick(client(direct()).get(server.url())).await.unwrap();
        assert_eq!(in_time(read(&mut download)).await.unwrap(), file);
        assert_eq!(server.count(), 2);
        assert_eq!(server.requests()[1].header("range"), None);
    }
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_whole_file() {
    let server = Server::start(|_| reply(raw(WHOLE, &bytes(LENGTH)), End::KeepOpen)).await;
    let client = client(direct());
    for _ in 0..3 {
        let mut download = quick(client.get(server.url())).await.unwrap();
        in_time(read(&mut download)).await.unwrap();
        drop(download);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((server.count(), server.connections()), (3, 1));
}

#[tokio::test]
async fn a_redirect_keeps_the_range_and_not_the_credentials() {
    let file = bytes(LENGTH);
    let rest = raw(
        "206 OK\netag: \"a\"\ncontent-range: bytes 20-41/42\ncontent-length: 22",
        &file[20..],
    );
    let store = broken_at(20, rest).await;
    let location = format!("302 Found\nlocation: {}\ncontent-length: 0", store.url());
    let front = Server::start(move |_| reply(raw(&location, b""), End::Close)).await;
    let inner = direct().redirect(reqwest::redirect::Policy::limited(3));
    let client = ClientBuilder::new(inner.build().unwrap())
        .with_steady(Steady::default())
        .build();
    let request = client.get(front.url()).bearer_auth("secret");
    let mut download = quick(request).await.unwrap();
    assert_eq!(in_time(read(&mut download)).await.unwrap(), file);
    // Each request begins at the front, whose links may expire.
    assert_eq!((front.count(), store.count()), (2, 2));
    for request in front.requests() {
        assert_eq!(request.header("authorization"), Some("Bearer secret"));
    }
    for (index, request) in store.requests().iter().enumerate() {
        let is_rest = index == 1;
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.header("range"), is_rest.then_some("bytes=20-"));
        assert_eq!(request.header("if-range"), is_rest.then_some("\"a\""));
        assert_eq!(request.header("accept-encoding"), Some("identity"));
    }
}

#[tokio::test]
async fn downloads_that_are_dropped_leave_no_connection_busy() {
    let body = raw("200 OK\netag: \"a\"\ncontent-length: 1000000", &[1; 1000]);
    let server = Server::start(move |_| reply(body.clone(), End::Silence)).await;
    let client = client(direct());
    let downloads = (0..8).map(|_| async {
        let mut download = quick(client.get(server.url())).await.unwrap();
        download.chunk().await.unwrap().unwrap();
        download
    });
    let downloads = in_time(join_all(downloads)).await;
    let before = server.count();
    drop(downloads);
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Nothing goes on in the background.
    assert_eq!((before, server.count()), (8, 8));
}

#[cfg(feature = "http2")]
mod http2 {
    use h2::Reason;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    /// Sends 20 bytes and ends the stream for this reason. Then it sends the rest.
    async fn start(reason: Option<Reason>) -> (String, Arc<AtomicUsize>, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let mut connection = h2::server::handshake(tcp).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let index = seen.fetch_add(1, Ordering::SeqCst);
                    let response = http::Response::builder().header("etag", "\"a\"");
                    let file = bytes(LENGTH);
                    let response = match index {
                        0 => response.header("content-length", "42"),
                        _ => {
                            assert_eq!(request.headers()["range"], "bytes=20-");
                            response
                                .status(206)
                                .header("content-range", "bytes 20-41/42")
                                .header("content-length", "22")
                        }
                    };
                    let mut body = respond
                        .send_response(response.body(()).unwrap(), false)
                        .unwrap();
                    if index > 0 {
                        body.send_data(file[20..].to_vec().into(), true).unwrap();
                        continue;
                    }
                    body.send_data(file[..20].to_vec().into(), false).unwrap();
                    // Otherwise the reset overtakes the bytes.
                    let later = async {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        match reason {
                            Some(reason) => body.send_reset(reason),
                            None => body.send_data(Default::default(), true).unwrap(),
                        }
                    };
                    tokio::select! {
                        () = later => {}
                        _ = std::future::poll_fn(|context| connection.poll_closed(context)) => {}
                    }
                }
            }
        });
        (url, count, tasks)
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_goes_on_for_any_reason() {
        for reason in [
            // It looks like the end of the body.
            Some(Reason::NO_ERROR),
            Some(Reason::CANCEL),
            Some(Reason::INTERNAL_ERROR),
            // The last frame comes too early.
            None,
        ] {
            let (url, count, _tasks) = start(reason).await;
            let client = client(direct().http2_prior_knowledge());
            let mut download = in_time(quick(client.get(url)).into_future()).await.unwrap();
            let read = in_time(read(&mut download)).await.unwrap();
            assert_eq!(read, bytes(LENGTH), "{reason:?}");
            assert_eq!(count.load(Ordering::SeqCst), 2, "{reason:?}");
        }
    }
}

#[cfg(feature = "file")]
#[tokio::test]
async fn what_does_not_fit_is_not_saved_from_the_wire() {
    use crate::support::directory::Directory;

    for (name, response) in wrong() {
        let directory = Directory::new();
        let server = Server::start(move |index| match index {
            0 => reply(raw(WHOLE, &bytes(LENGTH)[..20]), End::Close),
            1 => reply(response.clone(), End::Close),
            _ => reply(raw(WHOLE, &bytes(LENGTH)), End::Close),
        })
        .await;
        let download = quick(client(direct()).get(server.url())).await.unwrap();
        let saved = in_time(download.save(directory.file("data"))).await;
        assert_eq!(saved.unwrap(), LENGTH as u64, "{name}");
        let found = std::fs::read(directory.file("data")).unwrap();
        assert_eq!(found, bytes(LENGTH), "{name}");
        let requests = if name == "ignores ranges" { 2 } else { 3 };
        assert_eq!(server.count(), requests, "{name}");
        assert_eq!(directory.names(), ["data"], "{name}");
    }
}

/// Nothing shows whether the bytes of a chunked rest that breaks off are right.
#[cfg(feature = "file")]
#[tokio::test]
async fn a_chunked_rest_may_break_at_and_within_every_chunk() {
    use crate::support::directory::Directory;

    let file = bytes(LENGTH);
    let head = "206 OK\netag: \"a\"\ncontent-range: bytes 20-41/42\ntransfer-encoding: chunked";
    let chunk = |bytes: &[u8]| [b"5\r\n", bytes, b"\r\n"].concat();
    // The rest, and the file from its first byte in its place.
    for from in [20, 0] {
        let chunks: Vec<u8> = file[from..from + 20].chunks(5).flat_map(chunk).collect();
        let ended = [&chunks[..], b"0\r\n\r\n"].concat();
        let cuts = (0..=chunks.len()).map(|cut| &chunks[..cut]);
        for sent in cuts.chain([&ended[..]]) {
            let directory = Directory::new();
            let broken = raw(head, sent);
            let rest = "206 OK\netag: \"a\"\ncontent-range: bytes 20-41/42\ncontent-length: 22";
            let rest = raw(rest, &file[20..]);
            let begin = raw(WHOLE, &file[..20]);
            let server = Server::start(move |index| match index {
                0 => reply(begin.clone(), End::Close),
                1 => reply(broken.clone(), End::Close),
                _ => reply(rest.clone(), End::Close),
            })
            .await;
            let download = quick(client(direct()).get(server.url())).await.unwrap();
            let saved = in_time(download.save(directory.file("data"))).await;
            assert_eq!(saved.unwrap(), LENGTH as u64);
            let found = std::fs::read(directory.file("data")).unwrap();
            assert_eq!(found, file, "{} bytes from {from}", sent.len());
            assert_eq!(server.count(), 3);
            assert_eq!(server.requests()[2].header("range"), Some("bytes=20-"));
        }
    }
}
