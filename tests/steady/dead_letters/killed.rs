//! Kills a process while 8 of its tasks write letters.
//!
//! The process is this test binary again. It runs one test by its name, which does nothing unless
//! environment variables are set.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, io, process};

use futures_util::StreamExt;
use http::Method;
use reqwest_steady::dead_letter::{DeadLetter, JsonLinesReader, JsonLinesSink, LetterBody};
use reqwest_steady::{Budget, IdempotencyKey, RequestBuilderExt, StopReason};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use crate::support::directory::Directory;
use crate::support::raw::{client, direct, in_time, retry};

const TASKS: usize = 8;
/// Environment variables for the process.
const FILE: &str = "STEADY_KILLED_FILE";
const ROTATE_AT: &str = "STEADY_KILLED_ROTATE_AT";
const NAME: &str = "STEADY_KILLED_NAME";
const URL: &str = "STEADY_KILLED_URL";
/// Printed before the key of each call that returned.
const RETURNED: &str = "returned: ";

/// Processes with this name prefix send only bodies of about 1 MiB, so that some kills interrupt a
/// write: about 1 in 40 did.
const LARGE: &str = "large";

/// The body that belongs to a key. Some span many pages, so a kill can interrupt their write.
fn body_of(key: &str) -> String {
    let number: usize = key.rsplit('-').next().unwrap().parse().unwrap();
    let times = match key.starts_with(LARGE) {
        true => 55_000,
        false => [1, 3, 40, 1, 400, 2, 12_000][number % 7],
    };
    format!("{key} \"ö\"\n").repeat(times)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_is_killed() {
    let (Ok(file), Ok(name), Ok(url)) = (env::var(FILE), env::var(NAME), env::var(URL)) else {
        return;
    };
    let mut sink = JsonLinesSink::open(file).unwrap();
    if let Ok(bytes) = env::var(ROTATE_AT) {
        sink = sink.rotate_at(bytes.parse().unwrap());
    }
    let retry = retry()
        .max_retries(1)
        .budget(Budget::unlimited())
        .dead_letter_sink(sink)
        .dead_letter_max_body(4 * 1024 * 1024)
        // Long enough for a slow machine: the test is about lost letters, not about time.
        .dead_letter_timeout(Duration::from_secs(60));
    let client = client(direct(), retry);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (client, name, url) = (client.clone(), name.clone(), url.clone());
        tasks.spawn(async move {
            for number in 0.. {
                let key = format!("{name}-{task}-{number}");
                let response = client
                    .post(&url)
                    .idempotency_key(IdempotencyKey::new(&key).unwrap())
                    .body(body_of(&key))
                    .send()
                    .await
                    .unwrap();
                assert_eq!(response.status(), 503);
                let mut out = io::stdout().lock();
                let line = format!("{RETURNED}{key}\n");
                if out.write_all(line.as_bytes()).is_err() || out.flush().is_err() {
                    // The parent process is gone and cannot kill this one.
                    process::exit(0);
                }
            }
        });
    }
    tasks.join_all().await;
}

/// Kills the process after `after` calls returned. Returns the keys of all calls that returned.
async fn run_and_kill(
    path: &Path,
    rotate_at: Option<u64>,
    name: &str,
    url: &str,
    after: usize,
) -> Vec<String> {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "dead_letters::killed::the_process_that_is_killed",
        ])
        .arg("--nocapture")
        .env(FILE, path)
        .env(NAME, name)
        .env(URL, url)
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    if let Some(bytes) = rotate_at {
        command.env(ROTATE_AT, bytes.to_string());
    }
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut keys = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        // The test harness also prints to stdout.
        let Some((_, key)) = line.split_once(RETURNED) else {
            continue;
        };
        keys.push(key.to_owned());
        if keys.len() == after {
            // Vary the point at which a call is interrupted.
            tokio::time::sleep(Duration::from_micros(after as u64 * 17 % 1000)).await;
            process.start_kill().unwrap();
        }
    }
    let status = process.wait().await.unwrap();
    assert_eq!(status.signal(), Some(9), "{status}");
    assert!(keys.len() >= after, "{} of {after}", keys.len());
    keys
}

/// Reads the letters and counts the lines that are cut off. Panics on any other error.
fn read(path: &Path) -> (Vec<DeadLetter>, usize) {
    let (mut letters, mut torn) = (Vec::new(), 0);
    for letter in JsonLinesReader::open_all(path).unwrap() {
        match letter {
            Ok(letter) => letters.push(letter),
            Err(error) => {
                assert!(error.is_torn(), "{error}");
                torn += 1;
            }
        }
    }
    (letters, torn)
}

