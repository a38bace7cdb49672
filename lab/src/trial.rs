//! Compares clients at a described service.

use std::sync::Arc;
use std::time::Duration;

use lab::service::Service;
use lab::stacks::{no_retry, of_steady, reqwest_retry, steady_throttle};
use reqwest_steady::Steady;
use reqwest_steady::testing::{Outcome, Stack};

use crate::conclusion::{find_run, share_and_cost};
use crate::results::{OURS, PEER, Results, Run, YOURS};
use crate::scenarios::{MEANINGS, took};
use crate::serve::{Bound, Bounded};

/// Builds the bundle of one client, with this seed for its jitter.
pub(crate) type MakeSteady<'a> = dyn Fn(u64) -> Steady + Sync + 'a;

/// The clients that every described service is compared with.
const CLIENTS: [(&str, &Stack); 3] = [
    ("no retry", &no_retry),
    (PEER, &reqwest_retry),
    (OURS, &steady_throttle),
];

/// Says what the clients are.
pub(crate) fn meanings() -> Vec<(&'static str, &'static str)> {
    let known = |(name, _): &(&str, _)| CLIENTS.iter().any(|(client, _)| client == name);
    MEANINGS.into_iter().filter(known).collect()
}

/// Runs all clients, and one with your settings if there are any. A bound can stop the runs early.
pub(crate) fn compare(
    service: &Service,
    seed: u64,
    yours: Option<&MakeSteady<'_>>,
    bound: Option<&Arc<Bound>>,
) -> Results {
    let run = |name, stack: &Stack<'_>| {
        let bounded = |seed| {
            let mut middlewares = stack(seed);
            if let Some(bound) = bound {
                middlewares.push(Arc::new(Bounded(bound.clone())));
            }
            middlewares
        };
        let outcome = service.simulation().seed(seed).run(&bounded);
        Run::new(name, &outcome, 1, note(&outcome))
    };
    let mut runs: Vec<_> = CLIENTS
        .iter()
        .map(|(name, stack)| run(name, stack))
        .collect();
    if let Some(make) = yours {
        runs.push(run(YOURS, &|seed| of_steady(&make(seed))));
    }
    Results {
        name: "service".to_owned(),
        topic: service.name.clone(),
        story: service.to_string(),
        conclusion: conclusion(&runs),
        callers: match service.load.clients {
            1 => "1 client".to_owned(),
            clients => format!("{clients} clients"),
        },
        seed,
        troubles: service.troubles(),
        capacity: service.capacity(),
        runs,
        lines: Vec::new(),
    }
}

fn conclusion(runs: &[Run]) -> String {
    let ours = share_and_cost(find_run(runs, OURS));
    match runs.iter().find(|run| run.stack == YOURS) {
        Some(yours) => format!("{}; {ours}", capital(&share_and_cost(yours))),
        None => format!(
            "{}; {}",
            capital(&ours),
            share_and_cost(find_run(runs, PEER))
        ),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Says how long calls take, and how they fail.
fn note(outcome: &Outcome) -> String {
    let slow = outcome.added_latency(0.99, Duration::ZERO) + outcome.latency;
    let failures = outcome.failures();
    let statuses = failures
        .iter()
        .filter(|(way, _)| way.parse::<u16>().is_ok());
    let statuses: Vec<_> = statuses
        .map(|(status, count)| format!("{count} × {status}"))
        .collect();
    let errors = outcome
        .calls
        .iter()
        .filter(|call| call.result.is_err())
        .count();
    let mut text = took(outcome);
    if outcome.succeeded() > 0 {
        text += &format!(
            "; 99 % of the successes take at most {:.2} s",
            slow.as_secs_f64()
        );
    }
    if !statuses.is_empty() {
        text += &format!("; failures: {}", statuses.join(", "));
    }
    if errors > 0 {
        text += &format!("; {errors} errors");
    }
    text
}

#[cfg(test)]
mod tests {
    use lab::stacks::default_steady;

    use super::*;

    const SMALL: &str = include_str!("../examples/small-api.toml");

    #[test]
    fn your_settings_are_one_more_row_with_a_title() {
        let service = Service::from_toml(SMALL).unwrap();
        let without = compare(&service, 1, None, None);
        let names =
            |results: &Results| results.runs.iter().map(|run| run.stack).collect::<Vec<_>>();
        assert_eq!(names(&without), ["no retry", PEER, OURS]);
        assert!(
            without.conclusion.starts_with("With reqwest-steady, "),
            "{}",
            without.conclusion
        );
        assert!(
            without.conclusion.contains("with reqwest-retry, "),
            "{}",
            without.conclusion
        );

        let with = compare(&service, 1, Some(&default_steady), None);
        assert_eq!(names(&with), ["no retry", PEER, OURS, YOURS]);
        let [ours, yours] = [&with.runs[2], &with.runs[3]];
        assert!(yours.is_ours());
        // The default settings are the default settings.
        assert_eq!(
            (ours.succeeded, ours.requests, &ours.ticks),
            (yours.succeeded, yours.requests, &yours.ticks)
        );
        assert!(
            with.conclusion.starts_with("With your settings, "),
            "{}",
            with.conclusion
        );
    }

    #[test]
    fn other_settings_give_other_results() {
        let service = Service::from_toml(SMALL).unwrap();
        let careful = |seed| {
            let steady = Steady::builder().max_retries(0);
            let retry = reqwest_steady::RetryMiddleware::builder().seed(seed);
            steady.retry(retry).build().unwrap()
        };
        let results = compare(&service, 1, Some(&careful), None);
        let [ours, yours] = [&results.runs[2], &results.runs[3]];
        assert!(yours.succeeded < ours.succeeded);
    }

    #[test]
    fn a_note_names_times_and_failures() {
        let service = Service::from_toml(SMALL).unwrap();
        let results = compare(&service, 1, None, None);
        assert_eq!(
            results.runs[0].note,
            "last success after 0.07 s; 99 % of the successes take at most 0.08 s; failures: 140 × 429"
        );
    }
}
