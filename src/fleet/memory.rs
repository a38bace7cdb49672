//! A store in the memory of one process.
//!
//! It decides exactly as the scripts of the Redis store do; the tests of the stores run on both.

mod key_state;
mod retry_slots;

use std::fmt;
use std::future::ready;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Instant;

use super::key::check_key;
use super::swept_table::SweptTable;
use super::{
    FleetError, FleetStore, Lease, LeaseAsk, MAX_PAUSE, Pause, Pauses, Retries, RetriesAsk,
    StoreFuture,
};
use crate::clock;
use crate::lock::lock;
use key_state::KeyState;

/// Pauses that are kept for a slow subscriber. Beyond that, it misses the oldest.
const MAX_QUEUED_PAUSES: usize = 1024;

/// Keeps shared limits in memory, for the clients of one process and for tests.
///
/// It uses tokio's clock, so `tokio::time::pause` controls it. Put it in an `Arc` to share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), reqwest_steady::fleet::FleetError> {
/// use std::time::Duration;
/// use reqwest_steady::fleet::{FleetStore, MemoryStore, RetriesAsk, RetryTerms};
///
/// let store = MemoryStore::new();
/// let terms = RetryTerms { ttl: Duration::from_secs(10), ratio: 0.1, min_per_sec: 0.0 };
/// let retries = store.retries("api.example.com", RetriesAsk::new(terms).deposits(50).want(3)).await?;
/// assert_eq!((retries.granted, retries.balance), (3, 2.0));
/// # Ok(()) }
/// ```
pub struct MemoryStore {
    created: Instant,
    keys: Mutex<SweptTable<KeyState>>,
    pauses: broadcast::Sender<Pause>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self {
            created: clock::now(),
            keys: Mutex::default(),
            pauses: broadcast::Sender::new(MAX_QUEUED_PAUSES),
        }
    }

    /// Makes one decision about a key. `decide` gets the microseconds since the store was created.
    fn decide<T>(
        &self,
        key: &str,
        decide: impl FnOnce(&mut KeyState, f64) -> T,
    ) -> Result<T, FleetError> {
        check_key(key)?;
        let now = micros(clock::now().duration_since(self.created));
        let mut keys = lock(&self.keys);
        Ok(decide(keys.entry(key, |state| state.expires <= now), now))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// Hides the keys, because they may be secrets.
impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl FleetStore for MemoryStore {
    fn lease<'a>(&'a self, key: &'a str, ask: LeaseAsk) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            ask.check()?;
            self.decide(key, |state, now| state.lease(now, &ask))
        })
    }

    fn retries<'a>(&'a self, key: &'a str, ask: RetriesAsk) -> StoreFuture<'a, Retries> {
        Box::pin(async move {
            ask.check()?;
            self.decide(key, |state, now| state.retries(now, &ask))
        })
    }

    fn pause<'a>(&'a self, key: &'a str, length: Duration) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.decide(key, |state, now| {
                if let Some(length) = state.pause(now, micros(length.min(MAX_PAUSE))) {
                    // Under the lock, so that subscribers see pauses in order. Without subscribers, it fails.
                    let _ = self.pauses.send(Pause::new(key, duration(length)));
                }
            })
        })
    }

    fn pauses(&self) -> StoreFuture<'_, Box<dyn Pauses>> {
        let pauses: Box<dyn Pauses> = Box::new(MemoryPauses(self.pauses.subscribe()));
        Box::pin(ready(Ok(pauses)))
    }
}

#[derive(Debug)]
struct MemoryPauses(broadcast::Receiver<Pause>);

impl Pauses for MemoryPauses {
    fn next(&mut self) -> StoreFuture<'_, Pause> {
        Box::pin(async move {
            loop {
                match self.0.recv().await {
                    Ok(pause) => return Ok(pause),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => {
                        let why = "it was dropped";
                        return Err(FleetError::Unavailable { why });
                    }
                }
            }
        })
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_micros() as f64
}

fn duration(micros: f64) -> Duration {
    Duration::from_micros(micros as u64)
}
