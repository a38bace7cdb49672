//! Pauses, as Redis pushes them.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Msg, ProtocolVersion, PushInfo, PushKind, RedisResult};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver};
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::{self, unavailable};
use super::link::CONNECT_LIMIT;
use crate::clock;
use crate::fleet::{FleetError, Pause, Pauses, StoreFuture};

/// How many wait for one who listens, before the newest are lost.
const PAUSES: usize = 1024;
/// How often to look whether Redis is still there: a connection that was cut in the middle says nothing.
const PING_EVERY: Duration = Duration::from_secs(1);

/// A connection of its own, that does nothing else.
pub(super) struct Heard {
    connection: MultiplexedConnection,
    pushed: Receiver<PushInfo>,
    ping_at: Instant,
}

impl Heard {
    pub(super) async fn on(client: &Client, channel: &str) -> Result<Self, FleetError> {
        if Handle::try_current().is_err() {
            return Err(unavailable("there is no tokio runtime"));
        }
        match timeout(CONNECT_LIMIT, Self::subscribe(client, channel)).await {
            Ok(Ok(heard)) => Ok(heard),
            Ok(Err(error)) => Err(failure::of(&error)),
            Err(_) => Err(too_late()),
        }
    }

    async fn subscribe(client: &Client, channel: &str) -> RedisResult<Self> {
        let (sender, pushed) = mpsc::channel(PAUSES);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(Some(CONNECT_LIMIT))
            .set_push_sender(move |push| sender.try_send(push));
        // The protocol in which messages, and the end of the connection, come between answers.
        let info = client.get_connection_info();
        let settings = info.redis_settings().clone();
        // Messages are the same in every database.
        let settings = settings.set_protocol(ProtocolVersion::RESP3).set_db(0);
        let mut connection = Client::open(info.clone().set_redis_settings(settings))?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        connection.subscribe(channel).await?;
        Ok(Self {
            connection,
            pushed,
            ping_at: clock::now() + PING_EVERY,
        })
    }

    async fn hear(&mut self) -> Result<Pause, FleetError> {
        loop {
            match timeout_at(self.ping_at, self.pushed.recv()).await {
                Ok(Some(push)) if push.kind == PushKind::Disconnection => {
                    return Err(unavailable("the connection broke"));
                }
                Ok(Some(push)) => {
                    if let Some(pause) = read(push) {
                        return Ok(pause);
                    }
                }
                Ok(None) => return Err(unavailable("the connection broke")),
                Err(_) => self.ping().await?,
            }
        }
    }

    async fn ping(&mut self) -> Result<(), FleetError> {
        let mut command = redis::cmd("PING");
        let answer = command
            .arg("steady")
            .query_async::<String>(&mut self.connection);
        answer.await.map_err(|error| failure::of(&error))?;
        self.ping_at = clock::now() + PING_EVERY;
        Ok(())
    }
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heard").finish_non_exhaustive()
    }
}

impl Pauses for Heard {
    fn next(&mut self) -> StoreFuture<'_, Pause> {
        Box::pin(self.hear())
    }
}

/// Where nobody listens: pauses come with leases only.
#[derive(Debug)]
pub(super) struct Silence;

impl Pauses for Silence {
    fn next(&mut self) -> StoreFuture<'_, Pause> {
        Box::pin(std::future::pending())
    }
}

fn too_late() -> FleetError {
    FleetError::TimedOut {
        after: CONNECT_LIMIT,
    }
}

/// Milliseconds, a space, and the key. `None` for what nobody here has sent.
fn read(push: PushInfo) -> Option<Pause> {
    let text = Msg::from_push_info(push)?.get_payload::<String>().ok()?;
    let (milliseconds, key) = text.split_once(' ')?;
    let length = Duration::from_millis(milliseconds.parse().ok()?);
    Some(Pause::new(key, length.min(crate::fleet::MAX_PAUSE)))
}
