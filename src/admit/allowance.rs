//! One allowance of retries and time for all the calls that are nested in one task.
//!
//! A client inside a client, or a token that is fetched by a middleware, retries by itself; and if
//! all that fails, the outer call retries the whole of it. So layers multiply. Here they draw from
//! what the outermost call was allowed.
//!
//! What is current is kept in the storage of `task-local-extensions`, which belongs to a thread, or to
//! a task where somebody has opened one. Only a cell of ours is put there, and it is filled for the
//! length of a poll: nothing that others keep there is hidden, and nothing leaks out of a poll.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use task_local_extensions::{get_local_item, set_local_item};
use tokio::time::Instant;

use crate::clock;

/// What is left of an outermost call's retries and time.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    left: Left,
    /// What an allowance around this one still permits, and what was drawn of that.
    outer: u32,
    drawn: u32,
    pub(crate) deadline: Option<Instant>,
    pub(crate) opener: Opener,
    /// Where to put it for the first poll, which follows in the same breath.
    found: Option<Cell>,
}

/// What the call was that opened an allowance. Addresses, to compare and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opener {
    /// Of its extensions, which all middlewares of a chain are handed.
    pub(crate) chain: usize,
    /// Of its budget.
    pub(crate) budget: usize,
}

#[derive(Clone, Debug)]
enum Left {
    /// One call's own.
    Count(u32),
    /// A [`Scope`]'s, which several tasks may share.
    Shared(Arc<AtomicU32>),
}

impl Allowance {
    /// For a call with so many retries: one of its own if it is outermost, else the one that it is
    /// running in.
    pub(crate) fn open(
        retries: u32,
        deadline: Option<Instant>,
        opener: Opener,
    ) -> std::result::Result<Self, Self> {
        let cell = cell();
        let around = cell.lock().clone();
        match around {
            Some(around) => Err(around),
            None => Ok(Self {
                left: Left::Count(retries),
                outer: u32::MAX,
                drawn: 0,
                deadline,
                opener,
                found: Some(cell),
            }),
        }
    }

    /// The one that this is running in.
    fn current() -> Option<Self> {
        existing_cell().and_then(|cell| cell.lock().clone())
    }

    /// Takes a retry from the one that this is running in; from none, as many as one likes.
    pub(crate) fn draw_from_current() -> bool {
        existing_cell().is_none_or(|cell| cell.lock().as_mut().is_none_or(Self::draw))
    }

    pub(crate) fn draw(&mut self) -> bool {
        if self.outer == 0 {
            return false;
        }
        let drawn = match &mut self.left {
            Left::Count(left) => left.checked_sub(1).map(|rest| *left = rest).is_some(),
            Left::Shared(left) => left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
                .is_ok(),
        };
        if drawn {
            self.outer -= 1;
            self.drawn += 1;
        }
        drawn
    }

    fn available(&self) -> u32 {
        let left = match &self.left {
            Left::Count(left) => *left,
            Left::Shared(left) => left.load(Ordering::Relaxed),
        };
        left.min(self.outer)
    }
}

/// Makes an allowance the current one for as long as `poll` runs. What is drawn meanwhile is drawn
/// from it.
fn enter<T>(own: &mut Option<Allowance>, poll: impl FnOnce() -> T) -> T {
    let found = own.as_mut().and_then(|own| own.found.take());
    let cell = found.unwrap_or_else(cell);
    std::mem::swap(own, &mut *cell.lock());
    // On the way out, also if the poll panics.
    let restore = Restore { cell: &cell, own };
    let output = poll();
    drop(restore);
    output
}

struct Restore<'a> {
    cell: &'a Cell,
    /// While it is current, what was current before.
    own: &'a mut Option<Allowance>,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        std::mem::swap(self.own, &mut *self.cell.lock());
    }
}

/// A future that runs in an allowance, if there is one to run in.
pub(crate) struct Covered<'a, F> {
    pub(crate) allowance: &'a mut Option<Allowance>,
    pub(crate) future: F,
}

impl<F: Future + Unpin> Future for Covered<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let future = Pin::new(&mut this.future);
        if this.allowance.is_some() {
            enter(this.allowance, || future.poll(context))
        } else {
            future.poll(context)
        }
    }
}

