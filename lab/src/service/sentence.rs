//! Describes a service in words.

use std::fmt;

use super::{Kind, LoadKind, Service};

/// Describes it in a sentence.
impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, faults, load) = (&self.limit, &self.faults, &self.load);
        let rate = limit.rate.unwrap_or_default();
        let (window, work) = (
            limit.window.unwrap_or_default(),
            limit.work.unwrap_or_default(),
        );
        let burst = limit.burst.unwrap_or(1.0);
        match limit.kind {
            Kind::None => write!(f, "It accepts everything")?,
            Kind::Window => write!(
                f,
                "It accepts {:.0} requests in each window of {window}",
                rate.0 * window.0.as_secs_f64()
            )?,
            Kind::Bucket => write!(f, "It accepts {rate} from a bucket of {burst}")?,
            Kind::Gcra => write!(f, "It accepts {rate} evenly, with a burst of {burst}")?,
            Kind::Concurrency => write!(
                f,
                "It works on {} requests at once, each for {work}",
                limit.at_once.unwrap_or_default()
            )?,
            Kind::Worker => write!(f, "It works on {rate}, one after the other")?,
        }
        if !matches!(limit.kind, Kind::None | Kind::Worker) {
            let hint = limit.hint.unwrap_or_default();
            write!(
                f,
                " and refuses the rest with {} and {hint}",
                limit.status()
            )?;
        }
        write!(f, ". A round trip takes {}", self.latency)?;
        if self.jitter > 0.0 {
            write!(f, " ± {} %", percent(self.jitter))?;
        }
        if faults.errors > 0.0 {
            let status = faults.error_status.unwrap_or(503);
            write!(
                f,
                "; {} % of the responses are a random {status}",
                percent(faults.errors)
            )?;
        }
        if faults.resets > 0.0 {
            write!(
                f,
                "; {} % of the connections are reset",
                percent(faults.resets)
            )?;
        }
        if let Some(outage) = &faults.outage {
            write!(f, "; it is down from {} to {}", outage.from, outage.to)?;
        }
        if let Some(stall) = &faults.stall {
            write!(f, "; it stalls from {} to {}", stall.from, stall.to)?;
        }
        let calls = load.calls.unwrap_or_default();
        match load.kind {
            LoadKind::Steady => write!(
                f,
                ". {} calls start, {} for {}",
                load.calls(),
                load.rate.unwrap_or_default(),
                load.duration.unwrap_or_default()
            )?,
            LoadKind::AtOnce => write!(f, ". {calls} calls start at once")?,
            LoadKind::Bursts => write!(
                f,
                ". {} bursts of {calls} calls start, one every {}",
                load.times.unwrap_or_default(),
                load.every.unwrap_or_default()
            )?,
        }
        match load.clients {
            1 => write!(f, ", all from one client."),
            clients => write!(f, ", from {clients} clients."),
        }
    }
}

fn percent(share: f64) -> String {
    let text = format!("{:.3}", 100.0 * share);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
