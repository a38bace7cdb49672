use super::*;
use crate::fleet::{FleetStore, MemoryStore};

const PERIOD: Duration = Duration::from_millis(500);
const TERMS: RetryTerms = RetryTerms {
    ttl: Duration::from_secs(10),
    ratio: 0.2,
    min_per_sec: 2.0,
};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn retries() -> SharedRetries {
    SharedRetries::new(TERMS, PERIOD)
}

fn granted(granted: u32) -> Result<Retries, ()> {
    Ok(Retries {
        granted,
        balance: 0.0,
    })
}

#[test]
fn deposits_are_told_twice_in_their_life_by_one_of_those_who_make_them() {
    let retries = retries();
    let mut told = Vec::new();
    for at in 0..20_000 {
        if retries.deposit(millis(at)) {
            let ask = retries.flush(millis(at)).unwrap();
            assert_eq!(ask.want, 0);
            told.push((at, ask.deposits));
            retries.answered(millis(at), &ask, granted(0));
        }
    }
    assert_eq!(told, [(5000, 5001), (10_000, 5000), (15_000, 5000)]);
    // A question for a retry tells of them as well, and then there is time again.
    let ask = retries.ask(millis(20_000), 1);
    assert_eq!((ask.deposits, ask.want), (4999, 1));
    assert!(!retries.deposit(millis(24_999)));
    assert!(retries.deposit(millis(25_000)));
    assert!(!retries.deposit(millis(25_000)));
}

#[test]
fn deposits_of_a_short_life_are_told_once_a_period() {
    let ttl = Duration::from_millis(900);
    let retries = SharedRetries::new(RetryTerms { ttl, ..TERMS }, PERIOD);
    assert!(!retries.deposit(millis(499)));
    assert!(retries.deposit(millis(500)));
}

#[test]
fn some_are_prepaid_where_many_are_wanted() {
    let retries = retries();
    let mut round_trips = 0;
    let mut wants = Vec::new();
    for at in 0..100 {
        let now = millis(at);
        if retries.take(now) == Payment::Ask {
            let ask = retries.ask(now, 1);
            round_trips += 1;
            wants.push(ask.want);
            retries.answered(now, &ask, granted(ask.want));
            assert_eq!(retries.take_again(now), Payment::Paid);
        }
    }
    assert_eq!(wants[..5], [1, 2, 4, 8, 10]);
    assert!(round_trips <= 14, "{round_trips}");
}

#[test]
fn all_who_wait_are_asked_for_and_who_gave_up_has_had_its_part() {
    let retries = retries();
    for _ in 0..40 {
        assert_eq!(retries.take(millis(1)), Payment::Ask);
    }
    let ask = retries.ask(millis(1), 40);
    assert_eq!(ask.want, 40);
    for _ in 0..3 {
        retries.gave_up();
    }
    retries.answered(millis(60), &ask, granted(5));
    for _ in 0..2 {
        assert_eq!(retries.take_again(millis(60)), Payment::Paid);
    }
    assert_eq!(retries.take_again(millis(60)), Payment::Refused);
    // That was for this question.
    let ask = retries.ask(millis(500), 1);
    retries.answered(millis(501), &ask, granted(1));
    assert_eq!(retries.take_again(millis(501)), Payment::Paid);
}

#[test]
fn how_many_there_are_is_asked_about_as_often_as_deposits_are_told() {
    let retries = retries();
    let counts = (0..20_000).filter(|at| retries.counts(millis(*at)));
    assert_eq!(counts.collect::<Vec<_>>(), [0, 4375, 8750, 13_125, 17_500]);
    assert_eq!(retries.workers(), 1);
    retries.counted(8);
    assert_eq!(retries.workers(), 8);
    // Not while it is away, and then it is what it was.
    let ask = retries.ask(millis(20_000), 1);
    retries.answered(millis(20_000), &ask, Err(()));
    assert!(!retries.counts(millis(40_000)));
    assert_eq!(retries.workers(), 8);
}

