//! Sends every dead letter in a file again.
//!
//! ```text
//! cargo run --example replay --features dead-letter-file -- --help
//! cargo run --example replay --features dead-letter-file -- letters.jsonl
//! cargo run --example replay --features dead-letter-file
//! ```
//!
//! The last command runs a demo: a server is down, orders become dead letters, and a replay delivers them later.
//!
//! A replay also reads the files that were rotated. It does not change them. Letters that cannot be sent, or that fail
//! again, go to `FILE.failed` (or `FILE.failed-2` and so on), which can be replayed, too. You can interrupt a replay and
//! start it again: each letter has the idempotency key of its call, so a server that knows keys does nothing twice.

// Letters have dates.
#![allow(clippy::disallowed_methods)]

#[path = "support/print.rs"]
mod print;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, ensure};
use print::{bold, count, dim, green, red, verdict};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::dead_letter::{
    Credentials, DeadLetter, DeadLetterSink, JsonLinesReader, JsonLinesSink,
};
use reqwest_steady::{
    Backoff, Budget, ClientBuilderExt, IdempotencyKey, RequestBuilderExt, RetryMiddleware, Steady,
};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

const USAGE: &str = "\
Sends every dead letter in a file again.

Usage: replay FILE [--host HOST CREDENTIAL...]...
       replay                       runs a demo on this machine

FILE holds dead letters, one per line, as `JsonLinesSink` writes them. Rotated files are read, too.
Letters that fail again go to FILE.failed.

Options:
  --host HOST                       the credentials after it are only for this host, or HOST:PORT
  --header NAME=VARIABLE            sets a header
  --parameter NAME=VARIABLE         sets a parameter of the query
  --user-info VARIABLE              sets the name and password in the URL, from \"name:password\"
  -h, --help                        prints this text

Dead letters contain no secrets. VARIABLE is an environment variable with the value.

Example:
  API_TOKEN='Bearer 4711' replay letters.jsonl --host api.example.com --header authorization=API_TOKEN

Exit code: 0 if all letters were sent, 1 if some are left, 2 if the arguments are invalid.";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let done = match Command::parse(arguments, |name| std::env::var_os(name)) {
        Ok(Command::Help) => {
            println!("{USAGE}");
            Ok(true)
        }
        Ok(Command::Demo) => run_demo().await.map(|()| true),
        Ok(Command::Replay { file, credentials }) => run_replay(&file, &credentials).await,
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Replays a file and prints the result. Returns whether nothing is left.
async fn run_replay(file: &Path, credentials: &[Credentials]) -> anyhow::Result<bool> {
    println!(
        "{}\n",
        bold(format!(
            "Sending the dead letters in {} again.",
            file.display()
        ))
    );
    let result = replay(file, credentials).await?;
    let left = result.left.len();
    println!(
        "sent         {}",
        verdict(left == 0, format!("{} letters", result.sent()))
    );
    if left > 0 {
        let kept = format!("{} in {}", count(left, "letter"), result.failed.display());
        println!("kept         {}", red(kept));
    }
    for letter in &result.left {
        println!("             {}", dim(letter));
    }
    let unreadable = result.unreadable.len();
    if unreadable > 0 {
        println!("unreadable   {}", red(count(unreadable, "line")));
    }
    for line in &result.unreadable {
        println!("             {}", dim(line));
    }

    let is_done = left + unreadable == 0;
    let conclusion = match left {
        _ if is_done => "Nothing is left.".to_owned(),
        0 => "All readable letters were sent. Repair the other lines by hand.".to_owned(),
        _ => format!("To try again, replay {}.", result.failed.display()),
    };
    println!("\n{}", verdict(is_done, conclusion));
    Ok(is_done)
}

/// What became of the letters of a file.
struct Replayed {
    letters: usize,
    /// Where the letters are that were not sent.
    failed: PathBuf,
    /// The letters that were not sent, with the reason.
    left: Vec<String>,
    /// Why lines could not be read.
    unreadable: Vec<String>,
}

impl Replayed {
    fn sent(&self) -> String {
        format!("{} of {}", self.letters - self.left.len(), self.letters)
    }
}

/// Sends every letter again, one after the other.
async fn replay(file: &Path, credentials: &[Credentials]) -> anyhow::Result<Replayed> {
    // The throttle finds out how much the server accepts after an outage.
    let steady = Steady::builder()
        .attempt_timeout(Duration::from_secs(10))
        .deadline(Duration::from_secs(60))
        .build()?;
    let client = ClientBuilder::new(reqwest::Client::new())
        .with_steady(steady)
        .build();

    let failed = failed(file);
    // Its error names the file and the cause.
    let lines = JsonLinesReader::open_all(file).map_err(|error| anyhow!("{error}"))?;
    let (mut letters, mut unreadable) = (Vec::new(), Vec::new());
    for line in lines {
        match line {
            Ok(letter) => letters.push(letter),
            Err(error) => unreadable.push(error.to_string()),
        }
    }
    let mut left = Vec::new();
    for (index, letter) in letters.iter().enumerate() {
        if let Err(reason) = send(letter, &client, credentials).await {
            // Kept at once, because the replay may be interrupted.
            keep(letter, &failed).await?;
            left.push(format!("{letter}; now: {reason}"));
        }
        show_progress(index + 1, letters.len());
    }
    Ok(Replayed {
        letters: letters.len(),
        failed,
        left,
        unreadable,
    })
}

