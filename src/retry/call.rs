//! One call: what it may do, what it has done, and how long it may take.
//!
//! [`Call`] is the state of the loop in `retry.rs`. Its methods are grouped by the part of the loop that they do:
//! [`attempt`] begins, runs and ends an attempt; [`body`] reads its response; [`decision`] decides what follows;
//! [`ending`] goes on to the next attempt or ends the call; [`events`] notifies observers and the log; [`letter`] writes
//! the dead letter.

mod attempt;
mod body;
mod decision;
mod ending;
mod events;
mod letter;
mod record;

use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, Method};
use reqwest::{Request, Url};
use reqwest_middleware::{Error, Result};
use tokio::time::Instant;

use super::config::{RetryConfig, RetryState};
use super::permit::HandedOff;
use crate::admit::{HostRecord, Scope, ScopeHandle, ScopeNode};
use crate::clock;
use crate::decide::{RepeatRules, is_idempotent, is_safe};
use crate::entropy::up_to;
use crate::handoff::{Handoff, Terms, ThrottleVisit};
use crate::host::{HostPlace, host_of};
use crate::log::TWO_RETRIES_IN_ONE_CHAIN;
use crate::observe::EventKind;
use crate::outcome::{Attempt, FailedReport, ReportSlot, RetryReport, SteadyError, WaitReason};
use crate::request::{BodyFactory, RequestOptions, RequestSnapshot};
use crate::schedule::{CallTime, Moment};
pub(crate) use decision::Decision;
use decision::Stop;
use events::Tracking;
use record::{CallRecord, History};

/// The state of one call, which only its loop holds.
pub(crate) struct Call<'a> {
    state: &'a RetryState,
    config: &'a RetryConfig,
    /// What this request asks for.
    options: Option<Arc<RequestOptions>>,
    time: CallTime,
    max_retries: u32,
    rules: RepeatRules,
    has_key: bool,
    /// The method only reads.
    is_safe: bool,
    /// The responses whose body can make an attempt fail, for this retry or one around it.
    reads: ReadBodies,
    /// `None` if the call can neither be retried nor is tracked.
    host: Option<HostPlace>,
    /// What the client remembers of the host. `None` if the call cannot be retried.
    host_record: Option<Arc<HostRecord>>,
    /// False inside a call with the same budget: one deposit for one call.
    makes_deposit: bool,
    /// What this call and the calls inside it draw from. `None` if it would change nothing.
    scope: Option<ScopeHandle>,
    /// Another retry of the same chain is around this one, and logs how the call ends.
    is_inner: bool,
    /// The handoff of a retry around this one, put back at the end.
    outer: Option<Handoff>,

    // The running attempt, or the one that has just ended.
    attempt: Attempt,
    /// How long the call waited before this attempt, and why.
    waited: Duration,
    /// `None` before the first attempt.
    wait_reason: Option<WaitReason>,
    /// When the attempt began, counted from the start of the call.
    sent_at: Duration,
    /// When the latest attempt ended.
    ended: Moment,
    /// `None` between attempts, and if no throttle can change the cost or the time of the attempt.
    handed_off: Option<HandedOff>,
    /// What a throttle left, once the attempt has ended.
    visit: Option<ThrottleVisit>,
    /// `None` if the request is never needed again.
    record: Option<Box<CallRecord>>,
    /// Set if observers or the log follow the call.
    tracking: Option<Tracking>,
    /// The URL of a call without a record, for its effect and for errors that name the host.
    ///
    /// `None` if the call has no options and no time limit either: see [`is_measured`](Self::is_measured).
    url: Option<Box<str>>,
}

/// The responses whose body is read within an attempt.
#[derive(Clone, Copy, PartialEq)]
enum ReadBodies {
    None,
    /// Of 4xx and 5xx.
    OfErrors,
    /// Also of successes, so an attempt may fail after its throttle has seen one.
    All,
}

/// What is known of a request before its call starts.
pub(crate) struct Opening {
    pub(super) options: Option<Arc<RequestOptions>>,
    /// The handoff of a retry around this one. Boxed, because few calls have one, and all would move its size.
    pub(super) outer: Option<Box<(Handoff, Terms)>>,
    pub(super) has_key: bool,
}

impl Opening {
    /// Reads what the request asks for, and sets its key.
    ///
    /// # Errors
    ///
    /// If the request's options or its key are invalid.
    pub(crate) fn read(
        config: &RetryConfig,
        request: &mut Request,
        extensions: &mut Extensions,
    ) -> Result<Self> {
        let options = RequestOptions::of(extensions).cloned();
        let mut outer = None;
        if extensions.len() > usize::from(options.is_some()) {
            outer = Handoff::take_outer(extensions).map(Box::new);
            forget_earlier_call(extensions);
        }
        let slot = options.as_ref().and_then(|own| own.report.as_ref());
        // The report of an outer retry includes this call.
        if let (Some(slot), None) = (slot, &outer) {
            slot.start();
        }
        if let Some(options) = &options {
            SteadyError::check(options.check(request), request.url())?;
            if let Some(Err(error)) = options.body.as_deref().map(BodyFactory::check_first) {
                return Err(Error::middleware(SteadyError::of_body(
                    error,
                    request.url(),
                )));
            }
        }
        let has_key = config.keys.apply(request, options.as_deref());
        Ok(Self {
            options,
            outer,
            has_key: SteadyError::check(has_key, request.url())?,
        })
    }
}

