//! Starts `redis-server` from PATH, on loopback and in a temporary directory.

#![allow(dead_code, reason = "the tests use more of it than the example")]

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

/// The number of starts if another process takes the port.
const TRIES: usize = 5;
/// How long it may take to start, in steps of 5 ms.
const STEPS: usize = 4000;

/// A process and its directory. Drop ends the process and removes the directory.
pub(crate) struct RedisProcess {
    running: Running,
    directory: PathBuf,
    arguments: Vec<String>,
    pub(crate) port: u16,
}

impl RedisProcess {
    /// Starts Redis, or returns `None` if it is not installed.
    pub(crate) fn start(more_arguments: impl Fn() -> Vec<String>) -> io::Result<Option<Self>> {
        for _ in 0..TRIES {
            let (directory, port) = (fresh_directory()?, free_port()?);
            let mut arguments = vec!["--port".to_owned(), port.to_string()];
            arguments.extend(more_arguments());
            let Some(running) = Running::start(&directory, &arguments)? else {
                fs::remove_dir_all(&directory)?;
                return Ok(None);
            };
            let mut redis = Self {
                running,
                directory,
                arguments,
                port,
            };
            if redis.listens()? {
                return Ok(Some(redis));
            }
        }
        Err(io::Error::other(format!("it did not start, {TRIES} times")))
    }

    pub(crate) fn kill(&mut self) {
        self.running.end();
    }

    /// Starts it again on the same port after a kill.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        let running = Running::start(&self.directory, &self.arguments)?;
        self.running = running.ok_or(io::ErrorKind::NotFound)?;
        match self.listens()? {
            true => Ok(()),
            false => Err(io::Error::other("it did not start again")),
        }
    }

    /// Sends the signal `STOP` or `CONT`.
    pub(crate) fn signal(&self, name: &str) -> io::Result<()> {
        let process = self.running.process.id().to_string();
        let status = Command::new("kill").args(["-s", name, &process]).status()?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other("no such process")),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Waits until Redis is ready. Returns `false` if the process ends instead.
    fn listens(&mut self) -> io::Result<bool> {
        for _ in 0..STEPS {
            // A connection to the port could reach another process.
            let log = fs::read_to_string(self.directory.join("log"))?;
            if log.contains("Ready to accept connections") {
                return Ok(true);
            }
            if self.running.process.try_wait()?.is_some() {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        self.running.end();
        // A panic here would hide the first one.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The process, and a guard that ends it if this process dies.
struct Running {
    process: Child,
    guard: Option<Child>,
}

impl Running {
    fn start(directory: &Path, arguments: &[String]) -> io::Result<Option<Self>> {
        let started = Command::new("redis-server")
            .args(arguments)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(File::create(directory.join("log"))?)
            .stderr(Stdio::null())
            .spawn();
        let process = match started {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            started => started?,
        };
        let mut running = Self {
            process,
            guard: None,
        };
        // The input of the guard ends with this process, however that ends.
        let guard = Command::new("sh")
            .args(["-c", r#"read -r _; kill -9 "$1"; rm -rf "$2""#, "guard"])
            .arg(running.process.id().to_string())
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match guard {
            Ok(guard) => running.guard = Some(guard),
            Err(error) => {
                running.end();
                return Err(error);
            }
        }
        Ok(Some(running))
    }

    /// Ends the guard first, while the id of the process is still valid. Either may have ended already.
    fn end(&mut self) {
        for child in self.guard.iter_mut().chain([&mut self.process]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Finds a free port. Another process may take it later. Then Redis ends and is started again.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn fresh_directory() -> io::Result<PathBuf> {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let name = format!("reqwest-steady-redis-{}-{number}", process::id());
    let directory = env::temp_dir().join(name);
    // Left behind by an earlier process with the same id.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory)?;
    Ok(directory)
}
