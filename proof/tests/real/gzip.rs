//! Responses with a content encoding, which reqwest decodes.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use http::{Response, Version};
use http_body_util::StreamBody;
use hyper::body::Frame;
use reqwest_steady::download::{DownloadError, DownloadExt};
use reqwest_steady::{BodyVerdict, Inspect, StopReason};

use crate::support::directory::Directory;
use crate::support::hyper_server::HyperServer;
use crate::support::raw::{Server, Then, client, direct, in_time, reply, reported, retry};

const TEXT: &str = r#"{"error":{"code":"insufficient_quota"}}"#;

/// The same text, compressed by gzip.
#[rustfmt::skip]
const GZIPPED: &[u8] = &[0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0x4a, 0x2d, 0x2a, 0xca, 0x2f, 0x52, 0xb2, 0xaa, 0x56, 0x4a, 0xce, 0x4f, 0x49, 0x55, 0xb2, 0x52, 0xca, 0xcc, 0x2b, 0x2e, 0x4d, 0x4b, 0xcb, 0x4c, 0xce, 0x4c, 0xcd, 0x2b, 0x89, 0x2f, 0x2c, 0xcd, 0x2f, 0x49, 0x54, 0xaa, 0xad, 0x05, 0x00, 0x05, 0x22, 0x04, 0x06, 0x27, 0x00, 0x00, 0x00];

fn gzipped(status: u16, headers: &str, sent: usize) -> Vec<u8> {
    let length = GZIPPED.len();
    let head = format!(
        "HTTP/1.1 {status} Whatever\r\ncontent-encoding: gzip\r\n{headers}content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), &GZIPPED[..sent]].concat()
}

#[tokio::test]
async fn an_inspected_body_is_decoded() {
    let all = GZIPPED.len();
    let server = Server::start(move |_| reply(gzipped(429, "", all), Then::KeepOpen)).await;
    let retry = retry().inspect_body(Inspect::errors(), |_, start| {
        start
            .text()
            .contains("insufficient_quota")
            .then(BodyVerdict::never)
    });
    let (response, report) = reported(client(direct(), retry).get(server.url())).await;
    assert_eq!(report.stop_reason(), StopReason::NotRetryable);
    assert_eq!(server.count(), 1);
    assert_eq!(response.unwrap().text().await.unwrap(), TEXT);
}

#[tokio::test]
async fn an_inspected_body_that_cannot_be_decoded_is_final() {
    for status in [200, 429] {
        let mut corrupt = gzipped(status, "", GZIPPED.len());
        let middle = corrupt.len() - GZIPPED.len() / 2;
        corrupt[middle] ^= 0xff;
        let server = Server::start(move |_| reply(corrupt.clone(), Then::KeepOpen)).await;
        let retry = retry().inspect_body(Inspect::all(), |attempt, start| {
            // Of an error, the function sees what could be decoded.
            assert!(attempt.status()? == 429 && !start.is_complete());
            Some(BodyVerdict::never())
        });
        let (result, report) = reported(client(direct(), retry).get(server.url())).await;
        assert_eq!(report.stop_reason(), StopReason::NotRetryable);
        assert_eq!(server.count(), 1);
        match result {
            Err(error) => assert!(status == 200 && error.is_decode(), "{error:?}"),
            Ok(response) => assert!(status == 429 && response.text().await.is_err()),
        }
    }
}

#[tokio::test]
async fn a_download_that_is_gzipped_unasked_begins_again() {
    let directory = Directory::new();
    let half = GZIPPED.len() / 2;
    let server = Server::start(move |index| match index {
        0 => reply(gzipped(200, "etag: \"a\"\r\n", half), Then::Close),
        _ => reply(gzipped(200, "etag: \"a\"\r\n", GZIPPED.len()), Then::Close),
    })
    .await;
    let client = client(direct(), retry());
    let download = in_time(client.get(server.url()).download().into_future()).await;
    let saved = in_time(download.unwrap().save(directory.file("data"))).await;
    assert_eq!(saved.unwrap(), TEXT.len() as u64);
    assert_eq!(
        std::fs::read_to_string(directory.file("data")).unwrap(),
        TEXT
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        // Offsets of decoded bytes mean nothing to the server.
        assert_eq!(request.header("range"), None);
    }

    let server =
        Server::start(move |_| reply(gzipped(200, "etag: \"a\"\r\n", half), Then::Close)).await;
    let download = client.get(server.url()).download().max_resumes(1);
    let mut download = in_time(download.into_future()).await.unwrap();
    let error = loop {
        match in_time(download.chunk()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the body was cut"),
            Err(error) => break error,
        }
    };
    assert!(DownloadError::of(&error).is_some(), "{error:?}");
    let asked = server.requests();
    assert!(
        asked
            .iter()
            .all(|request| request.header("range").is_none())
    );
}

#[tokio::test]
async fn a_rest_that_is_gzipped_unasked_is_not_saved() {
    let half = TEXT.len() / 2;
    let plain = |sent: usize| {
        let length = TEXT.len();
        format!(
            "HTTP/1.1 200 OK\r\netag: \"a\"\r\ncontent-length: {length}\r\n\r\n{}",
            &TEXT[..sent]
        )
    };
    let range = format!(
        "etag: \"a\"\r\ncontent-range: bytes {half}-{}/{}\r\n",
        TEXT.len() - 1,
        TEXT.len()
    );
    // The server compresses the whole file instead of the rest. Decoded, it is longer than the range.
    let directory = Directory::new();
    let rest = gzipped(206, &range, GZIPPED.len());
    let server = Server::start(move |index| match index {
        0 => reply(plain(half), Then::Close),
        1 => reply(rest.clone(), Then::Close),
        _ => reply(plain(TEXT.len()), Then::Close),
    })
    .await;
    let client = client(direct(), retry());
    let download = in_time(client.get(server.url()).download().into_future()).await;
    let saved = in_time(download.unwrap().save(directory.file("data"))).await;
    assert_eq!(saved.unwrap(), TEXT.len() as u64);
    assert_eq!(
        std::fs::read_to_string(directory.file("data")).unwrap(),
        TEXT
    );
    assert_eq!(server.count(), 3);

    // The rest of the compressed file cannot be decoded, so no byte of it counts.
    let directory = Directory::new();
    let mut rest = gzipped(206, &range, GZIPPED.len());
    let body = rest.len() - GZIPPED.len();
    rest.drain(body..body + half);
    let server = Server::start(move |index| match index {
        0 => reply(plain(half), Then::Close),
        _ => reply(rest.clone(), Then::Close),
    })
    .await;
    let download = client.get(server.url()).download().max_resumes(2);
    let download = in_time(download.into_future()).await.unwrap();
    let error = in_time(download.save(directory.file("data"))).await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("no resumes are left"), "{text}");
    assert_eq!(server.count(), 3);
    let part = directory.names();
    assert_eq!(part.len(), 1, "{part:?}");
    assert_eq!(
        std::fs::read_to_string(directory.file(&part[0])).unwrap(),
        TEXT[..half]
    );
}

