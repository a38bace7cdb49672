//! Reads what is left of a response that is about to be discarded.

use std::time::Duration;

use http::Version;
use reqwest::Response;
use reqwest_middleware::Result;
use tokio::time::Instant;

use crate::clock;

/// Reading more than this costs more than a new connection.
const DRAIN_BYTES: u64 = 256 * 1024;
/// Waiting longer than this costs more than a new connection.
const DRAIN_TIME: Duration = Duration::from_millis(100);

/// Reads a discarded response to its end, so that its connection can be used again.
///
/// Stops after 256 KiB, after 100 ms, or at `latest`. The retry goes on in any case.
pub(crate) async fn drain(result: &mut Result<Response>, latest: Instant) {
    let Ok(response) = result else {
        return;
    };
    if !is_worth_reading(response) {
        return;
    }
    let read = async {
        let mut left = DRAIN_BYTES;
        while let Ok(Some(chunk)) = response.chunk().await {
            match left.checked_sub(chunk.len() as u64) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    clock::within(drain_end(latest), read).await;
}

/// Returns when to stop reading a response that is not needed any more.
pub(super) fn drain_end(latest: Instant) -> Instant {
    clock::after(clock::now(), DRAIN_TIME).min(latest)
}

/// Returns whether reading the body can save its connection.
///
/// An HTTP/2 connection is shared: dropping the response ends only its stream.
pub(super) fn is_worth_reading(response: &Response) -> bool {
    let length = response.content_length();
    response.version() < Version::HTTP_2
        && length.is_none_or(|length| (1..=DRAIN_BYTES).contains(&length))
}
