//! A model of a call, written from the documentation: when its requests arrive, and how it ends.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::ending::{Class, Ending, read};
use super::ledger::{Ledger, Paid};
use super::plan::{Plan, PlannedCall};
use super::script::{ModelBody, Step, What};
use crate::admit::Deposit;
use crate::outcome::{StopReason, TimeLimit};

/// The state that calls share. All times count from the start of the execution.
pub(super) struct Model<'p> {
    plan: &'p Plan,
    /// Has the same seed as the middleware, to draw the same spread of a hint.
    rng: SmallRng,
    pub(super) ledger: Ledger<'p>,
    /// Failures in a row.
    streak: u32,
    /// Calls that were released from the line since the last success. Calls follow one another, so nothing else
    /// releases a call.
    fruitless: u32,
    /// The retries that all calls together have left.
    left: u32,
    /// The deadline of all calls. Set by the first call.
    shared_end: Option<Duration>,
    received: usize,
}

/// What one call did.
#[derive(Debug, Default)]
pub(super) struct ExpectedCall {
    pub(super) arrivals: Vec<Duration>,
    pub(super) attempts: Vec<ExpectedAttempt>,
    /// When and why it ended. `None` if the caller dropped the call.
    pub(super) end: Option<(Duration, StopReason)>,
}

#[derive(Clone, Debug)]
pub(super) struct ExpectedAttempt {
    pub(super) sent_at: Duration,
    pub(super) waited: Duration,
    pub(super) ending: Ending,
    pub(super) hint: Option<Duration>,
}

/// One call while it runs.
struct Run<'p> {
    planned: &'p PlannedCall,
    start: Duration,
    max_retries: u32,
    deadline: Option<Duration>,
    repeatable: bool,
    retries: u32,
    /// An attempt may have taken effect without a response.
    unclear: bool,
}