/// Packs the bytes by gzip, in blocks that are not compressed (RFC 1951 §3.2.4). The end of the stream is missing.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GZIPPED[..10].to_vec();
    for block in bytes.chunks(60_000) {
        let length = block.len() as u16;
        gzip.push(0);
        gzip.extend(length.to_le_bytes());
        gzip.extend((!length).to_le_bytes());
        gzip.extend(block);
    }
    gzip
}

/// Responses that announce the rest of a file of 200,000 bytes from this offset on, and break off in the whole file.
fn wrong_rests(file: &[u8], from: usize) -> [(&'static str, Vec<u8>); 3] {
    let head = |more: &str| {
        let range = format!("bytes {from}-199999/200000");
        format!("HTTP/1.1 206 OK\r\netag: \"a\"\r\ncontent-range: {range}\r\n{more}\r\n\r\n")
    };
    let gzip = stored(file);
    let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes].concat();
    let with = |head: String, body: &[u8]| [head.as_bytes(), body].concat();
    let encoded = "content-encoding: gzip\r\n";
    let length = format!("{encoded}content-length: {}", gzip.len());
    let chunked = "transfer-encoding: chunked";
    [
        ("decoded", with(head(&length), &gzip[..80_000])),
        (
            "decoded and chunked",
            with(
                head(&format!("{encoded}{chunked}")),
                &chunk(&gzip)[..80_000],
            ),
        ),
        ("chunked", with(head(chunked), &chunk(file)[..80_000])),
    ]
}

