//! Reads the bytes of a file, and requests the rest when a body breaks off.
//!
//! A [`Transfer`] is in one of three states: it reads a body, it waits for the response to a request for the rest, or
//! it has ended. It never yields a byte twice and never skips one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::Body as _;
use reqwest::{Body, Response, Url};
use reqwest_middleware::{Error, Result};
use tokio::time::{Instant, Sleep, sleep_until};

use super::error::{DownloadError, Kind};
use super::requests::Requests;
use super::version::{FileVersion, Rest};
use crate::admit::Scope;
use crate::clock;
use crate::decide::{Failure, StatusClass, default_class, failure_class, is_veto};
use crate::entropy::Entropy;
use crate::host::host_of;
use crate::log;
use crate::schedule::{self, Backoff, server_hint};
use crate::upstream::BoxFuture;

/// If the server asks for a longer wait, the download ends. It is the default `max_server_delay` of a retry.
const MAX_SERVER_DELAY: Duration = Duration::from_secs(60);

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
    /// The most bytes of any version that were yielded. Only more than that is progress.
    most_received: u64,
    /// All resumes so far.
    pub(super) resumes: u32,
    /// Resumes since the last progress.
    without_progress: u32,
    /// Limits the resumes without progress, together with the retries of their requests.
    allowance: Scope,
    may_start_over: bool,
    /// The server has sent a part that does not fit, so no more parts are requested.
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
    Ended,
}

