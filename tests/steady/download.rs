//! Downloads that go on where they broke off.

mod doubt;
mod limits;
#[cfg(feature = "file")]
mod processes;
mod property;
mod responses;
#[cfg(feature = "file")]
mod save;
mod wire;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, RequestBuilder};
use reqwest_steady::download::{Download, DownloadError, DownloadExt, DownloadRequest, Progress};
use reqwest_steady::testing::{Reply, ScriptedServer};
use reqwest_steady::{Backoff, Jitter, RequestBuilderExt, RetryMiddleware, Scope, SteadyError};
use tokio::time::Instant;

use crate::support::file_server::{Hosted, Then, cut, cut_of, serve};

const URL: &str = "http://files.example/data.bin";
const SEC: Duration = Duration::from_secs(1);

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

fn exact() -> Backoff {
    Backoff::exponential(SEC).jitter(Jitter::None)
}

/// A client without a retry.
fn bare(server: &Arc<ScriptedServer>) -> ClientWithMiddleware {
    let client = ClientBuilder::new(reqwest::Client::new());
    client.with_arc(server.clone()).build()
}

fn request(server: &Arc<ScriptedServer>) -> RequestBuilder {
    server.client(RetryMiddleware::default()).get(URL)
}

fn download(server: &Arc<ScriptedServer>) -> DownloadRequest {
    request(server).download().backoff(exact())
}

async fn read(download: &mut Download) -> Result<Vec<u8>, (Vec<u8>, Error)> {
    let mut read = Vec::new();
    loop {
        match download.chunk().await {
            Ok(Some(chunk)) => read.extend_from_slice(&chunk),
            Ok(None) => return Ok(read),
            Err(error) => return Err((read, error)),
        }
    }
}

/// Returns the bytes that arrived before the error, and the error of the download.
async fn failed(download: DownloadRequest) -> (usize, String, Error) {
    let (read, error) = read(&mut download.await.unwrap()).await.unwrap_err();
    let own = DownloadError::of(&error).expect("an error of the download");
    assert_eq!(own.received(), read.len() as u64);
    (read.len(), own.to_string(), error)
}

fn header(server: &ScriptedServer, request: usize, name: &str) -> Option<String> {
    let value = server.received()[request].headers.get(name).cloned();
    value.map(|value| value.to_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_break_at_any_offset_costs_one_request_for_the_rest() {
    let file = Hosted::new(bytes(300));
    for then in [Then::Fail, Then::End] {
        for offset in 0..300 {
            let hosted = file.clone();
            let server = serve(move |index, request| match index {
                0 => hosted.reply(request, offset, then),
                _ => hosted.reply(request, 300, Then::End),
            });
            let start = Instant::now();
            let mut download = download(&server).await.unwrap();
            assert_eq!(read(&mut download).await.unwrap(), *file.bytes, "{offset}");
            assert_eq!((server.count(), download.resumes()), (2, 1));
            assert_eq!(start.elapsed(), SEC);
            let range = (offset > 0).then(|| format!("bytes={offset}-"));
            assert_eq!(header(&server, 1, "range"), range);
            let tag = range.map(|_| "\"one\"".to_owned());
            assert_eq!(header(&server, 1, "if-range"), tag);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_download_without_breaks_is_one_request() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 300, Then::Fail));
    let mut download = download(&server).await.unwrap();
    assert_eq!(download.length(), Some(300));
    assert_eq!(download.status(), 200);
    assert_eq!(download.headers()["etag"], "\"one\"");
    // The connection fails after the last byte, and then there is no rest to ask for.
    assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
    assert_eq!((server.count(), download.resumes()), (1, 0));
    assert_eq!(
        header(&server, 0, "accept-encoding").as_deref(),
        Some("identity")
    );
    assert!(download.chunk().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn each_request_for_the_rest_names_the_version() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 10, Then::Fail));
    let client = server.client(RetryMiddleware::default());
    let request = client
        .get(URL)
        .bearer_auth("secret")
        .header("x-tenant", "acme");
    let mut download = request
        .download()
        .max_resumes(1)
        .backoff(exact())
        .await
        .unwrap();
    assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
    // Every resume brought 10 bytes, so that one resume in a row was enough.
    assert_eq!((server.count(), download.resumes()), (30, 29));
    for index in 1..30 {
        let name = |name| header(&server, index, name);
        assert_eq!(name("range"), Some(format!("bytes={}-", index * 10)));
        assert_eq!(name("if-range").as_deref(), Some("\"one\""));
        assert_eq!(name("authorization").as_deref(), Some("Bearer secret"));
        assert_eq!(name("x-tenant").as_deref(), Some("acme"));
    }
}

#[tokio::test(start_paused = true)]
async fn resumes_without_progress_are_limited() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |index, request| match index {
        0 => file.reply(request, 100, Then::Fail),
        _ => file.reply(request, 0, Then::Fail),
    });
    let start = Instant::now();
    let (received, text, error) = failed(download(&server)).await;
    assert_eq!((received, server.count()), (100, 6));
    assert_eq!(start.elapsed(), (1 + 2 + 4 + 8 + 10) * SEC);
    assert_eq!(
        text,
        "download broke off and no resumes are left (after 100 of 300 bytes and 5 resumes)"
    );
    let Error::Middleware(error) = error else {
        panic!("{error}")
    };
    assert!(
        error.chain().any(|link| link.to_string().contains("reset")),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn retries_of_resumes_draw_from_the_same_limit() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |index, request| match index {
        0 => file.reply(request, 100, Then::Fail),
        _ => Reply::status(503),
    });
    let (_, text, _) = failed(download(&server)).await;
    // One resume, and four retries of its request: not 5 × 6.
    assert_eq!(server.count(), 6, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_scope_around_a_download_limits_its_resumes() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 10, Then::Fail));
    let scope = Scope::new().max_retries(3);
    let (received, _, _) = scope.run(failed(download(&server))).await;
    assert_eq!((received, server.count()), (40, 4));
}