/// What we put into the storage, once for each.
#[derive(Clone, Debug, Default)]
struct Cell(Arc<Mutex<Option<Allowance>>>);

impl Cell {
    fn lock(&self) -> MutexGuard<'_, Option<Allowance>> {
        // Held for single assignments only.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn existing_cell() -> Option<Cell> {
    at_once(get_local_item::<Cell>()).flatten()
}

fn cell() -> Cell {
    existing_cell().unwrap_or_else(|| {
        let cell = Cell::default();
        at_once(set_local_item(cell.clone()));
        cell
    })
}

/// The storage's functions are async, but wait for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Retries and time for an operation of several requests, together.
///
/// # How layers multiply
///
/// A call with 3 retries makes up to 4 attempts. If each of them goes through another client with 3
/// retries, that is 16 requests; with a third layer it is 64. Therefore calls that are nested in one
/// task draw from the outermost one's retries, and end by its deadline: with two layers of 3 it is 4
/// requests, and the call that would have made one more ends with
/// [`AllowanceSpent`](crate::StopReason::AllowanceSpent).
///
/// That works by itself for calls inside calls. For an operation of several requests one after
/// another, open a scope by hand:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = wiremock::MockServer::start().await;
/// # let url = server.uri();
/// use std::time::Duration;
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::{RetryMiddleware, Scope};
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::default())
///     .build();
///
/// let order = async {
///     client.get(&url).send().await?;
///     client.put(&url).body("order").send().await
/// };
/// // Five retries and ten seconds for both requests.
/// let scope = Scope::new().max_retries(5).deadline(Duration::from_secs(10));
/// let response = scope.run(order).await?;
/// # Ok(()) }
/// ```
///
/// # Spawned tasks
///
/// A spawned task is on its own, unless it is given the scope. Clones share what is left:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use reqwest_steady::Scope;
///
/// let scope = Scope::new().max_retries(5);
/// let shared = scope.clone();
/// let task = tokio::spawn(async move { shared.run(async { /* requests */ }).await });
/// scope.run(async { /* more requests */ }).await;
/// task.await.unwrap();
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a scope does nothing until `run` is called"]
pub struct Scope {
    left: Arc<AtomicU32>,
    deadline: Option<Duration>,
    started: Arc<OnceLock<Instant>>,
}

/// How many scopes with a deadline are running, in all threads: if none, nobody has to look.
static WITH_DEADLINE: AtomicUsize = AtomicUsize::new(0);

struct Running;

impl Running {
    fn new() -> Self {
        WITH_DEADLINE.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        WITH_DEADLINE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new()
    }
}

impl Scope {
    /// A scope without limits of its own.
    pub fn new() -> Self {
        Self {
            left: Arc::new(AtomicU32::new(u32::MAX)),
            deadline: None,
            started: Arc::default(),
        }
    }

