//! One worker, in a process of its own. It does what it is told over one connection, and ends with that.

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

/// No more calls of one worker wait at once. Those that would come beyond are not made.
const MOST_WAITING: usize = 100;
/// How long calls may take that were made before the end.
const PATIENCE: Duration = Duration::from_secs(20);
const PREFIX: &str = "fleet-example";

/// What all workers are to do.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) server: SocketAddr,
    /// Through which they share their limits, if they do.
    pub(crate) redis: Option<String>,
    /// Whether they slow down by themselves when they are refused.
    pub(crate) adaptive: bool,
    /// What each has to keep to, or all together.
    pub(crate) rate: f64,
    pub(crate) burst: u32,
    /// How many calls a second each would like to make.
    pub(crate) offered: f64,
}

/// What became of the calls of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) made: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// Neither, long after the end.
    pub(crate) lost: u64,
    pub(crate) round_trips: u64,
    /// For how long the machine did not let it run.
    pub(crate) lag: Duration,
    pub(crate) first_failure: Option<String>,
    /// What the library has said in its log, if somebody listens.
    pub(crate) said: Vec<String>,
}

/// Comes to the one who started it, does what it is told, and tells what came of it.
pub(crate) fn work(
    control: SocketAddr,
    number: usize,
    said: impl FnOnce() -> Vec<String>,
) -> anyhow::Result<()> {
    let mut control = TcpStream::connect(control)?;
    writeln!(control, "{number}")?;
    let mut lines = BufReader::new(control.try_clone()?).lines();
    let orders: Orders = lines.next().context("no orders came")??.parse()?;
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
        // Nobody is left to report to.
        process::exit(1);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut report = runtime.block_on(make_calls(&orders, number, stopped))?;
    report.lag = lag.take();
    report.said = said();
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
                            Ok(answer) if answer.status().is_success() => None,
                            Ok(answer) => Some(answer.status().to_string()),
                            Err(error) => Some(format!("{error:#}")),
                        }
                    });
                }
            }
        }
    }
    // Nobody is let down who was let in.
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
    /// What a call ended with, if it has failed.
    fn note(&mut self, failure: Option<String>) {
        match failure {
            None => self.succeeded += 1,
            Some(failure) => {
                self.failed += 1;
                self.first_failure.get_or_insert(failure);
            }
        }
    }

    /// One line of the text that a worker sends.
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
            "said" => self.said.push(value.to_owned()),
            _ => anyhow::bail!("a worker said: {line}"),
        }
        Ok(())
    }
}

/// A line for each, and one for the end.
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
        for line in &self.said {
            writeln!(f, "said {}", line.replace('\n', " "))?;
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
