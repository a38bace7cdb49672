//! Who is told of a pause that another worker has told of.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::{FleetStore, Pause};

/// From so many keys on, it is looked who is gone.
const FIRST_SWEEP: usize = 64;
/// More keys than a throttle keeps. Beyond, a pause is seen with the next lease.
const MOST_KEYS: usize = 65_536;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(10);

/// Is told that nobody may send for a while.
pub(crate) trait PauseListener: fmt::Debug + Send + Sync {
    fn paused(&self, length: Duration);
}

/// All who listen, by key. The task behind it ends when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    room: Mutex<Room>,
}

#[derive(Debug, Default)]
struct Room {
    by_key: HashMap<String, Vec<Weak<dyn PauseListener>>>,
    sweep_at: usize,
    task: Option<AbortHandle>,
}

impl Listeners {
    pub(super) fn add(&self, key: &str, listener: Weak<dyn PauseListener>) {
        let mut room = self.lock();
        if room.by_key.len() >= room.sweep_at.max(FIRST_SWEEP) {
            room.by_key.retain(|_, listeners| sweep(listeners));
            room.sweep_at = room.by_key.len() * 2;
        }
        if room.by_key.len() < MOST_KEYS || room.by_key.contains_key(key) {
            let listeners = room.by_key.entry(key.to_owned()).or_default();
            // Or those of one key that is made anew again and again would pile up.
            sweep(listeners);
            listeners.push(listener);
        }
    }

    /// Starts the task, unless it runs.
    pub(super) fn listen(this: &Arc<Self>, store: &Arc<dyn FleetStore>) {
        let mut room = this.lock();
        // The runtime that it was started in may have ended.
        if (room.task.as_ref()).is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let task = listen(Arc::downgrade(this), Arc::clone(store));
            room.task = Some(runtime.spawn(task).abort_handle());
        }
    }

    fn tell(&self, pause: &Pause) {
        let mut room = self.lock();
        let Some(listeners) = room.by_key.get_mut(&pause.key) else {
            return;
        };
        let there: Vec<_> = listeners.iter().filter_map(Weak::upgrade).collect();
        if there.is_empty() {
            room.by_key.remove(&pause.key);
        }
        // They may come back here.
        drop(room);
        for listener in there {
            listener.paused(pause.length);
        }
    }

    /// How many keys are known.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.lock().by_key.len()
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        // Nothing in there panics halfway.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        if let Some(task) = self.lock().task.take() {
            task.abort();
        }
    }
}

/// Whether anybody is left.
fn sweep(listeners: &mut Vec<Weak<dyn PauseListener>>) -> bool {
    listeners.retain(|listener| listener.strong_count() > 0);
    !listeners.is_empty()
}

/// Hears the store's pauses for as long as there is somebody to tell, and connects again when it has to.
/// Pauses that are missed meanwhile come with the next lease.
async fn listen(listeners: Weak<Listeners>, store: Arc<dyn FleetStore>) {
    let mut wait = FIRST_WAIT;
    loop {
        if let Ok(Ok(mut pauses)) = timeout(PATIENCE, store.pauses()).await {
            while let Ok(pause) = pauses.next().await {
                wait = FIRST_WAIT;
                let Some(listeners) = listeners.upgrade() else {
                    return;
                };
                listeners.tell(&pause);
            }
        }
        if listeners.strong_count() == 0 {
            return;
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}
