//! Checks a service: each kind has the settings that it needs, and no others, within bounds.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Kind, LoadKind, Service, ServiceError, ServiceLimit, ServiceLoad, Span};

/// Bounds, so that a run takes minutes at most and fits into memory.
const MOST_CALLS: usize = 1_000_000;
const MOST_CLIENTS: usize = 10_000;
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The requests that a bucket can accept per second for each that it holds. Virtual time has whole milliseconds.
const MOST_PER_BURST: f64 = 1000.0;

impl Service {
    pub(super) fn check(&self) -> Result<(), ServiceError> {
        within(
            "latency",
            self.latency,
            Span(Duration::ZERO)..=Span(Duration::from_secs(60)),
        )?;
        within("jitter", self.jitter, 0.0..=1.0)?;
        self.limit.check()?;
        let faults = &self.faults;
        within("faults.errors", faults.errors, 0.0..=1.0)?;
        within("faults.resets", faults.resets, 0.0..=1.0)?;
        if let Some(status) = faults.error_status {
            within("faults.error_status", status, 400..=599)?;
        }
        if let Some(outage) = &faults.outage {
            ordered("faults.outage", outage.from, outage.to)?;
        }
        if let Some(stall) = &faults.stall {
            ordered("faults.stall", stall.from, stall.to)?;
        }
        self.load.check()
    }
}

impl ServiceLimit {
    fn check(&self) -> Result<(), ServiceError> {
        use Kind::{Bucket, Concurrency, Gcra, None, Window, Worker};
        let kind = |path, needs: &[Kind]| KindOf {
            path,
            kind: self.kind.to_string(),
            kind_path: "limit.kind",
            needed: needs.contains(&self.kind),
            others: needs.iter().map(Kind::to_string).collect(),
        };
        kind("limit.rate", &[Window, Bucket, Gcra, Worker]).check(&self.rate, "\"10/s\"")?;
        kind("limit.window", &[Window]).check(&self.window, "\"1s\"")?;
        kind("limit.burst", &[Bucket, Gcra]).check(&self.burst, "10")?;
        kind("limit.at_once", &[Concurrency]).check(&self.at_once, "8")?;
        kind("limit.work", &[Concurrency]).check(&self.work, "\"200ms\"")?;
        if matches!(self.kind, None | Worker) {
            let limits = [Window, Bucket, Gcra, Concurrency];
            kind("limit.status", &limits).check(&self.status, "429")?;
            kind("limit.hint", &limits)
                .check(&self.hint.map(|hint| hint.to_string()), "\"none\"")?;
        }
        let shortest = Span(Duration::from_millis(1));
        if let Some(window) = self.window {
            within("limit.window", window, shortest..=Span(LONGEST))?;
        }
        if let (Window, Some(rate), Some(window)) = (self.kind, self.rate, self.window) {
            let accepted = (rate.0 * window.0.as_secs_f64()).round();
            if accepted < 1.0 {
                let message = format!(
                    "invalid value \"{rate}\": a window of {window} accepts no request; write a higher rate or a longer window"
                );
                return Err(error("limit.rate", message));
            }
        }
        if let Some(burst) = self.burst {
            within("limit.burst", burst, 1.0..=1e6)?;
        }
        match (self.kind, self.rate, self.burst) {
            (Bucket | Gcra, Some(rate), Some(burst)) if rate.0 > MOST_PER_BURST * burst => {
                let least = (rate.0 / MOST_PER_BURST).ceil();
                let message = format!(
                    "invalid value {burst}: a bucket for {rate} must hold at least {least}, because virtual time has \
                     whole milliseconds"
                );
                return Err(error("limit.burst", message));
            }
            _ => {}
        }
        if let Some(at_once) = self.at_once {
            within("limit.at_once", at_once, 1..=1_000_000)?;
        }
        if let Some(work) = self.work {
            within(
                "limit.work",
                work,
                shortest..=Span(Duration::from_secs(3600)),
            )?;
        }
        if let Some(status) = self.status {
            within("limit.status", status, 400..=599)?;
        }
        Ok(())
    }
}

