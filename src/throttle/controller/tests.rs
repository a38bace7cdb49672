use proptest::prelude::*;

use super::super::signal::Quota;
use super::half_open::LONG_HOLD;
use super::pace::{INITIAL_RATE, MIN_RATE, interval};
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

/// A controller, its clock, and what is in flight. More than enough always want to go.
struct World {
    controller: Controller,
    now: Time,
    flying: Vec<SendRecord>,
}

impl World {
    fn new() -> Self {
        Self {
            controller: Controller::new(1024),
            now: Time::ZERO,
            flying: Vec::new(),
        }
    }

    fn rate(&self) -> Option<f64> {
        self.controller.rate()
    }

    fn turn(&mut self) -> Admission {
        self.controller
            .admission(self.now, self.flying.len() as u32)
    }

    /// Sends all that may go now, and says how many that are.
    fn send_all(&mut self) -> usize {
        let before = self.flying.len();
        while self.turn() == Admission::Now {
            self.flying.push(self.controller.send(self.now));
            assert!(self.flying.len() <= 1024);
        }
        self.flying.len() - before
    }

    /// Answers the oldest.
    fn respond(&mut self, signal: Signal) {
        let record = self.flying.remove(0);
        let left = self.flying.len() as u32;
        self.controller
            .on_response(self.now, record, &signal, left, true, 1.0);
    }

