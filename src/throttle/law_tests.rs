use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

const ACCEPTED: Answer = plain(Ending::Accepted);
const REFUSED: Answer = plain(Ending::Refused);
const FAILED: Answer = plain(Ending::Failed);
const LATE: Answer = plain(Ending::Late);

const fn plain(ending: Ending) -> Answer {
    Answer {
        ending,
        hint: None,
        quota: None,
    }
}

/// A law, its clock, and what is in flight. More than enough always want to go.
struct World {
    law: Law,
    now: Time,
    flying: Vec<Ticket>,
}

impl World {
    fn new() -> Self {
        Self {
            law: Law::new(1024),
            now: Time::ZERO,
            flying: Vec::new(),
        }
    }

    fn rate(&self) -> Option<f64> {
        self.law.pace.as_ref().map(|pace| pace.rate)
    }

    fn turn(&mut self) -> Turn {
        self.law.turn(self.now, self.flying.len() as u32)
    }

    /// Sends all that may go now, and says how many that are.
    fn send_all(&mut self) -> usize {
        let before = self.flying.len();
        while self.turn() == Turn::Now {
            self.flying.push(self.law.send(self.now));
            assert!(self.flying.len() <= 1024);
        }
        self.flying.len() - before
    }

    /// Answers the oldest.
    fn answer(&mut self, answer: Answer) {
        let ticket = self.flying.remove(0);
        let left = self.flying.len() as u32;
        self.law
            .answered(self.now, ticket, &answer, left, true, 1.0);
    }

