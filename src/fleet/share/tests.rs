use super::*;

const PERIOD: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_millis(50);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn share(rate: Option<(f64, u32)>) -> Share {
    let rate = rate.map(|(per_second, burst)| SharedRate { per_second, burst });
    Share::new(WorkerId::random(), rate, PERIOD, MAX_WAIT)
}

fn lease(tokens: u32, workers: u32) -> Lease {
    Lease {
        tokens,
        workers,
        ..Lease::default()
    }
}

/// How many go at once.
fn send_all(share: &mut Share, now: Time) -> u32 {
    let mut sent = 0;
    while share.turn(now) == Turn::Now {
        share.take(now);
        sent += 1;
    }
    sent
}

#[test]
fn the_first_call_waits_for_the_store_and_there_is_one_question_at_a_time() {
    let mut share = share(Some((1000.0, 20)));
    let now = millis(10);
    assert_eq!(share.turn(now), Turn::WhenAnswered(millis(60)));
    let ask = share.ask(now, 3, None).unwrap();
    assert_eq!((ask.want, ask.unused, ask.period), (3, 0, PERIOD));
    assert_eq!(share.ask(now, 4, None), None);
    assert_eq!(share.turn(millis(12)), Turn::WhenAnswered(millis(60)));
    share.answered(millis(13), Ok(lease(3, 1)));
    assert_eq!(share.turn(millis(13)), Turn::Now);
}

#[test]
fn a_lease_is_sent_as_a_burst_and_then_evenly() {
    let mut share = share(Some((1000.0, 20)));
    let ask = share.ask(Time::ZERO, 400, None).unwrap();
    assert_eq!(ask.want, 400);
    // Of ten workers, all of which are busy.
    share.answered(Time::ZERO, Ok(lease(50, 10)));
    let burst = send_all(&mut share, Time::ZERO);
    assert_eq!(burst, 7);
    let sent: u32 = (1..=100).map(|at| send_all(&mut share, millis(at))).sum();
    assert!((9..=11).contains(&sent), "{sent} in a tenth of a second");
}

#[test]
fn what_was_put_back_may_be_taken_again() {
    let mut share = share(Some((1000.0, 20)));
    share.ask(Time::ZERO, 1, None).unwrap();
    share.answered(Time::ZERO, Ok(lease(1, 1)));
    assert_eq!(send_all(&mut share, Time::ZERO), 1);
    share.put_back();
    assert_eq!(send_all(&mut share, Time::ZERO), 1);
}

#[test]
fn who_is_refused_asks_again_when_it_was_told_to() {
    let mut share = share(Some((1000.0, 20)));
    share.ask(Time::ZERO, 5, None).unwrap();
    let retry_after = millis(120);
    let refusal = Lease {
        retry_after,
        ..lease(0, 8)
    };
    share.answered(millis(2), Ok(refusal));
    assert_eq!(share.turn(millis(2)), Turn::At(millis(122)));
    assert_eq!(share.ask(millis(121), 5, None), None);
    assert!(matches!(share.turn(millis(122)), Turn::WhenAnswered(_)));
    assert!(share.ask(millis(122), 5, None).is_some());
}

#[test]
fn what_is_not_used_for_two_periods_is_given_back() {
    let mut share = share(Some((1000.0, 20)));
    share.ask(Time::ZERO, 10, None).unwrap();
    share.answered(Time::ZERO, Ok(lease(10, 1)));
    share.take(Time::ZERO);
    assert_eq!(share.idle_at(), Some(millis(1000)));
    assert_eq!(share.give_back(millis(999)), None);
    let back = share.give_back(millis(1000)).unwrap();
    assert_eq!((back.want, back.unused), (0, 9));
    share.answered(millis(1001), Ok(lease(0, 1)));
    assert_eq!(share.idle_at(), None);
    assert_eq!(share.give_back(millis(1002)), None);
    assert_eq!(share.ask(millis(1002), 0, None), None);
    // With the next question, if there is one before.
    share.ask(millis(2000), 10, None).unwrap();
    share.answered(millis(2000), Ok(lease(10, 1)));
    let ask = share.ask(millis(3000), 1, None).unwrap();
    assert_eq!((ask.want, ask.unused), (1, 10));
}

