//! The handle by which middlewares share limits with those of other processes.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::listening::{Listeners, PauseListener};
use super::share::Share;
use super::standing::Standing;
use super::worker_count::WorkerCount;
use super::{
    FleetError, FleetStore, Lease, LeaseAsk, MemoryStore, Retries, RetriesAsk, SharedRate, WorkerId,
};
use crate::clock;
use crate::config::ConfigError;

const PERIOD: Duration = Duration::from_millis(500);
const SHORTEST_PERIOD: Duration = Duration::from_millis(50);
const LONGEST_PERIOD: Duration = Duration::from_secs(10);
const MAX_WAIT: Duration = Duration::from_millis(50);
const MOST_WAIT: Duration = Duration::from_secs(10);
const MOST_WORKERS: u32 = 1_000_000;
const A_FEW: u32 = 4;
/// A longer one is hashed, whether it is private or not: a store takes no key of any length.
const LONGEST_TEXT: usize = 256;

/// Limits that hold for all workers of a fleet together, in however many processes they are.
///
/// Workers share, for each key, a rate, a pause, what they have learned of the rate that a server accepts, and
/// a retry budget. Each leases tokens for the next half second or so from a store, and sends by those without
/// asking again. Clones are one worker; each that is made anew is another.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use reqwest_steady::FleetLimits;
/// use reqwest_steady::fleet::MemoryStore;
///
/// // Two workers in one process. With Redis: `FleetLimits::redis("redis://redis.internal")?`
/// let store = Arc::new(MemoryStore::new());
/// let one = FleetLimits::with_store(store.clone());
/// let other = FleetLimits::builder()
///     .store(store)
///     .lease(Duration::from_millis(200))
///     .build()?;
/// assert_eq!(one.round_trips() + other.round_trips(), 0);
///
/// let refused = FleetLimits::builder().lease(Duration::from_secs(60)).build();
/// assert_eq!(
///     refused.unwrap_err().to_string(),
///     "lease (60s) should be from 50 ms to 10 s",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// # When the store is away
///
/// No call fails for it, and none waits for it longer than [`max_wait`](FleetLimitsBuilder::max_wait). From then
/// on each worker keeps to its part of the rate: all of it, divided by the number of workers that the store
/// last told of. One that has never reached the store knows of no others, and takes all of it. It is asked
/// again after 250 ms, and then up to every 2 s, by calls that do not wait for it. The log tells when it is
/// away, and when it is back.
///
/// # What the store gets to know
///
/// The names of hosts, and the paths that are part of a key. What a function of
/// [`KeyBy::with`](crate::KeyBy::with) has made is hashed (SHA-256) before, for it may be a secret. Whoever can
/// read the store can still find out a text that is easy to guess.
#[derive(Clone)]
pub struct FleetLimits(Arc<Fleet>);

struct Fleet {
    store: Arc<dyn FleetStore>,
    worker: WorkerId,
    period: Duration,
    max_wait: Duration,
    round_trips: AtomicU64,
    workers: WorkerCount,
    standing: Standing,
    listeners: Arc<Listeners>,
}

impl FleetLimits {
    /// Shares through Redis, with the usual settings. The URL is like `redis://user:password@host:6379/0`.
    /// It does not connect yet.
    #[cfg(feature = "redis")]
    pub fn redis(url: &str) -> Result<Self, ConfigError> {
        Self::builder().redis(url).build()
    }

    /// Shares through Redis, with a client that was made elsewhere.
    #[cfg(feature = "redis")]
    pub fn redis_client(client: &redis::Client) -> Result<Self, ConfigError> {
        Self::builder().redis_client(client).build()
    }

    /// Shares through a store of any kind.
    pub fn with_store(store: Arc<dyn FleetStore>) -> Self {
        Self::new(store, PERIOD, MAX_WAIT)
    }

    /// Shares with all clones, and with nobody else.
    pub fn in_memory() -> Self {
        Self::with_store(Arc::new(MemoryStore::new()))
    }

    /// To change settings.
    pub fn builder() -> FleetLimitsBuilder {
        FleetLimitsBuilder::default()
    }

    /// How often the store was asked by this worker, for metrics.
    pub fn round_trips(&self) -> u64 {
        self.0.round_trips.load(Ordering::Relaxed)
    }