impl<'a> Call<'a> {
    /// Works out what a call may do.
    pub(crate) fn new(
        state: &'a RetryState,
        config: &'a RetryConfig,
        request: &Request,
        options: Option<Arc<RequestOptions>>,
        has_key: bool,
    ) -> Self {
        let own = options.as_deref();
        let limits = &config.limits;
        let max_retries = own.and_then(|own| own.max_retries);
        let max_retries = max_retries.unwrap_or(limits.max_retries);
        let is_idempotent_method = is_idempotent(request.method());
        let is_idempotent = own.is_some_and(|own| own.idempotent) || is_idempotent_method;
        let rules = RepeatRules {
            repeatable: has_key || is_idempotent,
            without_key: config.retry_without_key,
            unsent: config.retry_unsent,
        };
        let mut time = CallTime {
            window: limits.window,
            started: clock::now(),
            deadline: own.and_then(|own| own.deadline).or(limits.deadline),
            attempt_timeout: own
                .and_then(|own| own.attempt_timeout)
                .or(limits.attempt_timeout)
                .or(own.and_then(|own| own.fallback_timeout)),
        };
        let could_retry = max_retries > 0 && rules.allows_any();
        // A call that cannot be retried takes no retry and makes no deposit.
        let host = could_retry.then(|| HostPlace::of(request.url()));
        let host_record = host.map(|host| {
            let name = host.text(request.url());
            // With the settings of now: they may have been replaced since the call began, and a record is kept for long.
            let budget = |now| state.config.get().budgets.budget_of(name, now);
            state.hosts.of(name, host.hash, budget)
        });
        // A scope is needed only if this call can retry, has a deadline, or any `Scope` exists that may set one.
        let (mut scope, mut makes_deposit) = (None, true);
        if could_retry || time.deadline.is_some() || Scope::any_exists() {
            // A call without retries does not limit the retries of calls inside it.
            let retries = match could_retry && !config.dry_run {
                true => max_retries,
                false => u32::MAX,
            };
            let end = time.end();
            let opened = ScopeNode::of_call(retries, end, host_record.clone());
            if opened.deadline != end {
                time.bound_by(opened.deadline);
            }
            makes_deposit = !opened.shares_budget();
            scope = Some(opened);
        }
        if let Some(record) = host_record.as_ref().filter(|_| makes_deposit) {
            record.budget.on_request(time.started);
        }
        let buffers = own.is_some_and(|own| own.buffer.is_some());
        let mut rules_of_bodies = config.inspect.iter().chain(&config.inspect_by_preset);
        let reads = match (buffers, config.inspects()) {
            (false, false) => ReadBodies::None,
            // Their responses have none.
            _ if request.method() == Method::HEAD => ReadBodies::None,
            (true, _) => ReadBodies::All,
            _ if rules_of_bodies.any(|rule| rule.what.selects_successes()) => ReadBodies::All,
            _ => ReadBodies::OfErrors,
        };
        Self {
            state,
            config,
            time,
            max_retries,
            rules,
            has_key,
            is_safe: is_idempotent_method && is_safe(request.method()),
            reads,
            options,
            host,
            host_record,
            makes_deposit,
            scope,
            is_inner: false,
            outer: None,
            attempt: Attempt::FIRST,
            waited: Duration::ZERO,
            wait_reason: None,
            sent_at: Duration::ZERO,
            ended: Moment {
                at: time.started,
                elapsed: Duration::ZERO,
            },
            handed_off: None,
            visit: None,
            record: None,
            tracking: None,
            url: None,
        }
    }

    /// Saves the request if it may be needed again, and notifies observers.
    pub(crate) fn start(
        &mut self,
        outer: Option<Box<(Handoff, Terms)>>,
        request: &mut Request,
        extensions: &Extensions,
    ) {
        let (config, could_retry) = (self.config, self.could_retry());
        let is_tracked = config.tracks(could_retry);
        if is_tracked || could_retry || outer.is_some() || config.needs_target() {
            let has_factory = self.body_factory().is_some();
            self.record = Some(Box::new(CallRecord {
                request: RequestSnapshot::of(request, has_factory, extensions),
                history: None,
            }));
        } else if self.options.is_some() || self.time.has_limit() {
            self.url = Some(request.url().as_str().into());
        }
        if let Some(outer) = outer {
            let (outer, terms) = *outer;
            self.nest_in(outer, terms);
        }
        if is_tracked {
            self.track();
            self.notify(EventKind::CallStarted);
        }
    }

