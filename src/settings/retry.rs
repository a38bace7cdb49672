//! The settings of the retry, and those of its budgets, as plain data.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::admit::{BudgetBuilder, Deposit};
#[cfg(feature = "serde")]
use crate::config::{choice::choice, text};
use crate::dead_letter::Secrets;
use crate::decide::{AutoKey, StatusClass};
#[cfg(feature = "tracing")]
use crate::observe::LogLevels;
use crate::schedule::Backoff;

/// Holds the settings of a [`RetryMiddleware`](crate::RetryMiddleware).
///
/// Each field has the name of a method of [`RetryMiddlewareBuilder`](crate::RetryMiddlewareBuilder), which explains it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "a table of settings")
)]
#[non_exhaustive]
pub struct RetrySettings {
    /// The most retries of one call.
    ///
    /// Default: 5.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<u32>"))]
    pub max_retries: u32,
    /// The waits between attempts. In a file: `base`, `multiplier`, `cap`, `jitter` and `alone`.
    ///
    /// Default: 200 ms · 2ⁿ up to 10 s, full jitter.
    pub backoff: Backoff,
    /// The longest wait that a server may ask for.
    ///
    /// Default: 60 s.
    #[cfg_attr(feature = "serde", serde(with = "text::DurationText"))]
    pub max_server_delay: Duration,
    /// The time after the start of a call in which retries may start.
    ///
    /// Default: 5 min.
    #[cfg_attr(feature = "serde", serde(with = "text::DurationText"))]
    pub retry_window: Duration,
    /// The limit for the total time until response headers arrive.
    ///
    /// Default: none.
    #[cfg_attr(
        feature = "serde",
        serde(
            with = "text::OptionalDuration",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub deadline: Option<Duration>,
    /// The limit for the time of each attempt until its response headers arrive.
    ///
    /// Default: none. Set one: without it, a silent server blocks the call forever.
    #[cfg_attr(
        feature = "serde",
        serde(
            with = "text::OptionalDuration",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub attempt_timeout: Option<Duration>,
    /// The longest random delay of the first attempt.
    ///
    /// Default: 0 s.
    #[cfg_attr(feature = "serde", serde(with = "text::DurationText"))]
    pub launch_spread: Duration,
    /// The retry budget of each host.
    ///
    /// Leave it at its default if the builder has one [`budget`](crate::RetryMiddlewareBuilder::budget) for all hosts.
    /// Other values are an error then.
    ///
    /// Default: 0.2 retries per success, and a reserve of 20.
    pub budget_per_host: BudgetSettings,
    /// The classes of statuses that differ from the defaults of [`StatusClass`].
    ///
    /// In a file: `status = { 404 = "conditional" }`.
    #[cfg_attr(
        feature = "serde",
        serde(
            with = "text::ByStatus::<StatusClass>",
            skip_serializing_if = "BTreeMap::is_empty"
        )
    )]
    pub status: BTreeMap<StatusCode, StatusClass>,
    /// Whether a refused `POST` or `PATCH` without a key is retried. Needs `client_follows_redirects` to be `false`.
    ///
    /// Default: `false`.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<bool>"))]
    pub retry_without_key: bool,
    /// Whether a `POST` or `PATCH` without a key is retried if it was provably not processed. Needs
    /// `client_follows_redirects` to be `false`.
    ///
    /// Default: `false`.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<bool>"))]
    pub retry_unsent: bool,
    /// Whether the reqwest client follows redirects. This does not change the client.
    ///
    /// Default: `true`.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<bool>"))]
    pub client_follows_redirects: bool,
    /// The header that holds idempotency keys.
    ///
    /// Default: `Idempotency-Key`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub idempotency_header: Option<String>,
    /// Which idempotency keys requests get that need one and have none.
    ///
    /// Default: [`AutoKey::Off`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "choice"))]
    pub auto_key: AutoKey,
    /// The header that tells the server the number of the attempt.
    ///
    /// Default: none.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub attempt_header: Option<String>,
    /// The log level of each kind of event. `pause`, `pace` and `refusal` count only in the settings of the throttle.
    ///
    /// Default: the levels of [`LogLevels::default`].
    #[cfg(feature = "tracing")]
    pub log_levels: LogLevels,
    /// Whether the middleware only decides and reports, and sends no retry.
    ///
    /// Default: `false`.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<bool>"))]
    pub dry_run: bool,
    /// The most bytes of a body that a dead letter keeps.
    ///
    /// Default: 1 MiB.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<usize>"))]
    pub dead_letter_max_body: usize,
    /// The time that the sink of dead letters may take for a letter.
    ///
    /// Default: 5 s.
    #[cfg_attr(feature = "serde", serde(with = "text::DurationText"))]
    pub dead_letter_timeout: Duration,
    /// The names whose values dead letters leave out or keep. In a file: `header`, `parameter` and `keep`.
    ///
    /// Default: letters leave out the values of names that sound secret.
    pub secrets: Secrets,
    /// The seed of all jitter. Only for tests and simulations.
    ///
    /// Default: none.
    #[cfg_attr(
        feature = "serde",
        serde(with = "text::OptionalSeed", skip_serializing_if = "Option::is_none")
    )]
    pub seed: Option<u64>,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            max_retries: 5,
            backoff: Backoff::default(),
            max_server_delay: Duration::from_secs(60),
            retry_window: Duration::from_secs(5 * 60),
            deadline: None,
            attempt_timeout: None,
            launch_spread: Duration::ZERO,
            budget_per_host: BudgetSettings::default(),
            status: BTreeMap::new(),
            retry_without_key: false,
            retry_unsent: false,
            client_follows_redirects: true,
            idempotency_header: None,
            auto_key: AutoKey::Off,
            attempt_header: None,
            #[cfg(feature = "tracing")]
            log_levels: LogLevels::default(),
            dry_run: false,
            dead_letter_max_body: 1024 * 1024,
            dead_letter_timeout: Duration::from_secs(5),
            secrets: Secrets::default(),
            seed: None,
        }
    }
}

