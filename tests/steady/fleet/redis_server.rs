//! A real Redis, on loopback and in a directory of its own.
//!
//! Without one these tests are skipped, and say so; with `STEADY_REQUIRE_REDIS` set they fail.

use std::env;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest_steady::fleet::{FleetStore, RedisStore, RedisStoreBuilder};
use tokio::time::sleep;

use crate::support::raw::in_time;

/// How often to start it, if others take its port.
const TRIES: usize = 5;

/// Set where Redis is known to be there, so that these tests cannot be skipped unnoticed.
const REQUIRE: &str = "STEADY_REQUIRE_REDIS";

/// Past the capture of the test harness, which would hide it.
pub(super) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "redis: {line}");
}

/// One process, which ends when this is dropped, and a directory, which is removed.
pub(super) struct RedisServer {
    process: Child,
    directory: PathBuf,
    pub(super) port: u16,
}

impl RedisServer {
    /// `None` if there is no Redis here.
    pub(super) async fn start(test: &str) -> Option<Self> {
        for _ in 0..TRIES {
            let (directory, port) = (fresh_directory(), free_port());
            let Some(process) = spawn(&directory, port) else {
                fs::remove_dir_all(&directory).unwrap();
                assert!(
                    env::var_os(REQUIRE).is_none(),
                    "{REQUIRE} is set, but there is no `redis-server` in PATH"
                );
                say(format_args!("{test}: skipped, no `redis-server` in PATH"));
                return None;
            };
            let mut server = Self {
                process,
                directory,
                port,
            };
            if in_time(server.listens()).await {
                return Some(server);
            }
            say(format_args!("did not start:\n{}", server.log()));
        }
        panic!("redis-server did not start, {TRIES} times");
    }

    /// On the same port, where it has been killed.
    pub(super) async fn restart(&mut self) {
        self.process = spawn(&self.directory, self.port).expect("it was there before");
        assert!(in_time(self.listens()).await, "{}", self.log());
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// `STOP` or `CONT`.
    pub(super) fn signal(&self, name: &str) {
        let process = self.process.id().to_string();
        let status = Command::new("kill").args(["-s", name, &process]).status();
        assert!(status.unwrap().success());
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// With time enough for a machine that does much else.
    pub(super) fn builder(&self) -> RedisStoreBuilder {
        RedisStore::builder(&self.url()).max_wait(Duration::from_secs(5))
    }

    pub(super) fn store(&self) -> Arc<dyn FleetStore> {
        Arc::new(self.builder().build().unwrap())
    }

    /// What anybody else could tell it.
    pub(super) async fn tell<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut words = redis::cmd(command[0]);
        words.arg(&command[1..]);
        words.query_async(&mut connection).await.unwrap()
    }

    /// `false` if it has ended instead.
    async fn listens(&mut self) -> bool {
        // To knock at the port instead might be to knock at somebody else's.
        while !self.log().contains("Ready to accept connections") {
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
        true
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may be gone already, and a panic in here would hide the first one.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// From here on, another process may take the port. Then Redis gives up, and is tried again.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// `None` if there is no such program.
fn spawn(directory: &Path, port: u16) -> Option<Child> {
    let log = File::create(directory.join("log")).unwrap();
    let started = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(process) => Some(process),
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
            None
        }
    }
}

fn fresh_directory() -> PathBuf {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let name = format!("reqwest-steady-redis-{}-{number}", process::id());
    let directory = env::temp_dir().join(name);
    // What an earlier process of the same number has left behind.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    directory
}
