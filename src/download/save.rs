//! Saves a download to a file.
//!
//! The bytes go to a part file beside the target, which is renamed when it is complete. Its name contains a hash of
//! the validator: a later download of the same version finds it, and one of another version never does. Two
//! downloads of the same version may even write it at the same time, because they write the same bytes to the same
//! places.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use reqwest_middleware::{Error, Result};
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use super::Download;
use super::error::Kind;
use super::transfer::Item;
use super::version::FileVersion;
use crate::entropy::Uuid;

impl Download {
    /// Saves the file, and returns its length.
    ///
    /// The bytes go to a part file beside the target, named `NAME.HASH.part`. When it is complete, it is synced and
    /// renamed. So the target is the whole file or what it was before, whatever happens.
    ///
    /// If a download fails or is dropped, its part file stays. A later `save` of the same version to the same path
    /// goes on with it. If the server has another version by then, the part file is of no use and stays, too. A
    /// server without a strong validator leaves no part file.
    ///
    /// If the file changes during the download, or the server cannot send the rest, `save` begins again. It also does
    /// if some chunks were read before.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let file = wiremock::ResponseTemplate::new(200).set_body_string("data");
    /// # wiremock::Mock::given(wiremock::matchers::any()).respond_with(file).mount(&server).await;
    /// # let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).build();
    /// # let url = server.uri();
    /// # let path = std::env::temp_dir().join(format!("steady-doc-{}", std::process::id()));
    /// use reqwest_steady::download::DownloadExt;
    ///
    /// let length = client.get(url).download().await?.save(&path).await?;
    /// assert_eq!(std::fs::read(&path)?.len() as u64, length);
    /// # std::fs::remove_file(&path)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`chunk`](Self::chunk), and a [`DownloadError`](super::DownloadError) if the status is not a success
    /// or the file cannot be written.
    pub async fn save(mut self, path: impl AsRef<Path>) -> Result<u64> {
        let target = path.as_ref();
        let transfer = &mut self.transfer;
        if !transfer.is_file() {
            return Err(transfer.error(Kind::Status(transfer.status)));
        }
        transfer.allow_start_over();
        let part = Part::open(target, &transfer.version).await;
        let mut part = part.map_err(|error| self.file_error(target, error))?;
        self.transfer.go_to(part.length);
        loop {
            let item = match poll_fn(|context| self.poll_item(context)).await {
                Some(Ok(item)) => item,
                Some(Err(error)) => {
                    // What was received is of use later, so it should be on the disk.
                    let _ = part.file.flush().await;
                    return Err(error);
                }
                None => break,
            };
            let written = match item {
                Item::Chunk(chunk) => part.write(&chunk).await,
                Item::StartOver => part.start_over(target, &self.transfer.version).await,
            };
            written.map_err(|error| self.file_error(target, error))?;
        }
        let length = part.length;
        let finished = part.finish(target).await;
        finished.map_err(|error| self.file_error(target, error))?;
        Ok(length)
    }

    fn file_error(&self, target: &Path, error: io::Error) -> Error {
        self.transfer.error(Kind::File(target.to_owned(), error))
    }
}

/// The file that a download writes before it has its final name.
struct Part {
    path: PathBuf,
    file: File,
    /// How many bytes from the beginning are in it. The next one goes here.
    length: u64,
    /// A later download can go on with it.
    is_reusable: bool,
}

impl Part {
    /// Opens the part file of this version. It may have bytes from an earlier download.
    async fn open(target: &Path, version: &FileVersion) -> io::Result<Self> {
        let path = part_path(target, version)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let mut file = options.open(&path).await?;
        let mut length = file.metadata().await?.len();
        let is_reusable = match version.resumable() {
            Some((_, whole)) if length <= whole => true,
            resumable => {
                file.set_len(0).await?;
                length = 0;
                resumable.is_some()
            }
        };
        file.seek(SeekFrom::Start(length)).await?;
        Ok(Self {
            path,
            file,
            length,
            is_reusable,
        })
    }

    async fn write(&mut self, chunk: &Bytes) -> io::Result<()> {
        self.file.write_all(chunk).await?;
        self.length += chunk.len() as u64;
        Ok(())
    }

    /// Begins with the first byte, of the same version or another one.
    async fn start_over(&mut self, target: &Path, version: &FileVersion) -> io::Result<()> {
        if self.is_reusable && part_path(target, version)? == self.path {
            // Another download may use this file, so it is not cut: the same bytes come again.
            self.file.seek(SeekFrom::Start(0)).await?;
            self.length = 0;
            return Ok(());
        }
        // The server does not have this version any more. Its file is removed when it is dropped.
        self.is_reusable = false;
        let mut other = Self::open(target, version).await?;
        other.file.seek(SeekFrom::Start(0)).await?;
        other.length = 0;
        *self = other;
        Ok(())
    }

    /// Makes the part the target.
    async fn finish(mut self, target: &Path) -> io::Result<()> {
        self.file.flush().await?;
        // Only after an earlier, longer attempt at the same name.
        if self.file.metadata().await?.len() > self.length {
            self.file.set_len(self.length).await?;
        }
        self.file.sync_all().await?;
        let renamed = fs::rename(&self.path, target).await;
        match renamed {
            // Another download of the same version was faster, and it has written the same file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let found = fs::metadata(target).await?;
                if found.len() != self.length {
                    return Err(error);
                }
            }
            renamed => renamed?,
        }
        sync_folder(target).await
    }
}

impl Drop for Part {
    /// Removes a file that no later download can go on with. After `finish`, it has another name.
    fn drop(&mut self) {
        if !self.is_reusable {
            // If this fails, a file of no use is left.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes the new name survive a power failure.
async fn sync_folder(target: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder).await?.sync_all().await?;
    }
    Ok(())
}

/// Returns the name of the part file: always the same for a version with a validator, and a new one otherwise.
fn part_path(target: &Path, version: &FileVersion) -> io::Result<PathBuf> {
    let Some(name) = target.file_name() else {
        let text = "the path does not end with a file name";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    let mut name = OsString::from(name);
    name.push(".");
    name.push(match version.resumable() {
        Some((validator, length)) => {
            let mut hash = hmac_sha256::Hash::new();
            hash.update(length.to_be_bytes());
            hash.update(validator.value().as_bytes());
            hex(&hash.finalize()[..8])
        }
        None => Uuid::random().to_string(),
    });
    name.push(".part");
    Ok(target.with_file_name(name))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
