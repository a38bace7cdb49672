//! Settings: they can be read back, shown and cloned.

use std::time::Duration;

use http::StatusCode;
use reqwest_steady::dead_letter::{Secrets, dead_letter_channel};
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::observe::LogLevels;
use reqwest_steady::{
    AutoKey, Backoff, Budget, CoalesceMiddleware, Deposit, Jitter, KeyBy, RetryMiddleware, Scope,
    StatusClass, Steady, ThrottleMiddleware,
};
use tracing::level_filters::LevelFilter;

use crate::support::scripted::{Server, URL};
use crate::support::stacks::{MS, SEC};

#[test]
fn every_setting_of_the_retry_can_be_read_back() {
    let levels = LogLevels::default().retry(LevelFilter::TRACE);
    let (sink, _letters) = dead_letter_channel(1);
    let backoff = Backoff::exponential(3 * MS)
        .multiplier(1.5)
        .cap(SEC)
        .jitter(Jitter::Equal);
    let retry = RetryMiddleware::builder()
        .max_retries(2)
        .backoff(backoff.clone())
        .max_server_delay(4 * SEC)
        .retry_window(50 * SEC)
        .deadline(60 * SEC)
        .attempt_timeout(7 * SEC)
        .launch_spread(8 * SEC)
        .budget_per_host(Budget::builder().retry_ratio(0.5))
        .fleet(FleetLimits::in_memory())
        .status(StatusCode::CONFLICT, StatusClass::Retry)
        .idempotency_header("PayPal-Request-Id")
        .auto_key(AutoKey::Random)
        .client_follows_redirects(false)
        .retry_without_key(true)
        .retry_unsent(true)
        .attempt_header("X-Attempt")
        .dead_letter_sink(sink)
        .dead_letter_max_body(9)
        .dead_letter_timeout(10 * SEC)
        .secrets(Secrets::new().header("x-mine"))
        .log_levels(levels)
        .dry_run(true)
        .seed(11)
        .build()
        .unwrap();

    assert_eq!(retry.max_retries(), 2);
    assert_eq!(retry.backoff(), backoff);
    assert_eq!(retry.backoff().get_base(), 3 * MS);
    assert_eq!(retry.backoff().get_multiplier(), 1.5);
    assert_eq!(retry.backoff().get_cap(), SEC);
    assert_eq!(retry.backoff().get_jitter(), Jitter::Equal);
    assert_eq!(retry.max_server_delay(), 4 * SEC);
    assert_eq!(retry.retry_window(), 50 * SEC);
    assert_eq!(retry.deadline(), Some(60 * SEC));
    assert_eq!(retry.attempt_timeout(), Some(7 * SEC));
    assert_eq!(retry.launch_spread(), 8 * SEC);
    assert_eq!(retry.budget_for("a").retry_ratio(), Some(0.5));
    assert!(retry.fleet().is_some());
    assert_eq!(retry.status_class(StatusCode::CONFLICT), StatusClass::Retry);
    assert_eq!(retry.status_class(StatusCode::OK), StatusClass::Never);
    assert_eq!(retry.idempotency_header(), "paypal-request-id");
    assert_eq!(retry.auto_key(), AutoKey::Random);
    assert!(!retry.client_follows_redirects());
    assert!(retry.retry_without_key() && retry.retry_unsent());
    assert_eq!(retry.attempt_header().unwrap(), "x-attempt");
    assert!(retry.has_dead_letter_sink());
    assert_eq!(retry.dead_letter_max_body(), 9);
    assert_eq!(retry.dead_letter_timeout(), 10 * SEC);
    assert!(format!("{:?}", retry.secrets()).contains("x-mine"));
    assert_eq!(retry.log_levels(), levels);
    assert!(retry.dry_run());
    assert_eq!(retry.seed(), Some(11));
}

