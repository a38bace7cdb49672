//! The file of letters: many writers, cut off anywhere, rotated, and on a full disk.

use std::error::Error;
use std::fs;
use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use reqwest_steady::dead_letter::{DeadLetterSink, JsonLinesReader, JsonLinesSink, LetterBody};
use tokio::task::JoinSet;

use super::stored::{LINE, deliver, keys, numbered, orders};
use crate::support::directory::Directory;

/// Delivers `each` letters from each of 8 tasks, and returns their keys.
async fn deliver_from_8_tasks(sinks: &[JsonLinesSink], each: usize) -> Vec<String> {
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let sink = sinks[task % sinks.len()].clone();
        tasks.spawn(async move {
            for number in 0..each {
                deliver(&sink, task * each + number).await;
            }
        });
    }
    tasks.join_all().await;
    let mut all = orders(0..8 * each);
    all.sort();
    all
}

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn letters_from_8_tasks_are_all_there_and_whole() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let sink = JsonLinesSink::open(&path).unwrap();
    let all = deliver_from_8_tasks(&[sink], 25).await;
    assert_eq!(sorted(keys(&path)), all);
    for letter in JsonLinesReader::open(&path).unwrap() {
        let letter = letter.unwrap();
        let key = letter.key().unwrap();
        let number: usize = key.strip_prefix("order-").unwrap().parse().unwrap();
        let LetterBody::Bytes(body) = letter.body() else {
            panic!("{letter:?}")
        };
        assert_eq!(body, "ö\n".repeat(number).as_bytes(), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_letters_reach_the_disk_in_the_time_of_a_few() {
    // Each letter was once synced separately, and most deliveries timed out.
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let sink = JsonLinesSink::open(&path).unwrap().sync(true);
    let letter = numbered(1);
    let deliveries = (0..2000).map(|_| sink.deliver(letter.clone()));
    for delivery in futures_util::future::join_all(deliveries).await {
        delivery.unwrap();
    }
    assert_eq!(keys(&path).len(), 2000);
}

#[tokio::test]
async fn a_letter_is_kept_if_its_delivery_is_not_awaited() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let sink = JsonLinesSink::open(&path).unwrap();
    for number in 1..=3 {
        drop(sink.deliver(numbered(number)));
    }
    deliver(&sink, 4).await;
    assert_eq!(keys(&path), orders(1..=4));
}

#[tokio::test]
async fn a_file_cut_off_anywhere_loses_only_the_letter_that_is_cut() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let sink = JsonLinesSink::open(&path).unwrap();
    for number in 1..=3 {
        deliver(&sink, number).await;
    }
    let whole = fs::read(&path).unwrap();
    let ends: Vec<_> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    assert_eq!(ends.len(), 3);
    let fourth = numbered(4);
    for length in 0..=whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        // Whether the newline itself is there makes no difference.
        let complete = ends.iter().filter(|end| **end <= length).count();
        let is_torn = ends.iter().all(|end| length != *end && length != *end + 1) && length > 0;

        let mut read: Vec<_> = JsonLinesReader::open(&path).unwrap().collect();
        if is_torn {
            let torn = read.pop().unwrap().unwrap_err();
            assert!(torn.is_torn(), "{length}: {torn}");
            assert_eq!(torn.line(), complete as u64 + 1);
            assert_eq!(torn.path(), path);
            let message = format!("line {} of {} ", complete + 1, path.display());
            assert_eq!(torn.to_string(), message + "is cut off in the middle");
        }
        let read: Vec<_> = read.into_iter().map(|letter| letter.unwrap()).collect();
        assert_eq!(read.len(), complete, "{length}");

        // Later letters are intact, and the torn line does not damage them.
        let sink = JsonLinesSink::open(&path).unwrap();
        sink.deliver(fourth.clone()).await.unwrap();
        let read: Vec<_> = JsonLinesReader::open(&path).unwrap().collect();
        let torn = read.iter().filter(|letter| letter.is_err()).count();
        assert_eq!(torn, usize::from(is_torn), "{length}");
        assert_eq!(read.len(), complete + torn + 1, "{length}");
        assert!(read.last().unwrap().as_ref().unwrap() == &*fourth);
    }
}

