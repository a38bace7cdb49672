//! Letters in files: how tests create them and read them back.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use reqwest_steady::dead_letter::{DeadLetter, DeadLetterSink, JsonLinesReader};

use crate::support::directory::Directory;

/// A letter as a line of a file.
pub(super) const LINE: &str = r#"{"version":1,"time":"2026-11-16T09:00:00Z","method":"POST","url":"http://api.example.com/orders?page=7","redacted":[],"headers":[["x-trace","1"]],"body":{"text":"order"},"key":{"header":"idempotency-key","value":"order-1"},"repeatable":true,"attempts":[{"outcome":"503","sent_at":"0s","waited":"0s"}],"reason":"retries_exhausted","not_before":"2026-11-16T09:00:10Z"}"#;

/// The letter in this line.
pub(super) fn letter(line: &str) -> DeadLetter {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    fs::write(&path, line).unwrap();
    let mut letters = JsonLinesReader::open(path).unwrap();
    let letter = letters.next().unwrap().unwrap();
    assert!(letters.next().is_none());
    letter
}

/// A letter with this key, and with a body that is longer the higher the number.
pub(super) fn numbered(number: usize) -> Arc<DeadLetter> {
    let body = "ö\n".repeat(number);
    let body = body.replace('\n', "\\n");
    let line = LINE
        .replace("\"order-1\"", &format!("\"order-{number}\""))
        .replace("{\"text\":\"order\"}", &format!("{{\"text\":\"{body}\"}}"));
    Arc::new(letter(&line))
}

pub(super) async fn deliver(sink: &impl DeadLetterSink, number: usize) {
    sink.deliver(numbered(number)).await.unwrap();
}

/// The keys of all letters, in order. Panics if a line is unreadable.
pub(super) fn keys(path: &Path) -> Vec<String> {
    let letters = JsonLinesReader::open_all(path).unwrap();
    let keys = letters.map(|letter| letter.unwrap().key().unwrap().to_owned());
    keys.collect()
}

pub(super) fn orders(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    let keys = numbers.into_iter().map(|number| format!("order-{number}"));
    keys.collect()
}
