//! A rest without a length: its bytes are in doubt until it ends exactly where its range ends.

use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest_steady::{CoalesceMiddleware, Inspect};

use super::*;
use crate::support::file_server::asked_from;

const RANGE: &str = "bytes 100-299/300";

/// A rest of the right range, without a length.
fn unmeasured(sent: &[u8], then: Then) -> Reply {
    Reply::status(206)
        .header("etag", "\"one\"")
        .header("content-range", RANGE)
        .body(cut_of(sent.to_vec(), None, then))
}

/// Breaks off after 100 bytes, sends this in response to the first request for the rest, and is honest then.
fn once(rest: impl Fn(&Hosted) -> Reply + Send + Sync + 'static) -> Arc<ScriptedServer> {
    let file = Hosted::new(bytes(300));
    let rests = AtomicUsize::new(0);
    serve(move |_, request| match asked_from(request) {
        None => file.reply(request, 100, Then::Fail),
        Some(_) if rests.fetch_add(1, Ordering::SeqCst) == 0 => rest(&file),
        Some(_) => file.reply(request, 300, Then::End),
    })
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_if_a_rest_in_doubt_breaks_off() {
    for then in [Then::Fail, Then::End, Then::Stall] {
        // The file from its first byte, as if it was the rest.
        let server = once(move |file| unmeasured(&file.bytes[..150], then));
        let (received, text, error) = failed(download(&server)).await;
        assert_eq!((received, server.count()), (250, 2), "{text}");
        assert!(DownloadError::of(&error).unwrap().is_changed(), "{text}");
        assert!(text.contains("without a length"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rest_in_doubt_that_brought_nothing_is_no_failure() {
    for then in [Then::Fail, Then::End, Then::Stall] {
        let server = once(move |_| unmeasured(&[], then));
        let mut download = download(&server).await.unwrap();
        assert_eq!(read(&mut download).await.unwrap(), bytes(300));
        assert_eq!(server.count(), 3);
    }
}

/// A chunked rest that ends too early has a length once it is in memory.
#[tokio::test(start_paused = true)]
async fn a_rest_that_was_inspected_to_an_early_end_is_asked_for_again() {
    let server = once(|file| unmeasured(&file.bytes[100..110], Then::End));
    let what = Inspect::all().limit(40);
    let retry = RetryMiddleware::builder().inspect_body(what, |_, _| None);
    let client = server.client(retry.build().unwrap());
    let mut download = client.get(URL).download().backoff(exact()).await.unwrap();
    assert_eq!(read(&mut download).await.unwrap(), bytes(300));
    assert_eq!((server.count(), download.resumes()), (3, 2));
    let asked = header(&server, 2, "range");
    assert_eq!(asked.as_deref(), Some("bytes=100-"));
}

#[tokio::test(start_paused = true)]
async fn a_rest_that_was_shared_to_an_early_end_is_asked_for_again() {
    let server = once(|file| unmeasured(&file.bytes[100..110], Then::End).after(SEC));
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(CoalesceMiddleware::default())
        .with(RetryMiddleware::default())
        .with_arc(server.clone())
        .build();
    let whole = || async {
        let mut download = client.get(URL).download().backoff(exact()).await.unwrap();
        assert_eq!(read(&mut download).await.unwrap(), bytes(300));
        download.resumes()
    };
    assert_eq!(tokio::join!(whole(), whole()), (2, 2));
    let asked = (0..server.count()).filter_map(|index| header(&server, index, "range"));
    assert!(asked.into_iter().all(|range| range == "bytes=100-"));
}

#[cfg(feature = "file")]
mod saved {
    use std::fs;
    use std::pin::pin;

    use super::*;
    use crate::support::directory::Directory;

    async fn save(server: &Arc<ScriptedServer>, directory: &Directory) -> Result<u64, Error> {
        let download = download(server).await.unwrap();
        download.save(directory.file("data")).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_in_doubt_that_breaks_off_is_taken_back() {
        for is_right in [true, false] {
            // With 200, all bytes have arrived, and yet the body breaks off.
            for (sent, then) in [
                (0, Then::Fail),
                (150, Then::Fail),
                (150, Then::End),
                (150, Then::Stall),
                (200, Then::Fail),
            ] {
                let directory = Directory::new();
                let server = once(move |file| {
                    let from = if is_right { 100 } else { 0 };
                    unmeasured(&file.bytes[from..from + sent], then)
                });
                assert_eq!(save(&server, &directory).await.unwrap(), 300);
                assert_eq!(fs::read(directory.file("data")).unwrap(), bytes(300));
                assert_eq!(server.count(), 3);
                let asked = header(&server, 2, "range");
                assert_eq!(asked.as_deref(), Some("bytes=100-"));
                assert_eq!(directory.names(), ["data"]);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_in_doubt_are_no_progress() {
        let directory = Directory::new();
        let file = Hosted::new(bytes(300));
        let server = serve(move |index, request| match index {
            0 => file.reply(request, 100, Then::Fail),
            _ => unmeasured(&file.bytes[..index], Then::Fail),
        });
        let error = save(&server, &directory).await.unwrap_err();
        assert_eq!(server.count(), 6, "{error}");
        let part = directory.file(&directory.names().remove(0));
        assert_eq!(fs::read(part).unwrap(), bytes(100));
    }

    /// Neither a save that is dropped nor a program that is killed leaves bytes in doubt to go on with.
    #[tokio::test(start_paused = true)]
    async fn bytes_in_doubt_are_never_gone_on_with() {
        for is_killed in [false, true] {
            let directory = Directory::new();
            let server = once(|file| unmeasured(&file.bytes[..150], Then::Stall));
            let mut saving = Box::pin(save(&server, &directory));
            let in_doubt = tokio::time::timeout(3 * SEC, saving.as_mut()).await;
            assert!(in_doubt.is_err() && server.count() == 2);
            let part = directory.file(&directory.names().remove(0));
            let left = fs::read(&part).unwrap();
            drop(saving);
            if is_killed {
                fs::write(&part, left).unwrap();
            }
            assert_eq!(save(&server, &directory).await.unwrap(), 300);
            assert_eq!(fs::read(directory.file("data")).unwrap(), bytes(300));
            assert_eq!(directory.names(), ["data"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_in_doubt_leaves_the_bytes_before_it() {
        let directory = Directory::new();
        let server = once(|file| unmeasured(&file.bytes[..150], Then::Stall));
        let request = request(&server).deadline(5 * SEC).download();
        let download = request.backoff(exact()).await.unwrap();
        let saving = download.save(directory.file("data"));
        pin!(saving).await.unwrap_err();
        let part = directory.file(&directory.names().remove(0));
        assert_eq!(fs::read(part).unwrap(), bytes(100));
        assert_eq!(save(&server, &directory).await.unwrap(), 300);
        assert_eq!(
            header(&server, server.count() - 1, "range").as_deref(),
            Some("bytes=100-")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_version_has_all_its_resumes() {
        let directory = Directory::new();
        let old = Hosted::new(bytes(300));
        let new = Hosted {
            etag: Some("\"two\""),
            ..Hosted::new(vec![7; 300])
        };
        let server = serve(move |index, request| match index {
            0 => old.reply(request, 280, Then::Fail),
            _ => new.reply(request, 20, Then::Fail),
        });
        assert_eq!(save(&server, &directory).await.unwrap(), 300);
        assert_eq!(fs::read(directory.file("data")).unwrap(), vec![7; 300]);
        assert_eq!(server.count(), 1 + 300 / 20);
    }

    #[tokio::test(start_paused = true)]
    async fn after_one_lie_the_server_is_asked_for_parts_again() {
        let too_long = |file: &Hosted| {
            let rest = [&file.bytes[100..], &[7; 5]].concat();
            unmeasured(&rest, Then::End)
        };
        let other_length = |file: &Hosted| {
            let range = "bytes 100-299/301";
            let body = cut_of(file.bytes[100..].to_vec(), Some(200), Then::End);
            let reply = Reply::status(206).header("etag", "\"one\"");
            reply.header("content-range", range).body(body)
        };
        for lie in [too_long, other_length] {
            let directory = Directory::new();
            let file = Hosted::new(bytes(300));
            let server = serve(move |index, request| match index {
                0 => file.reply(request, 100, Then::Fail),
                1 => lie(&file),
                _ => file.reply(request, 20, Then::Fail),
            });
            assert_eq!(save(&server, &directory).await.unwrap(), 300);
            assert_eq!(fs::read(directory.file("data")).unwrap(), bytes(300));
            // The whole file, which breaks off, and then its parts.
            assert_eq!(server.count(), 2 + 300 / 20);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_changes_forever_ends_a_save() {
        let tags: Vec<&'static str> = (0..100)
            .map(|index| &*format!("\"{index}\"").leak())
            .collect();
        for ignores_if_range in [true, false] {
            let directory = Directory::new();
            let tags = tags.clone();
            let server = serve(move |index, request| {
                let file = Hosted {
                    etag: Some(tags[index]),
                    ..Hosted::new(vec![index as u8; 300])
                };
                match asked_from(request) {
                    Some(first) if ignores_if_range => file.rest(first, 20, Then::Fail),
                    _ => file.reply(request, 20, Then::Fail),
                }
            });
            let error = save(&server, &directory).await.unwrap_err();
            assert!(error.to_string().contains("no resumes are left"), "{error}");
            assert!((10..=30).contains(&server.count()), "{}", server.count());
            assert!(!directory.file("data").exists());
        }
    }
}
