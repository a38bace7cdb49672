//! The connection that all scripts share.
//!
//! A background task connects when the first script runs, because connecting may take longer than a script
//! may wait. If the connection breaks or a script times out, all scripts fail at once for a short time. So a
//! call waits at most once for a Redis that is unavailable. A user's connection is treated the same way, but
//! it must reconnect by itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, ProtocolVersion,
    RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, from_redis_value,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::{self, unavailable};
use super::script::LuaScript;
use crate::clock;
use crate::entropy::{Entropy, up_to};
use crate::fleet::FleetError;

/// Longest time to connect. A script waits for `store_timeout` of it only.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// Delay before the first reconnect. It doubles up to [`LONGEST_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// A connection of any type that can have several handles.
pub(super) trait SharedConnection: ConnectionLike + Send + Sync {
    fn clone_box(&self) -> Box<dyn SharedConnection>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> SharedConnection for C {
    fn clone_box(&self) -> Box<dyn SharedConnection> {
        Box::new(self.clone())
    }
}

/// Where connections to Redis come from.
pub(super) enum ConnectionSource {
    /// Connects when needed, and again after a loss.
    Client(Client),
    /// The user's connection, which reconnects by itself.
    Given(Box<dyn SharedConnection>),
}

impl Clone for ConnectionSource {
    fn clone(&self) -> Self {
        match self {
            Self::Client(client) => Self::Client(client.clone()),
            Self::Given(connection) => Self::Given(connection.clone_box()),
        }
    }
}

pub(super) struct RedisLink {
    source: ConnectionSource,
    store_timeout: Duration,
    state: watch::Sender<LinkState>,
    round_trips: AtomicU64,
}

struct LinkState {
    /// The connection, or why there is none. `None` while it is being made.
    connection: Option<Result<Box<dyn SharedConnection>, FleetError>>,
    /// Number of the connection, so that errors of older connections are ignored.
    number: u64,
    /// When the last connect began.
    begun: Instant,
    /// Without a connection: when to connect next.
    connect_at: Instant,
    /// Failed connects in a row.
    failures: u32,
    /// Why Redis refuses the login. Cleared when a login succeeds.
    refusal: Option<RedisError>,
}

impl LinkState {
    fn is_connected(&self) -> bool {
        matches!(self.connection, Some(Ok(_)))
    }

    /// When the wait for the connection began: now, unless it is being made.
    fn waits_since(&self, now: Instant) -> Instant {
        self.connection.as_ref().map_or(self.begun, |_| now)
    }

