//! What the tests stand on.

pub(crate) mod raw;
pub(crate) mod scripted;
