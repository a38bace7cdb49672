//! The connection that all scripts share.
//!
//! A background task connects when the first script runs, because connecting may take longer than a script
//! may wait. If the connection breaks or a script times out, all scripts fail at once for a short time. So a
//! call waits at most once for a Redis that is unavailable. A user's connection is treated the same way, but
//! it must reconnect by itself.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
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
use super::script::ScriptCall;
use crate::clock;
use crate::entropy::{Entropy, up_to};
use crate::fleet::FleetError;
use crate::lock::lock;

/// Longest time to connect. A script waits for `max_wait` of it only.
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

pub(super) struct RedisLink {
    source: ConnectionSource,
    max_wait: Duration,
    state: Mutex<LinkState>,
    /// Sends when the connecting task has ended.
    changed: watch::Sender<()>,
    round_trips: AtomicU64,
}

struct LinkState {
    phase: LinkPhase,
    /// Number of the connection, so that errors of older connections are ignored.
    number: u64,
    /// Failed connects in a row.
    failures: u32,
    /// Why Redis refuses the login. Cleared when a login succeeds.
    refusal: Option<RedisError>,
}

enum LinkPhase {
    New,
    Connecting { since: Instant },
    Connected(Box<dyn SharedConnection>),
    Failed { until: Instant, error: FleetError },
}

/// A connection, and the number of it.
struct LiveConnection {
    connection: Box<dyn SharedConnection>,
    number: u64,
}

/// What a script finds when it needs the connection.
enum Lookup {
    Live(LiveConnection),
    /// The connection is being made. The script may wait until then.
    Connecting(Instant),
    Failed(FleetError),
}

