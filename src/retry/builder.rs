//! Builds a retry middleware, and checks its settings.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::RetryMiddleware;
use super::config::RetryParts;
use crate::admit::{Budget, BudgetBuilder};
use crate::config::ConfigError;
use crate::dead_letter::{DeadLetterSink, Secrets};
use crate::decide::{
    AttemptView, AutoKey, BodyStart, BodyVerdict, ClassifyFn, Inspect, InspectRule, StatusClass,
};
use crate::fleet::FleetLimits;
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::observe::{Event, Observer, Observers};
use crate::presets::Preset;
use crate::schedule::Backoff;
use crate::settings::{BudgetSettings, RetrySettings, SteadySettings};

/// Builds a [`RetryMiddleware`].
///
/// [`build`](RetryMiddlewareBuilder::build) checks all values and returns an error for an invalid one. The pages
/// [decide](crate::guide::decide), [schedule](crate::guide::schedule) and [admit](crate::guide::admit) of the guide
/// explain the settings, and [tuning](crate::guide::tuning) says when to change them.
///
/// | setting | default |
/// |---|---|
/// | [`max_retries`](Self::max_retries) | 5 |
/// | [`backoff`](Self::backoff) | 200 ms · 2ⁿ up to 10 s, full jitter |
/// | [`max_server_delay`](Self::max_server_delay) | 60 s |
/// | [`attempt_timeout`](Self::attempt_timeout), [`deadline`](Self::deadline) | none; set both |
/// | [`retry_window`](Self::retry_window) | 5 min |
/// | [`budget_per_host`](Self::budget_per_host) | 0.2 retries per success, and a reserve of 20 |
/// | [`idempotency_header`](Self::idempotency_header), [`auto_key`](Self::auto_key) | `Idempotency-Key`, off |
/// | everything else | off |
///
/// ```
/// use std::time::Duration;
/// use reqwest_steady::{Backoff, Jitter, RetryMiddleware, StatusClass};
///
/// let retry = RetryMiddleware::builder()
///     .max_retries(5)
///     .backoff(
///         Backoff::exponential(Duration::from_millis(200))
///             .multiplier(2.0)
///             .cap(Duration::from_secs(10))
///             .jitter(Jitter::Full),
///     )
///     .deadline(Duration::from_secs(60))
///     .attempt_timeout(Duration::from_secs(10))
///     .max_server_delay(Duration::from_secs(60))
///     .status(reqwest::StatusCode::CONFLICT, StatusClass::Conditional)
///     .build()?;
///
/// // A nightly job that starts everywhere at once, against a server with its own name for keys. Its client
/// // is built with `reqwest::redirect::Policy::none()`:
/// let job = RetryMiddleware::builder()
///     .launch_spread(Duration::from_secs(60))
///     .retry_window(Duration::from_secs(30 * 60))
///     .idempotency_header("PayPal-Request-Id")
///     .attempt_header("X-Attempt")
///     .client_follows_redirects(false)
///     .retry_unsent(true)
///     .build()?;
///
/// let refused = RetryMiddleware::builder()
///     .backoff(Backoff::exponential(Duration::from_millis(200)).multiplier(0.5))
///     .build();
/// assert_eq!(
///     refused.unwrap_err().to_string(),
///     "backoff multiplier (0.5) should be a finite number of at least 1.0",
/// );
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct RetryMiddlewareBuilder {
    pub(super) data: RetrySettings,
    pub(super) preset: Option<Preset>,
    pub(super) parts: RetryParts,
}

impl RetryMiddlewareBuilder {
    /// Sets everything that is data, and keeps functions, sinks, observers, a fleet, a shared budget and a preset.
    ///
    /// Methods that are called later change single settings. See [`settings`](crate::settings).
    ///
    /// ```
    /// use reqwest_steady::RetryMiddleware;
    /// use reqwest_steady::settings::RetrySettings;
    ///
    /// let mut settings = RetrySettings::default();
    /// settings.max_retries = 2;
    /// let retry = RetryMiddleware::builder().settings(settings).build()?;
    /// assert_eq!(retry.max_retries(), 2);
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn settings(mut self, settings: RetrySettings) -> Self {
        self.data = settings;
        self
    }

