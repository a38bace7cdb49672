//! A `body_with` whose boundary differs from that of its `Content-Type`.

use reqwest::Body;
use reqwest_steady::{ConfigError, RequestBuilderExt, SteadyError};

use crate::support::scripted::{Server, URL};
use crate::support::stacks::{MS, retry_after};

fn stream(chunks: &'static [&'static str]) -> Body {
    let chunks = chunks.iter().map(|chunk| Ok::<_, std::io::Error>(*chunk));
    Body::wrap_stream(futures_util::stream::iter(chunks))
}

#[tokio::test(start_paused = true)]
async fn a_stale_boundary_is_refused_before_anything_is_sent() {
    let server = Server::statuses([503, 200]);
    let client = server.client(retry_after(MS).build().unwrap());
    let put = || {
        let put = client.put(URL);
        put.header("content-type", "multipart/form-data; boundary=first")
    };
    for request in [
        put().body_with(|| "--second\r\n\r\nvalue\r\n--second--\r\n"),
        put().body_with(|| stream(&["--second\r\n", "\r\nvalue\r\n--second--\r\n"])),
    ] {
        let error = request.send().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "not sent to api.example.com: body_with (boundary \"second\" in the body, \"first\" in \
             Content-Type) should use one boundary: use `multipart_with`, which sends each form with \
             its own header"
        );
        let invalid = SteadyError::of(&error).and_then(SteadyError::invalid);
        assert!(invalid.is_some_and(|error| error.is::<ConfigError>()));
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_with_the_right_boundary_is_sent_again() {
    let right: fn() -> Body = || "--fixed\r\n\r\nvalue\r\n--fixed--\r\n".into();
    let streamed: fn() -> Body = || stream(&["--fi", "xed\r\n\r\nvalue\r\n--fixed--\r\n"]);
    let preamble: fn() -> Body = || "a preamble\r\n--fixed\r\n\r\nvalue\r\n--fixed--\r\n".into();
    let pending: fn() -> Body =
        || Body::wrap_stream(futures_util::stream::pending::<std::io::Result<&str>>());
    for body in [right, streamed, preamble, pending] {
        let server = Server::statuses([503, 200]);
        let client = server.client(retry_after(MS).build().unwrap());
        let put = client.put(URL);
        let put = put.header("content-type", "multipart/form-data; boundary=\"fixed\"");
        assert_eq!(put.body_with(body).send().await.unwrap().status(), 200);
        assert_eq!(server.gaps(), [MS]);
    }
}