    fn answer_all(&mut self, answer: Answer) {
        while !self.flying.is_empty() {
            self.answer(answer);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// The time until somebody may go.
    fn wait(&mut self) -> Duration {
        match self.turn() {
            Turn::Now => Duration::ZERO,
            Turn::At(time) => time - self.now,
            Turn::AfterAnswer => panic!("waits for an answer"),
        }
    }

    /// How many go in this time, if all are accepted at once.
    fn sent_in(&mut self, time: Duration) -> usize {
        let mut sent = 0;
        let end = self.now + time;
        while self.now < end {
            sent += self.send_all();
            self.answer_all(ACCEPTED);
            self.pass(MS);
        }
        sent
    }
}

/// One that was refused at first and has a pace since: 50 were accepted in the first 100 ms.
fn paced() -> World {
    let mut world = World::new();
    for _ in 0..50 {
        let ticket = world.law.send(world.now);
        world.flying.push(ticket);
    }
    world.answer_all(ACCEPTED);
    let ticket = world.law.send(world.now);
    world.flying.push(ticket);
    world.answer_all(REFUSED);
    world.pass(100 * MS);
    assert_eq!(world.send_all(), 1);
    world.answer_all(ACCEPTED);
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
        world.answer_all(ACCEPTED);
        world.pass(MS);
    }
    assert_eq!(rounds, [16, 36, 81, 182, 409, 921, 1024]);
}

#[test]
fn a_window_that_nobody_fills_stays_as_it_is() {
    let mut world = World::new();
    for _ in 0..100 {
        let ticket = world.law.send(world.now);
        world.pass(MS);
        let now = world.now;
        world.law.answered(now, ticket, &ACCEPTED, 0, false, 1.0);
    }
    assert_eq!(world.send_all(), 16);
}

#[test]
fn a_refusal_closes_for_a_moment_and_then_one_tries_for_all() {
    let mut world = World::new();
    assert_eq!(world.send_all(), 16);
    world.pass(2 * MS);
    for _ in 0..5 {
        world.answer(ACCEPTED);
    }
    // Eleven refusals of one burst are one refusal.
    world.answer_all(REFUSED);
    assert_eq!(world.wait(), 100 * MS);
    world.pass(100 * MS);
    assert_eq!(world.send_all(), 1);
    // The others wait for its answer, or for as long as one may take.
    assert_eq!(world.wait(), LONG_HOLD);
    world.pass(2 * MS);
    world.answer(ACCEPTED);
    // Six in 104 ms.
    let rate = world.rate().unwrap();
    assert!((rate - 6.0 / 0.104).abs() < 0.1, "{rate}");
    assert_eq!(world.wait(), seconds(1.0 / rate));
}

#[test]
fn holds_double_and_in_a_long_outage_go_on_to_grow() {
    let mut world = World::new();
    world.send_all();
    world.answer_all(REFUSED);
    let mut holds = Vec::new();
    for _ in 0..60 {
        let hold = world.wait();
        holds.push(hold);
        world.pass(hold);
        assert_eq!(world.send_all(), 1);
        world.answer(FAILED);
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
        world.answer(FAILED);
    }
    assert!(!world.law.is_probing());
    world.answer(ACCEPTED);
    for _ in 0..5 {
        world.answer(FAILED);
    }
    assert!(world.law.is_probing());

    // One of four is not enough, every second one is.
    for (period, trouble) in [(4, false), (2, true)] {
        let mut world = World::new();
        for index in 0..64 {
            world.send_all();
            if world.law.is_probing() {
                break;
            }
            let answer = if index % period == 0 {
                FAILED
            } else {
                ACCEPTED
            };
            world.answer(answer);
            world.pass(MS);
        }
        assert_eq!(world.law.is_probing(), trouble, "one of {period}");
    }
}

#[test]
fn a_503_that_asks_for_a_pause_is_a_refusal_and_one_that_asks_for_none_is_not() {
    for (hint, probing) in [(SEC, true), (Duration::ZERO, false)] {
        let mut world = World::new();
        world.send_all();
        let hint = Some(hint);
        world.answer(Answer { hint, ..FAILED });
        assert_eq!(world.law.is_probing(), probing);
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
            let ticket = world.law.send(world.now);
            let hint = Some(hint);
            let answer = Answer { hint, ..REFUSED };
            world
                .law
                .answered(world.now, ticket, &answer, 0, true, spread);
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
    world.answer(REFUSED);
    assert!(!world.law.is_probing());
    let rate = world.rate().unwrap();
    // Nothing was accepted at this pace yet, so the share counts as little as it may.
    assert!((rate - 510.0 * 0.7 * 0.85).abs() < 1.0, "{rate}");
    assert_eq!(world.wait(), 10 * MS);
    // And if that does not help, one tries for all again.
    world.pass(10 * MS);
    world.send_all();
    world.answer(REFUSED);
    assert!(world.law.is_probing());
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
    world.answer_all(ACCEPTED);
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
    world.answer_all(REFUSED);
    world.pass(100 * MS);
    assert_eq!(world.send_all(), 1);
    world.pass(LONG_HOLD);
    // As after any probe that failed.
    assert_eq!(world.wait(), 200 * MS);
    world.pass(200 * MS);
    assert_eq!(world.send_all(), 1);
    // If the first one comes back after all, that is as good.
    world.answer(ACCEPTED);
    assert!(!world.law.is_probing());
}

#[test]
fn requests_that_take_for_ever_do_not_keep_others_out() {
    let mut world = World::new();
    assert_eq!(world.send_all(), 16);
    for _ in 0..5 {
        assert_eq!(world.wait(), LONG_SILENCE);
        world.pass(LONG_SILENCE);
        assert_eq!(world.send_all(), 1);
    }
}

#[test]
fn what_was_asked_for_is_not_what_was_possible() {
    // Two a second, and none had to wait, when the server refused once.
    let mut world = World::new();
    for answer in [ACCEPTED, ACCEPTED, ACCEPTED, REFUSED] {
        let ticket = world.law.send(world.now);
        world
            .law
            .answered(world.now, ticket, &answer, 0, false, 1.0);
        world.pass(500 * MS);
    }
    assert_eq!(world.send_all(), 1);
    world.answer(ACCEPTED);
    assert_eq!(world.rate(), Some(FIRST_RATE));
    assert!(world.law.pace.as_ref().unwrap().searching);
}

#[test]
fn a_quota_that_is_always_used_up_is_not_believed() {
    let mut world = World::new();
    let quota = Some(Quota {
        left: 0,
        reset: 60 * SEC,
    });
    world.send_all();
    world.answer(Answer { quota, ..ACCEPTED });
    assert_eq!(world.wait(), 60 * SEC);
    world.pass(60 * SEC);
    world.flying.clear();
    assert_eq!(world.send_all(), 1);
    world.answer(Answer { quota, ..ACCEPTED });
    assert!(world.wait() < SEC);
}

#[test]
fn callers_that_lose_interest_say_nothing_about_the_server() {
    let mut world = World::new();
    world.send_all();
    world.pass(150 * MS);
    for ticket in std::mem::take(&mut world.flying) {
        world.law.abandoned(world.now, ticket, false, 1.0);
    }
    assert!(!world.law.is_probing());
    // Unless nothing came back for long; or it is known why they left.
    for (after, late) in [(2 * SEC, false), (150 * MS, true)] {
        let mut world = World::new();
        world.send_all();
        world.pass(after);
        for ticket in std::mem::take(&mut world.flying) {
            world.law.abandoned(world.now, ticket, late, 1.0);
        }
        assert!(world.law.is_probing());
    }
}

#[test]
fn a_pace_returns_from_a_cut_and_goes_on() {
    let mut world = paced();
    world.sent_in(20 * MS);
    world.pass(2 * MS);
    assert!(world.send_all() > 0);
    world.answer_all(REFUSED);
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
    world.answer_all(FAILED);
    world.pass(10 * SEC);
    world.send_all();
    world.answer_all(ACCEPTED);
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
        world.answer_all(REFUSED);
    }
    assert!(world.rate().unwrap() >= LEAST_RATE);
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
    let before = world.law.pace.as_ref().unwrap().next;
    let ticket = world.law.send(world.now);
    world.law.unsend(ticket);
    assert!(world.law.pace.as_ref().unwrap().next <= before + MS);
    assert_eq!(world.turn(), Turn::Now);

    // A probe makes room for the next.
    let mut world = World::new();
    world.send_all();
    world.answer_all(REFUSED);
    world.pass(100 * MS);
    let probe = world.law.send(world.now);
    assert_eq!(world.wait(), LONG_HOLD);
    world.law.unsend(probe);
    assert_eq!(world.turn(), Turn::Now);
    // So does one that is given up at once; one that is given up late has failed.
    let probe = world.law.send(world.now);
    world.law.abandoned(world.now, probe, false, 1.0);
    assert_eq!(world.turn(), Turn::Now);
    let probe = world.law.send(world.now);
    world.pass(SEC);
    world.law.abandoned(world.now, probe, false, 1.0);
    assert_eq!(world.wait(), 200 * MS);
}

#[test]
fn a_quota_is_trusted_if_its_reset_is_far_enough() {
    for (reset, closed) in [(2 * SEC, true), (SEC, false), (Duration::ZERO, false)] {
        let mut world = World::new();
        world.send_all();
        let quota = Some(Quota { left: 0, reset });
        world.answer(Answer { quota, ..ACCEPTED });
        let until = world.law.closed_until(world.now);
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
    world.answer(Answer { quota, ..ACCEPTED });
    world.pass(MS);
    let mut sent = 0;
    while world.turn() == Turn::Now {
        sent += 1;
        let ticket = world.law.send(world.now);
        world
            .law
            .answered(world.now, ticket, &plain(Ending::Unknown), 15, true, 1.0);
        world.pass(2 * MS);
    }
    // Held by the window or by the quota, but never beyond it.
    assert!(sent <= 5, "{sent}");
    world.answer_all(ACCEPTED);
    world.pass(2 * MS);
    sent += world.send_all();
    assert_eq!(sent, 5);
    world.answer_all(ACCEPTED);
    let wait = world.wait();
    assert!(wait > 9 * SEC && wait <= reset, "{wait:?}");
    world.pass(wait);
    assert_eq!(world.send_all(), 1);
    assert!(world.law.is_probing());
}

#[test]
fn an_older_answer_does_not_bring_an_older_quota_back() {
    let mut world = World::new();
    world.send_all();
    let older = world.flying.remove(0);
    let newer = world.flying.remove(0);
    let says = |left| Answer {
        quota: Some(Quota {
            left,
            reset: 60 * SEC,
        }),
        ..ACCEPTED
    };
    world
        .law
        .answered(world.now, newer, &says(1000), 14, false, 1.0);
    world
        .law
        .answered(world.now, older, &says(0), 13, false, 1.0);
    assert_eq!(world.law.closed_until(world.now), world.now);
}

#[test]
fn a_server_that_answers_late_gets_fewer_at_once() {
    let mut world = World::new();
    world.send_all();
    world.pass(SEC);
    for _ in 0..4 {
        world.answer(LATE);
        world.answer(ACCEPTED);
    }
    let before = world.law.window;
    assert!(before >= 16.0, "{before}");
    world.answer(LATE);
    assert_eq!(world.law.window, before / 2.0);
    // All of one burst count once.
    world.answer(LATE);
    assert_eq!(world.law.window, before / 2.0);
}

/// What may happen to a law.
#[derive(Clone, Debug)]
enum Event {
    Send,
    Unsend,
    Answer(usize, Ending, Option<u64>, Option<(u64, u64)>),
    Abandon(usize, bool),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let ending = prop_oneof![
        Just(Ending::Accepted),
        Just(Ending::Refused),
        Just(Ending::Failed),
        Just(Ending::Late),
        Just(Ending::Unknown),
    ];
    let seconds = prop_oneof![0..5_u64, 0..100_000_u64, Just(u64::MAX)];
    let quota = (prop_oneof![0..20_u64, Just(u64::MAX)], seconds.clone());
    prop_oneof![
        4 => Just(Event::Send),
        1 => Just(Event::Unsend),
        4 => (0..50_usize, ending, proptest::option::weighted(0.1, seconds), proptest::option::weighted(0.1, quota))
            .prop_map(|(which, ending, hint, quota)| Event::Answer(which, ending, hint, quota)),
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
        let mut law = Law::new(most);
        let mut now = Time::ZERO;
        let mut flying: Vec<Ticket> = Vec::new();
        for event in events {
            match event {
                Event::Send | Event::Unsend => {
                    let in_flight = flying.len() as u32;
                    if in_flight >= most {
                        // The gate itself sees to that.
                        continue;
                    }
                    match law.turn(now, in_flight) {
                        Turn::Now => {
                            let ticket = law.send(now);
                            if let Event::Unsend = event {
                                law.unsend(ticket);
                            } else {
                                flying.push(ticket);
                            }
                        }
                        Turn::At(time) => prop_assert!(time > now),
                        Turn::AfterAnswer => prop_assert!(!flying.is_empty()),
                    }
                }
                Event::Answer(which, ending, hint, quota) if which < flying.len() => {
                    let ticket = flying.remove(which);
                    let answer = Answer {
                        ending,
                        hint: hint.map(Duration::from_secs),
                        quota: quota.map(|(left, reset)| Quota {
                            left,
                            reset: Duration::from_secs(reset),
                        }),
                    };
                    law.answered(now, ticket, &answer, flying.len() as u32, which % 2 == 0, 1.1);
                }
                Event::Abandon(which, late) if which < flying.len() => {
                    let ticket = flying.remove(which);
                    law.abandoned(now, ticket, late, 1.1);
                }
                Event::Pass(ms) => now += Duration::from_millis(ms),
                Event::Answer(..) | Event::Abandon(..) => {}
            }
            let rate = law.pace.as_ref().map_or(1.0, |pace| pace.rate);
            prop_assert!(rate.is_finite() && rate >= LEAST_RATE, "{rate}");
            prop_assert!(law.window >= 1.0 && law.window <= f64::from(most));
        }
        for ticket in flying {
            law.abandoned(now, ticket, false, 1.1);
        }
        now += LONGEST_PAUSE + 2 * LONGEST_SPREAD;
        let mut turn = law.turn(now, 0);
        // A quota may be over just now; a pace waits for no longer than its slowest step.
        if let Turn::At(time) = turn {
            prop_assert!(time - now <= Duration::from_secs(40), "{:?}", time - now);
            now = time;
            turn = law.turn(now, 0);
        }
        prop_assert_eq!(turn, Turn::Now);
    }
}

#[test]
fn a_pace_or_a_pause_holds_a_law_that_knew_nothing_but_its_window() {
    let mut paced = World::new();
    paced.law.adopt(paced.now, 10.0);
    assert!(paced.send_all() < 16);

    let mut paused = World::new();
    paused.send_all();
    let hint = Some(SEC);
    paused.answer(Answer { hint, ..ACCEPTED });
    assert!(
        matches!(paused.turn(), Turn::At(at) if at >= SEC),
        "{:?}",
        paused.turn()
    );
}
