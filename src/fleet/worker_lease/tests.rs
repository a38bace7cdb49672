use super::*;

const PERIOD: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_millis(50);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn worker_lease(rate: Option<(f64, u32)>) -> WorkerLease {
    let rate = rate.map(|(per_second, burst)| SharedRate { per_second, burst });
    WorkerLease::new(WorkerId::random(), rate, PERIOD, MAX_WAIT)
}

fn lease(tokens: u32, workers: u32) -> Lease {
    Lease {
        tokens,
        workers,
        ..Lease::default()
    }
}

/// Sends all that may go now; returns how many.
fn send_all(held: &mut WorkerLease, now: Time) -> u32 {
    let mut sent = 0;
    while held.turn(now) == LeaseTurn::Now {
        assert!(!held.lacks_token(now));
        held.take(now);
        sent += 1;
    }
    assert!(held.lacks_token(now));
    sent
}

#[test]
fn the_first_call_waits_for_the_store_with_one_ask_at_a_time() {
    let mut held = worker_lease(Some((1000.0, 20)));
    let now = millis(10);
    assert_eq!(held.turn(now), LeaseTurn::AwaitStore(millis(60)));
    let ask = held.ask(now, 3, None).unwrap();
    assert_eq!((ask.want, ask.unused, ask.period), (3, 0, PERIOD));
    assert_eq!(held.ask(now, 4, None), None);
    assert_eq!(held.turn(millis(12)), LeaseTurn::AwaitStore(millis(60)));
    held.receive(millis(13), Ok(lease(3, 1)));
    assert_eq!(held.turn(millis(13)), LeaseTurn::Now);
}

#[test]
fn a_lease_is_sent_as_a_burst_and_then_evenly() {
    let mut held = worker_lease(Some((1000.0, 20)));
    let ask = held.ask(Time::ZERO, 400, None).unwrap();
    assert_eq!(ask.want, 400);
    // One of ten busy workers.
    held.receive(Time::ZERO, Ok(lease(50, 10)));
    let burst = send_all(&mut held, Time::ZERO);
    assert_eq!(burst, 7);
    let sent: u32 = (1..=100).map(|at| send_all(&mut held, millis(at))).sum();
    assert!((9..=11).contains(&sent), "{sent} in a tenth of a second");
}

#[test]
fn a_token_put_back_may_be_taken_again() {
    let mut held = worker_lease(Some((1000.0, 20)));
    held.ask(Time::ZERO, 1, None).unwrap();
    held.receive(Time::ZERO, Ok(lease(1, 1)));
    assert_eq!(send_all(&mut held, Time::ZERO), 1);
    held.put_back();
    assert_eq!(send_all(&mut held, Time::ZERO), 1);
}

#[test]
fn a_refused_worker_asks_again_after_retry_after() {
    let mut held = worker_lease(Some((1000.0, 20)));
    held.ask(Time::ZERO, 5, None).unwrap();
    let retry_after = millis(120);
    let refusal = Lease {
        retry_after,
        ..lease(0, 8)
    };
    held.receive(millis(2), Ok(refusal));
    assert_eq!(held.turn(millis(2)), LeaseTurn::At(millis(122)));
    assert_eq!(held.ask(millis(121), 5, None), None);
    assert!(matches!(held.turn(millis(122)), LeaseTurn::AwaitStore(_)));
    assert!(held.ask(millis(122), 5, None).is_some());
}

#[test]
fn tokens_unused_for_two_periods_are_given_back() {
    let mut held = worker_lease(Some((1000.0, 20)));
    held.ask(Time::ZERO, 10, None).unwrap();
    held.receive(Time::ZERO, Ok(lease(10, 1)));
    held.take(Time::ZERO);
    assert_eq!(held.give_back_at(), Some(millis(1000)));
    assert_eq!(held.give_back(millis(999)), None);
    let back = held.give_back(millis(1000)).unwrap();
    assert_eq!((back.want, back.unused), (0, 9));
    held.receive(millis(1001), Ok(lease(0, 1)));
    assert_eq!(held.give_back_at(), None);
    assert_eq!(held.give_back(millis(1002)), None);
    assert_eq!(held.ask(millis(1002), 0, None), None);
    // Or with the next ask, if that comes first.
    held.ask(millis(2000), 10, None).unwrap();
    held.receive(millis(2000), Ok(lease(10, 1)));
    let ask = held.ask(millis(3000), 1, None).unwrap();
    assert_eq!((ask.want, ask.unused), (1, 10));
}