    /// Sets everything that is data, also the preset.
    pub(crate) fn all_settings(mut self, settings: &SteadySettings) -> Self {
        self.preset = settings.preset;
        self.settings(settings.retry.clone())
    }
}

/// # Attempts and waits
impl RetryMiddlewareBuilder {
    /// Limits the retries of one call.
    ///
    /// A call makes at most one attempt more than this.
    ///
    /// Default: 5.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.data.max_retries = retries;
        self
    }

    /// Sets how waits between attempts grow and spread.
    ///
    /// Default: 200 ms · 2ⁿ up to 10 s, full jitter.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses a base of zero, a multiplier below 1, and a cap shorter than the base.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.data.backoff = backoff;
        self
    }

    /// Limits the pause that a server may ask for.
    ///
    /// If the server asks for a longer pause, the call returns its response at once. An earlier retry would be refused
    /// again. The same holds for a pause that ends after the [`retry_window`](Self::retry_window).
    ///
    /// Default: 60 s.
    pub fn max_server_delay(mut self, delay: Duration) -> Self {
        self.data.max_server_delay = delay;
        self
    }

    /// Delays the first attempt by a random time up to `spread`.
    ///
    /// Use it for many jobs that start at the same time. The delay is at most half of a call's deadline, and counts
    /// in the retry window.
    ///
    /// Default: none.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses a spread longer than the [`retry_window`](Self::retry_window).
    pub fn launch_spread(mut self, spread: Duration) -> Self {
        self.data.launch_spread = spread;
        self
    }
}

/// # Time limits
impl RetryMiddlewareBuilder {
    /// Limits the time of each attempt until its response headers arrive.
    ///
    /// Unlike reqwest's `timeout` it does not cut a long download. Time in the queue of a throttle does not count.
    /// Without a timeout, a silent server blocks the call forever.
    /// [`RequestBuilderExt::attempt_timeout`](crate::RequestBuilderExt::attempt_timeout) sets it for one
    /// request.
    ///
    /// Default: none.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses zero, and a timeout longer than the [`deadline`](Self::deadline), because no
    /// attempt can reach it.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.data.attempt_timeout = Some(timeout);
        self
    }

    /// Limits the total time until response headers arrive.
    ///
    /// Retries that cannot start in time are skipped. The delivery of a
    /// [dead letter](Self::dead_letter_sink) may take up to 100 ms longer.
    ///
    /// Default: none.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses zero.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.data.deadline = Some(deadline);
        self
    }

    /// Limits the time in which retries may start.
    ///
    /// It counts from the start of the call. Attempts that have started may take longer.
    ///
    /// Default: 5 min.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses zero.
    pub fn retry_window(mut self, window: Duration) -> Self {
        self.data.retry_window = window;
        self
    }
}

/// # Retry budget
impl RetryMiddlewareBuilder {
    /// Replaces the settings of the retry budget that each host has.
    ///
    /// Use it to allow more or fewer retries during an outage. See [`Budget`].
    ///
    /// Default: one retry for 5 successful calls, and a reserve of 20 that successes refill.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses it together with [`budget`](Self::budget), and
    /// settings that [`BudgetBuilder::build`] refuses.
    ///
    /// ```
    /// use reqwest_steady::{Budget, RetryMiddleware};
    ///
    /// // One of thousands of small clients: together they must not add much.
    /// let retry = RetryMiddleware::builder()
    ///     .budget_per_host(Budget::builder().min_retries_per_sec(0.1))
    ///     .build()?;
    /// # let _ = retry;
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn budget_per_host(mut self, each: BudgetBuilder) -> Self {
        self.data.budget_per_host = BudgetSettings::of(&each);
        self.parts.has_budget_per_host = true;
        self
    }

