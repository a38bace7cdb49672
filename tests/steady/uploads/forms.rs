//! Forms of `multipart_with`.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use reqwest::Body;
use reqwest::multipart::{Form, Part};
use reqwest_middleware::ClientBuilder;
use reqwest_steady::dead_letter::{LetterBody, dead_letter_channel};
use reqwest_steady::{AutoKey, CoalesceMiddleware, RequestBuilderExt, RetryReport, StopReason};

use crate::support::chains::link;
use crate::support::raw::{self, Request, direct, in_time, reported, respond};
use crate::support::scripted::{Reply, Server, URL};
use crate::support::stacks::{MS, fixed_budget, retry_after};

fn form() -> Form {
    let scan = Part::bytes(vec![7; 1000]).file_name("scan.png");
    Form::new().text("title", "Scan 7").part("scan", scan)
}

fn stream() -> Body {
    let chunks = ["one ", "two"].map(Ok::<_, std::io::Error>);
    Body::wrap_stream(futures_util::stream::iter(chunks))
}

/// The boundary in the header, if the body begins and ends with it.
fn boundary(content_type: &str, body: &[u8]) -> String {
    let prefix = "multipart/form-data; boundary=";
    let boundary = content_type.strip_prefix(prefix).unwrap();
    let body = String::from_utf8_lossy(body);
    assert!(body.contains(&format!("--{boundary}\r\n")), "{body}");
    assert!(body.contains(&format!("\r\n--{boundary}--\r\n")), "{body}");
    boundary.to_owned()
}

fn boundaries(requests: &[Request]) -> HashSet<String> {
    let boundaries = requests
        .iter()
        .map(|request| boundary(request.header("content-type").unwrap(), &request.body));
    boundaries.collect()
}

#[tokio::test]
async fn each_attempt_sends_a_form_with_its_own_boundary() {
    let server = raw::Server::start(|index| respond([503, 503, 200][index], "")).await;
    let client = raw::client(direct(), raw::retry());
    let post = client.post(server.url()).idempotency_key("scan-7");
    let (result, report) = reported(post.multipart_with(form)).await;
    assert_eq!(result.unwrap().status(), 200);
    assert_eq!(report.waited(), 3 * MS);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(boundaries(&requests).len(), 3, "all differ");
    for request in &requests {
        let length = request.body.len().to_string();
        assert_eq!(request.header("content-length"), Some(&*length));
        assert_eq!(request.header("transfer-encoding"), None);
        assert_eq!(request.header("idempotency-key"), Some("scan-7"));
        let lines = request.head.matches("content-type").count();
        assert_eq!(lines, 1, "{}", request.head);
        assert_eq!(request.body.len(), requests[0].body.len());
    }
}

#[tokio::test]
async fn the_first_attempt_is_that_of_reqwest() {
    let server = raw::Server::start(|_| respond(200, "")).await;
    let client = raw::client(direct(), raw::retry());
    let post = || client.post(server.url());
    in_time(post().multipart(form()).send()).await.unwrap();
    in_time(post().multipart_with(form).send()).await.unwrap();
    in_time(post().multipart(Form::new()).send()).await.unwrap();
    in_time(post().multipart_with(Form::new).send())
        .await
        .unwrap();
    let requests = server.requests();
    let shown = |request: &Request| {
        let content_type = request.header("content-type").unwrap();
        let boundary = content_type.split_once('=').unwrap().1;
        let text = request.head.clone() + &String::from_utf8_lossy(&request.body);
        text.replace(boundary, "BOUNDARY")
    };
    assert_eq!(requests.len(), 4);
    assert_eq!(shown(&requests[0]), shown(&requests[1]));
    assert_eq!(shown(&requests[2]), shown(&requests[3]));
}

#[tokio::test]
async fn parts_of_unknown_length_are_chunked() {
    let server = raw::Server::start(|index| respond([503, 200][index], "")).await;
    let client = raw::client(direct(), raw::retry());
    let put = client.put(server.url());
    let put = put.multipart_with(|| form().part("lines", Part::stream(stream())));
    let (result, report) = reported(put).await;
    assert_eq!(result.unwrap().status(), 200);
    assert_eq!(report.waited(), MS);
    let requests = server.requests();
    assert_eq!((requests.len(), boundaries(&requests).len()), (2, 2));
    for request in &requests {
        assert_eq!(request.header("content-length"), None);
        assert_eq!(request.header("transfer-encoding"), Some("chunked"));
        assert!(String::from_utf8_lossy(&request.body).contains("two"));
    }
}

