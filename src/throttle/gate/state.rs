//! The state of a gate, behind its lock: limits, controller and queue.

use std::task::Waker;
use std::time::Duration;

use super::super::config::ThrottleConfig;
use super::super::controller::{Admission, Controller, SendRecord};
use super::super::queue::{WaitQueue, WaiterId};
use super::super::token_bucket::TokenBucket;
use super::reported::{Closed, GateChanges, Reported};
use crate::clock::Time;
use crate::fleet::{LeaseTurn, WorkerLease};
use crate::observe::{LoadChange, PauseSource, ThrottleLoad};

#[derive(Debug, Default)]
pub(super) struct GateState {
    /// At most `max_in_flight`.
    pub(super) in_flight: u32,
    pub(super) max_in_flight: u32,
    /// The fixed rate of this client alone.
    pub(super) bucket: Option<TokenBucket>,
    /// What this worker holds of the limits of a fleet. Never together with `bucket`.
    pub(super) lease: Option<Box<WorkerLease>>,
    /// A task will look whether the lease has something to give back.
    pub(super) has_reminder: bool,
    /// `None` if the throttle is not adaptive.
    pub(super) controller: Option<Controller>,
    pub(super) queue: WaitQueue,
    /// The waiter whose timer wakes the queue, and when it wakes.
    pub(super) timer: Option<(WaiterId, Time)>,
    /// No waiter has an earlier limit.
    pub(super) first_limit: Option<Time>,
    pub(super) last_used: Time,
    pub(super) reported: Reported,
    pub(super) after_unlock: AfterUnlock,
}

/// Work that must not happen under the lock: a waker may run any code, even code that locks this gate.
#[derive(Debug, Default)]
pub(super) struct AfterUnlock {
    pub(super) to_wake: Vec<Waker>,
    pub(super) to_drop: Vec<Waker>,
    /// A pause that other workers do not know yet.
    pub(super) pause: Option<Duration>,
}

impl AfterUnlock {
    pub(super) fn is_empty(&self) -> bool {
        self.to_wake.is_empty() && self.to_drop.is_empty() && self.pause.is_none()
    }
}

/// A request that the state counts as in flight. Given back with `end` or `undo_send`.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::throttle) struct Grant {
    /// `None` if there is no controller.
    pub(super) record: Option<SendRecord>,
}

/// What observers and the log see of a gate at one moment.
pub(super) struct GateSnapshot {
    /// `None` if there are no observers.
    pub(super) load: Option<ThrottleLoad>,
    /// Boxed, because most requests change nothing.
    pub(super) changes: Option<Box<GateChanges>>,
}

impl GateState {
    pub(super) fn new(settings: &ThrottleConfig) -> Self {
        let controller = || Controller::new(settings.max_in_flight);
        let lease = settings.fleet.as_ref().map(|fleet| {
            let lease = fleet.worker_lease(settings.rate);
            Box::new(match settings.adaptive {
                true => lease,
                false => lease.without_pauses(),
            })
        });
        let own_rate = settings.rate.filter(|_| lease.is_none());
        Self {
            max_in_flight: settings.max_in_flight,
            bucket: own_rate.map(|rate| TokenBucket::new(rate.per_second, rate.burst)),
            lease,
            controller: settings.adaptive.then(controller),
            ..Self::default()
        }
    }

    /// Takes over new limits. A fleet's limits never change while it runs.
    pub(super) fn apply(&mut self, config: &ThrottleConfig, now: Time) {
        self.max_in_flight = config.max_in_flight;
        let own_rate = config.rate.filter(|_| self.lease.is_none());
        self.bucket = own_rate.map(|rate| {
            let bucket = TokenBucket::new(rate.per_second, rate.burst);
            match &self.bucket {
                Some(old) => bucket.after(old, now),
                None => bucket,
            }
        });
        match (&mut self.controller, config.adaptive) {
            (Some(controller), true) => controller.set_max_in_flight(config.max_in_flight),
            (controller, true) => *controller = Some(Controller::new(config.max_in_flight)),
            (controller, false) => *controller = None,
        }
    }

    /// Decides when the next request may go: the latest of all limits.
    pub(super) fn admission(&mut self, now: Time) -> Admission {
        if self.in_flight >= self.max_in_flight {
            return Admission::AfterResponse;
        }
        if let Some(bucket) = &self.bucket {
            let next = bucket.next(now, 0);
            if now < next {
                return Admission::At(next);
            }
        }
        if let Some(lease) = &mut self.lease {
            match lease.turn(now) {
                LeaseTurn::Now => {}
                LeaseTurn::At(at) | LeaseTurn::AwaitStore(at) => return Admission::At(at),
            }
        }
        match &mut self.controller {
            Some(controller) => controller.admission(now, self.in_flight),
            None => Admission::Now,
        }
    }

