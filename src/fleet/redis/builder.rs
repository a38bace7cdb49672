//! Builds the Redis store.

use std::fmt;
use std::time::Duration;

use redis::Client;

use super::link::{ConnectionSource, RedisLink};
use super::{RedisStore, address};
use crate::config::{ConfigError, ensure};
use crate::fleet::{DEFAULT_STORE_TIMEOUT, check_store_timeout};

const DEFAULT_PREFIX: &str = "steady";
const MAX_PREFIX: usize = 64;

/// Builds a [`RedisStore`].
///
/// [`build`](RedisStoreBuilder::build) checks all values.
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::fleet::RedisStore;
///
/// let store = RedisStore::builder("redis://127.0.0.1")
///     .prefix("billing")
///     .store_timeout(Duration::from_millis(20))
///     .build()?;
///
/// let refused = RedisStore::new("redis://user:password@host/zero").unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "url (redis://host) should be like redis://user:password@host:6379/0",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct RedisStoreBuilder {
    source: Result<ConnectionSource, ConfigError>,
    pause_client: Option<Result<Client, ConfigError>>,
    prefix: String,
    store_timeout: Duration,
}

impl RedisStoreBuilder {
    pub(super) fn new(source: Result<ConnectionSource, ConfigError>) -> Self {
        Self {
            source,
            pause_client: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            store_timeout: DEFAULT_STORE_TIMEOUT,
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
    pub fn store_timeout(mut self, store_timeout: Duration) -> Self {
        self.store_timeout = store_timeout;
        self
    }

    /// Receives pauses over one more connection, made with this client.
    ///
    /// In a cluster, it may lead to any node, because all nodes get the messages.
    ///
    /// Default: the client or URL of the store. With your connection, pauses come with leases only.
    pub fn listen(mut self, client: &Client) -> Self {
        self.pause_client = Some(address::of_client(client));
        self
    }

    /// Builds the store. Does not connect yet.
    ///
    /// # Errors
    ///
    /// Refuses an invalid URL or prefix, and a `store_timeout` out of range.
    pub fn build(self) -> Result<RedisStore, ConfigError> {
        let pause_client = self.pause_client.transpose()?;
        let source = self.source?;
        let pause_client = match &source {
            ConnectionSource::Client(client) => pause_client.or_else(|| Some(client.clone())),
            ConnectionSource::Given(_) => pause_client,
        };
        check_prefix(&self.prefix)?;
        check_store_timeout(self.store_timeout)?;
        Ok(RedisStore {
            link: RedisLink::new(source, self.store_timeout),
            pause_client,
            prefix: self.prefix,
            store_timeout: self.store_timeout,
        })
    }
}

/// Hides the address, which may hold a password.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("store_timeout", &self.store_timeout)
            .finish_non_exhaustive()
    }
}

/// Refuses three kinds of characters. With a colon, prefix `a` and key `b:c` would equal prefix `a:b` and key
/// `c`. A brace would end the hash tag. Others are patterns in Redis access rules.
fn check_prefix(prefix: &str) -> Result<(), ConfigError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let is_valid = (1..=MAX_PREFIX).contains(&prefix.len()) && prefix.bytes().all(allowed);
    let rule = format!("should be up to {MAX_PREFIX} letters, digits, `-`, `_`, `.` or `/`");
    ensure(is_valid, "prefix", prefix, rule)
}
