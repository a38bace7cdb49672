//! The connection that all questions share, and what becomes of it.
//!
//! It is made when it is first needed, by a task of its own: to connect may take longer than a question may
//! wait. A question that finds it broken, or waits for too long, is answered with an error, and so are all
//! others for a short time, at once. So a call waits at most once for a Redis that is away. With a connection
//! of the user's own it is the same, but that one has to see for itself that it is whole again.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, ProtocolVersion,
    RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, from_redis_value,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::{self, unavailable};
use super::script::Call;
use super::source::{Connection, Source};
use crate::clock;
use crate::entropy::{Entropy, up_to};
use crate::fleet::FleetError;

/// How long connecting may take, of which a question waits for its own limit only.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// When to try again: after this at first, and after up to [`LAST_REST`] if that fails too.
const FIRST_REST: Duration = Duration::from_millis(100);
const LAST_REST: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct Link(Arc<Shared>);

struct Shared {
    source: Source,
    max_wait: Duration,
    room: Mutex<Room>,
    /// Sent whenever the task that connects has ended.
    changed: watch::Sender<()>,
    round_trips: AtomicU64,
}

struct Room {
    state: State,
    /// Of the connection, so that what befalls an old one is not blamed on the next.
    number: u64,
    /// How often in a row it could not be made.
    failures: u32,
    /// Why Redis refused the login, since a login last worked.
    refusal: Option<RedisError>,
}

enum State {
    New,
    Connecting { since: Instant },
    Connected(Box<dyn Connection>),
    Failed { until: Instant, error: FleetError },
}

/// A connection that was there a moment ago.
struct Live {
    connection: Box<dyn Connection>,
    number: u64,
}

/// What one who needs the connection finds.
enum Found {
    Live(Live),
    /// It is being made, and may be waited for until then.
    Soon(Instant),
    Failed(FleetError),
}

impl Link {
    pub(super) fn new(source: Source, max_wait: Duration) -> Self {
        Self(Arc::new(Shared {
            source,
            max_wait,
            room: Mutex::new(Room {
                state: State::New,
                number: 0,
                failures: 0,
                refusal: None,
            }),
            changed: watch::Sender::new(()),
            round_trips: AtomicU64::new(0),
        }))
    }

    pub(super) fn round_trips(&self) -> u64 {
        self.0.round_trips.load(Ordering::Relaxed)
    }

    /// Runs a script, within the limit of time whatever happens.
    pub(super) async fn run<T: FromRedisValue>(&self, call: Call<'_>) -> Result<T, FleetError> {
        if Handle::try_current().is_err() {
            return Err(unavailable("there is no tokio runtime"));
        }
        let given_up = clock::after(clock::now(), self.0.max_wait);
        let mut live = self.live(given_up).await?;
        match timeout_at(given_up, self.evaluate(&mut *live.connection, call)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let failure = failure::of(&error);
                if failure::breaks(&error) {
                    self.0.lost(live.number, &failure);
                }
                Err(failure)
            }
            Err(_) => {
                let failure = self.0.timed_out();
                self.0.lost(live.number, &failure);
                Err(failure)
            }
        }
    }

    /// By its hash, in one round trip. Redis forgets scripts when it is restarted, or told to.
    async fn evaluate<T: FromRedisValue>(
        &self,
        connection: &mut dyn Connection,
        call: Call<'_>,
    ) -> RedisResult<T> {
        match self.send(connection, call.by_hash()).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(connection, call.by_text()).await
            }
            answered => answered,
        }
    }

    async fn send<T: FromRedisValue>(
        &self,
        connection: &mut dyn Connection,
        command: Cmd,
    ) -> RedisResult<T> {
        self.0.round_trips.fetch_add(1, Ordering::Relaxed);
        let answer = connection.req_packed_command(&command).await?;
        Ok(from_redis_value(answer.extract_error()?)?)
    }

    async fn live(&self, given_up: Instant) -> Result<Live, FleetError> {
        // Before the first look, so that no change is missed.
        let mut changed = self.0.changed.subscribe();
        loop {
            let until = match self.0.look(clock::now()) {
                Found::Live(live) => return Ok(live),
                Found::Failed(error) => return Err(error),
                Found::Soon(until) => until.min(given_up),
            };
            if timeout_at(until, changed.changed()).await.is_err() {
                return Err(self.0.timed_out());
            }
        }
    }
}

