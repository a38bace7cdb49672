//! The handle through which middlewares share limits with other processes.

mod builder;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::pause_listeners::{PauseListener, PauseListeners};
use super::store_health::StoreHealth;
use super::worker_count::WorkerCount;
use super::worker_lease::WorkerLease;
use super::{
    DEFAULT_STORE_TIMEOUT, FleetError, FleetStore, Lease, LeaseAsk, MemoryStore, Retries,
    RetriesAsk, SharedRate, WorkerId,
};
use crate::clock;
#[cfg(feature = "redis")]
use crate::config::ConfigError;
pub use builder::FleetLimitsBuilder;

const DEFAULT_PERIOD: Duration = Duration::from_millis(500);
const MAX_WORKERS: u32 = 1_000_000;
/// Longest credible `retry_after`, in periods or in the time for one token.
const MAX_RETRY_PERIODS: u32 = 4;

/// Shares limits among all workers of a fleet, across processes.
///
/// Workers share per key: a rate, pauses, the learned adaptive rate, and a retry budget. Each worker leases
/// tokens for about half a second from a store, and sends by those without asking again. All clones are one
/// worker; each new value is another worker.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use reqwest_steady::fleet::FleetLimits;
/// use reqwest_steady::fleet::MemoryStore;
///
/// // Two workers in one process. With Redis: `FleetLimits::redis("redis://redis.internal")?`
/// let store = Arc::new(MemoryStore::new());
/// let first = FleetLimits::with_store(store.clone());
/// let second = FleetLimits::builder()
///     .store(store)
///     .lease(Duration::from_millis(200))
///     .build()?;
/// assert_eq!(first.round_trips() + second.round_trips(), 0);
///
/// let refused = FleetLimits::builder().lease(Duration::from_secs(60)).build();
/// assert_eq!(
///     refused.unwrap_err().to_string(),
///     "lease (1m) should be from 50 ms to 10 s",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// # When the store is unavailable
///
/// No call fails because of the store. No call waits for it longer than
/// [`store_timeout`](FleetLimitsBuilder::store_timeout). Then each worker uses its part of the rate: the rate divided
/// by the last known number of workers. A worker that never reached the store uses the whole rate. The
/// worker asks again after 250 ms, later up to every 2 s, and no call waits for that. The log reports when
/// the store is lost and when it is back.
///
/// # What the store sees
///
/// Host names, and paths that are part of a key. Keys from [`KeyBy::from_fn`](crate::KeyBy::from_fn) may be
/// secrets, so they are hashed (SHA-256) before. A reader of the store can still guess short texts.
#[derive(Clone)]
pub struct FleetLimits(Arc<FleetHandle>);

struct FleetHandle {
    store: Arc<dyn FleetStore>,
    worker: WorkerId,
    period: Duration,
    store_timeout: Duration,
    round_trips: AtomicU64,
    workers: WorkerCount,
    health: StoreHealth,
    listeners: Arc<PauseListeners>,
}

impl FleetLimits {
    /// Shares limits through Redis, with default settings.
    ///
    /// The URL is like `redis://user:password@host:6379/0`. The first ask opens the connection.
    ///
    /// # Errors
    ///
    /// Refuses an invalid URL.
    #[cfg(feature = "redis")]
    pub fn redis(url: &str) -> Result<Self, ConfigError> {
        Self::builder().redis(url).build()
    }

    /// Shares limits through Redis, with your client.
    ///
    /// # Errors
    ///
    /// Refuses a client whose address the crate `redis` cannot use.
    #[cfg(feature = "redis")]
    pub fn redis_client(client: &redis::Client) -> Result<Self, ConfigError> {
        Self::builder().redis_client(client).build()
    }

    /// Shares limits through any store.
    pub fn with_store(store: Arc<dyn FleetStore>) -> Self {
        Self::new(store, DEFAULT_PERIOD, DEFAULT_STORE_TIMEOUT)
    }

    /// Shares limits only among clones of this value.
    pub fn in_memory() -> Self {
        Self::with_store(Arc::new(MemoryStore::new()))
    }

    /// Starts a builder with default settings.
    pub fn builder() -> FleetLimitsBuilder {
        FleetLimitsBuilder::default()
    }

    /// Counts how often this worker has asked the store, for metrics.
    pub fn round_trips(&self) -> u64 {
        self.0.round_trips.load(Ordering::Relaxed)
    }

