//! Shares limits between processes, because a quota belongs to an account.
//!
//! A [`FleetStore`] keeps, per key, what all workers share: rate, pause, adaptive rate and retry budget.
//! Each decision is one atomic step in the store, on the store's clock. [`MemoryStore`] serves one process
//! and tests; `RedisStore` (feature `redis`) serves many processes.
//!
//! Most users need only [`FleetLimits`] and never call a store. A worker leases tokens from the store for
//! about half a second and sends by those. Without the store, it uses its part of the last known limits.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), reqwest_steady::fleet::FleetError> {
//! use std::time::Duration;
//! use reqwest_steady::fleet::{FleetStore, LeaseAsk, MemoryStore, WorkerId};
//!
//! let store = MemoryStore::new();
//! let period = Duration::from_millis(100);
//! let first_worker = LeaseAsk::new(WorkerId::random(), period).rate(10.0, 20);
//! let second_worker = LeaseAsk::new(WorkerId::random(), period).rate(10.0, 20);
//!
//! // After idling, 20 requests may go at once, from all workers together.
//! let first = store.lease("api.example.com", first_worker.want(15)).await?;
//! let second = store.lease("api.example.com", second_worker.want(4)).await?;
//! let third = store.lease("api.example.com", first_worker.want(15)).await?;
//! assert_eq!((first.tokens, second.tokens, third.tokens), (15, 4, 1));
//! assert_eq!(third.workers, 2);
//!
//! // A pause holds for all workers.
//! store.pause("api.example.com", Duration::from_secs(30)).await?;
//! let paused = store.lease("api.example.com", second_worker).await?;
//! assert!(paused.pause > Duration::from_secs(29));
//! # Ok(()) }
//! ```

mod demand;
mod error;
mod holding;
mod key;
mod lease;
mod limits;
mod memory;
mod outage;
mod pause_listeners;
mod pauses;
#[cfg(feature = "redis")]
mod redis;
mod retries;
mod store_health;
mod swept_table;
mod worker_count;
mod worker_lease;
mod worker_retries;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Time;
use crate::config::{ConfigError, Written, ensure};
pub use error::FleetError;
pub(crate) use key::store_key;
pub use lease::{Lease, LeaseAsk, PaceChange, SharedRate, WorkerId};
pub use limits::{FleetLimits, FleetLimitsBuilder};
pub use memory::MemoryStore;
pub(crate) use pause_listeners::PauseListener;
pub use pauses::{Pause, Pauses};
#[cfg(feature = "redis")]
pub use redis::{RedisStore, RedisStoreBuilder};
pub use retries::{Retries, RetriesAsk, RetryTerms};
pub(crate) use worker_lease::{LeaseTurn, WorkerLease};
pub(crate) use worker_retries::{Payment, WorkerRetries};

/// Longest pause, whatever a server asks for. One worker that reads a wrong hint must not stop all workers
/// for a day.
const MAX_PAUSE: Duration = Duration::from_secs(60 * 60);
/// How long a request to the store may take.
const DEFAULT_STORE_TIMEOUT: Duration = Duration::from_millis(50);
const LONGEST_STORE_TIMEOUT: Duration = Duration::from_secs(10);

fn check_store_timeout(store_timeout: Duration) -> Result<(), ConfigError> {
    let in_range = !store_timeout.is_zero() && store_timeout <= LONGEST_STORE_TIMEOUT;
    let rule = "should be longer than zero and at most 10 s";
    ensure(in_range, "store_timeout", Written(store_timeout), rule)
}

/// The future that a [`FleetStore`] returns.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, FleetError>> + Send + 'a>>;

/// Stores what the workers of a fleet share.
///
/// Implement it to share limits through something other than Redis. Every method except
/// [`pauses`](Self::pauses) is one atomic step. It must finish in a short time, with an error if need be,
/// because a call may wait for it.
///
/// # What `lease` promises
///
/// - Within any time `t`, all tokens granted, less those handed back, are at most
///   `burst + per_second × t` plus one fair share. A fair share is what one worker may send in one
///   `period`, at least 1.
/// - Workers that want more than there is get equal parts. A refused worker gets a turn, and then goes
///   before workers that were not refused.
/// - Tokens that a worker does not ask for are available to the others, up to `burst`.
/// - The rate of the latest ask applies. So a rate can change while workers are replaced one by one.
pub trait FleetStore: fmt::Debug + Send + Sync + 'static {
    /// Decides about sending: takes back unused tokens, records the adaptive rate, grants tokens.
    fn lease<'a>(&'a self, key: &'a str, ask: LeaseAsk) -> StoreFuture<'a, Lease>;

    /// Decides about retries: takes back unused ones, credits calls, grants retries.
    fn retries<'a>(&'a self, key: &'a str, ask: RetriesAsk) -> StoreFuture<'a, Retries>;

    /// Pauses all workers for `length` from now, up to an hour. A longer pause stays as it is.
    fn pause<'a>(&'a self, key: &'a str, length: Duration) -> StoreFuture<'a, ()>;

    /// Subscribes to the pauses of all keys, from now on.
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
