//! Compares clients at a described service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use lab::service::Service;
use lab::stacks::{no_retry, of_steady, reqwest_retry, steady_throttle};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
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

/// The time limit of a call with your settings. A simulation ends a day after its last call starts.
const LONGEST_CALL: Duration = Duration::from_secs(20 * 60 * 60);

/// Says what the clients are. This is the meaning of your settings if there are any.
pub(crate) fn meanings(yours: Option<&str>) -> Vec<(&'static str, &str)> {
    let known = |(name, _): &(&str, _)| CLIENTS.iter().any(|(client, _)| client == name);
    let all = MEANINGS.into_iter().filter(known);
    all.chain(yours.map(|meaning| (YOURS, meaning))).collect()
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
        runs.push(run(YOURS, &|seed| {
            let patient: Arc<dyn Middleware> = Arc::new(Patient);
            let yours = of_steady(&make(seed));
            std::iter::once(patient).chain(yours).collect()
        }));
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

/// The first middleware of your client. It ends calls that take too long, because settings can have any waits.
struct Patient;

#[derive(Debug)]
struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the call took longer than {LONGEST_CALL:?}")
    }
}

impl std::error::Error for TooLong {}

#[async_trait::async_trait]
impl Middleware for Patient {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let call = tokio::time::timeout(LONGEST_CALL, next.run(request, extensions));
        call.await
            .unwrap_or_else(|_| Err(Error::middleware(TooLong)))
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
    use crate::yours::Yours;

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

    /// A simulation panics if a call does not end within a day.
    #[test]
    fn a_call_that_takes_a_day_ends_with_an_error() {
        let service = "load = { kind = 'at-once', calls = 40 }";
        let service = Service::from_toml(service).unwrap();
        let slow =
            Yours::from_toml("retry = { launch_spread = '40h', retry_window = '40h' }").unwrap();
        let results = compare(&service, 1, Some(&|seed| slow.steady(seed)), None);
        let yours = find_run(&results.runs, YOURS);
        assert_eq!(yours.succeeded + yours.errors, 40);
        assert!((10..30).contains(&yours.errors), "{}", yours.note);
    }

    /// The longest durations and the largest numbers that files can have, alone and together.
    #[test]
    fn extreme_settings_end_like_others() {
        let service = "limit = { kind = 'window', rate = '2/s', window = '1s', hint = 'retry-after' }\n\
                       load = { kind = 'at-once', calls = 20 }\nfaults = { stall = { from = '1s', to = '3s' } }";
        let service = Service::from_toml(service).unwrap();
        let long = "2562047788015215h";
        let most = "18446744073709551615";
        let all = [
            format!("retry.retry_window = '{long}'\nretry.launch_spread = '{long}'"),
            format!("retry.max_server_delay = '{long}'"),
            format!("retry.deadline = '{long}'\nretry.attempt_timeout = '{long}'"),
            format!("retry.backoff = {{ base = '{long}', cap = '{long}', jitter = 'none' }}"),
            "retry.budget_per_host = { ttl = '1h', min_retries_per_sec = 1e6 }".to_owned(),
            "retry.max_retries = 4294967295".to_owned(),
            format!("throttle.max_queue = '{most}'\nthrottle.max_in_flight = 4294967295"),
            format!("throttle.max_queue_wait = '{long}'"),
            "throttle.rate = { limit = '1/day', burst = 1 }".to_owned(),
        ];
        for text in all.iter().chain([&all.join("\n")]) {
            let yours = Yours::from_toml(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            let results = compare(&service, 1, Some(&|seed| yours.steady(seed)), None);
            assert_eq!(find_run(&results.runs, YOURS).calls, 20, "{text}");
        }
    }

    /// Coalesced calls share a request, so there are fewer requests than successful calls.
    #[test]
    fn coalesced_calls_waste_no_requests() {
        let service = "load = { kind = 'at-once', calls = 40 }";
        let service = Service::from_toml(service).unwrap();
        let yours = Yours::from_toml("[coalesce]").unwrap();
        let results = compare(&service, 1, Some(&|seed| yours.steady(seed)), None);
        let yours = find_run(&results.runs, YOURS);
        assert_eq!((yours.succeeded, yours.requests, yours.wasted), (40, 1, 0));
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