    /// Uses one retry budget for all hosts.
    ///
    /// Use it to limit the retries of several clients together, because clones share one budget. A host that is down
    /// then spends it for all hosts.
    ///
    /// Default: one budget per host.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.parts.budget = Some(budget);
        self
    }

    /// Shares the retry budget of each host with all workers of a fleet.
    ///
    /// [`budget_per_host`](Self::budget_per_host) then sets the budget of all workers together. A retry that was not
    /// paid for in advance waits for the store, at most 50 ms. See [`FleetLimits`].
    ///
    /// Default: none.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses it together with [`budget`](Self::budget).
    ///
    /// ```
    /// use reqwest_steady::fleet::FleetLimits;
    /// use reqwest_steady::{Budget, RetryMiddleware};
    ///
    /// // With the feature `redis`: FleetLimits::redis("redis://redis.internal")?
    /// let fleet = FleetLimits::in_memory();
    /// let retry = RetryMiddleware::builder().fleet(fleet.clone()).build()?;
    ///
    /// let refused = RetryMiddleware::builder().fleet(fleet).budget(Budget::unlimited()).build();
    /// assert_eq!(
    ///     refused.unwrap_err().to_string(),
    ///     "fleet (with `budget`) should be given with budgets per host, because it shares those",
    /// );
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn fleet(mut self, fleet: FleetLimits) -> Self {
        self.parts.fleet = Some(fleet);
        self
    }
}