fn assert_whole(letter: &DeadLetter, url: &str) {
    let key = letter.key().unwrap();
    assert_eq!(letter.method(), Method::POST);
    assert_eq!(letter.url().as_str(), url);
    assert_eq!(letter.stop_reason(), Some(StopReason::RetriesExhausted));
    assert_eq!(letter.attempts().len(), 2);
    let is_whole = matches!(letter.body(), LetterBody::Bytes(body) if *body == body_of(key));
    assert!(is_whole, "{letter:?}");
}

/// A server that is down at first. Once open, it applies each key once, whatever status it returns.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    is_open: bool,
    arrivals: usize,
    effects: Vec<(String, Vec<u8>)>,
    known: BTreeSet<String>,
}

impl Respond for Shop {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut books = self.0.lock().unwrap();
        if !books.is_open {
            return ResponseTemplate::new(503);
        }
        books.arrivals += 1;
        let key = request.headers["idempotency-key"].to_str().unwrap();
        if books.known.insert(key.to_owned()) {
            let effect = (key.to_owned(), request.body.clone());
            books.effects.push(effect);
            if books.effects.len() % 7 == 0 {
                // The request took effect, but the client does not know.
                return ResponseTemplate::new(503);
            }
        }
        ResponseTemplate::new(201)
    }
}

async fn replay_all(letters: &[DeadLetter]) {
    let client = client(direct(), retry().budget(Budget::unlimited()));
    let replays = futures_util::stream::iter(letters).for_each_concurrent(TASKS, |letter| {
        let replay = letter.replay(&client);
        async { assert_eq!(replay.await.unwrap().status(), 201) }
    });
    replays.await;
}

/// The totals, printed with `--nocapture`.
#[derive(Debug, Default)]
struct Sum {
    kills: usize,
    returned: usize,
    letters: usize,
    torn: usize,
    replayed: usize,
}

/// Runs processes that write to one file, one after another, and kills each after its number of calls.
async fn lose_nothing(name: &str, rotate_at: Option<u64>, kills: &[usize]) -> Sum {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let shop = Shop::default();
    let server = MockServer::builder().disable_request_recording();
    let server = server.start().await;
    let responses = Mock::given(any()).respond_with(shop.clone());
    responses.mount(&server).await;
    let url = format!("{}/orders", server.uri());
    let mut sum = Sum::default();
    let mut returned = BTreeSet::new();
    for (index, after) in kills.iter().enumerate() {
        let name = format!("{name}{index}");
        let keys = in_time(run_and_kill(&path, rotate_at, &name, &url, *after)).await;
        returned.extend(keys);
        sum.kills += 1;

        let (letters, torn) = read(&path);
        let mut written = BTreeMap::new();
        for letter in &letters {
            assert_whole(letter, &url);
            *written.entry(letter.key().unwrap().to_owned()).or_insert(0) += 1;
        }
        assert!(
            written.values().all(|count| *count == 1),
            "one letter per call"
        );
        for key in &returned {
            assert!(
                written.contains_key(key),
                "{key} returned but its letter is lost"
            );
        }
        // Each task has at most one call that has not returned yet.
        assert!(written.len() + torn <= returned.len() + sum.kills * TASKS);
        assert!(torn <= sum.kills, "{torn} torn lines");
        (sum.letters, sum.torn) = (letters.len(), torn);
    }
    sum.returned = returned.len();
    assert_eq!(directory.names().len() > 1, rotate_at.is_some());

    shop.0.lock().unwrap().is_open = true;
    // A replay may run twice, for example after an interrupted one.
    for run in 1..=2 {
        let (letters, _) = read(&path);
        replay_all(&letters).await;
        let books = shop.0.lock().unwrap();
        let effects: BTreeMap<_, _> = books.effects.iter().cloned().collect();
        assert_eq!(
            effects.len(),
            books.effects.len(),
            "an effect happened twice"
        );
        let keys: BTreeSet<_> = letters.iter().map(|letter| letter.key().unwrap()).collect();
        assert!(keys.iter().copied().eq(effects.keys().map(String::as_str)));
        for (key, body) in &effects {
            assert_eq!(*body, body_of(key).as_bytes(), "{key}");
        }
        let lost_responses = effects.len() / 7;
        assert_eq!(books.arrivals, run * effects.len() + lost_responses);
        sum.replayed = books.arrivals;
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_delivered_letter_survives_a_kill_and_takes_effect_once() {
    for (name, rotate_at, kills) in [
        ("process", None, &[1][..]),
        ("process", None, &[400]),
        ("process", None, &[60, 200, 33]),
        ("process", Some(100_000), &[170]),
        ("process", Some(2_000), &[40, 90]),
        (LARGE, None, &[5, 7, 8, 11]),
    ] {
        let sum = lose_nothing(name, rotate_at, kills).await;
        println!("{name}, rotated at {rotate_at:?}, killed after {kills:?}: {sum:?}");
    }
}