impl Transfer {
    pub(super) fn new(requests: Requests, settings: ResumeSettings, response: Response) -> Self {
        let allowance = Scope::new().max_retries(settings.max_resumes);
        let mut transfer = Self {
            requests,
            settings,
            entropy: Entropy::default(),
            state: State::Ended,
            status: response.status(),
            version: FileVersion::default(),
            offset: 0,
            end: None,
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
        self.read(response, self.version.length);
    }

    fn read(&mut self, response: Response, end: Option<u64>) {
        self.end = end;
        self.silent_until = None;
        self.state = State::Reading(response.into());
    }

    /// Returns whether the body of the response is the file, and not an error.
    pub(super) fn is_file(&self) -> bool {
        is_whole_file(self.status)
    }

    pub(super) fn url(&self) -> &Url {
        self.requests.url()
    }

    /// Allows to begin with the first byte again, if the server does not send the rest. [`Item::StartOver`] says when.
    pub(super) fn allow_start_over(&mut self) {
        self.may_start_over = true;
    }

    /// Goes on at this offset, because an earlier download of this version has saved the bytes before it.
    ///
    /// With 0, the first response is read if nothing of it was read before. Otherwise this sends a new request.
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
                limit.end() <= clock::now() && !self.is_whole()
            });
            let step = match (&mut self.state, exceeded) {
                (State::Ended, _) => return Poll::Ready(None),
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
            // All bytes have arrived. Reading the end of the body, too, frees the connection for other requests, and
            // notices a body that is too long.
            if let Poll::Ready(Some(Ok(frame))) = polled {
                if frame.data_ref().is_some_and(|data| !data.is_empty()) {
                    return Poll::Ready(self.start_over("the rest is longer than its range"));
                }
            }
            self.state = State::Ended;
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(match polled {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if !data.is_empty() => {
                    self.give_out(data)
                        .map(Some)
                        .or_else(|error| match self.may_start_over {
                            true => self.start_over("the rest is longer than its range"),
                            false => Err(error),
                        })
                }
                _ => Ok(None),
            },
            Poll::Ready(Some(Err(error))) => self.resume(error.into(), None),
            Poll::Ready(None) => self.on_end(),
            Poll::Pending => {
                let stalled = clock::after(clock::now(), self.settings.stall_timeout);
                let silent_until = *self.silent_until.get_or_insert(stalled);
                ready!(self.poll_timer(context));
                match silent_until <= clock::now() {
                    true => {
                        let silence = "no data within the stall timeout";
                        self.resume(io_error(io::ErrorKind::TimedOut, silence), None)
                    }
                    false => Ok(None),
                }
            }
        })
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

    fn give_out(&mut self, data: Bytes) -> Result<Item> {
        self.silent_until = None;
        let offset = self.offset.saturating_add(data.len() as u64);
        if self.end.is_some_and(|end| offset > end) {
            return Err(self.error(Kind::Changed("the rest is longer than its range")));
        }
        self.offset = offset;
        if offset > self.most_received {
            self.most_received = offset;
            self.without_progress = 0;
            let all = self.settings.max_resumes;
            if (self.allowance.retries_left()).is_some_and(|left| left < all) {
                self.allowance = Scope::new().max_retries(all);
            }
        }
        Ok(Item::Chunk(data))
    }

    /// A body has ended without an error.
    fn on_end(&mut self) -> Result<Option<Item>> {
        match self.end {
            Some(end) if self.offset < end => {
                let cut_short = "the body of the response is shorter than announced";
                self.resume(io_error(io::ErrorKind::UnexpectedEof, cut_short), None)
            }
            // A server may send only a part of the range (RFC 9110 §15.3.7).
            Some(_) if self.version.length != Some(self.offset) => {
                let more = "the server has sent only a part of the rest";
                self.resume(io_error(io::ErrorKind::UnexpectedEof, more), None)
            }
            _ => {
                self.state = State::Ended;
                Ok(None)
            }
        }
    }

    /// Requests the rest after a failure, if that is possible and allowed. `hint` is how long the server asks to wait.
    fn resume(&mut self, cause: Error, hint: Option<Duration>) -> Result<Option<Item>> {
        let is_part = self.offset > 0 && self.version.resumable().is_some() && !self.refuses_parts;
        if !self.is_file() {
            return Err(cause);
        }
        if !is_part && self.offset > 0 && !self.may_start_over {
            let reason = match self.refuses_parts {
                true => "the server does not send the rest",
                false => "its headers do not allow to ask for the rest",
            };
            return Err(self.error(Kind::Broken(reason, cause)));
        }
        let wait = self.entropy.with(|rng| {
            let backoff = &self.settings.backoff;
            let backoff = backoff.draw(self.without_progress, None, rng);
            schedule::wait(hint, backoff, rng)
        });
        if let Some(limit) = self.requests.limit() {
            if clock::after(clock::now(), wait) >= limit.end() {
                return Err(self.error(Kind::Broken("its deadline is too close", cause)));
            }
        }
        if !self.allowance.take_retry() {
            return Err(self.error(Kind::Broken("no resumes are left", cause)));
        }
        self.request(is_part, wait);
        self.resumes += 1;
        self.without_progress += 1;
        let cause = Failure::of(&cause).kind.as_str();
        let host = host_of(self.requests.url());
        log::download_resumes(host, self.offset, self.resumes, cause);
        Ok(None)
    }

    /// Requests the rest, or the whole file.
    fn request(&mut self, is_part: bool, wait: Duration) {
        let rest = self.version.resumable().filter(|_| is_part);
        let from = rest.map(|(validator, _)| (self.offset, validator));
        let request = self.requests.again(from, wait, self.allowance.clone());
        self.silent_until = None;
        self.state = State::Requesting { request, is_part };
    }

    /// Handles the response to a request for the rest, or for the whole file.
    fn on_result(&mut self, result: Result<Response>, is_part: bool) -> Result<Option<Item>> {
        let response = match result {
            Ok(response) => response,
            Err(error) => {
                let error = self.requests.complete_error(error, self.resumes + 1);
                let is_final = failure_class(Failure::of(&error).kind) == StatusClass::Never
                    || !self.requests.may_ask_again();
                return match is_final {
                    true => Err(error),
                    false => self.resume(error, None),
                };
            }
        };
        let status = response.status();
        if is_whole_file(status) {
            if self.may_start_over {
                self.begin(response);
                return Ok(Some(Item::StartOver));
            }
            if self.offset == 0 {
                self.begin(response);
                return Ok(None);
            }
            let reason = "the file has changed, or the server does not support ranges";
            return Err(self.error(Kind::Changed(reason)));
        }
        match status {
            StatusCode::PARTIAL_CONTENT if is_part => {
                let length = response.content_length();
                match (self.version).check_rest(response.headers(), length, self.offset) {
                    Rest::Continues { end } => {
                        self.read(response, Some(end));
                        Ok(None)
                    }
                    Rest::DoesNotFit(reason) => self.start_over(reason),
                }
            }
            StatusCode::RANGE_NOT_SATISFIABLE if is_part => {
                self.start_over("the file is shorter now")
            }
            StatusCode::PRECONDITION_FAILED if is_part => self.start_over("the file has changed"),
            _ => self.on_failure(status, response.headers()),
        }
    }

    /// Sends the request again after a temporary error status, unless the server or the retry in the chain forbids it.
    fn on_failure(&mut self, status: StatusCode, headers: &HeaderMap) -> Result<Option<Item>> {
        let error = self.error(Kind::Status(status));
        let hint = server_hint(status, headers, clock::wall());
        let is_final = default_class(status) == StatusClass::Never
            || is_veto(headers)
            || hint.is_some_and(|hint| hint > MAX_SERVER_DELAY)
            || !self.requests.may_ask_again();
        match is_final {
            true => Err(error),
            false => self.resume(error, hint),
        }
    }

    /// Requests the whole file after a part that does not fit, if that is allowed.
    fn start_over(&mut self, reason: &'static str) -> Result<Option<Item>> {
        let error = self.error(Kind::Changed(reason));
        self.refuses_parts = true;
        match self.may_start_over {
            true => self.resume(error, None),
            false => Err(error),
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
