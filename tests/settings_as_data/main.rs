//! Settings as data: from files, to files, and exchanged while a client runs.

mod bad_files;
mod files;
mod presets;
mod replace;
mod sdk;
