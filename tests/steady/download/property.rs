//! For any breaks, any lies of the server and any point at which it is dropped, a download leaves one whole version of
//! the file, or what was there before.
//!
//! The server has several versions of one file. It may lie in every way that can be found out: a server that sends the
//! headers of one version and the bytes of another cannot be.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use futures_util::stream;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use reqwest::Request;

use super::*;
use crate::support::file_server::{CutBody, asked_from};

/// How a version is marked. Two of the marks allow to go on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    Tag(&'static str),
    /// Of `Last-Modified`.
    Day(u8),
    Nothing,
}

impl Mark {
    fn header(self) -> Option<(&'static str, String)> {
        match self {
            Self::Tag(tag) => Some(("etag", tag.to_owned())),
            Self::Day(day) => Some(("last-modified", format!("Mon, {day} Nov 2026 10:00:00 GMT"))),
            Self::Nothing => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Version {
    bytes: Vec<u8>,
    mark: Mark,
}

/// No two versions begin alike. The first two have the same length, and so do the dated ones.
fn versions() -> Vec<Version> {
    [
        (300, Mark::Tag("\"one\"")),
        (300, Mark::Tag("\"two\"")),
        (200, Mark::Day(2)),
        (200, Mark::Day(9)),
        (250, Mark::Tag("W/\"weak\"")),
        (120, Mark::Nothing),
        (0, Mark::Tag("\"empty\"")),
    ]
    .into_iter()
    .zip(0..)
    .map(|((length, mark), seed)| Version {
        bytes: (0..length).map(|at| (at * 31 + seed * 36) as u8).collect(),
        mark,
    })
    .collect()
}

/// What the server does with one request.
#[derive(Clone, Debug)]
struct Step {
    version: usize,
    act: Act,
    /// How many bytes it sends, in chunks of this size.
    sent: usize,
    chunk: usize,
    then: Then,
    is_announced: bool,
}

/// Most of these change only what is sent to a request for a part.
#[derive(Clone, Copy, Debug)]
enum Act {
    Honest,
    IgnoresRange,
    IgnoresIfRange,
    /// The part begins so many bytes later or earlier, and says so.
    Shifted(i32),
    /// The `Content-Range` has another length.
    OtherLength(i32),
    NoMark,
    OtherMark,
    WeakMark,
    NoRange,
    Encoded,
    SeveralParts,
    /// So many bytes follow.
    Longer(usize),
    /// All bytes of the part are wrong. Only more bytes that follow after so many milliseconds reveal that.
    #[cfg_attr(not(feature = "file"), allow(dead_code))]
    WrongAndLonger(u64),
    /// All bytes of the part are wrong, as if the client had decoded them. Only a break before the last one reveals that.
    #[cfg_attr(not(feature = "file"), allow(dead_code))]
    WrongAndBroken,
    /// A part to a request that asks for none.
    Unasked(usize),
    Status(u16, Option<u8>),
    Fails(ErrorKind),
    Silent,
}

fn act() -> impl Strategy<Value = Act> {
    let statuses = [204, 304, 403, 404, 408, 412, 416, 429, 500, 503];
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::ConnectionRefused];
    prop_oneof![
        20 => Just(Act::Honest),
        1 => Just(Act::IgnoresRange),
        2 => Just(Act::IgnoresIfRange),
        1 => select(vec![-300, -100, -1, 1, 100]).prop_map(Act::Shifted),
        1 => select(vec![-1, 1, 1000]).prop_map(Act::OtherLength),
        1 => Just(Act::NoMark),
        1 => Just(Act::OtherMark),
        1 => Just(Act::WeakMark),
        1 => Just(Act::NoRange),
        1 => Just(Act::Encoded),
        1 => Just(Act::SeveralParts),
        1 => (1..50usize).prop_map(Act::Longer),
        1 => (0..100usize).prop_map(Act::Unasked),
        2 => (select(statuses.to_vec()), option::of(0..90u8))
            .prop_map(|(status, hint)| Act::Status(status, hint)),
        1 => select(kinds.to_vec()).prop_map(Act::Fails),
        1 => Just(Act::Silent),
    ]
}

prop_compose! {
    fn step()(
        // Mostly the same version, so that some downloads end.
        version in prop_oneof![6 => Just(0), 2 => Just(2), 3 => 0..7usize],
        act in act(),
        sent in prop_oneof![0..300usize, Just(1), Just(300)],
        chunk in prop_oneof![1..5usize, Just(64), Just(300)],
        then in select(vec![Then::End, Then::Fail, Then::Stall]),
        is_announced in prop::bool::weighted(0.8),
    ) -> Step {
        Step { version, act, sent, chunk, then, is_announced }
    }
}

impl Step {
    fn honest(version: usize) -> Self {
        Self {
            version,
            act: Act::Honest,
            sent: usize::MAX,
            chunk: 64,
            then: Then::End,
            is_announced: true,
        }
    }

    fn reply(&self, request: &Request) -> Reply {
        match self.act {
            Act::Status(status, None) => return Reply::status(status).body("no file"),
            Act::Status(status, Some(hint)) => {
                return Reply::status(status).header("retry-after", &hint.to_string());
            }
            Act::Fails(kind) => return Reply::fail(kind),
            Act::Silent => return Reply::silence(),
            _ => {}
        }
        let version = &versions()[self.version];
        let length = version.bytes.len();
        let is_part = asked_from(request).is_some_and(|first| first < length);
        if let (Act::WrongAndLonger(pause), true) = (self.act, is_part) {
            return self.wrong_part(version, asked_from(request).unwrap(), pause);
        }
        if let (Act::WrongAndBroken, true) = (self.act, is_part) {
            return self.broken_part(version, asked_from(request).unwrap());
        }
        let if_range = request.headers().get("if-range");
        let mark = version.mark.header();
        let is_same = if_range.is_some_and(|value| {
            mark.as_ref()
                .is_some_and(|(_, mark)| value.as_bytes() == mark.as_bytes())
        });
        let first = match (asked_from(request), self.act) {
            (None, Act::Unasked(first)) => Some(first),
            (None, _) | (_, Act::IgnoresRange) => None,
            (Some(first), Act::Honest | Act::Longer(_)) => is_same.then_some(first),
            (Some(first), Act::Shifted(by)) => {
                Some((first as i32).saturating_add(by).max(0) as usize)
            }
            (first, _) => first,
        };
        match first {
            None => self.whole(version),
            Some(first) if first >= length => {
                Reply::status(416).header("content-range", &format!("bytes */{length}"))
            }
            Some(first) => self.part(version, first),
        }
    }

    fn whole(&self, version: &Version) -> Reply {
        let length = version.bytes.len();
        // Without a length, an early end cannot be told from the end.
        let is_cut = self.is_announced || self.then != Then::End;
        let sent = if is_cut {
            self.sent.min(length)
        } else {
            length
        };
        let mut bytes = version.bytes[..sent].to_vec();
        if let (Act::Longer(more), true, true) = (self.act, self.is_announced, sent == length) {
            bytes.extend(vec![b'+'; more]);
        }
        let announced = self.is_announced.then_some(length as u64);
        marked(Reply::status(200), version.mark).body(self.body(bytes, announced))
    }

    fn part(&self, version: &Version, first: usize) -> Reply {
        let length = version.bytes.len();
        let rest = &version.bytes[first..];
        let mut bytes = rest[..self.sent.min(rest.len())].to_vec();
        let mut mark = version.mark;
        let mut whole = length as i32;
        let mut reply = Reply::status(206);
        match self.act {
            Act::OtherLength(by) => whole += by,
            Act::NoMark => mark = Mark::Nothing,
            Act::OtherMark => mark = Mark::Tag("\"other\""),
            Act::WeakMark => mark = Mark::Tag("W/\"one\""),
            Act::Encoded => {
                reply = reply.header("content-encoding", "gzip");
                bytes.fill(b'z');
            }
            Act::SeveralParts => {
                reply = reply.header("content-type", "multipart/byteranges; boundary=b");
                bytes.fill(b'-');
            }
            Act::Longer(more) if bytes.len() == rest.len() => bytes.extend(vec![b'+'; more]),
            _ => {}
        }
        if !matches!(self.act, Act::NoRange) {
            let range = format!("bytes {first}-{}/{whole}", length - 1);
            reply = reply.header("content-range", &range);
        }
        let announced = self.is_announced.then_some(rest.len() as u64);
        marked(reply, mark).body(self.body(bytes, announced))
    }

    /// A part without a length, so that HTTP itself does not end its body.
    fn wrong_part(&self, version: &Version, first: usize, pause: u64) -> Reply {
        let length = version.bytes.len();
        let rest = vec![b'!'; length - first];
        let chunks: Vec<_> = rest.chunks(self.chunk).map(<[u8]>::to_vec).collect();
        let more = stream::once(async move {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            b"more".to_vec()
        });
        let body = stream::iter(chunks).chain(more);
        let range = format!("bytes {first}-{}/{length}", length - 1);
        marked(Reply::status(206), version.mark)
            .header("content-range", &range)
            .body(reqwest::Body::wrap_stream(body.map(io::Result::Ok)))
    }

    /// Wrong bytes without a length, which break off before the last one or, with an error, after it.
    fn broken_part(&self, version: &Version, first: usize) -> Reply {
        let length = version.bytes.len();
        let most = length - first - usize::from(self.then != Then::Fail);
        let range = format!("bytes {first}-{}/{length}", length - 1);
        marked(Reply::status(206), version.mark)
            .header("content-range", &range)
            .body(self.body(vec![b'?'; self.sent.min(most)], None))
    }

    fn body(&self, bytes: Vec<u8>, announced: Option<u64>) -> reqwest::Body {
        let chunks = bytes.chunks(self.chunk).map(Bytes::copy_from_slice);
        reqwest::Body::wrap(CutBody {
            chunks: chunks.collect(),
            announced,
            then: self.then,
        })
    }
}

fn marked(reply: Reply, mark: Mark) -> Reply {
    let reply = reply.header("date", "Mon, 16 Nov 2026 10:00:00 GMT");
    match mark.header() {
        Some((name, value)) => reply.header(name, &value),
        None => reply,
    }
}

fn in_virtual_time(
    test: impl Future<Output = Result<(), TestCaseError>>,
) -> Result<(), TestCaseError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test)
}

