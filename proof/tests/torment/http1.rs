//! HTTP/1.1 written by hand, because libraries send no invalid responses.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::faults::{Fault, HTTP1, ON_ACCEPT, RATE_LIMIT};
use crate::ledger::{Entry, Receipt};
use crate::server::{SLOW_WORK, ServerState};

type Wire = BufReader<TcpStream>;

/// Whether the connection can carry another request.
enum Then {
    KeepOpen,
    Close,
    Reset,
}

pub(crate) async fn serve(tcp: TcpStream, state: Arc<ServerState>) -> io::Result<()> {
    if state.dice.draw(ON_ACCEPT) == Fault::ResetOnAccept {
        return tcp.set_zero_linger();
    }
    tcp.set_nodelay(true)?;
    let mut wire = BufReader::new(tcp);
    let mut hang_up = state.hang_up.subscribe();
    loop {
        let idle = tokio::select! {
            begun = wire.fill_buf() => begun?.is_empty(),
            _ = hang_up.changed() => true,
        };
        if idle {
            return Ok(());
        }
        match respond(&mut wire, &state).await? {
            Then::KeepOpen => {}
            Then::Close => return wire.shutdown().await,
            Then::Reset => return wire.get_ref().set_zero_linger(),
        }
    }
}

async fn respond(wire: &mut Wire, state: &Arc<ServerState>) -> io::Result<Then> {
    let fault = state.dice.draw(HTTP1);
    if fault == Fault::ResetBeforeReading {
        return Ok(Then::Reset);
    }
    let head = read_head(wire).await?;
    if fault == Fault::ResetInTheMiddle {
        return Ok(Then::Reset);
    }
    if head.is_get {
        // The client follows a 303 that has accepted the payment.
        return write_response(wire, "502 Bad Gateway", "lost").await;
    }
    let mut body = vec![0; head.length];
    wire.read_exact(&mut body).await?;
    let order = state.ledger.read(head.call, head.key, &body);
    let order = order.ok_or(io::ErrorKind::InvalidData)?;
    match fault {
        Fault::Silence => return silence(wire).await,
        Fault::Busy => {
            let head = match state.dice.below(40) {
                hint @ 0..20 => format!("503 Busy\r\nretry-after-ms: {hint}"),
                _ => "503 Busy".to_owned(),
            };
            return write_response(wire, &head, "later").await;
        }
        Fault::Limited => {
            let head = match state.dice.below(2) {
                0 => "429 Too Many\r\nretry-after: 0",
                _ => "429 Too Many",
            };
            return write_response(wire, head, "slower").await;
        }
        Fault::TemporaryRedirect => {
            let head = "307 Temporary Redirect\r\nlocation: /orders";
            return write_response(wire, head, "").await;
        }
        _ => {}
    }
    let receipt = match state.ledger.begin(&order) {
        Entry::InProgress => return write_response(wire, "409 In Progress", "wait").await,
        Entry::Known(receipt) => receipt,
        Entry::Fresh if fault == Fault::SlowWork => {
            // The work continues after the client has gone.
            let (state, order) = (state.clone(), order.clone());
            let work = tokio::spawn(async move {
                tokio::time::sleep(SLOW_WORK).await;
                state.ledger.finish(&order)
            });
            work.await.map_err(io::Error::other)?
        }
        Entry::Fresh => state.ledger.finish(&order),
    };
    report(wire, state, fault, receipt).await
}

/// Responds after the work, unless the fault prevents it.
async fn report(
    wire: &mut Wire,
    state: &ServerState,
    fault: Fault,
    receipt: Receipt,
) -> io::Result<Then> {
    let body = receipt.to_string();
    let whole = whole_response("200 OK", &body);
    match fault {
        Fault::ResetAfterWork => Ok(Then::Reset),
        Fault::CloseAfterWork => Ok(Then::Close),
        Fault::SilenceAfterWork => silence(wire).await,
        Fault::ErrorAfterWork => write_response(wire, "500 Oops", "done, or not?").await,
        Fault::HalfAHead => {
            wire.write_all(&whole.as_bytes()[..25]).await?;
            Ok(Then::Close)
        }
        Fault::BodyCut => {
            wire.write_all(&whole.as_bytes()[..whole.len() - 5]).await?;
            Ok(Then::Reset)
        }
        Fault::WrongLength => {
            let length = body.len() + 7;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            wire.write_all((head + &body).as_bytes()).await?;
            Ok(Then::Close)
        }
        Fault::SlowDrip => {
            let pause = Duration::from_millis(1 + state.dice.below(10));
            for byte in whole.as_bytes() {
                wire.write_all(&[*byte]).await?;
                tokio::time::sleep(pause).await;
            }
            Ok(Then::KeepOpen)
        }
        Fault::SeeOtherAfterWork => {
            let head = "303 See Other\r\nlocation: /orders";
            if state.dice.below(2) == 0 {
                return write_response(wire, head, "").await;
            }
            // The next request then needs a new connection, which may be refused.
            let head = format!("{head}\r\nconnection: close");
            write_response(wire, &head, "").await?;
            Ok(Then::Close)
        }
        Fault::EarlyHints => {
            let hints = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n";
            wire.write_all(hints.as_bytes()).await?;
            wire.write_all(whole.as_bytes()).await?;
            Ok(Then::KeepOpen)
        }
        Fault::Surplus => {
            wire.write_all((whole + "and more").as_bytes()).await?;
            Ok(Then::KeepOpen)
        }
        Fault::DuplicateResponse => {
            wire.write_all(whole.repeat(2).as_bytes()).await?;
            Ok(Then::KeepOpen)
        }
        _ => {
            wire.write_all(whole.as_bytes()).await?;
            Ok(Then::KeepOpen)
        }
    }
}

/// Waits until the client closes.
async fn silence(wire: &mut Wire) -> io::Result<Then> {
    while wire.read(&mut [0; 1024]).await? > 0 {}
    Ok(Then::Close)
}

fn whole_response(head: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("HTTP/1.1 {head}\r\nratelimit: {RATE_LIMIT}");
    format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}")
}

async fn write_response(wire: &mut Wire, head: &str, body: &str) -> io::Result<Then> {
    wire.write_all(whole_response(head, body).as_bytes())
        .await?;
    Ok(Then::KeepOpen)
}

struct Head {
    is_get: bool,
    call: Option<u32>,
    key: Option<String>,
    length: usize,
}

async fn read_head(wire: &mut Wire) -> io::Result<Head> {
    let mut head = Head {
        is_get: false,
        call: None,
        key: None,
        length: 0,
    };
    loop {
        let mut line = String::new();
        if wire.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(head);
        }
        head.is_get |= line.starts_with("GET ");
        match line.split_once(": ") {
            Some(("x-call", value)) => head.call = value.parse().ok(),
            Some(("idempotency-key", value)) => head.key = Some(value.to_owned()),
            Some(("content-length", value)) => head.length = value.parse().unwrap_or(0),
            _ => {}
        }
    }
}
