//! Saves a download to a file.
//!
//! The bytes go to a part file beside the target, which is renamed when it is complete. Its name contains a hash of
//! the URL, the validator and the length. So a later download of the same version finds it, and one of another version
//! never does. While it has bytes in doubt, it is longer than any file of that version, so no later download goes on with
//! it. Only one download of this process at a time writes a part file. Another one writes to a file with a
//! random name, which no later download uses.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::Metadata;
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;
use reqwest_middleware::{Error, Result};
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use super::Download;
use super::error::Kind;
use super::transfer::{Item, Transfer};
use super::version::Validator;
use crate::entropy::Uuid;
use crate::lock::lock;

/// The part files that downloads of this process are writing.
static IN_USE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

impl Download {
    /// Saves the file, and returns its length.
    ///
    /// The bytes go to a part file beside the target, named `NAME.HASH.part`. When it is complete, it is synced and
    /// renamed. So the target is always the whole file, or what it was before. It has the permissions of a new file. A
    /// link at the target is replaced. A folder, a device or a pipe is refused.
    ///
    /// If a download fails or is dropped, its part file stays. A later `save` of the same version, from the same URL to
    /// the same path, goes on with it. If the server has another version by then, delete the old part file yourself. The
    /// same holds for URLs that are signed anew for each download. If the server sends no strong validator, no part file
    /// stays. None stays either if a `save` is dropped while it writes bytes in doubt. The bytes in a part file are not
    /// checked. If several programs save to one path at the same time, one of them may fail.
    ///
    /// If the file changes during the download, or the server cannot send the rest, `save` begins again. It also begins
    /// again if you have read some chunks before.
    ///
    /// Three things cannot be noticed. A body without a length may be cut short by the end of its connection. A content
    /// encoding that the client does not decode is saved as it is. If a redirect leads to another file with the same
    /// length and validator, the two are mixed.
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
    /// The errors of [`chunk`](Self::chunk), and a [`DownloadError`](super::DownloadError) if the status is neither 200
    /// nor 203, or if the file cannot be written.
    pub async fn save(mut self, path: impl AsRef<Path>) -> Result<u64> {
        let path = path.as_ref();
        let transfer = &mut self.transfer;
        if !transfer.is_file() {
            return Err(transfer.error(Kind::Status(transfer.status)));
        }
        transfer.allow_start_over();
        let opened = async {
            let target = target_of(path).await?;
            let part = Part::open(&target, transfer).await?;
            io::Result::Ok((target, part))
        };
        let opened = opened.await;
        let (target, mut part) = opened.map_err(|error| self.file_error(path, error))?;
        self.transfer.continue_from(part.length);
        loop {
            let item = match poll_fn(|context| self.poll_item(context)).await {
                Some(Ok(item)) => item,
                Some(Err(error)) => {
                    part.keep(self.transfer.certain()).await;
                    return Err(error);
                }
                None => break,
            };
            let written = match item {
                Item::Chunk(chunk) => part.write(&chunk, &self.transfer).await,
                Item::TakeBack => part.cut(self.transfer.offset).await,
                Item::StartOver => part.start_over(&target, &self.transfer).await,
            };
            written.map_err(|error| self.file_error(path, error))?;
        }
        let length = part.length;
        let whole = self.transfer.version.length;
        let finished = part.finish(&target, whole.unwrap_or(length)).await;
        finished.map_err(|error| self.file_error(path, error))?;
        Ok(length)
    }

    fn file_error(&self, path: &Path, error: io::Error) -> Error {
        self.transfer.error(Kind::File(path.to_owned(), error))
    }
}

/// The file that a download writes before it has its final name.
struct Part {
    path: PathBuf,
    file: File,
    /// How many bytes of the file are in it, from the first one on. It is also the position of the next one.
    length: u64,
    /// Its name identifies the version, so a later download can go on with it. Otherwise it is removed when dropped.
    is_reusable: bool,
    /// It has bytes in doubt, and is longer than the file.
    is_in_doubt: bool,
    _claim: Claim,
}

/// The exclusive right in this process to write a part file. Dropping it gives the right back.
struct Claim(PathBuf);

