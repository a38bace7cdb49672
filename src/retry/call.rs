//! One call: what it may do, what it has done, and how long it may take.

mod aside;
mod letter;
mod running;
mod step;
mod turn;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, HeaderValue, Method};
use reqwest::{Request, Response};
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::permit::HandedOff;
use super::settings::Settings;
use crate::admit::{Allowance, Budget, Covered, Opener, Scope};
use crate::clock;
use crate::decide::{ClassifiedOutcome, RepeatRules, is_idempotent};
use crate::entropy::up_to;
use crate::handoff::{Handoff, Terms, ThrottleVisit};
use crate::outcome::{Attempt, AttemptReport, FailedReport, RetryReport, StopReason};
use crate::request::{BodyFactory, RequestOptions, RequestSnapshot};
use crate::schedule::CallTime;
use aside::{Aside, Earlier};
use letter::DeliveryEnd;
use running::{Limited, Running};
use step::{End, Retry, Step};
pub(crate) use turn::Turn;

/// The state of one call. It lives as long as `handle` runs, and nothing else holds it.
pub(crate) struct Call<'a> {
    settings: &'a Settings,
    time: CallTime<'a>,
    max_retries: u32,
    rules: RepeatRules,
    has_key: bool,
    /// What this request asked for.
    own: Option<Arc<RequestOptions>>,
    /// The answer to a HEAD has no body, whatever its length says. Known if something was asked for.
    is_head: bool,
    budget: Budget,
    /// Whether this call credits its budget. One that is nested in a call with the same budget does
    /// not: one deposit for one call.
    feeds_budget: bool,
    /// What this call and those inside it draw from, if it makes a difference to any.
    allowance: Option<Allowance>,
    /// Another retry of the same chain is around this one, and logs how the call ends.
    is_inner: bool,
    /// The handoff of another retry around this one, put back at the end.
    outer: Option<Handoff>,

    // The running attempt, or the one that has just ended.
    attempt: Attempt,
    waited: Duration,
    sent_at: Duration,
    /// While it runs.
    handed_off: Option<HandedOff>,
    /// What a throttle has left that it came through, once it has ended.
    visit: Option<ThrottleVisit>,
    spare: Option<RequestSnapshot>,

    aside: Option<Box<Aside<'a>>>,
}

impl<'a> Call<'a> {
    /// Whether the first attempt waits, too.
    pub(crate) fn is_spread(&self) -> bool {
        !self.settings.launch_spread.is_zero()
    }

    /// Settles what this call may do.
    #[inline(always)] // Called once, by the loop.
    pub(crate) fn open(
        settings: &'a Settings,
        request: &Request,
        own: Option<&Arc<RequestOptions>>,
        has_key: bool,
    ) -> Self {
        let wants_target = settings.classifier.by_user.is_some() || settings.retry_without_key;
        let aside = wants_target.then(|| Aside::with_target(request));
        let limits = &settings.limits;
        let (max_retries, deadline, attempt, harmless) = match own {
            None => (settings.max_retries, limits.deadline, limits.attempt, false),
            Some(own) => (
                own.max_retries.unwrap_or(settings.max_retries),
                own.deadline.or(limits.deadline),
                own.attempt_timeout.or(limits.attempt),
                own.idempotent,
            ),
        };
        let rules = RepeatRules {
            repeatable: has_key || harmless || is_idempotent(request.method()),
            without_key: settings.retry_without_key,
            unsent: settings.retry_unsent,
        };
        let could_retry = max_retries > 0 && rules.allows_any();
        let mut time = CallTime {
            limits,
            started: clock::now(),
            deadline,
            attempt,
        };
        let budget = if could_retry {
            settings.budgets.of(request.url())
        } else {
            // It neither needs nor feeds one.
            Budget::unlimited()
        };
        // A call that cannot be retried and sets no deadline makes no difference to others, and
        // others make none to it, unless they set one.
        let (mut allowance, mut feeds_budget) = (None, true);
        if could_retry || time.deadline.is_some() || Scope::any_exists() {
            let opener = Opener {
                can_retry: could_retry,
                budget: budget.address(),
            };
            // One that is not retried itself takes nothing from those inside it.
            let retries = if could_retry && !settings.dry_run {
                max_retries
            } else {
                u32::MAX
            };
            let opened = Allowance::open(retries, time.end(), opener);
            if opened.is_nested() {
                time.bound_by(opened.deadline());
                feeds_budget = !opened.shares_budget();
            }
            allowance = Some(opened);
        }
        if feeds_budget {
            budget.on_request(time.started);
        }
        Self {
            settings,
            time,
            max_retries,
            rules,
            has_key,
            own: own.cloned(),
            is_head: own.is_some() && request.method() == Method::HEAD,
            budget,
            feeds_budget,
            allowance,
            is_inner: false,
            outer: None,
            attempt: Attempt::FIRST,
            waited: Duration::ZERO,
            sent_at: Duration::ZERO,
            handed_off: None,
            visit: None,
            spare: None,
            aside,
        }
    }