/// Sends one letter, or returns why it is left.
async fn send(
    letter: &DeadLetter,
    client: &ClientWithMiddleware,
    credentials: &[Credentials],
) -> Result<(), String> {
    if let Ok(early) = letter.not_before().duration_since(SystemTime::now()) {
        let seconds = early.as_secs() + 1;
        return Err(format!(
            "not sent, because the server asked to wait {seconds} s more"
        ));
    }
    let mut replay = letter.replay(client);
    for credentials in credentials {
        replay = replay.credentials(credentials);
    }
    // The error names the credentials that are missing.
    let response = replay.await.map_err(|error| error.to_string())?;
    if response.status().is_client_error() || response.status().is_server_error() {
        return Err(response.status().to_string());
    }
    Ok(())
}

/// Returns a name for the file of the letters that are left. No file has this name yet.
fn failed(file: &Path) -> PathBuf {
    let numbers = (2..).map(|number| format!(".failed-{number}"));
    let mut names = iter::once(".failed".to_owned()).chain(numbers).map(|end| {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    });
    names
        .find(|name| !name.exists())
        .expect("the numbers do not end")
}

async fn keep(letter: &DeadLetter, path: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write to {}", path.display());
    let sink = JsonLinesSink::open(path).with_context(cannot)?;
    let kept = sink.deliver(Arc::new(letter.clone())).await;
    kept.map_err(anyhow::Error::from_boxed).with_context(cannot)
}

/// Shows on one line of a terminal how many letters were tried, and clears it at the end.
fn show_progress(done: usize, all: usize) {
    if io::stderr().is_terminal() {
        let line = format!("{done} of {all} letters");
        match done == all {
            true => eprint!("\r{:1$}\r", "", line.len()),
            false => eprint!("\r{line}"),
        }
    }
}

/// What the arguments ask for.
#[derive(Debug)]
enum Command {
    Help,
    Demo,
    Replay {
        file: PathBuf,
        credentials: Vec<Credentials>,
    },
}

