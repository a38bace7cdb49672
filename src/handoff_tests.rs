use super::*;

const SEC: Duration = Duration::from_secs(1);

fn handoff() -> (Extensions, Handoff) {
    let mut extensions = Extensions::new();
    let handoff = Handoff::insert(&mut extensions, Terms::default());
    (extensions, handoff)
}

/// Whether the attempt is paid after what a throttle did with it. `ended`: it was not dropped.
fn is_paid(ended: bool, throttle: impl FnOnce(&Handoff)) -> bool {
    let (extensions, retry) = handoff();
    throttle(&Handoff::of(&extensions).unwrap().0);
    if ended {
        retry.end(None);
    }
    retry.close()
}

#[test]
fn an_attempt_is_paid_if_it_was_or_may_have_been_sent() {
    type Acts = fn(&Handoff);
    let queues: Acts = |it| drop(it.enter_queue(clock::now()));
    let sends: Acts = |it| it.mark_sent(clock::now());
    let refuses: Acts = |it| it.mark_refused();
    let sends_one_refuses_one: Acts = |it| {
        it.mark_sent(clock::now());
        it.mark_refused();
    };
    let times_out_in_queue: Acts = |it| {
        let _stay = it.enter_queue(clock::now());
        it.mark_cut_off(true);
    };
    let deadline_in_queue: Acts = |it| {
        let _stay = it.enter_queue(clock::now());
        it.mark_cut_off(false);
    };
    for (name, throttle, dropped, ended) in [
        ("none", (|_| ()) as Acts, false, true),
        ("a queue that was left", queues, false, true),
        ("sent", sends, true, true),
        ("refused", refuses, false, false),
        ("two copies", sends_one_refuses_one, true, true),
        ("timed out in the queue", times_out_in_queue, false, false),
        ("a deadline in the queue", deadline_in_queue, false, false),
    ] {
        assert_eq!(is_paid(false, throttle), dropped, "{name}, dropped");
        assert_eq!(is_paid(true, throttle), ended, "{name}, ended");
    }
}

#[tokio::test(start_paused = true)]
async fn the_clock_stands_still_while_any_copy_waits() {
    let (extensions, retry) = handoff();
    assert_eq!(retry.clock_start(clock::now()), None);
    // The middlewares between may copy the extensions.
    let (copy, _) = Handoff::of(&extensions.clone()).unwrap();
    let (one, two) = (
        copy.enter_queue(clock::now()),
        retry.enter_queue(clock::now()),
    );
    tokio::time::sleep(SEC).await;
    drop(one);
    let now = clock::now();
    assert_eq!(retry.clock_start(now), Some(now));
    tokio::time::sleep(SEC).await;
    drop(two);
    assert_eq!(retry.clock_start(clock::now()), None);
    // Both waited at the same time, so it counts once.
    assert_eq!(retry.trace().visit.unwrap().waited, 2 * SEC);
    let sent = clock::now();
    copy.mark_sent(sent);
    tokio::time::sleep(SEC).await;
    assert_eq!(retry.clock_start(clock::now()), Some(sent));
}

#[test]
fn only_a_throttle_with_something_to_say_leaves_a_visit() {
    for timed_out in [false, true] {
        let (_, retry) = handoff();
        retry.mark_sent(clock::now());
        assert_eq!(retry.trace().visit, None);
        assert!(retry.trace().throttle);
        // It was dropped with the attempt, and could not say so itself.
        retry.mark_cut_off(timed_out);
        assert_eq!(retry.trace().visit, Some(ThrottleVisit::default()));
        // A deadline says nothing about the server.
        assert_eq!(retry.has_timed_out(), timed_out);
    }

    let (mut extensions, retry) = handoff();
    retry.mark_cut_off(true);
    assert_eq!(retry.trace().visit, None);
    assert!(!retry.trace().throttle);
    extensions
        .get_mut::<Handoff>()
        .unwrap()
        .leave_visit(Pacing::Paused);
    let left = extensions.get::<Handoff>().unwrap();
    assert_eq!(left.trace().visit.unwrap().pacing, Pacing::Paused);
}

#[test]
fn what_a_throttle_leaves_in_a_copy_of_the_extensions_is_not_seen() {
    let (extensions, retry) = handoff();
    let mut copy = extensions.clone();
    let throttle = copy.get_mut::<Handoff>().unwrap();
    throttle.leave_visit(Pacing::Paused);
    assert_eq!(extensions.get::<Handoff>().unwrap().trace().visit, None);
    assert_eq!(retry.trace().visit, None);
}

#[test]
fn a_handoff_that_is_over_is_heeded_by_nobody() {
    let (mut extensions, retry) = handoff();
    assert!(Handoff::of(&extensions).is_some());
    retry.close();
    assert!(Handoff::of(&extensions).is_none());
    assert!(Handoff::take_outer(&mut extensions).is_none());
    assert!(extensions.is_empty());
}

#[test]
fn an_inner_retry_pays_for_the_outer_and_reports_to_it() {
    let mut extensions = Extensions::new();
    let terms = Terms {
        queued_before: SEC,
        ..Terms::default()
    };
    let outer = Handoff::insert(&mut extensions, terms);
    extensions
        .get_mut::<Handoff>()
        .unwrap()
        .leave_visit(Pacing::Paused);
    let (mut inner, terms) = Handoff::take_outer(&mut extensions).unwrap();
    assert_eq!(terms.queued_before, SEC);
    assert!(Handoff::of(&extensions).is_none());
    assert_eq!(inner.trace().visit, None);
    assert!(outer.trace().inner_retry);
    inner.pass_on(Some(ThrottleVisit {
        reported: 2 * SEC,
        ..ThrottleVisit::default()
    }));
    let visit = inner.trace().visit.unwrap();
    assert_eq!((visit.waited, visit.queued()), (Duration::ZERO, 2 * SEC));
    assert!(outer.close());
}