    /// Notes that another retry of the same chain is around this one: its queue time counts here as well.
    pub(crate) fn nest_in(&mut self, outer: Handoff, terms: Terms) {
        if terms.can_retry && self.could_retry() {
            self.is_inner = true;
            self.settings.warn_of_two_in_a_chain();
        }
        self.outer = Some(outer);
        let queued = terms.queued_before;
        if !queued.is_zero() {
            let earlier = self.made_earlier();
            (earlier.queued, earlier.queued_outside) = (queued, queued);
        }
    }

    /// How long all attempts so far waited in the queue of a throttle.
    fn queued(&self) -> Duration {
        let before = self
            .earlier()
            .map_or(Duration::ZERO, |earlier| earlier.queued);
        let now = self.visit.map_or(Duration::ZERO, ThrottleVisit::queued);
        before.saturating_add(now)
    }

    /// Whether any ending of an attempt could have led to another.
    fn could_retry(&self) -> bool {
        self.max_retries > 0 && self.rules.allows_any()
    }

    /// Whether somebody wants to know of it from its beginning on.
    #[inline]
    pub(crate) fn is_followed(&self) -> bool {
        self.settings.follows(self.could_retry())
    }

    /// Tells of this call from now on.
    #[cold]
    pub(crate) fn follow(&mut self, request: &Request) {
        self.watch(request.method(), request.url()).call_started();
    }

    fn body(&self) -> Option<&BodyFactory> {
        self.own.as_ref()?.body.as_ref()
    }

    fn buffer(&self) -> Option<usize> {
        self.own.as_ref()?.buffer.filter(|_| !self.is_head)
    }

    /// What is known of the attempts before this one, if there were any.
    #[inline]
    fn earlier(&self) -> Option<&Earlier> {
        self.aside.as_ref()?.earlier.as_ref()
    }

    /// Spreads the first attempts of calls that begin on the same beat.
    pub(crate) async fn launch(&mut self) {
        let spread = match self.time.deadline {
            Some(deadline) => self.settings.launch_spread.min(deadline / 2),
            None => self.settings.launch_spread,
        };
        self.waited = self.settings.entropy.with(|rng| up_to(spread, rng));
        tokio::time::sleep(self.waited).await;
        self.sent_at = self.time.elapsed(clock::now());
    }

    /// Gets ready for an attempt: keeps a copy of the request, if a retry or a letter could follow, and
    /// numbers it.
    #[inline(always)] // Called once, by the loop.
    pub(crate) fn prepare(&mut self, request: &mut Request, extensions: &mut Extensions) {
        let could_follow = || self.could_retry() || self.settings.dead_letters.is_some();
        if self.spare.is_none() && could_follow() {
            let rebuilt = self.body().is_some();
            self.spare = Some(RequestSnapshot::of(request, rebuilt, extensions));
        }
        if let Some(name) = &self.settings.attempt_header {
            let number = HeaderValue::from(self.attempt.number());
            request.headers_mut().insert(name, number);
        }
        if self.aside.is_some()
            || self.time.attempt.is_some()
            || self.settings.inner_retry.may_exist()
        {
            self.hand_off(extensions);
        }
    }