impl Command {
    /// Reads the arguments, and the values of secrets from the environment.
    ///
    /// Secrets are not arguments, because all users of a machine can see the arguments of a process.
    fn parse(
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, String> {
        let mut arguments = arguments.into_iter().peekable();
        if arguments.peek().is_none() {
            return Ok(Self::Demo);
        }
        let mut file = None;
        let mut credentials: Vec<Credentials> = Vec::new();
        while let Some(argument) = arguments.next() {
            let option = argument.to_string_lossy();
            match &*option {
                "-h" | "--help" => return Ok(Self::Help),
                "--host" | "--header" | "--parameter" | "--user-info" => {
                    let value = arguments.next();
                    let value = value.ok_or_else(|| format!("{option} needs a value"))?;
                    let value = value.to_string_lossy();
                    if value.is_empty() || value.starts_with('-') {
                        return Err(format!("{option} needs a value, but got \"{value}\""));
                    }
                    if option == "--host" {
                        credentials.push(Credentials::for_host(value));
                        continue;
                    }
                    let host = credentials.pop();
                    let host =
                        host.ok_or_else(|| format!("{option} {value} must come after --host"))?;
                    credentials.push(add_secret(host, &option, &value, &environment)?);
                }
                _ if option.starts_with('-') => return Err(format!("unknown option {option}")),
                _ if file.is_some() => return Err(format!("unexpected argument {option}")),
                _ => file = Some(PathBuf::from(argument)),
            }
        }
        let file = file.ok_or("FILE is missing")?;
        Ok(Self::Replay { file, credentials })
    }
}

fn add_secret(
    host: Credentials,
    option: &str,
    value: &str,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Credentials, String> {
    let secret = |name: &str| {
        let value =
            environment(name).ok_or_else(|| format!("environment variable {name} is not set"))?;
        // The error of `into_string` would show the value.
        let value = value.into_string();
        value.map_err(|_| format!("environment variable {name} is not valid UTF-8"))
    };
    if option == "--user-info" {
        let both = secret(value)?;
        let (name, password) = both.split_once(':').unwrap_or((&both, ""));
        return Ok(host.user_info(name, password));
    }
    let pair = value.split_once('=');
    let pair = pair.filter(|(name, variable)| !name.is_empty() && !variable.is_empty());
    let (name, variable) =
        pair.ok_or_else(|| format!("{option} needs NAME=VARIABLE, but got \"{value}\""))?;
    Ok(match option {
        "--header" => host.header(name, secret(variable)?),
        _ => host.parameter(name, secret(variable)?),
    })
}

/// Lets orders fail while a server is down, and replays them when it is up again.
async fn run_demo() -> anyhow::Result<()> {
    let server = MockServer::start().await;
    let shop = Shop::default();
    let responses = Mock::given(any()).respond_with(shop.clone());
    responses.mount(&server).await;
    let directory = std::env::temp_dir().join(format!("steady-replay-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let file = directory.join("letters.jsonl");

    println!(
        "{}\n",
        bold("A server is down, so 30 orders fail. They become dead letters in a file.")
    );
    println!(
        "{}",
        dim("step                      letters sent   requests   orders placed")
    );
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
        ensure!(order.send().await?.status() == 503, "the server is up");
    }
    shop.show("the server is down", "-");

    shop.0.lock().unwrap().is_open = true;
    for step in ["it is up: first replay", "second replay"] {
        let result = replay(&file, &[]).await?;
        ensure!(result.left.is_empty() && result.unreadable.is_empty());
        shop.show(step, &result.sent());
    }
    std::fs::remove_dir_all(directory)?;

    let orders_placed = &shop.0.lock().unwrap().orders;
    ensure!(*orders_placed == orders, "placed: {orders_placed:?}");
    println!(
        "\n{}",
        green(
            "Every order was placed once, because a letter keeps the idempotency key of its call."
        )
    );
    println!(
        "{}",
        dim("To replay a file of your own, see `replay --help`.")
    );
    Ok(())
}

/// Is down at first. Later it accepts orders, each key once.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    is_open: bool,
    /// Since the last line was shown.
    requests: usize,
    keys: HashSet<String>,
    orders: Vec<String>,
}

impl Shop {
    fn show(&self, step: &str, sent: &str) {
        let mut books = self.0.lock().unwrap();
        let placed = books.orders.len();
        println!(
            "{step:<24} {sent:>13} {:>10} {:>15}",
            std::mem::take(&mut books.requests),
            verdict(placed == 30, format!("{placed} of 30"))
        );
    }
}

impl Respond for Shop {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut books = self.0.lock().unwrap();
        books.requests += 1;
        if !books.is_open {
            return ResponseTemplate::new(503);
        }
        let key = &request.headers["idempotency-key"];
        if books.keys.insert(format!("{key:?}")) {
            let order = String::from_utf8_lossy(&request.body);
            books.orders.push(order.into_owned());
        }
        // Slow enough to see the progress.
        ResponseTemplate::new(201).set_delay(Duration::from_millis(50))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Command, String> {
        let arguments = arguments.split_whitespace().map(OsString::from);
        Command::parse(arguments, |name| {
            (name == "TOKEN").then(|| "name:secret".into())
        })
    }

    #[test]
    fn arguments_choose_what_is_done() {
        assert!(matches!(parse(""), Ok(Command::Demo)));
        assert!(matches!(parse("-h"), Ok(Command::Help)));
        assert!(matches!(parse("letters --help"), Ok(Command::Help)));
        for arguments in [
            "letters --host a --header x=TOKEN --parameter y=TOKEN --host b:80 --user-info TOKEN",
            "--host a --host b letters",
        ] {
            match parse(arguments) {
                Ok(Command::Replay { file, credentials }) => {
                    assert_eq!(file, Path::new("letters"));
                    assert_eq!(credentials.len(), 2);
                }
                other => panic!("{arguments}: {other:?}"),
            }
        }
    }

    #[test]
    fn errors_name_the_bad_argument() {
        for (arguments, message) in [
            ("--hots a letters", "unknown option --hots"),
            ("letters others", "unexpected argument others"),
            ("--host a", "FILE is missing"),
            ("letters --host", "--host needs a value"),
            (
                "letters --host --header x=TOKEN",
                "--host needs a value, but got \"--header\"",
            ),
            (
                "letters --header x=TOKEN",
                "--header x=TOKEN must come after --host",
            ),
            (
                "letters --host a --header TOKEN",
                "--header needs NAME=VARIABLE, but got \"TOKEN\"",
            ),
            (
                "letters --host a --parameter x=OTHER",
                "environment variable OTHER is not set",
            ),
        ] {
            assert_eq!(parse(arguments).expect_err(arguments), message);
        }
    }

    #[test]
    fn the_usage_text_shows_every_option() {
        for option in [
            "--host",
            "--header",
            "--parameter",
            "--user-info",
            "-h, --help",
        ] {
            assert!(USAGE.contains(&format!("\n  {option} ")), "{option}");
        }
    }
}