#[test]
fn prepaid_ones_expire_and_are_given_back_with_the_next_question() {
    let retries = retries();
    assert_eq!(retries.take(Time::ZERO), Payment::Ask);
    let ask = retries.ask(Time::ZERO, 1);
    retries.answered(Time::ZERO, &ask, granted(3));
    assert_eq!(retries.take_again(millis(1)), Payment::Paid);
    assert_eq!(retries.take(millis(1999)), Payment::Paid);
    assert_eq!(retries.take(millis(2000)), Payment::Ask);
    assert_eq!(retries.ask(millis(2000), 1).unused, 1);
    // One that was not sent after all comes back the same way, however late.
    retries.put_back();
    assert_eq!(retries.flush(millis(9000)).unwrap().unused, 1);
    assert_eq!(retries.flush(millis(9001)).unwrap().unused, 0);
}

#[test]
fn a_herd_that_is_refused_does_not_ask_one_by_one() {
    let retries = retries();
    let mut asked = 0;
    for at in 0..1000 {
        let now = millis(at);
        for _call in 0..10 {
            match retries.take(now) {
                Payment::Ask => {
                    let ask = retries.ask(now, 1);
                    retries.answered(now, &ask, granted(0));
                    assert_eq!(retries.take_again(now), Payment::Refused);
                    asked += 1;
                }
                payment => assert_eq!(payment, Payment::Refused),
            }
        }
    }
    assert_eq!(asked, 10);
}

#[test]
fn while_the_store_is_away_one_asks_now_and_then_and_nobody_else_waits() {
    let retries = retries();
    let mut asked = Vec::new();
    for at in 0..6000 {
        let now = millis(at);
        if retries.take(now) == Payment::Ask {
            let ask = retries.ask(now, 1);
            asked.push(at);
            if at > 0 {
                assert!(retries.is_away());
                // While it is under way.
                assert_eq!(retries.take(now), Payment::Away);
                assert_eq!(retries.flush(now), None);
            }
            retries.answered(now, &ask, Err(()));
            // Another that was under way is not another failure.
            retries.answered(now, &ask, Err(()));
            assert_eq!(retries.take_again(now), Payment::Away);
        }
    }
    assert_eq!(asked, [0, 250, 750, 1750, 3750, 5750]);
    // Telling of deposits finds it, too.
    let now = millis(8000);
    let ask = retries.flush(now).unwrap();
    retries.answered(now, &ask, granted(0));
    assert!(!retries.is_away());
    assert_eq!(retries.take(now), Payment::Ask);
}

#[test]
fn a_call_that_is_dropped_while_it_asks_keeps_nobody_from_asking() {
    let retries = retries();
    let ask = retries.ask(Time::ZERO, 1);
    retries.answered(Time::ZERO, &ask, Err(()));
    assert_eq!(retries.take(millis(250)), Payment::Ask);
    assert_eq!(retries.take(millis(2249)), Payment::Away);
    assert_eq!(retries.take(millis(2250)), Payment::Ask);
}

#[tokio::test(start_paused = true)]
async fn two_workers_have_one_budget() {
    let store = MemoryStore::new();
    let workers = [retries(), retries()];
    let born = crate::clock::now();
    let now = || crate::clock::now() - born;
    let mut paid = 0;
    for call in 0..1000 {
        let retries = &workers[call % 2];
        if retries.deposit(now()) {
            let ask = retries.flush(now()).unwrap();
            let answer = store.retries("retry:a", ask).await;
            retries.answered(now(), &ask, answer.map_err(drop));
        }
        // Each call fails as well, and wants two retries.
        for _ in 0..2 {
            let mut payment = retries.take(now());
            if payment == Payment::Ask {
                let ask = retries.ask(now(), 1);
                let answer = store.retries("retry:a", ask).await;
                retries.answered(now(), &ask, answer.map_err(drop));
                payment = retries.take_again(now());
            }
            paid += u32::from(payment == Payment::Paid);
        }
        tokio::time::sleep(millis(5)).await;
    }
    // A fifth of the calls, and 20 within 10 s. The last deposits and the last prepaid may be on their way.
    assert!((190..=220).contains(&paid), "{paid}");
}