    fn new(store: Arc<dyn FleetStore>, period: Duration, max_wait: Duration) -> Self {
        Self(Arc::new(Fleet {
            store,
            worker: WorkerId::random(),
            period,
            max_wait,
            round_trips: AtomicU64::new(0),
            workers: WorkerCount::default(),
            standing: Standing::default(),
            listeners: Arc::default(),
        }))
    }
}

/// What the middlewares need of it.
impl FleetLimits {
    /// What this worker holds of one key. The rate must have been checked.
    pub(crate) fn share(&self, rate: Option<SharedRate>) -> Share {
        Share::new(self.0.worker, rate, self.0.period, self.0.max_wait)
    }

    /// How many workers there are, as far as is known.
    pub(crate) fn workers(&self) -> u32 {
        self.0.workers.count()
    }

    /// Whether leases tell how many there are.
    pub(crate) fn is_leasing(&self) -> bool {
        self.0.workers.is_recent(clock::now())
    }

    pub(crate) fn period(&self) -> Duration {
        self.0.period
    }

    pub(crate) fn max_wait(&self) -> Duration {
        self.0.max_wait
    }

    /// What something is called in the store. Private texts, and long ones, do not get there.
    pub(crate) fn key(kind: KeyKind, text: &str, is_private: bool) -> String {
        let kind = match kind {
            KeyKind::Gate => "gate",
            KeyKind::Retry => "retry",
        };
        if !is_private && text.len() <= LONGEST_TEXT {
            return format!("{kind}:{text}");
        }
        let hash = hmac_sha256::Hash::hash(text.as_bytes());
        let hex = hash[..16].iter().map(|byte| format!("{byte:02x}"));
        // No host begins like this.
        format!("{kind}:#{}", hex.collect::<String>())
    }

    /// Asks the store, for `max_wait` at most.
    pub(crate) async fn lease(&self, key: &str, ask: LeaseAsk) -> Result<Lease, FleetError> {
        let lease = self.in_time(self.0.store.lease(key, ask)).await?;
        let lease = sensible(lease, &ask);
        self.0.workers.note(clock::now(), lease.workers);
        Ok(lease)
    }

    /// Says that this worker is there, as it will every `period`, and asks how many are.
    pub(crate) async fn count(&self, key: &str, period: Duration) -> Result<u32, FleetError> {
        let ask = LeaseAsk::new(self.0.worker, period);
        let lease = self.in_time(self.0.store.lease(key, ask)).await?;
        Ok(sensible(lease, &ask).workers)
    }

    /// Asks the store, for `max_wait` at most.
    pub(crate) async fn retries(&self, key: &str, ask: RetriesAsk) -> Result<Retries, FleetError> {
        let mut retries = self.in_time(self.0.store.retries(key, ask)).await?;
        retries.granted = retries.granted.min(ask.want);
        Ok(retries)
    }

    /// Tells all workers to hold back.
    pub(crate) async fn pause(&self, key: &str, length: Duration) -> Result<(), FleetError> {
        self.in_time(self.0.store.pause(key, length)).await
    }

    /// From now on, this one is told of each pause of the key, its own among them. Within a runtime, or
    /// nobody can listen.
    pub(crate) fn listen(&self, key: &str, listener: Weak<dyn PauseListener>) {
        self.0.listeners.add(key, listener);
        Listeners::listen(&self.0.listeners, &self.0.store);
    }

    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, FleetError>>,
    ) -> Result<T, FleetError> {
        self.0.round_trips.fetch_add(1, Ordering::Relaxed);
        let after = self.0.max_wait;
        let answer = timeout(after, answer).await;
        let answer = answer.unwrap_or(Err(FleetError::TimedOut { after }));
        self.0.standing.note(clock::now(), answer.as_ref().err());
        answer
    }
}

/// What a store in good order can have answered: one that is not must neither flood a server nor stop a worker.
fn sensible(mut lease: Lease, ask: &LeaseAsk) -> Lease {
    lease.tokens = lease.tokens.min(ask.want);
    lease.workers = lease.workers.clamp(1, MOST_WORKERS);
    lease.pace = lease.pace.filter(|pace| pace.is_finite() && *pace >= 0.0);
    // It is worth asking again after a period, or when the next token comes.
    let token = (ask.rate).map_or(Duration::ZERO, |rate| {
        Duration::from_secs_f64(1.0 / rate.per_second)
    });
    lease.retry_after = lease.retry_after.min(ask.period.max(token) * A_FEW);
    lease
}

/// What a key is for: what a gate and a budget know of one host is kept apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyKind {
    Gate,
    Retry,
}

