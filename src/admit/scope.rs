//! Retries and time for an operation of several requests.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::current::in_scope;
use super::scope_node::{ScopeHold, ScopeNode};
use crate::clock;

/// Limits the retries and the time of several requests together.
///
/// # Why layers of retries need it
///
/// A call with 3 retries makes up to 4 attempts. If each of them goes through another client with 3 retries, that is
/// 16 requests; with a third layer it is 64. So calls that are nested in one task take their retries from the
/// outermost call, and end by its deadline. With two layers of 3 retries, there are 4 requests. The call that would
/// make one more ends with [`AllowanceSpent`](crate::StopReason::AllowanceSpent).
///
/// Calls inside calls need no scope for that. Open one for an operation of several requests:
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
/// A scope holds in the task that runs it. Give a clone to a spawned task: clones share what is left. A call that
/// began before the scope is not in it.
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
///
/// A scope also works as a value in the extensions of `task-local-extensions`:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use reqwest_steady::Scope;
/// use task_local_extensions::{Extensions, with_extensions};
///
/// let scope = Scope::new().max_retries(5);
/// let extensions = Extensions::new().with(scope.clone());
/// let requests = async { /* requests */ };
/// let task = tokio::spawn(with_extensions(extensions, requests));
/// scope.run(async { /* more requests */ }).await;
/// task.await.unwrap();
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a scope does nothing until `run` is called"]
pub struct Scope {
    pub(super) left: Arc<AtomicU32>,
    deadline: Option<Duration>,
    start: Arc<Start>,
}

/// When a scope was first used.
#[derive(Debug)]
struct Start(OnceLock<Instant>);

/// The number of scopes in all threads. If there is none, calls do not look for one.
static SCOPES: AtomicUsize = AtomicUsize::new(0);

impl Start {
    fn new() -> Self {
        SCOPES.fetch_add(1, Ordering::Relaxed);
        Self(OnceLock::new())
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        SCOPES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new()
    }
}

impl Scope {
    /// Returns a scope without limits.
    pub fn new() -> Self {
        Self {
            left: Arc::new(AtomicU32::new(u32::MAX)),
            deadline: None,
            start: Arc::new(Start::new()),
        }
    }

    /// Limits the retries of all requests in this scope together.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.left = Arc::new(AtomicU32::new(retries));
        self
    }

    /// Limits the time until the response headers of every request in this scope arrive, from the first `run`.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Returns how many retries the scope has left. `None` if it has no limit.
    pub fn retries_left(&self) -> Option<u32> {
        let left = self.left.load(Ordering::Relaxed);
        (left < u32::MAX).then_some(left)
    }

    /// Returns the time limit of the scope.
    pub fn get_deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Takes a retry from this scope and from what is around the running code. Returns whether there was one.
    pub(crate) fn take_retry(&self) -> bool {
        let hold = ScopeNode::of_scope(self).take_retry();
        hold.map(ScopeHold::spend).is_some()
    }

    pub(crate) fn any_exists() -> bool {
        SCOPES.load(Ordering::Relaxed) > 0
    }

    /// Returns when all requests in it have to end. Its time starts now, if it has not started.
    pub(super) fn end(&self) -> Option<Instant> {
        let limit = self.deadline?;
        let started = self.start.0.get_or_init(clock::now);
        Some(clock::after(*started, limit))
    }

    /// Runs a future in this scope. Inside another scope or call, the limits of both hold.
    pub async fn run<F: Future>(&self, future: F) -> F::Output {
        in_scope(Some(ScopeNode::of_scope(self)), pin!(future)).await
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use task_local_extensions::{Extensions, get_local_item, set_local_item, with_extensions};

    use super::*;
    use crate::admit::ScopeHold;
    use crate::admit::current::{current, current_deadline};

    #[derive(Clone, Debug, PartialEq)]
    struct Others(u32);

    /// Takes a retry from the current scope, and returns whether there was one.
    fn draw_from_current() -> bool {
        let hold = current().map(|scope| scope.take_retry());
        hold.is_none_or(|hold| hold.map(ScopeHold::spend).is_some())
    }

    fn is_inside() -> bool {
        current().is_some()
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
    async fn a_storage_of_the_tasks_own_hides_nothing_and_is_not_touched() {
        let storage = Extensions::new().with(Others(1));
        let (storage, ()) = with_extensions(storage, async {
            let scope = Scope::new().max_retries(1);
            let inside = with_extensions(Extensions::new(), async {
                assert_eq!(get_local_item::<Others>().await, None);
                assert!(draw_from_current());
                assert!(!draw_from_current());
            });
            scope.run(inside).await;
        })
        .await;
        assert_eq!(storage.get::<Others>(), Some(&Others(1)));
        assert!(!is_inside());
    }

    /// Takes retries as a call that begins here, and returns how many there were.
    fn draws_of_a_call() -> usize {
        let call = ScopeNode::of_call(u32::MAX, None, None);
        (0..10)
            .filter(|_| call.take_retry().map(ScopeHold::spend).is_some())
            .count()
    }

    #[tokio::test]
    async fn a_scope_that_is_carried_in_extensions_holds_for_what_runs_with_them() {
        let scope = Scope::new()
            .max_retries(3)
            .deadline(Duration::from_secs(10));
        let carried = || Extensions::new().with(scope.clone());
        let task = tokio::spawn(with_extensions(carried(), async {
            assert!(current_deadline().is_some());
            tokio::task::yield_now().await;
            draws_of_a_call()
        }));
        assert_eq!(task.await.unwrap().1, 3);
        assert_eq!(draws_of_a_call(), 10);
        assert!(current_deadline().is_none());

        // Together with one that is open: both hold, and none is counted twice.
        let scope = Scope::new().max_retries(4);
        let carried = Extensions::new().with(scope.clone());
        let outer = Scope::new().max_retries(2);
        let (_, draws) = outer
            .run(with_extensions(carried, async { draws_of_a_call() }))
            .await;
        assert_eq!(draws, 2);
        let carried = Extensions::new().with(scope.clone());
        let (_, draws) = with_extensions(carried, scope.run(async { draws_of_a_call() })).await;
        assert_eq!(draws, 2);
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
        let deadline = current_deadline;
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
