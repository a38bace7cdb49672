//! Reads the bytes of a file, and requests the rest when a body breaks off.
//!
//! A [`Transfer`] is in one of three states: it reads a body, it waits for the response to a request for the rest, or
//! it has ended. It never yields a byte twice and never skips one. [`resume`] requests the rest.
//!
//! A rest without a length is in doubt until it ends exactly where its range ends: it may be the body of another range,
//! or one that the client has decoded. If it breaks off before, its bytes are taken back.

mod resume;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as _, Frame};
#[cfg(feature = "file")]
use reqwest::Url;
use reqwest::{Body, Response};
use reqwest_middleware::{Error, Result};
use tokio::time::{Instant, Sleep, sleep_until};

use super::error::{DownloadError, Kind};
use super::requests::Requests;
use super::version::FileVersion;
use crate::admit::Scope;
use crate::clock;
use crate::entropy::Entropy;
use crate::schedule::Backoff;
use crate::upstream::BoxFuture;

/// How a download goes on after a failure.
#[derive(Clone, Debug)]
pub(super) struct ResumeSettings {
    pub(super) max_resumes: u32,
    pub(super) stall_timeout: Duration,
    pub(super) backoff: Backoff,
}

impl Default for ResumeSettings {
    fn default() -> Self {
        Self {
            max_resumes: 5,
            stall_timeout: Duration::from_secs(30),
            backoff: Backoff::default(),
        }
    }
}

/// What a transfer yields.
#[derive(Debug)]
pub(super) enum Item {
    Chunk(Bytes),
    /// The file begins again, perhaps in another version. Only after [`Transfer::allow_start_over`].
    StartOver,
    /// The bytes from the offset on were wrong, or may have been. Only after [`Transfer::allow_start_over`].
    TakeBack,
}

pub(super) struct Transfer {
    requests: Requests,
    settings: ResumeSettings,
    entropy: Entropy,
    state: State,
    /// The status of the latest response that began with the first byte.
    pub(super) status: StatusCode,
    pub(super) version: FileVersion,
    /// How many bytes of this version were yielded.
    pub(super) offset: u64,
    /// Where the current body ends. `None` if that is not known.
    end: Option<u64>,
    /// Where the current body began, if it is in doubt. `None` if it has announced its length, so that HTTP itself ends
    /// it there.
    in_doubt_from: Option<u64>,
    /// The most bytes that were yielded and are not in doubt. Only more than that is progress.
    most_received: u64,
    /// How many more times the progress of a file that begins again counts from its first byte.
    fresh_starts: u32,
    /// All resumes so far.
    pub(super) resumes: u32,
    /// Resumes since the last progress.
    without_progress: u32,
    /// Limits the resumes without progress, together with the retries of their requests.
    allowance: Scope,
    may_start_over: bool,
    /// The server has sent a part that does not fit, so no part is requested before there is progress.
    refuses_parts: bool,
    /// When the current silence of the body becomes a stall. `None` while bytes arrive.
    silent_until: Option<Instant>,
    /// Wakes the task when a silence or the deadline ends.
    timer: Pin<Box<Sleep>>,
}

enum State {
    Reading(Body),
    /// `is_part`: the request is for the rest, and not for the whole file.
    Requesting {
        request: BoxFuture<'static, Result<Response>>,
        is_part: bool,
    },
    /// The bytes of a refused body were taken back with [`Item::StartOver`]. This error follows.
    Failed(Error),
    Ended,
}

impl Transfer {
    pub(super) fn new(requests: Requests, settings: ResumeSettings, response: Response) -> Self {
        let allowance = Scope::new().max_retries(settings.max_resumes);
        let mut transfer = Self {
            requests,
            fresh_starts: settings.max_resumes,
            settings,
            entropy: Entropy::default(),
            state: State::Ended,
            status: response.status(),
            version: FileVersion::default(),
            offset: 0,
            end: None,
            in_doubt_from: None,
            most_received: 0,
            resumes: 0,
            without_progress: 0,
            allowance,
            may_start_over: false,
            refuses_parts: false,
            silent_until: None,
            timer: Box::pin(sleep_until(clock::now())),
        };
        transfer.begin(response);
        transfer
    }

