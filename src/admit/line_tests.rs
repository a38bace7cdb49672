use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use super::*;
use crate::admit::budget::Budget;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// A line whose trickle releases two calls per second.
fn line() -> Arc<RetryLine> {
    Arc::new(RetryLine::new(2.0, clock::now()))
}

type Waiting = Pin<Box<dyn Future<Output = Result<Release, NotReleased>> + Send>>;

/// A call in line, for an hour at most.
fn waiting(line: &Arc<RetryLine>) -> Waiting {
    let mut waiting = joining(line, None);
    assert!(poll(&mut waiting).is_none());
    waiting
}

/// A call that joins the line with its first poll.
fn joining(line: &Arc<RetryLine>, paid: Option<BudgetHold>) -> Waiting {
    let line = Arc::clone(line);
    Box::pin(async move { line.wait(clock::now() + 3600 * SEC, paid).await })
}

fn poll(waiting: &mut Waiting) -> Option<Release> {
    let mut context = Context::from_waker(Waker::noop());
    match waiting.as_mut().poll(&mut context) {
        Poll::Ready(released) => Some(released.unwrap()),
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn each_success_releases_the_first_in_line() {
    let line = line();
    let mut calls: Vec<_> = (0..3).map(|_| waiting(&line)).collect();
    for first in 0..3 {
        line.on_success(clock::now());
        for call in calls.iter_mut().skip(1) {
            assert!(poll(call).is_none(), "not the first in line, {first}");
        }
        poll(&mut calls.remove(0)).unwrap().use_up();
        assert_eq!(line.len(), 2 - first);
    }
    // Nothing is saved up for a later call.
    line.on_success(clock::now());
    drop(waiting(&line));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_leaves_leaves_nothing_in_line() {
    let line = line();
    let (one, mut other) = (waiting(&line), waiting(&line));
    drop(one);
    assert_eq!(line.len(), 1);
    line.on_success(clock::now());
    poll(&mut other).unwrap().use_up();
    assert_eq!((line.len(), Arc::strong_count(&line)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_used_goes_to_the_next() {
    let line = line();
    // Released, but dropped before it is polled.
    let (one, two, mut three) = (waiting(&line), waiting(&line), waiting(&line));
    line.on_success(clock::now());
    drop(one);
    drop(two);
    let release = poll(&mut three).unwrap();
    let mut four = waiting(&line);
    // Polled, but dropped before it is sent.
    drop(release);
    poll(&mut four).unwrap().use_up();
    let mut five = waiting(&line);
    assert!(poll(&mut five).is_none(), "a release was used twice");
}

#[tokio::test(start_paused = true)]
async fn what_a_call_pays_is_for_the_first_in_line() {
    let line = line();
    let budget = Budget::builder().retry_ratio(0.0).build().unwrap();
    let full = budget.balance();
    let pay = || budget.withdraw_at(clock::now());
    let (first, second, mut third) = (waiting(&line), waiting(&line), waiting(&line));
    let mut late = joining(&line, pay());
    assert!(poll(&mut late).is_none(), "it overtook the others");
    assert_eq!((line.len(), full - budget.balance()), (3, 1.0));
    // Released, and dropped before it is polled. So is the next.
    drop(first);
    drop(second);
    // Polled, and dropped before it is sent.
    drop(poll(&mut third).unwrap());
    poll(&mut late).unwrap().use_up();
    assert_eq!((line.len(), full - budget.balance()), (0, 1.0));

    // In an empty line it pays for itself.
    let release = poll(&mut joining(&line, pay())).unwrap();
    assert_eq!(full - budget.balance(), 2.0);
    drop(release);
    assert_eq!(full - budget.balance(), 1.0, "not refunded");
    // Before it joins the line, it has given nothing away.
    drop(joining(&line, pay()));
    assert_eq!(full - budget.balance(), 1.0, "not refunded");
    assert_eq!(Arc::strong_count(&line), 1);
}

#[tokio::test(start_paused = true)]
async fn the_trickle_slows_down_while_nothing_succeeds() {
    let line = line();
    let start = clock::now();
    let mut at = Vec::new();
    for _ in 0..5 {
        let released = line.wait(start + 3600 * SEC, None).await.unwrap();
        assert_eq!(released.gap, Duration::ZERO);
        released.use_up();
        at.push((clock::now() - start).as_millis());
    }
    // Waits of 0.5, 1, 2, 4 and 8 s.
    assert_eq!(at, [500, 1500, 3500, 7500, 15_500]);
    // A success makes it fast again.
    line.on_success(clock::now());
    let since = clock::now();
    line.wait(start + 3600 * SEC, None).await.unwrap().use_up();
    assert_eq!(clock::now() - since, 500 * MS);
}

#[tokio::test(start_paused = true)]
async fn the_trickle_goes_on_whoever_leaves() {
    let line = line();
    let start = clock::now();
    let wait = |line: Arc<RetryLine>| async move {
        line.wait(start + 3600 * SEC, None).await.unwrap().use_up();
        clock::now() - start
    };
    let first = tokio::spawn(wait(Arc::clone(&line)));
    tokio::task::yield_now().await;
    let second = tokio::spawn(wait(Arc::clone(&line)));
    let third = tokio::spawn(wait(Arc::clone(&line)));
    tokio::time::sleep(100 * MS).await;
    first.abort();
    assert!(first.await.is_err());
    assert_eq!(second.await.unwrap(), 500 * MS);
    assert_eq!(third.await.unwrap(), 1500 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_call_leaves_at_its_end_and_the_line_is_bounded() {
    let line = line();
    let end = clock::now() + 300 * MS;
    assert_eq!(
        line.wait(end, None).await.unwrap_err(),
        NotReleased::TooLate
    );
    assert_eq!((clock::now(), line.len()), (end, 0));
    let calls: Vec<_> = (0..MAX_WAITING).map(|_| waiting(&line)).collect();
    let late = line.wait(clock::now() + SEC, None).await;
    assert_eq!(late.unwrap_err(), NotReleased::LineFull);
    assert_eq!(clock::now(), end, "it waited");
    // A call that pays finds room, because the first leaves.
    let budget = Budget::builder().build().unwrap();
    let mut paying = joining(&line, budget.withdraw_at(clock::now()));
    assert!(poll(&mut paying).is_none());
    assert_eq!(line.len(), MAX_WAITING);
    // The first has a release that all of them pass on, one after the other.
    line.on_success(clock::now());
    drop(calls);
    drop(paying);
    assert_eq!((line.len(), Arc::strong_count(&line)), (0, 1));
    drop(waiting(&line));
}

/// A waker that comes back to the line when it is woken and when it is dropped.
struct ComesBack(Arc<RetryLine>);

impl Wake for ComesBack {
    fn wake(self: Arc<Self>) {
        self.0.on_success(clock::now());
    }
}

impl Drop for ComesBack {
    fn drop(&mut self) {
        self.0.on_success(clock::now());
    }
}

#[tokio::test(start_paused = true)]
async fn wakers_may_come_back_to_the_line() {
    let line = line();
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let waker = Arc::new(ComesBack(Arc::clone(&line))).into();
            let mut call = waiting(&line);
            let polled = call.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            call
        })
        .collect();
    // If a lock were held, this would block forever.
    line.on_success(clock::now());
    assert_eq!(line.len(), 0, "each release makes a success");
    drop(calls);
    assert_eq!((line.len(), Arc::strong_count(&line)), (0, 1));
}

/// Threads join, leave and succeed. Each success sends one call: no release is used twice, and none is lost.
#[test]
fn racing_threads_pass_each_release_to_one_call() {
    const CALLS: usize = 9000;
    const SENT: usize = CALLS / 3;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        // No trickle: only successes release.
        let line = Arc::new(RetryLine::new(0.0, clock::now()));
        let (joined, sent) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let until = async |counter: &AtomicUsize, expected| {
            let reached = async {
                while counter.load(Ordering::Relaxed) < expected {
                    tokio::time::sleep(MS).await;
                }
            };
            let in_time = tokio::time::timeout(60 * SEC, reached).await;
            assert!(in_time.is_ok(), "{counter:?} of {expected}");
        };
        let calls: Vec<_> = (0..CALLS)
            .map(|call| {
                let (line, joined) = (Arc::clone(&line), Arc::clone(&joined));
                let sent = Arc::clone(&sent);
                tokio::spawn(async move {
                    let waiting = waiting(&line);
                    joined.fetch_add(1, Ordering::Relaxed);
                    let patience = (call % 20) as u32 * MS;
                    match call % 3 {
                        // Leaves at some point, perhaps right after its release.
                        0 => drop(clock::within(clock::now() + patience, waiting).await),
                        1 => drop(waiting.await),
                        _ => {
                            waiting.await.unwrap().use_up();
                            sent.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        until(&joined, CALLS).await;
        // All but one of the calls that send are released.
        let successes = (1..SENT).map(|_| {
            let line = Arc::clone(&line);
            tokio::spawn(async move { line.on_success(clock::now()) })
        });
        for success in successes.collect::<Vec<_>>() {
            success.await.unwrap();
        }
        until(&sent, SENT - 1).await;
        tokio::time::sleep(50 * MS).await;
        assert_eq!(sent.load(Ordering::Relaxed), SENT - 1, "one was used twice");
        line.on_success(clock::now());
        until(&sent, SENT).await;
        for call in calls {
            call.abort();
            let _ = call.await;
        }
        assert_eq!((line.len(), Arc::strong_count(&line)), (0, 1));
    });
}
