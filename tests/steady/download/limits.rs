//! What ends a download, or makes it wait: servers, budgets, deadlines and silence.

use reqwest_steady::{
    Budget, CoalesceMiddleware, RetryMiddlewareBuilder, StatusClass, ThrottleMiddleware,
};

use super::*;

fn retrying(
    server: &Arc<ScriptedServer>,
    set: impl FnOnce(RetryMiddlewareBuilder) -> RetryMiddlewareBuilder,
) -> ClientWithMiddleware {
    let retry = set(RetryMiddleware::builder()).build().unwrap();
    server.client(retry)
}

/// The first body breaks off after 100 bytes, and this is the response to requests for the rest.
fn broken(rest: impl Fn() -> Reply + Send + Sync + 'static) -> Arc<ScriptedServer> {
    let file = Hosted::new(bytes(300));
    serve(move |index, request| match index {
        0 => file.reply(request, 100, Then::Fail),
        _ => rest(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_come_back_much_later_is_left_alone() {
    let busy = || broken(|| Reply::status(503).header("retry-after", "3600"));
    for with_retry in [true, false] {
        let server = busy();
        let client = match with_retry {
            true => server.client(RetryMiddleware::default()),
            false => bare(&server),
        };
        let start = Instant::now();
        let (_, text, error) = failed(client.get(URL).download().backoff(exact())).await;
        assert_eq!((server.count(), start.elapsed()), (2, SEC), "{text}");
        let status = DownloadError::of(&error).unwrap().status();
        assert_eq!(status.map(|status| status.as_u16()), Some(503));
    }
}

#[tokio::test(start_paused = true)]
async fn the_rest_is_never_asked_for_sooner_than_the_server_says() {
    for with_retry in [true, false] {
        let file = Hosted::new(bytes(300));
        let hosted = file.clone();
        let server = serve(move |index, request| match index {
            0 => hosted.reply(request, 100, Then::Fail),
            1 | 2 => Reply::status(429).header("retry-after", "20"),
            _ => hosted.reply(request, 300, Then::End),
        });
        let client = match with_retry {
            // It gives up at once, and its last response has the hint.
            true => retrying(&server, |retry| retry.max_retries(0)),
            false => bare(&server),
        };
        let mut download = client.get(URL).download().backoff(exact()).await.unwrap();
        assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
        let gaps = server.gaps();
        assert_eq!((gaps.len(), gaps[0]), (3, SEC));
        for gap in &gaps[1..] {
            assert!((20 * SEC..=21 * SEC).contains(gap), "{gap:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_veto_of_the_server_ends_a_download() {
    let veto = || broken(|| Reply::status(503).header("x-should-retry", "false"));
    for with_retry in [true, false] {
        let server = veto();
        let client = match with_retry {
            true => server.client(RetryMiddleware::default()),
            false => bare(&server),
        };
        let (_, text, _) = failed(client.get(URL).download().backoff(exact())).await;
        assert_eq!(server.count(), 2, "{text}");
        assert!(text.contains("status 503"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_retry_budget_ends_a_download() {
    let empty = || Budget::builder().min_retries_per_sec(0.0).retry_ratio(0.0);
    for fails in [true, false] {
        let server = broken(move || match fails {
            true => Reply::fail(ErrorKind::ConnectionReset),
            false => Reply::status(503),
        });
        let budget = empty().build().unwrap();
        let client = retrying(&server, |retry| retry.budget(budget));
        let download = client.get(URL).download().backoff(exact());
        let (received, error) = read(&mut download.await.unwrap()).await.unwrap_err();
        assert_eq!((received.len(), server.count()), (100, 2), "{error:?}");
        // The error of a request is returned unchanged.
        assert_eq!(DownloadError::of(&error).is_none(), fails, "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_client_calls_final_ends_a_download() {
    let server = broken(|| Reply::status(503));
    let client = retrying(&server, |retry| {
        retry.status(503.try_into().unwrap(), StatusClass::Never)
    });
    let (_, text, _) = failed(client.get(URL).download().backoff(exact())).await;
    assert_eq!(server.count(), 2, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_throttle_that_refuses_the_rest_ends_a_download() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 100, Then::Fail));
    let throttle = ThrottleMiddleware::builder()
        .adaptive(false)
        .rate(0.001, 1)
        .max_queue_wait(SEC)
        .build()
        .unwrap();
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(RetryMiddleware::default())
        .with(throttle)
        .with_arc(server.clone())
        .build();
    let mut download = client.get(URL).download().backoff(exact()).await.unwrap();
    let (received, error) = read(&mut download).await.unwrap_err();
    assert_eq!((received.len(), server.count()), (100, 1));
    assert!(
        SteadyError::of(&error).is_some_and(SteadyError::is_throttled),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_cannot_block_a_download_without_retry() {
    let server = broken(Reply::silence);
    let start = Instant::now();
    let download = bare(&server).get(URL).download().backoff(exact());
    let (received, text, _) = failed(download.stall_timeout(20 * SEC)).await;
    assert_eq!((received, server.count()), (100, 6), "{text}");
    assert_eq!(start.elapsed(), (1 + 2 + 4 + 8 + 10 + 5 * 20) * SEC);
    assert!(text.contains("no resumes are left"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_attempt_timeout_of_a_request_holds_for_the_rest() {
    for with_retry in [true, false] {
        let server = broken(Reply::silence);
        let client = match with_retry {
            true => server.client(RetryMiddleware::builder().max_retries(0).build().unwrap()),
            false => bare(&server),
        };
        let start = Instant::now();
        let request = client.get(URL).attempt_timeout(3 * SEC).download();
        let (_, text, _) = failed(request.backoff(exact()).max_resumes(2)).await;
        assert_eq!(server.count(), 3, "{text}");
        assert_eq!(start.elapsed(), (1 + 3 + 2 + 3) * SEC);
    }
}

#[tokio::test(start_paused = true)]
async fn the_attempt_timeout_of_a_client_holds_for_the_rest() {
    // It may be shorter or longer than the stall timeout.
    for (timeout, stall) in [(3, 30), (30, 3)] {
        let server = broken(Reply::silence);
        let client = retrying(&server, |retry| {
            retry.max_retries(0).attempt_timeout(timeout * SEC)
        });
        let start = Instant::now();
        let request = client.get(URL).download().backoff(exact());
        let request = request.max_resumes(1).stall_timeout(stall * SEC);
        let (_, text, _) = failed(request).await;
        assert_eq!(server.count(), 2, "{text}");
        assert_eq!(start.elapsed(), (1 + timeout) * SEC);
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_deadline_shows_the_limit_that_was_set() {
    for with_retry in [true, false] {
        let server = broken(Reply::silence);
        let client = match with_retry {
            true => server.client(RetryMiddleware::default()),
            false => bare(&server),
        };
        let request = client.get(URL).deadline(9 * SEC).download();
        let mut download = request.backoff(exact()).await.unwrap();
        let (_, error) = read(&mut download).await.unwrap_err();
        let error = SteadyError::of(&error).expect("the deadline");
        assert!(error.is_deadline());
        assert_eq!(error.time_limit(), Some(9 * SEC), "{error}");
        assert_eq!((error.elapsed(), error.attempts()), (9 * SEC, 2), "{error}");
        assert_eq!(error.host(), "files.example");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_the_machine_oversleeps_ends_at_the_deadline() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 100, Then::Fail));
    let request = server.client(RetryMiddleware::default()).get(URL);
    let request = request.deadline(9 * SEC).download().backoff(exact());
    let mut download = request.await.unwrap();
    let reading = read(&mut download);
    let mut reading = std::pin::pin!(reading);
    assert!(futures_util::poll!(reading.as_mut()).is_pending());
    tokio::time::advance(20 * SEC).await;
    let (_, error) = reading.await.unwrap_err();
    let error = SteadyError::of(&error).expect("the deadline");
    assert!(error.is_deadline(), "{error}");
    assert_eq!(error.time_limit(), Some(9 * SEC), "{error}");
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_scope_around_the_reading_ends_a_request_that_runs() {
    for with_retry in [true, false] {
        let server = broken(Reply::silence);
        let client = match with_retry {
            true => server.client(RetryMiddleware::default()),
            false => bare(&server),
        };
        let mut download = client.get(URL).download().backoff(exact()).await.unwrap();
        // The request for the rest begins outside the scope, and is read on within it.
        let outside = tokio::time::timeout(2 * SEC, read(&mut download)).await;
        assert!(outside.is_err() && server.count() == 2);
        let start = Instant::now();
        let scope = Scope::new().deadline(3 * SEC);
        let (_, error) = scope.run(read(&mut download)).await.unwrap_err();
        assert!(
            SteadyError::of(&error).is_some_and(SteadyError::is_deadline),
            "{error:?}"
        );
        assert_eq!((start.elapsed(), server.count()), (3 * SEC, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_scope_around_the_start_holds_for_the_reading() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 10, Then::Stall));
    let scope = Scope::new().deadline(45 * SEC);
    let start = Instant::now();
    let mut download = scope.run(download(&server).into_future()).await.unwrap();
    let (_, error) = read(&mut download).await.unwrap_err();
    let error = SteadyError::of(&error).expect("the deadline");
    assert!(error.is_deadline(), "{error}");
    assert_eq!((start.elapsed(), server.count()), (45 * SEC, 2));
}

#[tokio::test(start_paused = true)]
async fn retries_of_the_rest_know_the_time_that_is_left() {
    let server = broken(|| Reply::status(503));
    let waits = Backoff::exponential(4 * SEC).jitter(Jitter::None);
    let client = retrying(&server, |retry| retry.backoff(waits));
    let start = Instant::now();
    let request = client.get(URL).deadline(9 * SEC).download();
    let (_, text, _) = failed(request.backoff(exact())).await;
    // At 1 s and 5 s. A retry at 13 s is too late, and a resume at 7 s is not.
    assert_eq!((server.count(), start.elapsed()), (4, 7 * SEC), "{text}");
    assert!(text.contains("its deadline is too close"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_not_a_silent_one() {
    let server = serve(|_, _| {
        let drops = futures_util::stream::unfold(5, |left: u32| async move {
            tokio::time::sleep(20 * SEC).await;
            Some((Ok::<_, std::io::Error>("drop"), left.checked_sub(1)?))
        });
        Reply::status(200).body(reqwest::Body::wrap_stream(drops))
    });
    let start = Instant::now();
    let mut download = download(&server).await.unwrap();
    assert_eq!(read(&mut download).await.unwrap().len(), 20);
    assert_eq!((server.count(), start.elapsed()), (1, 120 * SEC));
}

#[tokio::test(start_paused = true)]
async fn one_byte_per_connection_ends_only_with_the_file() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 1, Then::Fail));
    let mut download = download(&server).max_resumes(1).await.unwrap();
    assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
    assert_eq!((server.count(), download.resumes()), (300, 299));
    // Progress also brings the wait back to the first one.
    assert!(server.gaps().iter().all(|gap| *gap == SEC));
}

#[tokio::test(start_paused = true)]
async fn one_byte_per_connection_ends_at_the_deadline() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 1, Then::Fail));
    let client = server.client(RetryMiddleware::default());
    let request = client.get(URL).deadline(10 * SEC).download();
    let start = Instant::now();
    let (received, text, _) = failed(request.backoff(exact())).await;
    assert_eq!((received, server.count()), (10, 10), "{text}");
    assert_eq!(start.elapsed(), 9 * SEC);
}

#[tokio::test(start_paused = true)]
async fn downloads_that_are_coalesced_go_on() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 100, Then::Fail).after(SEC));
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(CoalesceMiddleware::default())
        .with(RetryMiddleware::default())
        .with_arc(server.clone())
        .build();
    let whole = || async {
        let mut download = client.get(URL).download().backoff(exact()).await.unwrap();
        assert_eq!(download.length(), Some(300));
        assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
        assert_eq!(download.resumes(), 2);
    };
    tokio::join!(whole(), whole());
    assert!(server.count() <= 6, "{}", server.count());
}

#[tokio::test(start_paused = true)]
async fn a_download_is_not_buffered() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 100, Then::Fail));
    let request = request(&server).buffer_response(1000).download();
    let mut download = request.backoff(exact()).await.unwrap();
    assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
    assert_eq!((server.count(), download.resumes()), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_report_is_that_of_the_first_request() {
    let server = broken(|| Reply::status(403));
    let slot = reqwest_steady::ReportSlot::new();
    let request = request(&server).report_to(&slot).download();
    failed(request.backoff(exact())).await;
    assert_eq!(server.count(), 2);
    let report = slot.get().unwrap();
    assert_eq!(report.stop_reason(), reqwest_steady::StopReason::Succeeded);
}