    /// Tells a throttle inside what it needs to know, if there is anything to lose.
    fn hand_off(&mut self, extensions: &mut Extensions) {
        let (mut permit, mut queued_before) = (None, Duration::ZERO);
        if let Some(aside) = &mut self.aside {
            if let Some(earlier) = &mut aside.earlier {
                permit = earlier.permit.take();
                queued_before = earlier.queued;
            }
            if let Some(watch) = &mut aside.watch {
                watch.attempt_started(self.attempt);
            }
        }
        if permit.is_some()
            || self.time.attempt.is_some()
            || !queued_before.is_zero()
            || self.settings.inner_retry.may_exist()
        {
            let terms = Terms {
                latest: (self.attempt.is_retry()).then(|| self.time.window_end()),
                queued_before,
                can_retry: self.could_retry(),
            };
            let handoff = Handoff::insert(extensions, terms);
            self.handed_off = Some(HandedOff::new(handoff, permit));
        }
    }

    /// The attempt has ended: what was paid for it is spent, or given back.
    pub(crate) fn end_attempt(&mut self, extensions: &Extensions) {
        let left = match extensions.is_empty() {
            true => None,
            false => extensions.get::<Handoff>(),
        };
        let mut visit = left.and_then(Handoff::visit);
        let mut had_inner = left.is_some_and(Handoff::had_inner_retry);
        if let Some(handed_off) = self.handed_off.take() {
            visit = handed_off.handoff.visit().or(visit);
            had_inner |= handed_off.handoff.had_inner_retry();
            let is_given_back = handed_off.end();
            if let (true, Some(allowance)) = (is_given_back, &self.allowance) {
                allowance.put_back();
            }
        }
        self.settings.inner_retry.learn(had_inner);
        self.visit = visit;
    }