#[tokio::test]
async fn a_line_that_another_process_left_unfinished_spoils_nothing() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let sink = JsonLinesSink::open(&path).unwrap();
    deliver(&sink, 1).await;
    let mut other = fs::OpenOptions::new().append(true).open(&path).unwrap();
    other.write_all(&LINE.as_bytes()[..100]).unwrap();
    deliver(&sink, 2).await;
    deliver(&sink, 3).await;
    let read: Vec<_> = JsonLinesReader::open(&path).unwrap().collect();
    let torn: Vec<_> = read.iter().map(|letter| letter.is_err()).collect();
    assert_eq!(torn, [false, true, false, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rotation_loses_nothing_with_any_number_of_sinks() {
    // One sink, and two independent sinks, as in two processes.
    for sinks in [1, 2] {
        let directory = Directory::new();
        let path = directory.file("letters.jsonl");
        let open = |_| JsonLinesSink::open(&path).unwrap().rotate_at(4000);
        let sinks: Vec<_> = (0..sinks).map(open).collect();
        let all = deliver_from_8_tasks(&sinks, 20).await;
        assert_eq!(sorted(keys(&path)), all);
        let names = directory.names();
        assert!(names.len() > 20, "{names:?}");
        if sinks.len() == 1 {
            for name in &names {
                let length = fs::metadata(directory.file(name)).unwrap().len();
                assert!(length <= 4000, "{name}: {length}");
            }
        }
    }
}

#[tokio::test]
async fn rotated_files_are_read_in_their_order_and_never_overwritten() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let other = directory.file("letters.jsonl.9");
    fs::write(&other, LINE).unwrap();
    for name in [
        "letters.jsonl.010",
        "letters.jsonl.11.gz",
        "letters.jsonl.+12",
    ] {
        fs::write(directory.file(name), "of somebody else").unwrap();
    }
    let sink = JsonLinesSink::open(&path).unwrap().rotate_at(1);
    for number in 2..=5 {
        deliver(&sink, number).await;
    }
    assert_eq!(keys(&path), orders(1..=5));
    assert_eq!(fs::read_to_string(other).unwrap(), LINE);
    assert!(directory.file("letters.jsonl.12").exists());
    assert!(!directory.file("letters.jsonl.13").exists());
    // Without the current file.
    fs::remove_file(&path).unwrap();
    assert_eq!(keys(&path), orders(1..=4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removing_rotated_files_after_reading_loses_no_letter() {
    // Rotation once reserved a number with an empty file and renamed the full one over it. A reader
    // that removed the empty file could remove the full one.
    const LETTERS: usize = 2000;
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let sink = JsonLinesSink::open(&path).unwrap().rotate_at(1);
    let done = AtomicBool::new(false);
    let (read, empty) = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let (mut read, mut empty) = (0, 0);
            loop {
                let last = done.load(Ordering::SeqCst);
                let mut names = directory.names();
                names.retain(|name| name.ends_with(|last: char| last.is_ascii_digit()));
                for name in &names {
                    let file = directory.file(name);
                    let letters = JsonLinesReader::open(&file).unwrap();
                    let letters: Vec<_> = letters.map(|letter| letter.unwrap()).collect();
                    read += letters.len();
                    empty += usize::from(letters.is_empty());
                    fs::remove_file(file).unwrap();
                }
                if last && names.is_empty() {
                    return (read, empty);
                }
            }
        });
        let letter = numbered(1);
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            runtime.block_on(async {
                for _ in 0..LETTERS {
                    sink.deliver(letter.clone()).await.unwrap();
                }
            })
        });
        done.store(true, Ordering::SeqCst);
        consumer.join().unwrap()
    });
    assert_eq!((read, empty), (LETTERS - 1, 0));
    assert_eq!(directory.names(), ["letters.jsonl"]);
    assert_eq!(keys(&path), ["order-1"]);
}

#[tokio::test]
async fn a_number_taken_by_a_killed_process_is_skipped() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    fs::write(directory.file("letters.jsonl.1.taken"), "").unwrap();
    let sink = JsonLinesSink::open(&path).unwrap().rotate_at(1);
    for number in 1..=3 {
        deliver(&sink, number).await;
    }
    assert_eq!(keys(&path), orders(1..=3));
    let names = [
        "letters.jsonl",
        "letters.jsonl.1.taken",
        "letters.jsonl.2",
        "letters.jsonl.3",
    ];
    assert_eq!(directory.names(), names);
}

