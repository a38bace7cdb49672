//! The plan of one execution: the settings, the script of the server, and the calls.

use std::time::Duration;

use arbitrary::{Result, Unstructured};

use super::script::Step;
use crate::admit::{Budget, Deposit, Scope};
use crate::retry::RetryMiddleware;
use crate::schedule::{Backoff, Jitter};

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) settings: Settings,
    /// The limits of the scope around all calls, if there is one.
    pub(super) shared: Option<Shared>,
    /// What the server does with each request. After the last step it succeeds.
    pub(super) steps: Vec<Step>,
    pub(super) calls: Vec<PlannedCall>,
}

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) max_retries: u32,
    pub(super) backoff: Waits,
    pub(super) deadline: Option<Duration>,
    pub(super) attempt_timeout: Option<Duration>,
    pub(super) window: Duration,
    pub(super) max_server_delay: Duration,
    pub(super) without_key: bool,
    pub(super) unsent: bool,
    pub(super) budget_plan: Option<BudgetPlan>,
    pub(super) seed: u64,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) max_retries: u32,
    pub(super) deadline: Option<Duration>,
}

/// How waits grow. The factor is a fraction, so that the model can use integers.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) base: Duration,
    pub(super) growth: (u32, u32),
    pub(super) cap: Duration,
}

/// The settings of a budget.
#[derive(Debug)]
pub(super) struct BudgetPlan {
    pub(super) ttl: Duration,
    pub(super) reserve: u32,
    pub(super) ratio: (u32, u32),
    pub(super) deposit_on: Deposit,
}

#[derive(Debug)]
pub(super) struct PlannedCall {
    pub(super) pause_before: Duration,
    pub(super) method: &'static str,
    pub(super) key: bool,
    pub(super) idempotent: bool,
    pub(super) max_retries: Option<u32>,
    pub(super) deadline: Option<Duration>,
    pub(super) attempt_timeout: Option<Duration>,
    pub(super) stream: bool,
    pub(super) buffer: Option<usize>,
    /// The caller drops the call after this time.
    pub(super) patience: Duration,
}

impl Plan {
    pub(super) fn of(input: &mut Unstructured<'_>) -> Result<Self> {
        let settings = Settings::of(input)?;
        let shared = maybe(input, |input| {
            Ok(Shared {
                max_retries: input.int_in_range(0..=6)?,
                deadline: maybe(input, limit)?,
            })
        })?;
        let calls = (0..input.int_in_range(1..=3)?).map(|_| PlannedCall::of(input));
        let calls = calls.collect::<Result<_>>()?;
        let steps = (0..input.int_in_range(0..=16)?).map(|_| Step::of(input));
        let steps = steps.collect::<Result<_>>()?;
        Ok(Self {
            settings,
            shared,
            steps,
            calls,
        })
    }
}

/// Returns a duration. There are few values, so that some times coincide.
pub(super) fn span(input: &mut Unstructured<'_>) -> Result<Duration> {
    let common = [
        0, 1, 2, 99, 100, 101, 200, 400, 500, 1000, 1001, 2000, 5000, 10_000,
    ];
    Ok(Duration::from_millis(match input.int_in_range(0..=3)? {
        0 => input.int_in_range(0..=20_000)?,
        _ => *input.choose(&common)?,
    }))
}

fn limit(input: &mut Unstructured<'_>) -> Result<Duration> {
    Ok(match input.int_in_range(0..=7)? {
        0 => Duration::MAX,
        1 => Duration::from_nanos(1),
        2 => Duration::from_secs(300),
        _ => span(input)?.max(Duration::from_millis(1)),
    })
}

