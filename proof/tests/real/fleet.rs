//! What many workers share, in memory and in Redis.
//!
//! `sending.rs`, `retrying.rs` and `pausing.rs` say what any store does. Each test there runs on both: in
//! memory under tokio's paused clock, and on a real Redis in real time.

mod pausing;
mod retrying;
mod sending;

#[cfg(unix)]
mod redis_away;
#[cfg(unix)]
mod redis_connection;
#[cfg(unix)]
#[path = "../../examples/fleet/redis.rs"]
mod redis_process;
#[cfg(unix)]
mod redis_server;
#[cfg(unix)]
mod redis_store;

use std::time::Duration;

use reqwest_steady::fleet::{LeaseAsk, WorkerId};

const KEY: &str = "api.example.com";
const PERIOD: Duration = Duration::from_millis(50);

/// A question of a new worker.
fn worker() -> LeaseAsk {
    LeaseAsk::new(WorkerId::random(), PERIOD)
}

/// Each test once on each store.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            use std::sync::Arc;
            use reqwest_steady::fleet::MemoryStore;

            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(Arc::new(MemoryStore::new())).await;
            })*
        }

        #[cfg(unix)]
        mod in_redis {
            use crate::fleet::redis_server::RedisServer;

            $(#[tokio::test]
            async fn $name() {
                if let Some(server) = RedisServer::start(stringify!($name)).await {
                    super::$name(server.store()).await;
                }
            })*
        }
    };
}
use on_both_stores;
