//! The requests of one download: the first one, and those for the rest.

use std::time::Duration;

use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue, IF_RANGE, RANGE};
use http::{Extensions, Method};
use reqwest::{Request, Response, Url};
use reqwest_middleware::{ClientWithMiddleware, Error, RequestBuilder, Result};
use tokio::time::Instant;

use super::version::Validator;
use crate::admit::{Scope, current_deadline};
use crate::clock;
use crate::config::{ConfigError, Timers};
use crate::host::host_of;
use crate::outcome::{ReportSlot, RetryReport, SteadyError, StopReason, TimeLimit};
use crate::request::RequestOptions;
use crate::schedule::Limit;
use crate::upstream::BoxFuture;

/// Sends the request of a download as often as needed, through the same client.
pub(super) struct Requests {
    client: ClientWithMiddleware,
    request: Request,
    /// Without `buffer_response`, because a download reads its body itself.
    extensions: Extensions,
    started: Instant,
    /// The earlier one of the request and of the scope around it, counted from `started`.
    deadline: Option<Duration>,
    /// The `attempt_timeout` of requests for the rest, unless the request or the retry has one.
    stall_timeout: Duration,
    /// A retry is in the chain, and limits the time of each attempt.
    has_retry: bool,
    /// What that retry says about the latest request for the rest.
    report: ReportSlot,
}

impl Requests {
    /// Prepares the requests of a download.
    ///
    /// # Errors
    ///
    /// If the request cannot be built, or cannot be repeated for a part of the file.
    pub(super) fn new(mut builder: RequestBuilder, stall_timeout: Duration) -> Result<Self> {
        let mut extensions = std::mem::take(builder.extensions());
        let (client, request) = builder.build_split();
        let mut request = request?;
        SteadyError::check(Timers::default().check(), request.url())?;
        SteadyError::check(check(&request), request.url())?;
        // Offsets count bytes of the file itself.
        let identity = HeaderValue::from_static("identity");
        request.headers_mut().insert(ACCEPT_ENCODING, identity);
        let started = clock::now();
        let mut deadline = RequestOptions::of(&extensions).and_then(|options| options.deadline);
        let around = current_deadline().map(|end| end.saturating_duration_since(started));
        deadline = deadline.into_iter().chain(around).min();
        RequestOptions::change(&mut extensions, |options| options.buffer = None);
        Ok(Self {
            client,
            request,
            extensions,
            started,
            deadline,
            stall_timeout,
            has_retry: false,
            report: ReportSlot::new(),
        })
    }

    pub(super) fn url(&self) -> &Url {
        self.request.url()
    }

    /// Returns the time limit of the whole download: its deadline, or that of the scope in which it is read.
    pub(super) fn limit(&self) -> Option<Limit> {
        let around = current_deadline();
        let around = around.map(|end| end.saturating_duration_since(self.started));
        let deadline = self.deadline.into_iter().chain(around).min()?;
        Some(Limit::new(TimeLimit::Deadline, self.started, deadline))
    }

    /// Adds host, requests and time to the error of the deadline.
    pub(super) fn complete_error(&self, mut error: Error, requests: u32) -> Error {
        if let Some(own) = SteadyError::of_mut(&mut error) {
            if own.host().is_empty() {
                let elapsed = clock::now().saturating_duration_since(self.started);
                own.complete(host_of(self.url()), requests, elapsed);
            }
        }
        error
    }

    /// Requests the whole file.
    pub(super) async fn first(&mut self) -> Result<Response> {
        let (request, extensions) = (self.copy(), self.extensions.clone());
        let send = send(self.client.clone(), request, extensions);
        let result = match self.limit() {
            None => send.await,
            Some(limit) => limit.enforce(send).await,
        };
        let response = result.map_err(|error| self.complete_error(error, 1))?;
        self.has_retry = RetryReport::of(&response).is_some();
        Ok(response)
    }

    /// Requests the file again after a wait, in a scope: from its beginning, or from an offset if it is still the
    /// same version.
    pub(super) fn again(
        &self,
        from: Option<(u64, &Validator)>,
        wait: Duration,
        scope: Scope,
    ) -> BoxFuture<'static, Result<Response>> {
        let mut request = self.copy();
        if let Some((offset, validator)) = from {
            let range = HeaderValue::try_from(format!("bytes={offset}-"));
            let range = range.expect("digits are valid in a header");
            let headers = request.headers_mut();
            headers.insert(RANGE, range);
            headers.insert(IF_RANGE, validator.value().clone());
        }
        let mut extensions = self.extensions.clone();
        let (started, deadline) = (self.started, self.deadline);
        let (stall_timeout, has_retry) = (self.stall_timeout, self.has_retry);
        let (client, report) = (self.client.clone(), self.report.clone());
        report.clear();
        Box::pin(async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let mut timeout = stall_timeout;
            RequestOptions::change(&mut extensions, |options| {
                // The slot of the caller keeps the report of the first request.
                options.report = Some(report);
                // A silent server must not block the download forever.
                options.fallback_timeout = Some(stall_timeout);
                timeout = options.attempt_timeout.unwrap_or(stall_timeout);
                let elapsed = clock::now().saturating_duration_since(started);
                options.deadline = deadline.map(|deadline| deadline.saturating_sub(elapsed));
            });
            let send = scope.run(send(client, request, extensions));
            match has_retry {
                true => send.await,
                false => {
                    let limit = Limit::new(TimeLimit::Attempt, clock::now(), timeout);
                    limit.enforce(send).await
                }
            }
        })
    }

    /// Returns whether a failed request may be sent again: not if the retry in the chain stopped for a reason that
    /// still holds.
    pub(super) fn may_ask_again(&self) -> bool {
        let report = self.report.get();
        !report.is_some_and(|report| {
            matches!(
                report.stop_reason(),
                StopReason::NotRetryable
                    | StopReason::ServerVeto
                    | StopReason::ServerDelayTooLong
                    | StopReason::BudgetEmpty
                    | StopReason::Throttled
            )
        })
    }

    fn copy(&self) -> Request {
        self.request.try_clone().expect("checked in `new`")
    }
}

async fn send(
    client: ClientWithMiddleware,
    request: Request,
    mut extensions: Extensions,
) -> Result<Response> {
    client
        .execute_with_extensions(request, &mut extensions)
        .await
}

/// Refuses a request that cannot be a download.
fn check(request: &Request) -> std::result::Result<(), ConfigError> {
    if request.method() != Method::GET {
        let rule = "should be a GET: only its response can be asked for in parts";
        return Err(ConfigError::new("download", request.method(), rule));
    }
    let is_set =
        |headers: &HeaderMap| headers.contains_key(RANGE) || headers.contains_key(IF_RANGE);
    if is_set(request.headers()) {
        let rule = "should not be set: the download sets them itself";
        return Err(ConfigError::new("download", "Range or If-Range", rule));
    }
    if request.try_clone().is_none() {
        let rule = "should not be a stream: the request may be sent several times";
        return Err(ConfigError::new(
            "download",
            "the body of the request",
            rule,
        ));
    }
    Ok(())
}
