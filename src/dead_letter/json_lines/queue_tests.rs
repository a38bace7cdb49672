use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process};

use super::super::writer::WriteOptions;
use super::*;

/// A path that only one test uses. The file is removed at the end.
struct TestFile(PathBuf);

impl TestFile {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("steady-queue-{}-{number}", process::id());
        Self(env::temp_dir().join(name))
    }

    fn queue(&self, limit: u32) -> Arc<WriteQueue> {
        let writer = LetterWriter::open(self.0.clone()).unwrap();
        Arc::new(WriteQueue::new(writer, limit))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn line(number: usize) -> LetterLine {
    LetterLine {
        bytes: format!("{number:0>399}\n").into_bytes(),
        options: WriteOptions {
            sync: true,
            ..WriteOptions::default()
        },
    }
}

fn text(numbers: impl IntoIterator<Item = usize>) -> String {
    let lines = numbers.into_iter().map(line);
    let lines = lines.map(|line| String::from_utf8(line.bytes).unwrap());
    lines.collect()
}

type Pushed = io::Result<oneshot::Receiver<io::Result<()>>>;

/// Adds lines while the writer is blocked.
fn push_while_it_hangs(queue: &Arc<WriteQueue>, lines: usize) -> Vec<Pushed> {
    let _writer = lock(&queue.writer);
    (0..lines).map(|number| queue.push(line(number))).collect()
}

#[tokio::test]
async fn lines_that_wait_are_written_and_synced_together() {
    let file = TestFile::new();
    let queue = file.queue(LIMIT);
    for pushed in push_while_it_hangs(&queue, 20_000) {
        pushed.unwrap().await.unwrap().unwrap();
    }
    assert_eq!(file.text(), text(0..20_000));
    let writer = lock(&queue.writer);
    // These are 8 MB, and one write takes up to 1 MiB.
    assert_eq!((writer.writes, writer.syncs), (8, 8));
}

#[tokio::test]
async fn one_line_after_the_other_is_written_at_once() {
    let file = TestFile::new();
    let queue = file.queue(LIMIT);
    for number in 0..5 {
        queue.push(line(number)).unwrap().await.unwrap().unwrap();
        assert_eq!(file.text(), text(0..=number));
    }
    assert_eq!(lock(&queue.writer).syncs, 5);
}

#[tokio::test]
async fn lines_that_nobody_waits_for_any_more_are_written_all_the_same() {
    let file = TestFile::new();
    let queue = file.queue(LIMIT);
    drop(push_while_it_hangs(&queue, 3));
    queue.push(line(3)).unwrap().await.unwrap().unwrap();
    assert_eq!(file.text(), text(0..4));
}

#[tokio::test]
async fn a_disk_that_hangs_makes_lines_fail_at_once_when_too_much_waits() {
    let file = TestFile::new();
    let queue = file.queue(1000);
    for round in 1..=2 {
        let pushed = push_while_it_hangs(&queue, 4);
        let (taken, refused): (Vec<_>, Vec<_>) = pushed.into_iter().partition(Result::is_ok);
        assert_eq!((taken.len(), refused.len()), (2, 2));
        for error in refused.into_iter().map(Result::unwrap_err) {
            let said = "800 bytes wait to be written already, and 1000 may at most";
            assert_eq!(error.to_string(), said);
        }
        for taken in taken {
            taken.unwrap().await.unwrap().unwrap();
        }
        assert_eq!(file.text(), text(0..2).repeat(round));
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn all_lines_of_a_write_that_fails_learn_of_it() {
    let file = TestFile::new();
    std::os::unix::fs::symlink("/dev/full", &file.0).unwrap();
    let queue = file.queue(LIMIT);
    for pushed in push_while_it_hangs(&queue, 10) {
        let error = pushed.unwrap().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    assert_eq!(lock(&queue.writer).writes, 1);
}

#[test]
fn a_runtime_that_ends_takes_no_line_with_it() {
    let file = TestFile::new();
    let queue = file.queue(LIMIT);
    let runtime = || tokio::runtime::Builder::new_current_thread().build();
    let ends = runtime().unwrap();
    // Its job may not have started.
    ends.block_on(async { drop(queue.push(line(0)).unwrap()) });
    let ended = ends.handle().clone();
    drop(ends);
    assert_eq!(file.text(), text(0..1));

    // Its job cannot start.
    let entered = ended.enter();
    let written = queue.push(line(1)).unwrap();
    drop(entered);
    assert_eq!(file.text(), text(0..2));
    runtime().unwrap().block_on(written).unwrap().unwrap();

    let error = queue.push(line(2)).unwrap_err();
    assert!(error.to_string().contains("no reactor running"), "{error}");
    assert_eq!(file.text(), text(0..2));
}
