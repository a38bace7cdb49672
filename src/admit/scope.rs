//! An allowance that is opened by hand.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::allowance::Allowance;
use super::current::enter;
use crate::clock;

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
        let mut own = Some(Allowance::open_scope(self.left.clone(), deadline));
        std::future::poll_fn(|context| enter(&mut own, || future.as_mut().poll(context))).await
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use task_local_extensions::{get_local_item, set_local_item};

    use super::*;
    use crate::admit::allowance::Draw;
    use crate::admit::current::Place;

    #[derive(Clone, Debug, PartialEq)]
    struct Others(u32);

    /// Whether a retry is left in what this runs in. Takes it.
    fn draw_from_current() -> bool {
        let draw = Place::here().lock().as_mut().map(Allowance::draw);
        draw.is_none_or(|draw| draw.map(Draw::spend).is_some())
    }

    fn is_inside() -> bool {
        Place::here().lock().is_some()
    }

    #[tokio::test]
    async fn what_others_keep_there_stays_visible_and_nothing_leaks_out_of_a_poll() {
        set_local_item(Others(7)).await;
        let scope = Scope::new().max_retries(2);
        let inside = scope.run(async {
            assert_eq!(get_local_item::<Others>().await, Some(Others(7)));
            set_local_item(Others(8)).await;
            assert!(is_inside());
            tokio::task::yield_now().await;
            assert!(is_inside());
            assert!(draw_from_current());
            assert!(draw_from_current());
            assert!(!draw_from_current());
        });
        let mut inside = pin!(inside);
        let mut polls = 0;
        std::future::poll_fn(|context| {
            polls += 1;
            let poll = inside.as_mut().poll(context);
            assert!(!is_inside(), "leaked after poll {polls}");
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
        assert!(!is_inside());
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
        let deadline = || Place::here().lock().as_ref().and_then(Allowance::deadline);
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
        assert!(!is_inside());
    }
}
