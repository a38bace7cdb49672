//! A store in Redis, for the workers of many processes.
//!
//! Each decision is one Lua script. [`link`] keeps the connection for scripts, [`pause_subscription`] another
//! one for pauses that Redis pushes.

mod address;
mod builder;
mod failure;
mod link;
mod pause_subscription;
mod script;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use redis::aio::ConnectionLike;

use super::key::check_key;
use super::{FleetStore, Lease, LeaseAsk, MAX_PAUSE, Pauses, Retries, RetriesAsk, StoreFuture};
use crate::config::ConfigError;
pub use builder::RedisStoreBuilder;
use link::{ConnectionSource, RedisLink};
use pause_subscription::{NoPauses, PauseSubscription};

/// Keeps shared limits in Redis (6 or later), for the workers of many processes.
///
/// ```no_run
/// use reqwest_steady::fleet::RedisStore;
///
/// let store = RedisStore::new("redis://user:password@redis.internal:6379")?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// # When Redis is unavailable
///
/// A background task connects at the first request. Each request ends within
/// [`store_timeout`](RedisStoreBuilder::store_timeout), whether Redis hangs, is unreachable or restarts. After a failure,
/// other requests fail at once for 100 ms, later for up to 1 s. Then the store tries again. Late responses are
/// discarded with their connection.
///
/// If Redis loses its data, buckets are full, budgets have a full reserve, and no pause holds.
///
/// # What Redis keeps
///
/// | name | type | content | lifetime |
/// |---|---|---|---|
/// | `{prefix:key}:state` | hash | bucket level, pause, adaptive rate | a minute, or until it equals a new one |
/// | `{prefix:key}:workers` | sorted set | present workers | three periods, at least 3 s |
/// | `{prefix:key}:waiting` | sorted set | refused workers and their turns | until the turn and a period |
/// | `{prefix:key}:retries` | hash | retry budget: its pool, and 16 slots | twice its `ttl`, an hour if the pool is not full |
/// | `prefix:pauses` | channel | pauses as they begin | |
///
/// Keys are stored as they are. Hash a key that holds a secret.
///
/// # Redis Cluster
///
/// All names of one key have the same hash tag, so they are on the same node. A URL leads to one node, and the
/// store follows no redirection. For a cluster, give a cluster connection to
/// [`builder_from_connection`](Self::builder_from_connection).
///
/// # What Redis must allow
///
/// ```text
/// ACL SETUSER steady on >password ~{steady:* &steady:pauses -@all +evalsha +eval +time +hmget +hset
///     +hgetall +hdel +del +zadd +zrem +zremrangebyscore +zcard +zscore +pttl +pexpire +publish
///     +subscribe +ping +hello +auth +select +client|setinfo
/// ```
///
/// # TLS
///
/// A `rediss://` URL needs the crate `redis` with TLS. Depend on it with a feature like `tokio-rustls-comp`.
/// [`from_client`](Self::from_client) takes a client with your certificates.
pub struct RedisStore {
    link: Arc<RedisLink>,
    /// Opens the connection that receives pauses. Without it, pauses come with leases only.
    pause_client: Option<Client>,
    prefix: String,
    store_timeout: Duration,
}

impl RedisStore {
    /// Creates a store with default settings, at a URL like `redis://user:password@host:6379/0`.
    ///
    /// # Errors
    ///
    /// Refuses an invalid URL. The error does not show the password.
    pub fn new(url: &str) -> Result<Self, ConfigError> {
        Self::builder(url).build()
    }

    /// Creates a store with default settings and your client.
    ///
    /// # Errors
    ///
    /// Refuses an address that the crate `redis` cannot use.
    pub fn from_client(client: &Client) -> Result<Self, ConfigError> {
        Self::builder_from_client(client).build()
    }

