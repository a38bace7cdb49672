//! A real Redis, on loopback and in a temporary directory.
//!
//! Without Redis, these tests print that they are skipped. With `STEADY_REQUIRE_REDIS` set, they fail.

use std::env;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use reqwest_steady::fleet::{FleetStore, RedisStore, RedisStoreBuilder};
use tokio::time::sleep;

use super::redis_process::{RedisProcess, free_port};
use crate::support::raw::in_time;

/// Set this variable where Redis is installed, so that no test is skipped unnoticed.
const REQUIRE: &str = "STEADY_REQUIRE_REDIS";

/// Prints to stderr directly, because the test harness would capture the line.
pub(super) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "redis: {line}");
}

pub(super) struct RedisServer {
    process: RedisProcess,
    pub(super) port: u16,
}

impl RedisServer {
    /// Returns `None` if Redis is not installed.
    pub(super) async fn start(test: &str) -> Option<Self> {
        Self::start_with(test, Vec::new)
    }

    /// Starts a node of a cluster, without slots.
    pub(super) async fn start_node(test: &str) -> Option<Self> {
        Self::start_with(test, || {
            let bus = free_port().unwrap().to_string();
            let settings = [
                "--cluster-enabled",
                "yes",
                "--cluster-announce-ip",
                "127.0.0.1",
                "--cluster-node-timeout",
                "2000",
                "--cluster-port",
                &bus,
            ];
            settings.map(str::to_owned).into()
        })
    }

    fn start_with(test: &str, arguments: impl Fn() -> Vec<String>) -> Option<Self> {
        let Some(process) = RedisProcess::start(arguments).unwrap() else {
            assert!(
                env::var_os(REQUIRE).is_none(),
                "{REQUIRE} is set, but there is no `redis-server` in PATH"
            );
            say(format_args!("{test}: skipped, no `redis-server` in PATH"));
            return None;
        };
        let port = process.port;
        Some(Self { process, port })
    }

    /// Starts it again on the same port after a kill.
    pub(super) async fn restart(&mut self) {
        self.process.restart().unwrap();
    }

    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends the signal `STOP` or `CONT`.
    pub(super) fn signal(&self, name: &str) {
        self.process.signal(name).unwrap();
    }

    pub(super) fn url(&self) -> String {
        self.process.url()
    }

    /// Builds a store with a timeout that is long enough for a busy machine.
    pub(super) fn builder(&self) -> RedisStoreBuilder {
        RedisStore::builder(&self.url()).store_timeout(Duration::from_secs(5))
    }

    pub(super) fn store(&self) -> Arc<dyn FleetStore> {
        Arc::new(self.builder().build().unwrap())
    }

    /// Sends a command through another connection.
    pub(super) async fn command<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut words = redis::cmd(command[0]);
        words.arg(&command[1..]);
        words.query_async(&mut connection).await.unwrap()
    }

    /// Joins both nodes into one cluster.
    pub(super) async fn meet(&self, other: &Self) {
        let nodes: String = other.command(&["CLUSTER", "NODES"]).await;
        // 07c37df… 127.0.0.1:30004@31004 myself,master
        let bus = nodes.split(['@', ',', ' ']).nth(2).unwrap();
        let port = other.port.to_string();
        self.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, bus])
            .await;
        in_time(async {
            for node in [self, other] {
                while !node
                    .command::<String>(&["CLUSTER", "INFO"])
                    .await
                    .contains("cluster_state:ok")
                {
                    sleep(Duration::from_millis(20)).await;
                }
            }
        })
        .await;
    }
}
