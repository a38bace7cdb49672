//! Uploads that are built again for each attempt: forms, files, and boundaries that do not match.

mod boundaries;
#[cfg(feature = "file")]
mod files;
#[cfg(feature = "multipart")]
mod forms;
