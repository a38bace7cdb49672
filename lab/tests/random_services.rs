//! Limits for retry and throttle at random services and in the troubles of small clients.
//!
//! Each figure is the median of three fixed seeds. `lab random` and `lab troubles` print the same figures for any seed.

use std::sync::LazyLock;

use reqwest_steady::testing::Stack;

use lab::stacks::{steady_retry, steady_throttle};
use lab::study::{RETRY, STACKS, Study, Summary, THROTTLE, quantile};
use lab::troubles::{Effect, trouble};

/// Not those on which the laws were chosen.
const SEEDS: [u64; 3] = [201, 202, 203];
const SERVICES: usize = 300;
const THREADS: usize = 2;

static STUDIES: LazyLock<[Study; 3]> =
    LazyLock::new(|| SEEDS.map(|seed| Study::new(seed, 0..SERVICES, THREADS)));

#[track_caller]
fn assert_at_most(value: f64, limit: f64) {
    assert!(value <= limit, "{value:.4} is more than {limit}");
}

#[track_caller]
fn assert_at_least(value: f64, limit: f64) {
    assert!(value >= limit, "{value:.4} is less than {limit}");
}

/// Returns the median of this figure over the seeds.
fn median(stack: usize, figure: fn(&Summary) -> f64) -> f64 {
    let figures = STUDIES
        .each_ref()
        .map(|study| figure(&study.summary(stack)));
    quantile(&figures, 0.5)
}

/// Returns the median of this figure over the seeds.
fn median_in(name: &str, stack: &Stack<'_>, figure: fn(&Effect) -> f64) -> f64 {
    let figures = SEEDS.map(|seed| figure(&trouble(name).run(seed, stack)));
    quantile(&figures, 0.5)
}

fn requests(name: &str) -> f64 {
    median_in(name, &steady_retry, |effect| effect.requests_per_call)
}

fn succeeded(name: &str) -> f64 {
    median_in(name, &steady_retry, |effect| effect.succeeded)
}

fn wait(name: &str) -> f64 {
    median_in(name, &steady_retry, |effect| effect.median_wait)
}

#[test]
fn retry_alone_brings_most_calls_through() {
    assert_at_least(median(RETRY, |it| it.succeeded), 0.92);
}

#[test]
fn retry_alone_brings_nearly_all_calls_through_a_429() {
    assert_at_least(median(RETRY, |it| it.succeeded_with_429), 0.995);
}

#[test]
fn retry_alone_sends_few_requests_per_success() {
    assert_at_most(median(RETRY, |it| it.requests_median), 2.2);
    assert_at_most(median(RETRY, |it| it.requests_p90), 3.0);
}

#[test]
fn a_throttle_brings_nearly_all_calls_through() {
    assert_at_least(median(THROTTLE, |it| it.succeeded), 0.995);
}

#[test]
fn a_throttle_loses_calls_at_few_services() {
    assert_at_most(median(THROTTLE, |it| it.under_99), 0.02);
}

#[test]
fn a_throttle_takes_little_more_time_than_the_ideal() {
    assert_at_most(median(THROTTLE, |it| it.time_p90), 2.5);
}

#[test]
fn a_throttle_sends_nothing_before_a_known_retry_after() {
    for study in STUDIES.iter() {
        assert_eq!(study.summary(THROTTLE).early, 0, "seed {}", study.seed);
    }
}

#[test]
fn a_service_depends_only_on_its_seed_and_index() {
    let study = &STUDIES[0];
    let alone = Study::new(study.seed, 7..8, 1);
    assert_eq!(
        format!("{:?}", alone.services[0]),
        format!("{:?}", study.services[7])
    );
}

#[test]
fn no_client_is_faster_than_the_ideal() {
    for (service, runs) in STUDIES.iter().flat_map(|study| &study.services) {
        for ((name, _), run) in STACKS.iter().zip(runs) {
            // Only a client that loses no call can be compared. The ideal ignores jitter.
            if run.succeeded == 1.0 {
                assert!(
                    run.took + service.latency.mul_f64(0.4) >= service.ideal(),
                    "{name}: {:?} at {}: {service}, ideal {:?}",
                    run.took,
                    service.index,
                    service.ideal()
                );
            }
        }
    }
}

#[test]
fn small_clients_are_kind_in_a_minute_of_blackout() {
    assert_at_most(requests("blackout 60 s, 0.25/s"), 2.3);
}

#[test]
fn small_clients_are_kind_in_ten_minutes_of_blackout() {
    assert_at_most(requests("blackout 600 s, 0.25/s"), 1.15);
}

#[test]
fn a_client_with_1_call_per_second_is_kind_in_a_blackout() {
    assert_at_most(requests("blackout 60 s, 1/s"), 1.35);
}

#[test]
fn a_client_with_5_calls_per_second_is_kind_in_a_blackout() {
    assert_at_most(requests("blackout 60 s, 5/s"), 1.1);
}

#[test]
fn small_clients_are_kind_when_every_response_is_429() {
    assert_at_most(requests("blackout of 429, 600 s, 0.25/s"), 1.25);
}

#[test]
fn calls_at_1_per_second_survive_3_s_down() {
    assert_at_least(succeeded("down 3 s of 60, 1/s"), 0.993);
    assert_at_most(wait("down 3 s of 60, 1/s"), 3.0);
}

#[test]
fn calls_at_5_per_second_survive_3_s_down() {
    assert_at_least(succeeded("down 3 s of 60, 5/s"), 0.987);
    assert_at_most(wait("down 3 s of 60, 5/s"), 3.0);
}

#[test]
fn calls_at_50_per_second_survive_1_s_down() {
    assert_at_least(succeeded("down 1 s of 60, 50/s"), 0.999);
}

#[test]
fn calls_with_a_short_deadline_survive_1_s_down() {
    assert_at_least(succeeded("down 1 s of 60, 50/s, deadline 1 s"), 0.995);
}

/// What the retry gains must not cost the throttle anything.
#[test]
fn calls_behind_a_throttle_survive_1_s_down() {
    let name = "down 1 s of 60, 50/s";
    assert_at_least(median_in(name, &steady_throttle, |it| it.succeeded), 0.999);
}
