//! What the tests stand on.

pub(crate) mod log;
pub(crate) mod outcome;
pub(crate) mod raw;
pub(crate) mod rules;
pub(crate) mod scenarios;
pub(crate) mod scripted;
pub(crate) mod service;
pub(crate) mod trace;
pub(crate) mod world;
