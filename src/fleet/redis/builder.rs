//! Builds the Redis store.

use std::fmt;
use std::time::Duration;

use redis::{Client, ConnectionInfo};

use super::connection_source::{ConnectionSource, SharedConnection};
use super::link::RedisLink;
use super::script::Scripts;
use super::{RedisStore, address};
use crate::config::ConfigError;

const DEFAULT_PREFIX: &str = "steady";
const MAX_PREFIX: usize = 64;
const DEFAULT_MAX_WAIT: Duration = Duration::from_millis(50);
const LONGEST_MAX_WAIT: Duration = Duration::from_secs(10);

/// Builds a [`RedisStore`]. [`build`](RedisStoreBuilder::build) checks all values.
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
    target: RedisTarget,
    pause_address: Option<Result<ConnectionInfo, ConfigError>>,
    prefix: String,
    max_wait: Duration,
}

/// How to reach Redis.
pub(super) enum RedisTarget {
    Address(Result<ConnectionInfo, ConfigError>),
    Connection(Box<dyn SharedConnection>),
}

impl RedisStoreBuilder {
    pub(super) fn new(target: RedisTarget) -> Self {
        Self {
            target,
            pause_address: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            max_wait: DEFAULT_MAX_WAIT,
        }
    }

    /// Sets the first part of all names in Redis.
    ///
    /// Workers with the same prefix share their limits. Allowed are letters, digits, `-`, `_`, `.` and `/`.
    ///
    /// Default: `steady`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long a request may take, including connecting; up to 10 s.
    ///
    /// Default: 50 ms.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }

    /// Receives pauses over one more connection, made with this client.
    ///
    /// In a cluster, it may lead to any node, because all nodes get the messages.
    ///
    /// Default: the client or URL of the store. With your connection, pauses come with leases only.
    pub fn listen(mut self, client: &Client) -> Self {
        self.pause_address = Some(address::of_client(client));
        self
    }

    /// Builds the store. Does not connect yet.
    ///
    /// # Errors
    ///
    /// Refuses an invalid URL or prefix, and a `max_wait` out of range.
    pub fn build(self) -> Result<RedisStore, ConfigError> {
        let pause_client = self.pause_address.map(|info| open(info?)).transpose()?;
        let (source, pause_client) = match self.target {
            RedisTarget::Address(info) => {
                let client = open(info?)?;
                let pause_client = pause_client.unwrap_or_else(|| client.clone());
                (ConnectionSource::Client(client), Some(pause_client))
            }
            RedisTarget::Connection(connection) => {
                (ConnectionSource::Given(connection), pause_client)
            }
        };
        check_prefix(&self.prefix)?;
        if self.max_wait.is_zero() || self.max_wait > LONGEST_MAX_WAIT {
            return Err(ConfigError::new(
                "max_wait",
                format_args!("{:?}", self.max_wait),
                "should be longer than zero and at most 10 s",
            ));
        }
        Ok(RedisStore {
            link: RedisLink::new(source, self.max_wait),
            pause_client,
            prefix: self.prefix,
            scripts: Scripts::new(),
            max_wait: self.max_wait,
        })
    }
}

/// Hides the address, which may hold a password.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

fn open(info: ConnectionInfo) -> Result<Client, ConfigError> {
    // Requests are small. Without `nodelay`, one that waits for the response to another may be too late.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Client::open(info.set_tcp_settings(tcp))
        .map_err(|_| ConfigError::new("url", "hidden", "is not what the crate `redis` can use"))
}

/// Refuses three kinds of characters. With a colon, prefix `a` and key `b:c` would equal prefix `a:b` and key
/// `c`. A brace would end the hash tag. Others are patterns in Redis access rules.
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
