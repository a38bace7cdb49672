//! Dead letters in a file: all are read back, whatever else is in the file and wherever it ends.

mod parts;

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arbitrary::{Result, Unstructured};
use tokio::runtime::{Builder, Handle};

use self::parts::letter;
use crate::dead_letter::{
    DeadLetter, DeadLetterSink, JsonLinesReader, JsonLinesSink, UnreadableLetterError,
};

/// A valid line is never lost. An invalid line is reported, and does not affect others.
pub fn letters(data: &[u8]) {
    thread_local! {
        static PLACE: RefCell<Place> = RefCell::new(Place::new());
    }
    let mut input = Unstructured::new(data);
    PLACE.with_borrow_mut(|place| {
        let _ = match input.int_in_range(0..=63).unwrap_or_default() {
            0 => rotated(&mut input, place),
            _ => mixed(&mut input, place),
        };
    });
}

/// The same for a sink with its queue and the threads of a runtime. Only for tests, because it is slow.
#[cfg(test)]
pub(super) fn letters_of_a_sink(data: &[u8]) {
    let place = Place::new();
    let path = place.empty("sink");
    let mut input = Unstructured::new(data);
    let Ok(letters) = some_letters(&mut input) else {
        return;
    };
    let rotate_at = input.int_in_range(0..=2000).unwrap_or_default();
    let sink = JsonLinesSink::open(&path).unwrap().rotate_at(rotate_at);
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        // All at the same time, so that some are queued while others are written.
        let all: Vec<_> = letters.iter().map(|it| sink.deliver(it.clone())).collect();
        for delivery in all {
            delivery.await.expect("a letter that is written");
        }
    });
    read_all(JsonLinesReader::open_all(&path).unwrap(), &letters);
}

/// A directory of this thread, with a file that all executions share.
struct Place {
    directory: PathBuf,
    path: PathBuf,
    file: File,
    sink: JsonLinesSink,
    /// A runtime that has ended. It starts no threads, so a sink writes on the current one.
    ended: Handle,
}

impl Place {
    fn new() -> Self {
        let (process, thread) = (std::process::id(), std::thread::current().id());
        let name = format!("steady-letters-{process}-{thread:?}").replace(['(', ')'], "");
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("letters.jsonl");
        let mut options = OpenOptions::new();
        let file = options.create(true).read(true).append(true).open(&path);
        Self {
            file: file.unwrap(),
            sink: JsonLinesSink::open(path.clone()).unwrap(),
            ended: (Builder::new_current_thread().build().unwrap().handle()).clone(),
            directory,
            path,
        }
    }

