//! Receives pauses that Redis pushes.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Msg, ProtocolVersion, PushInfo, PushKind, RedisResult};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver};
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::{self, unavailable};
use super::link::{CONNECT_LIMIT, open_with};
use crate::clock;
use crate::fleet::{FleetError, MAX_PAUSE, Pause, Pauses, StoreFuture};

/// Pauses that are kept for a slow reader. Beyond that, it misses the newest.
const MAX_QUEUED_PAUSES: usize = 1024;
/// Time between pings, because a connection that was cut on the way reports nothing.
const PING_EVERY: Duration = Duration::from_secs(1);

/// A separate connection that only receives pauses.
pub(super) struct PauseSubscription {
    connection: MultiplexedConnection,
    pushed: Receiver<PushInfo>,
    ping_at: Instant,
}

impl PauseSubscription {
    pub(super) async fn open(
        client: &Client,
        channel: &str,
    ) -> Result<Box<dyn Pauses>, FleetError> {
        if Handle::try_current().is_err() {
            return Err(unavailable("there is no tokio runtime"));
        }
        match timeout(CONNECT_LIMIT, Self::subscribe(client, channel)).await {
            Ok(Ok(subscription)) => Ok(Box::new(subscription)),
            Ok(Err(error)) => Err(failure::of(&error)),
            Err(_) => Err(FleetError::TimedOut {
                after: CONNECT_LIMIT,
            }),
        }
    }

    async fn subscribe(client: &Client, channel: &str) -> RedisResult<Self> {
        let (sender, pushed) = mpsc::channel(MAX_QUEUED_PAUSES);
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(CONNECT_LIMIT))
            .set_push_sender(move |push| sender.try_send(push));
        // With RESP3, messages and the end of the connection arrive as pushes.
        let settings = client.get_connection_info().redis_settings().clone();
        // A channel belongs to no database.
        let settings = settings.set_protocol(ProtocolVersion::RESP3).set_db(0);
        let mut connection = open_with(client, settings, config).await?;
        connection.subscribe(channel).await?;
        Ok(Self {
            connection,
            pushed,
            ping_at: clock::now() + PING_EVERY,
        })
    }

    async fn receive(&mut self) -> Result<Pause, FleetError> {
        loop {
            match timeout_at(self.ping_at, self.pushed.recv()).await {
                Ok(Some(push)) if push.kind != PushKind::Disconnection => {
                    if let Some(pause) = parse(push) {
                        return Ok(pause);
                    }
                }
                Ok(_) => return Err(unavailable("the connection broke")),
                Err(_) => self.ping().await?,
            }
        }
    }

    async fn ping(&mut self) -> Result<(), FleetError> {
        let mut command = redis::cmd("PING");
        let reply = command
            .arg("steady")
            .query_async::<String>(&mut self.connection);
        reply.await.map_err(|error| failure::of(&error))?;
        self.ping_at = clock::now() + PING_EVERY;
        Ok(())
    }
}

impl fmt::Debug for PauseSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PauseSubscription").finish_non_exhaustive()
    }
}

impl Pauses for PauseSubscription {
    fn next(&mut self) -> StoreFuture<'_, Pause> {
        Box::pin(self.receive())
    }
}

/// Without a subscription, pauses come with leases only.
#[derive(Debug)]
pub(super) struct NoPauses;

impl Pauses for NoPauses {
    fn next(&mut self) -> StoreFuture<'_, Pause> {
        Box::pin(std::future::pending())
    }
}

/// Parses milliseconds, a space and the key. `None` for other messages.
fn parse(push: PushInfo) -> Option<Pause> {
    let text = Msg::from_push_info(push)?.get_payload::<String>().ok()?;
    let (milliseconds, key) = text.split_once(' ')?;
    let length = Duration::from_millis(milliseconds.parse().ok()?);
    Some(Pause::new(key, length.min(MAX_PAUSE)))
}
