//! The time limits of one call, and what it does with its response.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Result};
use tokio::time::Instant;

use super::config::CoalesceConfig;
use super::flights::FlightMessage;
use super::follower::Follower;
use super::leader::Leader;
use super::shareable::is_shareable;
use crate::admit::{Scope, current_deadline};
use crate::clock;
use crate::outcome::{ReportSlot, RetryReport, SteadyError, StopReason, TimeLimit};
use crate::request::RequestOptions;
use crate::response::{BodyReader, BufferedResponse, Extent, expected_length};
use crate::schedule::Limit;

/// How long the leader reads a body for its followers before they send their own requests.
const READ_TIME: Duration = Duration::from_secs(2);

/// How often the leader checks whether any follower still waits, while it reads the body.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// One call that may be shared.
pub(super) struct CoalescedCall<'a> {
    settings: &'a CoalesceConfig,
    is_head: bool,
    pub(super) started: Instant,
    /// From the request or the scope around it, whichever is earlier.
    deadline: Option<Instant>,
    /// Of the request, for one attempt.
    timeout: Option<Duration>,
}

impl<'a> CoalescedCall<'a> {
    pub(super) fn start(
        settings: &'a CoalesceConfig,
        request: &Request,
        options: Option<&RequestOptions>,
    ) -> Self {
        let started = clock::now();
        let own = options.and_then(|options| options.deadline);
        let own = own.map(|deadline| clock::after(started, deadline));
        Self {
            settings,
            is_head: request.method() == Method::HEAD,
            started,
            // This also starts the time of a scope that the task carries.
            deadline: own.into_iter().chain(current_deadline()).min(),
            timeout: request.timeout().copied(),
        }
    }

    /// Limits the wait for a leader. The timeout does not: the leader may need several attempts.
    fn wait_limit(&self) -> Option<Limit> {
        let left = self.deadline?.saturating_duration_since(self.started);
        Some(Limit::new(TimeLimit::Deadline, self.started, left))
    }

    /// Limits the request of a call that has waited before, by its deadline and its timeout.
    pub(super) fn send_limit(&self) -> Option<Limit> {
        let timeout = self.timeout;
        let timeout = timeout.map(|timeout| Limit::new(TimeLimit::Attempt, self.started, timeout));
        let limits = self.wait_limit().into_iter().chain(timeout);
        limits.min_by_key(Limit::end)
    }

    /// Waits for the leader until this call's deadline.
    pub(super) async fn follow(&self, follower: Follower) -> Result<FlightMessage> {
        let message = async { Ok(follower.wait().await) };
        match self.wait_limit() {
            None => message.await,
            Some(limit) => limit.enforce(message).await,
        }
    }

    /// Adds host, attempts and time to the error of a limit of this call.
    pub(super) fn complete_error(&self, mut error: Error, host: &str, attempts: u32) -> Error {
        let own = SteadyError::of_mut(&mut error);
        if let Some(own) = own.filter(|own| own.host().is_empty()) {
            let elapsed = clock::now().saturating_duration_since(self.started);
            own.complete(host, own.attempts().max(attempts), elapsed);
        }
        error
    }

    /// Ends the flight with the leader's result if that holds for all followers, or hands it over. Returns
    /// what the leader's own caller gets.
    pub(super) async fn share(&self, leader: Leader, result: Result<Response>) -> Result<Response> {
        let response = match result {
            Ok(response) => response,
            Err(error) => {
                hand_over(leader, &error);
                return Err(error);
            }
        };
        // A retry inside can end for a reason that holds for this caller alone.
        match RetryReport::of(&response).map(RetryReport::stop_reason) {
            Some(StopReason::DeadlineTooClose) => {
                leader.leave();
                return Ok(response);
            }
            Some(StopReason::AllowanceSpent | StopReason::Throttled) => {
                leader.fail();
                return Ok(response);
            }
            _ => {}
        }
        let length = match self.is_head {
            true => None,
            false => expected_length(&response),
        };
        let is_too_long = length.is_some_and(|length| length > self.settings.max_body as u64);
        if is_too_long || !is_shareable(&response, &self.settings.ignored) {
            leader.dissolve();
            return Ok(response);
        }
        self.share_body(leader, BodyReader::new(response, length))
            .await
    }

    /// Reads the body for all followers, within bounds of size and time.
    async fn share_body(&self, mut leader: Leader, mut reading: BodyReader) -> Result<Response> {
        let end = clock::after(clock::now(), READ_TIME);
        loop {
            let now = clock::now();
            if self.deadline.is_some_and(|deadline| deadline <= now) {
                // The headers came in time, and the deadline covers no more. Another caller may have
                // the time to read the body.
                leader.leave();
                return Ok(reading.into_stream());
            }
            if end <= now {
                leader.dissolve();
                return Ok(reading.into_stream());
            }
            let check = clock::after(now, CHECK_INTERVAL).min(end);
            let check = self.deadline.map_or(check, |deadline| deadline.min(check));
            match clock::within(check, reading.read(self.settings.max_body)).await {
                Some(Ok(Extent::Whole)) => {
                    let response = Arc::new(reading.into_buffered());
                    leader.share(&response);
                    return Ok(response.to_response());
                }
                Some(Ok(Extent::Part)) => {
                    leader.dissolve();
                    return Ok(reading.into_stream());
                }
                Some(Err(error)) => {
                    hand_over(leader, &error);
                    return Ok(reading.into_broken(error));
                }
                None => match leader.if_awaited() {
                    Some(awaited) => leader = awaited,
                    None => return Ok(reading.into_stream()),
                },
            }
        }
    }
}

/// Sends in the time that `limit` leaves. The scope tells a retry inside how much that is.
pub(super) async fn send_within(
    limit: Limit,
    sending: impl Future<Output = Result<Response>>,
) -> Result<Response> {
    let left = limit.end().saturating_duration_since(clock::now());
    let scope = Scope::new().deadline(left);
    let result = limit.enforce(scope.run(sending)).await;
    result.map_err(|error| limit.replace_nested(error))
}

/// Makes a follower the leader after this error, which goes to the leader's own caller.
fn hand_over(leader: Leader, error: &Error) {
    if error.is_timeout() || SteadyError::of(error).is_some_and(SteadyError::is_timeout) {
        leader.leave();
    } else {
        leader.fail();
    }
}

/// Copies a shared response for a follower, and its report into the follower's slot.
pub(super) fn copy_for_follower(shared: &BufferedResponse, slot: Option<&ReportSlot>) -> Response {
    let response = shared.to_response();
    if let (Some(slot), Some(report)) = (slot, RetryReport::of(&response)) {
        slot.put(report.clone());
    }
    response
}