    /// Starts to read a response that begins with the first byte of the file.
    fn begin(&mut self, response: Response) {
        self.status = response.status();
        let length = response.content_length();
        let version = match self.status {
            StatusCode::OK => FileVersion::of(response.headers(), length),
            // A 203 was changed by a proxy. It must not be mixed with a rest that the proxy passes on unchanged.
            _ if self.is_file() => FileVersion::of_length(length),
            _ => FileVersion::default(),
        };
        if version != self.version {
            // A part of another version did not fit, but a part of this version may.
            self.refuses_parts = false;
        }
        self.version = version;
        self.offset = 0;
        // Without a validator, each break leads to another start, so only a longer one is progress.
        if self.most_received > 0 && self.version.resumable().is_some() && self.fresh_starts > 0 {
            self.fresh_starts -= 1;
            self.most_received = 0;
        }
        self.read(response, self.version.length);
    }

    fn read(&mut self, response: Response, end: Option<u64>) {
        let is_measured = self.offset == 0 || response.content_length().is_some();
        self.in_doubt_from = (!is_measured).then_some(self.offset);
        self.end = end;
        self.silent_until = None;
        self.state = State::Reading(response.into());
    }

    /// Returns whether the body of the response is the file, and not an error.
    pub(super) fn is_file(&self) -> bool {
        is_whole_file(self.status)
    }

    #[cfg(feature = "file")]
    pub(super) fn url(&self) -> &Url {
        self.requests.url()
    }

    /// Allows to begin with the first byte again, if the server does not send the rest. [`Item::StartOver`] says when.
    #[cfg(feature = "file")]
    pub(super) fn allow_start_over(&mut self) {
        self.may_start_over = true;
    }

    /// Returns how many bytes were yielded and are not in doubt.
    #[cfg(feature = "file")]
    pub(super) fn certain(&self) -> u64 {
        self.in_doubt_from.unwrap_or(self.offset)
    }

    /// Goes on at this offset, because an earlier download of this version has saved the bytes before it.
    ///
    /// With 0, the first response is read if nothing of it was read before. Otherwise this sends a new request.
    #[cfg(feature = "file")]
    pub(super) fn continue_from(&mut self, offset: u64) {
        if offset == 0 && self.offset == 0 && matches!(self.state, State::Reading(_)) {
            return;
        }
        (self.offset, self.most_received) = (offset, offset);
        if self.version.length == Some(offset) && offset > 0 {
            // All bytes are saved. A range without bytes, such as `bytes=42-41`, would be invalid.
            self.state = State::Ended;
            return;
        }
        let is_part = offset > 0 && self.version.resumable().is_some();
        self.request(is_part, Duration::ZERO);
    }