    /// Returns how long a worker leases tokens for.
    pub fn lease(&self) -> Duration {
        self.0.period
    }

    /// Returns how long a call waits for the store.
    pub fn store_timeout(&self) -> Duration {
        self.0.store_timeout
    }

    fn new(store: Arc<dyn FleetStore>, period: Duration, store_timeout: Duration) -> Self {
        Self(Arc::new(FleetHandle {
            store,
            worker: WorkerId::random(),
            period,
            store_timeout,
            round_trips: AtomicU64::new(0),
            workers: WorkerCount::default(),
            health: StoreHealth::default(),
            listeners: Arc::default(),
        }))
    }
}

/// For the middlewares.
impl FleetLimits {
    /// Creates the worker's side of one key. The rate must be valid.
    pub(crate) fn worker_lease(&self, rate: Option<SharedRate>) -> WorkerLease {
        WorkerLease::new(self.0.worker, rate, self.0.period, self.0.store_timeout)
    }

    /// Returns the last known number of workers.
    pub(crate) fn workers(&self) -> u32 {
        self.0.workers.count()
    }

    /// Whether recent leases report the number of workers.
    pub(crate) fn is_leasing(&self) -> bool {
        self.0.workers.is_recent(clock::now())
    }

    /// Asks the store for tokens, for at most `store_timeout`.
    pub(crate) async fn ask_lease(&self, key: &str, ask: LeaseAsk) -> Result<Lease, FleetError> {
        let lease = self.in_time(self.0.store.lease(key, ask)).await?;
        let lease = sanitized(lease, &ask);
        self.0.workers.note(clock::now(), lease.workers);
        Ok(lease)
    }

    /// Announces this worker, which repeats it every `period`, and returns the number of workers.
    pub(crate) async fn announce(&self, key: &str, period: Duration) -> Result<u32, FleetError> {
        let ask = LeaseAsk::new(self.0.worker, period);
        let lease = self.in_time(self.0.store.lease(key, ask)).await?;
        Ok(sanitized(lease, &ask).workers)
    }

    /// Asks the store for retries, for at most `store_timeout`.
    pub(crate) async fn retries(&self, key: &str, ask: RetriesAsk) -> Result<Retries, FleetError> {
        let mut retries = self.in_time(self.0.store.retries(key, ask)).await?;
        retries.granted = retries.granted.min(ask.want);
        Ok(retries)
    }

    /// Pauses all workers.
    pub(crate) async fn pause(&self, key: &str, length: Duration) -> Result<(), FleetError> {
        self.in_time(self.0.store.pause(key, length)).await
    }

    /// Notifies the listener of each pause of the key, including pauses from this worker. Needs a tokio
    /// runtime.
    pub(crate) fn listen(&self, key: &str, listener: Weak<dyn PauseListener>) {
        self.0.listeners.add(key, listener, &self.0.store);
    }

    async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, FleetError>>,
    ) -> Result<T, FleetError> {
        self.0.round_trips.fetch_add(1, Ordering::Relaxed);
        let after = self.0.store_timeout;
        let result = timeout(after, request).await;
        let result = result.unwrap_or(Err(FleetError::TimedOut { after }));
        self.0.health.note(clock::now(), result.as_ref().err());
        result
    }
}

/// Limits a lease to credible values: a broken store must neither flood a server nor stop a worker.
fn sanitized(mut lease: Lease, ask: &LeaseAsk) -> Lease {
    lease.tokens = lease.tokens.min(ask.want);
    lease.workers = lease.workers.clamp(1, MAX_WORKERS);
    lease.pace = lease.pace.filter(|pace| pace.is_finite() && *pace >= 0.0);
    // Asking again is useful after a period, or when the next token comes.
    let token = (ask.rate).map_or(Duration::ZERO, |rate| {
        Duration::from_secs_f64(1.0 / rate.per_second)
    });
    lease.retry_after = (lease.retry_after).min(ask.period.max(token) * MAX_RETRY_PERIODS);
    lease
}

/// Hides the store's address, which may hold a password.
impl fmt::Debug for FleetLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetLimits")
            .field("store", &self.0.store)
            .field("lease", &self.0.period)
            .field("store_timeout", &self.0.store_timeout)
            .field("round_trips", &self.round_trips())
            .finish()
    }
}

#[cfg(test)]
#[path = "limits/tests.rs"]
mod tests;