    /// Starts a builder with a URL like `redis://user:password@host:6379/0`.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(address::of_url(url).map(ConnectionSource::Client))
    }

    /// Starts a builder with your client.
    pub fn builder_from_client(client: &Client) -> RedisStoreBuilder {
        RedisStoreBuilder::new(address::of_client(client).map(ConnectionSource::Client))
    }

    /// Starts a builder with your connection: one of the crate's `aio` module, or one to a cluster.
    ///
    /// The connection must reconnect by itself, as a `ConnectionManager` or a `ClusterConnection` does. A
    /// `MultiplexedConnection` does not. It belongs to the runtime in which it was made. Its time limits do not
    /// matter, because each request ends within [`store_timeout`](RedisStoreBuilder::store_timeout).
    ///
    /// Pauses then come with leases only, so up to a lease later than with
    /// [`listen`](RedisStoreBuilder::listen).
    ///
    /// ```no_run
    /// # fn example<C>(connection: C) -> Result<(), Box<dyn std::error::Error>>
    /// # where C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static {
    /// use reqwest_steady::fleet::RedisStore;
    ///
    /// let client = redis::Client::open("redis://redis.internal")?;
    /// // let connection = client.get_connection_manager().await?;
    /// let store = RedisStore::builder_from_connection(connection)
    ///     .listen(&client)
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn builder_from_connection<C>(connection: C) -> RedisStoreBuilder
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        RedisStoreBuilder::new(Ok(ConnectionSource::Given(Box::new(connection))))
    }

    /// Returns the first part of all names in Redis.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns how long a request may take, including connecting.
    pub fn store_timeout(&self) -> Duration {
        self.store_timeout
    }

    /// Counts round trips to Redis, for metrics.
    ///
    /// Each request needs one. The first request after Redis lost its scripts needs two.
    pub fn round_trips(&self) -> u64 {
        self.link.round_trips()
    }

    fn name(&self, key: &str, what: &str) -> String {
        format!("{{{}:{key}}}:{what}", self.prefix)
    }

    fn channel(&self) -> String {
        format!("{}:pauses", self.prefix)
    }
}

/// Numbers as Rust writes them, which reads them back unchanged. Empty for `None`.
fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Hides the address, which may hold a password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.prefix)
            .field("store_timeout", &self.store_timeout)
            .finish_non_exhaustive()
    }
}

impl FleetStore for RedisStore {
    fn lease<'a>(&'a self, key: &'a str, ask: LeaseAsk) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            check_key(key)?;
            ask.check()?;
            let keys = ["state", "workers", "waiting"].map(|what| self.name(key, what));
            let arguments = [
                ask.worker.to_string(),
                optional(ask.rate.map(|rate| rate.per_second)),
                optional(ask.rate.map(|rate| rate.burst)),
                ask.want.to_string(),
                ask.unused.to_string(),
                ask.period.as_micros().to_string(),
                optional(ask.pace.map(|pace| pace.before)),
                optional(ask.pace.map(|pace| pace.now)),
            ];
            let reply: (u32, u64, u64, u32, String) =
                self.link.run(&script::LEASE, &keys, &arguments).await?;
            let (tokens, retry_after, pause, workers, pace) = reply;
            Ok(Lease {
                tokens,
                retry_after: Duration::from_micros(retry_after),
                pause: Duration::from_micros(pause),
                workers,
                pace: pace.parse().ok(),
            })
        })
    }

    fn retries<'a>(&'a self, key: &'a str, ask: RetriesAsk) -> StoreFuture<'a, Retries> {
        Box::pin(async move {
            check_key(key)?;
            ask.check()?;
            let arguments = [
                ask.deposits.to_string(),
                ask.want.to_string(),
                ask.unused.to_string(),
                ask.terms.slot().to_string(),
                ask.terms.ratio.to_string(),
                ask.terms.reserve().to_string(),
                (ask.terms.ttl.as_micros() * 2).to_string(),
                ask.successes.to_string(),
                ask.failures.to_string(),
                ask.terms.min_per_sec.to_string(),
            ];
            let keys = [self.name(key, "retries")];
            let reply = self.link.run(&script::RETRIES, &keys, &arguments).await?;
            let (granted, balance) = reply;
            Ok(Retries { granted, balance })
        })
    }

    fn pause<'a>(&'a self, key: &'a str, length: Duration) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            check_key(key)?;
            let length = length.min(MAX_PAUSE).as_micros();
            let keys = [self.name(key, "state")];
            let arguments = [length.to_string(), self.channel(), key.to_owned()];
            let run = self.link.run::<i64>(&script::PAUSE, &keys, &arguments);
            run.await.map(drop)
        })
    }

    fn pauses(&self) -> StoreFuture<'_, Box<dyn Pauses>> {
        Box::pin(async move {
            match &self.pause_client {
                Some(client) => PauseSubscription::open(client, &self.channel()).await,
                None => Ok(Box::new(NoPauses) as Box<dyn Pauses>),
            }
        })
    }
}
