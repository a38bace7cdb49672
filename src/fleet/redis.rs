//! A store in Redis.

mod address;
mod failure;
mod heard;
mod link;
mod script;
mod source;

use std::fmt;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Client, ConnectionInfo};

use super::ask::check_key;
use super::{
    FleetError, FleetStore, Lease, LeaseAsk, MAX_PAUSE, Pauses, Retries, RetriesAsk, StoreFuture,
};
use crate::config::ConfigError;
use heard::{Heard, Silence};
use link::Link;
use script::{Call, Scripts, Text};
use source::{Connection, Source};

const PREFIX: &str = "steady";
const MAX_PREFIX: usize = 64;
const MAX_WAIT: Duration = Duration::from_millis(50);
const MOST_WAIT: Duration = Duration::from_secs(10);

/// A store in Redis (6 or later), for the workers of many processes.
///
/// ```no_run
/// use reqwest_steady::fleet::RedisStore;
///
/// let store = RedisStore::new("redis://user:password@redis.internal:6379")?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
///
/// # When Redis is away
///
/// Nothing is done when it is made: it connects when it is first asked, by a task of its own. A question is
/// over within [`max_wait`](RedisStoreBuilder::max_wait), whether Redis hangs, is cut off or is being
/// restarted; after that one, others fail at once for 100 ms, and up to a second if it stays away. Then it
/// is tried again. Late answers are lost with their connection.
///
/// What Redis has forgotten begins anew: buckets are full, budgets have their reserve, nobody pauses.
///
/// # What is kept there
///
/// | name | type | what | for |
/// |---|---|---|---|
/// | `{prefix:key}:state` | hash | level of the bucket, pause, adaptive rate | a minute, or until it is as if new |
/// | `{prefix:key}:workers` | sorted set | who is there | three periods, and 3 s |
/// | `{prefix:key}:waiting` | sorted set | who was refused, and when its turn is | until then, and a period |
/// | `{prefix:key}:retries` | hash | the retry budget, in 16 slots | twice its `ttl` |
/// | `prefix:pauses` | channel | pauses, as they begin | |
///
/// Keys are written as they are: one that holds a secret should be hashed before.
///
/// # Redis Cluster
///
/// All names of one key have the same hash tag, so that they are on the same node of a cluster. A URL leads to one
/// node, and no redirection is followed from there: give a connection that knows the cluster to
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
/// A `rediss://` URL needs the crate `redis` with TLS: depend on it yourself, with a feature like
/// `tokio-rustls-comp`. [`from_client`](Self::from_client) takes a client with certificates of your own.
pub struct RedisStore {
    link: Link,
    /// For a connection that hears pauses, if there is to be one.
    ears: Option<Client>,
    prefix: String,
    scripts: Scripts,
    max_wait: Duration,
}

impl RedisStore {
    /// With the usual settings. The URL is like `redis://user:password@host:6379/0`.
    pub fn new(url: &str) -> Result<Self, ConfigError> {
        Self::builder(url).build()
    }

    /// With the usual settings, and a client that was made elsewhere.
    pub fn from_client(client: &Client) -> Result<Self, ConfigError> {
        Self::builder_from_client(client).build()
    }

    /// To change settings.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Place::Address(address::of_url(url)))
    }

    /// To change settings, with a client that was made elsewhere.
    pub fn builder_from_client(client: &Client) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Place::Address(address::of_client(client)))
    }

    /// To change settings, with a connection that was made elsewhere: one of the crate's `aio`, or one to a cluster.
    ///
    /// Its time limits do not matter here, for a question is over within
    /// [`max_wait`](RedisStoreBuilder::max_wait). But it has to connect again by itself when Redis was away, as a
    /// `ConnectionManager` or a `ClusterConnection` does, and a `MultiplexedConnection` does not. It also belongs to the
    /// runtime that it was made in.
    ///
    /// Pauses come with leases then, and so up to a lease later than over a connection that
    /// [listens](RedisStoreBuilder::listen) for them.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use reqwest_steady::fleet::RedisStore;
    ///
    /// let client = redis::Client::open("redis://redis.internal")?;
    /// let connection = client.get_connection_manager().await?;
    /// let store = RedisStore::builder_from_connection(connection)
    ///     .listen(&client)
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn builder_from_connection<C>(connection: C) -> RedisStoreBuilder
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        RedisStoreBuilder::new(Place::Connection(Box::new(connection)))
    }

    /// How often Redis was asked, for metrics: once for each question, and once more for the first after it has
    /// lost its scripts.
    pub fn round_trips(&self) -> u64 {
        self.link.round_trips()
    }

    fn name(&self, key: &str, what: &str) -> String {
        format!("{{{}:{key}}}:{what}", self.prefix)
    }

    fn channel(&self) -> String {
        format!("{}:pauses", self.prefix)
    }

    async fn run<T: redis::FromRedisValue>(
        &self,
        script: &Text,
        keys: &[String],
        arguments: &[String],
    ) -> Result<T, FleetError> {
        let call = Call {
            script,
            keys,
            arguments,
        };
        self.link.run(call).await
    }

    async fn ask_lease(&self, key: &str, ask: LeaseAsk) -> Result<Lease, FleetError> {
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
        let answer: (u32, u64, u64, u32, String) =
            self.run(&self.scripts.lease, &keys, &arguments).await?;
        let (tokens, retry_after, pause, workers, pace) = answer;
        Ok(Lease {
            tokens,
            retry_after: Duration::from_micros(retry_after),
            pause: Duration::from_micros(pause),
            workers,
            pace: pace.parse().ok(),
        })
    }

    async fn ask_retries(&self, key: &str, ask: RetriesAsk) -> Result<Retries, FleetError> {
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
        ];
        let keys = [self.name(key, "retries")];
        let answer = self.run(&self.scripts.retries, &keys, &arguments).await?;
        let (granted, balance): (u32, f64) = answer;
        Ok(Retries { granted, balance })
    }

    async fn tell_pause(&self, key: &str, length: Duration) -> Result<(), FleetError> {
        check_key(key)?;
        let length = length.min(MAX_PAUSE).as_micros();
        let keys = [self.name(key, "state")];
        let arguments = [length.to_string(), self.channel(), key.to_owned()];
        self.run::<i64>(&self.scripts.pause, &keys, &arguments)
            .await?;
        Ok(())
    }

    async fn listen(&self) -> Result<Box<dyn Pauses>, FleetError> {
        match &self.ears {
            Some(client) => Ok(Box::new(Heard::on(client, &self.channel()).await?)),
            None => Ok(Box::new(Silence)),
        }
    }
}

