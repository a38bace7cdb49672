//! What many processes share: a quota belongs to an account, and not to a process.
//!
//! A store keeps, for each key, the rate, the pause, the adaptive rate and the retry budget of all workers.
//! Every decision is one step in it, on its own clock. [`MemoryStore`] is for one process, and for tests;
//! `RedisStore`, with the feature `redis`, is for many.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), reqwest_steady::fleet::FleetError> {
//! use std::time::Duration;
//! use reqwest_steady::fleet::{FleetStore, LeaseAsk, MemoryStore, WorkerId};
//!
//! let store = MemoryStore::new();
//! let period = Duration::from_millis(100);
//! let one = LeaseAsk::new(WorkerId::random(), period).rate(10.0, 20);
//! let other = LeaseAsk::new(WorkerId::random(), period).rate(10.0, 20);
//!
//! // Twenty may go after a silence, whoever sends them.
//! let first = store.lease("api.example.com", one.want(15)).await?;
//! let second = store.lease("api.example.com", other.want(4)).await?;
//! let third = store.lease("api.example.com", one.want(15)).await?;
//! assert_eq!((first.tokens, second.tokens, third.tokens), (15, 4, 1));
//! assert_eq!(third.workers, 2);
//!
//! // What one was told holds for all.
//! store.pause("api.example.com", Duration::from_secs(30)).await?;
//! let held = store.lease("api.example.com", other).await?;
//! assert!(held.pause > Duration::from_secs(29));
//! # Ok(()) }
//! ```

mod ask;

mod demand;
mod error;
mod limits;
mod listening;
mod memory;
mod outage;
mod pauses;
#[cfg(feature = "redis")]
mod redis;
mod retries;
mod share;
mod standing;
mod worker_count;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use ask::{Lease, LeaseAsk, PaceChange, Retries, RetriesAsk, RetryTerms, SharedRate, WorkerId};
pub use error::FleetError;
pub(crate) use limits::KeyKind;
pub use limits::{FleetLimits, FleetLimitsBuilder};
pub(crate) use listening::PauseListener;
pub use memory::MemoryStore;
pub use pauses::{Pause, Pauses};
#[cfg(feature = "redis")]
pub use redis::{RedisStore, RedisStoreBuilder};
pub(crate) use retries::{Payment, SharedRetries};
pub(crate) use share::{Share, Turn};

/// No pause is longer, whatever a server has asked for: one worker that reads nonsense must not stop all
/// others for a day.
const MAX_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Since whoever counts was made, on its own clock.
type Time = Duration;

/// The future that a [`FleetStore`] returns.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, FleetError>> + Send + 'a>>;

/// Where a fleet keeps what its workers share.
///
/// Every method but [`pauses`](Self::pauses) is one step that nobody can come between, and is over within a
/// small time, if need be with an error: whoever asks has a call to make.
///
/// # What `lease` promises
///
/// - All tokens granted within any time `t`, less those handed back, are at most
///   `burst + per_second × t`, and one fair share: what one of the workers may send in one `period`, or 1.
/// - Workers that want more than there is get the same. One that is refused is told when its turn is, and
///   then goes before those that were not.
/// - What one does not ask for is there for the others, up to `burst`.
/// - The rate that comes with a question is the one that counts, so that it can be changed by replacing one
///   worker after the other.
pub trait FleetStore: fmt::Debug + Send + Sync + 'static {
    /// One decision about sending: puts back what was not used, notes what was learned, and takes tokens.
    fn lease<'a>(&'a self, key: &'a str, ask: LeaseAsk) -> StoreFuture<'a, Lease>;

    /// One decision about retrying: puts back what was not used, credits calls, and takes retries.
    fn retries<'a>(&'a self, key: &'a str, ask: RetriesAsk) -> StoreFuture<'a, Retries>;

    /// Holds all workers back for so long from now, up to an hour, unless they are held back for longer
    /// already.
    fn pause<'a>(&'a self, key: &'a str, length: Duration) -> StoreFuture<'a, ()>;

    /// All pauses that any worker tells of from now on.
    fn pauses(&self) -> StoreFuture<'_, Box<dyn Pauses>>;
}

impl<S: FleetStore + ?Sized> FleetStore for Arc<S> {
    fn lease<'a>(&'a self, key: &'a str, ask: LeaseAsk) -> StoreFuture<'a, Lease> {
        S::lease(self, key, ask)
    }

    fn retries<'a>(&'a self, key: &'a str, ask: RetriesAsk) -> StoreFuture<'a, Retries> {
        S::retries(self, key, ask)
    }

    fn pause<'a>(&'a self, key: &'a str, length: Duration) -> StoreFuture<'a, ()> {
        S::pause(self, key, length)
    }

    fn pauses(&self) -> StoreFuture<'_, Box<dyn Pauses>> {
        S::pauses(self)
    }
}
