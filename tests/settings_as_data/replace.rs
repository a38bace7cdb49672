//! Settings that are exchanged while a client runs.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::settings::{CoalesceSettings, KeyChoice, RateLimit};
use reqwest_steady::testing::{Reply, ScriptedServer};
use reqwest_steady::{
    Backoff, Budget, ClientBuilderExt, Deposit, KeyBy, RetryMiddleware, RetryReport, Steady,
    SteadySettings, StopReason, ThrottleMiddleware,
};
use tokio::time::{Instant, sleep};

use crate::files::read_toml;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const URL: &str = "http://api.example.com/orders";

pub(crate) fn client(steady: &Steady, server: &Arc<ScriptedServer>) -> ClientWithMiddleware {
    let builder = ClientBuilder::new(reqwest::Client::new()).with_steady(steady.clone());
    builder.with_arc(server.clone()).build()
}

pub(crate) fn change(steady: &Steady, change: impl FnOnce(&mut SteadySettings)) {
    let mut settings = steady.settings();
    change(&mut settings);
    steady.replace(&settings).unwrap();
    assert_eq!(steady.settings(), settings);
}

#[tokio::test(start_paused = true)]
async fn new_calls_of_a_running_client_use_new_settings() {
    let server = ScriptedServer::statuses([500]);
    let steady = Steady::default();
    let client = client(&steady, &server);
    change(&steady, |settings| settings.retry.max_retries = 1);
    assert_eq!(client.get(URL).send().await.unwrap().status(), 500);
    assert_eq!(server.count(), 2);
    change(&steady, |settings| settings.retry.max_retries = 2);
    assert_eq!(client.get(URL).send().await.unwrap().status(), 500);
    assert_eq!(server.count(), 2 + 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_keeps_its_settings() {
    let server = ScriptedServer::statuses([500]);
    let mut settings = SteadySettings::default();
    settings.retry.attempt_header = Some("X-Old".to_owned());
    settings.retry.max_retries = 3;
    let steady = Steady::from_settings(&settings).unwrap();
    let client = client(&steady, &server);
    let call = tokio::spawn(client.get(URL).send());
    while server.count() == 0 {
        sleep(MS).await;
    }
    change(&steady, |settings| {
        settings.retry.attempt_header = Some("X-New".to_owned());
        settings.retry.max_retries = 0;
    });
    let response = call.await.unwrap().unwrap();
    assert_eq!(RetryReport::of(&response).unwrap().retries(), 3);
    let received = server.received();
    assert!(received.iter().all(|it| it.headers.contains_key("x-old")));
    assert_eq!(received.len(), 4);
    client.get(URL).send().await.unwrap();
    let last = server.received().pop().unwrap();
    assert!(last.headers.contains_key("x-new"));
    assert_eq!(server.count(), 5);
}

#[tokio::test]
async fn no_call_sees_half_of_each_settings() {
    // Two settings that belong together: the header names the number of retries.
    let pair = |retries: u32| {
        let mut settings = SteadySettings::default();
        settings.retry.max_retries = retries;
        settings.retry.attempt_header = Some(format!("X-Of-{retries}"));
        settings.retry.backoff = Backoff::exponential(MS / 100).cap(MS / 10);
        settings.retry.budget_per_host.min_retries_per_sec = 1e6;
        settings.throttle.adaptive = false;
        settings.throttle.max_queue_wait = 60 * SEC;
        settings.throttle.max_in_flight = 1 + retries;
        settings
    };
    let pairs = [1, 2].map(pair);
    let server = ScriptedServer::statuses([500]);
    let steady = Steady::from_settings(&pairs[0]).unwrap();
    let client = client(&steady, &server);
    let done = Arc::new(AtomicBool::new(false));
    let exchange = {
        let (steady, done, pairs) = (steady.clone(), done.clone(), pairs.clone());
        std::thread::spawn(move || {
            let mut exchanges = 0_u64;
            while !done.load(Ordering::Relaxed) {
                steady.replace(&pairs[exchanges as usize % 2]).unwrap();
                exchanges += 1;
                // Every second exchange fails, and changes nothing.
                let mut broken = pairs[0].clone();
                broken.throttle.max_in_flight = 0;
                steady.replace(&broken).unwrap_err();
            }
            exchanges
        })
    };
    // In turns, so that the settings are replaced between them.
    let mut reports: Vec<RetryReport> = Vec::new();
    let has_both = |reports: &[RetryReport]| {
        [1, 2]
            .iter()
            .all(|retries| reports.iter().any(|it| it.retries() == *retries))
    };
    while reports.len() < 2000 || (!has_both(&reports) && reports.len() < 100_000) {
        let calls = (reports.len()..reports.len() + 100).map(|number| {
            let request = client.get(format!("http://api.example.com/{number}"));
            async move {
                let response = request.send().await.expect("no call is lost");
                assert_eq!(response.status(), 500);
                RetryReport::of(&response).unwrap().clone()
            }
        });
        reports.extend(join_all(calls).await);
        std::thread::yield_now();
    }
    done.store(true, Ordering::Relaxed);
    assert!(exchange.join().unwrap() > 1);
    let mut requests: HashMap<String, Vec<_>> = HashMap::new();
    for request in server.received() {
        let path = request.url.path().to_owned();
        requests.entry(path).or_default().push(request);
    }
    let mut seen = [0; 2];
    for (number, report) in reports.iter().enumerate() {
        let requests = &requests[&format!("/{number}")];
        assert_eq!(requests.len() as u32, 1 + report.retries());
        let names = requests.iter().flat_map(|it| it.headers.keys().cloned());
        let mut names: Vec<_> = names.collect();
        names.retain(|name| name.as_str().starts_with("x-of-"));
        names.dedup();
        let name = format!("x-of-{}", report.retries());
        assert_eq!(names, [name.as_str()], "call {number}");
        assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
        seen[report.retries() as usize - 1] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "both were in use: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_broken_file_changes_nothing_even_a_thousand_times() {
    let server = ScriptedServer::statuses([500]);
    let steady = Steady::default();
    let client = client(&steady, &server);
    change(&steady, |settings| settings.retry.max_retries = 1);
    let before = steady.settings();
    for round in 0..1000_u32 {
        // Each breaks another middleware, the last one after the others were fine.
        let text = match round % 4 {
            0 => "retry.backoff.multiplier = 0.5",
            1 => "throttle.max_in_flight = 0\nretry.max_retries = 9",
            2 => "retry.max_retry = 3",
            _ => "retry.max_retries = 9\n[coalesce]",
        };
        let refused = match read_toml(text) {
            Ok(settings) => steady.replace(&settings).unwrap_err().to_string(),
            Err(message) => message,
        };
        assert!(!refused.is_empty());
        assert_eq!(steady.settings(), before);
    }
    client.get(URL).send().await.unwrap();
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_change_is_named() {
    let key_by = ThrottleMiddleware::builder().key_by(KeyBy::from_fn(|_| "all".to_owned()));
    let fleet = reqwest_steady::fleet::FleetLimits::in_memory();
    let steady = Steady::builder()
        .throttle(key_by)
        .fleet(fleet)
        .build()
        .unwrap();
    let refused = |change: fn(&mut SteadySettings)| {
        let mut settings = steady.settings();
        change(&mut settings);
        let message = steady.replace(&settings).unwrap_err().to_string();
        assert_ne!(steady.settings(), settings);
        message
    };
    let new_client = "while the client runs: build a new client";
    assert_eq!(
        refused(|settings| settings.retry.seed = Some(1)),
        format!("retry.seed (1) cannot replace none {new_client}")
    );
    assert_eq!(
        refused(|settings| settings.throttle.rate = Some(RateLimit {
            per_second: 1.0,
            burst: 1
        })),
        format!("throttle.rate (1/s with a burst of 1) cannot replace none {new_client}")
    );
    for (change, said) in [
        (
            (|settings| settings.retry.budget_per_host.retry_ratio = 0.1)
                as fn(&mut SteadySettings),
            "retry_ratio (0.1) cannot replace 0.2",
        ),
        (
            |settings| settings.retry.budget_per_host.ttl = 20 * SEC,
            "ttl (20s) cannot replace 10s",
        ),
        (
            |settings| settings.retry.budget_per_host.deposit_on = Deposit::Request,
            "deposit_on (request) cannot replace success",
        ),
    ] {
        let said = format!("retry.budget_per_host.{said} {new_client}");
        assert_eq!(refused(change), said);
    }
    assert_eq!(
        refused(|settings| settings.throttle.adaptive = false),
        format!("throttle.adaptive (false) cannot replace true {new_client}")
    );
    assert_eq!(
        refused(|settings| settings.coalesce = Some(CoalesceSettings::default())),
        format!("coalesce (set) cannot be turned on or off {new_client}")
    );
    // The function of the builder stays, and another choice is data.
    assert_eq!(steady.settings().throttle.key_by, KeyChoice::FromFn);
    change(&steady, |settings| {
        settings.throttle.key_by = KeyChoice::Host
    });
    change(&steady, |settings| {
        settings.throttle.key_by = KeyChoice::FromFn
    });
    let refused = Steady::default().replace(&steady.settings()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "throttle.key_by (from_fn) needs a function in the code of the program: \
         without one, use \"host\" or { host_and_path = 1 }"
    );
}

#[tokio::test(start_paused = true)]
async fn budgets_stay_when_other_settings_change() {
    let server = ScriptedServer::statuses([500]);
    let steady = Steady::default();
    let client = client(&steady, &server);
    client.get(URL).send().await.unwrap();
    let balance = steady.retry().budget_for("api.example.com").balance();
    assert!(balance < 20.0);
    change(&steady, |settings| settings.retry.max_retries = 1);
    assert_eq!(
        steady.retry().budget_for("api.example.com").balance(),
        balance
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_budget_has_what_is_left_of_the_old_reserve() {
    let server = ScriptedServer::statuses([500]);
    let steady = Steady::default();
    let client = client(&steady, &server);
    client.get(URL).send().await.unwrap();
    let left = steady.retry().budget_for("api.example.com").balance();
    change(&steady, |settings| {
        settings.retry.budget_per_host.min_retries_per_sec = 100.0;
    });
    let budget = steady.retry().budget_for("api.example.com");
    assert_eq!(budget.min_retries_per_sec(), Some(100.0));
    assert_eq!(budget.balance(), left);
    // A smaller reserve is full at most.
    change(&steady, |settings| {
        settings.retry.budget_per_host.min_retries_per_sec = 0.1;
    });
    assert_eq!(steady.retry().budget_for("api.example.com").balance(), 1.0);
    assert_eq!(steady.retry().budget_for("new.example.com").balance(), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_shared_budget_stays() {
    let budget = Budget::builder().build().unwrap();
    let retry = RetryMiddleware::builder()
        .budget(budget.clone())
        .build()
        .unwrap();
    assert!(retry.budget_for("a").try_withdraw());
    let mut settings = retry.settings();
    settings.max_retries = 1;
    retry.replace(settings.clone()).unwrap();
    assert_eq!(retry.budget_for("b").balance(), budget.balance());
    settings.budget_per_host.retry_ratio = 0.1;
    let refused = retry.replace(settings).unwrap_err();
    assert_eq!(refused.setting(), "budget_per_host");
}

#[tokio::test(start_paused = true)]
async fn more_room_in_flight_helps_queued_requests_at_once() {
    let server = ScriptedServer::new(|_| Reply::status(200).after(10 * SEC));
    let mut settings = SteadySettings::default();
    settings.throttle.max_in_flight = 1;
    let steady = Steady::from_settings(&settings).unwrap();
    let client = client(&steady, &server);
    let calls: Vec<_> = (0..3)
        .map(|_| tokio::spawn(client.get(URL).send()))
        .collect();
    sleep(SEC).await;
    assert_eq!(server.count(), 1);
    change(&steady, |settings| settings.throttle.max_in_flight = 3);
    sleep(MS).await;
    assert_eq!(server.count(), 3);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(server.gaps(), [SEC, Duration::ZERO]);
}

#[tokio::test(start_paused = true)]
async fn less_room_in_flight_lets_running_requests_end() {
    let server = ScriptedServer::new(|_| Reply::status(200).after(SEC));
    let steady = Steady::default();
    let client = client(&steady, &server);
    let running: Vec<_> = (0..3)
        .map(|_| tokio::spawn(client.get(URL).send()))
        .collect();
    sleep(MS).await;
    change(&steady, |settings| settings.throttle.max_in_flight = 1);
    let started = Instant::now();
    let new: Vec<_> = (0..2)
        .map(|_| tokio::spawn(client.get(URL).send()))
        .collect();
    for call in running.into_iter().chain(new) {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    // The new ones go one after the other, when all three have ended.
    let waits: Vec<_> = server.received()[3..]
        .iter()
        .map(|it| it.at - started)
        .collect();
    assert_eq!(waits, [1000 * MS, 2001 * MS]);
}

#[tokio::test(start_paused = true)]
async fn a_new_rate_holds_for_queued_requests_and_grants_no_new_burst() {
    let server = ScriptedServer::statuses([200]);
    let mut settings = SteadySettings::default();
    settings.throttle.rate = Some(RateLimit {
        per_second: 0.1,
        burst: 2,
    });
    let steady = Steady::from_settings(&settings).unwrap();
    let client = client(&steady, &server);
    let started = Instant::now();
    let calls: Vec<_> = (0..4)
        .map(|_| tokio::spawn(client.get(URL).send()))
        .collect();
    sleep(SEC).await;
    assert_eq!(server.count(), 2, "the burst");
    change(&steady, |settings| {
        settings.throttle.rate = Some(RateLimit {
            per_second: 1.0,
            burst: 2,
        });
    });
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let waits: Vec<_> = server.received()[2..]
        .iter()
        .map(|it| it.at - started)
        .collect();
    assert_eq!(waits, [2 * SEC, 3 * SEC]);
    change(&steady, |settings| settings.throttle.rate = None);
    join_all((0..4).map(|_| client.get(URL).send())).await;
    assert_eq!(server.received()[7].at - started, 3 * SEC);
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_a_pace_stay() {
    let server = ScriptedServer::new(|before| match before {
        0 => Reply::status(429).header("retry-after", "5"),
        _ => Reply::status(200),
    });
    let steady = Steady::default();
    let client = client(&steady, &server);
    let first = tokio::spawn(client.get(URL).send());
    sleep(SEC).await;
    change(&steady, |settings| settings.throttle.max_in_flight = 10);
    let second = tokio::spawn(client.get("http://api.example.com/other").send());
    for call in [first, second] {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(server.count(), 3);
    assert!(server.gaps()[0] >= 5 * SEC, "{:?}", server.gaps());
}

#[tokio::test(start_paused = true)]
async fn learning_can_be_turned_off_and_on_with_requests_in_flight() {
    let server = ScriptedServer::new(|before| match before % 3 {
        0 => Reply::status(429).after(SEC),
        1 => Reply::fail(ErrorKind::ConnectionReset).after(SEC),
        _ => Reply::status(200).after(SEC),
    });
    let mut settings = SteadySettings::default();
    settings.throttle.max_in_flight = 2;
    settings.retry.max_retries = 30;
    settings.retry.budget_per_host.min_retries_per_sec = 1000.0;
    let steady = Steady::from_settings(&settings).unwrap();
    let client = client(&steady, &server);
    let calls: Vec<_> = (0..6)
        .map(|_| tokio::spawn(client.get(URL).send()))
        .collect();
    for round in 0..20 {
        sleep(300 * MS).await;
        change(&steady, |settings| {
            settings.throttle.adaptive = round % 2 == 1
        });
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn coalescing_of_all_clones_gets_new_settings() {
    let mut settings = SteadySettings::default();
    settings.coalesce = Some(CoalesceSettings::default());
    let steady = Steady::from_settings(&settings).unwrap();
    let server = ScriptedServer::new(|_| Reply::status(200).body("shared").after(SEC));
    let client = client(&steady, &server);
    let both = || join_all((0..2).map(|_| client.get(URL).send()));
    both().await;
    assert_eq!(server.count(), 1);
    change(&steady, |settings| {
        settings.coalesce.as_mut().unwrap().max_body = 1
    });
    both().await;
    assert_eq!(server.count(), 1 + 2, "the body is too long to be shared");
}
