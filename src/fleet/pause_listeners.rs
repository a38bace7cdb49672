//! Hands pauses from the store to the gates of this worker.
//!
//! One task per fleet handle reads the store's pauses. It starts with the first listener and ends with the
//! last handle.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::swept_table::SweptTable;
use super::{FleetStore, Pause};
use crate::lock::lock;

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
pub(super) struct PauseListeners(Mutex<ListenersState>);

#[derive(Debug, Default)]
struct ListenersState {
    by_key: SweptTable<Vec<Weak<dyn PauseListener>>>,
    /// The task, if it was started.
    task: JoinSet<()>,
}

impl PauseListeners {
    /// Adds a listener. Starts the task unless it runs, or there is no tokio runtime.
    pub(super) fn add(
        self: &Arc<Self>,
        key: &str,
        listener: Weak<dyn PauseListener>,
        store: &Arc<dyn FleetStore>,
    ) {
        let mut state = lock(&self.0);
        let listeners = (state.by_key).entry(key, |listeners| !listeners.iter().any(is_alive));
        // Otherwise the listeners of a key that is made again and again would pile up.
        listeners.retain(is_alive);
        listeners.push(listener);
        // The runtime of an earlier task may have ended.
        while state.task.try_join_next().is_some() {}
        if let (true, Ok(runtime)) = (state.task.is_empty(), Handle::try_current()) {
            let task = forward_pauses(Arc::downgrade(self), Arc::clone(store));
            state.task.spawn_on(task, &runtime);
        }
    }

    fn notify(&self, pause: &Pause) {
        let listeners = lock(&self.0).by_key.get(&pause.key).cloned();
        // Without the lock, because a listener may add another one.
        for listener in listeners.iter().flatten().filter_map(Weak::upgrade) {
            listener.paused(pause.length);
        }
    }

    /// Number of known keys.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        lock(&self.0).by_key.len()
    }
}

fn is_alive(listener: &Weak<dyn PauseListener>) -> bool {
    listener.strong_count() > 0
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