/// A download whose first request cannot be blocked by a silent server either.
fn download(server: &Arc<ScriptedServer>) -> DownloadRequest {
    let retry = RetryMiddleware::builder().attempt_timeout(20 * SEC);
    let client = server.client(retry.build().unwrap());
    client.get(URL).download().backoff(exact())
}

fn scripted(steps: Vec<Step>) -> Arc<ScriptedServer> {
    serve(move |index, request| steps[index % steps.len()].reply(request))
}

/// Sends these steps once, and is honest then.
fn honest_after(steps: Vec<Step>, version: usize) -> Arc<ScriptedServer> {
    serve(move |index, request| match steps.get(index) {
        Some(step) => step.reply(request),
        None => Step::honest(version).reply(request),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_stream_is_the_beginning_of_one_version(steps in vec(step(), 1..30)) {
        in_virtual_time(async {
            let server = scripted(steps);
            let Ok(mut download) = download(&server).await else {
                return Ok(());
            };
            let is_file = download.status() == 200;
            let (received, is_whole) = match read(&mut download).await {
                Ok(received) => (received, true),
                Err((received, _)) => (received, false),
            };
            if is_file {
                let fits = |version: &Version| match is_whole {
                    true => version.bytes == received,
                    false => version.bytes.starts_with(&received),
                };
                prop_assert!(versions().iter().any(fits), "{received:?}");
            }
            prop_assert!(download.chunk().await.unwrap().is_none());
            Ok(())
        })?;
    }

    #[test]
    fn a_server_that_gets_honest_sends_the_whole_file(steps in vec(step(), 1..5)) {
        // One version with a length, so that each break can be mended.
        let version = steps[0].version.min(1);
        let steps: Vec<_> = steps
            .into_iter()
            .map(|step| Step { version, act: Act::Honest, is_announced: true, ..step })
            .collect();
        in_virtual_time(async {
            let server = honest_after(steps, version);
            let mut download = download(&server).await.unwrap();
            let received = read(&mut download).await.unwrap();
            prop_assert_eq!(&received, &versions()[version].bytes);
            prop_assert_eq!(server.count() as u32, download.resumes() + 1);
            Ok(())
        })?;
    }
}

#[cfg(feature = "file")]
mod saved {
    use std::fs;
    use std::path::Path;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::support::directory::Directory;

    /// What a program does with the file.
    #[derive(Clone, Copy, Debug)]
    enum Use {
        Save,
        /// The program ends after so many polls.
        SaveAndDrop(usize),
        Twice,
        /// Twice, and the first one is dropped.
        TwiceAndDrop(usize),
        ReadAndSave(usize),
    }

    fn any_use() -> impl Strategy<Value = Use> {
        prop_oneof![
            3 => Just(Use::Save),
            4 => (1..60usize).prop_map(Use::SaveAndDrop),
            1 => Just(Use::Twice),
            1 => (1..60usize).prop_map(Use::TwiceAndDrop),
            1 => (1..10usize).prop_map(Use::ReadAndSave),
        ]
    }

    /// Returns `None` if the future needs more polls.
    async fn polled<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut left = polls;
        std::future::poll_fn(|context| {
            left = left.saturating_sub(1);
            match future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if left == 0 => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    async fn save(server: &Arc<ScriptedServer>, chunks: usize, target: &Path) -> Option<u64> {
        let mut download = download(server).await.ok()?;
        for _ in 0..chunks {
            let _ = download.chunk().await;
        }
        download.save(target).await.ok()
    }

    fn finished_use() -> impl Strategy<Value = Use> {
        prop_oneof![
            3 => Just(Use::Save),
            1 => Just(Use::Twice),
            1 => (1..10usize).prop_map(Use::ReadAndSave),
        ]
    }

    fn step_or_late_lie() -> impl Strategy<Value = Step> {
        let longer = (step(), 0..5000u64).prop_map(|(step, pause)| Step {
            act: Act::WrongAndLonger(pause),
            ..step
        });
        let broken = step().prop_map(|step| Step {
            act: Act::WrongAndBroken,
            ..step
        });
        prop_oneof![10 => step(), 1 => longer, 1 => broken]
    }

    /// Uses the file as these programs do. Fails if the target is ever anything but a whole file, or what it was before.
    async fn check(
        steps: Vec<Step>,
        uses: Vec<Use>,
        has_old: bool,
        last: usize,
    ) -> Result<(), TestCaseError> {
        let directory = Directory::new();
        let target = directory.file("data");
        if has_old {
            fs::write(&target, "old").unwrap();
        }
        let server = scripted(steps);
        let mut was_dropped = false;
        for step in uses {
            let before = fs::read(&target).ok();
            let save = |chunks| save(&server, chunks, &target);
            let saved = match step {
                Use::Save => vec![Some(save(0).await)],
                Use::SaveAndDrop(polls) => vec![polled(polls, save(0)).await],
                Use::ReadAndSave(chunks) => vec![Some(save(chunks).await)],
                Use::Twice => {
                    let (one, other) = tokio::join!(save(0), save(0));
                    vec![Some(one), Some(other)]
                }
                Use::TwiceAndDrop(polls) => {
                    let (one, other) = tokio::join!(polled(polls, save(0)), save(0));
                    vec![one, Some(other)]
                }
            };
            was_dropped |= saved.contains(&None);
            let lengths: Vec<u64> = saved.into_iter().flatten().flatten().collect();
            let after = fs::read(&target).ok();
            // What was dropped may still be renaming the file.
            let may_be_old = lengths.is_empty() && after == before;
            let is_whole = after
                .as_ref()
                .is_some_and(|after| versions().iter().any(|version| version.bytes == *after));
            let may_be_new = was_dropped || !lengths.is_empty();
            prop_assert!(
                may_be_old || (is_whole && may_be_new),
                "{step:?}: {lengths:?}, {before:?}, then {after:?}"
            );
            if !was_dropped && !lengths.is_empty() {
                prop_assert!(lengths.contains(&(after.unwrap().len() as u64)));
            }
        }
        // Whatever they have left, it is of no harm.
        let server = scripted(vec![Step::honest(last)]);
        let bytes = &versions()[last].bytes;
        prop_assert_eq!(save(&server, 0, &target).await, Some(bytes.len() as u64));
        prop_assert_eq!(&fs::read(&target).unwrap(), bytes);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn a_save_leaves_the_whole_file_or_nothing(
            steps in vec(step_or_late_lie(), 1..30),
            uses in vec(any_use(), 1..8),
            has_old in any::<bool>(),
            last in 0..7usize,
        ) {
            in_virtual_time(check(steps, uses, has_old, last))?;
        }

        /// No program ends before a lie is revealed, so more lies are.
        #[test]
        fn a_lie_that_is_revealed_late_leaves_nothing(
            steps in vec(step_or_late_lie(), 1..30),
            uses in vec(finished_use(), 1..8),
            has_old in any::<bool>(),
            last in 0..7usize,
        ) {
            in_virtual_time(check(steps, uses, has_old, last))?;
        }
    }
}