/// As Rust writes numbers, they are read back the same.
fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Without the address, which may hold a password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.prefix)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

impl FleetStore for RedisStore {
    fn lease<'a>(&'a self, key: &'a str, ask: LeaseAsk) -> StoreFuture<'a, Lease> {
        Box::pin(self.ask_lease(key, ask))
    }

    fn retries<'a>(&'a self, key: &'a str, ask: RetriesAsk) -> StoreFuture<'a, Retries> {
        Box::pin(self.ask_retries(key, ask))
    }

    fn pause<'a>(&'a self, key: &'a str, length: Duration) -> StoreFuture<'a, ()> {
        Box::pin(self.tell_pause(key, length))
    }

    fn pauses(&self) -> StoreFuture<'_, Box<dyn Pauses>> {
        Box::pin(self.listen())
    }
}

/// Builds a [`RedisStore`]. A value that makes no sense is refused in [`build`](RedisStoreBuilder::build).
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::fleet::RedisStore;
///
/// let store = RedisStore::builder("redis://127.0.0.1")
///     .prefix("billing")
///     .max_wait(Duration::from_millis(20))
///     .build()?;
///
/// let refused = RedisStore::new("redis://user:password@host/zero").unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "url (redis://host) should be like redis://user:password@host:6379/0",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct RedisStoreBuilder {
    place: Place,
    ears: Option<Result<ConnectionInfo, ConfigError>>,
    prefix: String,
    max_wait: Duration,
}

/// Where Redis is.
enum Place {
    Address(Result<ConnectionInfo, ConfigError>),
    Connection(Box<dyn Connection>),
}

impl RedisStoreBuilder {
    fn new(place: Place) -> Self {
        Self {
            place,
            ears: None,
            prefix: PREFIX.to_owned(),
            max_wait: MAX_WAIT,
        }
    }

    /// What all names in Redis begin with, after a brace; workers share their limits with those of the same
    /// prefix. Letters, digits, `-`, `_`, `.` and `/`. Default: `steady`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a question may take, connecting included; up to 10 s. Default: 50 ms.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }

    /// Hears of pauses over one more connection, made with this client. Of a cluster it may lead to any node, for all
    /// are told. By default, that is the client or the URL that is there already; with a connection that was made
    /// elsewhere, nobody listens.
    pub fn listen(mut self, client: &Client) -> Self {
        self.ears = Some(address::of_client(client));
        self
    }

    /// The store, or what is wrong with its settings. It does not connect yet.
    pub fn build(self) -> Result<RedisStore, ConfigError> {
        let ears = self.ears.map(|info| open(info?)).transpose()?;
        let (source, ears) = match self.place {
            Place::Address(info) => {
                let client = open(info?)?;
                (Source::Client(client.clone()), Some(ears.unwrap_or(client)))
            }
            Place::Connection(connection) => (Source::Given(connection), ears),
        };
        check_prefix(&self.prefix)?;
        if self.max_wait.is_zero() || self.max_wait > MOST_WAIT {
            return Err(ConfigError::new(
                "max_wait",
                format_args!("{:?}", self.max_wait),
                "should be longer than zero and at most 10 s",
            ));
        }
        Ok(RedisStore {
            link: Link::new(source, self.max_wait),
            ears,
            prefix: self.prefix,
            scripts: Scripts::new(),
            max_wait: self.max_wait,
        })
    }
}

/// Without the address, which may hold a password.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

fn open(info: ConnectionInfo) -> Result<Client, ConfigError> {
    // Questions are small, and one that waits for the answer to another may be too late.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Client::open(info.set_tcp_settings(tcp))
        .map_err(|_| ConfigError::new("url", "hidden", "is not what the crate `redis` can use"))
}

/// No colon, or `a` with a key `b:c` were the same as `a:b` with a key `c`. No brace, or the hash tag would end
/// there. And nothing that is a pattern in a rule of Redis's.
fn check_prefix(prefix: &str) -> Result<(), ConfigError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    if (1..=MAX_PREFIX).contains(&prefix.len()) && prefix.bytes().all(allowed) {
        return Ok(());
    }
    Err(ConfigError::new(
        "prefix",
        format_args!("{prefix:?}"),
        format_args!("should be up to {MAX_PREFIX} letters, digits, `-`, `_`, `.` or `/`"),
    ))
}
