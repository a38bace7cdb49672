use proptest::prelude::*;

use super::super::signal::Quota;
use super::half_open::LONG_HOLD;
use super::pace::{MIN_FIRST_RATE, MIN_RATE, interval, rise_time};
use super::*;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

const ACCEPTED: Signal = plain(SignalKind::Accepted);
const REFUSED: Signal = plain(SignalKind::Refused);
const FAILED: Signal = plain(SignalKind::Failed);
const LATE: Signal = plain(SignalKind::Late);

const fn plain(kind: SignalKind) -> Signal {
    Signal {
        kind,
        hint: None,
        quota: None,
    }
}

/// A controller, its clock, and the requests in flight. There is always another request to send.
struct World {
    controller: Controller,
    now: Time,
    in_flight: Vec<SendRecord>,
}

impl World {
    fn new() -> Self {
        Self {
            controller: Controller::new(1024),
            now: Time::ZERO,
            in_flight: Vec::new(),
        }
    }

    fn rate(&self) -> Option<f64> {
        self.controller.rate()
    }

    /// Every test here also checks that the limit which is shown agrees with the admission.
    fn admission(&mut self) -> Admission {
        let in_flight = self.in_flight.len() as u32;
        let shown = self.controller.limit_now(self.now, in_flight);
        let admission = self.controller.admission(self.now, in_flight);
        assert_eq!(shown.is_none(), admission == Admission::Now, "{shown:?}");
        admission
    }

    /// Sends all that may go now, and returns how many.
    fn send_all(&mut self) -> usize {
        let before = self.in_flight.len();
        while self.admission() == Admission::Now {
            self.in_flight.push(self.controller.send(self.now));
            assert!(self.in_flight.len() <= 1024);
        }
        self.in_flight.len() - before
    }

    /// Responds to the oldest request.
    fn respond(&mut self, signal: Signal) {
        let record = self.in_flight.remove(0);
        let left = self.in_flight.len() as u32;
        self.controller
            .on_response(self.now, record, &signal, left, true, 1.0);
    }

