//! Helpers that the tests share.

pub(crate) mod chains;
#[allow(dead_code, reason = "only letters in files need it, behind a feature")]
pub(crate) mod directory;
pub(crate) mod file_server;
pub(crate) mod hyper_server;
pub(crate) mod log;
pub(crate) mod raw;
pub(crate) mod scripted;
pub(crate) mod stacks;
pub(crate) mod trace;
