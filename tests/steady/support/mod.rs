//! What the tests stand on.

pub(crate) mod log;
pub(crate) mod raw;
pub(crate) mod scenarios;
pub(crate) mod scripted;
pub(crate) mod stacks;
pub(crate) mod tls;
pub(crate) mod trace;