    /// Counts one request as sent. Call it only after [`admission`](Self::admission) returned `Now`.
    pub(super) fn send(&mut self, now: Time) -> Grant {
        self.in_flight += 1;
        if let Some(bucket) = &mut self.bucket {
            bucket.take(now);
        }
        if let Some(lease) = &mut self.lease {
            lease.take(now);
        }
        let record = self.controller.as_mut().map(|it| it.send(now));
        Grant { record }
    }

    /// Takes back a request that was counted and never sent.
    pub(super) fn undo_send(&mut self, grant: Grant) {
        if let Some(bucket) = &mut self.bucket {
            bucket.put_back();
        }
        if let Some(lease) = &mut self.lease {
            lease.put_back();
        }
        if let Some((controller, record)) = self.end(grant) {
            controller.undo_send(record);
        }
    }

    /// Ends a request, and returns the controller that may learn from it.
    pub(super) fn end(&mut self, grant: Grant) -> Option<(&mut Controller, SendRecord)> {
        self.in_flight -= 1;
        self.controller.as_mut().zip(grant.record)
    }

    /// Whether dropping the gate would lose something.
    pub(super) fn must_keep(&self, now: Time) -> bool {
        const REMEMBERED_FOR: Duration = Duration::from_secs(60);
        if self.in_flight > 0 || !self.queue.is_empty() {
            return true;
        }
        let has_learned = (self.controller.as_ref()).is_some_and(|it| it.has_learned(now));
        let is_recent = now.saturating_sub(self.last_used) < REMEMBERED_FOR;
        let lease_gives_back_at = self.lease.as_ref().and_then(|lease| lease.give_back_at());
        self.not_before(now, 0) > now
            || (has_learned && is_recent)
            || lease_gives_back_at.is_some_and(|at| now < at)
    }

    /// Returns a time before which a call certainly cannot go, with this many waiters ahead.
    pub(super) fn not_before(&self, now: Time, ahead: usize) -> Time {
        let bucket = self.bucket.as_ref().map(|it| it.next(now, ahead));
        let lease = self.lease.as_ref().map(|it| it.not_before(now, ahead));
        let controller = self.controller.as_ref().map(|it| it.closed_until(now));
        let limits = bucket.into_iter().chain(lease).chain(controller);
        limits.fold(now, Time::max)
    }

    /// Estimates when a call can go, with this many waiters ahead.
    pub(super) fn likely_at(&self, now: Time, ahead: usize) -> Time {
        let wait = self.controller.as_ref().map(|it| it.time_for(ahead));
        let at_this_rate = now.saturating_add(wait.unwrap_or_default());
        self.not_before(now, ahead).max(at_this_rate)
    }

    pub(super) fn load(&self, now: Time, change: LoadChange) -> ThrottleLoad {
        ThrottleLoad {
            change,
            in_flight: self.in_flight,
            waiting: self.queue.len(),
            oldest: self.queue.longest_wait(now),
        }
    }

    /// Returns what has changed since the last report to observers and the log.
    pub(super) fn unreported_changes(&mut self, now: Time) -> Option<Box<GateChanges>> {
        let controller = self.controller.as_ref()?;
        let (mut paused, mut is_released) = (None, false);
        match closed(now, controller, self.lease.as_deref()) {
            Some(closed) => paused = self.reported.pause(now, closed),
            // The gate opens for a probe only.
            None if controller.is_half_open() => {}
            None => is_released = self.reported.release(),
        }
        let paced = self.reported.pace(now, controller.rate());
        let has_changed = paused.is_some() || is_released || paced.is_some();
        has_changed.then(|| {
            Box::new(GateChanges {
                paused,
                is_released,
                paced,
            })
        })
    }
}

/// Returns until when the gate is closed, and who asked for that. A worker of a fleet that heard of its own pause
/// asked for it itself.
pub(super) fn closed(
    now: Time,
    controller: &Controller,
    lease: Option<&WorkerLease>,
) -> Option<Closed> {
    let own = controller.closed_by(now);
    let fleet = lease.map(|lease| (PauseSource::Fleet, lease.paused_until()));
    let fleet = fleet.filter(|(_, until)| own.map_or(now, |(_, own)| own) < *until);
    let (asked_by, until) = fleet.or(own)?;
    Some(Closed { until, asked_by })
}
