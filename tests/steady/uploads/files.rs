//! Files of `file`.

use std::error::Error as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use reqwest_middleware::{ClientBuilder, Middleware};
use reqwest_steady::dead_letter::{LetterBody, dead_letter_channel};
use reqwest_steady::{
    AutoKey, ConfigError, ReportSlot, RequestBuilderExt, RetryMiddleware, SteadyError, StopReason,
    ThrottleMiddleware,
};

use crate::support::directory::Directory;
use crate::support::hyper_server::HyperServer;
use crate::support::raw::{self, Then, direct, in_time, reported};
use crate::support::scripted::{Server, URL, respond};
use crate::support::stacks::{MS, fixed_budget, middleware, plain_client, retry_after};

fn quick() -> RetryMiddleware {
    retry_after(MS).build().unwrap()
}

/// A file of 100 bytes, with an old modification time.
fn hundred(directory: &Directory) -> PathBuf {
    let path = directory.file("data.bin");
    fs::write(&path, [7; 100]).unwrap();
    set_modified(&path, 1_000_000);
    path
}

fn set_modified(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

fn shrink(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(40).unwrap();
}

#[tokio::test]
async fn each_attempt_sends_the_whole_file_with_its_length() {
    let directory = Directory::new();
    let path = directory.file("data.bin");
    let content: Vec<u8> = (0..1_500_000_u32).map(|number| number as u8).collect();
    fs::write(&path, &content).unwrap();
    let server = raw::Server::start(|index| raw::respond([503, 503, 200][index], "")).await;
    let client = raw::client(direct(), raw::retry());
    let post = client.post(server.url()).idempotency_key("data-7");
    let (result, report) = reported(post.file(&path)).await;
    assert_eq!(result.unwrap().status(), 200);
    assert_eq!(report.waited(), 3 * MS);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert_eq!(request.header("content-length"), Some("1500000"));
        assert_eq!(request.header("transfer-encoding"), None);
        assert_eq!(request.header("idempotency-key"), Some("data-7"));
        assert!(request.body == content);
    }
}

#[tokio::test]
async fn an_empty_file_is_sent_with_length_0() {
    let directory = Directory::new();
    let path = directory.file("empty");
    fs::write(&path, "").unwrap();
    let server = raw::Server::start(|index| raw::respond([503, 200][index], "")).await;
    let client = raw::client(direct(), raw::retry());
    let (result, report) = reported(client.put(server.url()).file(&path)).await;
    assert_eq!(result.unwrap().status(), 200);
    assert_eq!(report.waited(), MS);
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.header("content-length"), Some("0"));
        assert!(request.body.is_empty());
    }
}

