//! Limits on all retries together: the budget, and the allowance of nested calls.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware};
use reqwest_steady::{
    Budget, Deposit, ReportSlot, RequestBuilderExt, RetryMiddleware, RetryReport, Scope, StopReason,
};
use tokio::time::Instant;
use tracing::Level;

use crate::support::log::Log;
use crate::support::raw::outcomes;
use crate::support::scripted::{Reply, Server, URL, dripping, late, respond, stacked};
use crate::support::stacks::{MS, SEC, doubling, retry_after, saved_budget};
use crate::support::trace::Trace;

/// Fed by requests, without a reserve.
fn tight(ratio: f64) -> Budget {
    Budget::builder()
        .retry_ratio(ratio)
        .min_retries_per_sec(0.0)
        .deposit_on(Deposit::Request)
        .build()
        .unwrap()
}

/// Four retries, 1 ms apart at first. Five calls pay for one retry.
fn tight_retry() -> RetryMiddleware {
    let retry = retry_after(MS).max_retries(4).budget(tight(0.2));
    retry.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_budget_bounds_the_retries_of_all_calls_together() {
    let server = Server::statuses([503]);
    let retry = tight_retry();
    let client = server.client(retry);
    for _ in 0..100 {
        client.get(URL).send().await.unwrap();
    }
    assert_eq!(server.count(), 120);
}

#[tokio::test(start_paused = true)]
async fn a_budget_shared_by_stacked_clients_is_one_budget() {
    let server = Server::statuses([503]);
    let retry = tight_retry();
    let client = stacked(retry.clone(), server.client(retry));
    for _ in 0..100 {
        client.get(URL).send().await.unwrap();
    }
    assert_eq!(server.count(), 120);
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_ends_the_call_with_the_real_response() {
    let server = Server::statuses([503]);
    let client = server.client(retry_after(MS).budget(tight(0.0)).build().unwrap());
    let started = Instant::now();
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(server.count(), 1);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::BudgetEmpty);
    assert_eq!(response.text().await.unwrap(), "body of 503");
}

#[tokio::test(start_paused = true)]
async fn retries_refused_for_other_reasons_cost_nothing() {
    // Of the reserve, the two failures of calls that could be retried take half a retry each.
    let reserve = Budget::builder().build().unwrap();
    for (budget, left) in [(saved_budget(20), 20.0), (reserve, 19.0)] {
        let retry = retry_after(MS).budget(budget.clone()).build().unwrap();
        let server = Server::statuses([503]);
        let client = server.client(retry);
        client.post(URL).send().await.unwrap();
        client.get(URL).no_retry().send().await.unwrap();
        assert_eq!(budget.balance(), 20.0);
        client.get(URL).deadline(MS).send().await.unwrap();
        let scope = Scope::new().max_retries(0);
        scope.run(client.get(URL).send()).await.unwrap();
        assert_eq!(server.count(), 4);
        assert_eq!(budget.balance(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_one_deposit_however_many_attempts_it_makes() {
    for (deposit_on, statuses, expected) in [
        (Deposit::Success, &[503, 503, 200][..], 1.0),
        (Deposit::Success, &[503, 404], 1.0),
        (Deposit::Success, &[501], 0.0),
        (Deposit::Success, &[503], 0.0),
        (Deposit::Request, &[503, 503, 200], 1.0),
        (Deposit::Request, &[503], 1.0),
    ] {
        let budget = Budget::builder()
            .retry_ratio(1.0)
            .min_retries_per_sec(0.0)
            .deposit_on(deposit_on)
            .build()
            .unwrap();
        (0..1000).for_each(|_| budget.deposit());
        let server = Server::statuses(statuses.iter().copied());
        let client = server.client(retry_after(MS).budget(budget.clone()).build().unwrap());
        client.get(URL).send().await.unwrap();
        let retries = (server.count() - 1) as f64;
        assert_eq!(
            budget.balance(),
            1000.0 + expected - retries,
            "{statuses:?}"
        );
    }
}

#[test]
fn invalid_host_budget_settings_are_refused_by_name() {
    let nonsense = Budget::builder().retry_ratio(-1.0);
    let refused = retry_after(MS)
        .budget_per_host(nonsense)
        .build()
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "retry_ratio (-1.0) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)"
    );
}

#[tokio::test(start_paused = true)]
async fn each_host_has_its_own_budget_unless_one_is_given() {
    let flood = |client: ClientWithMiddleware, url: &'static str| async move {
        let mut stop = None;
        for _ in 0..100 {
            let response = client.get(url).send().await.unwrap();
            stop = Some(RetryReport::of(&response).unwrap().stop_reason());
        }
        stop.unwrap()
    };
    let server = Server::statuses([503]);
    let client = server.client(retry_after(MS).build().unwrap());
    assert_eq!(
        flood(client.clone(), "http://a.example/").await,
        StopReason::BudgetEmpty
    );
    let count = server.count();
    for other in ["http://b.example/", "http://a.example:81/"] {
        let before = server.count();
        client.get(other).send().await.unwrap();
        assert_eq!(server.count() - before, 6, "{other}");
    }
    let before = server.count();
    client
        .get("http://a.example/another/path")
        .send()
        .await
        .unwrap();
    assert_eq!(server.count() - before, 1);
    assert!(count <= 120, "{count}");

    // Other settings for each host: a reserve of 3 retries.
    let small = Budget::builder().min_retries_per_sec(0.3).retry_ratio(0.0);
    let server = Server::statuses([503]);
    let client = server.client(retry_after(MS).budget_per_host(small).build().unwrap());
    for host in ["http://a.example/", "http://b.example/"] {
        let before = server.count();
        assert_eq!(flood(client.clone(), host).await, StopReason::BudgetEmpty);
        assert_eq!(server.count() - before, 103, "{host}");
    }

    let shared = Budget::builder().build().unwrap();
    let retry = retry_after(MS).budget(shared).build().unwrap();
    let one = Server::statuses([503]).client(retry.clone());
    let other = Server::statuses([503]).client(retry);
    assert_eq!(
        flood(one, "http://a.example/").await,
        StopReason::BudgetEmpty
    );
    let response = other.get("http://b.example/").send().await.unwrap();
    assert_eq!(
        RetryReport::of(&response).unwrap().stop_reason(),
        StopReason::BudgetEmpty
    );

    let client = Server::statuses([503])
        .client(retry_after(MS).budget(Budget::unlimited()).build().unwrap());
    assert_eq!(
        flood(client, "http://a.example/").await,
        StopReason::RetriesExhausted
    );
}

/// Lets all calls fail for 30 s, and returns the number of requests per call.
async fn blackout(calls_per_second: u32) -> f64 {
    let server = Server::new(|_| late(2 * MS, respond(503)));
    let client = server.client(RetryMiddleware::default());
    let mut calls = tokio::task::JoinSet::new();
    let mut beat = tokio::time::interval(SEC / calls_per_second);
    for _ in 0..30 * calls_per_second {
        beat.tick().await;
        calls.spawn(client.get(URL).send());
    }
    while let Some(call) = calls.join_next().await {
        assert_eq!(call.unwrap().unwrap().status(), 503);
    }
    server.count() as f64 / f64::from(30 * calls_per_second)
}

#[tokio::test(start_paused = true)]
async fn a_blackout_is_not_made_worse() {
    let busy = blackout(1000).await;
    assert!(busy <= 1.02, "{busy}");
    let small = blackout(5).await;
    assert!(small > 1.0 && small <= 1.5, "{small}");
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_point_refunds_unsent_retries() {
    // The success adds one retry, or what it may refill of the reserve.
    let reserve = || Budget::builder().retry_ratio(0.0).build().unwrap();
    refunds_unsent_retries(|| saved_budget(20), |_| 1.0).await;
    refunds_unsent_retries(reserve, |seconds| 2.0 * seconds).await;
}

/// Drops a call after each number of polls. `earned` is what a success adds to the budget after this many seconds.
async fn refunds_unsent_retries(budget: impl Fn() -> Budget, earned: impl Fn(f64) -> f64) {
    let mut finished = false;
    for polls in 0..1000 {
        let (budget, started) = (budget(), Instant::now());
        // A launch delay, attempts with a time limit, responses to drain, waits, and a body to read.
        let server = Server::new(|index| {
            let reply = match index {
                0..3 => dripping(503, usize::MAX),
                3 => dripping(503, 2),
                _ => dripping(200, 3),
            };
            late(3 * MS, reply)
        });
        let retry = retry_after(MS)
            .launch_spread(5 * MS)
            .attempt_timeout(SEC)
            .budget(budget.clone());
        let client = server.client(retry.build().unwrap());
        {
            let request = client.get(URL).buffer_response(1000);
            let mut call = pin!(request.send());
            let mut left = polls;
            finished = std::future::poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(false);
                }
                left -= 1;
                call.as_mut().poll(context).map(|_| true)
            })
            .await;
        }
        let sent = server.count().saturating_sub(1) as f64;
        let success = match finished {
            true => earned(started.elapsed().as_secs_f64()),
            false => 0.0,
        };
        let missing = 20.0 - sent + success - budget.balance();
        assert!(missing.abs() < 1e-6, "{missing} after {polls} polls");
        if finished {
            assert_eq!(server.count(), 5);
            assert!(polls > 20, "too few points: {polls}");
            break;
        }
    }
    assert!(finished);
}

#[tokio::test(start_paused = true)]
async fn nested_clients_add_up_instead_of_multiplying() {
    let server = Server::statuses([503]);
    let retry = || {
        retry_after(MS)
            .max_retries(3)
            .budget(Budget::unlimited())
            .build()
            .unwrap()
    };
    let slot = ReportSlot::new();
    let client = stacked(retry(), server.client(retry()));
    client.get(URL).report_to(&slot).send().await.unwrap();
    assert_eq!(server.count(), 4);
    assert_eq!(
        slot.get().unwrap().stop_reason(),
        StopReason::AllowanceSpent
    );
}

#[tokio::test(start_paused = true)]
async fn layers_add_up_inside_a_scope_too() {
    let server = Server::statuses([503]);
    let retry = || {
        retry_after(MS)
            .max_retries(3)
            .budget(Budget::unlimited())
            .build()
            .unwrap()
    };
    let client = stacked(retry(), stacked(retry(), server.client(retry())));
    client.get(URL).send().await.unwrap();
    assert_eq!(server.count(), 4);
    let scope = Scope::new().deadline(60 * SEC);
    scope.run(client.get(URL).send()).await.unwrap();
    assert_eq!(server.count(), 8);
    let scope = Scope::new().max_retries(2);
    scope.run(client.get(URL).send()).await.unwrap();
    assert_eq!(server.count(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_shared_budget_is_fed_once_inside_a_scope_too() {
    let server = Server::statuses([503]);
    let retry = tight_retry();
    let client = stacked(retry.clone(), server.client(retry));
    let scope = Scope::new();
    for _ in 0..100 {
        scope.run(client.get(URL).send()).await.unwrap();
    }
    assert_eq!(server.count(), 120);
}

#[tokio::test(start_paused = true)]
async fn a_nested_call_feeds_its_own_budget() {
    let budget = tight(1.0);
    let server = Server::statuses([200]);
    let inner = server.client(retry_after(MS).budget(budget.clone()).build().unwrap());
    stacked(retry_after(MS).build().unwrap(), inner)
        .get(URL)
        .send()
        .await
        .unwrap();
    assert_eq!(budget.balance(), 1.0);
}

#[tokio::test(start_paused = true)]
async fn calls_slower_than_the_ttl_feed_the_budget_as_well() {
    let budget = Budget::builder()
        .retry_ratio(1.0)
        .min_retries_per_sec(0.0)
        .build()
        .unwrap();
    let server = Server::new(|_| late(12 * SEC, respond(200)));
    let client = server.client(retry_after(MS).budget(budget.clone()).build().unwrap());
    for _ in 0..3 {
        client.get(URL).send().await.unwrap();
        assert_eq!(budget.balance(), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unsent_retry_costs_no_allowance() {
    let server = Server::statuses([503]);
    let slow = doubling(10 * SEC);
    let slow = RetryMiddleware::builder().backoff(slow).build().unwrap();
    let client = server.client(slow);
    let scope = Scope::new().max_retries(2);
    scope
        .run(async {
            // Dropped during their waits, and refused because the budget is empty.
            for _ in 0..5 {
                let call = tokio::time::timeout(SEC, client.get(URL).send());
                assert!(call.await.is_err());
                let poor = retry_after(MS).budget(tight(0.0)).build().unwrap();
                let response = server.client(poor).get(URL).send().await.unwrap();
                let report = RetryReport::of(&response).unwrap();
                assert_eq!(report.stop_reason(), StopReason::BudgetEmpty);
            }
            assert_eq!(server.count(), 10);
            let rich = server.client(retry_after(MS).budget(Budget::unlimited()).build().unwrap());
            rich.get(URL).send().await.unwrap();
            assert_eq!(server.count(), 13);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_in_debt_is_not_evicted_for_other_hosts() {
    let retry = retry_after(MS).build().unwrap();
    let dead = Server::statuses([503]);
    let client = dead.client(retry.clone());
    let crawler = Server::statuses([200]).client(retry);
    for round in 0..4 {
        for _ in 0..10 {
            client.get("http://dead.example/").send().await.unwrap();
        }
        for host in 0..9000 {
            let url = format!("http://{round}-{host}.example/");
            crawler.get(url).send().await.unwrap();
        }
    }
    // 40 calls, and 18 retries of a reserve of 20. The last failure of each call takes half a retry.
    assert_eq!(dead.count(), 58);
}

/// A call keeps its allowance when it wakes on another worker after its launch.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_allowance_stays_with_its_call_on_any_thread() {
    let server = Server::statuses([503]);
    let alone = Server::statuses([503]);
    let retry = |retries| {
        retry_after(MS)
            .max_retries(retries)
            .budget(Budget::unlimited())
    };
    let spread = retry(1).launch_spread(3 * MS).build().unwrap();
    let nested = stacked(spread, server.client(retry(5).build().unwrap()));
    let single = alone.client(retry(2).build().unwrap());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        calls.spawn(nested.get(URL).send());
        calls.spawn(single.get(URL).send());
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap().unwrap();
    }
    assert_eq!(server.count(), 200);
    assert_eq!(alone.count(), 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_scope_shared_by_tasks_with_own_scopes_is_never_overdrawn() {
    let server = Server::statuses([503]);
    let client = server.client(retry_after(MS).budget(Budget::unlimited()).build().unwrap());
    for round in 1..=50 {
        let scope = Scope::new().max_retries(7);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (scope, call) = (scope.clone(), client.get(URL).send());
            tasks.spawn(async move {
                let inner = Scope::new().max_retries(100);
                scope.run(inner.run(call)).await
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap().unwrap();
        }
        assert_eq!(server.count(), round * (4 + 7));
    }
}

#[tokio::test(start_paused = true)]
async fn the_outer_call_may_use_retries_that_the_inner_one_left() {
    // The inner client retries once; the outer one has the other two.
    let server = Server::statuses([503]);
    let inner = server.client(
        retry_after(MS)
            .max_retries(1)
            .budget(Budget::unlimited())
            .build()
            .unwrap(),
    );
    let client = stacked(
        retry_after(MS)
            .max_retries(3)
            .budget(Budget::unlimited())
            .build()
            .unwrap(),
        inner,
    );
    client.get(URL).send().await.unwrap();
    // Inner: 2 requests, a retry of the outer: 2 more with the last of three.
    assert_eq!(server.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_nested_call_respects_the_outer_deadline() {
    let server = Server::statuses([503]);
    let slow = doubling(2 * SEC);
    let inner = RetryMiddleware::builder().backoff(slow).deadline(60 * SEC);
    let inner = server.client(inner.build().unwrap());
    let client = stacked(retry_after(MS).deadline(SEC).build().unwrap(), inner);
    let started = Instant::now();
    // A wait of 2 s would pass the outer deadline, so it does not start. The response comes back
    // instead of a timeout.
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(started.elapsed() < SEC, "{:?}", started.elapsed());
    assert_eq!(server.count(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_scope_holds_for_several_requests() {
    let server = Server::statuses([503]);
    let client = server.client(retry_after(MS).budget(Budget::unlimited()).build().unwrap());
    let scope = Scope::new().max_retries(7);
    let stops = scope
        .run(async {
            let mut stops = Vec::new();
            for _ in 0..3 {
                let response = client.get(URL).send().await.unwrap();
                stops.push(RetryReport::of(&response).unwrap().stop_reason());
            }
            stops
        })
        .await;
    use StopReason::{AllowanceSpent, RetriesExhausted};
    assert_eq!(stops, [RetriesExhausted, AllowanceSpent, AllowanceSpent]);
    assert_eq!(server.count(), 3 + 7);

    let server = Server::new(|_| late(SEC, respond(200)));
    let client = server.client(RetryMiddleware::default());
    let scope = Scope::new().deadline(2500 * MS);
    let started = Instant::now();
    let results = scope
        .run(async {
            let mut results = Vec::new();
            for _ in 0..4 {
                results.push(client.get(URL).send().await.is_ok());
            }
            results
        })
        .await;
    assert_eq!(results, [true, true, false, false]);
    assert_eq!(started.elapsed(), 2500 * MS);
    assert_eq!(server.count(), 3);
    // The deadline counts from the first run.
    scope.run(client.get(URL).send()).await.unwrap_err();
    assert_eq!(server.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_nested_call_in_a_scope_respects_the_outer_deadline() {
    let server = Server::statuses([503]);
    let slow = doubling(2 * SEC);
    let inner = RetryMiddleware::builder().backoff(slow).deadline(60 * SEC);
    let inner = server.client(inner.build().unwrap());
    let client = stacked(retry_after(MS).deadline(SEC).build().unwrap(), inner);
    let scope = Scope::new();
    let response = scope.run(client.get(URL).send()).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(server.count(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_scope_deadline_also_limits_requests_without_retries() {
    let server = Server::new(|_| Reply::silence());
    let client = server.client(RetryMiddleware::default());
    let started = Instant::now();
    for request in [client.post(URL), client.get(URL).no_retry()] {
        let scope = Scope::new().deadline(SEC);
        scope.run(request.send()).await.unwrap_err();
    }
    assert_eq!(started.elapsed(), 2 * SEC);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_is_outside_the_scope_unless_it_carries_it() {
    let server = Server::statuses([503]);
    let client = server.client(retry_after(MS).budget(Budget::unlimited()).build().unwrap());
    let scope = Scope::new().max_retries(0);
    let (call, shared) = (client.clone(), scope.clone());
    scope
        .run(async {
            let alone = tokio::spawn(call.get(URL).send());
            alone.await.unwrap().unwrap();
        })
        .await;
    assert_eq!(server.count(), 6);
    let given = tokio::spawn(async move { shared.run(client.get(URL).send()).await });
    given.await.unwrap().unwrap();
    assert_eq!(server.count(), 7);
}

#[tokio::test(start_paused = true)]
async fn an_outer_call_without_retries_leaves_them_to_inner_calls() {
    let server = Server::statuses([503]);
    let inner = server.client(
        RetryMiddleware::builder()
            .backoff(doubling(MS).alone())
            .max_retries(3)
            .budget(Budget::unlimited())
            .build()
            .unwrap(),
    );
    let client = stacked(retry_after(MS).build().unwrap(), inner);
    client.get(URL).no_retry().send().await.unwrap();
    assert_eq!(server.count(), 4);
    let request = client.get(URL).no_retry().deadline(60 * SEC);
    request.send().await.unwrap();
    assert_eq!(server.count(), 8);
    // But its deadline limits them: the second wait would pass it, and does not start.
    let request = client.get(URL).no_retry().deadline(3 * MS);
    assert_eq!(request.send().await.unwrap().status(), 503);
    assert_eq!(server.count(), 10);
}

#[tokio::test(start_paused = true)]
async fn two_retries_in_one_chain_warn_once_and_share_retries() {
    let log = Log::default();
    let _guard = log.listen();
    let server = Server::statuses([503]);
    let retry = || {
        retry_after(MS)
            .max_retries(3)
            .budget(Budget::unlimited())
            .build()
            .unwrap()
    };
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(retry())
        .with(retry())
        .with_arc(server.clone())
        .build();
    for call in 1..=3 {
        client.get(URL).send().await.unwrap();
        assert_eq!(server.count(), 4 * call);
    }
    Scope::new().run(client.get(URL).send()).await.unwrap();
    assert_eq!(server.count(), 16);
    assert_eq!(log.count(), 1);
    let message = log.last();
    assert!(
        message.contains("two RetryMiddlewares in one chain"),
        "{message}"
    );

    // A client inside a client does not warn.
    let client = stacked(retry(), server.client(retry()));
    client.get(URL).send().await.unwrap();
    assert_eq!(log.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_in_two_chains_warns_where_it_is_the_outer_one() {
    let log = Log::default();
    let _guard = log.listen();
    let server = Server::statuses([503]);
    let shared = retry_after(MS)
        .max_retries(3)
        .budget(Budget::unlimited())
        .build()
        .unwrap();
    // The first chain has no other retry.
    server.client(shared.clone()).get(URL).send().await.unwrap();
    let inner = retry_after(MS)
        .max_retries(3)
        .budget(Budget::unlimited())
        .build()
        .unwrap();
    let chain: [Arc<dyn Middleware>; 2] = [Arc::new(shared), Arc::new(inner)];
    let client = server.client_behind(chain);
    for _ in 0..2 {
        client.get(URL).send().await.unwrap();
    }
    assert_eq!(log.count(), 1);
    assert!(log.last().contains("two RetryMiddlewares in one chain"));
}

/// The messages of all warnings about calls that ended.
fn endings(trace: &Trace) -> Vec<String> {
    let events = trace.events().into_iter();
    let ends = events
        .filter(|(level, _, fields)| *level == Level::WARN && fields.contains_key("stop_reason"));
    ends.map(|(_, message, _)| message).collect()
}

#[tokio::test(start_paused = true)]
async fn two_retries_in_one_chain_make_one_report() {
    for (outer, inner, requests) in [(0, 2, 3), (3, 0, 4), (3, 1, 4), (2, 5, 3), (5, 5, 6)] {
        for fails in [false, true] {
            let trace = Trace::default();
            let _listening = trace.listen();
            // While any scope exists, every call looks for one.
            let _scope = Scope::new().deadline(SEC);
            let server = Server::new(move |_| match fails {
                true => Reply::fail(io::ErrorKind::ConnectionReset),
                false => Reply::status(503),
            });
            let retry = |retries| {
                retry_after(MS)
                    .max_retries(retries)
                    .budget(Budget::unlimited())
                    .build()
                    .unwrap()
            };
            let client = ClientBuilder::new(reqwest::Client::new())
                .with(retry(outer))
                .with(retry(inner))
                .with_arc(server.clone())
                .build();
            let slot = ReportSlot::new();
            let result = client.get(URL).report_to(&slot).send().await;
            assert_eq!(server.count(), requests, "{outer} and {inner}");

            let report = slot.get().unwrap();
            assert_eq!(report.attempts().count(), requests, "{outer} and {inner}");
            let received = server.received();
            for (attempt, request) in report.attempts().zip(&received) {
                let sent_at = request.at - received[0].at;
                assert_eq!(attempt.sent_at(), sent_at, "{outer} and {inner}");
            }
            let last = received.last().unwrap().at - received[0].at;
            assert_eq!(report.waited(), last, "all the time between was waiting");
            assert_eq!(result.is_err(), fails);
            if let Ok(response) = result {
                assert_eq!(RetryReport::of(&response), Some(&report));
            }
            assert_eq!(endings(&trace).len(), 1, "{:?}", endings(&trace));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_retries_in_one_chain_report_a_success_as_it_was() {
    let server = Server::statuses([503, 503, 200]);
    let retry = |retries| {
        retry_after(MS)
            .max_retries(retries)
            .budget(Budget::unlimited())
            .build()
            .unwrap()
    };
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(retry(5))
        .with(retry(1))
        .with_arc(server.clone())
        .build();
    let response = client.get(URL).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(outcomes(report), ["503", "503", "200"]);
    assert_eq!(report.stop_reason(), StopReason::Succeeded);
}
