//! A file that is opened again for each attempt, behind the feature `file`.
//!
//! `std::fs` opens it, because the functions that build a body are not async. `tokio::fs` reads it, in chunks.

use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use reqwest::Body;
use tokio::io::{AsyncRead, ReadBuf};

use super::{BodyError, BodySource, BuiltBody, KeptBody};

/// The most bytes of a file in memory, per attempt.
const CHUNK: usize = 64 * 1024;

/// The file of a request with `file`, as it was when that method was called.
pub(in crate::request) struct FileSource {
    path: Arc<Path>,
    /// The version of the file, or the error at which opening it failed.
    first: Result<Version, String>,
}

/// What shows that a file has changed.
#[derive(Clone, Copy, PartialEq)]
struct Version {
    length: u64,
    /// `None` on platforms without it.
    modified: Option<SystemTime>,
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            length: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
}

impl FileSource {
    /// Opens the file, and returns the first body. If the file cannot be opened, the body fails with that error.
    pub(in crate::request) fn open(path: PathBuf) -> (Body, Self) {
        let path: Arc<Path> = path.into();
        let (body, first) = match open(&path) {
            Ok((file, version)) => (FileBody::of(file, version.length, &path), Ok(version)),
            Err(error) => {
                let first = Err(format!("cannot open file {}: {error}", path.display()));
                (Body::wrap(Failing(Some(error))), first)
            }
        };
        (body, Self { path, first })
    }

    /// Opens the file again, if it is unchanged. `when` is the end of the error message.
    fn reopen(&self, when: &str) -> Result<(fs::File, u64), BodyError> {
        let first = (self.first.as_ref()).map_err(|error| BodyError(error.clone()))?;
        let name = self.path.display();
        let (file, now) = open(&self.path).map_err(|error| {
            BodyError(match error.kind() {
                io::ErrorKind::NotFound => format!("file {name} vanished {when}"),
                _ => format!("file {name} cannot be opened again {when}: {error}"),
            })
        })?;
        let (before, after) = (first.length, now.length);
        let change = match after.cmp(&before) {
            std::cmp::Ordering::Less => format!("shrank from {before} to {after} bytes"),
            std::cmp::Ordering::Greater => format!("grew from {before} to {after} bytes"),
            _ if now != *first => format!("was modified, with the same length of {after} bytes,"),
            _ => return Ok((file, after)),
        };
        Err(BodyError(format!("file {name} {change} {when}")))
    }
}

impl BodySource for FileSource {
    fn method(&self) -> &'static str {
        "file"
    }

    fn build(&self) -> Result<BuiltBody, BodyError> {
        let (file, length) = self.reopen("between attempts")?;
        Ok(BuiltBody {
            body: FileBody::of(file, length, &self.path),
            headers: None,
        })
    }

    fn check_first(&self) -> Result<(), BodyError> {
        self.reopen("before it was sent").map(drop)
    }

    fn keep(&self, max: usize) -> KeptBody {
        let Ok((mut file, length)) = self.reopen("") else {
            return KeptBody::NotReplayable;
        };
        if length > max as u64 {
            return KeptBody::TooLarge(length);
        }
        let mut bytes = vec![0; length as usize];
        match file.read_exact(&mut bytes) {
            Ok(()) => KeptBody::Bytes(bytes.into(), None),
            Err(_) => KeptBody::NotReplayable,
        }
    }
}

fn open(path: &Path) -> io::Result<(fs::File, Version)> {
    // Checked before it is opened, because opening a named pipe waits for its other end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    let file = fs::File::open(path)?;
    let version = Version::of(&file.metadata()?);
    Ok((file, version))
}

/// Reads a file in chunks, up to the length that it had when it was opened.
struct FileBody {
    file: tokio::fs::File,
    path: Arc<Path>,
    length: u64,
    /// At most `length`.
    left: u64,
    buffer: Vec<u8>,
}

impl FileBody {
    fn of(file: fs::File, length: u64, path: &Arc<Path>) -> Body {
        Body::wrap(Self {
            file: tokio::fs::File::from_std(file),
            path: Arc::clone(path),
            length,
            left: length,
            buffer: Vec::new(),
        })
    }

    fn shrank(&self) -> io::Error {
        let (name, length, read) = (self.path.display(), self.length, self.length - self.left);
        let text = format!("file {name} shrank from {length} to {read} bytes while it was sent");
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    }
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if this.left == 0 {
            return Poll::Ready(None);
        }
        // At most `CHUNK`, so the cast is exact.
        this.buffer.resize(this.left.min(CHUNK as u64) as usize, 0);
        let mut buffer = ReadBuf::new(&mut this.buffer);
        ready!(Pin::new(&mut this.file).poll_read(context, &mut buffer))?;
        let read = buffer.filled().len();
        if read == 0 {
            return Poll::Ready(Some(Err(this.shrank())));
        }
        this.left -= read as u64;
        let mut chunk = std::mem::take(&mut this.buffer);
        chunk.truncate(read);
        Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
    }

    // `is_end_stream` stays `false`, even for an empty file. So an empty file is sent with `Content-Length: 0`.

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A body that fails with this error.
struct Failing(Option<io::Error>);

impl http_body::Body for Failing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.take().map(Err))
    }
}
