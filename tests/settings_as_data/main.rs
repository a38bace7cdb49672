//! Settings as data: from files, to files, and exchanged while a client runs.

// Tests read tokio's paused clock themselves.
#![allow(clippy::disallowed_methods)]

mod bad_files;
mod defaults;
mod files;
mod preset_pages;
mod presets;
mod replace;
#[cfg(feature = "schema")]
mod schema;
mod sdk;
mod what_stays;
mod whole_replaces;