/// # What is retried
impl RetryMiddlewareBuilder {
    /// Adds what is known of the errors of a service.
    ///
    /// Its rules hold where your settings say nothing: after [`classify_fn`](Self::classify_fn),
    /// [`status`](Self::status) and [`inspect_body`](Self::inspect_body), and before the defaults. The
    /// [page](crate::guide::presets) of the service says what it sets.
    ///
    /// Default: none.
    ///
    /// ```
    /// use reqwest::StatusCode;
    /// use reqwest_steady::{Preset, RetryMiddleware, StatusClass};
    ///
    /// let retry = RetryMiddleware::builder().preset(Preset::Kubernetes).build()?;
    /// assert_eq!(retry.status_class(StatusCode::GATEWAY_TIMEOUT), StatusClass::Conditional);
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = Some(preset);
        self
    }

    /// Changes the class of one status.
    ///
    /// If a status is set twice, the later class holds.
    ///
    /// Default: the table of [`StatusClass`].
    pub fn status(mut self, status: StatusCode, class: StatusClass) -> Self {
        self.data.status.insert(status, class);
        self
    }

    /// Asks a function for the class of each attempt.
    ///
    /// If it returns `None`, the tables of statuses and failures decide. The server's directive overrides the class:
    /// `x-should-retry: false` stops, and `true` allows a retry of a repeatable request whose response is an error.
    /// If the body of a [buffered](crate::RequestBuilderExt::buffer_response) response breaks off, the function is
    /// called again with the failure.
    ///
    /// Default: none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use reqwest_steady::{RetryMiddleware, StatusClass};
    ///
    /// // GitHub says 403 for a used-up quota, which may last for an hour.
    /// let hour = Duration::from_secs(60 * 60);
    /// let retry = RetryMiddleware::builder()
    ///     .classify_fn(|attempt| {
    ///         let spent = attempt.headers()?.get("x-ratelimit-remaining")? == "0";
    ///         (attempt.status()? == 403 && spent).then_some(StatusClass::Retry)
    ///     })
    ///     .max_server_delay(hour)
    ///     .retry_window(2 * hour)
    ///     .build()?;
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn classify_fn(
        mut self,
        classify: impl Fn(&AttemptView<'_>) -> Option<StatusClass> + Send + Sync + 'static,
    ) -> Self {
        self.parts.classify_fn = Some(ClassifyFn(Arc::new(classify)));
        self
    }

    /// Asks a function about the beginning of a response body.
    ///
    /// Use it where the status does not say enough: a 429 for an unpaid bill, a 200 with an error inside. The function
    /// gets the bytes that `inspect` allows. Its [`BodyVerdict`] replaces the class of the response, and `None` leaves
    /// everything as it is. If several rules are set, the first one that selects a response looks at it.
    ///
    /// The caller gets the response with all its bytes. Of a `text/event-stream`, only the first event is read. Reading
    /// counts in [`attempt_timeout`](Self::attempt_timeout) and [`deadline`](Self::deadline). If a body breaks off while
    /// it is read, or if that time is over:
    ///
    /// - A response below 400 becomes a failed attempt, as with
    ///   [`buffer_response`](crate::RequestBuilderExt::buffer_response). The function is not asked.
    /// - For a 4xx or 5xx, the function sees what arrived. The caller gets the same bytes, and then the error at which the
    ///   body broke off. A body that was only slow goes on.
    ///
    /// A throttle sees the status alone: a 200 is a success for it, and a 429 delays other calls also if a verdict makes it
    /// final. What was read is never logged or stored. If a body was read to its end, its trailers are dropped. See the
    /// [guide](crate::guide::decide).
    ///
    /// Default: none.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses an invalid [`content_type`](Inspect::content_type) and a
    /// [`timeout`](Inspect::timeout) of zero.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use reqwest_steady::testing::{Reply, ScriptedServer};
    /// use reqwest_steady::{BodyVerdict, Inspect, RetryMiddleware};
    ///
    /// let server = ScriptedServer::new(|_| {
    ///     Reply::status(429).body(r#"{"error": {"code": "insufficient_quota"}}"#)
    /// });
    /// let retry = RetryMiddleware::builder()
    ///     .inspect_body(Inspect::errors().limit(4 * 1024), |attempt, start| {
    ///         let is_unpaid = start.text().contains("insufficient_quota");
    ///         (attempt.status()? == 429 && is_unpaid).then(BodyVerdict::never)
    ///     })
    ///     .build()?;
    /// let response = server.client(retry).get("https://llm.example.com").send().await?;
    /// assert_eq!(response.status(), 429);
    /// assert_eq!(server.count(), 1); // no retry
    /// assert!(response.text().await?.contains("insufficient_quota"));
    /// # Ok(()) }
    /// ```
    pub fn inspect_body(
        mut self,
        inspect: Inspect,
        ask: impl Fn(&AttemptView<'_>, &BodyStart<'_>) -> Option<BodyVerdict> + Send + Sync + 'static,
    ) -> Self {
        self.parts.inspect.push(InspectRule {
            what: inspect,
            ask: Arc::new(ask),
        });
        self
    }

    /// Retries refused requests even if they need a key and have none.
    ///
    /// A refusal is a response of class [`Retry`](StatusClass::Retry): 429, 502, 503, 504, and what you put into that
    /// class. Use it only for servers that send these before they do any work. A gateway's 504 often means the
    /// opposite. Requests that are not idempotent need a key.
    ///
    /// The client must not follow redirects. A server may accept a `POST` with a 303, and then fail the `GET`
    /// that follows (RFC 9110 §15.4.4). reqwest shows only the failure, so the accepted `POST` would be
    /// repeated.
    ///
    /// Default: off.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses this option without
    /// [`client_follows_redirects(false)`](Self::client_follows_redirects).
    pub fn retry_without_key(mut self, retry: bool) -> Self {
        self.data.retry_without_key = retry;
        self
    }

    /// Retries unprocessed requests even if they need a key and have none.
    ///
    /// A request is unprocessed if no connection was made, or if the server says so (HTTP/2 REFUSED_STREAM, or a GOAWAY
    /// without error). Requests that are not idempotent need a key.
    ///
    /// The client must not follow redirects. A server may accept a `POST` and redirect to another server,
    /// which refuses the connection. reqwest shows only that failure, so the accepted `POST` would be
    /// repeated.
    ///
    /// Default: off.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses this option without
    /// [`client_follows_redirects(false)`](Self::client_follows_redirects).
    pub fn retry_unsent(mut self, retry: bool) -> Self {
        self.data.retry_unsent = retry;
        self
    }

    /// Declares whether the client of this middleware follows redirects.
    ///
    /// reqwest follows redirects by default, inside one attempt. A middleware sees only the last response or error, so
    /// it cannot tell whether the server accepted the first request. Set `false` only for a client that is built with
    /// `reqwest::redirect::Policy::none()`. This setting does not change the client, and nothing checks it. If it is
    /// wrong, an accepted `POST` may be sent again.
    ///
    /// Default: `true`.
    ///
    /// # Errors
    ///
    /// With `true`, [`build`](Self::build) refuses [`retry_without_key`](Self::retry_without_key) and
    /// [`retry_unsent`](Self::retry_unsent).
    ///
    /// ```
    /// use reqwest_middleware::ClientBuilder;
    /// use reqwest_steady::RetryMiddleware;
    ///
    /// let refused = RetryMiddleware::builder().retry_unsent(true).build();
    /// assert!(refused.unwrap_err().to_string().contains("set `client_follows_redirects` to false"));
    ///
    /// let inner = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    /// let retry = RetryMiddleware::builder()
    ///     .client_follows_redirects(false)
    ///     .retry_unsent(true)
    ///     .build()?;
    /// let client = ClientBuilder::new(inner).with(retry).build();
    /// # let _ = client;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client_follows_redirects(mut self, follows: bool) -> Self {
        self.data.client_follows_redirects = follows;
        self
    }
}