#[tokio::test(start_paused = true)]
async fn a_silent_body_is_resumed_after_the_stall_timeout() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Stall),
        _ => hosted.reply(request, 300, Then::End),
    });
    let start = Instant::now();
    let mut download = download(&server).stall_timeout(20 * SEC).await.unwrap();
    assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
    assert_eq!((server.count(), start.elapsed()), (2, 21 * SEC));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_for_the_whole_download() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 10, Then::Stall));
    let start = Instant::now();
    let client = server.client(RetryMiddleware::default());
    let request = client
        .get(URL)
        .deadline(45 * SEC)
        .download()
        .backoff(exact());
    let (read, error) = read(&mut request.await.unwrap()).await.unwrap_err();
    assert_eq!((read.len(), server.count()), (20, 2));
    assert_eq!(start.elapsed(), 45 * SEC);
    let error = SteadyError::of(&error).expect("the deadline");
    assert!(error.is_deadline());
    assert_eq!((error.host(), error.attempts()), ("files.example", 2));
    assert_eq!(error.elapsed(), 45 * SEC);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_for_a_body_that_never_pauses() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 2, Then::Fail));
    let client = server.client(RetryMiddleware::default());
    let request = client.get(URL).deadline(10 * SEC).download();
    let mut download = request
        .backoff(Backoff::exponential(Duration::from_millis(1)))
        .await
        .unwrap();
    let start = Instant::now();
    let error = loop {
        match download.chunk().await {
            Ok(chunk) => assert!(chunk.is_some()),
            Err(error) => break error,
        }
        tokio::time::sleep(SEC).await;
    };
    let is_deadline = SteadyError::of(&error).is_some_and(SteadyError::is_deadline);
    assert!(
        is_deadline || error.to_string().contains("deadline"),
        "{error:?}"
    );
    assert!(start.elapsed() <= 11 * SEC, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_scope_around_the_reading_ends_it() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 10, Then::Stall));
    let mut download = download(&server).await.unwrap();
    let start = Instant::now();
    let scope = Scope::new().deadline(45 * SEC);
    let (_, error) = scope.run(read(&mut download)).await.unwrap_err();
    assert!(
        SteadyError::of(&error).is_some_and(SteadyError::is_deadline),
        "{error:?}"
    );
    assert_eq!(start.elapsed(), 45 * SEC);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_cannot_block_a_download() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |index, request| match index {
        0 => file.reply(request, 10, Then::Stall),
        _ => Reply::silence(),
    });
    let start = Instant::now();
    let (_, error) = read(&mut download(&server).await.unwrap())
        .await
        .unwrap_err();
    // A stall, and five requests for the rest that got no response in 30 s each.
    assert_eq!(server.count(), 6, "{error:?}");
    assert!(start.elapsed() < 300 * SEC, "{:?}", start.elapsed());
}

