//! The coalescing middleware: one request on the wire for all who ask the same at the same time.

mod builder;
mod flight;
mod identity;
mod passenger;
mod shareable;
mod spare_text;

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tokio::time::Instant;

pub use builder::CoalesceMiddlewareBuilder;
use builder::Settings;
use flight::{Flights, Leadership, News, Seat};
use identity::{Identity, Unshared};
use passenger::Passenger;
use shareable::is_shareable;

use crate::admit::{Scope, current_deadline};
use crate::clock;
use crate::outcome::{Attempt, RetryReport, StopReason, TimedOut};
use crate::request::RequestOptions;
use crate::response::{BodyReader, Extent, expected_length};
use crate::schedule::Limit;

/// The body of an answer that several wait for is read so long, before they are sent on their own.
const READ_TIME: Duration = Duration::from_secs(2);

/// While it is read, the leader looks so often whether anybody is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Makes one request on the wire of all that are the same and in flight at the same time.
///
/// When something expires that a thousand callers want, they all ask for it at once. Here the first of
/// them asks, and the others wait for its answer: each gets a response of its own, with the same
/// status, headers, extensions and body.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::{CoalesceMiddleware, RetryMiddleware};
/// use wiremock::matchers::method;
/// use wiremock::{Mock, MockServer, ResponseTemplate};
///
/// let server = MockServer::start().await;
/// let answer = ResponseTemplate::new(200).set_body_string("prices");
/// Mock::given(method("GET")).respond_with(answer).expect(1).mount(&server).await;
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(CoalesceMiddleware::default())
///     .with(RetryMiddleware::default())
///     .build();
/// let calls = (0..100).map(|_| async {
///     let response = client.get(server.uri()).send().await?;
///     Ok::<_, reqwest_middleware::Error>(response.text().await?)
/// });
/// for text in futures_util::future::join_all(calls).await {
///     assert_eq!(text?, "prices");
/// }
/// # Ok(()) } // one request has arrived
/// ```
///
/// # Where to put it
///
/// Outside the [`RetryMiddleware`](crate::RetryMiddleware), so before it: then a call is shared with
/// all its retries, and its [`RetryReport`] with all who waited. Inside, each attempt would be shared
/// by itself: calls whose attempts have drifted apart would no longer meet, and each who waited would
/// pay for the one failure with a retry from the [`Budget`](crate::Budget), which is soon empty. With
/// the feature `tracing` it says so once in the log.
///
/// But inside, so after, all middleware that adds credentials or other headers: **what is added later
/// is not compared.** What a client adds by itself, like its default headers, cookies and
/// certificates, is not seen here either.
///
/// So each client should have a table of its own, and a clone of this middleware has one. But **a
/// client that is made with
/// [`ClientBuilder::from_client`](reqwest_middleware::ClientBuilder::from_client) has the same
/// middleware, and so the same table, as the one it was made from. Whatever is added to it after that
/// is inside: if that is credentials, one user gets the answers of another.** Add the credentials
/// first, and this to each client by itself. The same holds for
/// [`with_arc`](reqwest_middleware::ClientBuilder::with_arc), with which clients that are the same to
/// the server can share a table on purpose.
///
/// # What is the same
///
/// `GET`, `HEAD` and `OPTIONS` without a body, with the same URL, the same headers, the same HTTP
/// version, the same `timeout`, `attempt_timeout` and `max_retries`. All headers count, except those of
/// tracing and those named with [`ignore_header`](CoalesceMiddlewareBuilder::ignore_header); credentials
/// count always. Everything else passes as if this were not here, and so does:
///
/// - a request with `Cache-Control: no-cache`, `no-store` or `max-age=0`, or with `Pragma: no-cache`,
///   which asks for an answer of its own. An answer may be as old as the first request for it. Who has
///   just changed something, and must see the change, asks so.
/// - a request with an idempotency key, as a setting or in a header `Idempotency-Key`, or with
///   extensions that this crate does not know
///   ([`ignore_extensions`](CoalesceMiddlewareBuilder::ignore_extensions) tells why, and changes it).
///
/// # What is shared
///
/// Any answer, errors like 404 or 503 included, but not one
///
/// - with a body of more than [`max_body`](CoalesceMiddlewareBuilder::max_body) bytes, or one that
///   is not there within two seconds after its head;
/// - with `Set-Cookie`, for that may be a session, which belongs to one;
/// - with `Cache-Control: no-store`, which says that it is for one request only;
/// - with `Vary: *`, or a `Vary` that names an ignored header;
/// - that is a stream of events (`text/event-stream`, `multipart/x-mixed-replace`) or a `101`.
///
/// Then those who waited send their own requests, all at once. An endpoint whose answers are all of
/// this kind, say because each sets a cookie, so costs them a second round trip every time: leave it
/// to a client without this. Nothing is read and nothing held up if nobody waits: a lone caller gets
/// its answer as it came. Trailers are not shared.
///
/// An answer with which a retry inside ended for a reason that is the first caller's own, because its
/// deadline was too close, its [`Scope`] had no retries left or a throttle did not let it through, is
/// for that caller only, and the next takes its place.
///
/// # When something goes wrong
///
/// If its request fails, or its body breaks off, the first caller gets what it would have got by
/// itself, and the next takes its place; so also if it takes longer than
/// [`max_wait`](CoalesceMiddlewareBuilder::max_wait). If it is dropped, or its own time is up, the one
/// that came last takes its place, which has the most time left. The others wait for that one. Who has
/// seen three end like this goes on alone.
///
/// A [`deadline`](crate::RequestBuilderExt::deadline) of a request or a [`Scope`] holds while it waits,
/// and what is left of it when its own turn comes. It ends with [`TimedOut`](crate::TimedOut). The
/// `timeout` of a request is for one attempt, so who waits for a call that is retried waits for all of
/// its attempts. But if that one fails or is dropped, waiting and the own turn together take no longer
/// than the timeout, and end with `TimedOut`, too. A deadline or a timeout that is set on a retry inside, or on
/// the client, cannot be seen from here. It counts from when one's own turn comes: who waited for one
/// that failed may take up to twice as long, and at most four times. Give the request a deadline if
/// that is too long.
///
/// It needs a tokio runtime with timers, as a
/// [`RetryMiddleware`](crate::RetryMiddleware#what-it-needs) does.
#[derive(Debug)]
pub struct CoalesceMiddleware {
    settings: Arc<Settings>,
    flights: Arc<Flights>,
}