#[cfg(unix)]
#[tokio::test]
async fn rotation_renames_a_link_and_keeps_its_target() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let elsewhere = directory.file("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    let sink = JsonLinesSink::open(&path).unwrap().rotate_at(1);
    for number in 1..=3 {
        deliver(&sink, number).await;
    }
    assert_eq!(keys(&path), orders(1..=3));
    assert_eq!(keys(&elsewhere), ["order-1"]);
    let is_link = |name| {
        fs::symlink_metadata(directory.file(name))
            .unwrap()
            .is_symlink()
    };
    assert!(is_link("letters.jsonl.1") && !is_link("letters.jsonl.2"));
}

#[tokio::test]
async fn letters_written_while_reading_are_not_read() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    // With and without rotation, and with a last line that is cut off.
    for (rotate_at, end) in [(u64::MAX, ""), (1, ""), (u64::MAX, &LINE[..100])] {
        fs::write(&path, format!("{LINE}\n{LINE}\n{end}")).unwrap();
        let sink = JsonLinesSink::open(&path).unwrap().rotate_at(rotate_at);
        let (mut read, mut torn) = (0, 0);
        for letter in JsonLinesReader::open_all(&path).unwrap() {
            match letter {
                Ok(letter) => sink.deliver(Arc::new(letter)).await.unwrap(),
                Err(error) => torn += usize::from(error.is_torn()),
            }
            read += 1;
            assert!(
                read < 10,
                "the reader returns letters written while it reads"
            );
        }
        let is_cut = usize::from(!end.is_empty());
        assert_eq!((read, torn), (2 + is_cut, is_cut));
        let all = JsonLinesReader::open_all(&path).unwrap();
        assert_eq!(all.filter(Result::is_ok).count(), 4);
        for name in directory.names() {
            fs::remove_file(directory.file(&name)).unwrap();
        }
    }
}

#[test]
fn a_line_that_was_being_written_is_read_to_its_end() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    fs::write(&path, format!("{LINE}\n{}", &LINE[..100])).unwrap();
    let mut letters = JsonLinesReader::open(&path).unwrap();
    let mut writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let rest = format!("{}\n{LINE}\n", &LINE[100..]);
    writer.write_all(rest.as_bytes()).unwrap();
    assert!(letters.next().unwrap().is_ok());
    assert!(letters.next().unwrap().is_ok());
    assert!(letters.next().is_none());
}

#[test]
fn a_file_that_an_editor_saved_is_read_as_well() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    fs::write(&path, format!("\u{feff}{LINE}\r\n{LINE}\r\n")).unwrap();
    assert_eq!(keys(&path), ["order-1", "order-1"]);
}

#[tokio::test]
async fn invalid_lines_are_reported_and_the_others_are_read() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let later = LINE.replace("\"version\":1", "\"version\":3");
    let text = format!("{LINE}\n\n  \r\nhidden\n{later}\n\u{0}\u{0}\n{LINE}");
    fs::write(&path, text).unwrap();
    let (letters, errors): (Vec<_>, Vec<_>) = JsonLinesReader::open(&path)
        .unwrap()
        .partition(Result::is_ok);
    assert_eq!(letters.len(), 2);
    let errors: Vec<_> = errors.into_iter().map(|error| error.unwrap_err()).collect();
    let lines: Vec<_> = errors.iter().map(|error| error.line()).collect();
    assert_eq!(lines, [4, 5, 6]);
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(texts[1].ends_with("has the version 3, which is not known here"));
    for error in errors {
        assert!(!error.is_torn());
        assert!(!format!("{error} {error:?}").contains("hidden"));
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_an_error_and_the_next_is_read() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    for missing in [
        JsonLinesReader::open(&path),
        JsonLinesReader::open_all(&path),
    ] {
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    }
    fs::write(directory.file("letters.jsonl.1"), LINE).unwrap();
    fs::create_dir(directory.file("letters.jsonl.2")).unwrap();
    fs::write(directory.file("letters.jsonl.3"), LINE).unwrap();
    fs::write(directory.file("letters.jsonl.4"), LINE).unwrap();
    fs::write(&path, LINE).unwrap();
    let mut letters = JsonLinesReader::open_all(&path).unwrap();
    // The file is removed before the reader reaches it.
    fs::remove_file(directory.file("letters.jsonl.3")).unwrap();
    assert!(letters.next().unwrap().is_ok());
    for name in ["letters.jsonl.2", "letters.jsonl.3"] {
        let error = letters.next().unwrap().unwrap_err();
        assert!(error.source().is_some() && !error.is_torn(), "{error}");
        assert_eq!(error.path(), directory.file(name));
    }
    assert!(letters.next().unwrap().is_ok());
    assert!(letters.next().unwrap().is_ok());
    assert!(letters.next().is_none());
}