    /// Lets an attempt run in what this call allows to those inside it, and as long as it may take.
    #[inline]
    pub(crate) fn run<F>(&mut self, answer: F) -> Running<'_, F> {
        let handoff = self.handed_off.as_ref().map(|it| &it.handoff);
        let limited = Limited::new(&self.time, &self.sent_at, handoff);
        Running {
            answer: Covered {
                allowance: &mut self.allowance,
                future: Some(answer),
            },
            limited,
        }
    }

    /// What the ending of an attempt means.
    #[inline(always)] // Every attempt comes by here.
    pub(crate) fn classify(&self, result: &Result<Response>) -> ClassifiedOutcome {
        self.settings.classifier.classify(
            result,
            (self.aside.as_ref()).and_then(|aside| aside.target.as_ref()),
            self.attempt,
            self.has_key && self.earlier().is_some_and(|earlier| earlier.unclear),
        )
    }

    /// Whether the body of a final answer belongs to the attempt.
    #[inline]
    pub(crate) fn wants_body(&self) -> bool {
        self.buffer().is_some()
    }

    fn made_earlier(&mut self) -> &mut Earlier {
        let aside = self.aside.get_or_insert_default();
        aside.earlier.get_or_insert_default()
    }

    /// Ends a call whose answer is a success.
    #[inline(always)] // Called once, by the loop.
    pub(crate) fn succeed(
        &mut self,
        classified: ClassifiedOutcome,
        result: &mut Result<Response>,
        extensions: &mut Extensions,
    ) {
        let end = End {
            classified,
            reason: StopReason::Succeeded,
            hint: None,
        };
        match result {
            // Most calls have no more to tell.
            Ok(response)
                if self.aside.is_none()
                    && self.own.is_none()
                    && self.visit.is_none()
                    && !self.is_nested() =>
            {
                self.feed_budget(None);
                let report = self.first_report(end);
                if let Some(inner) = response.extensions_mut().insert(report) {
                    let mut report = self.first_report(end);
                    report.earlier = report.last.replace_with_inner(inner);
                    response.extensions_mut().insert(report);
                }
            }
            // A success leaves no letter.
            _ => drop(self.report(end, result, extensions)),
        }
    }

    /// What there is to say before anything is added to it.
    #[inline]
    fn first_report(&self, end: End) -> RetryReport {
        RetryReport {
            last: self.ended_attempt(end.classified, end.hint),
            earlier: Vec::new(),
            refused_wait: Duration::ZERO,
            stop: end.reason,
        }
    }

    /// Puts the report beside the last answer, which is not changed otherwise. If the call is given up,
    /// there may be a letter about it, which is under way then.
    #[cold]
    fn report(
        &mut self,
        end: End,
        result: &mut Result<Response>,
        extensions: &mut Extensions,
    ) -> Option<DeliveryEnd> {
        let mut letter = None;
        let mut report = self.first_report(end);
        report.earlier = self.complete_attempt(&mut report.last, result, extensions);
        if end.reason == StopReason::Succeeded && self.aside.is_none() {
            self.feed_budget(None);
        } else {
            letter = self.conclude(end, &mut report, result);
        }
        if let Some(slot) = self.own.as_ref().and_then(|own| own.report.as_ref()) {
            slot.put(report.clone());
        }
        self.leave_for_outer(extensions);
        match result {
            Ok(response) => drop(response.extensions_mut().insert(report)),
            Err(_) => drop(extensions.insert(FailedReport(report))),
        }
        letter
    }

    /// Whether another retry may be around this one, in the same chain.
    fn is_nested(&self) -> bool {
        let in_another = || (self.allowance.as_ref()).is_some_and(Allowance::is_in_another_call);
        self.outer.is_some() || in_another()
    }

    /// Leaves what another retry around this one goes on with.
    fn leave_for_outer(&mut self, extensions: &mut Extensions) {
        let outside = self.earlier().map(|earlier| earlier.queued_outside);
        let queued = self.queued().saturating_sub(outside.unwrap_or_default());
        let has_visit = self.visit.is_some() || !queued.is_zero();
        if !has_visit && !self.is_nested() {
            return;
        }
        let handoff = self.outer.take().unwrap_or_default();
        handoff.mark_inner_retry();
        if has_visit {
            handoff.report(queued, self.visit.is_some_and(|visit| visit.paced));
        }
        extensions.insert(handoff);
    }

    /// Adds what happened inside an attempt that has ended. Returns the attempts that another retry made before the
    /// last one, if there is another retry inside.
    fn complete_attempt(
        &self,
        attempt: &mut AttemptReport,
        result: &Result<Response>,
        extensions: &mut Extensions,
    ) -> Vec<AttemptReport> {
        let inner = match result {
            Ok(response) => RetryReport::of(response).cloned(),
            Err(_) => extensions.remove().map(|FailedReport(report)| report),
        };
        if let Some(visit) = self.visit {
            attempt.add_wait(visit.waited);
        }
        inner.map_or_else(Vec::new, |inner| attempt.replace_with_inner(inner))
    }

    /// Completes the report, and tells those who want to know.
    fn conclude(
        &mut self,
        end: End,
        report: &mut RetryReport,
        result: &mut Result<Response>,
    ) -> Option<DeliveryEnd> {
        let now = clock::now();
        if end.is_success() {
            self.feed_budget(Some(now));
        }
        let elapsed = self.time.elapsed(now);
        self.tell_last(end, result, elapsed, now);
        let waited = report.waited().saturating_add(self.waited_before());
        let pause = self
            .leaves_letter(end)
            .then(|| letter::pause_after(end, result));
        let earlier = (self.aside.as_mut()).and_then(|aside| aside.earlier.as_mut());
        if let Some(earlier) = earlier {
            earlier.complete(report, result);
        }
        self.tell_stop(report, waited, elapsed, now);
        self.write_letter(report, pause?)
    }

    /// How long the call waited before its earlier attempts.
    fn waited_before(&self) -> Duration {
        let history = self.earlier().map_or(&[][..], |earlier| &earlier.history);
        let waits = history.iter().map(AttemptReport::waited);
        waits.fold(Duration::ZERO, Duration::saturating_add)
    }

    #[inline]
    fn feed_budget(&self, now: Option<Instant>) {
        if self.feeds_budget {
            self.budget.on_success(now);
        }
    }

    fn ended_attempt(
        &self,
        classified: ClassifiedOutcome,
        hint: Option<Duration>,
    ) -> AttemptReport {
        AttemptReport {
            outcome: classified.outcome,
            sent_at: self.sent_at,
            waited: self.waited,
            hint,
        }
    }
}