/// Without the store's address, which may hold a password.
impl fmt::Debug for FleetLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetLimits")
            .field("store", &self.0.store)
            .field("lease", &self.0.period)
            .field("max_wait", &self.0.max_wait)
            .field("round_trips", &self.round_trips())
            .finish_non_exhaustive()
    }
}

/// Builds [`FleetLimits`]. A value that makes no sense is refused in [`build`](FleetLimitsBuilder::build).
///
/// Without a store, they are kept in memory.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::FleetLimits;
///
/// let fleet = FleetLimits::builder()
///     .lease(Duration::from_secs(1))
///     .max_wait(Duration::from_millis(20))
///     .build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct FleetLimitsBuilder {
    place: Place,
    prefix: Option<String>,
    period: Duration,
    max_wait: Duration,
}

/// Where limits are kept.
enum Place {
    Memory,
    Store(Arc<dyn FleetStore>),
    #[cfg(feature = "redis")]
    Redis(Box<super::RedisStoreBuilder>),
}

impl Default for FleetLimitsBuilder {
    fn default() -> Self {
        Self {
            place: Place::Memory,
            prefix: None,
            period: PERIOD,
            max_wait: MAX_WAIT,
        }
    }
}

impl FleetLimitsBuilder {
    /// In Redis. The URL is like `redis://user:password@host:6379/0`.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, url: &str) -> Self {
        self.place = Place::Redis(Box::new(super::RedisStore::builder(url)));
        self
    }

    /// In Redis, with a client that was made elsewhere.
    #[cfg(feature = "redis")]
    pub fn redis_client(mut self, client: &redis::Client) -> Self {
        let builder = super::RedisStore::builder_from_client(client);
        self.place = Place::Redis(Box::new(builder));
        self
    }

    /// In Redis, with a connection that was made elsewhere: also one to a cluster. Pauses come with leases then;
    /// [`RedisStore::builder_from_connection`](super::RedisStore::builder_from_connection) says more, and how to hear
    /// of them at once.
    #[cfg(feature = "redis")]
    pub fn redis_connection<C>(mut self, connection: C) -> Self
    where
        C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        let builder = super::RedisStore::builder_from_connection(connection);
        self.place = Place::Redis(Box::new(builder));
        self
    }

    /// In a store of any kind.
    pub fn store(mut self, store: Arc<dyn FleetStore>) -> Self {
        self.place = Place::Store(store);
        self
    }

    /// What all names in Redis begin with: workers share their limits with those of the same prefix. Only
    /// with Redis. Default: `steady`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// For how long a worker leases tokens at a time, from 50 ms to 10 s; up to four times as long where its
    /// fair share would be less than 60 tokens. A longer one needs fewer round trips; with a shorter one, less
    /// is held by workers that do not need it. Default: 500 ms.
    pub fn lease(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// How long a call waits for the store, up to 10 s, before the worker goes by what it knows.
    /// Default: 50 ms.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }

    /// The limits, or what is wrong with their settings.
    pub fn build(self) -> Result<FleetLimits, ConfigError> {
        if !(SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&self.period) {
            return Err(ConfigError::new(
                "lease",
                format_args!("{:?}", self.period),
                "should be from 50 ms to 10 s",
            ));
        }
        if self.max_wait.is_zero() || self.max_wait > MOST_WAIT {
            return Err(ConfigError::new(
                "max_wait",
                format_args!("{:?}", self.max_wait),
                "should be longer than zero and at most 10 s",
            ));
        }
        let store: Arc<dyn FleetStore> = match self.place {
            #[cfg(feature = "redis")]
            Place::Redis(mut store) => {
                if let Some(prefix) = self.prefix {
                    *store = store.prefix(prefix);
                }
                Arc::new(store.max_wait(self.max_wait).build()?)
            }
            place => {
                if let Some(prefix) = self.prefix {
                    let rule = "should only be given with Redis";
                    return Err(ConfigError::new("prefix", format_args!("{prefix:?}"), rule));
                }
                match place {
                    Place::Store(store) => store,
                    _ => Arc::new(MemoryStore::new()),
                }
            }
        };
        Ok(FleetLimits::new(store, self.period, self.max_wait))
    }
}

/// Without the store's address, which may hold a password.
impl fmt::Debug for FleetLimitsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetLimitsBuilder")
            .field("prefix", &self.prefix)
            .field("lease", &self.period)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
