//! Eight worker processes with one quota and a real Redis.
//!
//! `cargo test -p proof --test fleet -- --nocapture` prints the results. `STEADY_FLEET_SECONDS=60` makes it the long run.
//! The workers and the server are those of `examples/fleet/`.

#![cfg(unix)]
// The server reads the real clock.
#![allow(clippy::disallowed_methods)]

mod run;
mod trial;

#[path = "../../examples/fleet/crew.rs"]
mod crew;
#[path = "../../examples/fleet/lag.rs"]
mod lag;
#[path = "../../examples/fleet/outcome.rs"]
mod outcome;
#[path = "../../examples/fleet/redis.rs"]
mod redis_process;
#[path = "../../examples/fleet/server.rs"]
mod server;
#[path = "../../../tests/steady/support/trace.rs"]
mod trace;
#[path = "../../examples/fleet/worker.rs"]
mod worker;

use std::thread::sleep;
use std::time::Duration;

use outcome::Outcome;
use redis_process::RedisProcess;
use run::{AfterRefusals, QUOTA, Run, WORKERS, find_redis};
use trial::{Trial, alone_in_process, retry_on_busy_machine, say};

/// A default lease: the requests of one worker in half a second.
const LEASE: f64 = run::RATE / WORKERS as f64 / 2.0;
/// The quota, plus one lease per worker.
const MOST_IN_A_SECOND: f64 = QUOTA + LEASE * WORKERS as f64;
/// The time after which all workers have reconnected to Redis: 2 s, plus some for the machine.
const RECONNECTED: Duration = Duration::from_secs(3);

/// The time until the log reports the recovery: 3 s after the last failure.
const RECOVERY_LOGGED: Duration = Duration::from_secs(2);

fn seconds(default: u64) -> Duration {
    let seconds = std::env::var("STEADY_FLEET_SECONDS").ok();
    Duration::from_secs(seconds.map_or(default, |it| it.parse().expect("seconds")))
}

#[test]
#[ignore = "a worker, which the other tests start as a process"]
fn the_worker() {
    if let Some((control, number)) = run::environment() {
        let trace = trace::Trace::default();
        let _listening = trace.listen();
        let log = || {
            let events = trace.events().into_iter();
            events
                .map(|(level, text, _)| format!("{level} {text}"))
                .collect()
        };
        worker::work(control, number, log).unwrap();
    }
}

fn show(what: &str, outcome: &Outcome, round_trips: Option<f64>) {
    let round_trips = round_trips.map(|it| format!(", {it:.1} round trips per 1000 requests"));
    say(format_args!(
        "{what}: {} requests, {} successes, {:.4} requests per success, {:.1} % of the quota, at most {} in any second{}",
        outcome.requests(),
        outcome.successes(),
        outcome.requests_per_success(),
        outcome.use_of(QUOTA) * 100.0,
        outcome.most_in_a_second(),
        round_trips.unwrap_or_default(),
    ));
}

#[test]
fn eight_processes_keep_one_quota_together() {
    let _turn = alone_in_process();
    let Some(redis) = find_redis("eight_processes_keep_one_quota_together") else {
        return;
    };
    let time = seconds(8);
    for after in [AfterRefusals::GoOn, AfterRefusals::SlowDown] {
        retry_on_busy_machine(|trial| {
            let run = Run::begin(Some(&redis), after);
            sleep(Duration::from_secs(1));
            let (asked, sent) = (run::store_requests(&redis), run.server.arrivals().len());
            sleep(time);
            let asked = run::store_requests(&redis) - asked;
            let sent = run.server.arrivals().len() - sent;
            let together = run.end(trial);
            let round_trips = asked as f64 / sent as f64 * 1000.0;
            show(&format!("shared, {after:?}"), &together, Some(round_trips));

            trial.expect(
                together.most_in_a_second() as f64 <= MOST_IN_A_SECOND,
                "more than the quota plus a lease per worker",
            );
            trial.expect(together.use_of(QUOTA) >= 0.95, "less than 95 % used");
            trial.expect(
                together.requests_per_success() <= 1.1,
                "too many wasted requests",
            );
            // The tests of `steady` check the goal of 50 in virtual time. Here the number depends on the timing of the workers.
            trial.expect(round_trips <= 75.0, "too many round trips");
        });
    }
}

#[test]
fn without_sharing_the_same_processes_waste_requests() {
    let _turn = alone_in_process();
    let time = seconds(3);
    for after in [AfterRefusals::GoOn, AfterRefusals::SlowDown] {
        retry_on_busy_machine(|trial| {
            let run = Run::begin(None, after);
            sleep(time);
            let alone = run.end_anyhow(trial);
            show(&format!("separate, {after:?}"), &alone, None);
            let wasted = alone.requests_per_success();
            match after {
                // This is the case in which sharing must be better.
                AfterRefusals::GoOn => trial.expect(wasted > 1.3, "few wasted requests"),
                AfterRefusals::SlowDown => trial.expect(wasted > 1.0, "no wasted requests"),
            }
        });
    }
}