#[test]
fn every_setting_of_the_throttle_can_be_read_back() {
    let levels = LogLevels::default().pause(LevelFilter::TRACE);
    let throttle = ThrottleMiddleware::builder()
        .max_in_flight(1)
        .max_queue(2)
        .max_queue_wait(3 * SEC)
        .rate(4.0, 5)
        .fleet(FleetLimits::in_memory())
        .adaptive(false)
        .key_by(KeyBy::HostAndPath(6))
        .log_levels(levels)
        .seed(7)
        .build()
        .unwrap();
    assert_eq!(throttle.max_in_flight(), 1);
    assert_eq!(throttle.max_queue(), 2);
    assert_eq!(throttle.max_queue_wait(), 3 * SEC);
    assert_eq!(throttle.rate(), Some((4.0, 5)));
    assert!(throttle.fleet().is_some());
    assert!(!throttle.adaptive());
    assert!(matches!(throttle.key_by(), KeyBy::HostAndPath(6)));
    assert_eq!(throttle.log_levels(), levels);
    assert_eq!(throttle.seed(), Some(7));
}

#[test]
fn settings_of_budget_fleet_and_coalescing_are_read_back() {
    let budget = Budget::builder()
        .ttl(20 * SEC)
        .min_retries_per_sec(0.5)
        .retry_ratio(0.25)
        .deposit_on(Deposit::Request)
        .build()
        .unwrap();
    assert_eq!(budget.ttl(), Some(20 * SEC));
    assert_eq!(budget.min_retries_per_sec(), Some(0.5));
    assert_eq!(budget.retry_ratio(), Some(0.25));
    assert_eq!(budget.deposit_on(), Some(Deposit::Request));
    assert_eq!(Budget::unlimited().retry_ratio(), None);

    let fleet = FleetLimits::builder().lease(SEC).store_timeout(2 * MS);
    let fleet = fleet.build().unwrap();
    assert_eq!((fleet.lease(), fleet.store_timeout()), (SEC, 2 * MS));

    let coalesce = CoalesceMiddleware::builder()
        .max_body(1)
        .leader_timeout(2 * SEC)
        .ignore_header("X-Client-Start")
        .ignore_extensions(true)
        .build()
        .unwrap();
    assert_eq!(coalesce.max_body(), 1);
    assert_eq!(coalesce.leader_timeout(), 2 * SEC);
    assert_eq!(coalesce.ignored_headers(), ["x-client-start"]);
    assert!(coalesce.ignore_extensions());
}

