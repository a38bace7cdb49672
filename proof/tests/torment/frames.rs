//! Invalid HTTP/2 frames, inserted between the frames of a library.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;

// Types of frames (RFC 9113 §6) and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The length of a frame header: length, type, flags, stream.
const HEAD: usize = 9;

/// What to write to a connection, between two frames.
pub(crate) enum Raw {
    /// More frames.
    Frames(Vec<u8>),
    /// These frames, and then a close.
    Last(Vec<u8>),
    Break,
}

/// Returns a complete response: headers and a body.
pub(crate) fn response(stream: u32, body: &str) -> Vec<u8> {
    let mut frames = frame(HEADERS, END_HEADERS, stream, &block(body.len()));
    frames.extend(frame(DATA, END_STREAM, stream, body.as_bytes()));
    frames
}

/// Returns headers that need a CONTINUATION frame (RFC 9113 §6.10).
pub(crate) fn headers_without_end(stream: u32) -> Vec<u8> {
    frame(HEADERS, 0, stream, &block(100))
}

/// Returns headers in a frame that is shorter than announced.
pub(crate) fn torn_headers(stream: u32) -> Vec<u8> {
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

/// Encodes status 200 and a length. It does not use or change the dynamic table of HPACK, so the headers of the library
/// stay valid.
fn block(length: usize) -> Vec<u8> {
    // Entry 8 of HPACK's static table (RFC 7541, appendix A) is `:status: 200`, and 28 `content-length`: a literal
    // without indexing.
    let mut block = b"\x88\x0f\x0d".to_vec();
    let length = length.to_string();
    block.push(u8::try_from(length.len()).unwrap());
    block.extend(length.as_bytes());
    block
}

/// Copies bytes between the library and the client until either ends the connection.
pub(crate) async fn carry(
    tcp: &mut TcpStream,
    library: DuplexStream,
    mut raws: UnboundedReceiver<Raw>,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = tcp.split();
    let (mut from_library, mut to_library) = tokio::io::split(library);
    let inbound = async {
        // However the connection ends, the library sees the end and may write last bytes.
        let _ = tokio::io::copy(&mut from_client, &mut to_library).await;
        let _ = to_library.shutdown().await;
        std::future::pending().await
    };
    let outbound = async {
        let mut written = Vec::new();
        loop {
            tokio::select! {
                read = from_library.read_buf(&mut written) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    let whole = whole_frames(&written);
                    to_client.write_all(&written[..whole]).await?;
                    written.drain(..whole);
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

/// Returns the number of bytes in complete frames.
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
