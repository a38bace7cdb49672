//! A store in the memory of one process.

mod shared;
mod slots;

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Instant;

use super::ask::check_key;
use super::{
    FleetError, FleetStore, Lease, LeaseAsk, MAX_PAUSE, Pause, Pauses, Retries, RetriesAsk,
    StoreFuture,
};
use crate::clock;
use shared::Shared;
use slots::Slots;

/// How many pauses wait for one who listens, before the oldest are lost.
const PAUSES: usize = 1024;
/// From so many keys on, it is looked which have expired.
const FIRST_SWEEP: usize = 1024;

/// A store in the memory of one process: for the clients in it, and for tests, for it goes by tokio's clock.
/// In an `Arc`, it is shared.
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
    born: Instant,
    keys: Mutex<Keys>,
    pauses: broadcast::Sender<Pause>,
}

#[derive(Debug)]
struct Keys {
    shared: Expiring<Shared>,
    retries: Expiring<Slots>,
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            born: clock::now(),
            keys: Mutex::new(Keys {
                shared: Expiring::default(),
                retries: Expiring::default(),
            }),
            pauses: broadcast::Sender::new(PAUSES),
        }
    }

    /// In microseconds, as on the other stores.
    fn now(&self) -> f64 {
        clock::now().duration_since(self.born).as_micros() as f64
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        // Nothing in there panics halfway.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease_now(&self, key: &str, ask: &LeaseAsk) -> Result<Lease, FleetError> {
        check_key(key)?;
        ask.check()?;
        let now = self.now();
        let mut keys = self.keys();
        let shared = keys.shared.get(key, now);
        let lease = shared.value.lease(now, ask);
        shared.keep(now + shared.value.life(now, ask));
        Ok(lease)
    }

    fn retries_now(&self, key: &str, ask: &RetriesAsk) -> Result<Retries, FleetError> {
        check_key(key)?;
        ask.check()?;
        let now = self.now();
        let mut keys = self.keys();
        let slots = keys.retries.get(key, now);
        let retries = slots.value.take(now, ask);
        slots.keep(now + micros(ask.terms.ttl) * 2.0);
        Ok(retries)
    }

    fn pause_now(&self, key: &str, length: Duration) -> Result<(), FleetError> {
        check_key(key)?;
        let now = self.now();
        let mut keys = self.keys();
        let shared = keys.shared.get(key, now);
        let longer = shared.value.pause(now, micros(length.min(MAX_PAUSE)));
        shared.keep(now + shared.value.pause_life(now));
        if let Some(length) = longer {
            // Under the lock, so that pauses are told in the order in which they came. Nobody may listen.
            let _ = self.pauses.send(Pause::new(key, duration(length)));
        }
        Ok(())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// Without the keys, which may be a user's secrets.
impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl FleetStore for MemoryStore {
    fn lease<'a>(&'a self, key: &'a str, ask: LeaseAsk) -> StoreFuture<'a, Lease> {
        Box::pin(async move { self.lease_now(key, &ask) })
    }

    fn retries<'a>(&'a self, key: &'a str, ask: RetriesAsk) -> StoreFuture<'a, Retries> {
        Box::pin(async move { self.retries_now(key, &ask) })
    }

    fn pause<'a>(&'a self, key: &'a str, length: Duration) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.pause_now(key, length) })
    }

    fn pauses(&self) -> StoreFuture<'_, Box<dyn Pauses>> {
        let heard: Box<dyn Pauses> = Box::new(Heard(self.pauses.subscribe()));
        Box::pin(ready(Ok(heard)))
    }
}

#[derive(Debug)]
struct Heard(broadcast::Receiver<Pause>);

impl Pauses for Heard {
    fn next(&mut self) -> StoreFuture<'_, Pause> {
        Box::pin(async move {
            loop {
                match self.0.recv().await {
                    Ok(pause) => return Ok(pause),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => {
                        let why = "it is gone";
                        return Err(FleetError::Unavailable { why });
                    }
                }
            }
        })
    }
}

/// A table that forgets what has expired, as Redis does: or each key that was ever used would stay.
#[derive(Debug)]
struct Expiring<T> {
    entries: HashMap<String, Entry<T>>,
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Entry<T> {
    value: T,
    expires: f64,
}

impl<T> Default for Expiring<T> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            sweep_at: FIRST_SWEEP,
        }
    }
}

impl<T: Default> Expiring<T> {
    fn get(&mut self, key: &str, now: f64) -> &mut Entry<T> {
        self.sweep_if_due(now);
        let entry = self.entries.entry(key.to_owned()).or_default();
        if entry.expires <= now {
            *entry = Entry::default();
        }
        entry
    }

    /// Each time that it has grown to twice its size, so that it costs little for each key.
    fn sweep_if_due(&mut self, now: f64) {
        if self.entries.len() >= self.sweep_at {
            self.entries.retain(|_, entry| entry.expires > now);
            self.sweep_at = FIRST_SWEEP.max(self.entries.len() * 2);
        }
    }
}

impl<T> Entry<T> {
    fn keep(&mut self, until: f64) {
        self.expires = self.expires.max(until);
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_micros() as f64
}

fn duration(micros: f64) -> Duration {
    Duration::from_micros(micros as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_expired_are_forgotten() {
        let mut table = Expiring::<u32>::default();
        for number in 0..10_000 {
            let now = f64::from(number);
            let entry = table.get(&number.to_string(), now);
            entry.value = number;
            entry.keep(now + 100.0);
        }
        assert!(table.entries.len() < 2 * FIRST_SWEEP);
        assert_eq!(table.get("9999", 10_000.0).value, 9999);
        assert_eq!(table.get("9999", 10_099.0).value, 0);
    }
}