impl RedisLink {
    pub(super) fn new(source: ConnectionSource, max_wait: Duration) -> Arc<Self> {
        Arc::new(Self {
            source,
            max_wait,
            state: Mutex::new(LinkState {
                phase: LinkPhase::New,
                number: 0,
                failures: 0,
                refusal: None,
            }),
            changed: watch::Sender::new(()),
            round_trips: AtomicU64::new(0),
        })
    }

    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Runs a script. Always ends within `max_wait`.
    pub(super) async fn run<T: FromRedisValue>(
        self: &Arc<Self>,
        call: ScriptCall<'_>,
    ) -> Result<T, FleetError> {
        if Handle::try_current().is_err() {
            return Err(unavailable("there is no tokio runtime"));
        }
        let end = clock::after(clock::now(), self.max_wait);
        let mut live = self.live(end).await?;
        match timeout_at(end, self.evaluate(&mut *live.connection, call)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                let failure = failure::of(&error);
                if failure::breaks(&error) {
                    self.drop_connection(live.number, &failure);
                }
                Err(failure)
            }
            Err(_) => {
                let failure = self.timed_out();
                self.drop_connection(live.number, &failure);
                Err(failure)
            }
        }
    }

    /// Calls a script by its hash, in one round trip. Redis may have lost the script after a restart or a
    /// `SCRIPT FLUSH`; then it is sent as text.
    async fn evaluate<T: FromRedisValue>(
        &self,
        connection: &mut dyn SharedConnection,
        call: ScriptCall<'_>,
    ) -> RedisResult<T> {
        match self.send(connection, call.by_hash()).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(connection, call.by_text()).await
            }
            result => result,
        }
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

    async fn live(self: &Arc<Self>, end: Instant) -> Result<LiveConnection, FleetError> {
        // Before the first lookup, so that no change is missed.
        let mut changed = self.changed.subscribe();
        loop {
            let until = match self.lookup(clock::now()) {
                Lookup::Live(live) => return Ok(live),
                Lookup::Failed(error) => return Err(error),
                Lookup::Connecting(until) => until.min(end),
            };
            if timeout_at(until, changed.changed()).await.is_err() {
                return Err(self.timed_out());
            }
        }
    }

    fn timed_out(&self) -> FleetError {
        FleetError::TimedOut {
            after: self.max_wait,
        }
    }

    fn lookup(self: &Arc<Self>, now: Instant) -> Lookup {
        let mut state = lock(&self.state);
        match &state.phase {
            LinkPhase::Connected(connection) => {
                return Lookup::Live(LiveConnection {
                    connection: connection.clone_box(),
                    number: state.number,
                });
            }
            LinkPhase::Failed { until, error } if now < *until => {
                return Lookup::Failed(error.clone());
            }
            // After twice the limit, the runtime of the connecting task has ended.
            LinkPhase::Connecting { since } if now < *since + CONNECT_LIMIT * 2 => {
                let until = clock::after(*since, self.max_wait);
                return match now < until {
                    true => Lookup::Connecting(until),
                    false => Lookup::Failed(unavailable("it is not connected yet")),
                };
            }
            _ => {}
        }
        state.number += 1;
        let number = state.number;
        match &self.source {
            ConnectionSource::Client(client) => {
                state.phase = LinkPhase::Connecting { since: now };
                tokio::spawn(self.clone().connect(client.clone(), number));
                Lookup::Connecting(clock::after(now, self.max_wait))
            }
            ConnectionSource::Given(given) => {
                state.phase = LinkPhase::Connected(given.clone_box());
                let connection = given.clone_box();
                Lookup::Live(LiveConnection { connection, number })
            }
        }
    }

    async fn connect(self: Arc<Self>, client: Client, number: u64) {
        let connected = match timeout(CONNECT_LIMIT, self.open(&client)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        };
        let connected =
            connected.map(|connection| Box::new(connection) as Box<dyn SharedConnection>);
        self.finish_connect(number, connected);
        self.changed.send_replace(());
    }

    /// Connects so that the error of a refused login keeps the code of Redis.
    async fn open(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        let settings = client.get_connection_info().redis_settings();
        let database = settings.db();
        // The crate `redis` drops the code of a refused `SELECT`, so it is sent below.
        let settings = settings.clone().set_db(0);
        let opened = open_with(client, settings.clone()).await;
        let mut connection = match opened {
            Err(error) if error.kind() == ErrorKind::AuthenticationFailed => {
                return Err(self.refusal(client, settings).await.unwrap_or(error));
            }
            opened => opened?,
        };
        lock(&self.state).refusal = None;
        if database != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(database).exec_async(&mut connection).await?;
        }
        Ok(connection)
    }

    /// Finds out why Redis refuses the login. Asks once until a login succeeds, because each ask is another
    /// failed login and servers count those.
    async fn refusal(&self, client: &Client, settings: RedisConnectionInfo) -> Option<RedisError> {
        let known = lock(&self.state).refusal.clone();
        if known.is_some() {
            return known;
        }
        let refusal = why_refused(client, settings).await;
        lock(&self.state).refusal = refusal.clone();
        refusal
    }

    fn finish_connect(&self, number: u64, connected: RedisResult<Box<dyn SharedConnection>>) {
        let mut state = lock(&self.state);
        if state.number != number {
            // Too late: another task has begun meanwhile.
            return;
        }
        state.phase = match connected {
            Ok(connection) => {
                state.failures = 0;
                LinkPhase::Connected(connection)
            }
            Err(error) => {
                let delay = reconnect_delay(state.failures);
                state.failures = state.failures.saturating_add(1);
                LinkPhase::Failed {
                    until: clock::now() + delay,
                    error: failure::of(&error),
                }
            }
        };
    }

    /// Drops a broken connection, and with it all late responses.
    fn drop_connection(&self, number: u64, error: &FleetError) {
        let mut state = lock(&self.state);
        if state.number == number && matches!(state.phase, LinkPhase::Connected(_)) {
            state.phase = LinkPhase::Failed {
                until: clock::now() + reconnect_delay(0),
                error: error.clone(),
            };
        }
    }
}

/// Asks Redis why it refuses the login.
///
/// The crate `redis` drops the code of a refused `AUTH`, but keeps that of `HELLO`, which Redis has since 6.0.
async fn why_refused(client: &Client, settings: RedisConnectionInfo) -> Option<RedisError> {
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    let refusal = open_with(client, settings).await.err()?;
    refusal.clone().into_server_errors().map(|_| refusal)
}

async fn open_with(
    client: &Client,
    settings: RedisConnectionInfo,
) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_LIMIT))
        .set_response_timeout(None);
    let info = client.get_connection_info().clone();
    let client = Client::open(info.set_redis_settings(settings))?;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// A random part keeps workers from reconnecting at the same moment to a Redis that has just started.
fn reconnect_delay(failures: u32) -> Duration {
    let delay = FIRST_DELAY
        .saturating_mul(1 << failures.min(10))
        .min(LONGEST_DELAY);
    delay + Entropy::System.with(|rng| up_to(delay / 4, rng))
}
