//! Hands pauses from the store to the gates of this worker.
//!
//! One task per fleet handle reads the store's pauses. It starts with the first listener and ends with the
//! last handle.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::{FleetStore, Pause};
use crate::lock::lock;

/// The first sweep of dropped listeners happens at this many keys.
const FIRST_SWEEP: usize = 64;
/// More keys than a throttle keeps. Gates beyond it see a pause with their next lease.
const MAX_KEYS: usize = 65_536;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long a subscription may take.
const SUBSCRIBE_LIMIT: Duration = Duration::from_secs(10);

/// Receives the pauses of one key.
pub(crate) trait PauseListener: fmt::Debug + Send + Sync {
    fn paused(&self, length: Duration);
}

/// All listeners, by key. Dropping it ends the task.
#[derive(Debug, Default)]
pub(super) struct PauseListeners {
    state: Mutex<ListenersState>,
}

#[derive(Debug, Default)]
struct ListenersState {
    by_key: HashMap<String, Vec<Weak<dyn PauseListener>>>,
    /// Number of keys at which the next sweep happens.
    sweep_at: usize,
    task: Option<AbortHandle>,
}

impl PauseListeners {
    pub(super) fn add(&self, key: &str, listener: Weak<dyn PauseListener>) {
        let mut state = lock(&self.state);
        if state.by_key.len() >= state.sweep_at.max(FIRST_SWEEP) {
            state.by_key.retain(|_, listeners| sweep(listeners));
            state.sweep_at = state.by_key.len() * 2;
        }
        if state.by_key.len() < MAX_KEYS || state.by_key.contains_key(key) {
            let listeners = state.by_key.entry(key.to_owned()).or_default();
            // Otherwise the listeners of a key that is made again and again would pile up.
            sweep(listeners);
            listeners.push(listener);
        }
    }

    /// Starts the task, unless it runs. Does nothing outside a tokio runtime.
    pub(super) fn start(this: &Arc<Self>, store: &Arc<dyn FleetStore>) {
        let mut state = lock(&this.state);
        // The runtime of an earlier task may have ended.
        if (state.task.as_ref()).is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let task = forward_pauses(Arc::downgrade(this), Arc::clone(store));
            state.task = Some(runtime.spawn(task).abort_handle());
        }
    }

    fn notify(&self, pause: &Pause) {
        let mut state = lock(&self.state);
        let Some(listeners) = state.by_key.get_mut(&pause.key) else {
            return;
        };
        let alive: Vec<_> = listeners.iter().filter_map(Weak::upgrade).collect();
        if alive.is_empty() {
            state.by_key.remove(&pause.key);
        }
        // A listener may add another one.
        drop(state);
        for listener in alive {
            listener.paused(pause.length);
        }
    }

    /// Number of known keys.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        lock(&self.state).by_key.len()
    }
}

impl Drop for PauseListeners {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.state).task.take() {
            task.abort();
        }
    }
}

/// Removes dropped listeners; returns whether any is left.
fn sweep(listeners: &mut Vec<Weak<dyn PauseListener>>) -> bool {
    listeners.retain(|listener| listener.strong_count() > 0);
    !listeners.is_empty()
}

/// Passes on the store's pauses until the listeners are dropped, and subscribes again after errors.
/// A pause that is missed meanwhile comes with the next lease.
async fn forward_pauses(listeners: Weak<PauseListeners>, store: Arc<dyn FleetStore>) {
    let mut wait = FIRST_WAIT;
    loop {
        if let Ok(Ok(mut pauses)) = timeout(SUBSCRIBE_LIMIT, store.pauses()).await {
            while let Ok(pause) = pauses.next().await {
                wait = FIRST_WAIT;
                let Some(listeners) = listeners.upgrade() else {
                    return;
                };
                listeners.notify(&pause);
            }
        }
        if listeners.strong_count() == 0 {
            return;
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}