#[test]
fn no_traffic_no_questions() {
    for rate in [None, Some((1000.0, 20))] {
        let mut share = share(rate);
        assert_eq!(share.ask(Time::ZERO, 0, None), None);
        // One call now and then does not make it ask ahead.
        share.ask(Time::ZERO, 1, None).unwrap();
        share.answered(Time::ZERO, Ok(lease(1, 1)));
        share.take(Time::ZERO);
        assert_eq!(share.ask(millis(1), 0, None), None);
        assert_eq!(share.ask(millis(5000), 0, None), None);
    }
}

#[test]
fn who_gets_no_answer_in_time_keeps_to_its_part_of_the_rate() {
    let mut share = share(Some((100.0, 20)));
    share.ask(Time::ZERO, 1, None).unwrap();
    share.answered(Time::ZERO, Ok(lease(1, 4)));
    send_all(&mut share, Time::ZERO);
    share.ask(millis(10), 1, None).unwrap();
    assert_eq!(share.turn(millis(59)), Turn::WhenAnswered(millis(60)));
    assert!(!share.is_away());
    share.turn(millis(60));
    assert!(share.is_away());
    // The answer that nobody waits for any more.
    share.answered(millis(60), Err(()));
    let sent: u32 = (60..4060).map(|at| send_all(&mut share, millis(at))).sum();
    assert!(
        (100..=108).contains(&sent),
        "{sent} in 4 s, at 100/s by four"
    );
}

#[test]
fn a_store_that_is_away_is_asked_seldom_and_one_answer_brings_it_back() {
    let mut share = share(Some((100.0, 20)));
    let mut asked = Vec::new();
    for at in 0..6000 {
        let now = millis(at);
        send_all(&mut share, now);
        if share.ask(now, 1, None).is_some() {
            asked.push(at);
            share.answered(now, Err(()));
        }
    }
    assert_eq!(asked, [0, 250, 750, 1750, 3750, 5750]);
    assert!(share.ask(millis(7750), 1, None).is_some());
    share.answered(millis(7751), Ok(lease(5, 2)));
    assert!(!share.is_away());
    assert_eq!(share.workers(), 2);
    assert_eq!(share.turn(millis(7751)), Turn::Now);
}

#[test]
fn nobody_goes_during_a_pause_nor_asks_long_before_its_end() {
    for rate in [None, Some((1000.0, 20))] {
        let mut share = share(rate);
        share.ask(Time::ZERO, 1, None).unwrap();
        let pause = Duration::from_secs(30);
        let lease = Lease {
            pause,
            ..lease(1, 1)
        };
        share.answered(Time::ZERO, Ok(lease));
        assert_eq!(share.turn(millis(1)), Turn::At(pause));
        // A shorter one does not end it.
        share.paused(millis(1), millis(10));
        assert_eq!(share.turn(millis(20_000)), Turn::At(pause));
        assert_eq!(share.not_before(millis(20_000), 0), pause);
        if rate.is_some() {
            assert_eq!(share.ask(millis(20_000), 1, None), None);
            assert!(share.ask(millis(29_950), 1, None).is_some());
        }
    }
}

#[test]
fn without_a_rate_nobody_waits_and_the_store_is_asked_once_a_period() {
    let mut share = share(None);
    let mut asked = Vec::new();
    for at in 0..2000 {
        let now = millis(at);
        assert_eq!(share.turn(now), Turn::Now);
        share.take(now);
        if let Some(ask) = share.ask(now, 0, Some(40.0)) {
            assert_eq!((ask.rate, ask.want), (None, 0));
            asked.push(at);
            let pace = Some(100.0);
            let lease = Lease {
                pace,
                ..lease(0, 4)
            };
            share.answered(now, Ok(lease));
            assert_eq!(share.pace(Some(40.0)), Some(25.0));
            assert_eq!(share.pace(Some(25.0)), None);
        }
    }
    assert_eq!(asked, [0, 500, 1000, 1500]);
}

#[test]
fn who_has_more_ahead_than_there_can_be_cannot_go_at_once() {
    let share = share(Some((100.0, 20)));
    assert_eq!(share.not_before(millis(5), 20), millis(5));
    // 20 of the bucket, 60 of the first lease, one more; and the rest at the rate.
    assert_eq!(share.not_before(Time::ZERO, 1081).as_secs(), 10);
    assert!(share.not_before(Time::ZERO, usize::MAX) > Duration::from_secs(1_000_000));
}