/// # Idempotency keys
impl RetryMiddlewareBuilder {
    /// Sends idempotency keys in this header.
    ///
    /// Keys set with [`idempotency_key`](crate::RequestBuilderExt::idempotency_key) are moved there. If you set
    /// `Idempotency-Key` by hand, it is not moved and does not count as a key.
    ///
    /// Default: `Idempotency-Key`.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses an invalid name, and reserved headers: those that frame messages
    /// (`content-length`), route requests (`host`), carry credentials (`authorization`), describe the body
    /// (`content-*`) or select the response (`accept`). Names such as `X-Foo-Key` and `Foo-Token` count as
    /// credentials. If your server uses such a name for keys, allow it with [`Secrets::keep`].
    pub fn idempotency_header(mut self, name: impl AsRef<str>) -> Self {
        self.data.idempotency_header = Some(name.as_ref().to_owned());
        self
    }

    /// Sets whether requests that need a key and have none get one.
    ///
    /// Default: [`AutoKey::Off`].
    pub fn auto_key(mut self, auto_key: AutoKey) -> Self {
        self.data.auto_key = auto_key;
        self
    }
}

/// # Observing
impl RetryMiddlewareBuilder {
    /// Adds an [`Observer`], which gets the events of every call.
    ///
    /// There can be several. A [`ThrottleMiddleware`](crate::ThrottleMiddleware) can have the same one.
    ///
    /// Default: none.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.parts.observers.add(observer);
        self
    }

    /// Adds a function that gets the events of every call.
    ///
    /// ```
    /// use reqwest_steady::observe::EventKind;
    /// use reqwest_steady::RetryMiddleware;
    ///
    /// let retry = RetryMiddleware::builder()
    ///     .observe_fn(|event| {
    ///         if let EventKind::Stopped(stop) = event.kind {
    ///             println!("{} after {:?}: {}", event.call.host, stop.took, stop.stop_reason);
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn observe_fn(mut self, observe: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.parts.observers.add_fn(observe);
        self
    }

    /// Adds the observers that several middlewares share.
    pub(crate) fn observers(mut self, observers: &Observers) -> Self {
        self.parts.observers.add_all(observers);
        self
    }

    /// Sets the log level of each kind of event.
    ///
    /// Default: the levels of [`LogLevels::default`].
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn log_levels(mut self, levels: LogLevels) -> Self {
        self.data.log_levels = levels;
        self
    }

    /// Sends the number of the attempt, from 1, in this header.
    ///
    /// Default: none.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses the header of the idempotency key, and each header that
    /// [`idempotency_header`](Self::idempotency_header) refuses.
    pub fn attempt_header(mut self, name: impl AsRef<str>) -> Self {
        self.data.attempt_header = Some(name.as_ref().to_owned());
        self
    }

    /// Decides and reports, but sends no retry.
    ///
    /// Use it to see what the middleware would do before you switch it on. Where a retry would follow, the call ends
    /// without a wait, with [`StopReason::DryRun`](crate::StopReason::DryRun). Observers and the log get the retry
    /// with its wait. The budget pays for it, and there is no dead letter. A call that would be given up, because the
    /// budget is empty or there is no key, is reported as such. Keys, timeouts, deadlines and `launch_spread` work as
    /// usual. Calls inside this one retry as if it were not there.
    ///
    /// Default: off.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let down = wiremock::Mock::given(wiremock::matchers::any()).respond_with(wiremock::ResponseTemplate::new(503));
    /// # down.expect(1).mount(&server).await;
    /// use reqwest_middleware::ClientBuilder;
    /// use reqwest_steady::observe::EventKind;
    /// use reqwest_steady::{RetryMiddleware, RetryReport, StopReason};
    ///
    /// let retry = RetryMiddleware::builder()
    ///     .dry_run(true)
    ///     .observe_fn(|event| {
    ///         if let EventKind::RetryScheduled(retry) = event.kind {
    ///             println!("{} from {}: again in {:?}", retry.cause, event.call.host, retry.wait);
    ///         }
    ///     })
    ///     .build()?;
    /// let client = ClientBuilder::new(reqwest::Client::new()).with(retry).build();
    ///
    /// let response = client.get(server.uri()).send().await?;
    /// assert_eq!(response.status(), 503);
    /// assert_eq!(RetryReport::of(&response).unwrap().stop_reason(), StopReason::DryRun);
    /// # Ok(()) }
    /// ```
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.data.dry_run = dry_run;
        self
    }
}