    /// Writes letters on the current thread. Millions of them would mostly wait for another one.
    fn write(&self, sink: &JsonLinesSink, letters: &[Arc<DeadLetter>]) {
        let _ended = self.ended.enter();
        for letter in letters {
            let mut delivery = sink.deliver(letter.clone());
            let poll = (delivery.as_mut()).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(poll, Poll::Ready(Ok(()))), "{poll:?}");
        }
    }

    fn empty(&self, name: &str) -> PathBuf {
        let directory = self.directory.join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        directory.join("letters.jsonl")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A line of the file.
enum Line {
    Letter(Arc<DeadLetter>),
    /// Any bytes without a newline.
    Raw(Vec<u8>),
}

fn mixed(input: &mut Unstructured<'_>, place: &mut Place) -> Result<()> {
    place.file.set_len(0).unwrap();
    let mut lines = Vec::new();
    // Whether the last line has no newline yet.
    let mut open = false;
    for _ in 0..input.int_in_range(0..=3)? {
        let raw = raw(input)?;
        if !raw.is_empty() {
            place.file.write_all(&raw).unwrap();
            let mut parts = raw.split(|byte| *byte == b'\n');
            let first = parts.next().unwrap_or_default();
            match lines.last_mut() {
                Some(Line::Raw(line)) if open => line.extend_from_slice(first),
                _ => lines.push(Line::Raw(first.to_vec())),
            }
            lines.extend(parts.map(|part| Line::Raw(part.to_vec())));
            // Text after the last newline is a line unless it is empty.
            open = !raw.ends_with(b"\n");
            if !open {
                lines.pop();
            }
        }
        let letters = (0..input.int_in_range(0..=2)?).map(|_| letter(input));
        let letters: Vec<_> = letters.collect::<Result<_>>()?;
        if !letters.is_empty() {
            // The first letter begins on a new line.
            place.write(&place.sink, &letters);
            lines.extend(letters.into_iter().map(Line::Letter));
            open = false;
        }
    }
    let mut text = Vec::new();
    place.file.rewind().unwrap();
    place.file.read_to_end(&mut text).unwrap();
    let count = text.split_inclusive(|byte| *byte == b'\n').count();
    assert_eq!(count, lines.len());
    if input.ratio(1, 2)? {
        text.truncate(input.int_in_range(0..=text.len())?);
        place.file.set_len(text.len() as u64).unwrap();
    }
    compare(&text, &lines, place);
    Ok(())
}

/// Reads the file and compares it with `lines`. `text` is its content, which may end before the last line does.
fn compare(text: &[u8], lines: &[Line], place: &Place) {
    let path = &place.path;
    let mut read = JsonLinesReader::open(path).unwrap();
    let written = text.split_inclusive(|byte| *byte == b'\n').zip(lines);
    for ((text, line), number) in written.zip(1..) {
        let is_whole = text.ends_with(b"\n");
        let mut text = text.trim_ascii_end();
        if number == 1 {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let item = read.next().expect("an item for every line with text");
        match (line, item) {
            (Line::Letter(letter), Ok(read)) => assert!(**letter == read, "{letter:?} {read:?}"),
            (Line::Letter(letter), Err(error)) => {
                assert!(!is_whole && error.is_torn(), "{letter:?}: {error}");
                check_error(&error, path, number);
            }
            (Line::Raw(_), Err(error)) => check_error(&error, path, number),
            (Line::Raw(raw), Ok(letter)) => {
                assert!(raw.contains(&b'{'), "{letter:?}");
                again(letter, place);
            }
        }
    }
    assert!(read.next().is_none());
}

fn check_error(error: &UnreadableLetterError, path: &Path, number: u64) {
    assert_eq!((error.line(), error.path()), (number, path), "{error}");
    assert!(!error.to_string().is_empty());
}

/// A letter that was read can be written, and is read back unchanged.
fn again(letter: DeadLetter, place: &Place) {
    let path = place.empty("again");
    let letters = [Arc::new(letter)];
    place.write(&JsonLinesSink::open(&path).unwrap(), &letters);
    read_all(JsonLinesReader::open(&path).unwrap(), &letters);
}

/// Letters in several rotated files are read back in order.
fn rotated(input: &mut Unstructured<'_>, place: &Place) -> Result<()> {
    let path = place.empty("rotated");
    let rotate_at = input.int_in_range(0..=2000)?;
    let sink = JsonLinesSink::open(&path).unwrap().rotate_at(rotate_at);
    let mut written = Vec::new();
    for _ in 0..input.int_in_range(1..=3)? {
        let letters = some_letters(input)?;
        place.write(&sink, &letters);
        written.extend(letters);
    }
    read_all(JsonLinesReader::open_all(&path).unwrap(), &written);
    Ok(())
}

fn some_letters(input: &mut Unstructured<'_>) -> Result<Vec<Arc<DeadLetter>>> {
    let letters = (0..input.int_in_range(1..=3)?).map(|_| letter(input));
    letters.collect()
}

fn read_all(mut reader: JsonLinesReader, letters: &[Arc<DeadLetter>]) {
    for letter in letters {
        let read = reader.next().expect("a letter").expect("a good one");
        assert!(**letter == read, "{letter:?} {read:?} {}", letter.url());
    }
    assert!(reader.next().is_none());
}

/// Returns lines as a later version or an editor could write them, or random ones.
fn raw(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut text = input
        .choose(&[
            &b""[..],
            b"",
            b"\n",
            b"\xef\xbb\xbf",
            b" \t\r",
            b"{}",
            b"{\"version\":2}\n",
            b"{\"version\":1,",
            concat!(
                r#"{"version":1,"time":"2026-11-16T09:00:00.5Z","method":"POST","#,
                r#""url":"https://a/b?c=7&token=REDACTED","redacted":["user_info","#,
                r#"{"parameter":"token"}],"headers":[["x-a","1"],["authorization",null],"#,
                r#"["x-b",{"base64":"/zE="}]],"body":{"text":"b"},"#,
                r#""key":{"header":"k","value":"order-1"},"repeatable":true,"#,
                r#""attempts":[{"outcome":"503","sent_at":"0s","waited":"0s","hint":"1s"},"#,
                r#"{"outcome":"timeout","sent_at":"1.38s","waited":"1.25s"}],"#,
                r#""reason":"retries_exhausted","not_before":"2026-11-16T09:00:10Z"}"#,
                "\n",
            )
            .as_bytes(),
        ])?
        .to_vec();
    let length = input.int_in_range(0..=12)?;
    let more = input.bytes(length.min(input.len()))?;
    let at = input.int_in_range(0..=text.len())?;
    let end = input.int_in_range(at..=text.len().min(at + 16))?;
    text.splice(at..end, more.iter().copied());
    Ok(text)
}
