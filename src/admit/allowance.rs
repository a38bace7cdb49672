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

/// What one call or scope allows, linked to the one around it.
#[derive(Debug)]
struct Link {
    left: Left,
    /// No later than that of any link around it.
    deadline: Option<Instant>,
    opener: Opener,
    around: Option<Arc<Link>>,
}

/// What opened a link. Addresses, to compare and nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opener {
    /// Of its extensions, which all middlewares of a chain are handed.
    pub(crate) chain: usize,
    /// Of its budget.
    pub(crate) budget: usize,
}

#[derive(Debug)]
enum Left {
    /// One call's own.
    Own(AtomicU32),
    /// A [`Scope`]'s, which several tasks may share.
    Shared(Arc<AtomicU32>),
}

impl Left {
    fn count(&self) -> &AtomicU32 {
        match self {
            Self::Own(left) => left,
            Self::Shared(left) => left,
        }
    }
}

impl Link {
    /// Takes a retry from this link and from all around it, or from none.
    fn take(&self) -> bool {
        let left = self.left.count();
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(1)
        });
        if taken.is_err() {
            return false;
        }
        match &self.around {
            Some(around) if !around.take() => {
                left.fetch_add(1, Ordering::Relaxed);
                false
            }
            _ => true,
        }
    }

    fn put_back(&self) {
        self.left.count().fetch_add(1, Ordering::Relaxed);
        if let Some(around) = &self.around {
            around.put_back();
        }
    }

    fn any_around(&self, mut is: impl FnMut(&Opener) -> bool) -> bool {
        let links = std::iter::successors(self.around.as_deref(), |link| link.around.as_deref());
        links.into_iter().any(|link| is(&link.opener))
    }
}

/// A retry that was taken but not sent yet. Unless it is sent, it is put back when dropped.
#[must_use = "it is put back when dropped"]
pub(crate) struct Draw(Option<Arc<Link>>);

impl Draw {
    pub(crate) fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for Draw {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            link.put_back();
        }
    }
}

/// What is left of a call's retries and time, for itself and for those inside it.
///
/// It is shared only when somebody asks: most calls have none inside, and pay no allocation.
#[derive(Debug)]
pub(crate) struct Allowance {
    own: Option<Link>,
    shared: Option<Arc<Link>>,
    /// Where to put it for the first poll, if that follows without an `await` in between.
    place: Option<Cell>,
}

impl Allowance {
    /// For a call that begins here.
    pub(crate) fn open(retries: u32, deadline: Option<Instant>, opener: Opener) -> Self {
        let place = cell();
        let around = place.lock().as_mut().and_then(Self::share);
        Self {
            own: Some(Link::new(
                Left::Own(retries.into()),
                deadline,
                opener,
                around,
            )),
            shared: None,
            place: Some(place),
        }
    }

    /// The next poll may come from anywhere.
    pub(crate) fn forget_place(&mut self) {
        self.place = None;
    }

    /// Whether another call or scope is around it.
    pub(crate) fn is_nested(&self) -> bool {
        self.link().is_some_and(|link| link.around.is_some())
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.link().and_then(|link| link.deadline)
    }

    /// Whether another retry of the same chain is around this call.
    pub(crate) fn is_twice_in_chain(&self) -> bool {
        let is_twice = |link: &Link| link.any_around(|it| it.chain == link.opener.chain);
        self.link().is_some_and(is_twice)
    }

    /// Whether a call around this one has the same budget.
    pub(crate) fn shares_budget(&self) -> bool {
        let is_shared = |link: &Link| link.any_around(|it| it.budget == link.opener.budget);
        self.link().is_some_and(is_shared)
    }

    /// Takes a retry, if this call and all around it have one left.
    pub(crate) fn draw(&mut self) -> Option<Draw> {
        let link = self.share()?;
        link.take().then(|| Draw(Some(link)))
    }

    fn link(&self) -> Option<&Link> {
        self.own.as_ref().or(self.shared.as_deref())
    }

    fn share(&mut self) -> Option<Arc<Link>> {
        if let Some(own) = self.own.take() {
            self.shared = Some(Arc::new(own));
        }
        self.shared.clone()
    }
}

impl Link {
    fn new(
        left: Left,
        deadline: Option<Instant>,
        opener: Opener,
        around: Option<Arc<Link>>,
    ) -> Self {
        let limit = around.as_ref().and_then(|around| around.deadline);
        let deadline = match (deadline, limit) {
            (Some(own), Some(limit)) => Some(own.min(limit)),
            (own, limit) => own.or(limit),
        };
        Self {
            left,
            deadline,
            opener,
            around,
        }
    }
}

/// Makes an allowance the current one for as long as `poll` runs.
fn enter<T>(own: &mut Option<Allowance>, poll: impl FnOnce() -> T) -> T {
    let place = own.as_mut().and_then(|own| own.place.take());
    let cell = place.unwrap_or_else(cell);
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
/// A spawned task is on its own, unless it is given the scope. So is a call that was begun before the
/// scope was opened, and one inside the `with_extensions` of `task-local-extensions`, if other code
/// uses that: it hides what was there before. Clones share what is left:
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
        let around = cell().lock().as_mut().and_then(Allowance::share);
        let left = Left::Shared(self.left.clone());
        let mut own = Some(Allowance {
            own: Some(Link::new(left, deadline, Opener::default(), around)),
            shared: None,
            place: None,
        });
        std::future::poll_fn(|context| enter(&mut own, || future.as_mut().poll(context))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Others(u32);

    fn current() -> Option<Arc<Link>> {
        cell().lock().as_mut().and_then(Allowance::share)
    }

    fn draw_from_current() -> bool {
        current().is_none_or(|link| link.take())
    }

    #[tokio::test]
    async fn what_others_keep_there_stays_visible_and_nothing_leaks_out_of_a_poll() {
        set_local_item(Others(7)).await;
        let scope = Scope::new().max_retries(2);
        let inside = scope.run(async {
            assert_eq!(get_local_item::<Others>().await, Some(Others(7)));
            set_local_item(Others(8)).await;
            assert!(current().is_some());
            tokio::task::yield_now().await;
            assert!(current().is_some());
            assert!(draw_from_current());
            assert!(draw_from_current());
            assert!(!draw_from_current());
        });
        let mut inside = pin!(inside);
        let mut polls = 0;
        std::future::poll_fn(|context| {
            polls += 1;
            let poll = inside.as_mut().poll(context);
            assert!(current().is_none(), "leaked after poll {polls}");
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
                    assert!(draw_from_current());
                    assert!(!draw_from_current());
                })
                .await;
        })
        .await;
        assert_eq!(storage.get::<Others>(), Some(&Others(1)));
        assert!(current().is_none());
    }

    #[tokio::test]
    async fn scopes_within_scopes_draw_from_both() {
        let outer = Scope::new().max_retries(3);
        outer
            .run(async {
                let inner = Scope::new().max_retries(2);
                inner
                    .run(async {
                        assert!(draw_from_current());
                        tokio::task::yield_now().await;
                        assert!(draw_from_current());
                        assert!(!draw_from_current());
                    })
                    .await;
                let generous = Scope::new().max_retries(100);
                generous
                    .run(async {
                        assert!(draw_from_current());
                        assert!(!draw_from_current());
                    })
                    .await;
                assert!(!draw_from_current());
            })
            .await;
    }

    #[tokio::test]
    async fn the_inner_deadline_is_never_later_than_the_outer_one() {
        let deadline = || current().and_then(|current| current.deadline);
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
        let draws = || async { (0..2).filter(|_| draw_from_current()).count() };
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
        assert!(current().is_none());
    }
}
