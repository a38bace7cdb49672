//! Builds the handle and the store behind it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{DEFAULT_PERIOD, FleetLimits};
use crate::config::{ConfigError, Written, ensure};
use crate::fleet::{DEFAULT_STORE_TIMEOUT, FleetStore, MemoryStore, check_store_timeout};
#[cfg(feature = "redis")]
use crate::fleet::{RedisStore, RedisStoreBuilder};

const MIN_PERIOD: Duration = Duration::from_millis(50);
const MAX_PERIOD: Duration = Duration::from_secs(10);

/// Builds [`FleetLimits`].
///
/// Without a store, limits are kept in memory. [`build`](FleetLimitsBuilder::build) checks all values.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::fleet::FleetLimits;
///
/// let fleet = FleetLimits::builder()
///     .lease(Duration::from_secs(1))
///     .store_timeout(Duration::from_millis(20))
///     .build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct FleetLimitsBuilder {
    store: StoreChoice,
    prefix: Option<String>,
    period: Duration,
    store_timeout: Duration,
}

#[derive(Clone)]
enum StoreChoice {
    Given(Arc<dyn FleetStore>),
    #[cfg(feature = "redis")]
    Redis(Box<RedisStoreBuilder>),
}

impl Default for FleetLimitsBuilder {
    fn default() -> Self {
        Self {
            store: StoreChoice::Given(Arc::new(MemoryStore::new())),
            prefix: None,
            period: DEFAULT_PERIOD,
            store_timeout: DEFAULT_STORE_TIMEOUT,
        }
    }
}

impl FleetLimitsBuilder {
    /// Uses Redis at a URL like `redis://user:password@host:6379/0`.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, url: &str) -> Self {
        self.store = StoreChoice::Redis(Box::new(RedisStore::builder(url)));
        self
    }

    /// Uses Redis with your client.
    #[cfg(feature = "redis")]
    pub fn redis_client(mut self, client: &redis::Client) -> Self {
        let builder = RedisStore::builder_from_client(client);
        self.store = StoreChoice::Redis(Box::new(builder));
        self
    }

    /// Uses Redis with your connection, for example one to a cluster.
    ///
    /// Pauses then arrive with leases only. See
    /// [`RedisStore::builder_from_connection`](crate::fleet::RedisStore::builder_from_connection) for the
    /// requirements and for faster pauses.
    #[cfg(feature = "redis")]
    pub fn redis_connection<C>(mut self, connection: C) -> Self
    where
        C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        let builder = RedisStore::builder_from_connection(connection);
        self.store = StoreChoice::Redis(Box::new(builder));
        self
    }

    /// Uses any store.
    pub fn store(mut self, store: Arc<dyn FleetStore>) -> Self {
        self.store = StoreChoice::Given(store);
        self
    }

    /// Sets the first part of all names in Redis. Only for Redis.
    ///
    /// Workers with the same prefix share their limits.
    ///
    /// Default: `steady`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets how long a worker leases tokens for, from 50 ms to 10 s.
    ///
    /// A longer lease needs fewer round trips. With a shorter lease, idle workers hold fewer tokens. A lease
    /// is up to four times as long where a fair share would be less than 60 tokens.
    ///
    /// Default: 500 ms.
    pub fn lease(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Sets how long a call waits for the store, up to 10 s.
    ///
    /// After that, the worker uses the last known limits.
    ///
    /// Default: 50 ms.
    pub fn store_timeout(mut self, store_timeout: Duration) -> Self {
        self.store_timeout = store_timeout;
        self
    }

    /// Builds the limits. Does not connect yet.
    ///
    /// # Errors
    ///
    /// Refuses values out of range, an invalid Redis URL, and a prefix without Redis.
    pub fn build(self) -> Result<FleetLimits, ConfigError> {
        let in_range = (MIN_PERIOD..=MAX_PERIOD).contains(&self.period);
        let rule = "should be from 50 ms to 10 s";
        ensure(in_range, "lease", Written(self.period), rule)?;
        check_store_timeout(self.store_timeout)?;
        let store: Arc<dyn FleetStore> = match (self.store, self.prefix) {
            #[cfg(feature = "redis")]
            (StoreChoice::Redis(mut store), prefix) => {
                if let Some(prefix) = prefix {
                    *store = store.prefix(prefix);
                }
                Arc::new(store.store_timeout(self.store_timeout).build()?)
            }
            (StoreChoice::Given(store), None) => store,
            (StoreChoice::Given(_), Some(prefix)) => {
                let rule = "should only be given with Redis";
                return Err(ConfigError::new("prefix", format_args!("{prefix:?}"), rule));
            }
        };
        Ok(FleetLimits::new(store, self.period, self.store_timeout))
    }
}

/// Hides the store's address, which may hold a password.
impl fmt::Debug for FleetLimitsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetLimitsBuilder")
            .field("prefix", &self.prefix)
            .field("lease", &self.period)
            .field("store_timeout", &self.store_timeout)
            .finish_non_exhaustive()
    }
}
