//! Reads response bodies: discards one before a retry, holds one that may still be needed, or buffers one.
//!
//! - [`drain`] reads a discarded response to its end, so that its connection can be used again.
//! - [`HeldResponse`] keeps the last response while a throttle decides about the next attempt.
//! - [`buffer`] reads a body into memory; coalescing does the same with a [`BodyReader`].
//! - [`FirstEvent`] finds the end of the first event of a stream.

mod chunks;
mod drain;
mod first_event;
mod held;
mod prefixed;
mod reader;

pub(crate) use drain::drain;
pub(crate) use first_event::FirstEvent;
pub(crate) use held::HeldResponse;
pub(crate) use reader::{BodyReader, BufferedResponse, Extent, buffer, expected_length};