/// # Dead letters
impl RetryMiddlewareBuilder {
    /// Stores calls that gave up although they might succeed later.
    ///
    /// [`StopReason::is_given_up`](crate::StopReason::is_given_up) lists them. A letter can be
    /// [sent again](crate::dead_letter::DeadLetter::replay).
    ///
    /// Default: none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let down = wiremock::Mock::given(wiremock::matchers::any()).respond_with(wiremock::ResponseTemplate::new(503));
    /// # down.up_to_n_times(2).mount(&server).await;
    /// use reqwest_middleware::ClientBuilder;
    /// use reqwest_steady::dead_letter::dead_letter_channel;
    /// use reqwest_steady::{RequestBuilderExt, RetryMiddleware};
    ///
    /// let (sink, mut letters) = dead_letter_channel(100);
    /// let retry = RetryMiddleware::builder().max_retries(1).dead_letter_sink(sink).build()?;
    /// let client = ClientBuilder::new(reqwest::Client::new()).with(retry).build();
    ///
    /// let response = client.put(server.uri()).body("order").send().await?;
    /// assert_eq!(response.status(), 503); // the last response, unchanged
    ///
    /// let letter = letters.recv().await.expect("the sink is still there");
    /// println!("{letter}, not before {:?}", letter.not_before());
    /// let response = letter.replay(&client).await?; // the same request, with the same key
    /// # assert_eq!(response.status(), 404);
    /// # Ok(()) }
    /// ```
    pub fn dead_letter_sink(mut self, sink: impl DeadLetterSink) -> Self {
        self.parts.dead_letter_sink = Some(Arc::new(sink));
        self
    }

    /// Limits the body that a dead letter keeps, in bytes.
    ///
    /// A larger body is left out.
    ///
    /// Default: 1 MiB.
    pub fn dead_letter_max_body(mut self, bytes: usize) -> Self {
        self.data.dead_letter_max_body = bytes;
        self
    }

    /// Limits the time that the sink may take for a letter.
    ///
    /// The call waits for the delivery. A call with a deadline waits until its deadline, and at least 100 ms, because
    /// most of these calls give up at their deadline. After that, the delivery goes on without the call.
    ///
    /// Default: 5 s.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses zero.
    pub fn dead_letter_timeout(mut self, wait: Duration) -> Self {
        self.data.dead_letter_timeout = wait;
        self
    }

    /// Sets which headers and parameters dead letters leave out.
    ///
    /// Default: every usual name for a credential.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.data.secrets = secrets;
        self
    }
}

/// # Building
impl RetryMiddlewareBuilder {
    /// Builds the middleware.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is invalid. The error names the setting and the value.
    pub fn build(self) -> Result<RetryMiddleware, ConfigError> {
        RetryMiddleware::new(self.data, self.preset, self.parts)
    }

    /// Draws all jitter from a generator with this seed.
    ///
    /// Use it in tests and simulations that must repeat exactly. Never use it in production, because clients with the
    /// same seed retry at the same moments.
    ///
    /// Default: none. The jitter is random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.data.seed = Some(seed);
        self
    }
}

#[cfg(test)]
#[path = "builder_tests.rs"]
mod tests;