#[test]
fn scopes_and_secrets_are_read_back() {
    let scope = Scope::new().max_retries(3).deadline(SEC);
    assert_eq!(
        (scope.retries_left(), scope.get_deadline()),
        (Some(3), Some(SEC))
    );
    let open = Scope::new();
    assert_eq!((open.retries_left(), open.get_deadline()), (None, None));

    let secrets = Secrets::new().header("a").parameter("b").keep("c");
    let lists = secrets
        .headers()
        .chain(secrets.parameters())
        .chain(secrets.kept());
    assert_eq!(lists.collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn debug_shows_settings_by_name_in_a_dozen_lines() {
    let shown = [
        format!("{:#?}", RetryMiddleware::default()),
        format!("{:#?}", RetryMiddleware::builder()),
        format!("{:#?}", ThrottleMiddleware::default()),
        format!("{:#?}", ThrottleMiddleware::builder()),
        format!("{:#?}", CoalesceMiddleware::default()),
        format!("{:#?}", CoalesceMiddleware::builder()),
        format!("{:#?}", Steady::default()),
        format!("{:#?}", Steady::builder()),
        format!("{:#?}", Budget::builder().build().unwrap()),
        format!("{:#?}", Budget::builder()),
        format!("{:#?}", FleetLimits::builder()),
    ];
    for text in &shown {
        assert!(text.lines().count() <= 12, "{text}");
    }
    assert_eq!(
        shown[0],
        "RetryMiddleware {
    max_retries: 5,
    backoff: Backoff { base: 200ms, multiplier: 2.0, cap: 10s, jitter: Full, alone: false },
    max_server_delay: 60s,
    retry_window: 300s,
    deadline: None,
    attempt_timeout: None,
    budget_per_host: BudgetBuilder { ttl: 10s, min_retries_per_sec: 2.0, retry_ratio: 0.2, deposit_on: Success },
    ..
}"
    );
    assert_eq!(
        shown[2],
        "ThrottleMiddleware {
    max_in_flight: 1024,
    max_queue: 10000,
    max_queue_wait: 30s,
    adaptive: true,
    key_by: Host,
    ..
}"
    );
    // What differs from the defaults is shown, too.
    let job = RetryMiddleware::builder()
        .launch_spread(60 * SEC)
        .attempt_header("X-Attempt")
        .dry_run(true);
    let text = format!("{job:?}");
    for setting in [
        "launch_spread: 60s",
        "attempt_header: \"X-Attempt\"",
        "dry_run: true",
    ] {
        assert!(text.contains(setting), "{setting}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn middlewares_from_one_builder_do_not_wait_alike() {
    let builder =
        RetryMiddleware::builder().backoff(Backoff::exponential(100 * SEC).cap(100 * SEC));
    let wait_of = |retry: RetryMiddleware| async {
        let server = Server::statuses([503, 200]);
        server.client(retry).get(URL).send().await.unwrap();
        server.gaps()[0]
    };
    let first = wait_of(builder.clone().build().unwrap()).await;
    let second = wait_of(builder.clone().build().unwrap()).await;
    assert_ne!(first, second);
    // With a seed they do, because tests need that.
    let seeded = builder.seed(1);
    let first: Duration = wait_of(seeded.clone().build().unwrap()).await;
    assert_eq!(first, wait_of(seeded.build().unwrap()).await);
}

#[tokio::test(start_paused = true)]
async fn middlewares_from_one_builder_have_their_own_budgets() {
    let builder = RetryMiddleware::builder();
    let (one, other) = (builder.clone().build().unwrap(), builder.build().unwrap());
    let full = other.budget_for("a").balance();
    assert!(one.budget_for("a").try_withdraw());
    assert_eq!(one.budget_for("a").balance(), full - 1.0);
    assert_eq!(other.budget_for("a").balance(), full);
}

#[test]
fn a_clone_of_a_builder_keeps_its_invalid_setting() {
    let builder = RetryMiddleware::builder().attempt_header("two words");
    let error = builder.clone().build().unwrap_err();
    assert_eq!(error.setting(), "attempt_header");
    assert_eq!(builder.build().unwrap_err(), error);
}

/// The names of the functions in a source whose first argument begins like this.
fn functions(source: &'static str, first_argument: &str) -> Vec<&'static str> {
    let functions = source.split("pub fn ").skip(1);
    functions
        .filter_map(|function| function.split_once('('))
        .filter(|(_, rest)| rest.trim_start().starts_with(first_argument))
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn each_builder_method_has_one_that_reads_it_back() {
    // Under other names. Functions are no data, so nothing reads them back.
    let others = [
        ("budget", "budget_for"),
        ("budget_per_host", "budget_for"),
        ("status", "status_class"),
        ("dead_letter_sink", "has_dead_letter_sink"),
        ("ignore_header", "ignored_headers"),
    ];
    let not_data = ["observer", "observe_fn", "classify_fn", "inspect_body"];
    for (builder, reader) in [
        (
            include_str!("../../src/retry/builder.rs"),
            include_str!("../../src/retry/read_back.rs"),
        ),
        (
            include_str!("../../src/throttle/builder.rs"),
            include_str!("../../src/throttle/read_back.rs"),
        ),
        (
            include_str!("../../src/coalesce/builder.rs"),
            include_str!("../../src/coalesce/read_back.rs"),
        ),
    ] {
        let (settings, readers) = (functions(builder, "mut self"), functions(reader, "&self"));
        assert!(settings.len() >= 4 && readers.len() >= 4);
        for setting in settings.into_iter().filter(|name| !not_data.contains(name)) {
            let other = others.iter().find(|(name, _)| *name == setting);
            let name = other.map_or(setting, |(_, reader)| *reader);
            assert!(readers.contains(&name), "{setting} cannot be read back");
        }
    }
}
