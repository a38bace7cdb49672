//! HTTP/2, where the end of one connection ends a hundred requests.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Method, Request, Response, StatusCode};
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::faults::{Fault, HTTP2, ON_ACCEPT, RATE_LIMIT};
use crate::frames::{self, Raw};
use crate::ledger::{Entry, Order, Receipt};
use crate::server::{SLOW_WORK, ServerState};

/// A signal of a stream to its connection.
enum Signal {
    GoAway,
    GoAwayAtOnce(Reason),
    Raw(Raw),
}

pub(crate) async fn serve(mut tcp: TcpStream, state: Arc<ServerState>) -> io::Result<()> {
    if state.dice.draw(ON_ACCEPT) == Fault::ResetOnAccept {
        return tcp.set_zero_linger();
    }
    tcp.set_nodelay(true)?;
    // Some frames bypass `h2`.
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (raw, raws) = mpsc::unbounded_channel();
    let (carried, talked) =
        tokio::join!(frames::carry(&mut tcp, far, raws), talk(near, state, raw));
    carried.and(talked)
}

async fn talk(
    wire: DuplexStream,
    state: Arc<ServerState>,
    raw: mpsc::UnboundedSender<Raw>,
) -> io::Result<()> {
    let handshake = h2::server::handshake(wire).await;
    let mut connection = handshake.map_err(io::Error::other)?;
    let mut hang_up = state.hang_up.subscribe();
    let (say, mut signals) = mpsc::unbounded_channel();
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(Ok((request, respond))) = accepted else {
                    return Ok(());
                };
                streams.spawn(respond_to(request, respond, state.clone(), say.clone()));
            }
            Some(signal) = signals.recv() => match signal {
                Signal::GoAway => connection.graceful_shutdown(),
                Signal::GoAwayAtOnce(reason) => connection.abrupt_shutdown(reason),
                Signal::Raw(frames) => {
                    let _ = raw.send(frames);
                }
            },
            Ok(()) = hang_up.changed() => connection.graceful_shutdown(),
            Some(_) = streams.join_next() => {}
        }
    }
}

/// Responds to one request. Errors of the stream are ignored, because the client has gone.
async fn respond_to(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    state: Arc<ServerState>,
    say: mpsc::UnboundedSender<Signal>,
) -> Option<()> {
    let fault = state.dice.draw(HTTP2);
    if fault == Fault::RefusedStream {
        respond.send_reset(Reason::REFUSED_STREAM);
        return None;
    }
    if request.method() == Method::GET {
        // The client follows a 303 that has accepted the payment.
        return send(&mut respond, Response::builder().status(502), "lost");
    }
    let order = read_order(request, &state).await?;
    match fault {
        Fault::Silence => return silence(&mut respond).await,
        Fault::Busy => {
            let head = Response::builder().status(503);
            let head = match state.dice.below(40) {
                hint @ 0..20 => head.header("retry-after-ms", hint),
                _ => head,
            };
            return send(&mut respond, head, "later");
        }
        Fault::Limited => {
            let head = Response::builder().status(429);
            let head = match state.dice.below(2) {
                0 => head.header("retry-after", "0"),
                _ => head,
            };
            return send(&mut respond, head, "slower");
        }
        Fault::TemporaryRedirect => {
            let head = Response::builder().status(307);
            return send(&mut respond, head.header("location", "/orders"), "");
        }
        _ => {}
    }
    let receipt = match state.ledger.begin(&order) {
        Entry::InProgress => {
            return send(&mut respond, Response::builder().status(409), "wait");
        }
        Entry::Known(receipt) => receipt,
        Entry::Fresh if fault == Fault::SlowWork => {
            // The work continues after the stream or its connection has ended.
            let state = state.clone();
            let work = tokio::spawn(async move {
                tokio::time::sleep(SLOW_WORK).await;
                state.ledger.finish(&order)
            });
            work.await.ok()?
        }
        Entry::Fresh => state.ledger.finish(&order),
    };
    report(&mut respond, &state, say, fault, receipt).await
}