/// Holds the settings of a [`Budget`](crate::Budget).
///
/// Each field has the name of a method of [`BudgetBuilder`], which explains it.
///
/// ```
/// use reqwest_steady::settings::BudgetSettings;
///
/// let mut small = BudgetSettings::default();
/// small.min_retries_per_sec = 0.5;
/// assert_eq!(small.builder().build()?.balance(), 5.0); // 0.5 per second × 10 s
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, expecting = "a table of settings")
)]
#[non_exhaustive]
pub struct BudgetSettings {
    /// How long deposits and withdrawals count.
    ///
    /// Default: 10 s.
    #[cfg_attr(feature = "serde", serde(with = "text::DurationText"))]
    pub ttl: Duration,
    /// How many retries per second successes refill at most. This times `ttl` is the size of the reserve.
    ///
    /// Default: 2.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<f64>"))]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000)))]
    pub min_retries_per_sec: f64,
    /// How many retries each deposit pays for, from 0 to 1.
    ///
    /// Default: 0.2.
    #[cfg_attr(feature = "serde", serde(with = "text::NumberOrText::<f64>"))]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub retry_ratio: f64,
    /// Which calls feed the budget.
    ///
    /// Default: [`Deposit::Success`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "choice"))]
    pub deposit_on: Deposit,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self::of(&BudgetBuilder::default())
    }
}

impl BudgetSettings {
    pub(crate) fn of(builder: &BudgetBuilder) -> Self {
        Self {
            ttl: builder.terms.ttl,
            min_retries_per_sec: builder.terms.min_per_sec,
            retry_ratio: builder.terms.ratio,
            deposit_on: builder.deposit_on,
        }
    }

    /// Returns a builder with these settings.
    pub fn builder(&self) -> BudgetBuilder {
        BudgetBuilder::default()
            .ttl(self.ttl)
            .min_retries_per_sec(self.min_retries_per_sec)
            .retry_ratio(self.retry_ratio)
            .deposit_on(self.deposit_on)
    }
}
