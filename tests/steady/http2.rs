//! HTTP/2 proves that some requests were not processed (RFC 9113 §8.7): a refused stream, and a
//! stream above the last one in a GOAWAY. Nothing else is a proof. The frames are written by hand, so
//! each test shows exactly what was on the wire.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use reqwest_middleware::{ClientWithMiddleware, RequestBuilder};
use reqwest_steady::{BodyVerdict, Budget, Inspect, ReportSlot, RequestBuilderExt, StopReason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::support::raw::{client, direct, in_time, outcomes, reported, retry};

// Types of frames, RFC 9113 §6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

// Flags.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

// Error codes, RFC 9113 §7.
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

/// A step of the server's response to a request.
#[derive(Clone, Copy)]
enum Act {
    /// Status 200, and no body.
    Respond,
    /// Status 200, and a content length of 100 bytes.
    Head,
    /// This many bytes of the body, marked as the last.
    LastBytes(u8),
    /// Headers that another frame should continue (RFC 9113 §6.10).
    HeadWithoutEnd,
    /// The first bytes of a frame.
    TornHead,
    /// A DATA frame without a stream (RFC 9113 §6.1). The client must end the connection.
    Violation,
    ResetStream(u32),
    /// No stream was, or will be, processed.
    GoAwayBefore(u32),
    /// This stream was, or will be, processed.
    GoAwayAfter(u32),
    Close,
    /// RST of the TCP connection.
    Break,
    /// Waits for [`Server::go_on`].
    Wait,
}

type Script = fn(usize) -> &'static [Act];

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: AtomicUsize,
    request: Notify,
    go_on: Notify,
}

/// Closes all its connections when dropped.
struct Server {
    url: String,
    seen: Arc<Seen>,
    _accepting: JoinSet<()>,
}

impl Server {
    /// `script` gets the number of earlier requests.
    async fn start(script: Script) -> Self {
        Self::start_with(&[], script).await
    }

    /// Allows one concurrent request per connection.
    async fn start_narrow(script: Script) -> Self {
        // SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 §6.5.2) is 1.
        Self::start_with(&[0, 3, 0, 0, 0, 1], script).await
    }

    async fn start_with(settings: &'static [u8], script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/orders", listener.local_addr().unwrap());
        let seen = Arc::new(Seen::default());
        let mut accepting = JoinSet::new();
        let shared = seen.clone();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let seen = shared.clone();
                connections.spawn(async move { serve(tcp, settings, &seen, script).await });
            }
        });
        Self {
            url,
            seen,
            _accepting: accepting,
        }
    }

    fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Waits for another request, or for the start of one.
    async fn request(&self) {
        in_time(self.seen.request.notified()).await;
    }

    fn go_on(&self) {
        self.seen.go_on.notify_one();
    }

    fn count(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }
}

/// Runs one connection until either side ends it.
async fn serve(mut tcp: TcpStream, settings: &[u8], seen: &Seen, script: Script) -> io::Result<()> {
    tcp.read_exact(&mut [0; PREFACE]).await?;
    write_frame(&mut tcp, SETTINGS, 0, 0, settings).await?;
    loop {
        let (kind, flags, stream) = read_frame(&mut tcp).await?;
        if kind == SETTINGS && flags & ACK == 0 {
            write_frame(&mut tcp, SETTINGS, ACK, 0, &[]).await?;
        }
        // Half a request counts as well.
        if kind == HEADERS {
            seen.requests.fetch_add(1, Ordering::SeqCst);
            seen.request.notify_one();
        }
        if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
            for act in script(seen.requests.load(Ordering::SeqCst) - 1) {
                perform(*act, &mut tcp, stream, seen).await?;
            }
        }
    }
}

