//! A client wants 150 requests per second and gets 30. Its debug endpoint says why, as a page and as JSON.
//!
//! `cargo run --example debug_endpoint --features serde`, with `-- --stay` to look at it in a browser

// The servers limit requests by the clock.
#![allow(clippy::disallowed_methods)]

#[path = "support/print.rs"]
mod print;

use std::convert::Infallible;
use std::fmt::Write;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use print::{bold, dim, green, time};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::observe::{BreakerState, GateLimit, GateView, PauseSource, SteadyState};
use reqwest_steady::{ClientBuilderExt, Steady};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

const ACCEPTED_PER_SECOND: u32 = 30;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Clones share their state, so keep one.
    let steady = Steady::builder()
        .attempt_timeout(Duration::from_secs(2))
        .deadline(Duration::from_secs(4))
        .build()?;
    let client = ClientBuilder::new(reqwest::Client::new())
        .with_steady(steady.clone())
        .build();
    let endpoint = serve(move |request| show(&steady, request)).await?;

    println!(
        "{}\n",
        bold(format!(
            "150 calls per second go to a server that accepts {ACCEPTED_PER_SECOND}, and 20 to a server that is down."
        ))
    );
    let limiter = Limiter::default();
    let limited = serve(move |_| limiter.respond()).await?;
    let down = serve(|_| status(StatusCode::SERVICE_UNAVAILABLE)).await?;
    let mut calls = JoinSet::new();
    calls.spawn(call(client.clone(), limited.clone(), 150));
    calls.spawn(call(client.clone(), down.clone(), 20));

    for look in 1..=3 {
        sleep(Duration::from_secs(1)).await;
        println!("{}", bold(format!("After {look} s, {endpoint}/ shows:")));
        println!("{}", get(&endpoint, "/").await?);
    }
    let json = get(&endpoint, "/state.json").await?;
    println!("{}", bold(format!("{endpoint}/state.json shows:")));
    println!("{}\n", dim(&json));
    check(&json, &limited, &down)?;
    println!(
        "{}",
        green("The pace is the reason: the server refuses more, so the rest of the calls wait.")
    );

    if std::env::args().any(|argument| argument == "--stay") {
        println!("{endpoint}/ stays until you press Ctrl-C");
        tokio::signal::ctrl_c().await?;
    }
    Ok(())
}

/// Responds with the state: `/` is a page for people, `/state.json` is for programs.
///
/// Your service needs no more than this. It has host names and, with `KeyBy::HostAndPath`, parts of paths. So let only
/// operators read it.
fn show(steady: &Steady, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let state = steady.state();
    let (kind, text) = match request.uri().path() {
        "/" => ("text/plain; charset=utf-8", page(&state)),
        "/state.json" => match serde_json::to_string_pretty(&state) {
            Ok(json) => ("application/json", json),
            Err(_) => return status(StatusCode::INTERNAL_SERVER_ERROR),
        },
        _ => return status(StatusCode::NOT_FOUND),
    };
    let mut response = Response::new(Full::from(text));
    let kind = hyper::header::HeaderValue::from_static(kind);
    (response.headers_mut()).insert(hyper::header::CONTENT_TYPE, kind);
    response
}

/// Writes one line for each gate.
fn page(state: &SteadyState) -> String {
    let mut page = String::new();
    let _ = writeln!(
        page,
        "{:<17} {:<26} {:<14} {:>9} {:>11} {:>18} {:>8} {:>9}",
        "host",
        "circuit breaker",
        "waiting for",
        "pace",
        "in flight",
        "queued (oldest)",
        "budget",
        "failures"
    );
    for host in &state.hosts {
        for gate in &host.gates {
            let _ = writeln!(
                page,
                "{:<17} {:<26} {:<14} {:>9} {:>11} {:>18} {:>8} {:>9}",
                host.host,
                breaker(gate),
                gate.limited_by.map_or("-", GateLimit::as_str),
                (gate.pace).map_or("-".to_owned(), |pace| format!("{pace:.1} / s")),
                gate.in_flight,
                format!("{} ({})", gate.queued, time(gate.oldest_wait)),
                (host.budget_balance).map_or("unlimited".to_owned(), |left| format!("{left:.1}")),
                host.failures_in_a_row,
            );
        }
    }
    page
}

fn breaker(gate: &GateView) -> String {
    match gate.breaker {
        BreakerState::Paused {
            remaining,
            asked_by,
            ..
        } => format!("paused {} by {asked_by}", time(remaining)),
        other => other.to_string(),
    }
}

/// Checks that the state gives the reasons.
fn check(json: &str, limited: &str, down: &str) -> anyhow::Result<()> {
    let state: serde_json::Value = serde_json::from_str(json)?;
    let gate_of = |url: &str| {
        let mut hosts = state["hosts"].as_array()?.iter();
        let host = hosts.find(|host| host["host"].as_str() == url.strip_prefix("http://"))?;
        host["gates"].get(0)
    };
    let limited = gate_of(limited).context("the limited server is not shown")?;
    ensure!(limited["queued"].as_u64() > Some(0), "nothing waits");
    let down = gate_of(down).context("the server that is down is not shown")?;
    let breaker = &down["breaker"];
    let by_failures = breaker["asked_by"] == PauseSource::Failures.as_str();
    ensure!(by_failures || breaker["state"] == BreakerState::Probing.as_str());
    Ok(())
}

/// Starts this many calls per second, until it is dropped.
async fn call(client: ClientWithMiddleware, url: String, per_second: u32) {
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    loop {
        ticks.tick().await;
        calls.spawn(client.get(&url).send());
        while calls.try_join_next().is_some() {}
    }
}

async fn get(endpoint: &str, path: &str) -> reqwest::Result<String> {
    let response = reqwest::get(format!("{endpoint}{path}")).await?;
    response.error_for_status()?.text().await
}

/// Accepts so many requests per second, and refuses the others with 429.
#[derive(Clone, Default)]
struct Limiter(Arc<Mutex<Option<(Instant, u32)>>>);

impl Limiter {
    fn respond(&self) -> Response<Full<Bytes>> {
        // A third of a second at a time.
        let (window, most) = (Duration::from_secs(1) / 3, ACCEPTED_PER_SECOND / 3);
        let mut current = self.0.lock().unwrap();
        let (_, accepted) = match &mut *current {
            Some(current) if current.0.elapsed() < window => current,
            over => over.insert((Instant::now(), 0)),
        };
        if *accepted == most {
            return status(StatusCode::TOO_MANY_REQUESTS);
        }
        *accepted += 1;
        status(StatusCode::OK)
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// Serves on loopback, and returns the URL.
async fn serve(
    respond: impl Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let respond = respond.clone();
            let service = service_fn(move |request| {
                let response = respond(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(format!("http://{address}"))
}