#[tokio::test]
async fn the_wrong_bytes_of_a_rest_that_breaks_off_are_not_kept() {
    let file: Vec<u8> = (0..200_000_u32).map(|at| (at * 31 % 251) as u8).collect();
    for (name, wrong) in wrong_rests(&file, 50_000) {
        let start = || {
            let (file, wrong) = (file.clone(), wrong.clone());
            Server::start(move |index| {
                let head = match index {
                    0 => "200 OK\r\ncontent-length: 200000",
                    1 => return reply(wrong.clone(), Then::Close),
                    _ => {
                        "206 OK\r\ncontent-length: 150000\r\ncontent-range: bytes 50000-199999/200000"
                    }
                };
                let head = format!("HTTP/1.1 {head}\r\netag: \"a\"\r\n\r\n");
                let part = if index == 0 {
                    &file[..50_000]
                } else {
                    &file[50_000..]
                };
                reply([head.as_bytes(), part].concat(), Then::Close)
            })
        };
        let directory = Directory::new();
        let server = start().await;
        let client = client(direct(), retry());
        let download = in_time(client.get(server.url()).download().into_future()).await;
        let saved = in_time(download.unwrap().save(directory.file("data"))).await;
        assert_eq!(saved.unwrap(), 200_000, "{name}");
        assert!(
            std::fs::read(directory.file("data")).unwrap() == file,
            "{name}"
        );
        assert_eq!(server.count(), 3, "{name}");
        assert_eq!(
            server.requests()[2].header("range"),
            Some("bytes=50000-"),
            "{name}"
        );

        // A stream cannot take bytes back.
        let server = start().await;
        let download = client.get(server.url()).download();
        let mut download = in_time(download.into_future()).await.unwrap();
        let error = loop {
            match in_time(download.chunk()).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{name}: the bytes are wrong"),
                Err(error) => break error,
            }
        };
        assert!(
            DownloadError::of(&error).is_some_and(DownloadError::is_changed),
            "{name}: {error:?}"
        );
    }
}

type Frames = Pin<Box<dyn Stream<Item = io::Result<Frame<Bytes>>> + Send>>;

/// What an encoded body does after the bytes that it has sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum After {
    End,
    Break,
    Stall,
}

/// A gzipped body that pauses after its bytes, so that they arrive first.
fn encoded(sent: &[u8], after: After) -> Frames {
    let bytes = Bytes::copy_from_slice(sent);
    let sent = stream::iter([Ok(Frame::data(bytes))]);
    let last = stream::once(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        match after {
            After::End => Ok(Frame::data(Bytes::new())),
            After::Break => Err(io::ErrorKind::ConnectionReset.into()),
            After::Stall => std::future::pending().await,
        }
    });
    Box::pin(sent.chain(last))
}

#[tokio::test]
async fn an_encoded_body_is_inspected_in_every_shape() {
    let stored = stored(b"plain text");
    for version in [Version::HTTP_11, Version::HTTP_2] {
        // What is sent, what follows, the limit, what the function sees first, and the number of requests.
        for (name, sent, after, limit, sight, expected) in [
            ("whole", GZIPPED, After::End, 1000, (TEXT, true), 1),
            (
                "over the limit",
                GZIPPED,
                After::End,
                8,
                (&TEXT[..8], false),
                1,
            ),
            ("broken", &stored, After::Break, 1000, (TEXT, true), 2),
            (
                "broken after the limit",
                &stored,
                After::Break,
                5,
                ("plain", false),
                1,
            ),
            (
                "stalling",
                &stored,
                After::Stall,
                1000,
                ("plain text", false),
                1,
            ),
        ] {
            let place = format!("{name} over {version:?}");
            let count = Arc::new(AtomicUsize::new(0));
            let (seen, sent) = (count.clone(), sent.to_vec());
            let server = HyperServer::start(version, move |_| {
                let body = match seen.fetch_add(1, Ordering::SeqCst) {
                    0 => encoded(&sent, after),
                    _ => encoded(GZIPPED, After::End),
                };
                let response = Response::builder().header("content-encoding", "gzip");
                async { response.body(StreamBody::new(body)).unwrap() }
            })
            .await;
            let notes = Arc::new(Mutex::new(Vec::new()));
            let noted = notes.clone();
            let what = Inspect::all()
                .limit(limit)
                .timeout(Duration::from_millis(300));
            let retry = retry().inspect_body(what, move |_, start| {
                let text = start.text().into_owned();
                noted.lock().unwrap().push((text, start.is_complete()));
                None
            });
            let inner = match version {
                Version::HTTP_2 => direct().http2_prior_knowledge(),
                _ => direct(),
            };
            let (response, _) = reported(client(inner, retry).get(&server.url)).await;
            assert_eq!(count.load(Ordering::SeqCst), expected, "{place}");
            let (text, is_complete) = sight;
            let sight = (text.to_owned(), is_complete);
            assert_eq!(*notes.lock().unwrap(), [sight], "{place}");
            let response = response.unwrap();
            match (after, expected) {
                (After::End, _) | (_, 2) => {
                    assert_eq!(in_time(response.text()).await.unwrap(), TEXT, "{place}");
                }
                (After::Break, _) => assert!(in_time(response.text()).await.is_err(), "{place}"),
                (After::Stall, _) => {
                    let mut response = response;
                    let chunk = in_time(response.chunk()).await.unwrap().unwrap();
                    assert!(b"plain text".starts_with(&chunk), "{place}");
                }
            }
        }
    }
}