    /// Returns the next chunk, and `None` after the last one. An error is final.
    pub(super) fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Item>>> {
        loop {
            let exceeded = self.requests.limit().filter(|limit| {
                // A download with all its bytes needs no more time.
                let is_done = matches!(self.state, State::Reading(_)) && self.is_whole();
                limit.end() <= clock::now() && !is_done
            });
            let step = match (&mut self.state, exceeded) {
                (State::Ended, _) => return Poll::Ready(None),
                (State::Failed(_), _) => match std::mem::replace(&mut self.state, State::Ended) {
                    State::Failed(error) => Err(error),
                    _ => Ok(None),
                },
                (_, Some(limit)) => Err(limit.error()),
                (State::Reading(_), None) => ready!(self.poll_body(context)),
                (State::Requesting { request, is_part }, None) => {
                    match request.as_mut().poll(context) {
                        Poll::Ready(result) => {
                            let is_part = *is_part;
                            self.on_result(result, is_part)
                        }
                        Poll::Pending => {
                            ready!(self.poll_timer(context));
                            Ok(None)
                        }
                    }
                }
            };
            match step {
                Ok(None) => {}
                Ok(Some(item)) => return Poll::Ready(Some(Ok(item))),
                Err(error) => {
                    self.state = State::Ended;
                    let error = self.requests.complete_error(error, self.resumes + 1);
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    /// Returns whether all bytes of the file were yielded.
    fn is_whole(&self) -> bool {
        self.version.length == Some(self.offset)
    }

    /// Reads on. `Ok(None)` means that the state has changed, or that the deadline is over.
    fn poll_body(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Item>>> {
        if self.status == StatusCode::PARTIAL_CONTENT {
            // Only the first response can be one. No part was requested, so its bytes have no place in the file.
            return Poll::Ready(Err(self.error(Kind::Status(self.status))));
        }
        let is_whole = self.is_whole();
        let State::Reading(body) = &mut self.state else {
            return Poll::Ready(Ok(None));
        };
        let polled = Pin::new(body).poll_frame(context);
        if is_whole {
            return self.poll_end(context, polled);
        }
        Poll::Ready(match polled {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if !data.is_empty() => self.give_out(data),
                _ => Ok(None),
            },
            Poll::Ready(Some(Err(error))) => self.on_break(error.into()),
            Poll::Ready(None) => self.on_end(),
            Poll::Pending => {
                let silent_until = self.start_silence();
                ready!(self.poll_timer(context));
                match silent_until <= clock::now() {
                    true => {
                        let silence = "no data within the stall timeout";
                        self.on_break(io_error(io::ErrorKind::TimedOut, silence))
                    }
                    false => Ok(None),
                }
            }
        })
    }

    /// Looks for the end of the body after all bytes of the file. So the connection is free for other requests, and
    /// a body that is too long is noticed.
    fn poll_end(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<Option<reqwest::Result<Frame<Bytes>>>>,
    ) -> Poll<Result<Option<Item>>> {
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                let is_too_long = frame.data_ref().is_some_and(|data| !data.is_empty());
                return Poll::Ready(match is_too_long {
                    true => self.refuse_body(),
                    false => Ok(None),
                });
            }
            Poll::Ready(Some(Err(error))) if self.in_doubt_from.is_some() => {
                return Poll::Ready(self.on_break(error.into()));
            }
            Poll::Pending if self.in_doubt_from.is_some() => {
                // After the stall timeout or at the deadline, the file is whole for all that is known.
                self.start_silence();
                ready!(self.poll_timer(context));
            }
            _ => {}
        }
        self.in_doubt_from = None;
        self.state = State::Ended;
        Poll::Ready(Ok(None))
    }

    /// Returns when the current silence of the body becomes a stall.
    fn start_silence(&mut self) -> Instant {
        let stalled = clock::after(clock::now(), self.settings.stall_timeout);
        *self.silent_until.get_or_insert(stalled)
    }

    /// Becomes ready after the stall timeout, or at the deadline.
    ///
    /// Each poll looks up the deadline, because it may run in another scope than the last one.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.requests.limit().map(|limit| limit.end());
        match self.silent_until.into_iter().chain(deadline).min() {
            None => Poll::Pending,
            Some(end) => {
                if self.timer.deadline() != end {
                    self.timer.as_mut().reset(end);
                }
                self.timer.as_mut().poll(context)
            }
        }
    }

    fn give_out(&mut self, data: Bytes) -> Result<Option<Item>> {
        self.silent_until = None;
        let offset = self.offset.saturating_add(data.len() as u64);
        if self.end.is_some_and(|end| offset > end) {
            return self.refuse_body();
        }
        self.offset = offset;
        if self.in_doubt_from.is_none() {
            self.count_progress();
        }
        Ok(Some(Item::Chunk(data)))
    }

    fn count_progress(&mut self) {
        if self.offset > self.most_received {
            self.most_received = self.offset;
            self.without_progress = 0;
            self.refuses_parts = false;
            let all = self.settings.max_resumes;
            if (self.allowance.retries_left()).is_some_and(|left| left < all) {
                self.allowance = Scope::new().max_retries(all);
            }
        }
    }

    pub(super) fn error(&self, kind: Kind) -> Error {
        let (received, length) = (self.offset, self.version.length);
        let error = DownloadError::new(kind, received, length, self.resumes);
        Error::middleware(error)
    }
}

/// Returns whether the body of a response with this status is the whole file. A proxy that changes a file sends 203.
fn is_whole_file(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION
    )
}

fn io_error(kind: io::ErrorKind, text: &'static str) -> Error {
    Error::middleware(io::Error::new(kind, text))
}
