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

fn retries() -> WorkerRetries {
    WorkerRetries::new(TERMS, PERIOD)
}

fn granted(granted: u32) -> Result<Retries, ()> {
    Ok(Retries {
        granted,
        balance: 0.0,
    })
}

#[test]
fn deposits_are_reported_twice_per_ttl_by_one_caller() {
    let retries = retries();
    let mut reported = Vec::new();
    for at in 0..20_000 {
        if retries.deposit(millis(at)) {
            let ask = retries.report(millis(at)).unwrap();
            assert_eq!(ask.want, 0);
            reported.push((at, ask.deposits));
            retries.receive(millis(at), &ask, granted(0));
        }
    }
    assert_eq!(reported, [(5000, 5001), (10_000, 5000), (15_000, 5000)]);
    // An ask for a retry carries them too, and the next report is due later.
    let ask = retries.ask(millis(20_000), 1);
    assert_eq!((ask.deposits, ask.want), (4999, 1));
    assert!(!retries.deposit(millis(24_999)));
    assert!(retries.deposit(millis(25_000)));
    assert!(!retries.deposit(millis(25_000)));
}

#[test]
fn deposits_with_a_short_ttl_are_reported_once_per_period() {
    let ttl = Duration::from_millis(900);
    let retries = WorkerRetries::new(RetryTerms { ttl, ..TERMS }, PERIOD);
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
            retries.receive(now, &ask, granted(ask.want));
            assert_eq!(retries.take_again(now), Payment::Paid);
        }
    }
    assert_eq!(wants[..5], [1, 2, 4, 8, 10]);
    assert!(round_trips <= 14, "{round_trips}");
}

#[test]
fn an_ask_covers_all_waiting_calls_and_those_that_gave_up() {
    let retries = retries();
    for _ in 0..40 {
        assert_eq!(retries.take(millis(1)), Payment::Ask);
    }
    let ask = retries.ask(millis(1), 40);
    assert_eq!(ask.want, 40);
    for _ in 0..3 {
        retries.give_up();
    }
    retries.receive(millis(60), &ask, granted(5));
    for _ in 0..2 {
        assert_eq!(retries.take_again(millis(60)), Payment::Paid);
    }
    assert_eq!(retries.take_again(millis(60)), Payment::Refused);
    // That was only for the first ask.
    let ask = retries.ask(millis(500), 1);
    retries.receive(millis(501), &ask, granted(1));
    assert_eq!(retries.take_again(millis(501)), Payment::Paid);
}

#[test]
fn a_worker_announces_itself_as_often_as_it_reports() {
    let retries = retries();
    let counts = (0..20_000).filter(|at| retries.must_announce(millis(*at)).is_some());
    assert_eq!(counts.collect::<Vec<_>>(), [0, 4375, 8750, 13_125, 17_500]);
    assert_eq!(retries.workers(), 1);
    retries.set_workers(8);
    assert_eq!(retries.workers(), 8);
    // Not during an outage: the number stays.
    let ask = retries.ask(millis(20_000), 1);
    retries.receive(millis(20_000), &ask, Err(()));
    assert_eq!(retries.must_announce(millis(40_000)), None);
    assert_eq!(retries.workers(), 8);
}

#[test]
fn prepaid_retries_expire_and_go_back_with_the_next_ask() {
    let retries = retries();
    assert_eq!(retries.take(Time::ZERO), Payment::Ask);
    let ask = retries.ask(Time::ZERO, 1);
    retries.receive(Time::ZERO, &ask, granted(3));
    assert_eq!(retries.take_again(millis(1)), Payment::Paid);
    assert_eq!(retries.take(millis(1999)), Payment::Paid);
    assert_eq!(retries.take(millis(2000)), Payment::Ask);
    assert_eq!(retries.ask(millis(2000), 1).unused, 1);
    // A retry that was not sent comes back the same way, however late.
    retries.put_back();
    assert_eq!(retries.report(millis(9000)).unwrap().unused, 1);
    assert_eq!(retries.report(millis(9001)).unwrap().unused, 0);
}

#[test]
fn refused_calls_do_not_ask_one_by_one() {
    let retries = retries();
    let mut asked = 0;
    for at in 0..1000 {
        let now = millis(at);
        for _call in 0..10 {
            match retries.take(now) {
                Payment::Ask => {
                    let ask = retries.ask(now, 1);
                    retries.receive(now, &ask, granted(0));
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
fn a_lost_store_is_probed_by_one_call_now_and_then() {
    let retries = retries();
    let mut asked = Vec::new();
    for at in 0..6000 {
        let now = millis(at);
        if retries.take(now) == Payment::Ask {
            let ask = retries.ask(now, 1);
            asked.push(at);
            if at > 0 {
                assert!(retries.is_store_lost());
                // While the probe is under way.
                assert_eq!(retries.take(now), Payment::StoreLost);
                assert_eq!(retries.report(now), None);
            }
            retries.receive(now, &ask, Err(()));
            // Another ask that was under way is not another failure.
            retries.receive(now, &ask, Err(()));
            assert_eq!(retries.take_again(now), Payment::StoreLost);
        }
    }
    assert_eq!(asked, [0, 250, 750, 1750, 3750, 5750]);
    // A report of deposits finds it too.
    let now = millis(8000);
    let ask = retries.report(now).unwrap();
    retries.receive(now, &ask, granted(0));
    assert!(!retries.is_store_lost());
    assert_eq!(retries.take(now), Payment::Ask);
}

#[test]
fn a_call_dropped_while_it_asks_does_not_block_others() {
    let retries = retries();
    let ask = retries.ask(Time::ZERO, 1);
    retries.receive(Time::ZERO, &ask, Err(()));
    assert_eq!(retries.take(millis(250)), Payment::Ask);
    assert_eq!(retries.take(millis(2249)), Payment::StoreLost);
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
            let ask = retries.report(now()).unwrap();
            let result = store.retries("retry:a", ask).await;
            retries.receive(now(), &ask, result.map_err(drop));
        }
        // Each call fails as well, and wants two retries.
        for _ in 0..2 {
            let mut payment = retries.take(now());
            if payment == Payment::Ask {
                let ask = retries.ask(now(), 1);
                let result = store.retries("retry:a", ask).await;
                retries.receive(now(), &ask, result.map_err(drop));
                payment = retries.take_again(now());
            }
            paid += u32::from(payment == Payment::Paid);
        }
        tokio::time::sleep(millis(5)).await;
    }
    // A fifth of the calls, and a pool of 20. The last deposits and the last prepaid may be under way.
    assert!((190..=220).contains(&paid), "{paid}");
}