    fn fail(&mut self, error: FleetError) {
        self.connection = Some(Err(error));
        self.connect_at = clock::now() + reconnect_delay(self.failures);
    }
}

impl RedisLink {
    pub(super) fn new(source: ConnectionSource, store_timeout: Duration) -> Arc<Self> {
        let now = clock::now();
        Arc::new(Self {
            source,
            store_timeout,
            state: watch::Sender::new(LinkState {
                connection: None,
                number: 0,
                begun: now,
                connect_at: now,
                failures: 0,
                refusal: None,
            }),
            round_trips: AtomicU64::new(0),
        })
    }

    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Runs a script. Always ends within `store_timeout`.
    pub(super) async fn run<T: FromRedisValue>(
        self: &Arc<Self>,
        script: &LuaScript,
        keys: &[String],
        arguments: &[String],
    ) -> Result<T, FleetError> {
        if Handle::try_current().is_err() {
            return Err(unavailable("there is no tokio runtime"));
        }
        let now = clock::now();
        let (mut connection, number) = self.connection(now).await?;
        let reply = async {
            let command = script.by_hash(keys, arguments);
            match self.send(&mut *connection, command).await {
                // Redis has lost the script, after a restart or a `SCRIPT FLUSH`.
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    let command = script.by_text(keys, arguments);
                    self.send(&mut *connection, command).await
                }
                result => result,
            }
        };
        let failure = match timeout_at(clock::after(now, self.store_timeout), reply).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) if !failure::breaks(&error) => return Err(failure::of(&error)),
            Ok(Err(error)) => failure::of(&error),
            Err(_) => self.timed_out(),
        };
        // Drops the broken connection, and with it all late responses.
        self.state.send_modify(|state| {
            if state.number == number && state.is_connected() {
                state.fail(failure.clone());
            }
        });
        Err(failure)
    }

    async fn send<T: FromRedisValue>(
        &self,
        connection: &mut dyn SharedConnection,
        command: Cmd,
    ) -> RedisResult<T> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let reply = connection.req_packed_command(&command).await?;
        Ok(from_redis_value(reply.extract_error()?)?)
    }

    /// Returns the connection and its number. While it is being made, a script waits until `store_timeout` after
    /// the begin, and no longer.
    async fn connection(
        self: &Arc<Self>,
        now: Instant,
    ) -> Result<(Box<dyn SharedConnection>, u64), FleetError> {
        self.state.send_if_modified(|state| {
            let is_due = !state.is_connected() && now >= state.connect_at;
            if is_due {
                self.begin_connect(state, now);
            }
            is_due
        });
        let mut state = self.state.subscribe();
        let until = clock::after(state.borrow().waits_since(now), self.store_timeout);
        if now >= until {
            return Err(unavailable("it is not connected yet"));
        }
        let ready = state.wait_for(|state| state.connection.is_some());
        let Ok(Ok(state)) = timeout_at(until, ready).await else {
            return Err(self.timed_out());
        };
        match &state.connection {
            Some(Ok(connection)) => Ok((connection.clone_box(), state.number)),
            Some(Err(error)) => Err(error.clone()),
            None => Err(self.timed_out()),
        }
    }

    fn timed_out(&self) -> FleetError {
        let after = self.store_timeout;
        FleetError::TimedOut { after }
    }

    fn begin_connect(self: &Arc<Self>, state: &mut LinkState, now: Instant) {
        state.number += 1;
        state.begun = now;
        state.connection = match &self.source {
            ConnectionSource::Given(given) => Some(Ok(given.clone_box())),
            ConnectionSource::Client(client) => {
                tokio::spawn(self.clone().connect(client.clone(), state.number));
                None
            }
        };
        // By then, the runtime of the connecting task has ended.
        state.connect_at = now + CONNECT_LIMIT * 2;
    }

    async fn connect(self: Arc<Self>, client: Client, number: u64) {
        let opened = timeout(CONNECT_LIMIT, self.open(&client)).await;
        let opened =
            opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        self.state.send_modify(|state| match opened {
            // Too late: another task has begun meanwhile.
            _ if state.number != number => {}
            Ok(connection) => {
                state.failures = 0;
                state.connection = Some(Ok(Box::new(connection)));
            }
            Err(error) => {
                state.fail(failure::of(&error));
                state.failures = state.failures.saturating_add(1);
            }
        });
    }

    /// Connects so that the error of a refused login keeps the code of Redis.
    async fn open(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        let settings = client.get_connection_info().redis_settings();
        let database = settings.db();
        // The crate `redis` drops the code of a refused `SELECT`, so it is sent below.
        let settings = settings.clone().set_db(0);
        let mut connection = match open_with(client, settings.clone(), config()).await {
            Err(error) if error.kind() == ErrorKind::AuthenticationFailed => {
                return Err(self.refusal(client, settings).await.unwrap_or(error));
            }
            opened => opened?,
        };
        self.set_refusal(None);
        if database != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(database).exec_async(&mut connection).await?;
        }
        Ok(connection)
    }

    /// Asks Redis why it refuses the login. Asks once until a login succeeds, because each ask is another
    /// failed login and servers count those.
    ///
    /// The crate `redis` drops the code of a refused `AUTH`, but keeps that of `HELLO`, which Redis has since 6.0.
    async fn refusal(&self, client: &Client, settings: RedisConnectionInfo) -> Option<RedisError> {
        let known = self.state.borrow().refusal.clone();
        if known.is_some() {
            return known;
        }
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        let refusal = open_with(client, settings, config()).await.err()?;
        let refusal = refusal.clone().into_server_errors().map(|_| refusal);
        self.set_refusal(refusal.clone());
        refusal
    }

    fn set_refusal(&self, refusal: Option<RedisError>) {
        self.state.send_modify(|state| state.refusal = refusal);
    }
}

/// Without a limit for responses: a script has its own.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None)
}

/// Opens a connection with other settings than those of the client.
pub(super) async fn open_with(
    client: &Client,
    settings: RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    let info = client.get_connection_info().clone();
    let client = Client::open(info.set_redis_settings(settings))?;
    let config = config.set_connection_timeout(Some(CONNECT_LIMIT));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// A random part keeps workers from reconnecting at the same moment to a Redis that has just started.
fn reconnect_delay(failures: u32) -> Duration {
    let delay = FIRST_DELAY
        .saturating_mul(1 << failures.min(10))
        .min(LONGEST_DELAY);
    delay + Entropy::default().with(|rng| up_to(delay / 4, rng))
}
