//! Limits that workers share, in memory and in Redis.
//!
//! The tests in `sending.rs`, `retrying.rs` and `pausing.rs` hold for any store. Each runs twice: in memory under tokio's
//! paused clock, and with a real Redis in real time.

mod pausing;
mod retrying;
mod sending;

#[cfg(unix)]
mod redis_connection;
#[cfg(unix)]
mod redis_outage;
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

/// Creates a lease request of a new worker.
fn worker() -> LeaseAsk {
    LeaseAsk::new(WorkerId::random(), PERIOD)
}

/// Runs each test once with each store.
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
