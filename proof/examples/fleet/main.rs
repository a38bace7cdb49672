//! Eight workers that have one quota together: how much they waste alone, and how much if they share their limits.
//!
//! `cargo run -p proof --example fleet`, and `-- --help` for more
//!
//! Each worker is a process of its own. The server takes 500 requests a second of all of them, and refuses the others.
//! Redis is started from the PATH, and stopped at the end; with `--redis` or `REDIS_URL` it is any other.

// A server has a clock of its own.
#![allow(clippy::disallowed_methods)]

mod crew;
mod lag;
mod outcome;
mod redis;
mod server;
mod worker;

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crew::Crew;
use outcome::Outcome;
use redis::RedisProcess;
use server::{Quota, Server};
use worker::Orders;

#[derive(Parser)]
#[command(
    about = "What workers waste of a quota that they have together, with and without shared limits"
)]
struct Settings {
    /// For how long each fleet works
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=30))]
    seconds: u64,
    /// How many processes there are
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// How many requests a second the server takes
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=5000))]
    rate: u32,
    /// The Redis to share limits through, like redis://127.0.0.1:6379; otherwise REDIS_URL, or one is started
    #[arg(long)]
    redis: Option<String>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// One of the workers, which are started by themselves
    #[command(hide = true)]
    Worker { control: SocketAddr, number: usize },
}

const NO_REDIS: &str = "
There is no Redis here, so nothing can be shared. Either install `redis-server`, and it is started from the PATH:

    apt-get install redis-server      or      brew install redis

or start one yourself, and say where it is:

    docker run --rm --publish 127.0.0.1:6379:6379 redis
    cargo run -p proof --example fleet -- --redis redis://127.0.0.1:6379";

/// How long a Redis may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> anyhow::Result<()> {
    let settings = Settings::parse();
    if let Some(Part::Worker { control, number }) = settings.part {
        return worker::work(control, number, Vec::new);
    }
    let given = given_redis(&settings)?;
    println!(
        "{} workers want twice what the server takes, which is {} a second, for {} s:\n",
        settings.workers, settings.rate, settings.seconds
    );
    println!(
        "{:<19} {:>8} {:>9} {:>13} {:>10} {:>11} {:>17} {:>12}",
        "limits",
        "requests",
        "successes",
        "wasted for",
        "calls that",
        "use of the",
        "most requests in",
        "round trips",
    );
    println!(
        "{:<19} {:>8} {:>9} {:>13} {:>10} {:>11} {:>17} {:>12}",
        "", "", "", "1000 of them", "failed", "quota", "any second", "for 1000",
    );
    let fixed = run(&settings, None, false)?;
    show("each its own, fixed", &fixed, &settings);
    let adaptive = run(&settings, None, true)?;
    show("each its own", &adaptive, &settings);

    let (url, _redis) = match given {
        Some((url, client)) => {
            if let Err(error) = ping(&client) {
                let why = match error.is_timeout() {
                    true => format!("it said nothing for {PATIENCE:?}"),
                    false if error.is_io_error() => error.to_string(),
                    // Its own words may repeat a password.
                    false => format!("{:?}", error.kind()),
                };
                println!("\nThe Redis that was given cannot be used: {why}.");
                println!("{NO_REDIS}");
                return Ok(());
            }
            (url, None)
        }
        None => match RedisProcess::start(Vec::new)? {
            Some(redis) => (redis.url(), Some(redis)),
            None => {
                println!("{NO_REDIS}");
                return Ok(());
            }
        },
    };
    let together = run(&settings, Some(url), true)?;
    show("shared, in Redis", &together, &settings);
    if let Some(failure) = together
        .reports
        .iter()
        .find_map(|it| it.first_failure.as_ref())
    {
        println!("\nThe first call that failed did so with: {failure}");
    }
    Ok(())
}

/// The Redis that was given, if any was, with a URL that can be one.
fn given_redis(settings: &Settings) -> anyhow::Result<Option<(String, ::redis::Client)>> {
    let by_environment = || std::env::var("REDIS_URL").ok();
    let url = settings.redis.clone().or_else(by_environment);
    let Some(url) = url.filter(|url| !url.is_empty()) else {
        return Ok(None);
    };
    // What was given is not shown: it may hold a password.
    let client = ::redis::Client::open(url.as_str()).map_err(|_| {
        anyhow::anyhow!("the URL of Redis should be like redis://user:password@host:6379/0")
    })?;
    Ok(Some((url, client)))
}

/// Whether it answers in time.
fn ping(client: &::redis::Client) -> ::redis::RedisResult<()> {
    let mut connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    ::redis::cmd("PING").query(&mut connection)
}

fn run(settings: &Settings, redis: Option<String>, adaptive: bool) -> anyhow::Result<Outcome> {
    let per_second = f64::from(settings.rate);
    let server = Server::start(Quota {
        per_second,
        burst: per_second / 5.0,
    })?;
    let mut crew = Crew::start(settings.workers.into(), |control, number| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", &control.to_string(), &number.to_string()]);
        Ok(command)
    })?;
    let begun = server.now();
    crew.begin(&Orders {
        server: server.address,
        redis,
        adaptive,
        // A little less: what was leased may be sent a moment later.
        rate: per_second * 0.98,
        burst: settings.rate / 10,
        offered: 2.0 * per_second / f64::from(settings.workers),
    })?;
    thread::sleep(Duration::from_secs(settings.seconds));
    let ended = server.now();
    let reports = crew.stop()?;
    Ok(Outcome {
        arrivals: server.arrivals(),
        reports,
        time: begun..ended,
    })
}

fn show(limits: &str, outcome: &Outcome, settings: &Settings) {
    let round_trips = match outcome.sum(|report| report.round_trips) {
        0 => "-".to_owned(),
        asked => format!("{:.0}", asked as f64 / outcome.requests() as f64 * 1000.0),
    };
    println!(
        "{limits:<19} {:>8} {:>9} {:>13.0} {:>10} {:>9.1} % {:>17} {:>12}",
        outcome.requests(),
        outcome.successes(),
        (outcome.requests_per_success() - 1.0) * 1000.0,
        outcome.sum(|report| report.failed + report.lost),
        outcome.use_of(settings.rate.into()) * 100.0,
        outcome.most_in_a_second(),
        round_trips,
    );
}