#[test]
fn no_traffic_no_asks() {
    for rate in [None, Some((1000.0, 20))] {
        let mut held = worker_lease(rate);
        assert_eq!(held.ask(Time::ZERO, 0, None), None);
        // A call now and then causes no ask ahead.
        held.ask(Time::ZERO, 1, None).unwrap();
        held.receive(Time::ZERO, Ok(lease(1, 1)));
        held.take(Time::ZERO);
        assert_eq!(held.ask(millis(1), 0, None), None);
        assert_eq!(held.ask(millis(5000), 0, None), None);
    }
}

#[test]
fn without_a_timely_lease_a_worker_sends_its_fair_share() {
    let mut held = worker_lease(Some((100.0, 20)));
    held.ask(Time::ZERO, 1, None).unwrap();
    held.receive(Time::ZERO, Ok(lease(1, 4)));
    send_all(&mut held, Time::ZERO);
    held.ask(millis(10), 1, None).unwrap();
    assert_eq!(held.turn(millis(59)), LeaseTurn::AwaitStore(millis(60)));
    assert!(!held.outage.is_on());
    held.turn(millis(60));
    assert!(held.outage.is_on());
    // The late result changes nothing.
    held.receive(millis(60), Err(()));
    let sent: u32 = (60..4060).map(|at| send_all(&mut held, millis(at))).sum();
    assert!(
        (100..=108).contains(&sent),
        "{sent} in 4 s, at 100/s by four"
    );
}

#[test]
fn a_lost_store_is_asked_seldom_and_one_lease_brings_it_back() {
    let mut held = worker_lease(Some((100.0, 20)));
    let mut asked = Vec::new();
    for at in 0..6000 {
        let now = millis(at);
        send_all(&mut held, now);
        if held.ask(now, 1, None).is_some() {
            asked.push(at);
            held.receive(now, Err(()));
        }
    }
    assert_eq!(asked, [0, 250, 750, 1750, 3750, 5750]);
    assert!(held.ask(millis(7750), 1, None).is_some());
    held.receive(millis(7751), Ok(lease(5, 2)));
    assert!(!held.outage.is_on());
    assert_eq!(held.workers, 2.0);
    assert_eq!(held.turn(millis(7751)), LeaseTurn::Now);
}

#[test]
fn no_request_goes_in_a_pause_and_no_ask_long_before_its_end() {
    for rate in [None, Some((1000.0, 20))] {
        let mut held = worker_lease(rate);
        held.ask(Time::ZERO, 1, None).unwrap();
        let pause = Duration::from_secs(30);
        let lease = Lease {
            pause,
            ..lease(1, 1)
        };
        held.receive(Time::ZERO, Ok(lease));
        assert_eq!(held.turn(millis(1)), LeaseTurn::At(pause));
        // A shorter pause does not end it.
        held.paused(millis(1), millis(10));
        assert_eq!(held.turn(millis(20_000)), LeaseTurn::At(pause));
        assert_eq!(held.not_before(millis(20_000), 0), pause);
        if rate.is_some() {
            assert_eq!(held.ask(millis(20_000), 1, None), None);
            assert!(held.ask(millis(29_950), 1, None).is_some());
        }
    }
}

#[test]
fn without_a_rate_no_call_waits_and_each_period_has_one_ask() {
    let mut held = worker_lease(None);
    let mut asked = Vec::new();
    for at in 0..2000 {
        let now = millis(at);
        assert_eq!(held.turn(now), LeaseTurn::Now);
        held.take(now);
        if let Some(ask) = held.ask(now, 0, Some(40.0)) {
            assert_eq!((ask.rate, ask.want), (None, 0));
            asked.push(at);
            let pace = Some(100.0);
            let lease = Lease {
                pace,
                ..lease(0, 4)
            };
            held.receive(now, Ok(lease));
            assert_eq!(held.take_pace(Some(40.0)), Some(25.0));
            assert_eq!(held.take_pace(Some(25.0)), None);
        }
    }
    assert_eq!(asked, [0, 500, 1000, 1500]);
}

#[test]
fn a_request_with_too_many_ahead_cannot_go_at_once() {
    let held = worker_lease(Some((100.0, 20)));
    assert_eq!(held.not_before(millis(5), 20), millis(5));
    // 20 of the bucket, 60 of the first lease, one more; and the rest at the rate.
    assert_eq!(held.not_before(Time::ZERO, 1081).as_secs(), 10);
    assert!(held.not_before(Time::ZERO, usize::MAX) > Duration::from_secs(1_000_000));
}
