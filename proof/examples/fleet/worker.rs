//! One worker process. It gets its orders over a control connection, and ends with that connection.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::{ClientBuilderExt, Steady, ThrottleMiddleware};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use crate::lag::Lag;
use crate::server::WORKER;

/// The most concurrent calls of a worker. It skips calls beyond that.
const MOST_WAITING: usize = 100;
/// How long calls may take after the end.
const PATIENCE: Duration = Duration::from_secs(20);
const PREFIX: &str = "fleet-example";

/// The orders for all workers.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) server: SocketAddr,
    /// The Redis through which workers share their limits, if they do.
    pub(crate) redis: Option<String>,
    /// Whether workers slow down after refusals.
    pub(crate) adaptive: bool,
    /// The rate limit of each worker, or of all together.
    pub(crate) rate: f64,
    pub(crate) burst: u32,
    /// The calls per second that each worker tries to make.
    pub(crate) offered: f64,
}

/// The results of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) made: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// Calls that have not ended long after the end.
    pub(crate) lost: u64,
    pub(crate) round_trips: u64,
    /// The longest time for which the machine delayed the worker.
    pub(crate) lag: Duration,
    pub(crate) first_failure: Option<String>,
    /// The log lines of the library, if they are collected.
    pub(crate) log_lines: Vec<String>,
}

/// Connects to the parent, follows its orders, and reports the results.
pub(crate) fn work(
    control: SocketAddr,
    number: usize,
    log: impl FnOnce() -> Vec<String>,
) -> anyhow::Result<()> {
    let mut control = TcpStream::connect(control)?;
    writeln!(control, "{number}")?;
    let mut lines = BufReader::new(control.try_clone()?).lines();
    let orders: Orders = lines.next().context("no orders")??.parse()?;
    let lag = Arc::new(Lag::watch());
    let (stop, stopped) = oneshot::channel();
    let obeying = lag.clone();
    thread::spawn(move || {
        let mut stop = Some(stop);
        for line in lines.map_while(Result::ok) {
            match line.as_str() {
                "mark" => drop(obeying.take()),
                _ => drop(stop.take().map(|stop| stop.send(()))),
            }
        }
        // The parent has gone.
        process::exit(1);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut report = runtime.block_on(make_calls(&orders, number, stopped))?;
    report.lag = lag.take();
    report.log_lines = log();
    control.write_all(report.to_string().as_bytes())?;
    Ok(())
}

async fn make_calls(
    orders: &Orders,
    number: usize,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<Report> {
    let fleet = match &orders.redis {
        Some(url) => Some(FleetLimits::builder().redis(url).prefix(PREFIX).build()?),
        None => None,
    };
    let client = client(orders, fleet.clone())?;
    let url = format!("http://{}/", orders.server);
    let mut report = Report::default();
    let mut calls = JoinSet::new();
    let mut next = interval(Duration::from_secs_f64(1.0 / orders.offered));
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            Some(ended) = calls.join_next() => report.note(ended?),
            _ = next.tick() => {
                if calls.len() < MOST_WAITING {
                    let request = client.get(&url).header(WORKER, number);
                    report.made += 1;
                    calls.spawn(async move {
                        match request.send().await {
                            Ok(response) if response.status().is_success() => None,
                            Ok(response) => Some(response.status().to_string()),
                            Err(error) => Some(format!("{error:#}")),
                        }
                    });
                }
            }
        }
    }
    // Waits for all calls in progress.
    let rest = async {
        while let Some(ended) = calls.join_next().await {
            report.note(ended.unwrap_or_else(|error| Some(error.to_string())));
        }
    };
    let _ = timeout(PATIENCE, rest).await;
    report.lost = calls.len() as u64;
    report.round_trips = fleet.map_or(0, |fleet| fleet.round_trips());
    Ok(report)
}

fn client(orders: &Orders, fleet: Option<FleetLimits>) -> anyhow::Result<ClientWithMiddleware> {
    let throttle = ThrottleMiddleware::builder()
        .adaptive(orders.adaptive)
        .rate(orders.rate, orders.burst);
    // No time limits: a call ends with the server or with this process.
    let mut steady = Steady::builder().throttle(throttle);
    if let Some(fleet) = fleet {
        steady = steady.fleet(fleet);
    }
    let client = reqwest::Client::builder().no_proxy().build()?;
    Ok(ClientBuilder::new(client)
        .with_steady(steady.build()?)
        .build())
}

impl Report {
    /// Counts the end of a call, and keeps its failure, if any.
    fn note(&mut self, failure: Option<String>) {
        match failure {
            None => self.succeeded += 1,
            Some(failure) => {
                self.failed += 1;
                self.first_failure.get_or_insert(failure);
            }
        }
    }

    /// Adds one line of the text that a worker sends.
    pub(crate) fn read(&mut self, line: &str) -> anyhow::Result<()> {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "made" => self.made = value.parse()?,
            "succeeded" => self.succeeded = value.parse()?,
            "failed" => self.failed = value.parse()?,
            "lost" => self.lost = value.parse()?,
            "round_trips" => self.round_trips = value.parse()?,
            "lag" => self.lag = Duration::from_micros(value.parse()?),
            "failure" => self.first_failure = Some(value.to_owned()),
            "log" => self.log_lines.push(value.to_owned()),
            _ => anyhow::bail!("unknown line of a worker: {line}"),
        }
        Ok(())
    }
}

/// Formats a line for each value, and one for the end.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "made {}", self.made)?;
        writeln!(f, "succeeded {}", self.succeeded)?;
        writeln!(f, "failed {}", self.failed)?;
        writeln!(f, "lost {}", self.lost)?;
        writeln!(f, "round_trips {}", self.round_trips)?;
        writeln!(f, "lag {}", self.lag.as_micros())?;
        if let Some(failure) = &self.first_failure {
            writeln!(f, "failure {}", failure.replace('\n', " "))?;
        }
        for line in &self.log_lines {
            writeln!(f, "log {}", line.replace('\n', " "))?;
        }
        writeln!(f, "{END}")
    }
}

/// The last line of a report.
pub(crate) const END: &str = "end";

impl fmt::Display for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let redis = self.redis.as_deref().unwrap_or("-");
        write!(f, "{} {redis} {} ", self.server, self.adaptive)?;
        write!(f, "{} {} {}", self.rate, self.burst, self.offered)
    }
}

impl FromStr for Orders {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [server, redis, adaptive, rate, burst, offered] = words[..] else {
            anyhow::bail!("no orders: {line}");
        };
        Ok(Self {
            server: server.parse()?,
            redis: (redis != "-").then(|| redis.to_owned()),
            adaptive: adaptive.parse()?,
            rate: rate.parse()?,
            burst: burst.parse()?,
            offered: offered.parse()?,
        })
    }
}
