//! Only an attempt's own throttle decides whether it was queued, sent or refused. Other throttles on the way do not
//! count. Each of these scenarios failed once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use http::Extensions;
use reqwest::Response;
use reqwest_middleware::{ClientWithMiddleware, Result};
use reqwest_steady::observe::Attempt;
use reqwest_steady::{
    Budget, CoalesceMiddleware, RequestBuilderExt, RetryMiddlewareBuilder, Scope, SteadyError,
    ThrottleMiddleware,
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::chains::{
    Greeting, Greets, Link, OwnExtensions, budget, chain, fails_once_then, link, retry,
    take_the_slot, throttle,
};
use crate::support::scripted::{Reply, Server, URL};
use crate::support::stacks::{MS, SEC, middleware};

const LONG: Duration = Duration::from_secs(600);

/// Another client, whose throttle has one slot that is taken forever from `at` on.
fn full_greeter(at: Duration, max_queue_wait: Duration) -> ClientWithMiddleware {
    let greeted = Server::new(move |index| match (index, at.is_zero()) {
        (0, false) => Reply::status(200),
        _ => Reply::silence(),
    });
    let throttle = throttle().max_in_flight(1).max_queue_wait(max_queue_wait);
    let greeter = greeted.client(throttle.build().unwrap());
    let holder = greeter.clone();
    tokio::spawn(async move {
        sleep(at).await;
        holder.get("http://other.example.com").send().await
    });
    greeter
}

fn full_greeter_now(max_queue_wait: Duration) -> ClientWithMiddleware {
    full_greeter(Duration::ZERO, max_queue_wait)
}

/// Another client, whose throttle lets everything through.
fn free_greeter() -> ClientWithMiddleware {
    let greeted = Server::statuses([200]);
    greeted.client(throttle().build().unwrap())
}

fn one_slot() -> Link {
    let throttle = throttle().max_in_flight(1);
    link(throttle.build().unwrap())
}

fn one_slot_without_queue() -> Link {
    let throttle = throttle().max_in_flight(1).max_queue(0);
    link(throttle.build().unwrap())
}

/// One request in 5 s.
fn slow() -> Link {
    link(throttle().rate(0.2, 1).build().unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_clock_runs_whatever_another_clients_throttle_does() {
    let wait = 500 * MS;
    for (name, greeter, greeting) in [
        (
            "the caller stops waiting for it",
            full_greeter_now(60 * SEC),
            Greeting::GetWithin(wait),
        ),
        ("it refuses", full_greeter_now(wait), Greeting::Get),
        (
            "it lets many calls through",
            free_greeter(),
            Greeting::GetOften,
        ),
        (
            "it waits beside the attempt",
            full_greeter_now(50 * SEC),
            Greeting::GetBeside,
        ),
    ] {
        sleep(MS).await;
        let server = Server::new(|_| Reply::silence());
        let retry = retry().max_retries(0).attempt_timeout(SEC);
        let client = chain(&server, retry, [link(Greets(greeter, greeting))]);
        let begun = Instant::now();
        let result = timeout(60 * SEC, client.get(URL).send()).await;
        assert!(result.is_ok(), "{name}: still running after 60 s");
        assert_eq!(begun.elapsed().as_secs(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_clock_stops_while_queued_even_if_another_call_is_sent() {
    let greeted = Server::new(|_| Reply::status(200).after(2 * SEC));
    let greeter = greeted.client(throttle().build().unwrap());
    let server = Server::new(|_| Reply::status(200));
    let retry = retry().max_retries(0).attempt_timeout(3 * SEC);
    let greets = Greets(greeter, Greeting::GetSoonAfter);
    let client = chain(&server, retry, [link(greets), slow()]);
    client.get(URL).send().await.unwrap();
    let begun = Instant::now();
    let result = client.get(URL).send().await;
    assert!(result.is_ok(), "{result:?} after {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn sent_retries_are_paid_after_waits_in_another_throttle() {
    // If every attempt is silent, the first one times out, so the permit of the second is in its handoff.
    type Script = fn() -> Arc<Server>;
    let silent: Script = || Server::new(|_| Reply::silence());
    let failing: Script = || fails_once_then(Reply::silence);
    for (full_at, script) in [(Duration::ZERO, failing), (500 * MS, silent)] {
        let (budget, full) = budget(LONG);
        let greeter = full_greeter(full_at, 500 * MS);
        if full_at.is_zero() {
            sleep(MS).await;
        }
        let server = script();
        let retry = retry().max_retries(1).attempt_timeout(SEC);
        let retry = retry.deadline(20 * SEC).budget(budget.clone());
        let client = chain(&server, retry, [link(Greets(greeter, Greeting::Get))]);
        let _ = timeout(60 * SEC, client.get(URL).send()).await;
        assert_eq!(server.count(), 2);
        // One retry, and half a retry for the last failure.
        assert_eq!(full - budget.balance(), 1.5);
    }
}

/// Makes a call whose retry finds the only slot of its own throttle taken. Another throttle let a greeting through.
async fn unsent_retry(own: Link, patience: Duration) -> (Option<Result<Response>>, usize, f64) {
    let (budget, full) = budget(LONG);
    let server = fails_once_then(Reply::silence);
    let retry = retry().max_retries(1).budget(budget.clone());
    let greets = Greets(free_greeter(), Greeting::Get);
    let client = chain(&server, retry, [link(greets), own]);
    let (result, ()) = tokio::join!(
        timeout(patience, client.get(URL).send()),
        take_the_slot(&client, 30 * SEC)
    );
    (result.ok(), server.count(), full - budget.balance())
}

#[tokio::test(start_paused = true)]
async fn a_refused_retry_is_refunded_despite_another_throttle() {
    let (result, sent, cost) = unsent_retry(one_slot_without_queue(), LONG).await;
    assert_eq!(result.unwrap().unwrap().status(), 500);
    assert_eq!((sent, cost), (2, 0.0));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_queued_retry_is_refunded_despite_another_throttle() {
    let (result, sent, cost) = unsent_retry(one_slot(), 10 * SEC).await;
    assert!(result.is_none());
    assert_eq!((sent, cost), (2, 0.0));
}

/// Whether an unrelated scope exists anywhere must make no difference.
/// Looks at the rest of the chain once, and then no more.
fn stalls() -> Link {
    link(middleware(|request, extensions, next| {
        Box::pin(async move {
            let mut rest = next.run(request, extensions);
            match (&mut rest).now_or_never() {
                Some(result) => result,
                None => {
                    sleep(LONG).await;
                    rest.await
                }
            }
        })
    }))
}

#[tokio::test(start_paused = true)]
async fn a_retry_still_queued_at_the_deadline_is_refunded() {
    let (budget, full) = budget(LONG);
    let server = fails_once_then(Reply::silence);
    let retry = retry().max_retries(1).budget(budget.clone());
    let client = chain(&server, retry, [stalls(), one_slot()]);
    let call = client.get(URL).deadline(3 * SEC).send();
    let begun = Instant::now();
    let (result, ()) = tokio::join!(call, take_the_slot(&client, 10 * SEC));
    let error = result.unwrap_err();
    assert!(SteadyError::of(&error).is_some_and(SteadyError::is_deadline));
    assert_eq!(begun.elapsed(), 10 * SEC + 500 * MS);
    assert_eq!(server.count(), 2, "the retry was sent");
    assert_eq!(full - budget.balance(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_scope_elsewhere_makes_no_difference() {
    let mut took = vec![];
    for with in [false, true] {
        let scope = with.then(Scope::new);
        let greeted = Server::statuses([200]);
        let greeter = chain(&greeted, retry().max_retries(0), [slow()]);
        let first = greeter.post("http://other.example.com").send().await;
        first.unwrap();
        let server = Server::statuses([200]);
        let retry = retry().max_retries(0).attempt_timeout(SEC);
        let client = chain(&server, retry, [link(Greets(greeter, Greeting::Post))]);
        let begun = Instant::now();
        let result = client.get(URL).send().await;
        took.push((begun.elapsed().as_secs(), result.is_ok()));
        drop(scope);
    }
    assert_eq!(took[0], took[1]);
}

/// Drops a call after its retry is sent. Returns what the outer of two retries paid.
async fn sent_and_dropped(inner: RetryMiddlewareBuilder, own_extensions: bool) -> f64 {
    let (budget, full) = budget(LONG);
    let server = fails_once_then(Reply::silence);
    let between = own_extensions.then(|| link(OwnExtensions { hands_back: true }));
    let inner = link(
        inner
            .max_retries(0)
            .budget(Budget::unlimited())
            .build()
            .unwrap(),
    );
    let inside = between
        .into_iter()
        .chain([inner, link(throttle().build().unwrap())]);
    let outer = retry().max_retries(1).budget(budget.clone());
    let client = chain(&server, outer, inside);
    let result = timeout(5 * SEC, client.get(URL).send()).await;
    assert!(result.is_err());
    assert_eq!(server.count(), 2);
    full - budget.balance()
}

#[tokio::test(start_paused = true)]
async fn the_outer_of_two_retries_has_paid_whatever_the_inner_is() {
    type Inner = fn() -> RetryMiddlewareBuilder;
    let with_timeout: Inner = || retry().attempt_timeout(60 * SEC);
    let with_deadline: Inner = || retry().deadline(60 * SEC);
    for (inner, own_extensions, with_scope) in [
        (with_timeout, false, false),
        (retry as Inner, false, false),
        (with_deadline, true, false),
        (with_deadline, false, false),
        (retry, false, true),
        (retry, true, true),
    ] {
        let scope = with_scope.then(Scope::new);
        assert_eq!(sent_and_dropped(inner(), own_extensions).await, 1.0);
        drop(scope);
    }
}

/// Responds itself when a throttle refuses.
fn fallback() -> Link {
    link(middleware(|request, extensions, next| {
        Box::pin(async move {
            match next.run(request, extensions).await {
                Err(error) if SteadyError::of(&error).is_some_and(SteadyError::is_throttled) => {
                    let cached = http::Response::builder().status(200);
                    Ok(cached.body("cached").unwrap().into())
                }
                result => result,
            }
        })
    }))
}

#[tokio::test(start_paused = true)]
async fn a_refusal_turned_into_a_response_is_refunded() {
    let (budget, full) = budget(LONG);
    let server = fails_once_then(Reply::silence);
    let retry = retry().max_retries(1).budget(budget.clone());
    let client = chain(&server, retry, [fallback(), one_slot_without_queue()]);
    let (first, ()) = tokio::join!(client.get(URL).send(), take_the_slot(&client, 30 * SEC));
    assert_eq!(first.unwrap().status(), 200);
    assert_eq!(server.count(), 2);
    assert_eq!(full - budget.balance(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn more_values_of_a_header_than_a_map_has_names_are_sent_again() {
    let server = Server::statuses([500, 200]);
    let client = server.client(retry().budget(Budget::unlimited()).build().unwrap());
    let mut request = client.get(URL).build().unwrap();
    for _ in 0..30_000 {
        let headers = request.headers_mut();
        headers.append("x-tag", "a".parse().unwrap());
    }
    let response = client.execute(request).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_carried_scope_begins_with_the_first_call() {
    use task_local_extensions::{Extensions as Storage, with_extensions};

    let slow = Server::new(|_| Reply::status(200).after(8 * SEC));
    let silent = Server::new(|_| Reply::silence());
    let coalesced = slow.client(CoalesceMiddleware::builder().build().unwrap());
    let retried = silent.client(retry().budget(Budget::unlimited()).build().unwrap());
    let scope = Scope::new().deadline(10 * SEC);
    let begun = Instant::now();
    with_extensions(Storage::new().with(scope.clone()), async {
        coalesced.get(URL).send().await.unwrap();
        retried.get(URL).send().await.unwrap_err();
    })
    .await;
    assert_eq!(begun.elapsed().as_secs(), 10);
}

/// Panics in the second attempt.
fn panics() -> Link {
    let attempts = AtomicUsize::new(0);
    link(middleware(move |request, extensions, next| {
        let panics = attempts.fetch_add(1, Ordering::Relaxed) == 1;
        Box::pin(async move {
            if panics {
                sleep(MS).await;
                panic!("on purpose");
            }
            next.run(request, extensions).await
        })
    }))
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_attempt_leaves_nothing_behind() {
    let (budget, full) = budget(LONG);
    let server = fails_once_then(|| Reply::status(200));
    let retry = retry().max_retries(1).attempt_timeout(SEC);
    let retry = retry.budget(budget.clone());
    let client = chain(&server, retry, [panics(), slow()]);
    let call = std::panic::AssertUnwindSafe(client.get(URL).send());
    assert!(call.catch_unwind().await.is_err());
    assert_eq!(full - budget.balance(), 0.0);
    let begun = Instant::now();
    client.get(URL).send().await.unwrap();
    assert!(begun.elapsed() > SEC);
}

/// The cost of an attempt that times out in the queue, is refused by its own throttle, or is sent.
#[tokio::test(start_paused = true)]
async fn an_attempt_costs_what_was_sent() {
    for (rate, deadline, sent, cost) in [(0.1, 5, 1, 0.0), (0.1, 30, 2, 1.0)] {
        let (budget, full) = budget(LONG);
        let server = fails_once_then(Reply::silence);
        let retry = retry().max_retries(1).attempt_timeout(SEC);
        let retry = retry.deadline(deadline * SEC).budget(budget.clone());
        let throttle = throttle().rate(rate, 1).build().unwrap();
        let client = chain(&server, retry, [link(throttle)]);
        let _ = client.get(URL).send().await;
        assert_eq!(server.count(), sent);
        assert_eq!(full - budget.balance(), cost);
    }
}

/// Also sends a copy of the request, drops it after 2 s, and returns the response to the original.
fn hedges() -> Link {
    link(middleware(|request, extensions, next| {
        Box::pin(async move {
            let (copy, mut own) = (request.try_clone().unwrap(), extensions.clone());
            let copy = timeout(2 * SEC, next.clone().run(copy, &mut own));
            tokio::join!(copy, next.run(request, extensions)).1
        })
    }))
}

#[tokio::test(start_paused = true)]
async fn the_clock_stops_while_one_of_two_copies_waits() {
    let server = Server::statuses([200]);
    let client = chain(
        &server,
        retry().max_retries(0).attempt_timeout(SEC),
        [hedges(), slow()],
    );
    let begun = Instant::now();
    // One copy is sent at once, and the other waits.
    client.get(URL).send().await.unwrap();
    // Both wait, and the one that is ahead is dropped.
    client.get(URL).send().await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 10);
}

/// Passes on empty extensions.
fn no_extensions() -> Link {
    link(middleware(|request, _, next| {
        Box::pin(async move { next.run(request, &mut Extensions::new()).await })
    }))
}

#[tokio::test(start_paused = true)]
async fn without_extensions_the_clock_runs_and_retries_are_paid() {
    let server = Server::statuses([200]);
    let limited = retry().max_retries(0).attempt_timeout(SEC);
    let client = chain(&server, limited, [no_extensions(), slow()]);
    client.get(URL).send().await.unwrap();
    let begun = Instant::now();
    let error = client.get(URL).send().await.unwrap_err();
    assert!(
        SteadyError::of(&error).is_some_and(SteadyError::is_timeout),
        "{error:?}"
    );
    assert_eq!(begun.elapsed().as_secs(), 1);

    let (budget, full) = budget(LONG);
    let server = fails_once_then(Reply::silence);
    let retry = retry().max_retries(1).budget(budget.clone());
    let client = chain(&server, retry, [no_extensions(), one_slot_without_queue()]);
    let (_, ()) = tokio::join!(client.get(URL).send(), take_the_slot(&client, 30 * SEC));
    assert_eq!(full - budget.balance(), 1.0);
}

/// Keeps a copy of all extensions.
fn keeps(kept: Arc<Mutex<Vec<Extensions>>>) -> Link {
    link(middleware(move |request, extensions, next| {
        kept.lock().unwrap().push(extensions.clone());
        next.run(request, extensions)
    }))
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_outlives_the_call_delays_no_refund() {
    let (budget, full) = budget(LONG);
    let server = fails_once_then(Reply::silence);
    let kept = Arc::new(Mutex::new(Vec::new()));
    let retry = retry().max_retries(1).budget(budget.clone());
    let client = chain(&server, retry, [keeps(kept.clone()), one_slot()]);
    let call = timeout(10 * SEC, client.get(URL).send());
    let (result, ()) = tokio::join!(call, take_the_slot(&client, 30 * SEC));
    assert!(result.is_err());
    assert_eq!(kept.lock().unwrap().len(), 3);
    assert_eq!(full - budget.balance(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_throttle_ignores_the_handoff_of_an_earlier_call() {
    let server = Server::statuses([500, 200]);
    let throttle = throttle().rate(0.2, 2).build().unwrap();
    let alone = server.client(throttle.clone());
    let retry = retry().retry_window(2 * SEC).attempt_timeout(60 * SEC);
    let client = chain(&server, retry, [link(throttle)]);
    let mut extensions = Extensions::new();
    for (client, seconds) in [(&client, 1), (&alone, 5)] {
        let begun = Instant::now();
        let request = client.get(URL).build().unwrap();
        let result = client.execute_with_extensions(request, &mut extensions);
        assert_eq!(result.await.unwrap().status(), 200);
        assert!(begun.elapsed().as_secs().abs_diff(seconds) <= 1);
    }
}

/// Calls another client first, with a copy of the extensions.
fn asks_with_copy(other: ClientWithMiddleware) -> Link {
    link(middleware(move |request, extensions, next| {
        let other = other.clone();
        Box::pin(async move {
            let token = other.get("http://other.example.com").build().unwrap();
            let mut copy = extensions.clone();
            let _ = other.execute_with_extensions(token, &mut copy).await;
            next.run(request, extensions).await
        })
    }))
}

#[tokio::test(start_paused = true)]
async fn a_pause_kept_by_another_clients_throttle_frees_no_retry() {
    for attempt_timeout in [None, Some(30 * SEC)] {
        let (budget, full) = budget(LONG);
        let refusing = Server::statuses([429]);
        let adaptive = ThrottleMiddleware::builder().seed(1).max_queue_wait(SEC);
        let other = refusing.client(adaptive.build().unwrap());
        let server = Server::statuses([500]);
        let mut retry = retry().max_retries(2).budget(budget.clone());
        if let Some(timeout) = attempt_timeout {
            retry = retry.attempt_timeout(timeout);
        }
        let client = chain(&server, retry, [asks_with_copy(other)]);
        let begun = Instant::now();
        client.get(URL).send().await.unwrap();
        // 1 s and 2 s of backoff.
        assert!(begun.elapsed() >= 3 * SEC, "{:?}", begun.elapsed());
        // Two retries, and half a retry for the last failure.
        assert_eq!((server.count(), full - budget.balance()), (3, 2.5));
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_call_of_a_client_is_like_the_others() {
    let (budget, full) = budget(LONG);
    let server = Server::statuses([429]);
    let copies = link(OwnExtensions { hands_back: false });
    let adaptive = link(ThrottleMiddleware::builder().seed(1).build().unwrap());
    let retry = retry().max_retries(1).budget(budget.clone());
    let client = chain(&server, retry, [copies, adaptive]);
    for calls in [1.0, 2.0, 3.0] {
        client.get(URL).send().await.unwrap();
        // One retry, and half a retry for the last failure.
        assert_eq!(full - budget.balance(), 1.5 * calls);
    }
}

/// Responds to the first attempt itself.
fn responds_to_first_attempt() -> Link {
    link(middleware(|request, extensions, next| {
        Box::pin(async move {
            if Attempt::of(extensions).number() == 1 && request.url().path() != "/other" {
                let response = http::Response::builder().status(502);
                return Ok(response.body("").unwrap().into());
            }
            next.run(request, extensions).await
        })
    }))
}

#[tokio::test(start_paused = true)]
async fn a_throttle_sends_no_retry_after_the_retry_window() {
    let server = Server::new(|_| Reply::status(200).after(20 * SEC));
    let retry = retry().max_retries(1).budget(Budget::unlimited());
    let retry = retry.retry_window(5 * SEC).deadline(100 * SEC);
    let client = chain(&server, retry, [responds_to_first_attempt(), one_slot()]);
    // The first call differs because it looks for another retry in the chain.
    take_the_slot(&client, 30 * SEC).await;
    tokio::join!(take_the_slot(&client, 30 * SEC), async {
        let error = client.get(URL).send().await.unwrap_err();
        assert!(
            SteadyError::of(&error).is_some_and(SteadyError::is_throttled),
            "{error:?}"
        );
    });
    assert_eq!(server.count(), 2);
}