    fn respond_all(&mut self, signal: Signal) {
        while !self.flying.is_empty() {
            self.respond(signal);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// The time until somebody may go.
    fn wait(&mut self) -> Duration {
        match self.turn() {
            Admission::Now => Duration::ZERO,
            Admission::At(time) => time - self.now,
            Admission::AfterResponse => panic!("waits for an answer"),
        }
    }

    /// How many go in this time, if all are accepted at once.
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

/// One that was refused at first and has a pace since: 50 were accepted in the first 100 ms.
fn paced() -> World {
    let mut world = World::new();
    for _ in 0..50 {
        let record = world.controller.send(world.now);
        world.flying.push(record);
    }
    world.respond_all(ACCEPTED);
    let record = world.controller.send(world.now);
    world.flying.push(record);
    world.respond_all(REFUSED);
    world.pass(100 * MS);
    assert_eq!(world.send_all(), 1);
    world.respond_all(ACCEPTED);
    let rate = world.rate().expect("a pace");
    assert!((rate - 510.0).abs() < 0.1, "{rate}");
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
fn a_window_that_nobody_fills_stays_as_it_is() {
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
    // Eleven refusals of one burst are one refusal.
    world.respond_all(REFUSED);
    assert_eq!(world.wait(), 100 * MS);
    world.pass(100 * MS);
    assert_eq!(world.send_all(), 1);
    // The others wait for its answer, or for as long as one may take.
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
fn a_paced_server_that_refuses_once_is_asked_a_little_less() {
    let mut world = paced();
    let wait = world.wait();
    world.pass(wait);
    assert_eq!(world.send_all(), 1);
    world.respond(REFUSED);
    assert!(!world.controller.is_half_open());
    let rate = world.rate().unwrap();
    // Nothing was accepted at this pace yet, so the share counts as little as it may.
    assert!((rate - 510.0 * 0.7 * 0.85).abs() < 1.0, "{rate}");
    assert_eq!(world.wait(), 10 * MS);
    // And if that does not help, one tries for all again.
    world.pass(10 * MS);
    world.send_all();
    world.respond(REFUSED);
    assert!(world.controller.is_half_open());
    assert_eq!(world.wait(), 100 * MS);
}

#[test]
fn a_pace_lets_as_many_go_as_it_says() {
    let mut world = paced();
    let sent = world.sent_in(400 * MS);
    // 510 a second, and a little more in the end.
    assert!((200..220).contains(&sent), "{sent}");
}

#[test]
fn a_pace_rises_while_it_holds_calls_back_and_not_in_silence() {
    let mut world = paced();
    world.pass(30 * SEC);
    assert_eq!(world.rate().map(f64::round), Some(510.0));
    // After half a minute it lets one go, and not half a minute's worth.
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
fn a_probe_without_an_answer_is_followed_by_another() {
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
    // If the first one comes back after all, that is as good.
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
    // Two a second, and none had to wait, when the server refused once.
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
    assert_eq!(world.rate(), Some(INITIAL_RATE));
    assert!(world.controller.pace.as_ref().unwrap().searching);
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
    world.flying.clear();
    assert_eq!(world.send_all(), 1);
    world.respond(Signal { quota, ..ACCEPTED });
    assert!(world.wait() < SEC);
}

#[test]
fn callers_that_lose_interest_say_nothing_about_the_server() {
    let mut world = World::new();
    world.send_all();
    world.pass(150 * MS);
    for record in std::mem::take(&mut world.flying) {
        world.controller.on_abandoned(world.now, record, false, 1.0);
    }
    assert!(!world.controller.is_half_open());
    // Unless nothing came back for long; or it is known why they left.
    for (after, late) in [(2 * SEC, false), (150 * MS, true)] {
        let mut world = World::new();
        world.send_all();
        world.pass(after);
        for record in std::mem::take(&mut world.flying) {
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
    let reference = low / 0.85;
    world.sent_in(510 * MS + SHORT_HOLD);
    let back = world.rate().unwrap();
    assert!((back / reference - 1.0).abs() < 0.02, "{back} {reference}");
    world.sent_in(2 * SEC);
    assert!(world.rate().unwrap() > 2.0 * reference);
}

#[test]
fn after_an_outage_of_which_nothing_is_known_the_rate_is_searched_for() {
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
    // 20 a second, and twice as many every 400 ms.
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
    assert_eq!(world.turn(), Admission::Now);

    // A probe makes room for the next.
    let mut world = World::new();
    world.send_all();
    world.respond_all(REFUSED);
    world.pass(100 * MS);
    let probe = world.controller.send(world.now);
    assert_eq!(world.wait(), LONG_HOLD);
    world.controller.undo_send(probe);
    assert_eq!(world.turn(), Admission::Now);
    // So does one that is given up at once; one that is given up late has failed.
    let probe = world.controller.send(world.now);
    world.controller.on_abandoned(world.now, probe, false, 1.0);
    assert_eq!(world.turn(), Admission::Now);
    let probe = world.controller.send(world.now);
    world.pass(SEC);
    world.controller.on_abandoned(world.now, probe, false, 1.0);
    assert_eq!(world.wait(), 200 * MS);
}

#[test]
fn a_quota_is_trusted_if_its_reset_is_far_enough() {
    for (reset, closed) in [(2 * SEC, true), (SEC, false), (Duration::ZERO, false)] {
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
    // 16 are out; the answer to the first leaves 20, of which 15 are under way.
    let reset = 10 * SEC;
    let quota = Some(Quota { left: 20, reset });
    world.respond(Signal { quota, ..ACCEPTED });
    world.pass(MS);
    let mut sent = 0;
    while world.turn() == Admission::Now {
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
fn an_older_answer_does_not_bring_an_older_quota_back() {
    let mut world = World::new();
    world.send_all();
    let older = world.flying.remove(0);
    let newer = world.flying.remove(0);
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
fn a_server_that_answers_late_gets_fewer_at_once() {
    let mut world = World::new();
    world.send_all();
    world.pass(SEC);
    for _ in 0..4 {
        world.respond(LATE);
        world.respond(ACCEPTED);
    }
    let before = world.controller.window.size();
    assert!(before >= 16.0, "{before}");
    world.respond(LATE);
    assert_eq!(world.controller.window.size(), before / 2.0);
    // All of one burst count once.
    world.respond(LATE);
    assert_eq!(world.controller.window.size(), before / 2.0);
}

/// What may happen to a controller.
#[derive(Clone, Debug)]
enum Event {
    Send,
    Unsend,
    Answer(usize, SignalKind, Option<u64>, Option<(u64, u64)>),
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
            .prop_map(|(which, kind, hint, quota)| Event::Answer(which, kind, hint, quota)),
        1 => (0..50_usize, any::<bool>()).prop_map(|(which, late)| Event::Abandon(which, late)),
        3 => prop_oneof![0..5_u64, 0..500_u64, 0..100_000_u64, 0..10_000_000_u64].prop_map(Event::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever has happened, nothing panics, one probe is out at a time, and in the end somebody may
    /// go again.
    #[test]
    fn no_law_is_ever_stuck(events in proptest::collection::vec(event(), 0..300), most in 1..40_u32) {
        let mut controller = Controller::new(most);
        let mut now = Time::ZERO;
        let mut flying: Vec<SendRecord> = Vec::new();
        for event in events {
            match event {
                Event::Send | Event::Unsend => {
                    let in_flight = flying.len() as u32;
                    if in_flight >= most {
                        // The gate itself sees to that.
                        continue;
                    }
                    match controller.admission(now, in_flight) {
                        Admission::Now => {
                            let record = controller.send(now);
                            if let Event::Unsend = event {
                                controller.undo_send(record);
                            } else {
                                flying.push(record);
                            }
                        }
                        Admission::At(time) => prop_assert!(time > now),
                        Admission::AfterResponse => prop_assert!(!flying.is_empty()),
                    }
                }
                Event::Answer(which, kind, hint, quota) if which < flying.len() => {
                    let record = flying.remove(which);
                    let signal = Signal {
                        kind,
                        hint: hint.map(Duration::from_secs),
                        quota: quota.map(|(left, reset)| Quota {
                            left,
                            reset: Duration::from_secs(reset),
                        }),
                    };
                    controller.on_response(now, record, &signal, flying.len() as u32, which % 2 == 0, 1.1);
                }
                Event::Abandon(which, late) if which < flying.len() => {
                    let record = flying.remove(which);
                    controller.on_abandoned(now, record, late, 1.1);
                }
                Event::Pass(ms) => now += Duration::from_millis(ms),
                Event::Answer(..) | Event::Abandon(..) => {}
            }
            let rate = controller.rate().unwrap_or(1.0);
            prop_assert!(rate.is_finite() && rate >= MIN_RATE, "{rate}");
            prop_assert!(controller.window.size() >= 1.0 && controller.window.size() <= f64::from(most));
        }
        for record in flying {
            controller.on_abandoned(now, record, false, 1.1);
        }
        now += MAX_PAUSE + 2 * MAX_PAUSE_JITTER;
        let mut turn = controller.admission(now, 0);
        // A quota may be over just now; a pace waits for no longer than its slowest step.
        if let Admission::At(time) = turn {
            prop_assert!(time - now <= Duration::from_secs(40), "{:?}", time - now);
            now = time;
            turn = controller.admission(now, 0);
        }
        prop_assert_eq!(turn, Admission::Now);
    }
}

#[test]
fn a_pace_or_a_pause_holds_a_law_that_knew_nothing_but_its_window() {
    let mut paced = World::new();
    paced.controller.adopt_rate(paced.now, 10.0);
    assert!(paced.send_all() < 16);

    let mut paused = World::new();
    paused.send_all();
    let hint = Some(SEC);
    paused.respond(Signal { hint, ..ACCEPTED });
    assert!(
        matches!(paused.turn(), Admission::At(at) if at >= SEC),
        "{:?}",
        paused.turn()
    );
}