pub(super) fn maybe<T>(
    input: &mut Unstructured<'_>,
    value: impl FnOnce(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Option<T>> {
    Ok(match input.ratio(1, 3)? {
        true => Some(value(input)?),
        false => None,
    })
}

impl Settings {
    fn of(input: &mut Unstructured<'_>) -> Result<Self> {
        let base = span(input)?.max(Duration::from_millis(1));
        let mut settings = Self {
            max_retries: input.int_in_range(0..=7)?,
            backoff: Waits {
                base,
                growth: *input.choose(&[(2, 1), (1, 1), (3, 2), (10, 1)])?,
                cap: base + span(input)?,
            },
            deadline: maybe(input, limit)?,
            attempt_timeout: maybe(input, limit)?,
            window: limit(input)?,
            max_server_delay: limit(input)?,
            without_key: input.ratio(1, 4)?,
            unsent: input.ratio(1, 4)?,
            budget_plan: match input.ratio(3, 4)? {
                true => Some(BudgetPlan::of(input)?),
                false => None,
            },
            seed: input.int_in_range(0..=255)?,
        };
        // `build` refuses a longer timeout.
        let longest = settings.deadline.unwrap_or(Duration::MAX);
        settings.attempt_timeout = settings.attempt_timeout.map(|timeout| timeout.min(longest));
        Ok(settings)
    }

    /// Whether calls ignore the failures of others.
    pub(super) fn alone(&self) -> bool {
        self.seed % 2 == 1
    }

    pub(super) fn retry(&self, budget: Budget) -> RetryMiddleware {
        let Waits { base, growth, cap } = self.backoff;
        let backoff = Backoff::exponential(base)
            .multiplier(f64::from(growth.0) / f64::from(growth.1))
            .cap(cap)
            .jitter(Jitter::None);
        let backoff = match self.alone() {
            true => backoff.alone(),
            false => backoff,
        };
        let mut retry = RetryMiddleware::builder()
            .max_retries(self.max_retries)
            .backoff(backoff)
            .retry_window(self.window)
            .max_server_delay(self.max_server_delay)
            .attempt_header("attempt")
            .client_follows_redirects(false)
            .budget(budget)
            .seed(self.seed);
        if let Some(deadline) = self.deadline {
            retry = retry.deadline(deadline);
        }
        if let Some(timeout) = self.attempt_timeout {
            retry = retry.attempt_timeout(timeout);
        }
        if self.without_key {
            retry = retry.retry_without_key(true);
        }
        if self.unsent {
            retry = retry.retry_unsent(true);
        }
        retry.build().expect("valid settings")
    }
}

impl Shared {
    pub(super) fn scope(&self) -> Scope {
        let scope = Scope::new().max_retries(self.max_retries);
        match self.deadline {
            Some(deadline) => scope.deadline(deadline),
            None => scope,
        }
    }
}

impl BudgetPlan {
    fn of(input: &mut Unstructured<'_>) -> Result<Self> {
        Ok(Self {
            ttl: Duration::from_secs(*input.choose(&[1, 2, 4, 8, 16])?),
            reserve: input.int_in_range(0..=5)?,
            ratio: *input.choose(&[(0, 1), (1, 5), (1, 3), (1, 2), (3, 4), (1, 1)])?,
            deposit_on: *input.choose(&[Deposit::Success, Deposit::Request])?,
        })
    }

    pub(super) fn budget(&self) -> Budget {
        Budget::builder()
            .ttl(self.ttl)
            // Exact, because all these times are powers of two.
            .min_retries_per_sec(f64::from(self.reserve) / self.ttl.as_secs_f64())
            .retry_ratio(f64::from(self.ratio.0) / f64::from(self.ratio.1))
            .deposit_on(self.deposit_on)
            .build()
            .expect("valid settings")
    }
}

impl PlannedCall {
    fn of(input: &mut Unstructured<'_>) -> Result<Self> {
        Ok(Self {
            pause_before: span(input)?,
            method: input.choose(&["GET", "PUT", "POST"])?,
            key: input.ratio(1, 3)?,
            idempotent: input.ratio(1, 8)?,
            max_retries: maybe(input, |input| input.int_in_range(0..=3))?,
            deadline: maybe(input, limit)?,
            attempt_timeout: maybe(input, limit)?,
            stream: input.ratio(1, 8)?,
            buffer: maybe(input, |input| input.int_in_range(0..=20))?,
            patience: match input.ratio(1, 3)? {
                true => span(input)?,
                false => Duration::from_secs(3600),
            },
        })
    }
}