#[tokio::test]
async fn a_sink_needs_its_directory() {
    let directory = Directory::new();
    let opened = JsonLinesSink::open(directory.file("nowhere/letters.jsonl"));
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::NotFound);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_an_error_and_writing_resumes_after_it() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let sink = JsonLinesSink::open(&path).unwrap();
    for _ in 0..2 {
        let error = sink.deliver(numbered(1)).await.unwrap_err();
        let error: &std::io::Error = error.downcast_ref().unwrap();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }
    fs::remove_file(&path).unwrap();
    deliver(&sink, 2).await;
    assert_eq!(keys(&path), ["order-2"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_moved_or_deleted_is_created_again() {
    use std::os::unix::fs::PermissionsExt;

    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let sink = JsonLinesSink::open(&path).unwrap().sync(true);
    deliver(&sink, 1).await;
    let moved = directory.file("moved");
    fs::rename(&path, &moved).unwrap();
    deliver(&sink, 2).await;
    deliver(&sink, 3).await;
    assert_eq!(keys(&moved), ["order-1"]);
    assert_eq!(keys(&path), ["order-2", "order-3"]);
    fs::remove_file(&path).unwrap();
    deliver(&sink, 4).await;
    assert_eq!(keys(&path), ["order-4"]);
    // No other user may read the letters, in any file.
    for file in [path, moved] {
        let mode = fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let directory = Directory::new();
    let path = directory.file("missing").join("letters.jsonl");
    let errors = [
        JsonLinesSink::open(&path).map(|_| ()).unwrap_err(),
        JsonLinesReader::open(&path).map(|_| ()).unwrap_err(),
        JsonLinesReader::open_all(&path).map(|_| ()).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let message = error.to_string();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        assert!(message.contains("os error 2"), "{message}");
        let source = error.source().and_then(|source| source.downcast_ref());
        let original: &std::io::Error = source.unwrap();
        assert_eq!(original.raw_os_error(), Some(2));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn without_a_new_file_the_old_one_is_written_wherever_it_is() {
    let directory = Directory::new();
    let path = directory.file("letters.jsonl");
    let moved = directory.file("moved");
    let sink = JsonLinesSink::open(&path).unwrap().rotate_at(1);
    deliver(&sink, 1).await;
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    deliver(&sink, 2).await;
    deliver(&sink, 3).await;
    assert_eq!(keys(&moved), orders(1..=3));
    // No reader would find it there.
    fs::remove_file(&moved).unwrap();
    assert!(sink.deliver(numbered(4)).await.is_err());
    fs::remove_dir(&path).unwrap();
    deliver(&sink, 5).await;
    assert_eq!(keys(&path), ["order-5"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_cannot_be_renamed_keeps_growing() {
    use std::os::unix::fs::PermissionsExt;

    let directory = Directory::new();
    let inner = directory.file("inner");
    fs::create_dir(&inner).unwrap();
    let path = inner.join("letters.jsonl");
    let sink = JsonLinesSink::open(&path).unwrap().rotate_at(1);
    deliver(&sink, 1).await;
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o500)).unwrap();
    // Root can write to every directory.
    let forbidden = fs::write(inner.join("probe"), "").is_err();
    deliver(&sink, 2).await;
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o700)).unwrap();
    let _ = fs::remove_file(inner.join("probe"));
    assert_eq!(keys(&path), ["order-1", "order-2"]);
    if forbidden {
        assert!(!inner.join("letters.jsonl.1").exists());
    }
    deliver(&sink, 3).await;
    assert_eq!(keys(&path), ["order-1", "order-2", "order-3"]);
}