    /// Notes that another retry of the same chain is around this one. Its queue time counts here as well.
    fn nest_in(&mut self, outer: Handoff, terms: Terms) {
        if terms.can_retry && self.could_retry() {
            self.is_inner = true;
            let warning = &self.state.chain_warning;
            warning.warn(&TWO_RETRIES_IN_ONE_CHAIN);
        }
        if self.scope.as_deref().is_some_and(ScopeNode::shares_host) {
            // The retry is inside itself. Its inner attempts meet no retry, and must not teach that to the outer ones.
            self.state.inner.learn_retry();
        }
        self.outer = Some(outer);
        if terms.reads_successes {
            self.reads = ReadBodies::All;
        }
        let queued = terms.queued_before;
        if !queued.is_zero() {
            let history = self.history_or_new();
            (history.queued, history.queued_outside) = (queued, queued);
        }
    }

    /// Waits a random time before the first attempt, so that calls that start together spread out.
    pub(crate) async fn launch_delay(&mut self) {
        let spread = self.config.limits.launch_spread;
        let deadline = self.time.deadline;
        let spread = deadline.map_or(spread, |deadline| spread.min(deadline / 2));
        self.waited = self.state.entropy.with(|rng| up_to(spread, rng));
        tokio::time::sleep(self.waited).await;
        self.sent_at = self.time.elapsed(clock::now());
    }

    /// Returns whether no time was left when the attempt began, so that nothing is sent.
    fn began_too_late(&self) -> bool {
        (self.time.deadline).is_some_and(|deadline| self.sent_at >= deadline)
    }

    /// Returns when the attempt began.
    fn attempt_start(&self) -> Instant {
        clock::after(self.time.started, self.sent_at)
    }

    /// Returns when the latest attempt ended.
    pub(crate) fn ended(&self) -> Moment {
        self.ended
    }

    /// Returns whether anything may ask for the time and the effect of this call.
    ///
    /// A call that cannot be retried and that nothing observes has no options and no time limit. It pays for neither:
    /// both would take 480 instructions, a fifth of what the retry adds to such a call.
    fn is_measured(&self) -> bool {
        self.record.is_some() || self.url.is_some()
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Moment {
        self.time.moment(clock::now())
    }

    /// Returns how long the latest attempt took, with its time in a throttle's queue.
    fn attempt_time(&self) -> Duration {
        self.ended.elapsed.saturating_sub(self.sent_at)
    }

    /// Returns where the caller wants the report. The retry around an inner one writes it.
    fn slot(&self) -> Option<&ReportSlot> {
        let slot = self.options.as_ref()?.report.as_ref();
        slot.filter(|_| self.outer.is_none())
    }

    /// Returns whether any outcome of an attempt could lead to another attempt.
    fn could_retry(&self) -> bool {
        self.max_retries > 0 && self.rules.allows_any()
    }

    /// Returns where the request is sent. `None` if nothing asks for it.
    fn url(&self) -> Option<&str> {
        match &self.record {
            Some(record) => Some(record.request.target().url.as_str()),
            None => self.url.as_deref(),
        }
    }

    /// Adds host, attempts and time to an error of this crate. Other errors stay as they are.
    fn complete_error(&self, error: &mut Error, report: &RetryReport) {
        let Some(own) = SteadyError::of_mut(error) else {
            return;
        };
        if let Some(url) = self.url().and_then(|url| Url::parse(url).ok()) {
            let attempts = report.retries().saturating_add(1);
            let sent = attempts - u32::from(own.is_unsent());
            own.complete(host_of(&url), sent, report.took());
        }
    }

    /// Returns the balance of the budget. Infinite for a call that cannot be retried.
    fn balance(&self, now: Instant) -> f64 {
        let record = self.host_record.as_ref();
        record.map_or(f64::INFINITY, |record| record.budget.balance_at(now))
    }

    fn body_factory(&self) -> Option<&BodyFactory> {
        self.options.as_ref()?.body.as_deref()
    }

    fn history(&self) -> Option<&History> {
        self.record.as_ref()?.history.as_deref()
    }

    fn history_mut(&mut self) -> Option<&mut History> {
        self.record.as_mut()?.history.as_deref_mut()
    }

    fn history_or_new(&mut self) -> &mut History {
        let record = self.record.as_mut();
        let record = record.expect("a call that is retried or nested has one");
        record.history.get_or_insert_default()
    }

    /// Returns how long all attempts so far waited in throttles' queues.
    fn queued(&self) -> Duration {
        let before = (self.history()).map_or(Duration::ZERO, |history| history.queued);
        let now = (self.visit).map_or(Duration::ZERO, ThrottleVisit::queued);
        before.saturating_add(now)
    }
}

/// Removes what an earlier call with the same extensions has left. A middleware outside may send a request twice.
fn forget_earlier_call(extensions: &mut Extensions) {
    extensions.remove::<Attempt>();
    extensions.remove::<FailedReport>();
}