impl Shared {
    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timed_out(&self) -> FleetError {
        FleetError::TimedOut {
            after: self.max_wait,
        }
    }

    fn look(self: &Arc<Self>, now: Instant) -> Found {
        let mut room = self.room();
        match &room.state {
            State::Connected(connection) => {
                return Found::Live(Live {
                    connection: connection.again(),
                    number: room.number,
                });
            }
            State::Failed { until, error } if now < *until => return Found::Failed(error.clone()),
            // Twice as long means that the runtime has ended in which the task was.
            State::Connecting { since } if now < *since + CONNECT_LIMIT * 2 => {
                let until = clock::after(*since, self.max_wait);
                return match now < until {
                    true => Found::Soon(until),
                    false => Found::Failed(unavailable("it is not connected yet")),
                };
            }
            _ => {}
        }
        room.number += 1;
        let number = room.number;
        match &self.source {
            Source::Client(client) => {
                room.state = State::Connecting { since: now };
                tokio::spawn(self.clone().connect(client.clone(), number));
                Found::Soon(clock::after(now, self.max_wait))
            }
            Source::Given(given) => {
                room.state = State::Connected(given.again());
                let connection = given.again();
                Found::Live(Live { connection, number })
            }
        }
    }

    async fn connect(self: Arc<Self>, client: Client, number: u64) {
        let connected = match timeout(CONNECT_LIMIT, self.open(&client)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        };
        let connected = connected.map(|connection| Box::new(connection) as Box<dyn Connection>);
        self.connected(number, connected);
        self.changed.send_replace(());
    }

    /// Opens a connection so that a refusal keeps the code by which Redis says why.
    async fn open(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        let settings = client.get_connection_info().redis_settings();
        let database = settings.db();
        // The library forgets the code of a refused `SELECT`, so that is asked for here.
        let settings = settings.clone().set_db(0);
        let opened = open_with(client, settings.clone()).await;
        let mut connection = match opened {
            Err(error) if error.kind() == ErrorKind::AuthenticationFailed => {
                return Err(self.refusal(client, settings).await.unwrap_or(error));
            }
            opened => opened?,
        };
        self.room().refusal = None;
        if database != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(database).exec_async(&mut connection).await?;
        }
        Ok(connection)
    }

    /// Why Redis refuses the login. It is asked only once until a login works, because each question is
    /// another failed login. Servers count those.
    async fn refusal(&self, client: &Client, settings: RedisConnectionInfo) -> Option<RedisError> {
        let known = self.room().refusal.clone();
        if known.is_some() {
            return known;
        }
        let told = why_refused(client, settings).await;
        self.room().refusal = told.clone();
        told
    }

    fn connected(&self, number: u64, connected: RedisResult<Box<dyn Connection>>) {
        let mut room = self.room();
        if room.number != number {
            // It came too late: another task was begun meanwhile.
            return;
        }
        room.state = match connected {
            Ok(connection) => {
                room.failures = 0;
                State::Connected(connection)
            }
            Err(error) => {
                let rest = rest_after(room.failures);
                room.failures = room.failures.saturating_add(1);
                State::Failed {
                    until: clock::now() + rest,
                    error: failure::of(&error),
                }
            }
        };
    }

    /// Lets go of a connection, and with it of all answers that may still come there.
    fn lost(&self, number: u64, error: &FleetError) {
        let mut room = self.room();
        if room.number == number && matches!(room.state, State::Connected(_)) {
            room.state = State::Failed {
                until: clock::now() + rest_after(0),
                error: error.clone(),
            };
        }
    }
}

/// Asks Redis why it refuses the login.
///
/// The library drops the code of a refused `AUTH` and keeps that of `HELLO`, which Redis has since 6.0.
async fn why_refused(client: &Client, settings: RedisConnectionInfo) -> Option<RedisError> {
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    let told = open_with(client, settings).await.err()?;
    told.clone().into_server_errors().map(|_| told)
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

/// Longer by chance, so that not all workers come at the same moment to a Redis that has just started.
fn rest_after(failures: u32) -> Duration {
    let rest = FIRST_REST
        .saturating_mul(1 << failures.min(10))
        .min(LAST_REST);
    rest + Entropy::System.with(|rng| up_to(rest / 4, rng))
}
