//! How a retry middleware is built, with every check of its settings.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::settings::Settings;
use crate::admit::{Budget, BudgetBuilder, Budgets};
use crate::config::{CREDENTIALS, ConfigError, longer_than_zero, reserved, unreserved_header_name};
use crate::dead_letter::{DeadLetterSink, DeadLetters, Secrets};
use crate::decide::{AttemptView, AutoKey, ClassifyFn, StatusClass};
use crate::entropy::Entropy;
use crate::fleet::FleetLimits;
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::observe::{Event, Observer, Tracking};
use crate::request::DEFAULT_HEADER;
use crate::retry::RetryMiddleware;
use crate::schedule::Backoff;

/// Builds a [`RetryMiddleware`]. A value that makes no sense is refused in
/// [`build`](RetryMiddlewareBuilder::build).
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
///     .retry_unsent()
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
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct RetryMiddlewareBuilder {
    settings: Settings,
    budget: Option<Budget>,
    budget_per_host: Option<BudgetBuilder>,
    dead_letter_max_body: Option<usize>,
    dead_letter_max_wait: Option<Duration>,
    fleet: Option<FleetLimits>,
    /// The first setting that could not even be stored.
    refused: Option<ConfigError>,
}

impl RetryMiddlewareBuilder {
    /// At most this many retries for a call, so one attempt more. Default: 5.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.settings.max_retries = retries;
        self
    }

    /// How waits grow and spread. Default: 200 ms · 2ⁿ up to 10 s, full jitter.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// The longest pause that a server may ask for. If it asks for more, its answer is returned at
    /// once, for coming back earlier than asked helps nobody. A pause that would pass the
    /// [`retry_window`](Self::retry_window) is not waited for either. Default: 60 s.
    pub fn max_server_delay(mut self, delay: Duration) -> Self {
        self.settings.max_server_delay = delay;
        self
    }

    /// No retry starts later than this after the call began. Default: 5 min.
    pub fn retry_window(mut self, window: Duration) -> Self {
        self.settings.limits.window = window;
        self
    }

    /// The call has its answer's head, or an error, by then. A wait that would pass it is not
    /// begun. Only for a [dead letter](Self::dead_letter_sink) does it take up to 100 ms longer.
    /// Default: none.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.limits.deadline = Some(deadline);
        self
    }

    /// The time for one attempt, up to the answer's head: unlike reqwest's own timeout it does not
    /// cut a long download. Default: none.
    ///
    /// [`RequestBuilderExt::attempt_timeout`](crate::RequestBuilderExt::attempt_timeout) sets it for one
    /// request.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses zero, and a timeout longer than the [`deadline`](Self::deadline), because no
    /// attempt can reach it.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.settings.limits.attempt = Some(timeout);
        self
    }

    /// Lets the first attempt of every call wait for a random time up to this, for many jobs that start
    /// on the same beat. Never more than half of a call's deadline, and part of the retry window.
    /// Default: none.
    pub fn launch_spread(mut self, spread: Duration) -> Self {
        self.settings.launch_spread = spread;
        self
    }

    /// A budget with these settings for each host, in place of the default ones.
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
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses it together with [`budget`](Self::budget) or
    /// [`no_budget`](Self::no_budget).
    pub fn budget_per_host(mut self, each: BudgetBuilder) -> Self {
        self.budget_per_host = Some(each);
        self
    }

    /// Shares the retry budget of each host with all workers of a fleet: what
    /// [`budget_per_host`](Self::budget_per_host) says is that of all of them together then. A retry that has not
    /// been paid for in advance waits for the store, 50 ms at most. See [`FleetLimits`].
    ///
    /// ```
    /// use reqwest_steady::{FleetLimits, RetryMiddleware};
    ///
    /// // With the feature `redis`: FleetLimits::redis("redis://redis.internal")?
    /// let fleet = FleetLimits::in_memory();
    /// let retry = RetryMiddleware::builder().fleet(fleet.clone()).build()?;
    ///
    /// let refused = RetryMiddleware::builder().fleet(fleet).no_budget().build();
    /// assert_eq!(
    ///     refused.unwrap_err().to_string(),
    ///     "fleet (with `budget` or `no_budget`) should be given with budgets per host, because it shares those",
    /// );
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn fleet(mut self, fleet: FleetLimits) -> Self {
        self.fleet = Some(fleet);
        self
    }

    /// One budget for all that this middleware sends, whatever the host: a host that is down then uses it
    /// up for all. Its clones may be given to other clients, too.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// No budget at all. In an outage every call then makes all its retries, when the server can bear
    /// them least: for tests, and for those who bound their load by other means.
    pub fn no_budget(self) -> Self {
        self.budget(Budget::unlimited())
    }

    /// Changes the class of one status. The last word on a status holds.
    pub fn status(mut self, status: StatusCode, class: StatusClass) -> Self {
        let by_status = &mut self.settings.classifier.by_status;
        by_status.retain(|(known, _)| *known != status);
        by_status.push((status, class));
        self
    }

    /// Asks a function of yours for the class of each attempt, before the tables. `None` leaves it
    /// to them.
    ///
    /// The server's word still beats the class: `x-should-retry: false` stops, and `true` allows a
    /// repeatable request whose answer was an error. If the body of a
    /// [buffered](crate::RequestBuilderExt::buffer_response) answer breaks off, the function is asked
    /// again, about the failure.
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
        self.settings.classifier.by_user = Some(ClassifyFn::new(classify));
        self
    }

    /// Sends idempotency keys in this header, for servers that have another name for it.
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
        match unreserved_header_name("idempotency_header", name.as_ref()) {
            Ok(name) => self.settings.keys.rename(name),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Whether requests that need a key, and were given none, get one. Default: [`AutoKey::Off`].
    pub fn auto_key(mut self, auto_key: AutoKey) -> Self {
        self.settings.keys.auto = auto_key;
        self
    }

    /// Also retries requests that are neither idempotent nor carry a key, where the answer is of
    /// class [`Retry`](StatusClass::Retry): 429, 502, 503 and 504, and what was classed so.
    ///
    /// Only for servers of which it is known that they give these answers before they do any work:
    /// a gateway's 504 often means the contrary.
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
    pub fn retry_without_key(mut self) -> Self {
        self.settings.retry_without_key = true;
        self
    }

    /// Also retries requests that are neither idempotent nor carry a key, where they provably had
    /// no effect: no connection came about, or the server said that it did not process them (HTTP/2
    /// REFUSED_STREAM, or a GOAWAY without error).
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
    pub fn retry_unsent(mut self) -> Self {
        self.settings.retry_unsent = true;
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
    /// let refused = RetryMiddleware::builder().retry_unsent().build();
    /// assert!(refused.unwrap_err().to_string().contains("client_follows_redirects(false)"));
    ///
    /// let inner = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    /// let retry = RetryMiddleware::builder()
    ///     .client_follows_redirects(false)
    ///     .retry_unsent()
    ///     .build()?;
    /// let client = ClientBuilder::new(inner).with(retry).build();
    /// # let _ = client;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client_follows_redirects(mut self, follows: bool) -> Self {
        self.settings.client_follows_redirects = follows;
        self
    }

    /// Tells the server the number of the attempt, from 1, in this header. Default: none.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) refuses the header of the idempotency key, and each header that
    /// [`idempotency_header`](Self::idempotency_header) refuses.
    pub fn attempt_header(mut self, name: impl AsRef<str>) -> Self {
        match unreserved_header_name("attempt_header", name.as_ref()) {
            Ok(name) => self.settings.attempt_header = Some(name),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Tells this [`Observer`] of every call. There can be several.
    pub fn observer<O: Observer + ?Sized>(mut self, observer: Arc<O>) -> Self {
        self.settings.observers.add(observer);
        self
    }

    /// Tells a function of yours of every call: an [`Observer`] in one piece.
    ///
    /// ```
    /// use reqwest_steady::{EventKind, RetryMiddleware};
    ///
    /// let retry = RetryMiddleware::builder()
    ///     .observe_fn(|event| {
    ///         if let EventKind::Stopped(stop) = event.kind {
    ///             println!("{} after {:?}: {}", event.call.host, stop.took, stop.reason);
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), reqwest_steady::ConfigError>(())
    /// ```
    pub fn observe_fn(mut self, observe: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.settings.observers.add_fn(observe);
        self
    }

    /// Takes what is given up although it might have worked later, see
    /// [`StopReason::is_given_up`](crate::StopReason::is_given_up): it can be
    /// [sent again](crate::DeadLetter::replay). Default: none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let down = wiremock::Mock::given(wiremock::matchers::any()).respond_with(wiremock::ResponseTemplate::new(503));
    /// # down.up_to_n_times(2).mount(&server).await;
    /// use reqwest_middleware::ClientBuilder;
    /// use reqwest_steady::{RequestBuilderExt, RetryMiddleware, dead_letter_channel};
    ///
    /// let (sink, mut letters) = dead_letter_channel(100);
    /// let retry = RetryMiddleware::builder().max_retries(1).dead_letter_sink(sink).build()?;
    /// let client = ClientBuilder::new(reqwest::Client::new()).with(retry).build();
    ///
    /// let response = client.put(server.uri()).body("order").send().await?;
    /// assert_eq!(response.status(), 503); // twice, and the last one comes back as ever
    ///
    /// let letter = letters.recv().await.expect("the sink is still there");
    /// println!("{letter}, not before {:?}", letter.not_before());
    /// let response = letter.replay(&client).await?; // the same request, with the same key
    /// # assert_eq!(response.status(), 404);
    /// # Ok(()) }
    /// ```
    pub fn dead_letter_sink(mut self, sink: impl DeadLetterSink) -> Self {
        self.settings.dead_letters = Some(DeadLetters::new(Arc::new(sink)));
        self
    }

    /// The largest body that a letter keeps; one that is larger is left out whole. Default: 1 MiB.
    pub fn dead_letter_max_body(mut self, bytes: usize) -> Self {
        self.dead_letter_max_body = Some(bytes);
        self
    }

    /// How long the sink may take for a letter, and the call waits for it. A call that has a deadline
    /// waits until then, and at least 100 ms, for most are given up when it is over; after that its letter
    /// is delivered without it. Default: 5 s.
    pub fn dead_letter_max_wait(mut self, wait: Duration) -> Self {
        self.dead_letter_max_wait = Some(wait);
        self
    }

    /// What is left out of dead letters, by name. Default: every usual name for a credential.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.settings.secrets = secrets;
        self
    }

    /// How loud the log is, for each kind of event.
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn log_levels(mut self, levels: LogLevels) -> Self {
        self.settings.levels = levels;
        self
    }

    /// Decides and reports, but sends nothing again: to see what it would do before switching it on.
    ///
    /// A call that would be sent again ends there, without a wait, with
    /// [`StopReason::DryRun`](crate::StopReason::DryRun); observers and the log are told when it would
    /// have been. The budget is charged for it, as it would have been, and it gets no dead letter. What
    /// it would have given up, for its budget is empty or it has no key, is told as such. All else is done
    /// for real: keys, timeouts, deadlines and `launch_spread`; calls inside it retry as if it were not
    /// there.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = wiremock::MockServer::start().await;
    /// # let down = wiremock::Mock::given(wiremock::matchers::any()).respond_with(wiremock::ResponseTemplate::new(503));
    /// # down.expect(1).mount(&server).await;
    /// use reqwest_middleware::ClientBuilder;
    /// use reqwest_steady::{EventKind, RetryMiddleware, RetryReport, StopReason};
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
    /// assert_eq!(RetryReport::of(&response).unwrap().stop(), StopReason::DryRun);
    /// # Ok(()) }
    /// ```
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.settings.dry_run = dry_run;
        self
    }

    /// Draws all jitter from a generator with this seed, for tests and simulations that must come
    /// out the same every time. Never in production: clients with one seed come back in step.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.entropy = Entropy::seeded(seed);
        self
    }

    /// The middleware, or what is wrong with its settings.
    pub fn build(self) -> Result<RetryMiddleware, ConfigError> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        let mut settings = self.settings;
        longer_than_zero("dead_letter_max_wait", self.dead_letter_max_wait)?;
        if let Some(letters) = &mut settings.dead_letters {
            letters.max_body = self.dead_letter_max_body.unwrap_or(letters.max_body);
            letters.max_wait = self.dead_letter_max_wait.unwrap_or(letters.max_wait);
        }
        #[cfg(feature = "tracing")]
        {
            settings.tracking = settings.levels.tracking();
        }
        if !settings.observers.is_empty() || settings.dead_letters.is_some() {
            settings.tracking = Tracking::ALWAYS;
        }
        settings.backoff.check()?;
        match (self.budget, self.budget_per_host) {
            (None, None) => {}
            (Some(budget), None) => settings.budgets = Budgets::Single(budget),
            (None, Some(each)) => settings.budgets = Budgets::per_host(each),
            (Some(_), Some(_)) => {
                return Err(ConfigError::new(
                    "budget_per_host",
                    "with `budget` or `no_budget`",
                    "is ambiguous: remove one of them, because a call has one budget",
                ));
            }
        }
        if let Some(fleet) = self.fleet {
            settings.budgets.share(fleet)?;
        }
        settings.budgets.check()?;
        for (option, is_set) in [
            ("retry_without_key", settings.retry_without_key),
            ("retry_unsent", settings.retry_unsent),
        ] {
            if is_set && settings.client_follows_redirects {
                return Err(ConfigError::new(
                    option,
                    "for a client that follows redirects",
                    "would repeat requests that were accepted with a redirect: build the client with \
                     `reqwest::redirect::Policy::none()` and set `client_follows_redirects(false)`, \
                     or use an idempotency key",
                ));
            }
        }
        longer_than_zero("retry_window", Some(settings.limits.window))?;
        longer_than_zero("deadline", settings.limits.deadline)?;
        longer_than_zero("attempt_timeout", settings.limits.attempt)?;
        if let (Some(attempt), Some(deadline)) = (settings.limits.attempt, settings.limits.deadline)
        {
            if attempt > deadline {
                return Err(ConfigError::new(
                    "attempt_timeout",
                    format_args!("{attempt:?}"),
                    format_args!("should not be longer than the deadline ({deadline:?})"),
                ));
            }
        }
        if settings.launch_spread > settings.limits.window {
            return Err(ConfigError::new(
                "launch_spread",
                format_args!("{:?}", settings.launch_spread),
                format_args!(
                    "should not be longer than the retry_window ({:?})",
                    settings.limits.window
                ),
            ));
        }
        // A request can have a key of its own in the default header, even if this client uses another.
        for key_header in [settings.keys.header(), &DEFAULT_HEADER] {
            if settings.attempt_header.as_ref() == Some(key_header) {
                return Err(ConfigError::new(
                    "attempt_header",
                    key_header,
                    "should not be the header of the idempotency key",
                ));
            }
        }
        for (setting, header) in [
            ("idempotency_header", Some(settings.keys.header())),
            ("attempt_header", settings.attempt_header.as_ref()),
        ] {
            let header = header.filter(|header| settings.secrets.names_credentials(header));
            if let Some(header) = header {
                let effect = format!("{CREDENTIALS} (if not, say so with `Secrets::keep`)");
                return Err(reserved(setting, header.as_str(), effect));
            }
        }
        Ok(RetryMiddleware {
            settings: Arc::new(settings),
        })
    }

    fn refuse(&mut self, error: ConfigError) {
        self.refused.get_or_insert(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_makes_no_sense_is_refused_by_name_and_value() {
        let builder = RetryMiddleware::builder;
        for (builder, said) in [
            (
                builder().deadline(Duration::ZERO),
                "deadline (0ns) should be longer than zero",
            ),
            (
                builder().attempt_timeout(Duration::ZERO),
                "attempt_timeout (0ns) should be longer than zero",
            ),
            (
                builder().retry_window(Duration::ZERO),
                "retry_window (0ns) should be longer than zero",
            ),
            (
                builder().launch_spread(Duration::from_secs(301)),
                "launch_spread (301s) should not be longer than the retry_window (300s)",
            ),
            (
                builder().idempotency_header("two words"),
                "idempotency_header (\"two words\") should be a valid header name",
            ),
            (
                builder().attempt_header(""),
                "attempt_header (\"\") should be a valid header name",
            ),
            (
                builder().attempt_header("Idempotency-Key"),
                "attempt_header (idempotency-key) should not be the header of the idempotency key",
            ),
            (
                builder().retry_without_key(),
                "retry_without_key (for a client that follows redirects) would repeat requests that were \
                 accepted with a redirect: build the client with `reqwest::redirect::Policy::none()` and \
                 set `client_follows_redirects(false)`, or use an idempotency key",
            ),
            (
                builder()
                    .client_follows_redirects(false)
                    .retry_unsent()
                    .client_follows_redirects(true),
                "retry_unsent (for a client that follows redirects) would repeat requests that were \
                 accepted with a redirect: build the client with `reqwest::redirect::Policy::none()` and \
                 set `client_follows_redirects(false)`, or use an idempotency key",
            ),
            (
                builder().attempt_header("Content-Length"),
                "attempt_header (\"Content-Length\") should not be a reserved header: \
                 this one frames messages or controls connections",
            ),
            (
                builder().idempotency_header("authorization"),
                "idempotency_header (\"authorization\") should not be a reserved header: \
                 this one carries credentials",
            ),
            (
                builder()
                    .attempt_timeout(Duration::from_millis(2001))
                    .deadline(Duration::from_secs(2)),
                "attempt_timeout (2.001s) should not be longer than the deadline (2s)",
            ),
            (
                builder()
                    .budget(Budget::unlimited())
                    .budget_per_host(Budget::builder()),
                "budget_per_host (with `budget` or `no_budget`) is ambiguous: \
                 remove one of them, because a call has one budget",
            ),
            (
                builder().budget_per_host(Budget::builder()).no_budget(),
                "budget_per_host (with `budget` or `no_budget`) is ambiguous: \
                 remove one of them, because a call has one budget",
            ),
            (
                builder().budget_per_host(Budget::builder().retry_ratio(10.0)),
                "retry_ratio (10.0) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)",
            ),
            (
                builder().backoff(Backoff::exponential(Duration::ZERO)),
                "backoff base (0ns) should be longer than zero",
            ),
        ] {
            assert_eq!(builder.build().unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn the_first_refusal_is_not_forgotten() {
        let error = RetryMiddleware::builder()
            .attempt_header(" ")
            .attempt_header("fine")
            .build()
            .unwrap_err();
        assert!(error.to_string().starts_with("attempt_header (\" \")"));
    }

    #[test]
    fn the_longest_durations_are_fine() {
        let built = RetryMiddleware::builder()
            .max_retries(u32::MAX)
            .deadline(Duration::MAX)
            .attempt_timeout(Duration::MAX)
            .retry_window(Duration::MAX)
            .max_server_delay(Duration::MAX)
            .launch_spread(Duration::MAX)
            .backoff(Backoff::exponential(Duration::MAX).cap(Duration::MAX))
            .build();
        assert!(built.is_ok());
    }
}