#[test]
fn without_timers_a_download_says_so() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 300, Then::End));
    let client = bare(&server);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let error = runtime
        .block_on(client.get(URL).download().into_future())
        .unwrap_err();
    assert!(
        SteadyError::of(&error).is_some_and(SteadyError::is_config),
        "{error:?}"
    );
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_resume_begins_that_the_deadline_would_end() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 10, Then::Fail));
    let client = server.client(RetryMiddleware::default());
    let request = client.get(URL).deadline(SEC).download().backoff(exact());
    let (received, text, _) = failed(request).await;
    assert_eq!((received, server.count()), (10, 1));
    assert!(text.contains("its deadline is too close"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_cannot_outlast_the_deadline() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |index, request| match index {
        0 => file.reply(request, 10, Then::Fail),
        _ => Reply::silence(),
    });
    let start = Instant::now();
    let client = server.client(RetryMiddleware::default());
    let request = client
        .get(URL)
        .deadline(9 * SEC)
        .download()
        .backoff(exact());
    let (_, error) = read(&mut request.await.unwrap()).await.unwrap_err();
    assert!(
        SteadyError::of(&error).is_some_and(SteadyError::is_deadline),
        "{error:?}"
    );
    assert_eq!((server.count(), start.elapsed()), (2, 9 * SEC));
}

