//! Sends again what was given up: every dead letter in a file, with a progress bar.
//!
//! `cargo run --example replay --features dead-letter-file -- FILE` reads the file, and those that were
//! rotated away from it. What cannot be sent, or is refused again, goes to `FILE.failed`, which can be
//! replayed in turn; `FILE` itself is not changed. Run it again if it was interrupted: a letter has
//! the key of its call, so a server that knows keys does nothing twice.
//!
//! Credentials are not in the letters. `STEADY_AUTHORIZATION` is the value of the `authorization`
//! header for letters to `STEADY_HOST` (with `:port`, if it has one), and is sent to no other.
//!
//! Without a file, it shows itself: a server that is down, letters about what was meant for it, and
//! the same server when it is up again.

// Letters have dates.
#![allow(clippy::disallowed_methods)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use indicatif::ProgressBar;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::{
    Backoff, Credentials, DeadLetter, DeadLetterSink, IdempotencyKey, JsonLinesReader,
    JsonLinesSink, RequestBuilderExt, RetryMiddleware, ThrottleMiddleware,
};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let done = match &arguments[..] {
        [] => show().await.map(|()| true),
        [file] if !file.as_encoded_bytes().starts_with(b"-") => {
            replay(Path::new(file)).await.map(|left| left == 0)
        }
        _ => {
            eprintln!("usage: replay [FILE]");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Sends every letter again, one after the other, and says what became of them. Returns how many
/// are left.
async fn replay(file: &Path) -> anyhow::Result<usize> {
    let mut name = file.as_os_str().to_owned();
    name.push(".failed");
    let failed = PathBuf::from(name);
    if failed.exists() {
        bail!(
            "{} is there already: replay that first, or move it",
            failed.display()
        );
    }
    let letters = JsonLinesReader::open_all(file);
    let letters = letters.with_context(|| format!("cannot read {}", file.display()))?;
    let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
    for letter in letters {
        match letter {
            Ok(letter) => readable.push(letter),
            Err(error) => unreadable.push(error),
        }
    }

    // The throttle finds out how much a server takes that has just come back.
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(RetryMiddleware::default())
        .with(ThrottleMiddleware::default())
        .build();
    let credentials = credentials();
    let mut left = Vec::new();
    let bar = ProgressBar::new(readable.len() as u64);
    for letter in &readable {
        if let Err(reason) = send(letter, &client, credentials.as_ref()).await {
            // At once, for this may be interrupted.
            keep(letter, &failed).await?;
            left.push(format!("{letter}; now: {reason}"));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();

    println!(
        "{} of {} letters sent.",
        readable.len() - left.len(),
        readable.len()
    );
    if !left.is_empty() {
        println!("{} left, and kept in {}:", left.len(), failed.display());
    }
    for letter in &left {
        println!("    {letter}");
    }
    if !unreadable.is_empty() {
        println!("{} cannot be read:", unreadable.len());
    }
    for error in &unreadable {
        println!("    {error}");
    }
    Ok(left.len() + unreadable.len())
}

fn credentials() -> Option<Credentials> {
    let host = std::env::var("STEADY_HOST").ok()?;
    let value = std::env::var("STEADY_AUTHORIZATION").ok()?;
    Some(Credentials::for_host(host).header("authorization", value))
}

/// Sends one letter, or says why it is not done with.
async fn send(
    letter: &DeadLetter,
    client: &ClientWithMiddleware,
    credentials: Option<&Credentials>,
) -> Result<(), String> {
    if let Ok(early) = letter.not_before().duration_since(SystemTime::now()) {
        let seconds = early.as_secs() + 1;
        return Err(format!(
            "not sent, for the server asked to wait {seconds} s more"
        ));
    }
    let mut replay = letter.replay(client);
    if let Some(credentials) = credentials {
        replay = replay.credentials(credentials);
    }
    // Which credentials are missing is in the error, by their names.
    let response = replay.await.map_err(|error| error.to_string())?;
    if response.status().is_client_error() || response.status().is_server_error() {
        return Err(format!("refused with {}", response.status()));
    }
    Ok(())
}

async fn keep(letter: &DeadLetter, path: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write to {}", path.display());
    let sink = JsonLinesSink::open(path).with_context(cannot)?;
    let kept = sink.deliver(Arc::new(letter.clone())).await;
    kept.map_err(anyhow::Error::from_boxed).with_context(cannot)
}

/// A server that is down at first. Later it takes orders, and each key only once.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    is_open: bool,
    arrivals: usize,
    keys: HashSet<String>,
    orders: Vec<String>,
}

impl Respond for Shop {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut books = self.0.lock().unwrap();
        if !books.is_open {
            return ResponseTemplate::new(503);
        }
        books.arrivals += 1;
        let key = &request.headers["idempotency-key"];
        if books.keys.insert(format!("{key:?}")) {
            let order = String::from_utf8_lossy(&request.body);
            books.orders.push(order.into_owned());
        }
        // Time to look at the bar.
        ResponseTemplate::new(201).set_delay(Duration::from_millis(50))
    }
}

/// Gives up what a server does not take, and replays it when the server is up again.
async fn show() -> anyhow::Result<()> {
    let server = MockServer::start().await;
    let shop = Shop::default();
    let answers = Mock::given(any()).respond_with(shop.clone());
    answers.mount(&server).await;
    let directory = std::env::temp_dir().join(format!("steady-replay-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let file = directory.join("letters.jsonl");

    let retry = RetryMiddleware::builder()
        .max_retries(2)
        .backoff(Backoff::exponential(Duration::from_millis(5)))
        .no_budget()
        .dead_letter_sink(JsonLinesSink::open(&file)?)
        .build()?;
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(retry)
        .build();
    let orders: Vec<_> = (1..=30)
        .map(|number| format!("teapot no. {number}"))
        .collect();
    for order in &orders {
        let order = client
            .post(format!("{}/orders", server.uri()))
            .idempotency_key(IdempotencyKey::random())
            .body(order.clone());
        ensure!(order.send().await?.status() == 503, "the shop is closed");
    }
    println!(
        "A server is down: {} orders were given up, and are kept in a file.",
        orders.len()
    );

    println!("\nIt is up again, and the file is replayed:");
    shop.0.lock().unwrap().is_open = true;
    let left = replay(&file).await?;
    ensure!(left == 0, "{left} letters are left");
    println!("\nThe file is replayed once more, as if nobody knew that it was done:");
    let left = replay(&file).await?;
    ensure!(left == 0, "{left} letters are left");

    let books = shop.0.lock().unwrap();
    ensure!(books.orders == orders, "{:?}", books.orders);
    println!(
        "\n{} requests, {} orders: each was placed once.",
        books.arrivals,
        books.orders.len()
    );
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