    fn respond_all(&mut self, signal: Signal) {
        while !self.in_flight.is_empty() {
            self.respond(signal);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Returns the time until a request may go.
    fn wait(&mut self) -> Duration {
        match self.admission() {
            Admission::Now => Duration::ZERO,
            Admission::At(time) => time - self.now,
            Admission::AfterResponse => panic!("waits for a response"),
        }
    }

    /// Returns how many go in this time, if the server accepts all at once.
    fn sent_in(&mut self, time: Duration) -> usize {
        let mut sent = 0;
        let end = self.now + time;
        while self.now < end {
            sent += self.send_all();
            self.respond_all(ACCEPTED);
            self.pass(MS);
        }
        sent
    }
}

/// A controller that searches for a pace, after one refusal: 50 requests were accepted in the first 100 ms.
fn paced() -> World {
    let mut world = World::new();
    for _ in 0..50 {
        let record = world.controller.send(world.now);
        world.in_flight.push(record);
    }
    world.respond_all(ACCEPTED);
    let record = world.controller.send(world.now);
    world.in_flight.push(record);
    world.respond_all(REFUSED);
    world.pass(100 * MS);
    assert_eq!(world.send_all(), 1);
    world.respond_all(ACCEPTED);
    let rate = world.rate().expect("a pace");
    assert!((rate - 510.0).abs() < 0.1, "{rate}");
    world
}

/// A controller whose search the server has refused, so that its pace follows the curve: from 255 to 382.5 per second.
fn on_the_curve() -> World {
    let mut world = paced();
    let wait = world.wait();
    world.pass(wait);
    assert_eq!(world.send_all(), 1);
    world.respond(REFUSED);
    world
}

#[test]
fn a_few_go_at_first_and_more_while_the_server_keeps_up() {
    let mut world = World::new();
    let mut rounds = Vec::new();
    for _ in 0..7 {
        rounds.push(world.send_all());
        world.pass(50 * MS);
        world.respond_all(ACCEPTED);
        world.pass(MS);
    }
    assert_eq!(rounds, [16, 36, 81, 182, 409, 921, 1024]);
}

#[test]
fn a_window_that_is_not_full_stays_as_it_is() {
    let mut world = World::new();
    for _ in 0..100 {
        let record = world.controller.send(world.now);
        world.pass(MS);
        let now = world.now;
        world
            .controller
            .on_response(now, record, &ACCEPTED, 0, false, 1.0);
    }
    assert_eq!(world.send_all(), 16);
}

#[test]
fn a_refusal_closes_for_a_moment_and_then_one_tries_for_all() {
    let mut world = World::new();
    assert_eq!(world.send_all(), 16);
    world.pass(2 * MS);
    for _ in 0..5 {
        world.respond(ACCEPTED);
    }
    // Eleven refusals of one burst count as one.
    world.respond_all(REFUSED);
    assert_eq!(world.wait(), 100 * MS);
    world.pass(100 * MS);
    assert_eq!(world.send_all(), 1);
    // The others wait for its response, or until it expires.
    assert_eq!(world.wait(), LONG_HOLD);
    world.pass(2 * MS);
    world.respond(ACCEPTED);
    // Six in 104 ms.
    let rate = world.rate().unwrap();
    assert!((rate - 6.0 / 0.104).abs() < 0.1, "{rate}");
    assert_eq!(world.wait(), interval(rate));
}

#[test]
fn holds_double_and_in_a_long_outage_go_on_to_grow() {
    let mut world = World::new();
    world.send_all();
    world.respond_all(REFUSED);
    let mut holds = Vec::new();
    for _ in 0..60 {
        let hold = world.wait();
        holds.push(hold);
        world.pass(hold);
        assert_eq!(world.send_all(), 1);
        world.respond(FAILED);
    }
    let first = [100, 200, 400, 800, 1600, 2000, 2000].map(|ms| ms * MS);
    assert_eq!(holds[..7], first);
    assert!(holds.is_sorted());
    // An eighth of the outage, and never more than half a minute.
    let passed: Duration = holds[..20].iter().sum();
    assert_eq!(holds[20], (passed / 8).max(2 * SEC));
    assert_eq!(*holds.last().unwrap(), 30 * SEC);
}

#[test]
fn failures_count_when_they_are_more_than_chance() {
    // Four in a row are not enough, five are.
    let mut world = World::new();
    world.send_all();
    for _ in 0..4 {
        world.respond(FAILED);
    }
    assert!(!world.controller.is_half_open());
    world.respond(ACCEPTED);
    for _ in 0..5 {
        world.respond(FAILED);
    }
    assert!(world.controller.is_half_open());

    // One of four is not enough, every second one is.
    for (period, trouble) in [(4, false), (2, true)] {
        let mut world = World::new();
        for index in 0..64 {
            world.send_all();
            if world.controller.is_half_open() {
                break;
            }
            let signal = if index % period == 0 {
                FAILED
            } else {
                ACCEPTED
            };
            world.respond(signal);
            world.pass(MS);
        }
        assert_eq!(world.controller.is_half_open(), trouble, "one of {period}");
    }
}

#[test]
fn a_503_that_asks_for_a_pause_is_a_refusal_and_one_that_asks_for_none_is_not() {
    for (hint, probing) in [(SEC, true), (Duration::ZERO, false)] {
        let mut world = World::new();
        world.send_all();
        let hint = Some(hint);
        world.respond(Signal { hint, ..FAILED });
        assert_eq!(world.controller.is_half_open(), probing);
    }
}

#[test]
fn a_hint_closes_for_at_least_so_long_and_not_for_ever() {
    for (hint, least, most) in [
        (10 * MS, 100 * MS, 100 * MS),
        (7 * SEC, 7 * SEC, 8 * SEC),
        (Duration::MAX, 3600 * SEC, 3601 * SEC),
    ] {
        for spread in [1.0, 1.1, 1.2499] {
            let mut world = World::new();
            let record = world.controller.send(world.now);
            let hint = Some(hint);
            let signal = Signal { hint, ..REFUSED };
            world
                .controller
                .on_response(world.now, record, &signal, 0, true, spread);
            let wait = world.wait();
            assert!(wait >= least && wait <= most.mul_f64(spread), "{wait:?}");
        }
    }
}

#[test]
fn a_refused_search_goes_back_to_the_rate_before() {
    let mut world = on_the_curve();
    assert!(!world.controller.is_half_open());
    let rate = world.rate().unwrap();
    assert!((rate - 510.0 * 0.5).abs() < 0.1, "{rate}");
    assert_eq!(world.wait(), 10 * MS);
    // If that does not help, a probe goes.
    world.pass(10 * MS);
    world.send_all();
    world.respond(REFUSED);
    assert!(world.controller.is_half_open());
    assert_eq!(world.wait(), 100 * MS);
}

#[test]
fn a_paced_server_that_refuses_once_is_asked_a_little_less() {
    // The more a refusal costs, the more the rate falls.
    for (hint, factor) in [
        (None, 0.85),
        (Some(499 * MS), 0.85),
        (Some(500 * MS), 0.7),
        (Some(SEC), 0.7),
    ] {
        let mut world = on_the_curve();
        world.pass(SHORT_HOLD);
        assert_eq!(world.send_all(), 1);
        world.respond(ACCEPTED);
        let wait = world.wait();
        world.pass(wait);
        assert_eq!(world.send_all(), 1);
        let refused = world.rate().unwrap();
        world.respond(Signal { hint, ..REFUSED });
        assert!(!world.controller.is_half_open());
        let rate = world.rate().unwrap();
        // Half of the requests at this pace were accepted, so the share has its lowest value.
        assert!((rate - refused * 0.7 * factor).abs() < 0.1, "{rate}");
    }
}

#[test]
fn a_pace_rises_slowly_if_a_refusal_costs_a_second() {
    let mut world = on_the_curve();
    world.sent_in(SHORT_HOLD + 100 * MS);
    world.pass(4 * MS);
    assert!(world.send_all() > 0);
    let hint = Some(SEC);
    world.respond_all(Signal { hint, ..REFUSED });
    let reference = world.rate().unwrap() / 0.7;
    world.sent_in(SEC);
    // It takes five times the pause to come back.
    world.sent_in(4900 * MS);
    let rate = world.rate().unwrap();
    assert!(rate < reference && rate > 0.99 * reference, "{rate}");
}

#[test]
fn no_hint_keeps_a_pace_low_for_longer_than_5_minutes() {
    for (hint, secs) in [(1, 5.0), (60, 300.0), (61, 300.0), (3600, 300.0)] {
        let rise_time = rise_time(100.0, 10 * MS, hint * SEC);
        assert_eq!(rise_time, secs, "{hint} s");
    }
    // After a pause of more than a minute, there is no pace at all.
    for (hint, is_kept) in [(59 * SEC, true), (61 * SEC, false), (Duration::MAX, false)] {
        let mut world = on_the_curve();
        world.pass(SHORT_HOLD);
        assert_eq!(world.send_all(), 1);
        let hint = Some(hint);
        world.respond(ACCEPTED);
        let wait = world.wait();
        world.pass(wait);
        assert_eq!(world.send_all(), 1);
        world.respond(Signal { hint, ..REFUSED });
        let wait = world.wait();
        world.pass(wait);
        assert!(world.send_all() > 0);
        assert_eq!(world.rate().is_some(), is_kept, "{hint:?}");
    }
}

#[test]
fn all_refusals_of_a_pause_share_its_jitter() {
    let mut world = World::new();
    world.send_all();
    let hint = Some(4 * SEC);
    let signal = Signal { hint, ..REFUSED };
    let spreads = [1.1, 1.249, 1.0];
    for (record, spread) in std::mem::take(&mut world.in_flight)
        .into_iter()
        .zip(spreads)
    {
        let now = world.now;
        (world.controller).on_response(now, record, &signal, 0, true, spread);
    }
    // The first one draws a tenth, and a quarter is the most.
    let wait = world.wait().as_secs_f64();
    assert!((wait - 4.4).abs() < 1e-6, "{wait}");
    // The next pause has its own.
    world.pass(5 * SEC);
    let probe = world.controller.send(world.now);
    let now = world.now;
    (world.controller).on_response(now, probe, &signal, 0, true, 1.25);
    assert_eq!(world.wait(), 5 * SEC);
}

#[test]
fn a_pace_lets_as_many_go_as_it_says() {
    let mut world = paced();
    let sent = world.sent_in(190 * MS);
    assert!((94..=98).contains(&sent), "510 per second: {sent}");
    // The search doubles the rate every 200 ms.
    let sent = world.sent_in(200 * MS);
    assert!((190..=206).contains(&sent), "{sent}");
}

#[test]
fn a_pace_rises_while_it_holds_calls_back_and_not_in_silence() {
    let mut world = paced();
    world.pass(30 * SEC);
    assert_eq!(world.rate().map(f64::round), Some(510.0));
    // After 30 s one request goes, not 30 s' worth of requests.
    assert!(world.send_all() <= 2);
    world.respond_all(ACCEPTED);
    assert!(world.sent_in(10 * SEC) > 50_000);
}

#[test]
fn a_pace_that_was_of_no_use_for_a_minute_is_forgotten() {
    let mut world = paced();
    world.pass(61 * SEC);
    assert_eq!(world.send_all(), 16);
    assert_eq!(world.rate(), None);
    // But not while it holds calls back.
    let mut world = paced();
    for _ in 0..70 {
        world.sent_in(MS);
        world.pass(900 * MS);
    }
    assert!(world.rate().is_some());
}

#[test]
fn a_probe_without_a_response_is_followed_by_another() {
    let mut world = World::new();
    world.send_all();
    world.respond_all(REFUSED);
    world.pass(100 * MS);
    assert_eq!(world.send_all(), 1);
    world.pass(LONG_HOLD);
    // As after any probe that failed.
    assert_eq!(world.wait(), 200 * MS);
    world.pass(200 * MS);
    assert_eq!(world.send_all(), 1);
    // A late response to the first probe counts as well.
    world.respond(ACCEPTED);
    assert!(!world.controller.is_half_open());
}

#[test]
fn requests_that_take_for_ever_do_not_keep_others_out() {
    let mut world = World::new();
    assert_eq!(world.send_all(), 16);
    for _ in 0..5 {
        assert_eq!(world.wait(), SILENCE);
        world.pass(SILENCE);
        assert_eq!(world.send_all(), 1);
    }
}

#[test]
fn what_was_asked_for_is_not_what_was_possible() {
    // Two per second, and none had to wait, when the server refused once.
    let mut world = World::new();
    for signal in [ACCEPTED, ACCEPTED, ACCEPTED, REFUSED] {
        let record = world.controller.send(world.now);
        world
            .controller
            .on_response(world.now, record, &signal, 0, false, 1.0);
        world.pass(500 * MS);
    }
    assert_eq!(world.send_all(), 1);
    world.respond(ACCEPTED);
    assert_eq!(world.rate(), Some(MIN_FIRST_RATE));
    assert!(world.controller.pace.as_ref().unwrap().search.is_some());
}

#[test]
fn a_quota_that_is_always_used_up_is_not_believed() {
    let mut world = World::new();
    let quota = Some(Quota {
        left: 0,
        reset: 60 * SEC,
    });
    world.send_all();
    world.respond(Signal { quota, ..ACCEPTED });
    assert_eq!(world.wait(), 60 * SEC);
    world.pass(60 * SEC);
    world.in_flight.clear();
    assert_eq!(world.send_all(), 1);
    world.respond(Signal { quota, ..ACCEPTED });
    assert!(world.wait() < SEC);
}

#[test]
fn callers_that_lose_interest_say_nothing_about_the_server() {
    let mut world = World::new();
    world.send_all();
    world.pass(150 * MS);
    for record in std::mem::take(&mut world.in_flight) {
        world.controller.on_abandoned(world.now, record, false, 1.0);
    }
    assert!(!world.controller.is_half_open());
    // Unless the server was silent for long, or they timed out.
    for (after, late) in [(2 * SEC, false), (150 * MS, true)] {
        let mut world = World::new();
        world.send_all();
        world.pass(after);
        for record in std::mem::take(&mut world.in_flight) {
            world.controller.on_abandoned(world.now, record, late, 1.0);
        }
        assert!(world.controller.is_half_open());
    }
}

#[test]
fn a_pace_returns_from_a_cut_and_goes_on() {
    let mut world = paced();
    world.sent_in(20 * MS);
    world.pass(2 * MS);
    assert!(world.send_all() > 0);
    world.respond_all(REFUSED);
    let low = world.rate().unwrap();
    let reference = low * 1.5;
    world.sent_in(510 * MS + SHORT_HOLD);
    let back = world.rate().unwrap();
    assert!((back / reference - 1.0).abs() < 0.02, "{back} {reference}");
    world.sent_in(2 * SEC);
    assert!(world.rate().unwrap() > 2.0 * reference);
}

#[test]
fn after_an_outage_without_a_measured_rate_it_searches() {
    let mut world = World::new();
    world.send_all();
    world.respond_all(FAILED);
    world.pass(10 * SEC);
    world.send_all();
    world.respond_all(ACCEPTED);
    let mut sent = Vec::new();
    for _ in 0..6 {
        sent.push(world.sent_in(400 * MS));
    }
    // 20 per second, and twice as many every 400 ms.
    for (sent, expected) in sent.iter().zip([8_usize, 16, 32, 64, 128, 256]) {
        assert!(
            sent.abs_diff(expected) <= expected / 4,
            "{sent} for {expected}"
        );
    }
}

#[test]
fn a_slow_pace_comes_back_even_from_the_lowest_rate() {
    let mut world = paced();
    for _ in 0..200 {
        let wait = world.wait();
        world.pass(wait);
        world.send_all();
        world.respond_all(REFUSED);
    }
    assert!(world.rate().unwrap() >= MIN_RATE);
    let mut seconds = 0;
    while world.sent_in(SEC) < 100 {
        seconds += 1;
        assert!(seconds < 600);
    }
}

#[test]
fn what_was_let_go_but_never_sent_leaves_no_trace() {
    let mut world = paced();
    let wait = world.wait();
    world.pass(wait);
    let before = world.controller.pace.as_ref().unwrap().next;
    let record = world.controller.send(world.now);
    world.controller.undo_send(record);
    assert!(world.controller.pace.as_ref().unwrap().next <= before + MS);
    assert_eq!(world.admission(), Admission::Now);

    // A probe that was not sent makes room for the next.
    let mut world = World::new();
    world.send_all();
    world.respond_all(REFUSED);
    world.pass(100 * MS);
    let probe = world.controller.send(world.now);
    assert_eq!(world.wait(), LONG_HOLD);
    world.controller.undo_send(probe);
    assert_eq!(world.admission(), Admission::Now);
    // So does a probe that is abandoned at once. Abandoned late, it has failed.
    let probe = world.controller.send(world.now);
    world.controller.on_abandoned(world.now, probe, false, 1.0);
    assert_eq!(world.admission(), Admission::Now);
    let probe = world.controller.send(world.now);
    world.pass(SEC);
    world.controller.on_abandoned(world.now, probe, false, 1.0);
    assert_eq!(world.wait(), 200 * MS);
}

#[test]
fn a_quota_is_trusted_if_its_reset_is_far_enough() {
    for (reset, closed) in [(3 * SEC, true), (2 * SEC, false), (Duration::ZERO, false)] {
        let mut world = World::new();
        world.send_all();
        let quota = Some(Quota { left: 0, reset });
        world.respond(Signal { quota, ..ACCEPTED });
        let until = world.controller.closed_until(world.now);
        let expected = if closed { reset } else { Duration::ZERO };
        assert_eq!(until - world.now, expected, "{reset:?}");
    }
}

#[test]
fn a_quota_is_used_up_to_its_end_and_then_one_asks_for_the_next() {
    let mut world = World::new();
    world.send_all();
    // 16 are in flight; the response to the first leaves 20, of which 15 are in flight.
    let reset = 10 * SEC;
    let quota = Some(Quota { left: 20, reset });
    world.respond(Signal { quota, ..ACCEPTED });
    world.pass(MS);
    let mut sent = 0;
    while world.admission() == Admission::Now {
        sent += 1;
        let record = world.controller.send(world.now);
        world.controller.on_response(
            world.now,
            record,
            &plain(SignalKind::Unknown),
            15,
            true,
            1.0,
        );
        world.pass(2 * MS);
    }
    // Held by the window or by the quota, but never beyond it.
    assert!(sent <= 5, "{sent}");
    world.respond_all(ACCEPTED);
    world.pass(2 * MS);
    sent += world.send_all();
    assert_eq!(sent, 5);
    world.respond_all(ACCEPTED);
    let wait = world.wait();
    assert!(wait > 9 * SEC && wait <= reset, "{wait:?}");
    world.pass(wait);
    assert_eq!(world.send_all(), 1);
    assert!(world.controller.is_half_open());
}

#[test]
fn an_older_response_does_not_bring_an_older_quota_back() {
    let mut world = World::new();
    world.send_all();
    let older = world.in_flight.remove(0);
    let newer = world.in_flight.remove(0);
    let says = |left| Signal {
        quota: Some(Quota {
            left,
            reset: 60 * SEC,
        }),
        ..ACCEPTED
    };
    world
        .controller
        .on_response(world.now, newer, &says(1000), 14, false, 1.0);
    world
        .controller
        .on_response(world.now, older, &says(0), 13, false, 1.0);
    assert_eq!(world.controller.closed_until(world.now), world.now);
}

#[test]
fn a_server_that_responds_late_gets_fewer_at_once() {
    let mut world = World::new();
    world.send_all();
    world.pass(SEC);
    for _ in 0..4 {
        world.respond(LATE);
        world.respond(ACCEPTED);
    }
    let before = world.controller.window.size;
    assert!(before >= 16.0, "{before}");
    world.respond(LATE);
    assert_eq!(world.controller.window.size, before / 2.0);
    // All responses to one burst count once.
    world.respond(LATE);
    assert_eq!(world.controller.window.size, before / 2.0);
}

/// What can happen to a controller.
#[derive(Clone, Debug)]
enum Event {
    Send,
    Unsend,
    Respond(usize, SignalKind, Option<u64>, Option<(u64, u64)>),
    Abandon(usize, bool),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        Just(SignalKind::Accepted),
        Just(SignalKind::Refused),
        Just(SignalKind::Failed),
        Just(SignalKind::Late),
        Just(SignalKind::Unknown),
    ];
    let seconds = prop_oneof![0..5_u64, 0..100_000_u64, Just(u64::MAX)];
    let quota = (prop_oneof![0..20_u64, Just(u64::MAX)], seconds.clone());
    prop_oneof![
        4 => Just(Event::Send),
        1 => Just(Event::Unsend),
        4 => (0..50_usize, kind, proptest::option::weighted(0.1, seconds), proptest::option::weighted(0.1, quota))
            .prop_map(|(which, kind, hint, quota)| Event::Respond(which, kind, hint, quota)),
        1 => (0..50_usize, any::<bool>()).prop_map(|(which, late)| Event::Abandon(which, late)),
        3 => prop_oneof![0..5_u64, 0..500_u64, 0..100_000_u64, 0..10_000_000_u64].prop_map(Event::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever happens, nothing panics, and in the end a request may go again.
    #[test]
    fn no_controller_is_ever_stuck(events in proptest::collection::vec(event(), 0..300), most in 1..40_u32) {
        let mut controller = Controller::new(most);
        let mut now = Time::ZERO;
        let mut in_flight: Vec<SendRecord> = Vec::new();
        for event in events {
            match event {
                Event::Send | Event::Unsend => {
                    let count = in_flight.len() as u32;
                    if count >= most {
                        // The gate checks this limit.
                        continue;
                    }
                    match controller.admission(now, count) {
                        Admission::Now => {
                            let record = controller.send(now);
                            if let Event::Unsend = event {
                                controller.undo_send(record);
                            } else {
                                in_flight.push(record);
                            }
                        }
                        Admission::At(time) => prop_assert!(time > now),
                        Admission::AfterResponse => prop_assert!(!in_flight.is_empty()),
                    }
                }
                Event::Respond(which, kind, hint, quota) if which < in_flight.len() => {
                    let record = in_flight.remove(which);
                    let signal = Signal {
                        kind,
                        hint: hint.map(Duration::from_secs),
                        quota: quota.map(|(left, reset)| Quota {
                            left,
                            reset: Duration::from_secs(reset),
                        }),
                    };
                    controller.on_response(now, record, &signal, in_flight.len() as u32, which % 2 == 0, 1.1);
                }
                Event::Abandon(which, late) if which < in_flight.len() => {
                    let record = in_flight.remove(which);
                    controller.on_abandoned(now, record, late, 1.1);
                }
                Event::Pass(ms) => now += Duration::from_millis(ms),
                Event::Respond(..) | Event::Abandon(..) => {}
            }
            let rate = controller.rate().unwrap_or(1.0);
            prop_assert!(rate.is_finite() && rate >= MIN_RATE, "{rate}");
            prop_assert!(controller.window.size >= 1.0 && controller.window.size <= f64::from(most));
        }
        for record in in_flight {
            controller.on_abandoned(now, record, false, 1.1);
        }
        now += MAX_PAUSE + 2 * MAX_PAUSE_JITTER;
        let mut admission = controller.admission(now, 0);
        // A quota may have its reset now. A pace waits at most one interval at its lowest rate.
        if let Admission::At(time) = admission {
            prop_assert!(time - now <= Duration::from_secs(40), "{:?}", time - now);
            now = time;
            admission = controller.admission(now, 0);
        }
        prop_assert_eq!(admission, Admission::Now);
    }
}

#[test]
fn a_new_controller_heeds_a_pace_and_a_pause() {
    let mut paced = World::new();
    paced.controller.adopt_rate(paced.now, 10.0);
    assert!(paced.send_all() < 16);

    let mut paused = World::new();
    paused.send_all();
    let hint = Some(SEC);
    paused.respond(Signal { hint, ..ACCEPTED });
    assert!(
        matches!(paused.admission(), Admission::At(at) if at >= SEC),
        "{:?}",
        paused.admission()
    );
}