impl CoalesceMiddleware {
    /// Starts from the defaults.
    pub fn builder() -> CoalesceMiddlewareBuilder {
        CoalesceMiddlewareBuilder::default()
    }

    fn new(settings: Arc<Settings>) -> Self {
        Self {
            flights: Flights::new(settings.max_wait),
            settings,
        }
    }
}

impl Default for CoalesceMiddleware {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Clone for CoalesceMiddleware {
    /// The same settings, for another client: nothing is shared between the two.
    fn clone(&self) -> Self {
        Self::new(self.settings.clone())
    }
}

impl Middleware for CoalesceMiddleware {
    // Not `#[async_trait]`: what is not shared passes without a box of its own.
    fn handle<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        request: Request,
        extensions: &'life1 mut Extensions,
        next: Next<'life2>,
    ) -> Pin<Box<dyn Future<Output = Result<Response>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        if let Err(lack) = self.settings.timers.check() {
            return Box::pin(ready(Err(Error::middleware(lack))));
        }
        let (ignored, hasher) = (&self.settings.ignored, self.flights.hasher());
        let identity = match Identity::of(&request, extensions, ignored, hasher) {
            Ok(known) => known,
            Err(reason) => {
                if reason == Unshared::UnknownExtensions {
                    self.settings.warn_of_unknown_extensions();
                }
                return next.run(request, extensions);
            }
        };
        if extensions.get::<Attempt>().is_some() {
            self.settings.warn_of_order();
        }
        Box::pin(Passenger::new(self, identity, request, extensions, next))
    }
}

/// The state of one call.
#[derive(Clone, Copy)]
struct Call<'a> {
    settings: &'a Settings,
    is_head: bool,
    started: Instant,
    own_deadline: Option<Duration>,
    timeout: Option<Duration>,
}

impl<'a> Call<'a> {
    fn open(settings: &'a Settings, identity: &Identity, extensions: &Extensions) -> Self {
        if Scope::any_exists() {
            // The time of one that the task carries begins with the first call in it.
            current_deadline();
        }
        Self {
            settings,
            is_head: identity.is_head(),
            started: clock::now(),
            own_deadline: RequestOptions::of(extensions).and_then(|own| own.deadline),
            timeout: identity.timeout(),
        }
    }

    /// Its own, or that of the scope around it. Looked up when it is needed: most calls are alone.
    fn deadline(&self) -> Option<Instant> {
        let own = self.own_deadline.map(|own| clock::after(self.started, own));
        match (own, current_deadline()) {
            (Some(own), Some(current)) => Some(own.min(current)),
            (own, current) => own.or(current),
        }
    }