    /// So many retries for all requests in it.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.left = Arc::new(AtomicU32::new(retries));
        self
    }

    /// Every request in it has its answer's head, or an error, so long after the first `run`.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    pub(crate) fn any_has_deadline() -> bool {
        WITH_DEADLINE.load(Ordering::Relaxed) > 0
    }

    /// Runs a future in this scope. In a scope or call that is open already, both hold.
    pub async fn run<F: Future>(&self, future: F) -> F::Output {
        let _running = self.deadline.map(|_| Running::new());
        let mut future = pin!(future);
        let started = *self.started.get_or_init(clock::now);
        let deadline = self.deadline.map(|limit| clock::after(started, limit));
        std::future::poll_fn(|context| {
            let around = Allowance::current();
            let earlier = around.as_ref().and_then(|around| around.deadline);
            let mut own = Some(Allowance {
                left: Left::Shared(self.left.clone()),
                outer: around.as_ref().map_or(u32::MAX, Allowance::available),
                drawn: 0,
                deadline: deadline.into_iter().chain(earlier).min(),
                opener: Opener::default(),
                found: None,
            });
            let output = enter(&mut own, || future.as_mut().poll(context));
            for _ in 0..own.map_or(0, |own| own.drawn) {
                Allowance::draw_from_current();
            }
            output
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Others(u32);

    #[tokio::test]
    async fn what_others_keep_there_stays_visible_and_nothing_leaks_out_of_a_poll() {
        set_local_item(Others(7)).await;
        let scope = Scope::new().max_retries(2);
        let inside = scope.run(async {
            assert_eq!(get_local_item::<Others>().await, Some(Others(7)));
            set_local_item(Others(8)).await;
            assert!(Allowance::current().is_some());
            tokio::task::yield_now().await;
            assert!(Allowance::current().is_some());
            assert!(Allowance::draw_from_current());
            assert!(Allowance::draw_from_current());
            assert!(!Allowance::draw_from_current());
        });
        let mut inside = pin!(inside);
        let mut polls = 0;
        std::future::poll_fn(|context| {
            polls += 1;
            let poll = inside.as_mut().poll(context);
            assert!(Allowance::current().is_none(), "leaked after poll {polls}");
            poll
        })
        .await;
        assert_eq!(polls, 2);
        assert_eq!(get_local_item::<Others>().await, Some(Others(8)));
    }

    #[tokio::test]
    async fn a_storage_of_the_tasks_own_works_as_well() {
        let storage = task_local_extensions::Extensions::new().with(Others(1));
        let (storage, ()) = task_local_extensions::with_extensions(storage, async {
            Scope::new()
                .max_retries(1)
                .run(async {
                    assert_eq!(get_local_item::<Others>().await, Some(Others(1)));
                    assert!(Allowance::draw_from_current());
                    assert!(!Allowance::draw_from_current());
                })
                .await;
        })
        .await;
        assert_eq!(storage.get::<Others>(), Some(&Others(1)));
        assert!(Allowance::current().is_none());
    }

    #[tokio::test]
    async fn scopes_within_scopes_draw_from_both() {
        let outer = Scope::new().max_retries(3);
        outer
            .run(async {
                let inner = Scope::new().max_retries(2);
                inner
                    .run(async {
                        assert!(Allowance::draw_from_current());
                        tokio::task::yield_now().await;
                        assert!(Allowance::draw_from_current());
                        assert!(!Allowance::draw_from_current());
                    })
                    .await;
                let generous = Scope::new().max_retries(100);
                generous
                    .run(async {
                        assert!(Allowance::draw_from_current());
                        assert!(!Allowance::draw_from_current());
                    })
                    .await;
                assert!(!Allowance::draw_from_current());
            })
            .await;
    }

    #[tokio::test]
    async fn the_inner_deadline_is_never_later_than_the_outer_one() {
        let deadline = || Allowance::current().and_then(|current| current.deadline);
        let outer = Scope::new().deadline(Duration::from_secs(10));
        outer
            .run(async {
                let limit = deadline();
                for (own, earlier) in [(5, true), (20, false)] {
                    let inner = Scope::new().deadline(Duration::from_secs(own));
                    let inside = inner.run(async { deadline() }).await;
                    assert_eq!(inside < limit, earlier);
                    assert!(inside <= limit);
                }
            })
            .await;
    }

    #[tokio::test]
    async fn clones_share_what_is_left_with_spawned_tasks() {
        let scope = Scope::new().max_retries(3);
        let shared = scope.clone();
        let draws = || async { (0..2).filter(|_| Allowance::draw_from_current()).count() };
        let task = tokio::spawn(async move { shared.run(draws()).await });
        assert_eq!(task.await.unwrap(), 2);
        assert_eq!(scope.run(draws()).await, 1);
    }

    #[tokio::test]
    async fn a_panic_inside_leaves_nothing_behind() {
        use std::panic::{AssertUnwindSafe, catch_unwind};

        let scope = Scope::new();
        let mut run = Box::pin(scope.run(async { panic!("on purpose") }));
        let waker = Waker::noop();
        let poll = catch_unwind(AssertUnwindSafe(|| {
            let _: Poll<()> = run.as_mut().poll(&mut Context::from_waker(waker));
        }));
        assert!(poll.is_err());
        assert!(Allowance::current().is_none());
    }
}
