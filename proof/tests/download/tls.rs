//! Breaks inside a TLS connection.

use crate::identity::Identity;
use crate::real_servers::CuttingProxy;
use crate::support::raw::{Server, Then, in_time, reply};
use crate::{bytes, client, quick};

#[tokio::test]
async fn a_break_inside_tls_is_mended() {
    let file = bytes(20_000);
    // The connection stalls, or closes without TLS's own message at the end.
    for then in [Then::Silence, Then::Close] {
        for cut in [1, 5_000, 16_384, 19_999] {
            let identity = Identity::of("127.0.0.1");
            let acceptor = identity.acceptor();
            let open = move |_: usize, tcp| {
                let acceptor = acceptor.clone();
                async move { acceptor.accept(tcp).await.ok() }
            };
            let (body, then) = (file.clone(), then.clone());
            let server = Server::start_with(open, move |index| {
                let head = match index {
                    0 => {
                        "HTTP/1.1 200 OK\r\netag: \"a\"\r\ncontent-length: 20000\r\n\r\n".to_owned()
                    }
                    _ => format!(
                        "HTTP/1.1 206 OK\r\netag: \"a\"\r\ncontent-length: {}\r\n\
                         content-range: bytes {cut}-19999/20000\r\n\r\n",
                        20_000 - cut
                    ),
                };
                let part = match index {
                    0 => &body[..cut],
                    _ => &body[cut..],
                };
                let bytes = [head.as_bytes(), part].concat();
                match index {
                    0 => reply(bytes, then.clone()),
                    _ => reply(bytes, Then::Close),
                }
            })
            .await;
            let url = format!("https://127.0.0.1:{}/file", server.port());
            let request = quick(client(identity.trusted()).get(url));
            let request = request.stall_timeout(std::time::Duration::from_millis(300));
            let mut download = in_time(request.into_future()).await.unwrap();
            let mut received = Vec::new();
            while let Some(chunk) = in_time(download.chunk()).await.unwrap() {
                received.extend_from_slice(&chunk);
            }
            assert!(received == file, "cut at {cut}");
            assert_eq!((server.count(), download.resumes()), (2, 1), "cut at {cut}");
            let range = format!("bytes={cut}-");
            assert_eq!(server.requests()[1].header("range"), Some(range.as_str()));
        }
    }
}

#[tokio::test]
async fn a_break_within_a_record_and_within_the_next_handshake_is_mended() {
    let head = |status: &str, length: usize, range: &str| {
        format!("HTTP/1.1 {status}\r\netag: \"a\"\r\ncontent-length: {length}\r\n{range}\r\n")
    };
    // A record has at most 16,384 bytes, so the first one ends after this many bytes of the file.
    let length = 30_000;
    let first = head("200 OK", length, "");
    let arrived = 16_384 - first.len();
    let range = format!("content-range: bytes {arrived}-{}/{length}\r\n", length - 1);
    let rest = head("206 OK", length - arrived, &range);
    let file = bytes(length);
    // The second handshake resumes a session, so the server's side of it has only about 250 bytes.
    for handshake in [0, 1, 4, 5, 60, 120] {
        let identity = Identity::of("127.0.0.1");
        let acceptor = identity.acceptor();
        let open = move |_: usize, tcp| {
            let acceptor = acceptor.clone();
            async move { acceptor.accept(tcp).await.ok() }
        };
        let replies = [
            [first.as_bytes(), &file].concat(),
            [rest.as_bytes(), &file[arrived..]].concat(),
        ];
        let server = Server::start_with(open, move |index| {
            reply(replies[index.min(1)].clone(), Then::KeepOpen)
        })
        .await;
        let proxy = CuttingProxy::with_limits(server.port(), vec![24_000, handshake]).await;
        let url = proxy.url().replace("http:", "https:");
        let request = quick(client(identity.trusted()).get(url));
        let mut download = in_time(request.into_future()).await.unwrap();
        let mut received = Vec::new();
        while let Some(chunk) = in_time(download.chunk()).await.unwrap() {
            received.extend_from_slice(&chunk);
        }
        assert!(received == file, "cut after {handshake}");
        assert_eq!((server.count(), proxy.connections()), (2, 3));
        let range = format!("bytes={arrived}-");
        assert_eq!(server.requests()[1].header("range"), Some(range.as_str()));
    }
}
