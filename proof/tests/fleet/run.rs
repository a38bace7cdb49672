//! One whole run of eight workers.

use std::env;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::crew::Crew;
use crate::lag::Lag;
use crate::outcome::Outcome;
use crate::redis_process::RedisProcess;
use crate::server::{Quota, Server};
use crate::trial::{Trial, say};
use crate::worker::Orders;

pub(crate) const WORKERS: usize = 8;
pub(crate) const QUOTA: f64 = 500.0;
/// Slightly less than the quota, because a worker may use a lease a moment later.
pub(crate) const RATE: f64 = 490.0;
/// The calls per second of each worker. Together they are twice the quota.
const OFFERED: f64 = 2.0 * QUOTA / WORKERS as f64;
/// The burst that the server accepts after an idle time.
const BURST: f64 = 100.0;

/// Set this variable where Redis is installed, so that no test is skipped unnoticed.
const REQUIRE: &str = "STEADY_REQUIRE_REDIS";
const CONTROL: &str = "STEADY_FLEET_CONTROL";
const NUMBER: &str = "STEADY_FLEET_NUMBER";

/// Starts Redis, or returns `None` if it is not installed.
pub(crate) fn find_redis(test: &str) -> Option<RedisProcess> {
    let redis = RedisProcess::start(Vec::new).unwrap();
    if redis.is_none() {
        assert!(
            env::var_os(REQUIRE).is_none(),
            "{REQUIRE} is set, but `redis-server` is not in PATH"
        );
        say(format_args!(
            "{test}: skipped, `redis-server` is not in PATH"
        ));
    }
    redis
}

/// Sends a command through another connection.
pub(crate) fn command<T: redis::FromRedisValue>(redis: &RedisProcess, words: &[&str]) -> T {
    let mut connection = redis::Client::open(redis.url())
        .and_then(|client| client.get_connection_with_timeout(Duration::from_secs(5)))
        .unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query(&mut connection).unwrap()
}

/// Returns the number of store requests since Redis started.
pub(crate) fn store_requests(redis: &RedisProcess) -> u64 {
    let counted: String = command(redis, &["INFO", "commandstats"]);
    let calls = |name: &str| {
        let line = counted.lines().find_map(|line| line.strip_prefix(name));
        let calls = line.and_then(|line| line.strip_prefix(":calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    };
    calls("cmdstat_evalsha") + calls("cmdstat_eval")
}

/// Returns the number of workers in the store.
pub(crate) fn workers_known(redis: &RedisProcess) -> usize {
    let names: Vec<String> = command(redis, &["KEYS", "*:workers"]);
    let known = names
        .iter()
        .map(|name| command::<usize>(redis, &["ZCARD", name]));
    known.sum()
}

/// Returns the control address and the number of a worker.
pub(crate) fn environment() -> Option<(SocketAddr, usize)> {
    let read = |name| env::var(name).ok();
    Some((read(CONTROL)?.parse().ok()?, read(NUMBER)?.parse().ok()?))
}

/// The reaction of a worker to many refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRefusals {
    /// The default. It alone keeps a fleet near the quota.
    SlowDown,
    /// Only the rate keeps the fleet near the quota.
    GoOn,
}

/// Running workers and their server.
pub(crate) struct Run {
    pub(crate) server: Server,
    crew: Crew,
    begun: Duration,
    lag: Lag,
}

impl Run {
    /// Starts the workers. They share their limits if a Redis is given.
    pub(crate) fn begin(redis: Option<&RedisProcess>, after: AfterRefusals) -> Self {
        let server = Server::start(Quota {
            per_second: QUOTA,
            burst: BURST,
        });
        let server = server.unwrap();
        // Starts this program again, to run the test that is a worker.
        let crew = Crew::start(WORKERS, |control, number| {
            let mut command = Command::new(env::current_exe()?);
            command
                .args(["--exact", "the_worker", "--ignored", "--nocapture"])
                .env(CONTROL, control.to_string())
                .env(NUMBER, number.to_string());
            Ok(command)
        });
        let mut run = Self {
            begun: server.now(),
            server,
            crew: crew.unwrap(),
            lag: Lag::watch(),
        };
        let orders = Orders {
            server: run.server.address,
            redis: redis.map(RedisProcess::url),
            adaptive: after == AfterRefusals::SlowDown,
            rate: RATE,
            burst: 50,
            offered: OFFERED,
        };
        run.begun = run.server.now();
        run.crew.begin(&orders).unwrap();
        run
    }

    /// Ignores all earlier lags.
    pub(crate) fn mark(&mut self) {
        self.crew.mark().unwrap();
        self.lag.take();
    }

    /// Ends the run. Checks that no call failed or is missing, however busy the machine is.
    pub(crate) fn end(self, trial: &mut Trial) -> Outcome {
        let outcome = self.end_anyhow(trial);
        for report in &outcome.reports {
            assert_eq!((report.failed, report.lost), (0, 0), "{report:?}");
            assert_eq!(report.succeeded, report.made);
        }
        outcome
    }

    /// Ends the run. Calls may have failed.
    pub(crate) fn end_anyhow(self, trial: &mut Trial) -> Outcome {
        let ended = self.server.now();
        let reports = self.crew.stop().unwrap();
        trial.note_lag(self.lag.take());
        for report in &reports {
            trial.note_lag(report.lag);
        }
        Outcome {
            arrivals: self.server.arrivals(),
            reports,
            time: self.begun..ended,
        }
    }
}