    /// The end of all waiting.
    fn end(&self) -> Option<Limit> {
        let deadline = self.deadline();
        deadline.map(|deadline| Limit::deadline(self.started, deadline))
    }

    /// The end of its own turn, if it has to wait for one: by the deadline or by the request's timeout,
    /// whichever is earlier.
    fn turn(&self) -> Option<Limit> {
        let timeout = self.timeout;
        let timeout = timeout.map(|timeout| Limit::timeout(self.started, timeout));
        self.end().into_iter().chain(timeout).min_by_key(Limit::end)
    }

    /// Waits for the answer of another, and asks by itself if there is none.
    async fn follow(
        self,
        seat: Seat,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let slot = RequestOptions::of(extensions).and_then(|own| own.report.clone());
        if let Some(slot) = &slot {
            // It may have the report of another call.
            slot.clear();
        }
        let news = async { Ok(seat.news().await) };
        // The seat sees to the timeout.
        let news = match self.end() {
            None => news.await,
            Some(limit) => limit.enforce(news).await,
        };
        match news? {
            News::Answer(answer) => {
                let response = answer.to_response();
                if let (Some(slot), Some(report)) = (slot, RetryReport::of(&response)) {
                    slot.put(report.clone());
                }
                Ok(response)
            }
            News::Lead(mut leadership) => {
                let answer = self.ask(request, extensions, next).await;
                if !leadership.is_awaited() {
                    return answer;
                }
                self.land(leadership, answer).await
            }
            News::Alone => self.ask(request, extensions, next).await,
        }
    }

    /// Sends the request in what is left of this call's time. Without the scope, a retry inside would
    /// count from now.
    async fn ask<'b>(
        &self,
        request: Request,
        extensions: &'b mut Extensions,
        next: Next<'b>,
    ) -> Result<Response> {
        let answer = next.run(request, extensions);
        match self.turn() {
            None => answer.await,
            Some(limit) => {
                let left = limit.end().saturating_duration_since(clock::now());
                let scope = Scope::new().deadline(left);
                let answer = limit.enforce(scope.run(answer)).await;
                answer.map_err(|error| limit.name(error))
            }
        }
    }

    /// Ends a flight that is awaited, or hands it over, and gives out the leader's own answer.
    async fn land(self, leadership: Leadership, answer: Result<Response>) -> Result<Response> {
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                hand_over(leadership, &error);
                return Err(error);
            }
        };
        match RetryReport::of(&response).map(RetryReport::stop) {
            Some(StopReason::DeadlineTooClose) => {
                leadership.leave();
                return Ok(response);
            }
            Some(StopReason::AllowanceSpent | StopReason::Throttled) => {
                leadership.fail();
                return Ok(response);
            }
            _ => {}
        }
        let announced = match self.is_head {
            true => None,
            false => expected_length(&response),
        };
        let too_long = announced.is_some_and(|length| length > self.settings.max_body as u64);
        if too_long || !is_shareable(&response, &self.settings.ignored) {
            leadership.dissolve();
            return Ok(response);
        }
        Box::pin(self.share(leadership, BodyReader::new(response, announced))).await
    }

    /// Reads the body for all who wait.
    async fn share(&self, mut leadership: Leadership, mut reading: BodyReader) -> Result<Response> {
        let end = clock::after(clock::now(), READ_TIME);
        let deadline = self.deadline();
        loop {
            let now = clock::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                // The head is there in time, and the deadline is about the head. Another may have
                // the time to read all of it.
                leadership.leave();
                return Ok(reading.into_stream());
            }
            if end <= now {
                leadership.dissolve();
                return Ok(reading.into_stream());
            }
            let look = clock::after(now, LOOK_INTERVAL).min(end);
            let look = deadline.map_or(look, |deadline| deadline.min(look));
            match tokio::time::timeout_at(look, reading.read(self.settings.max_body)).await {
                Ok(Ok(Extent::Whole)) => {
                    let answer = Arc::new(reading.into_buffered());
                    leadership.share(&answer);
                    return Ok(answer.to_response());
                }
                Ok(Ok(Extent::OverLimit)) => {
                    leadership.dissolve();
                    return Ok(reading.into_stream());
                }
                Ok(Err(error)) => {
                    hand_over(leadership, &error);
                    return Ok(reading.into_broken(error));
                }
                Err(_) if !leadership.is_awaited() => return Ok(reading.into_stream()),
                Err(_) => {}
            }
        }
    }
}

/// Makes another the leader after this error, which stays with its own caller.
fn hand_over(leadership: Leadership, error: &Error) {
    if error.is_timeout() || TimedOut::of(error).is_some() {
        leadership.leave();
    } else {
        leadership.fail();
    }
}
