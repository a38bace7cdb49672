//! Sends again what was given up: every dead letter in a file.
//!
//! `cargo run --example replay --features dead-letter-file -- FILE` reads the file, and those that were
//! rotated away from it. What cannot be sent, or is refused again, goes to `FILE.failed` (or, if that
//! is there already, `FILE.failed-2` and so on), which can be replayed in turn; `FILE` itself is not
//! changed. Run it again if it was interrupted: a letter has the key of its call, so a server that
//! knows keys does nothing twice.
//!
//! Credentials are not in the letters. They are given after the host (with `:port`, if it has one) that
//! they are for, and are sent to no other; their values are in environment variables, since everybody
//! can see the arguments of a process:
//!
//! ```text
//! replay FILE --host api.example.com --header authorization=API_AUTHORIZATION --parameter key=API_KEY
//!             --host shop.example.com:8443 --user-info SHOP_NAME_AND_PASSWORD
//! ```
//!
//! Without a file, it shows itself: a server that is down, letters about what was meant for it, and
//! the same server when it is up again.

// Letters have dates.
#![allow(clippy::disallowed_methods)]

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::dead_letter::{
    Credentials, DeadLetter, DeadLetterSink, JsonLinesReader, JsonLinesSink,
};
use reqwest_steady::{
    Backoff, Budget, IdempotencyKey, RequestBuilderExt, RetryMiddleware, ThrottleMiddleware,
};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let done = match &arguments[..] {
        [] => show().await.map(|()| true),
        [file, rest @ ..] if !file.as_encoded_bytes().starts_with(b"-") => {
            match credentials(rest) {
                Ok(credentials) => {
                    let left = replay(Path::new(file), &credentials).await;
                    left.map(|left| left == 0)
                }
                Err(error) => return usage(&error),
            }
        }
        _ => return usage(&anyhow!("the file comes first")),
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

fn usage(error: &anyhow::Error) -> ExitCode {
    eprintln!("{error:#}");
    eprintln!(
        "usage: replay [FILE [--host HOST \
         {{--header NAME=VARIABLE | --parameter NAME=VARIABLE | --user-info VARIABLE}}...]...]"
    );
    ExitCode::from(2)
}

/// What the arguments after the file say.
fn credentials(arguments: &[OsString]) -> anyhow::Result<Vec<Credentials>> {
    let mut all: Vec<Credentials> = Vec::new();
    for pair in arguments.chunks(2) {
        let [option, value] = pair else {
            bail!("{} needs a value", pair[0].to_string_lossy());
        };
        let (option, value) = (option.to_string_lossy(), value.to_string_lossy());
        if option == "--host" {
            all.push(Credentials::for_host(value));
            continue;
        }
        let last = all.pop().context("--host comes before what is for it")?;
        all.push(match (&*option, value.split_once('=')) {
            ("--header", Some((name, of))) => last.header(name, variable(of)?),
            ("--parameter", Some((name, of))) => last.parameter(name, variable(of)?),
            ("--user-info", None) => {
                let both = variable(&value)?;
                let (name, password) = both.split_once(':').unwrap_or((&both, ""));
                last.user_info(name, password)
            }
            _ => bail!("{option} {value} makes no sense"),
        });
    }
    Ok(all)
}

fn variable(name: &str) -> anyhow::Result<String> {
    // Its own error shows the value, if that is no text.
    let value = std::env::var_os(name).and_then(|value| value.into_string().ok());
    value.with_context(|| format!("the environment has no text {name}"))
}

/// Where letters go that are left: a file that is not there yet.
fn failed(file: &Path) -> PathBuf {
    let numbers = (2..).map(|number| format!(".failed-{number}"));
    let mut names = iter::once(".failed".to_owned()).chain(numbers).map(|end| {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    });
    names.find(|name| !name.exists()).expect("they do not end")
}

/// Sends every letter again, one after the other, and says what became of them. Returns how many
/// are left.
async fn replay(file: &Path, credentials: &[Credentials]) -> anyhow::Result<usize> {
    let failed = failed(file);
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
    let mut left = Vec::new();
    for (index, letter) in readable.iter().enumerate() {
        if let Err(reason) = send(letter, &client, credentials).await {
            // At once, for this may be interrupted.
            keep(letter, &failed).await?;
            left.push(format!("{letter}; now: {reason}"));
        }
        show_progress(index + 1, readable.len());
    }

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

/// Shows how many letters were tried, on one line of a terminal.
fn show_progress(done: usize, all: usize) {
    if io::stderr().is_terminal() {
        eprint!("\r{done} of {all}{}", if done == all { "\n" } else { "" });
    }
}

/// Sends one letter, or says why it is not done with.
async fn send(
    letter: &DeadLetter,
    client: &ClientWithMiddleware,
    credentials: &[Credentials],
) -> Result<(), String> {
    if let Ok(early) = letter.not_before().duration_since(SystemTime::now()) {
        let seconds = early.as_secs() + 1;
        return Err(format!(
            "not sent: the server asked to wait {seconds} s more"
        ));
    }
    let mut replay = letter.replay(client);
    for credentials in credentials {
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
        // Time to see the progress.
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
        .budget(Budget::unlimited())
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
    let left = replay(&file, &[]).await?;
    ensure!(left == 0, "{left} letters are left");
    println!("\nThe file is replayed once more, as if nobody knew that it was done:");
    let left = replay(&file, &[]).await?;
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
