//! `Steady`: one call installs retry and throttle in the right order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::observe::{
    CallInfo, Event, EventKind, LoadChange, LogLevels, Observer, RetryScheduled, Stopped,
    ThrottleLoad,
};
use reqwest_steady::{
    ClientBuilderExt, CoalesceMiddleware, RetryMiddleware, RetryReport, Steady, StopReason,
    ThrottleMiddleware,
};
use tracing::level_filters::LevelFilter;

use crate::support::log::Log;
use crate::support::scripted::{Server, URL, late, respond};
use crate::support::stacks::{MS, SEC, constant};

fn client(server: &Arc<Server>, steady: Steady) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new())
        .with_steady(steady)
        .with_arc(server.clone())
        .build()
}

/// Keeps the events that a throttle reports for each attempt, and the retries.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<&'static str>>>);

impl Seen {
    fn add(&self, event: &Event<'_>) {
        let name = match event.kind {
            EventKind::ThrottleLoad(load) if load.change == LoadChange::Sent => "sent",
            EventKind::RetryScheduled(_) => "retry",
            EventKind::Stopped(_) => "stopped",
            _ => return,
        };
        self.push(name);
    }

    fn push(&self, name: &'static str) {
        self.0.lock().unwrap().push(name);
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_of_a_bundled_retry_passes_the_throttle() {
    let log = Log::default();
    let _guard = log.listen();
    let server = Server::statuses([503, 200]);
    let (seen, in_closure) = (Seen::default(), Seen::default());
    let observe = in_closure.clone();
    let steady = Steady::builder()
        .observe_fn(move |event| observe.add(event))
        .retry(RetryMiddleware::builder().backoff(constant(MS)));
    // The same observer twice: as a function and as an object.
    let steady = steady.observer(Forwarded(seen.clone())).build().unwrap();
    let response = client(&server, steady).get(URL).send().await.unwrap();

    assert_eq!(response.status(), 200);
    assert_eq!(server.count(), 2);
    assert_eq!(server.gaps(), [MS]);
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop_reason(), StopReason::Succeeded);
    let expected = ["sent", "retry", "sent", "stopped"];
    assert_eq!(in_closure.names(), expected);
    assert_eq!(seen.names(), expected);
    assert_eq!(log.count(), 0, "{}", log.last());
}

struct Forwarded(Seen);

impl Observer for Forwarded {
    fn throttle_load(&self, _: &CallInfo<'_>, load: &ThrottleLoad) {
        if load.change == LoadChange::Sent {
            self.0.push("sent");
        }
    }

    fn retry_scheduled(&self, _: &CallInfo<'_>, _: &RetryScheduled) {
        self.0.push("retry");
    }

    fn stopped(&self, _: &CallInfo<'_>, _: &Stopped) {
        self.0.push("stopped");
    }
}

#[tokio::test(start_paused = true)]
async fn the_default_bundle_retries_and_throttles() {
    let server = Server::new(|index| match index {
        0 => respond(429).header("retry-after", "2"),
        _ => respond(200),
    });
    let client = client(&server, Steady::default());
    // The second call has not failed. Only a throttle makes it wait for the pause, too.
    let second = async {
        tokio::time::sleep(100 * MS).await;
        client.get(URL).send().await
    };
    let (first, second) = tokio::join!(client.get(URL).send(), second);
    assert_eq!(first.unwrap().status(), 200);
    assert_eq!(second.unwrap().status(), 200);
    assert_eq!(server.count(), 3);
    let gaps = server.gaps();
    assert!(gaps[0] >= 2 * SEC && gaps[0] <= 4 * SEC, "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn the_time_limits_of_the_bundle_hold() {
    let server = Server::new(|_| late(60 * SEC, respond(200)));
    let steady = Steady::builder()
        .attempt_timeout(SEC)
        .deadline(3 * SEC)
        .max_retries(9);
    let start = tokio::time::Instant::now();
    let client = client(&server, steady.build().unwrap());
    client.get(URL).send().await.unwrap_err();
    assert!(start.elapsed() <= 3 * SEC, "{:?}", start.elapsed());
    assert!((2..=3).contains(&server.count()), "{}", server.count());
}

#[test]
fn settings_of_the_bundle_win_in_any_order() {
    let retry = || {
        RetryMiddleware::builder()
            .max_retries(1)
            .deadline(SEC)
            .attempt_timeout(SEC)
    };
    let levels = LogLevels::off().retry(LevelFilter::ERROR);
    let before = Steady::builder()
        .log_levels(levels)
        .max_retries(7)
        .deadline(70 * SEC)
        .attempt_timeout(7 * SEC)
        .fleet(FleetLimits::in_memory())
        .retry(retry());
    let after = Steady::builder()
        .retry(retry())
        .fleet(FleetLimits::in_memory())
        .attempt_timeout(7 * SEC)
        .deadline(70 * SEC)
        .log_levels(levels)
        .max_retries(7);
    for builder in [before, after] {
        let steady = builder.build().unwrap();
        assert_eq!(steady.retry().max_retries(), 7);
        assert_eq!(steady.retry().deadline(), Some(70 * SEC));
        assert_eq!(steady.retry().attempt_timeout(), Some(7 * SEC));
        assert!(steady.retry().fleet().is_some());
        assert!(steady.throttle().fleet().is_some());
        assert_eq!(steady.retry().log_levels(), levels);
        assert_eq!(steady.throttle().log_levels(), levels);
        assert!(steady.coalesce().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_bundle_coalesces_only_if_it_is_asked_to() {
    for (coalesce, arrivals) in [(None, 10), (Some(CoalesceMiddleware::builder()), 1)] {
        let log = Log::default();
        let _guard = log.listen();
        let server = Server::new(|_| late(SEC, respond(200)));
        let steady = match coalesce {
            None => Steady::builder(),
            Some(coalesce) => Steady::builder().coalesce(coalesce),
        };
        let client = client(&server, steady.build().unwrap());
        let calls = join_all((0..10).map(|_| client.get(URL).send())).await;
        assert!(calls.iter().all(Result::is_ok));
        assert_eq!(server.count(), arrivals);
        assert_eq!(log.count(), 0, "{}", log.last());
    }
}

#[test]
fn an_invalid_setting_of_a_bundle_is_named() {
    let zero = Duration::ZERO;
    for (builder, setting) in [
        (Steady::builder().deadline(zero), "retry.deadline"),
        (
            Steady::builder().attempt_timeout(zero),
            "retry.attempt_timeout",
        ),
        (
            Steady::builder().throttle(ThrottleMiddleware::builder().max_in_flight(0)),
            "throttle.max_in_flight",
        ),
        (
            Steady::builder().coalesce(CoalesceMiddleware::builder().leader_timeout(zero)),
            "coalesce.leader_timeout",
        ),
        (
            Steady::builder().deadline(SEC).attempt_timeout(2 * SEC),
            "retry.attempt_timeout",
        ),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.setting(), setting, "{error}");
        assert!(error.to_string().contains(error.value()), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_bundle_share_what_they_learn() {
    let steady = Steady::default();
    let host = "api.example.com";
    let full = steady.retry().budget_for(host).balance();
    let server = Server::statuses([503, 200]);
    client(&server, steady.clone())
        .get(URL)
        .send()
        .await
        .unwrap();
    assert_eq!(server.count(), 2);
    assert!(steady.retry().budget_for(host).balance() < full);
}
