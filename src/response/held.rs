//! Holds the result of an attempt that may still become the result of the call.

use reqwest::Response;
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::drain::{drain_end, is_worth_reading};
use super::reader::{BodyReader, Extent};
use crate::clock;

/// At most this much of a held body is read into memory. The rest stays on its connection.
const HELD_BYTES: usize = 16 * 1024;

/// The result of an attempt that the caller gets if a throttle refuses the next attempt.
pub(crate) struct HeldResponse {
    reader: Result<BodyReader>,
    /// How reading the body ended. `None` if it was not read, or not within its time.
    ended: Option<Result<Extent>>,
}

impl HeldResponse {
    pub(crate) fn new(result: Result<Response>) -> Self {
        Self {
            reader: result.map(|response| BodyReader::new(response, None)),
            ended: None,
        }
    }

    /// Reads up to 16 KiB of the body, so that its connection can be used again. The time limit is that of
    /// [`drain`](super::drain).
    pub(crate) async fn read_ahead(&mut self, latest: Instant) {
        let Ok(reader) = &mut self.reader else {
            return;
        };
        if !is_worth_reading(&reader.response) {
            return;
        }
        self.ended = clock::within(drain_end(latest), reader.read(HELD_BYTES)).await;
    }

    /// Returns the result as it was: a body that was read ahead starts from its beginning.
    pub(crate) fn into_result(self) -> Result<Response> {
        let reader = self.reader?;
        Ok(match self.ended {
            Some(Ok(Extent::Whole)) => reader.into_buffered().into_response(),
            Some(Ok(Extent::Part)) | None => reader.into_stream(),
            Some(Err(error)) => reader.into_broken(error),
        })
    }
}