impl Claim {
    fn of(path: &Path) -> Option<Self> {
        lock(&IN_USE)
            .insert(path.to_owned())
            .then(|| Self(path.to_owned()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&IN_USE).remove(&self.0);
    }
}

impl Part {
    /// Opens the part file of this version. It may have bytes from an earlier download.
    async fn open(target: &Path, transfer: &Transfer) -> io::Result<Self> {
        let resumable = transfer.version.resumable();
        if let Some((validator, whole)) = resumable {
            let name = name_of(transfer.url().as_str(), validator, whole);
            let path = beside(target, &name);
            if let Some((claim, length)) = Claim::of(&path).zip(length_at(&path)) {
                let mut options = OpenOptions::new();
                let options = options.write(true).create(true).truncate(false);
                // With the length of the file that is there: dropped before it is known again, it must stay.
                let mut part = Self::create(path, claim, options, length, true).await?;
                let found = part.file.metadata().await?.len();
                match found <= whole {
                    true => part.length = part.file.seek(SeekFrom::Start(found)).await?,
                    false => part.renew().await?,
                }
                return Ok(part);
            }
        }
        // Another download is writing the file of this version, or the version cannot be identified.
        let path = beside(target, &Uuid::random().to_string());
        let claim = Claim::of(&path).expect("a random name is not in use");
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true);
        Self::create(path, claim, options, 0, false).await
    }

    async fn create(
        path: PathBuf,
        claim: Claim,
        options: &OpenOptions,
        length: u64,
        is_reusable: bool,
    ) -> io::Result<Self> {
        Ok(Self {
            file: options.open(&path).await?,
            path,
            length,
            is_reusable,
            is_in_doubt: false,
            _claim: claim,
        })
    }

    /// Goes on with an empty file in place of this one.
    ///
    /// The file is not cut: another program may be writing it, or may have made it the target.
    async fn renew(&mut self) -> io::Result<()> {
        (self.length, self.is_in_doubt) = (0, false);
        match fs::remove_file(&self.path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        self.file = options
            .write(true)
            .create_new(true)
            .open(&self.path)
            .await?;
        Ok(())
    }

    async fn write(&mut self, chunk: &Bytes, transfer: &Transfer) -> io::Result<()> {
        match transfer.certain() < transfer.offset {
            true if !self.is_in_doubt => self.doubt(transfer).await?,
            false if self.is_in_doubt => self.cut(self.length).await?,
            _ => {}
        }
        self.file.write_all(chunk).await?;
        self.length += chunk.len() as u64;
        Ok(())
    }

    /// Makes the file longer than its version, before bytes in doubt are written. So even if the program is killed, no
    /// later download goes on with them.
    async fn doubt(&mut self, transfer: &Transfer) -> io::Result<()> {
        self.check_place().await?;
        self.is_in_doubt = true;
        let whole = transfer.version.length.unwrap_or_default();
        self.file.set_len(whole.saturating_add(1)).await
    }

    /// Cuts the file to this length. What is left of it is certain.
    async fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.flush().await?;
        self.check_place().await?;
        self.file.set_len(length).await?;
        self.length = self.file.seek(SeekFrom::Start(length)).await?;
        self.is_in_doubt = false;
        Ok(())
    }

    /// Refuses to go on with a file that another program has made the target, because that must stay whole.
    async fn check_place(&self) -> io::Result<()> {
        match is_at(&self.path, &self.file.metadata().await?) {
            true => Ok(()),
            false => Err(moved()),
        }
    }

    /// Begins with the first byte, of the same version or another one.
    async fn start_over(&mut self, target: &Path, transfer: &Transfer) -> io::Result<()> {
        if let (true, Some((validator, whole))) = (self.is_reusable, transfer.version.resumable()) {
            let name = name_of(transfer.url().as_str(), validator, whole);
            if beside(target, &name) == self.path {
                return self.renew().await;
            }
        }
        // The server has another version now, so nothing can go on with the old file. It is removed when dropped.
        self.is_reusable = false;
        *self = Self::open(target, transfer).await?;
        match self.length {
            0 => Ok(()),
            _ => self.renew().await,
        }
    }