async fn perform(act: Act, tcp: &mut TcpStream, stream: u32, seen: &Seen) -> io::Result<()> {
    /// Entry 8 of HPACK's static table (RFC 7541, appendix A) is `:status: 200`.
    const STATUS_200: &[u8] = b"\x88";
    /// Then a literal whose name is entry 28, `content-length`.
    const LENGTH_100: &[u8] = b"\x88\x0f\x0d\x03100";

    match act {
        Act::Respond => {
            let flags = END_HEADERS | END_STREAM;
            write_frame(tcp, HEADERS, flags, stream, STATUS_200).await
        }
        Act::Head => write_frame(tcp, HEADERS, END_HEADERS, stream, LENGTH_100).await,
        Act::LastBytes(length) => {
            let body = vec![b'x'; length.into()];
            write_frame(tcp, DATA, END_STREAM, stream, &body).await
        }
        Act::HeadWithoutEnd => write_frame(tcp, HEADERS, 0, stream, LENGTH_100).await,
        Act::TornHead => tcp.write_all(&[0, 0, 100, HEADERS, END_HEADERS]).await,
        Act::Violation => write_frame(tcp, DATA, 0, 0, b"for nobody").await,
        Act::ResetStream(code) => {
            write_frame(tcp, RST_STREAM, 0, stream, &code.to_be_bytes()).await
        }
        Act::GoAwayBefore(code) => write_go_away(tcp, 0, code).await,
        Act::GoAwayAfter(code) => write_go_away(tcp, stream, code).await,
        Act::Close => {
            tcp.shutdown().await?;
            // Closing with unread data would reset the connection instead.
            tokio::io::copy(tcp, &mut tokio::io::sink()).await?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        Act::Break => {
            tcp.set_zero_linger()?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        Act::Wait => {
            seen.go_on.notified().await;
            Ok(())
        }
    }
}

async fn write_go_away(tcp: &mut TcpStream, last_stream: u32, code: u32) -> io::Result<()> {
    let payload = [last_stream.to_be_bytes(), code.to_be_bytes()].concat();
    write_frame(tcp, GOAWAY, 0, 0, &payload).await
}

async fn write_frame(
    tcp: &mut TcpStream,
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &[u8],
) -> io::Result<()> {
    let length = u8::try_from(payload.len()).unwrap();
    let mut frame = vec![0, 0, length, kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    tcp.write_all(&frame).await
}

/// Type, flags and stream of the next frame.
async fn read_frame(tcp: &mut TcpStream) -> io::Result<(u8, u8, u32)> {
    let mut head = [0; 9];
    tcp.read_exact(&mut head).await?;
    let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = head;
    let length = u32::from_be_bytes([0, l0, l1, l2]);
    tcp.read_exact(&mut vec![0; length as usize]).await?;
    Ok((kind, flags, u32::from_be_bytes([s0, s1, s2, s3])))
}

/// A client in which reqwest repeats nothing by itself.
fn single(retry: reqwest_steady::RetryMiddlewareBuilder) -> ClientWithMiddleware {
    client(direct().http2_prior_knowledge(), retry)
}

/// A client in which reqwest repeats requests by itself, as it does by default.
fn repeating(retry: reqwest_steady::RetryMiddlewareBuilder) -> ClientWithMiddleware {
    let inner = reqwest::Client::builder().no_proxy();
    client(inner.http2_prior_knowledge(), retry)
}

/// Returns how the attempts of a call ended, and why it stopped.
async fn attempts(request: RequestBuilder) -> (Vec<String>, StopReason) {
    let (result, report) = reported(request).await;
    if let Err(error) = &result {
        assert!(error.is_request(), "{error:?}");
        assert!(error.url().is_some());
    }
    (outcomes(&report), report.stop_reason())
}

/// The server declares the first two requests unprocessed, and responds to the third.
async fn is_proof(script: Script) {
    let server = Server::start(script).await;
    let (outcomes, _) = attempts(single(retry()).get(&server.url)).await;
    assert_eq!(outcomes, ["not_processed", "not_processed", "200"]);
    assert_eq!(server.count(), 3);

    let server = Server::start(script).await;
    let post = single(retry()).post(&server.url).body("order");
    let (outcomes, stop) = attempts(post).await;
    assert_eq!(outcomes, ["not_processed"]);
    assert_eq!(stop, StopReason::NotIdempotent);
    assert_eq!(server.count(), 1);

    let server = Server::start(script).await;
    let post = single(retry().retry_unsent(true))
        .post(&server.url)
        .body("order");
    let (outcomes, _) = attempts(post).await;
    assert_eq!(outcomes, ["not_processed", "not_processed", "200"]);
    assert_eq!(server.count(), 3);
}

/// The first two requests fail, and the failure does not show whether they were processed.
async fn is_no_proof(script: Script, kind: &str) {
    for client in [single, repeating] {
        let server = Server::start(script).await;
        let (outcomes, _) = attempts(client(retry()).get(&server.url)).await;
        assert_eq!(outcomes, [kind, kind, "200"]);
        assert_eq!(server.count(), 3);

        for retry in [retry(), retry().retry_unsent(true).retry_without_key(true)] {
            let server = Server::start(script).await;
            let post = client(retry).post(&server.url).body("order");
            let (outcomes, stop) = attempts(post).await;
            assert_eq!(outcomes, [kind]);
            assert_eq!(stop, StopReason::NotIdempotent);
            assert_eq!(server.count(), 1);
        }
    }
}

fn refused_twice(index: usize) -> &'static [Act] {
    match index {
        0 | 1 => &[Act::ResetStream(REFUSED_STREAM)],
        _ => &[Act::Respond],
    }
}

fn gone_twice(index: usize) -> &'static [Act] {
    match index {
        0 | 1 => &[Act::GoAwayBefore(NO_ERROR)],
        _ => &[Act::Respond],
    }
}

#[tokio::test]
async fn a_refused_stream_was_not_processed() {
    is_proof(refused_twice).await;
}

#[tokio::test]
async fn a_refused_stream_leaves_its_connection_usable() {
    let server = Server::start(refused_twice).await;
    let (outcomes, _) = attempts(single(retry()).get(&server.url)).await;
    assert_eq!(outcomes.len(), 3);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_stream_above_a_go_away_was_not_processed() {
    is_proof(gone_twice).await;
}

#[tokio::test]
async fn a_stream_above_a_go_away_moves_to_another_connection() {
    let server = Server::start(gone_twice).await;
    let (outcomes, _) = attempts(single(retry()).get(&server.url)).await;
    assert_eq!(outcomes.len(), 3);
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn reqwest_repeats_unprocessed_requests_twice_in_one_attempt() {
    let always: [Script; 2] = [
        |_| &[Act::ResetStream(REFUSED_STREAM)],
        |_| &[Act::GoAwayBefore(NO_ERROR)],
    ];
    for script in always {
        let server = Server::start(script).await;
        let get = repeating(retry()).get(&server.url).max_retries(1);
        let (outcomes, stop) = attempts(get).await;
        assert_eq!(outcomes, ["not_processed"; 2]);
        assert_eq!(stop, StopReason::RetriesExhausted);
        assert_eq!(server.count(), 6);

        // A POST needs no opt-in because reqwest repeats it, not this crate.
        let server = Server::start(script).await;
        let post = repeating(retry()).post(&server.url).body("order");
        let (outcomes, stop) = attempts(post).await;
        assert_eq!(outcomes, ["not_processed"]);
        assert_eq!(stop, StopReason::NotIdempotent);
        assert_eq!(server.count(), 3);
    }

    for script in [refused_twice, gone_twice] {
        let server = Server::start(script).await;
        let (outcomes, _) = attempts(repeating(retry()).get(&server.url)).await;
        assert_eq!(outcomes, ["200"]);
        assert_eq!(server.count(), 3);
    }
}

#[tokio::test]
async fn a_stream_that_a_go_away_covers_may_have_been_processed() {
    let script: Script = |index| match index {
        0 | 1 => &[Act::GoAwayAfter(NO_ERROR), Act::Close],
        _ => &[Act::Respond],
    };
    is_no_proof(script, "reset").await;
}

#[tokio::test]
async fn a_stream_that_a_go_away_covers_may_still_get_a_response() {
    let server = Server::start(|_| &[Act::GoAwayAfter(NO_ERROR), Act::Respond]).await;
    let post = single(retry()).post(&server.url).body("order");
    let (outcomes, stop) = attempts(post).await;
    assert_eq!(outcomes, ["200"]);
    assert_eq!(stop, StopReason::Succeeded);
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_go_away_with_an_error_proves_nothing() {
    let scripts: [Script; 3] = [
        |index| match index {
            0 | 1 => &[Act::GoAwayBefore(INTERNAL_ERROR)],
            _ => &[Act::Respond],
        },
        |index| match index {
            0 | 1 => &[Act::GoAwayBefore(ENHANCE_YOUR_CALM)],
            _ => &[Act::Respond],
        },
        |index| match index {
            0 | 1 => &[Act::GoAwayAfter(INTERNAL_ERROR), Act::Close],
            _ => &[Act::Respond],
        },
    ];
    for script in scripts {
        is_no_proof(script, "reset").await;
    }
}

#[tokio::test]
async fn a_stream_reset_for_another_reason_may_have_been_processed() {
    let scripts: [Script; 3] = [
        |index| match index {
            0 | 1 => &[Act::ResetStream(INTERNAL_ERROR)],
            _ => &[Act::Respond],
        },
        |index| match index {
            0 | 1 => &[Act::ResetStream(CANCEL)],
            _ => &[Act::Respond],
        },
        |index| match index {
            0 | 1 => &[Act::ResetStream(NO_ERROR)],
            _ => &[Act::Respond],
        },
    ];
    for script in scripts {
        is_no_proof(script, "reset").await;
    }
}

#[tokio::test]
async fn a_connection_that_just_ends_proves_nothing() {
    let scripts: [Script; 2] = [
        |index| match index {
            0 | 1 => &[Act::Close],
            _ => &[Act::Respond],
        },
        |index| match index {
            0 | 1 => &[Act::Break],
            _ => &[Act::Respond],
        },
    ];
    for script in scripts {
        is_no_proof(script, "reset").await;
    }
}

// Payments with a key were once lost to both cases below. A connection that ends within a frame has no error kind,
// and a connection that h2 ends takes all streams with it, including those without a violation.
#[tokio::test]
async fn a_connection_that_ends_within_headers_proves_nothing() {
    let scripts: [Script; 2] = [
        |index| match index {
            0 | 1 => &[Act::HeadWithoutEnd, Act::Close],
            _ => &[Act::Respond],
        },
        |index| match index {
            0 | 1 => &[Act::TornHead, Act::Close],
            _ => &[Act::Respond],
        },
    ];
    for script in scripts {
        is_no_proof(script, "reset").await;
    }
}

#[tokio::test]
async fn a_connection_that_is_ended_for_a_violation_proves_nothing() {
    is_no_proof(
        |index| match index {
            0 | 1 => &[Act::Violation],
            _ => &[Act::Respond],
        },
        "reset",
    )
    .await;
}

/// The first two bodies are cut short, and the third response has none.
async fn is_retried_when_buffered(script: Script) {
    let server = Server::start(script).await;
    let get = single(retry()).get(&server.url).buffer_response(1024);
    let (outcomes, _) = attempts(get).await;
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
    assert_eq!(server.count(), 3);

    let server = Server::start(script).await;
    let eager = single(retry().retry_unsent(true));
    let post = eager.post(&server.url).body("order").buffer_response(1024);
    in_time(post.send()).await.unwrap_err();
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_buffered_response_whose_stream_is_reset_is_retried() {
    is_retried_when_buffered(|index| match index {
        0 | 1 => &[Act::Head, Act::ResetStream(INTERNAL_ERROR)],
        _ => &[Act::Respond],
    })
    .await;
}

#[tokio::test]
async fn a_buffered_response_whose_connection_closes_is_retried() {
    is_retried_when_buffered(|index| match index {
        0 | 1 => &[Act::Head, Act::Close],
        _ => &[Act::Respond],
    })
    .await;
}

#[tokio::test]
async fn a_buffered_response_cut_by_a_protocol_fault_is_retried() {
    let scripts: [Script; 2] = [
        |index| match index {
            0 | 1 => &[Act::Head, Act::TornHead, Act::Close],
            _ => &[Act::Respond],
        },
        |index| match index {
            0 | 1 => &[Act::Head, Act::Violation],
            _ => &[Act::Respond],
        },
    ];
    for script in scripts {
        is_retried_when_buffered(script).await;
    }
}

#[tokio::test]
async fn a_stream_refused_after_its_headers_was_processed() {
    is_retried_when_buffered(|index| match index {
        0 | 1 => &[Act::Head, Act::ResetStream(REFUSED_STREAM)],
        _ => &[Act::Respond],
    })
    .await;
}

#[tokio::test]
async fn a_buffered_response_of_the_wrong_length_is_retried() {
    let scripts: [Script; 2] = [
        |index| match index {
            0 | 1 => &[Act::Head, Act::LastBytes(99)],
            _ => &[Act::Respond],
        },
        |index| match index {
            0 | 1 => &[Act::Head, Act::LastBytes(101)],
            _ => &[Act::Respond],
        },
    ];
    for script in scripts {
        is_retried_when_buffered(script).await;
    }
}

// hyper treats the two reasons below as the end of a body, even of an incomplete one.
#[tokio::test]
async fn a_buffered_response_whose_stream_is_cancelled_is_retried() {
    let scripts: [Script; 2] = [
        |index| match index {
            0 | 1 => &[Act::Head, Act::ResetStream(CANCEL)],
            _ => &[Act::Respond],
        },
        |index| match index {
            0 | 1 => &[Act::Head, Act::ResetStream(NO_ERROR)],
            _ => &[Act::Respond],
        },
    ];
    for script in scripts {
        is_retried_when_buffered(script).await;
    }
}

// Over HTTP/2, calls wait together for one connection. If it fails, only one of them gets the reason.
#[tokio::test]
async fn calls_that_waited_for_a_refused_connection_are_retried() {
    let refusing = TcpSocket::new_v4().unwrap();
    refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/orders", refusing.local_addr().unwrap());
    let client = single(retry().budget(Budget::unlimited()));
    let calls = (0..50).map(|_| attempts(client.get(&url).max_retries(2)));
    for (outcomes, stop) in join_all(calls).await {
        assert_eq!(outcomes, ["connect"; 3]);
        assert_eq!(stop, StopReason::RetriesExhausted);
    }

    let careful = single(retry());
    let calls = (0..50).map(|_| attempts(careful.post(&url).body("order")));
    for (outcomes, stop) in join_all(calls).await {
        assert_eq!(outcomes, ["connect"]);
        assert_eq!(stop, StopReason::NotIdempotent);
    }

    let eager = single(retry().retry_unsent(true).budget(Budget::unlimited()));
    let calls = (0..50).map(|_| attempts(eager.post(&url).body("order").max_retries(2)));
    for (outcomes, _) in join_all(calls).await {
        assert_eq!(outcomes, ["connect"; 3]);
    }
}

/// Makes a call while another one has the only stream of a connection, which the server then ends.
async fn in_turn(server: &Server, request: RequestBuilder) -> (Vec<String>, StopReason) {
    server.request().await;
    let mut call = pin!(attempts(request));
    // This poll hands the call to the connection, where it waits. Everything runs on one thread in wake-up order,
    // so the connection has the call before the server continues.
    assert!(call.as_mut().now_or_never().is_none());
    server.go_on();
    call.await
}

// In this case hyper reports a mistake of the user, not the end of the connection.
#[tokio::test]
async fn a_call_waiting_on_a_connection_that_ended_is_retried() {
    let scripts: [Script; 2] = [
        |index| match index {
            0 => &[Act::Wait, Act::Break],
            _ => &[Act::Respond],
        },
        |index| match index {
            0 => &[Act::Wait, Act::GoAwayAfter(INTERNAL_ERROR), Act::Close],
            _ => &[Act::Respond],
        },
    ];
    for script in scripts {
        let server = Server::start_narrow(script).await;
        let client = single(retry());
        // The first request is sent. The other one waits until the connection ends.
        let other = in_turn(&server, client.get(&server.url));
        let (first, other) = join(attempts(client.get(&server.url)), other).await;
        assert_eq!(first.0, ["reset", "200"]);
        assert_eq!(other.0, ["reset", "200"]);
        assert_eq!(server.count(), 3);

        let server = Server::start_narrow(script).await;
        let client = single(retry().retry_unsent(true).retry_without_key(true));
        let other = in_turn(&server, client.post(&server.url).body("order"));
        let (_, other) = join(attempts(client.get(&server.url)), other).await;
        assert_eq!(other.0, ["reset"]);
        assert_eq!(other.1, StopReason::NotIdempotent);
    }
}

#[tokio::test]
async fn a_server_without_http2_gets_no_retries() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let seen = connections.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            seen.fetch_add(1, Ordering::Relaxed);
            let response =
                b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            // The client may have disconnected already.
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(response).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let client = client(direct().http2_prior_knowledge(), retry());
    let slot = ReportSlot::new();
    let sent = client.get(&url).report_to(&slot).send();
    in_time(sent).await.unwrap_err();
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    assert_eq!(slot.get().unwrap().stop_reason(), StopReason::NotRetryable);
}

/// A budget without a reserve that pays for this many retries, and no more.
fn budget_for(retries: u32) -> Budget {
    let budget = Budget::builder().min_retries_per_sec(0.0).retry_ratio(1.0);
    let budget = budget.build().unwrap();
    (0..retries).for_each(|_| budget.deposit());
    budget
}

fn always_refused(_: usize) -> &'static [Act] {
    &[Act::ResetStream(REFUSED_STREAM)]
}

#[tokio::test]
async fn two_retries_of_what_was_not_processed_are_free() {
    for script in [refused_twice as Script, gone_twice] {
        let server = Server::start(script).await;
        let client = single(retry().budget(budget_for(0)));
        let (outcomes, stop) = attempts(client.get(&server.url)).await;
        assert_eq!(outcomes, ["not_processed", "not_processed", "200"]);
        assert_eq!(stop, StopReason::Succeeded);
    }
}

#[tokio::test]
async fn more_retries_of_what_was_not_processed_are_paid() {
    for paid in [0, 1, 3] {
        let server = Server::start(always_refused).await;
        let budget = budget_for(paid);
        let client = single(retry().budget(budget.clone()));
        let (outcomes, stop) = attempts(client.get(&server.url)).await;
        assert_eq!(outcomes.len(), 1 + 2 + paid as usize);
        let expected = match paid {
            3 => StopReason::RetriesExhausted,
            _ => StopReason::BudgetEmpty,
        };
        assert_eq!(stop, expected);
        assert_eq!(budget.balance(), 0.0);
    }
}

#[tokio::test]
async fn a_host_in_trouble_gets_no_free_retries() {
    // More was withdrawn than deposited, so the host fails more often than its successes pay for.
    let budget = Budget::builder().retry_ratio(0.1).min_retries_per_sec(0.1);
    let budget = budget.build().unwrap();
    assert!(budget.try_withdraw());
    let server = Server::start(always_refused).await;
    let client = single(retry().budget(budget));
    let (outcomes, stop) = attempts(client.get(&server.url)).await;
    assert_eq!(outcomes, ["not_processed"]);
    assert_eq!(stop, StopReason::BudgetEmpty);
    assert_eq!(server.count(), 1);
}

/// Makes this many calls with the default budget, and returns how many requests arrived.
async fn requests_of(calls: usize, max_retries: u32, script: Script) -> usize {
    let server = Server::start(script).await;
    let client = single(retry().max_retries(max_retries));
    for _ in 0..calls {
        attempts(client.get(&server.url)).await;
    }
    server.count()
}

#[tokio::test]
async fn a_server_that_refuses_every_stream_uses_up_the_budget() {
    // The default reserve pays for 20 retries in 10 s. With 5 retries, free ones end with the first that is paid.
    let requests = requests_of(100, 5, always_refused).await;
    assert!(requests <= 100 + 20 + 2 + 20, "{requests}");
    // With 2 retries none is paid until 500 were free.
    let requests = requests_of(1000, 2, always_refused).await;
    assert!(requests <= 1000 + 500 + 2 + 40, "{requests}");
}

#[tokio::test]
async fn a_server_that_sheds_streams_gets_few_free_retries() {
    // Two of three streams are refused, so a call takes 2 free retries and 1 success: 3 more are unpaid each time.
    fn two_of_three(index: usize) -> &'static [Act] {
        match index % 3 {
            2 => &[Act::Respond],
            _ => &[Act::ResetStream(REFUSED_STREAM)],
        }
    }
    let requests = requests_of(2000, 2, two_of_three).await;
    // 334 calls until then; after that, a fifth of the successes and the reserve pay.
    assert!(requests < 2000 + 2 * 350 + 700, "{requests}");
}

#[tokio::test]
async fn an_inspected_response_whose_stream_is_reset_is_retried() {
    let server = Server::start(|index| match index {
        0 | 1 => &[Act::Head, Act::ResetStream(INTERNAL_ERROR)],
        _ => &[Act::Respond],
    })
    .await;
    let inspecting = || {
        retry().inspect_body(Inspect::all(), |_, start| {
            assert!(start.is_complete() && start.bytes().is_empty());
            None
        })
    };
    let (outcomes, reason) = attempts(single(inspecting()).get(&server.url)).await;
    assert_eq!(
        (outcomes.len(), reason),
        (3, StopReason::Succeeded),
        "{outcomes:?}"
    );
    assert_eq!(server.count(), 3);
}

#[tokio::test]
async fn an_inspected_response_can_be_final_over_http_2() {
    let server = Server::start(|_| &[Act::Head, Act::LastBytes(100)]).await;
    let inspecting = retry().inspect_body(Inspect::all(), |_, start| {
        assert!(start.is_complete());
        (start.bytes().len() == 100).then(BodyVerdict::never)
    });
    let (response, report) = reported(single(inspecting).get(&server.url)).await;
    assert_eq!(report.stop_reason(), StopReason::NotRetryable);
    assert_eq!(response.unwrap().bytes().await.unwrap().len(), 100);
    assert_eq!(server.count(), 1);
}