/// The other workers learn of it through Redis, not from the server.
#[test]
fn a_retry_after_for_one_worker_stops_all_within_50_ms() {
    let _turn = alone_in_process();
    let Some(redis) = find_redis("a_retry_after_for_one_worker_stops_all_within_50_ms") else {
        return;
    };
    const HOLD: Duration = Duration::from_secs(1);
    retry_on_busy_machine(|trial| {
        let mut run = Run::begin(Some(&redis), AfterRefusals::SlowDown);
        sleep(Duration::from_millis(1500));
        run.mark();
        run.server.hold(0, HOLD.as_secs() as u32);
        sleep(HOLD * 2);
        let held_at = run.server.held_at().expect("a request of the worker");
        let outcome = run.end(trial);

        let others = |from: Duration, to: Duration| {
            let arrivals = outcome.arrivals.iter();
            arrivals.filter(move |it| it.worker != 0 && it.at > from && it.at < to)
        };
        // Not until the exact end, because each worker counts from when it received the pause.
        let held = others(held_at, held_at + HOLD - Duration::from_millis(100));
        let late = held.map(|it| it.at - held_at).max();
        let late = late.unwrap_or_default();
        say(format_args!("all others stopped after {late:?}"));
        trial.expect(
            late <= Duration::from_millis(50),
            "others continued for longer",
        );
        let before = others(held_at - Duration::from_millis(300), held_at).count();
        trial.expect(before > 70, "others sent too few requests before");
        let after = others(held_at + HOLD, held_at + HOLD * 2).count();
        trial.expect(after > 200, "others did not resume");
    });
}

/// Runs a fleet while something happens to Redis, until all workers have reconnected.
///
/// Workers do not slow down after refusals, which would hide that they exceed their share.
fn trouble(
    redis: &mut RedisProcess,
    trial: &mut Trial,
    happens: impl FnOnce(&mut RedisProcess),
) -> Outcome {
    let mut run = Run::begin(Some(redis), AfterRefusals::GoOn);
    sleep(Duration::from_secs(2));
    run.mark();
    let begun = run.server.now();
    happens(redis);
    let back = run.server.now();
    sleep(RECONNECTED);
    let found = run.server.now();
    let asked = run::store_requests(redis);
    sleep(Duration::from_secs(1));
    let asked = run::store_requests(redis) - asked;
    let workers = run::workers_known(redis);
    sleep(RECOVERY_LOGGED);
    let outcome = run.end(trial);
    let within = |from: Duration, to: Duration| {
        let arrivals = outcome.arrivals.iter();
        let accepted = arrivals.filter(|it| it.accepted && it.at >= from && it.at < to);
        accepted.count() as f64 / (to - from).as_secs_f64()
    };
    let during = within(begun, back.max(begun + Duration::from_secs(1)));
    let after = within(found, outcome.time.end);
    let most = outcome.most_in_a_second();
    say(format_args!(
        "{:.0} per second before, {during:.0} during the outage, {after:.0} after, at most {most} in any second, {asked} \
         round trips in the last second, {} requests for {} calls",
        within(begun - Duration::from_secs(1), begun),
        outcome.requests(),
        outcome.sum(|report| report.made),
    ));
    trial.expect(
        most as f64 <= MOST_IN_A_SECOND,
        "more than the quota plus a lease per worker",
    );
    // Each worker uses its share, and together they use the whole quota.
    trial.expect(during >= 0.8 * QUOTA, "too few requests during the outage");
    trial.expect(after >= 0.9 * QUOTA, "too few requests after the outage");
    // The store knows all workers again, and they lease as rarely as before.
    trial.expect(workers == WORKERS, "the store does not know all workers");
    trial.expect(
        (WORKERS as u64..=60).contains(&asked),
        "workers do not lease as before",
    );
    outcome
}

/// Checks the levels of the log lines of each worker about the store.
fn expect_log_levels(trial: &mut Trial, outcome: &Outcome, levels: &[&str]) {
    for report in &outcome.reports {
        let lines = report
            .log_lines
            .iter()
            .filter(|it| it.contains("fleet store"));
        let logged: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
        trial.expect(
            logged == levels,
            format_args!("log: {:?}", report.log_lines),
        );
    }
}

#[test]
fn a_redis_that_restarts_costs_no_call_and_is_found_again() {
    let _turn = alone_in_process();
    let name = "a_redis_that_restarts_costs_no_call_and_is_found_again";
    let Some(mut redis) = find_redis(name) else {
        return;
    };
    retry_on_busy_machine(|trial| {
        let outcome = trouble(&mut redis, trial, |redis| {
            redis.kill();
            sleep(Duration::from_secs(3));
            redis.restart().unwrap();
        });
        expect_log_levels(trial, &outcome, &["WARN", "INFO"]);
    });
}

#[test]
fn a_redis_that_hangs_for_5_s_costs_no_call() {
    let _turn = alone_in_process();
    let name = "a_redis_that_hangs_for_5_s_costs_no_call";
    let Some(mut redis) = find_redis(name) else {
        return;
    };
    retry_on_busy_machine(|trial| {
        let outcome = trouble(&mut redis, trial, |redis| {
            redis.signal("STOP").unwrap();
            sleep(Duration::from_secs(5));
            redis.signal("CONT").unwrap();
        });
        expect_log_levels(trial, &outcome, &["WARN", "INFO"]);
    });
}

#[test]
fn a_wiped_redis_costs_no_call_and_no_log_line() {
    let _turn = alone_in_process();
    let name = "a_wiped_redis_costs_no_call_and_no_log_line";
    let Some(mut redis) = find_redis(name) else {
        return;
    };
    retry_on_busy_machine(|trial| {
        let outcome = trouble(&mut redis, trial, |redis| {
            run::command::<()>(redis, &["FLUSHALL"]);
            run::command::<()>(redis, &["SCRIPT", "FLUSH"]);
        });
        expect_log_levels(trial, &outcome, &[]);
    });
}