/// What a server may send instead of the rest.
pub(crate) fn lies(file: &Hosted) -> Vec<(&'static str, Reply)> {
    let part = |range: &str, sent: &[u8]| {
        let sent = bytes::Bytes::copy_from_slice(sent);
        let length = sent.len();
        Reply::status(206)
            .header("content-range", range)
            .body(cut(sent, length, Then::End))
    };
    let all = &file.bytes;
    let one = |reply: Reply| reply.header("etag", file.etag.unwrap());
    vec![
        ("ignores ranges", file.whole(300, Then::End)),
        ("from the start", one(part("bytes 0-299/300", all))),
        ("one byte early", one(part("bytes 99-299/300", &all[99..]))),
        ("one byte late", one(part("bytes 101-299/300", &all[101..]))),
        ("backwards", one(part("bytes 100-99/300", &[]))),
        ("longer file", one(part("bytes 100-300/301", &[7; 201]))),
        (
            "shorter file",
            one(part("bytes 100-298/299", &all[100..299])),
        ),
        (
            "no range",
            one(Reply::status(206).body(all[100..].to_vec())),
        ),
        (
            "longer than its range",
            one(part("bytes 100-299/300", &[7; 201])),
        ),
        (
            "shorter than its range",
            one(part("bytes 100-299/300", &all[100..299])).header("content-length", "199"),
        ),
        ("no tag", part("bytes 100-299/300", &all[100..])),
        (
            "weak tag",
            part("bytes 100-299/300", &all[100..]).header("etag", "W/\"one\""),
        ),
        (
            "another tag",
            part("bytes 100-299/300", &all[100..]).header("etag", "\"other\""),
        ),
        (
            "encoded",
            one(part("bytes 100-299/300", &all[100..])).header("content-encoding", "gzip"),
        ),
        (
            "several parts",
            one(Reply::status(206))
                .header("content-type", "multipart/byteranges; boundary=b")
                .body(all[100..].to_vec()),
        ),
        (
            "several parts in one range",
            one(part("bytes 100-299/300", &all[100..]))
                .header("content-type", "multipart/byteranges; boundary=b"),
        ),
        (
            "not satisfiable",
            Reply::status(416).header("content-range", "bytes */50"),
        ),
        ("precondition failed", Reply::status(412)),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_stream_never_goes_on_with_what_does_not_fit() {
    let file = Hosted::new(bytes(300));
    for case in 0..lies(&file).len() {
        let (name, _) = lies(&file).remove(case);
        let hosted = file.clone();
        let server = serve(move |index, request| match index {
            0 => hosted.reply(request, 100, Then::Fail),
            _ => lies(&hosted).remove(case).1,
        });
        let (received, text, error) = failed(download(&server)).await;
        assert_eq!((received, server.count()), (100, 2), "{name}: {text}");
        assert!(
            DownloadError::of(&error).unwrap().is_changed(),
            "{name}: {text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_longer_than_announced_is_refused() {
    let longer = bytes(310);
    // In one chunk, and with a chunk behind the last byte.
    for (ends, expected) in [(vec![310], 100), (vec![300, 310], 300)] {
        let file = Hosted::new(bytes(300));
        let starts = std::iter::once(100).chain(ends.iter().copied());
        let chunks = starts
            .zip(&ends)
            .map(|(start, end)| longer[start..*end].to_vec());
        let chunks: Vec<_> = chunks.collect();
        let server = serve(move |index, request| match index {
            0 => file.reply(request, 100, Then::Fail),
            // The range is right, and the length is not announced.
            _ => {
                let chunks = chunks.clone().into_iter().map(Ok::<_, std::io::Error>);
                let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
                Reply::status(206)
                    .header("etag", "\"one\"")
                    .header("content-range", "bytes 100-299/300")
                    .body(body)
            }
        });
        let (received, text, error) = failed(download(&server)).await;
        assert_eq!((received, server.count()), (expected, 2), "{text}");
        assert!(DownloadError::of(&error).unwrap().is_changed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_may_send_the_rest_in_parts() {
    let file = Hosted::new(bytes(300));
    let all = file.bytes.clone();
    let hosted = file.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Fail),
        1 => Reply::status(206)
            .header("etag", "\"one\"")
            .header("content-range", "bytes 100-199/300")
            .body(all[100..200].to_vec()),
        _ => hosted.reply(request, 300, Then::End),
    });
    let mut download = download(&server).await.unwrap();
    assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
    assert_eq!((server.count(), download.resumes()), (3, 2));
    assert_eq!(header(&server, 2, "range").as_deref(), Some("bytes=200-"));
}

#[tokio::test(start_paused = true)]
async fn without_a_strong_validator_a_stream_ends_where_it_broke() {
    for etag in [None, Some("W/\"one\""), Some("one")] {
        let file = Hosted {
            etag,
            ..Hosted::new(bytes(300))
        };
        let server = serve(move |_, request| file.reply(request, 100, Then::Fail));
        let (received, text, _) = failed(download(&server)).await;
        assert_eq!((received, server.count()), (100, 1));
        assert!(
            text.contains("its headers do not allow to ask for the rest"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_last_modified_is_a_validator() {
    let file = Hosted {
        etag: None,
        ..Hosted::new(bytes(300))
    };
    let modified = "Mon, 16 Nov 2026 10:00:00 GMT";
    let hosted = file.clone();
    let server = serve(move |index, _| {
        let reply = match index {
            0 => hosted.whole(100, Then::Fail),
            _ => hosted.rest(100, 300, Then::End),
        };
        let date = "Tue, 17 Nov 2026 10:00:00 GMT";
        reply.header("last-modified", modified).header("date", date)
    });
    let mut download = download(&server).await.unwrap();
    assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
    assert_eq!(header(&server, 1, "if-range").as_deref(), Some(modified));
}

#[tokio::test(start_paused = true)]
async fn an_error_status_is_returned_and_its_body_not_resumed() {
    let server =
        ScriptedServer::new(|_| Reply::status(404).body(cut("gone".into(), 8, Then::Fail)));
    let mut download = download(&server).await.unwrap();
    assert_eq!(download.status(), 404);
    let (read, error) = read(&mut download).await.unwrap_err();
    assert_eq!((read, server.count()), (b"gone".to_vec(), 1));
    assert!(matches!(error, Error::Reqwest(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_final_status_for_the_rest_ends_the_download() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |index, request| match index {
        0 => file.reply(request, 100, Then::Fail),
        _ => Reply::status(403),
    });
    let (_, text, error) = failed(download(&server)).await;
    let status = DownloadError::of(&error).unwrap().status();
    assert_eq!(
        (status.unwrap().as_u16(), server.count()),
        (403, 2),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_for_good_returns_its_error() {
    for with_retry in [true, false] {
        let file = Hosted::new(bytes(300));
        let server = serve(move |index, request| match index {
            0 => file.reply(request, 100, Then::Fail),
            _ => Reply::fail(ErrorKind::PermissionDenied),
        });
        let client = match with_retry {
            true => server.client(RetryMiddleware::default()),
            false => bare(&server),
        };
        let download = client.get(URL).download().backoff(exact());
        let (_, error) = read(&mut download.await.unwrap()).await.unwrap_err();
        assert!(DownloadError::of(&error).is_none(), "{error:?}");
        assert_eq!(server.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_a_download_is_refused_before_it_is_sent() {
    let server = ScriptedServer::statuses([200]);
    let client = server.client(RetryMiddleware::default());
    let stream = || {
        let stream = futures_util::stream::iter([Ok::<_, std::io::Error>("x")]);
        reqwest::Body::wrap_stream(stream)
    };
    for (request, expected) in [
        (
            client.post(URL).download(),
            "download (POST) should be a GET",
        ),
        (
            client.get(URL).header("range", "bytes=1-").download(),
            "(Range or If-Range) should not be set",
        ),
        (
            client.get(URL).body(stream()).download(),
            "should not be a stream",
        ),
        (
            client.get(URL).download().stall_timeout(Duration::ZERO),
            "stall_timeout (0s) should be longer",
        ),
        (
            client
                .get(URL)
                .download()
                .backoff(Backoff::exponential(SEC).multiplier(0.5)),
            "backoff multiplier (0.5) should be",
        ),
    ] {
        let error = request.await.unwrap_err();
        let error = SteadyError::of(&error).expect("refused by this crate");
        assert!(
            error.is_config() && error.to_string().contains(expected),
            "{error}"
        );
    }
    let error = client.get("no url").download().await.unwrap_err();
    assert!(matches!(error, Error::Reqwest(error) if error.is_builder()));
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn progress_is_told_after_each_chunk() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 100, Then::Fail));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let request = download(&server).on_progress(move |progress: Progress| {
        let (received, length) = (progress.received(), progress.length());
        notes
            .lock()
            .unwrap()
            .push((received, length, progress.resumes()));
    });
    let chunks: Vec<_> = request.await.unwrap().collect().await;
    assert!(chunks.iter().all(Result::is_ok) && chunks.len() == 6);
    let whole = Some(300);
    let expected = [(50, 0), (100, 0), (150, 1), (200, 1), (250, 2), (300, 2)];
    let expected = expected.map(|(received, resumes)| (received, whole, resumes));
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_for_a_chunk_loses_nothing() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |index, request| {
        let reply = hosted.reply(request, 100, Then::Fail);
        reply.after(Duration::from_millis(index as u64 * 300))
    });
    let mut download = download(&server).await.unwrap();
    let mut read = Vec::new();
    let mut dropped = 0;
    loop {
        // The resumes wait for longer than that, and so do their requests.
        match tokio::time::timeout(Duration::from_millis(70), download.chunk()).await {
            Ok(Ok(Some(chunk))) => read.extend_from_slice(&chunk),
            Ok(Ok(None)) => break,
            Ok(Err(error)) => panic!("{error:?}"),
            Err(_) => dropped += 1,
        }
    }
    assert_eq!(read, *file.bytes);
    assert!(dropped > 20 && server.count() == 3, "{dropped}");
}

#[tokio::test(start_paused = true)]
async fn a_download_without_a_retry_goes_on_by_itself() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Fail),
        1 => Reply::status(503),
        2 => Reply::fail(ErrorKind::ConnectionReset),
        _ => hosted.reply(request, 300, Then::End),
    });
    let start = Instant::now();
    let mut download = bare(&server)
        .get(URL)
        .download()
        .backoff(exact())
        .await
        .unwrap();
    assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
    assert_eq!((server.count(), start.elapsed()), (4, 7 * SEC));
}
