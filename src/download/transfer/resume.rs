//! What follows the end of a body: requests the rest of a file, and looks at the responses.

use std::io;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use reqwest::Response;
use reqwest_middleware::{Error, Result};

use super::super::error::Kind;
use super::super::version::Rest;
use super::{Item, State, Transfer, io_error, is_whole_file};
use crate::clock;
use crate::decide::{Failure, StatusClass, default_class, failure_class, is_veto};
use crate::host::host_of;
use crate::log;
use crate::schedule::{self, server_hint};

/// If the server asks for a longer wait, the download ends. It is the default `max_server_delay` of a retry.
const MAX_SERVER_DELAY: Duration = Duration::from_secs(60);

impl Transfer {
    /// Requests the rest after a failure, if that is possible and allowed. `hint` is how long the server asks to wait.
    pub(super) fn resume(&mut self, cause: Error, hint: Option<Duration>) -> Result<Option<Item>> {
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
    pub(super) fn request(&mut self, is_part: bool, wait: Duration) {
        let rest = self.version.resumable().filter(|_| is_part);
        let from = rest.map(|(validator, _)| (self.offset, validator));
        let request = self.requests.again(from, wait, self.allowance.clone());
        (self.silent_until, self.in_doubt_from) = (None, None);
        self.state = State::Requesting { request, is_part };
    }

    /// Handles the response to a request for the rest, or for the whole file.
    pub(super) fn on_result(
        &mut self,
        result: Result<Response>,
        is_part: bool,
    ) -> Result<Option<Item>> {
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
                    Rest::BreaksOff => {
                        let cut_short = "the body of the response is shorter than its range";
                        self.resume(io_error(io::ErrorKind::UnexpectedEof, cut_short), None)
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
    pub(super) fn start_over(&mut self, reason: &'static str) -> Result<Option<Item>> {
        let error = self.error(Kind::Changed(reason));
        self.refuses_parts = true;
        match self.may_start_over {
            true => self.resume(error, None),
            false => Err(error),
        }
    }

    /// A body has ended without an error.
    pub(super) fn on_end(&mut self) -> Result<Option<Item>> {
        match self.end {
            Some(end) if self.offset < end => {
                let cut_short = "the body of the response is shorter than announced";
                self.on_break(io_error(io::ErrorKind::UnexpectedEof, cut_short))
            }
            // A server may send only a part of the range (RFC 9110 §15.3.7).
            Some(_) if self.version.length != Some(self.offset) => {
                let more = "the server has sent only a part of the rest";
                self.in_doubt_from = None;
                self.count_progress();
                self.resume(io_error(io::ErrorKind::UnexpectedEof, more), None)
            }
            _ => {
                self.state = State::Ended;
                Ok(None)
            }
        }
    }

    /// Requests the rest after a body that has broken off. What it has brought is taken back if it is in doubt.
    pub(super) fn on_break(&mut self, cause: Error) -> Result<Option<Item>> {
        match self.in_doubt_from {
            Some(from) if from < self.offset && self.may_start_over => self.take_back(cause),
            Some(from) if from < self.offset => {
                let reason = "the rest broke off, and without a length its bytes are in doubt";
                Err(self.error(Kind::Changed(reason)))
            }
            _ => self.resume(cause, None),
        }
    }

    /// Refuses a body that is longer than its range, so its bytes may all be wrong.
    pub(super) fn refuse_body(&mut self) -> Result<Option<Item>> {
        let error = self.error(Kind::Changed("the rest is longer than its range"));
        if !self.may_start_over {
            return Err(error);
        }
        self.refuses_parts = true;
        self.take_back(error)
    }

    /// Takes back the bytes of the current body at once: no later download may go on with them, even if this one fails
    /// now.
    fn take_back(&mut self, cause: Error) -> Result<Option<Item>> {
        self.offset = self.in_doubt_from.take().unwrap_or(0);
        if let Err(error) = self.resume(cause, None) {
            self.state = State::Failed(error);
        }
        Ok(Some(Item::TakeBack))
    }
}
