//! Dead letters: when they are written, how files keep them, and how they are replayed.

#[cfg(feature = "dead-letter-file")]
mod file;
mod given_up;
#[cfg(all(feature = "dead-letter-file", unix))]
mod killed;
#[cfg(feature = "dead-letter-file")]
mod replay;
#[cfg(feature = "tracing")]
mod sinks;
#[cfg(feature = "dead-letter-file")]
mod stored;