impl<'p> Model<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            rng: SmallRng::seed_from_u64(plan.settings.seed),
            ledger: Ledger::new(plan.settings.budget_plan.as_ref()),
            streak: 0,
            fruitless: 0,
            left: (plan.shared.as_ref()).map_or(u32::MAX, |shared| shared.max_retries),
            shared_end: None,
            received: 0,
        }
    }

    pub(super) fn call(&mut self, planned: &'p PlannedCall, start: Duration) -> ExpectedCall {
        let settings = &self.plan.settings;
        let shared = self.plan.shared.as_ref().and_then(|shared| shared.deadline);
        if let (Some(deadline), None) = (shared, self.shared_end) {
            self.shared_end = Some(start.saturating_add(deadline));
        }
        let left = self.shared_end.map(|end| end.saturating_sub(start));
        let own = planned.deadline.or(settings.deadline);
        let mut run = Run {
            planned,
            start,
            max_retries: planned.max_retries.unwrap_or(settings.max_retries),
            deadline: own.into_iter().chain(left).min(),
            repeatable: planned.key || planned.idempotent || planned.method != "POST",
            retries: 0,
            unclear: false,
        };
        let gives_up = start + planned.patience;
        // A call that cannot be retried neither uses the budget nor deposits into it.
        let could_retry =
            run.max_retries > 0 && (run.repeatable || settings.without_key || settings.unsent);
        if could_retry && self.deposits_on(Deposit::Request) {
            self.ledger.deposit(start);
        }
        let mut course = ExpectedCall::default();
        let (mut now, mut waited) = (start, Duration::ZERO);
        loop {
            let sent_at = now;
            let (limit, which) = self.limit(&run, sent_at);
            let mut ending;
            (ending, now) = if limit <= now {
                // No time is left, so nothing is sent.
                (Ending::TimedOut(which), now)
            } else {
                course.arrivals.push(now);
                self.reply(now, limit, which)
            };
            if now > gives_up {
                return course;
            }
            let mut decided = self.decide(&run, &ending);
            let is_final = matches!(
                decided,
                Err(StopReason::Succeeded | StopReason::NotRetryable)
            );
            if let (Ending::Response(response), true, true) =
                (&ending, is_final, planned.buffer.is_some())
            {
                let failed;
                (failed, now) = read(response, now, limit, which);
                if now > gives_up {
                    return course;
                }
                if let Some(failed) = failed {
                    ending = failed;
                    decided = self.decide(&run, &ending);
                }
            }
            let is_late = run
                .deadline
                .is_some_and(|deadline| sent_at - start >= deadline);
            let still_running = planned.key && run.unclear;
            let is_failure = could_retry && !is_late && ending.class(still_running) != Class::Never;
            if is_failure && ending.status() != Some(429) {
                self.streak += 1;
            }
            let hint = decided.is_ok().then(|| ending.hint()).flatten();
            let scheduled = decided.and_then(|()| self.schedule(&run, hint, now));
            let paid = scheduled.and_then(|wait| {
                let paid = self.ledger.withdraw(now);
                if paid.is_none() && !ending.asks_to_wait() {
                    return Err(StopReason::BudgetEmpty);
                }
                if self.left == 0 {
                    self.ledger.refund(paid.unwrap_or(Paid::Free));
                    return Err(StopReason::AllowanceSpent);
                }
                self.left -= 1;
                Ok((wait, paid))
            });
            if is_failure && !matches!(paid, Ok((_, Some(_)))) {
                self.ledger.fail();
            }
            run.unclear |= ending.is_unclear();
            course.attempts.push(ExpectedAttempt {
                sent_at: sent_at - start,
                waited,
                ending: ending.clone(),
                hint,
            });
            let (wait, paid) = match paid {
                Ok(paid) => paid,
                Err(stop) => {
                    let is_success =
                        matches!(stop, StopReason::Succeeded | StopReason::NotRetryable)
                            && ending.status().is_some_and(|status| status < 500);
                    if is_success && could_retry {
                        (self.streak, self.fruitless) = (0, 0);
                        self.ledger.succeed(now);
                        if self.deposits_on(Deposit::Success) {
                            self.ledger.deposit(now);
                        }
                    }
                    course.end = Some((now, stop));
                    return course;
                }
            };
            let decided_at = now;
            now = self.arrival(&run, &ending, now, wait);
            waited = wait;
            let mut stop = None;
            if paid.is_none() && now <= gives_up {
                let (at, result) = self.wait_in_line(&run, now);
                if let (Ok(()), true) = (result, at <= gives_up) {
                    self.fruitless += 1;
                }
                (now, stop) = (at, result.err());
                waited = now - decided_at;
            }
            if now > gives_up || stop.is_some() {
                // The retry is paid for, but not sent.
                self.ledger.refund(paid.unwrap_or(Paid::Free));
                self.left += 1;
                course.end = stop.filter(|_| now <= gives_up).map(|stop| (now, stop));
                return course;
            }
            run.retries += 1;
        }
    }

    /// Returns when a call that joins the line now is released or stops.
    fn wait_in_line(&self, run: &Run<'_>, now: Duration) -> (Duration, Result<(), StopReason>) {
        let (mut end, mut reason) = (now + Duration::from_secs(60), StopReason::BudgetEmpty);
        let window = run.start.saturating_add(self.plan.settings.window);
        // A timer may be late by a millisecond, and the retry needs another one.
        let ticks = Duration::from_millis(2);
        let deadline = (run.deadline).map(|deadline| {
            let left = deadline.saturating_sub(now - run.start);
            now.saturating_add(left.saturating_sub(ticks))
        });
        for (limit, limit_reason) in [
            (Some(window), StopReason::WindowClosed),
            (deadline, StopReason::DeadlineTooClose),
        ] {
            if let Some(limit) = limit.filter(|limit| *limit < end) {
                (end, reason) = (limit, limit_reason);
            }
        }
        let plan = self
            .ledger
            .budget_plan()
            .expect("only an empty budget has a line");
        let released = (plan.reserve > 0).then(|| {
            let first = plan.ttl.as_secs_f64() / f64::from(plan.reserve);
            let pause = Duration::from_secs_f64(first) * 2u32.pow(self.fruitless.min(20));
            ceil(now + pause.min(Duration::from_secs(128)))
        });
        match released.filter(|at| *at < end) {
            Some(at) => (at, Ok(())),
            None => (ceil(end.max(now)), Err(reason)),
        }
    }

    fn deposits_on(&self, deposit: Deposit) -> bool {
        let budget_plan = self.ledger.budget_plan();
        budget_plan.is_some_and(|budget_plan| budget_plan.deposit_on == deposit)
    }

    /// Returns when an attempt that is sent now must end.
    fn limit(&self, run: &Run<'_>, now: Duration) -> (Duration, TimeLimit) {
        let after = |start: Duration, limit: Option<Duration>| {
            limit.map_or(Duration::MAX, |limit| start.saturating_add(limit))
        };
        let timeout = run.planned.attempt_timeout;
        let own = after(now, timeout.or(self.plan.settings.attempt_timeout));
        let deadline = after(run.start, run.deadline);
        match deadline <= own {
            true => (ceil(deadline), TimeLimit::Deadline),
            false => (ceil(own), TimeLimit::Attempt),
        }
    }

    /// Returns the result of a request that arrives now, and its time.
    fn reply(&mut self, now: Duration, limit: Duration, which: TimeLimit) -> (Ending, Duration) {
        let step = self.plan.steps.get(self.received);
        let step = step.cloned().unwrap_or_else(Step::success);
        self.received += 1;
        let at = now + step.takes;
        let ending = match step.what {
            What::Respond(response) => Ending::Response(response),
            What::Fail(kind) => Ending::Fail(kind),
            What::Silence => return (Ending::TimedOut(which), limit),
        };
        match at <= limit {
            true => (ending, at),
            false => (Ending::TimedOut(which), limit),
        }
    }

    /// Stage 1: may a retry follow?
    fn decide(&self, run: &Run<'_>, ending: &Ending) -> Result<(), StopReason> {
        let still_running = run.planned.key && run.unclear;
        let mut class = ending.class(still_running);
        if ending.status().is_some_and(|status| status < 400) {
            return Err(StopReason::Succeeded);
        }
        if class == Class::Never && ending.directive() == Some(true) && run.repeatable {
            class = Class::Conditional;
        }
        if class == Class::Never {
            return Err(StopReason::NotRetryable);
        }
        if ending.directive() == Some(false) {
            return Err(StopReason::ServerVeto);
        }
        let not_taken_on = class == Class::Retry && self.plan.settings.without_key;
        if !run.repeatable && !not_taken_on {
            return Err(StopReason::NotIdempotent);
        }
        if run.max_retries == 0 {
            return Err(StopReason::Disabled);
        }
        if run.retries == run.max_retries {
            return Err(StopReason::RetriesExhausted);
        }
        match run.planned.stream {
            true => Err(StopReason::BodyNotReplayable),
            false => Ok(()),
        }
    }

    /// Stage 2: when does the retry start?
    fn schedule(
        &mut self,
        run: &Run<'_>,
        hint: Option<Duration>,
        now: Duration,
    ) -> Result<Duration, StopReason> {
        let settings = &self.plan.settings;
        if hint.is_some_and(|hint| hint > settings.max_server_delay) {
            return Err(StopReason::ServerDelayTooLong);
        }
        let (base, (up, down)) = (settings.backoff.base, settings.backoff.growth);
        let (up, down) = (u128::from(up), u128::from(down));
        let step = match settings.alone() {
            true => run.retries,
            false => run.retries.max(self.streak.saturating_sub(1).min(4)),
        };
        let grown = base.as_nanos() * up.pow(step) / down.pow(step);
        let mut wait = Duration::from_nanos(grown as u64).min(settings.backoff.cap);
        if let Some(hint) = hint {
            let spread = hint.min(Duration::from_secs(1));
            let more = self.rng.random_range(Duration::ZERO..=spread);
            wait = wait.max(hint).saturating_add(more);
        }
        let begins = (now - run.start).saturating_add(wait);
        if begins > settings.window {
            return Err(StopReason::WindowClosed);
        }
        let tick = Duration::from_millis(1);
        let is_too_late = |deadline: Duration| begins.saturating_add(tick) >= deadline;
        match run.deadline.is_some_and(is_too_late) {
            true => Err(StopReason::DeadlineTooClose),
            false => Ok(wait),
        }
    }

    /// Returns when a retry arrives that was decided on now.
    ///
    /// The old response is drained first. This takes at most 100 ms, and at most half the time left after the wait.
    fn arrival(&self, run: &Run<'_>, ending: &Ending, now: Duration, wait: Duration) -> Duration {
        let wake = now.saturating_add(wait);
        let Ending::Response(response) = ending else {
            return ceil(wake);
        };
        let latest = self
            .plan
            .settings
            .window
            .min(run.deadline.unwrap_or(Duration::MAX));
        let left = run.start.saturating_add(latest).saturating_sub(wake);
        let end = (now + Duration::from_millis(100)).min(wake.saturating_add(left / 2));
        let (ModelBody::Late(takes) | ModelBody::Cut(takes)) = response.body else {
            return ceil(wake);
        };
        ceil(wake).max((now + takes).min(ceil(end)))
    }
}

/// Rounds up to a millisecond, as timers do.
fn ceil(time: Duration) -> Duration {
    let part = time.subsec_nanos() % 1_000_000;
    match part {
        0 => time,
        _ => time.saturating_add(Duration::from_nanos(u64::from(1_000_000 - part))),
    }
}
