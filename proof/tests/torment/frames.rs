//! Frames of HTTP/2 that no library would send, between those of one that does.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;

// Types of frames (RFC 9113 §6) and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// What a frame begins with: length, type, flags, stream.
const HEAD: usize = 9;

/// What is done to a connection, between two frames.
pub(crate) enum Raw {
    /// More frames.
    Frames(Vec<u8>),
    /// These are the last, whatever they promise: the connection is closed.
    Last(Vec<u8>),
    Break,
}

/// A whole answer: a head and a body.
pub(crate) fn answer(stream: u32, body: &str) -> Vec<u8> {
    let mut frames = frame(HEADERS, END_HEADERS, stream, &block(body.len()));
    frames.extend(frame(DATA, END_STREAM, stream, body.as_bytes()));
    frames
}

/// A head that is to be continued (RFC 9113 §6.10).
pub(crate) fn head_without_end(stream: u32) -> Vec<u8> {
    frame(HEADERS, 0, stream, &block(100))
}

/// A head in a frame that is shorter than it says.
pub(crate) fn torn_head(stream: u32) -> Vec<u8> {
    let mut head = frame(HEADERS, END_HEADERS, stream, &block(100));
    head.truncate(HEAD + 2);
    head
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    let mut frame = vec![0, 0, length, kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Status 200 and a length. Of what both sides keep for later heads it uses nothing and adds nothing, so that
/// those of the library still mean what they say.
fn block(length: usize) -> Vec<u8> {
    // Entry 8 of HPACK's static table (RFC 7541, appendix A) is `:status: 200`, and 28 `content-length`: a literal
    // without indexing.
    let mut block = b"\x88\x0f\x0d".to_vec();
    let length = length.to_string();
    block.push(u8::try_from(length.len()).unwrap());
    block.extend(length.as_bytes());
    block
}

/// Carries what the library and the client say to each other, until one of them has ended it.
pub(crate) async fn carry(
    tcp: &mut TcpStream,
    library: DuplexStream,
    mut raws: UnboundedReceiver<Raw>,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = tcp.split();
    let (mut from_library, mut to_library) = tokio::io::split(library);
    let inbound = async {
        // However it ends, the library is told, and has the last word.
        let _ = tokio::io::copy(&mut from_client, &mut to_library).await;
        let _ = to_library.shutdown().await;
        std::future::pending().await
    };
    let outbound = async {
        let mut said = Vec::new();
        loop {
            tokio::select! {
                read = from_library.read_buf(&mut said) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    let whole = whole_frames(&said);
                    to_client.write_all(&said[..whole]).await?;
                    said.drain(..whole);
                }
                Some(raw) = raws.recv() => match raw {
                    Raw::Frames(frames) => to_client.write_all(&frames).await?,
                    Raw::Last(frames) => {
                        to_client.write_all(&frames).await?;
                        return to_client.shutdown().await;
                    }
                    Raw::Break => return to_client.as_ref().set_zero_linger(),
                },
            }
        }
    };
    tokio::select! {
        ended = outbound => ended,
        never = inbound => never,
    }
}

/// How many of these bytes are frames that are complete.
fn whole_frames(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(&[l0, l1, l2]) = bytes.get(whole..whole + 3) {
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let end = whole + HEAD + length;
        if bytes.len() < end {
            break;
        }
        whole = end;
    }
    whole
}