#[tokio::test]
async fn a_large_file_is_read_in_chunks() {
    let directory = Directory::new();
    let path = directory.file("large");
    File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let client = ClientBuilder::new(plain_client()).build();
    let mut request = client.put("http://localhost/").file(&path).build().unwrap();
    let mut chunks = request.body_mut().take().unwrap().into_data_stream();
    let mut total = 0;
    while let Some(chunk) = chunks.next().await {
        let length = chunk.unwrap().len();
        assert!(length <= 64 * 1024, "{length}");
        total += length;
    }
    assert_eq!(total, 64 << 20);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changed_between_attempts_ends_the_call() {
    type Change = fn(&Path);
    let changes: [(Change, &str); 6] = [
        (shrink, "shrank from 100 to 40 bytes between attempts"),
        (
            |path| fs::write(path, [7; 130]).unwrap(),
            "grew from 100 to 130 bytes between attempts",
        ),
        (
            |path| set_modified(path, 2_000_000),
            "was modified, with the same length of 100 bytes, between attempts",
        ),
        (
            |path| {
                let other = path.with_extension("new");
                fs::write(&other, [8; 100]).unwrap();
                fs::rename(other, path).unwrap();
            },
            "was modified, with the same length of 100 bytes, between attempts",
        ),
        (
            |path| fs::remove_file(path).unwrap(),
            "vanished between attempts",
        ),
        (
            |path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            },
            "cannot be opened again between attempts: not a regular file",
        ),
    ];
    for (change, text) in changes {
        let directory = Directory::new();
        let path = hundred(&directory);
        let changed = path.clone();
        // The file changes when the second attempt arrives, so the third is not sent.
        let server = Server::new(move |index| {
            if index == 1 {
                change(&changed);
            }
            respond(503)
        });
        let (budget, full) = fixed_budget();
        let (sink, mut letters) = dead_letter_channel(10);
        let retry = retry_after(MS)
            .budget(budget.clone())
            .dead_letter_sink(sink);
        let client = server.client(retry.build().unwrap());
        let slot = ReportSlot::new();
        let put = client.put(URL).file(&path).report_to(&slot);
        let error = put.send().await.unwrap_err();
        let name = path.display();
        assert_eq!(
            error.to_string(),
            format!(
                "not sent again to api.example.com: file {name} {text} (after attempt 2, 3 ms in all)"
            )
        );
        assert_eq!(server.gaps(), [MS]);
        let own = SteadyError::of(&error).unwrap();
        assert!(own.is_body() && !own.is_config() && !own.is_timeout());
        assert_eq!((own.attempts(), own.elapsed()), (2, 3 * MS));
        let report = slot.get().unwrap();
        assert_eq!(report.stop_reason(), StopReason::BodyNotReplayable);
        assert_eq!((report.attempts().count(), report.took()), (2, 3 * MS));
        assert_eq!(budget.balance(), full - 1.0, "the second retry is refunded");
        let letter = letters.try_recv().unwrap();
        assert_eq!(*letter.body(), LetterBody::NotReplayable);
        assert_eq!(letter.attempts().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_replaces_the_response_held_for_a_throttle() {
    let directory = Directory::new();
    let path = hundred(&directory);
    let changed = path.clone();
    let server = Server::new(move |_| {
        shrink(&changed);
        respond(503)
    });
    let throttle = ThrottleMiddleware::builder().build().unwrap();
    let chain: [Arc<dyn Middleware>; 2] = [Arc::new(quick()), Arc::new(throttle)];
    let client = server.client_behind(chain);
    let error = client.put(URL).file(&path).send().await.unwrap_err();
    assert!(SteadyError::of(&error).unwrap().is_body(), "{error}");
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_also_ends_the_outer_retry() {
    let directory = Directory::new();
    let path = hundred(&directory);
    let changed = path.clone();
    let server = Server::new(move |_| {
        shrink(&changed);
        respond(503)
    });
    let chain: [Arc<dyn Middleware>; 2] = [Arc::new(quick()), Arc::new(quick())];
    let client = server.client_behind(chain);
    let slot = ReportSlot::new();
    let put = client.put(URL).file(&path).report_to(&slot);
    let error = put.send().await.unwrap_err();
    let own = SteadyError::of(&error).unwrap();
    assert_eq!((own.is_body(), own.attempts()), (true, 1), "{error}");
    assert_eq!(slot.get().unwrap().attempts().count(), 1);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_opened_is_not_sent() {
    let directory = Directory::new();
    let server = Server::statuses([200]);
    let client = server.client(quick());
    for (path, text) in [
        (directory.file("missing"), "No such file"),
        (directory.path().to_owned(), "not a regular file"),
    ] {
        let error = client.put(URL).file(&path).send().await.unwrap_err();
        let own = SteadyError::of(&error).unwrap();
        assert_eq!((own.is_body(), own.attempts()), (true, 0));
        let begin = format!(
            "not sent to api.example.com: cannot open file {}: ",
            path.display()
        );
        let error = error.to_string();
        assert!(error.starts_with(&begin) && error.contains(text), "{error}");
    }
    // It changes after the request is made.
    let path = hundred(&directory);
    let put = client.put(URL).file(&path);
    shrink(&path);
    let error = put.send().await.unwrap_err().to_string();
    assert!(
        error.contains("shrank from 100 to 40 bytes before it was sent"),
        "{error}"
    );
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn without_a_retry_the_send_fails_with_the_io_error() {
    let server = raw::Server::start(|_| raw::respond(200, "")).await;
    let client = ClientBuilder::new(plain_client()).build();
    let put = client.put(server.url()).file("/no/such/file");
    let error = in_time(put.send()).await.unwrap_err();
    let reqwest_middleware::Error::Reqwest(error) = &error else {
        panic!("{error:?}")
    };
    let sources = std::iter::successors(error.source(), |&error| error.source());
    let mut io = sources.filter_map(|error| error.downcast_ref::<io::Error>());
    assert!(
        io.any(|error| error.kind() == io::ErrorKind::NotFound),
        "{error:?}"
    );
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_sent_is_not_retried() {
    let directory = Directory::new();
    let path = directory.file("data.bin");
    fs::write(&path, vec![7; 100]).unwrap();
    let server = raw::Server::start(|_| raw::respond(200, "")).await;
    let changed = path.clone();
    // After the checks of the retry, and before the file is read.
    let shrinks = middleware(move |request, extensions, next| {
        shrink(&changed);
        Box::pin(async move { next.run(request, extensions).await })
    });
    let client = ClientBuilder::new(direct().build().unwrap())
        .with(raw::retry().build().unwrap())
        .with(shrinks)
        .build();
    let (result, report) = reported(client.put(server.url()).file(&path)).await;
    let error = result.unwrap_err();
    assert!(SteadyError::of(&error).is_none());
    let shown = format!("{error:?}");
    assert!(
        shown.contains("shrank from 100 to 40 bytes while it was sent"),
        "{shown}"
    );
    assert!(shown.contains("UnexpectedEof"), "{shown}");
    assert_eq!(report.attempts().count(), 1);
    assert_eq!(report.stop_reason(), StopReason::NotRetryable);
    assert_eq!(server.count(), 0, "no complete request arrived");
}

#[tokio::test]
async fn what_is_appended_while_a_file_is_sent_is_left_out() {
    let directory = Directory::new();
    let path = directory.file("data.bin");
    fs::write(&path, vec![7; 300_000]).unwrap();
    let server = raw::Server::start(|_| raw::respond(200, "")).await;
    let changed = path.clone();
    let grows = middleware(move |request, extensions, next| {
        let mut file = File::options().append(true).open(&changed).unwrap();
        file.write_all(&[8; 100_000]).unwrap();
        Box::pin(async move { next.run(request, extensions).await })
    });
    let client = ClientBuilder::new(direct().build().unwrap())
        .with(raw::retry().build().unwrap())
        .with(grows)
        .build();
    let (result, _) = reported(client.put(server.url()).file(&path)).await;
    assert_eq!(result.unwrap().status(), 200);
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].header("content-length"), Some("300000"));
    assert!(requests[0].body == vec![7; 300_000]);
}

#[cfg(unix)]
#[tokio::test]
async fn what_is_no_regular_file_is_refused_at_once() {
    let directory = Directory::new();
    let pipe = directory.file("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let server = Server::statuses([200]);
    let client = server.client(quick());
    for (path, text) in [
        (pipe.clone(), "not a regular file"),
        ("/dev/zero".into(), "not a regular file"),
        (pipe.join("file"), "Not a directory"),
        ("a\0b".into(), "NUL byte"),
        ("".into(), "No such file"),
    ] {
        // Opening a pipe would wait for a writer.
        let error = in_time(client.put(URL).file(&path).send()).await;
        let error = error.unwrap_err();
        assert!(SteadyError::of(&error).unwrap().is_body());
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_length_of_another_body_is_refused() {
    let directory = Directory::new();
    let path = hundred(&directory);
    let server = raw::Server::start(|_| raw::respond(200, "")).await;
    let client = raw::client(direct(), raw::retry());
    let put = || client.put(server.url());
    for (put, text) in [
        (
            put().header("content-length", "99").file(&path),
            "file (100 bytes, Content-Length \"99\")",
        ),
        (
            put().header("content-length", "+100").file(&path),
            "file (100 bytes, Content-Length \"+100\")",
        ),
        (
            put().header("content-length", "4").body_with(|| "abc"),
            "body_with (3 bytes, Content-Length \"4\")",
        ),
    ] {
        let error = in_time(put.send()).await.unwrap_err();
        let invalid = SteadyError::of(&error).and_then(SteadyError::invalid);
        assert!(invalid.is_some_and(|error| error.is::<ConfigError>()));
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(server.count(), 0);
    for put in [
        put().header("content-length", "100").file(&path),
        put().header("content-length", "3").body_with(|| "abc"),
    ] {
        assert_eq!(in_time(put.send()).await.unwrap().status(), 200);
    }
}

#[cfg(feature = "multipart")]
#[tokio::test]
async fn the_length_of_a_form_is_not_that_of_a_file() {
    let directory = Directory::new();
    let path = hundred(&directory);
    let server = raw::Server::start(|_| raw::respond(200, "")).await;
    let client = raw::client(direct(), raw::retry());
    let form = || reqwest::multipart::Form::new().text("title", "Scan 7");
    let put = || client.put(server.url());
    for put in [
        put().multipart_with(form).file(&path),
        put().multipart(form()).file(&path),
        put().multipart(form()).body_with(|| "abc"),
    ] {
        let error = in_time(put.send()).await.unwrap_err().to_string();
        assert!(error.contains("Content-Length"), "{error}");
    }
    assert_eq!(server.count(), 0, "a part of the file would have arrived");
}

#[tokio::test]
async fn a_file_is_not_sent_to_another_url() {
    let directory = Directory::new();
    let path = hundred(&directory);
    let server = raw::Server::start(|_| {
        let head = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /other\r\n";
        raw::reply(format!("{head}content-length: 0\r\n\r\n"), Then::KeepOpen)
    })
    .await;
    let follows = reqwest::Client::builder().no_proxy();
    let client = raw::client(follows, raw::retry().client_follows_redirects(true));
    let (result, report) = reported(client.put(server.url()).file(&path)).await;
    assert_eq!(result.unwrap().status(), 307, "as reqwest does for streams");
    assert_eq!((server.count(), report.retries()), (1, 0));
}

#[tokio::test]
async fn files_are_sent_again_over_http_2() {
    let directory = Directory::new();
    let path = hundred(&directory);
    let received = Arc::new(Mutex::new(Vec::new()));
    let seen = received.clone();
    let server = HyperServer::start(Version::HTTP_2, move |request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let length = request.headers().get("content-length").cloned();
            let body = request.into_body().collect().await;
            let body = body.map(|body| body.to_bytes()).map_err(|_| "broken off");
            let mut seen = seen.lock().unwrap();
            seen.push((length.unwrap().to_str().unwrap().to_owned(), body));
            let response = Response::builder().status([503, 200, 200][seen.len() - 1]);
            response.body(String::new()).unwrap()
        }
    });
    let server = server.await;
    let client = raw::client(direct().http2_prior_knowledge(), raw::retry());
    let (result, report) = reported(client.put(&server.url).file(&path)).await;
    assert_eq!(result.unwrap().status(), 200);
    assert_eq!(report.waited(), MS);
    let whole = ("100".to_owned(), Ok(Bytes::from(vec![7; 100])));
    assert_eq!(*received.lock().unwrap(), vec![whole; 2]);

    // It shrinks after the checks of the retry.
    let changed = path.clone();
    let shrinks = middleware(move |request, extensions, next| {
        shrink(&changed);
        Box::pin(async move { next.run(request, extensions).await })
    });
    let client = ClientBuilder::new(direct().http2_prior_knowledge().build().unwrap())
        .with(raw::retry().build().unwrap())
        .with(shrinks)
        .build();
    let (result, report) = reported(client.put(&server.url).file(&path)).await;
    assert!(SteadyError::of(&result.unwrap_err()).is_none());
    assert_eq!(report.stop_reason(), StopReason::NotRetryable);
    assert_eq!(report.attempts().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_gets_a_random_key_but_none_from_its_content() {
    let directory = Directory::new();
    let path = hundred(&directory);
    for (auto, requests) in [(AutoKey::Random, 2), (AutoKey::Content, 1)] {
        let server = Server::statuses([503, 200]);
        let client = server.client(retry_after(MS).auto_key(auto).build().unwrap());
        client.post(URL).file(&path).send().await.unwrap();
        assert_eq!(
            (server.count(), server.gaps()),
            (requests, vec![MS; requests - 1])
        );
        let received = server.received();
        let keys: Vec<_> = received
            .iter()
            .map(|it| it.headers.get("idempotency-key"))
            .collect();
        assert!(
            keys.iter().all(|key| *key == keys[0]),
            "one key for all attempts"
        );
        assert_eq!(keys[0].is_some(), requests == 2);
    }
}

#[tokio::test(start_paused = true)]
async fn another_body_beside_a_file_is_refused() {
    let directory = Directory::new();
    let path = hundred(&directory);
    let server = Server::statuses([200]);
    let client = server.client(quick());
    let put = client.put(URL).file(&path);
    assert!(put.try_clone().is_none(), "like any stream");
    let error = put.body("other").send().await.unwrap_err().to_string();
    assert!(error.contains("file (replaced by another body)"), "{error}");
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_letter_keeps_a_small_file() {
    let directory = Directory::new();
    let path = hundred(&directory);
    for (limit, body) in [
        (100, LetterBody::Bytes(vec![7; 100].into())),
        (99, LetterBody::TooLarge(100)),
    ] {
        let server = raw::Server::start(|index| raw::respond([503, 503, 200][index], "")).await;
        let (sink, mut letters) = dead_letter_channel(10);
        let retry = raw::retry().max_retries(1).dead_letter_sink(sink);
        let client = raw::client(direct(), retry.dead_letter_max_body(limit));
        in_time(client.put(server.url()).file(&path).send())
            .await
            .unwrap();
        assert_eq!(server.count(), 2);
        let letter = letters.try_recv().unwrap();
        assert_eq!(*letter.body(), body);
        let replayed = in_time(letter.replay(&client).into_future()).await;
        if limit == 100 {
            assert_eq!(replayed.unwrap().status(), 200);
            let requests = server.requests();
            assert_eq!((requests.len(), requests[2].body.len()), (3, 100));
            assert_eq!(requests[2].header("content-length"), Some("100"));
        } else {
            replayed.unwrap_err();
            assert_eq!(server.count(), 2);
        }
    }
}