#[tokio::test]
async fn forms_work_under_two_retries() {
    let server = raw::Server::start(|index| respond([503, 503, 503, 200][index], "")).await;
    let client = ClientBuilder::new(direct().build().unwrap())
        .with(raw::retry().max_retries(3).build().unwrap())
        .with(raw::retry().max_retries(1).build().unwrap())
        .build();
    let (result, report) = reported(client.put(server.url()).multipart_with(form)).await;
    assert_eq!(
        (result.unwrap().status().as_u16(), report.retries()),
        (200, 3)
    );
    let requests = server.requests();
    assert_eq!((requests.len(), boundaries(&requests).len()), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_made_once_and_content_makes_none() {
    for (auto, keys) in [(AutoKey::Random, Some(1)), (AutoKey::Content, None)] {
        let server = Server::statuses([503, 200]);
        let retry = retry_after(MS).auto_key(auto).build().unwrap();
        let client = server.client(retry);
        let response = client.post(URL).multipart_with(form).send().await.unwrap();
        let received = server.received();
        let sent = received
            .iter()
            .map(|it| it.headers.get("idempotency-key").cloned());
        let sent: HashSet<_> = sent.collect();
        match keys {
            Some(keys) => {
                assert_eq!((response.status().as_u16(), received.len()), (200, 2));
                assert_eq!(server.gaps(), [MS]);
                assert_eq!(sent.into_iter().flatten().count(), keys);
            }
            None => {
                assert_eq!((response.status().as_u16(), received.len()), (503, 1));
                assert_eq!(sent, HashSet::from([None]));
                let report = RetryReport::of(&response).unwrap();
                assert_eq!(report.stop_reason(), StopReason::NotIdempotent);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_body_beside_a_form_is_refused() {
    let server = Server::statuses([200]);
    let client = server.client(retry_after(MS).build().unwrap());
    let put = client.put(URL).multipart_with(form);
    assert!(put.try_clone().is_none(), "like any stream");
    let error = put.body("other").send().await.unwrap_err().to_string();
    assert!(
        error.contains("multipart_with (replaced by another body)"),
        "{error}"
    );
    assert_eq!(server.count(), 0);
    let invalid = client.put("not a url").multipart_with(form).send().await;
    assert!(invalid.unwrap_err().is_builder());
    // The form replaces an earlier body, even a stream.
    let put = client.put(URL).body(stream()).multipart_with(form);
    assert_eq!(put.send().await.unwrap().status(), 200);
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_form_of_reqwest_in_body_with_is_refused() {
    let server = Server::statuses([503, 200]);
    let client = server.client(retry_after(MS).build().unwrap());
    let first = form();
    let content_type = format!("multipart/form-data; boundary={}", first.boundary());
    let put = || client.put(URL).header("content-type", &content_type);
    for put in [
        put().body_with(|| Body::wrap_stream(form().into_stream())),
        client
            .put(URL)
            .multipart(Form::new().part("lines", Part::stream(stream())))
            .body_with(|| Body::wrap_stream(form().into_stream())),
    ] {
        let error = put.send().await.unwrap_err().to_string();
        assert!(error.contains("use `multipart_with`"), "{error}");
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn another_header_beside_a_form_is_refused() {
    let server = Server::statuses([503, 200]);
    let client = server.client(retry_after(MS).build().unwrap());
    let put = || client.put(URL);
    let unknown = || form().part("lines", Part::stream(stream()));
    for (put, name) in [
        (
            put()
                .multipart_with(form)
                .header("content-type", "multipart/form-data"),
            "content-type",
        ),
        (
            put().multipart_with(form).header("content-length", "7"),
            "content-length",
        ),
        // The form has no length that would replace it.
        (
            put().header("content-length", "7").multipart_with(unknown),
            "content-length",
        ),
    ] {
        let error = put.send().await.unwrap_err().to_string();
        let expected = format!("multipart_with (another {name} header) should be");
        assert!(error.contains(&expected), "{error}");
    }
    assert_eq!(server.count(), 0);
    // The form replaces what came before it.
    let put = put().header("content-type", "text/plain").multipart(form());
    let response = put.multipart_with(form).send().await.unwrap();
    assert_eq!((response.status().as_u16(), server.gaps()), (200, vec![MS]));
    let types = server.received().into_iter();
    let types: HashSet<_> = types
        .map(|it| it.headers.get_all("content-type").iter().count())
        .collect();
    assert_eq!(types, HashSet::from([1]));
}

#[tokio::test(start_paused = true)]
async fn a_function_that_panics_gives_its_retry_back() {
    let server = Server::statuses([503, 200]);
    let (budget, full) = fixed_budget();
    let client = server.client(retry_after(MS).budget(budget.clone()).build().unwrap());
    let count = AtomicUsize::new(0);
    let put = client.put(URL).multipart_with(move || {
        assert!(count.fetch_add(1, Ordering::SeqCst) == 0, "a second form");
        form()
    });
    let result = AssertUnwindSafe(put.send()).catch_unwind().await;
    assert!(result.is_err());
    assert_eq!((server.count(), budget.balance()), (1, full));
    assert_eq!(client.put(URL).send().await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn requests_with_forms_are_never_shared() {
    for method in ["PUT", "GET"] {
        let server = Server::new(|_| Reply::status(200).after(MS));
        let retry = retry_after(MS).build().unwrap();
        let chain = [link(CoalesceMiddleware::default()), link(retry)];
        let client = server.client_behind(chain);
        let call = || {
            let request = client.request(method.parse().unwrap(), URL);
            request.multipart_with(form).send()
        };
        let (first, second) = tokio::join!(call(), call());
        assert!(first.unwrap().status() == 200 && second.unwrap().status() == 200);
        assert_eq!(server.count(), 2, "{method}");
    }
}

#[tokio::test]
async fn a_letter_keeps_a_form_with_its_boundary() {
    let server = raw::Server::start(|index| respond([503, 503, 200][index], "")).await;
    let (sink, mut letters) = dead_letter_channel(10);
    let retry = raw::retry().max_retries(1).dead_letter_sink(sink);
    let client = raw::client(direct(), retry);
    let post = client.post(server.url()).idempotency_key("scan-7");
    in_time(post.multipart_with(form).send()).await.unwrap();
    assert_eq!(server.count(), 2);
    let letter = letters.try_recv().unwrap();
    let LetterBody::Bytes(bytes) = letter.body().clone() else {
        panic!("{letter:?}")
    };
    let response = in_time(letter.replay(&client).into_future()).await.unwrap();
    assert_eq!(response.status(), 200);
    let requests = server.requests();
    assert_eq!((requests.len(), boundaries(&requests).len()), (3, 3));
    assert_eq!(requests[2].body, bytes);
    assert_eq!(requests[2].header("idempotency-key"), Some("scan-7"));
    let length = bytes.len().to_string();
    assert_eq!(requests[2].header("content-length"), Some(&*length));
    assert_eq!(requests[2].head.matches("content-type").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_letter_leaves_out_forms_that_are_large_or_streams() {
    async fn kept(form: fn() -> Form) -> LetterBody {
        let server = Server::statuses([503]);
        let (sink, mut letters) = dead_letter_channel(10);
        let retry = retry_after(MS).max_retries(1).dead_letter_sink(sink);
        let client = server.client(retry.dead_letter_max_body(500).build().unwrap());
        client.put(URL).multipart_with(form).send().await.unwrap();
        assert_eq!(server.gaps(), [MS]);
        letters.try_recv().unwrap().body().clone()
    }
    assert!(matches!(kept(form).await, LetterBody::TooLarge(1000..)));
    let small: fn() -> Form = || Form::new().text("title", "Scan 7");
    assert!(matches!(kept(small).await, LetterBody::Bytes(_)));
    let unknown: fn() -> Form = || Form::new().part("lines", Part::stream(stream()));
    assert_eq!(kept(unknown).await, LetterBody::NotReplayable);
    let pending: fn() -> Form = || {
        let never = futures_util::stream::pending::<std::io::Result<&str>>();
        let part = Part::stream_with_length(Body::wrap_stream(never), 7);
        Form::new().part("lines", part)
    };
    assert_eq!(kept(pending).await, LetterBody::NotReplayable);
    let wrong: fn() -> Form = || Form::new().part("lines", Part::stream_with_length(stream(), 3));
    assert_eq!(kept(wrong).await, LetterBody::NotReplayable);
}
