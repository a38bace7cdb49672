//! Breaks inside a TLS connection.

use crate::identity::Identity;
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