/// Responds after the work, unless the fault prevents it.
async fn report(
    respond: &mut SendResponse<Bytes>,
    state: &ServerState,
    say: mpsc::UnboundedSender<Signal>,
    fault: Fault,
    receipt: Receipt,
) -> Option<()> {
    let body = receipt.to_string();
    let stream = u32::from(respond.stream_id());
    match fault {
        Fault::StreamResetAfterWork => respond.send_reset(Reason::INTERNAL_ERROR),
        Fault::StreamCancelledAfterWork => respond.send_reset(Reason::CANCEL),
        Fault::SilenceAfterWork => return silence(respond).await,
        Fault::ErrorAfterWork => {
            return send(respond, Response::builder().status(500), "done, or not?");
        }
        Fault::BodyReset => {
            let head = Response::builder().header("content-length", body.len());
            let mut stream = respond.send_response(head.body(()).ok()?, false).ok()?;
            let half = Bytes::from(body).slice(..5);
            stream.send_data(half, false).ok()?;
            // hyper reads this as the end of the body.
            stream.send_reset(Reason::NO_ERROR);
        }
        Fault::WrongLength | Fault::Surplus => {
            let length = match fault {
                Fault::WrongLength => body.len() + 7,
                _ => body.len() - 3,
            };
            let head = Response::builder().header("content-length", length);
            let mut stream = respond.send_response(head.body(()).ok()?, false).ok()?;
            stream.send_data(Bytes::from(body), true).ok()?;
        }
        Fault::SeeOtherAfterWork => {
            let head = Response::builder().status(303);
            return send(respond, head.header("location", "/orders"), "");
        }
        Fault::EarlyHints => {
            let hints = Response::builder().status(StatusCode::EARLY_HINTS);
            respond.send_informational(hints.body(()).ok()?).ok()?;
            return send(respond, Response::builder(), &body);
        }
        Fault::SlowDrip => {
            let pause = Duration::from_millis(1 + state.dice.below(20));
            let head = Response::builder().header("content-length", body.len());
            let mut stream = respond.send_response(head.body(()).ok()?, false).ok()?;
            for byte in body.into_bytes() {
                stream.send_data(vec![byte].into(), false).ok()?;
                tokio::time::sleep(pause).await;
            }
            stream.send_data(Bytes::new(), true).ok()?;
        }
        Fault::DuplicateResponse => {
            send(respond, Response::builder(), &body)?;
            // Before or after the client forgets the stream.
            tokio::time::sleep(Duration::from_millis(state.dice.below(3))).await;
            let again = frames::response(stream, &body);
            say.send(Signal::Raw(Raw::Frames(again))).ok()?;
        }
        Fault::HalfAHead => {
            let half = match state.dice.below(2) {
                0 => frames::headers_without_end(stream),
                _ => frames::torn_headers(stream),
            };
            say.send(Signal::Raw(Raw::Last(half))).ok()?;
        }
        Fault::GoAway => {
            say.send(Signal::GoAway).ok()?;
            return send(respond, Response::builder(), &body);
        }
        Fault::GoAwayAtOnce => say.send(Signal::GoAwayAtOnce(Reason::NO_ERROR)).ok()?,
        Fault::GoAwayInTrouble => say
            .send(Signal::GoAwayAtOnce(Reason::INTERNAL_ERROR))
            .ok()?,
        Fault::ConnectionBroken => say.send(Signal::Raw(Raw::Break)).ok()?,
        _ => return send(respond, Response::builder(), &body),
    }
    Some(())
}

/// Waits until the client resets the stream.
async fn silence(respond: &mut SendResponse<Bytes>) -> Option<()> {
    std::future::poll_fn(|context| respond.poll_reset(context))
        .await
        .ok()?;
    Some(())
}

fn send(
    respond: &mut SendResponse<Bytes>,
    head: http::response::Builder,
    body: &str,
) -> Option<()> {
    let head = head
        .header("content-length", body.len())
        .header("ratelimit", RATE_LIMIT);
    let mut stream = respond.send_response(head.body(()).ok()?, false).ok()?;
    stream.send_data(Bytes::from(body.to_owned()), true).ok()
}

async fn read_order(request: Request<RecvStream>, state: &ServerState) -> Option<Order> {
    let header = |name| request.headers().get(name)?.to_str().ok();
    let call = header("x-call").and_then(|call| call.parse().ok());
    let key = header("idempotency-key").map(str::to_owned);
    let mut stream = request.into_body();
    let mut body = Vec::new();
    while let Some(chunk) = stream.data().await {
        let chunk = chunk.ok()?;
        stream.flow_control().release_capacity(chunk.len()).ok()?;
        body.extend_from_slice(&chunk);
    }
    state.ledger.read(call, key, &body)
}