    /// Writes what is certain to disk, for a later download. Ignores errors: this download has failed already.
    async fn keep(&mut self, certain: u64) {
        // If this fails, the part is removed.
        if !self.is_in_doubt || self.cut(certain).await.is_ok() {
            let _ = self.sync().await;
        }
    }

    /// Writes everything to the disk. If that fails, nobody knows what is there, so no later download uses it.
    async fn sync(&mut self) -> io::Result<()> {
        self.file.flush().await?;
        let synced = self.file.sync_all().await;
        self.is_reusable &= synced.is_ok();
        synced
    }

    /// Renames the part file to the target, if it has all bytes.
    async fn finish(mut self, target: &Path, whole: u64) -> io::Result<()> {
        if self.is_in_doubt {
            self.cut(self.length).await?;
        }
        self.sync().await?;
        let found = self.file.metadata().await?;
        if self.length != whole || found.len() != whole || !is_at(&self.path, &found) {
            return Err(moved());
        }
        fs::rename(&self.path, target).await?;
        // The target is whole now. Some file systems cannot sync a folder, and that is no failure of the download.
        let _ = sync_folder(target).await;
        Ok(())
    }
}

impl Drop for Part {
    /// Removes a file that no later download can use. After `finish`, nothing is at its path any more.
    fn drop(&mut self) {
        if !self.is_reusable || self.is_in_doubt || self.length == 0 {
            // An error is ignored: it only leaves a useless file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn moved() -> io::Error {
    io::Error::other("another program has changed or moved the part file")
}

/// Returns the length of the regular file at this path, and 0 if the path is free. `None` if something else is there: a
/// link could lead to any other file.
fn length_at(path: &Path) -> Option<u64> {
    match path.symlink_metadata() {
        Ok(found) => found.is_file().then_some(found.len()),
        Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(0),
    }
}

/// Returns whether the file at this path is still the one that was opened.
fn is_at(path: &Path, opened: &Metadata) -> bool {
    let Ok(found) = path.symlink_metadata() else {
        return false;
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        (found.dev(), found.ino()) == (opened.dev(), opened.ino())
    }
    #[cfg(not(unix))]
    {
        found.is_file() && found.len() == opened.len()
    }
}

/// Makes the new name survive a power failure.
async fn sync_folder(target: &Path) -> io::Result<()> {
    if let Some(folder) = target.parent().filter(|_| cfg!(unix)) {
        File::open(folder).await?.sync_all().await?;
    }
    Ok(())
}

/// Returns the path with its folder in its only spelling, so that one file has one path.
///
/// Refuses what is there and is no file: a folder cannot be replaced, and a device such as `/dev/null` must not be.
async fn target_of(path: &Path) -> io::Result<PathBuf> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
    let Some(name) = path.file_name() else {
        return Err(invalid("the path does not end with a file name"));
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let target = fs::canonicalize(folder).await?.join(name);
    match fs::metadata(&target).await {
        Ok(found) if !found.is_file() => Err(invalid("what is there is not a file")),
        _ => Ok(target),
    }
}

/// Returns the path of a part file beside the target.
fn beside(target: &Path, name: &str) -> PathBuf {
    let own_name = target.file_name().unwrap_or_default();
    // Most file systems allow 255 bytes. A character has at most four.
    let mut part = match own_name.len() {
        0..=200 => own_name.to_owned(),
        _ => own_name
            .to_string_lossy()
            .chars()
            .take(50)
            .collect::<String>()
            .into(),
    };
    part.push(format!(".{name}.part"));
    target.with_file_name(part)
}

/// Names one version of a file. An ETag is unique only for its URL.
fn name_of(url: &str, validator: &Validator, whole: u64) -> String {
    let kind = match validator {
        Validator::Tag(_) => 0,
        Validator::Date(_) => 1,
    };
    let mut hash = hmac_sha256::Hash::new();
    hash.update(whole.to_be_bytes());
    hash.update([kind]);
    hash.update((url.len() as u64).to_be_bytes());
    hash.update(url);
    hash.update(validator.value().as_bytes());
    hash.finalize()[..8]
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}
