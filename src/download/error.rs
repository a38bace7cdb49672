//! Why a download failed.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;

use http::StatusCode;
use reqwest_middleware::Error;

/// Reports why a download could not go on.
///
/// [`DownloadError::of`] finds it in the error of [`chunk`](crate::download::Download::chunk) and `save`. Not every
/// failure is a `DownloadError`. If a request fails and a retry would not help, its error is returned unchanged. At its
/// deadline, a download ends with a [`SteadyError`](crate::SteadyError).
///
/// ```
/// use reqwest_steady::download::{DownloadError, DownloadExt};
///
/// # async fn example(client: reqwest_middleware::ClientWithMiddleware) -> reqwest_middleware::Result<()> {
/// let mut download = client.get("https://example.com/data.bin").download().await?;
/// loop {
///     match download.chunk().await {
///         Ok(Some(chunk)) => println!("{} bytes", chunk.len()),
///         Ok(None) => break,
///         Err(error) => {
///             if DownloadError::of(&error).is_some_and(DownloadError::is_changed) {
///                 println!("the file has changed: start again");
///             }
///             return Err(error);
///         }
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DownloadError {
    kind: Kind,
    received: u64,
    length: Option<u64>,
    resumes: u32,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// The body or a request failed, and the download could not request the rest, for this reason.
    Broken(&'static str, Error),
    /// A response to a request for the rest does not fit, for this reason.
    Changed(&'static str),
    Status(StatusCode),
    #[cfg_attr(not(feature = "file"), allow(dead_code))]
    File(PathBuf, io::Error),
}

impl DownloadError {
    pub(super) fn new(kind: Kind, received: u64, length: Option<u64>, resumes: u32) -> Self {
        Self {
            kind,
            received,
            length,
            resumes,
        }
    }

    /// Returns the error of a download inside any error, if there is one.
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Middleware(error) => error.chain().find_map(|link| link.downcast_ref()),
            Error::Reqwest(_) => None,
        }
    }

    /// Returns whether the server has no rest that fits the received bytes.
    ///
    /// The file has changed, or the server breaks the rules of range requests, or a rest without a length broke off.
    /// Discard the received bytes.
    pub fn is_changed(&self) -> bool {
        matches!(self.kind, Kind::Changed(_))
    }

    /// Returns the status of a response that is not the file.
    pub fn status(&self) -> Option<StatusCode> {
        match self.kind {
            Kind::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Returns the error of a file that could not be written.
    pub fn io(&self) -> Option<&io::Error> {
        match &self.kind {
            Kind::File(_, error) => Some(error),
            _ => None,
        }
    }

    /// Returns how many bytes of the file had been received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the length of the file, if the server announced it.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns how often the download had requested the rest.
    pub fn resumes(&self) -> u32 {
        self.resumes
    }
}

impl fmt::Display for DownloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Broken(reason, _) => write!(f, "download broke off and {reason}")?,
            Kind::Changed(reason) => write!(f, "download cannot go on, because {reason}")?,
            Kind::Status(status) => write!(f, "download failed with status {status}")?,
            Kind::File(path, _) => write!(f, "download cannot be saved to {}", path.display())?,
        }
        match self.length {
            Some(length) => write!(f, " (after {} of {length} bytes", self.received)?,
            None => write!(f, " (after {} bytes", self.received)?,
        }
        match self.resumes {
            0 => write!(f, ")"),
            1 => write!(f, " and 1 resume)"),
            resumes => write!(f, " and {resumes} resumes)"),
        }
    }
}

impl StdError for DownloadError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            Kind::Broken(_, error) => Some(error),
            Kind::File(_, error) => Some(error),
            Kind::Changed(_) | Kind::Status(_) => None,
        }
    }
}