impl ServiceLoad {
    fn check(&self) -> Result<(), ServiceError> {
        use LoadKind::{AtOnce, Bursts, Steady};
        let kind = |path, needs: &[LoadKind]| KindOf {
            path,
            kind: self.kind.to_string(),
            kind_path: "load.kind",
            needed: needs.contains(&self.kind),
            others: needs.iter().map(LoadKind::to_string).collect(),
        };
        kind("load.rate", &[Steady]).check(&self.rate, "\"50/s\"")?;
        kind("load.duration", &[Steady]).check(&self.duration, "\"20s\"")?;
        kind("load.calls", &[AtOnce, Bursts]).check(&self.calls, "500")?;
        kind("load.every", &[Bursts]).check(&self.every, "\"10s\"")?;
        kind("load.times", &[Bursts]).check(&self.times, "3")?;
        within("load.clients", self.clients, 1..=MOST_CLIENTS)?;
        if let Some(duration) = self.duration {
            within(
                "load.duration",
                duration,
                Span(Duration::ZERO)..=Span(LONGEST),
            )?;
        }
        if let Some(calls) = self.calls {
            within("load.calls", calls, 1..=MOST_CALLS)?;
        }
        if let Some(times) = self.times {
            within("load.times", times, 1..=MOST_CALLS)?;
        }
        if let (Some(every), Some(times)) = (self.every, self.times) {
            let last = every.0.as_secs_f64() * times as f64;
            within(
                "load.every",
                Span(every.0),
                Span(Duration::ZERO)..=Span(LONGEST),
            )?;
            if last > LONGEST.as_secs_f64() {
                let message = format!(
                    "invalid value \"{every}\": {times} bursts last longer than {}",
                    Span(LONGEST)
                );
                return Err(error("load.every", message));
            }
        }
        let calls = self.calls();
        within("load", calls, 1..=MOST_CALLS).map_err(|_| {
            let message = format!("{calls} calls start: there must be from 1 to {MOST_CALLS}");
            error("load", message)
        })
    }
}

/// A setting that only some kinds have.
struct KindOf {
    path: &'static str,
    kind: String,
    kind_path: &'static str,
    needed: bool,
    /// The kinds that have it.
    others: Vec<String>,
}

impl KindOf {
    fn check<T: Display>(&self, value: &Option<T>, example: &str) -> Result<(), ServiceError> {
        let Self {
            path,
            kind,
            kind_path,
            ..
        } = self;
        let name = path.rsplit('.').next().unwrap_or_default();
        match value {
            None if self.needed => Err(error(
                path,
                format!(
                    "missing: {kind_path} = \"{kind}\" needs it, for example {name} = {example}"
                ),
            )),
            Some(value) if !self.needed => Err(error(
                path,
                format!(
                    "invalid value {value}: {kind_path} = \"{kind}\" does not have it; remove it, or write {kind_path} = {}",
                    self.others
                        .iter()
                        .map(|kind| format!("{kind:?}"))
                        .collect::<Vec<_>>()
                        .join(" or ")
                ),
            )),
            _ => Ok(()),
        }
    }
}

fn within<T: PartialOrd + Display>(
    path: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), ServiceError> {
    if range.contains(&value) {
        return Ok(());
    }
    let message = format!(
        "invalid value {value}: write a value from {} to {}",
        range.start(),
        range.end()
    );
    Err(error(path, message))
}

fn ordered(path: &str, from: Span, to: Span) -> Result<(), ServiceError> {
    let to_path = format!("{path}.to");
    within(&to_path, to, Span(Duration::ZERO)..=Span(LONGEST))?;
    if from < to {
        return Ok(());
    }
    let message = format!("invalid value {to}: write a time after {path}.from, which is {from}");
    Err(error(&to_path, message))
}

fn error(path: &str, message: String) -> ServiceError {
    ServiceError {
        path: path.to_owned(),
        message,
    }
}
