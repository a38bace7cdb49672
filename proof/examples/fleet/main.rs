//! Eight workers share one quota. This compares separate limits per worker with shared limits in Redis.
//!
//! `cargo run -p proof --example fleet`, and `-- --help` for options
//!
//! Each worker is a separate process. The server accepts 500 requests per second from all of them and refuses the rest.
//! `redis-server` is started from the PATH and stopped at the end. To use another Redis, give `--redis` or `REDIS_URL`.

// The server limits requests by the clock.
#![allow(clippy::disallowed_methods)]

mod crew;
mod lag;
mod outcome;
#[path = "../../../examples/support/print.rs"]
mod print;
mod redis;
mod server;
mod worker;

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use clap::{Parser, Subcommand};

use crew::Crew;
use outcome::Outcome;
use print::{bold, count, dim, green, red, verdict};
use redis::RedisProcess;
use server::{Quota, Server};
use worker::Orders;

#[derive(Parser)]
#[command(
    about = "Compares workers with separate limits to workers that share their limits through Redis"
)]
struct Settings {
    /// How many seconds each fleet works
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=30))]
    seconds: u64,
    /// How many worker processes to start
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// How many requests per second the server accepts
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=5000))]
    rate: u32,
    /// The URL of a Redis, such as redis://127.0.0.1:6379 [default: REDIS_URL, or a new redis-server]
    #[arg(long)]
    redis: Option<String>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// One of the workers. The example starts them itself
    #[command(hide = true)]
    Worker { control: SocketAddr, number: usize },
}

const NO_REDIS: &str = "
Install `redis-server`, and this example starts it from the PATH:

    apt-get install redis-server      or      brew install redis

Or start a Redis yourself and give its URL:

    docker run --rm --publish 127.0.0.1:6379:6379 redis
    cargo run -p proof --example fleet -- --redis redis://127.0.0.1:6379";

/// How long a Redis may take to respond.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> anyhow::Result<()> {
    let settings = Settings::parse();
    if let Some(Part::Worker { control, number }) = settings.part {
        return worker::work(control, number, Vec::new);
    }
    let given = given_redis(&settings)?;
    println!(
        "{}\n",
        bold(format!(
            "Together, {} may send {} per second. They try to send twice as many.",
            count(settings.workers.into(), "worker"),
            count(settings.rate as usize, "request"),
        ))
    );
    println!(
        "{}\n{}",
        dim(
            "limits               requests    refused by    calls   quota        busiest   Redis round trips"
        ),
        dim(
            "of each worker           sent    the server   failed    used         second   per 1000 requests"
        ),
    );
    let fixed = run(&settings, None, false)?;
    show("own limit, fixed", &fixed, &settings);
    let adaptive = run(&settings, None, true)?;
    show("own limit, adaptive", &adaptive, &settings);

    let (url, _redis) = match given {
        Some((url, client)) => {
            if let Err(error) = ping(&client) {
                let why = match error.is_timeout() {
                    true => format!("no response within {} s", PATIENCE.as_secs()),
                    false if error.is_io_error() => error.to_string(),
                    // The text of other errors may contain the password.
                    false => format!("{:?}", error.kind()),
                };
                println!("{NO_REDIS}\n");
                anyhow::bail!("this Redis cannot be used: {why}");
            }
            (url, None)
        }
        None => match RedisProcess::start(Vec::new)? {
            Some(redis) => (redis.url(), Some(redis)),
            None => {
                let missing = "There is no Redis here, so shared limits cannot be shown.";
                println!("\n{}", red(missing));
                println!("{NO_REDIS}");
                return Ok(());
            }
        },
    };
    let together = run(&settings, Some(url), true)?;
    show("shared in Redis", &together, &settings);
    let failures = together.reports.iter().map(|it| it.first_failure.as_ref());
    if let Some(failure) = failures.flatten().next() {
        println!("\nFirst failed call with shared limits: {failure}");
    }

    let (alone, shared) = (refused(&fixed), refused(&together));
    ensure!(
        settings.workers == 1 || shared < alone,
        "shared limits led to {shared} refused requests, separate ones to {alone}"
    );
    let conclusion = match alone {
        0 => "The server refused nothing, so shared limits make no difference.".to_owned(),
        _ => format!(
            "With shared limits, the server refused {} instead of {alone}.",
            count(shared, "request")
        ),
    };
    println!("\n{}", green(conclusion));
    Ok(())
}

/// Returns the Redis that the settings or the environment name, with its URL.
fn given_redis(settings: &Settings) -> anyhow::Result<Option<(String, ::redis::Client)>> {
    let by_environment = || std::env::var("REDIS_URL").ok();
    let url = settings.redis.clone().or_else(by_environment);
    let Some(url) = url.filter(|url| !url.is_empty()) else {
        return Ok(None);
    };
    // The URL is not shown, because it may contain a password.
    let client = ::redis::Client::open(url.as_str()).map_err(|_| {
        anyhow::anyhow!("invalid URL of Redis: use one like redis://user:password@host:6379/0")
    })?;
    Ok(Some((url, client)))
}

/// Fails if Redis does not respond in time.
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
        // A little less than the quota, because leased requests may be sent a moment later.
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

/// Returns how many requests the server refused.
fn refused(outcome: &Outcome) -> usize {
    outcome.requests() - outcome.successes()
}

/// Prints one line about a fleet.
fn show(limits: &str, outcome: &Outcome, settings: &Settings) {
    let requests = outcome.requests();
    let failed = outcome.sum(|report| report.failed + report.lost);
    let share = 1.0 - 1.0 / outcome.requests_per_success();
    let round_trips = outcome.sum(|report| report.round_trips) as f64;
    println!(
        "{limits:<20} {requests:>8} {:>13} {:>8} {:>5.0} % {:>14} {:>19.0}",
        // Adaptive limits find the quota by a few refusals.
        verdict(
            share < 0.05,
            format!("{} ({:.0} %)", refused(outcome), share * 100.0)
        ),
        verdict(failed == 0, failed),
        outcome.use_of(settings.rate.into()) * 100.0,
        count(outcome.most_in_a_second(), "request"),
        round_trips / requests as f64 * 1000.0,
    );
}
