//! One run of eight workers, from its beginning to its end.

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
/// A little less than the quota: what a worker has leased may be sent a moment later.
pub(crate) const RATE: f64 = 490.0;
/// Of each: together, twice the quota.
const OFFERED: f64 = 2.0 * QUOTA / WORKERS as f64;
/// What the server takes at once after a silence.
const BURST: f64 = 100.0;

/// Set where Redis is known to be there, so that these tests cannot be skipped unnoticed.
const REQUIRE: &str = "STEADY_REQUIRE_REDIS";
const CONTROL: &str = "STEADY_FLEET_CONTROL";
const NUMBER: &str = "STEADY_FLEET_NUMBER";

/// `None` if there is no Redis here.
pub(crate) fn find_redis(test: &str) -> Option<RedisProcess> {
    let redis = RedisProcess::start(Vec::new).unwrap();
    if redis.is_none() {
        assert!(
            env::var_os(REQUIRE).is_none(),
            "{REQUIRE} is set, but there is no `redis-server` in PATH"
        );
        say(format_args!("{test}: skipped, no `redis-server` in PATH"));
    }
    redis
}

/// What anybody else could tell it.
pub(crate) fn tell<T: redis::FromRedisValue>(redis: &RedisProcess, command: &[&str]) -> T {
    let mut connection = redis::Client::open(redis.url())
        .and_then(|client| client.get_connection_with_timeout(Duration::from_secs(5)))
        .unwrap();
    let mut words = redis::cmd(command[0]);
    words.arg(&command[1..]);
    words.query(&mut connection).unwrap()
}

/// How many questions it has been asked, since it was started.
pub(crate) fn questions(redis: &RedisProcess) -> u64 {
    let counted: String = tell(redis, &["INFO", "commandstats"]);
    let calls = |name: &str| {
        let line = counted.lines().find_map(|line| line.strip_prefix(name));
        let calls = line.and_then(|line| line.strip_prefix(":calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    };
    calls("cmdstat_evalsha") + calls("cmdstat_eval")
}

/// How many workers it knows of.
pub(crate) fn workers_known(redis: &RedisProcess) -> usize {
    let names: Vec<String> = tell(redis, &["KEYS", "*:workers"]);
    let known = names
        .iter()
        .map(|name| tell::<usize>(redis, &["ZCARD", name]));
    known.sum()
}

/// Where a worker finds the one that started it, and which it is.
pub(crate) fn told_by_environment() -> Option<(SocketAddr, usize)> {
    let read = |name| env::var(name).ok();
    Some((read(CONTROL)?.parse().ok()?, read(NUMBER)?.parse().ok()?))
}

/// What a worker does that is refused too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRefusals {
    /// What it does unless it is told otherwise. That alone keeps a fleet near the quota.
    SlowDown,
    /// Then nothing but the rate keeps it there.
    GoOn,
}

/// Workers that make calls.
pub(crate) struct Run {
    pub(crate) server: Server,
    crew: Crew,
    begun: Duration,
    lag: Lag,
}

impl Run {
    /// They share their limits if there is a Redis for it.
    pub(crate) fn begin(redis: Option<&RedisProcess>, after: AfterRefusals) -> Self {
        let server = Server::start(Quota {
            per_second: QUOTA,
            burst: BURST,
        });
        let server = server.unwrap();
        // This same program, started again to run the test that is a worker.
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

    /// Only what happens from now on counts as a lag.
    pub(crate) fn mark(&mut self) {
        self.crew.mark().unwrap();
        self.lag.take();
    }

    /// No call has failed, and none is missing: that is so however busy the machine is.
    pub(crate) fn end(self, trial: &mut Trial) -> Outcome {
        let outcome = self.end_anyhow(trial);
        for report in &outcome.reports {
            assert_eq!((report.failed, report.lost), (0, 0), "{report:?}");
            assert_eq!(report.succeeded, report.made);
        }
        outcome
    }

    /// Calls may have failed.
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
