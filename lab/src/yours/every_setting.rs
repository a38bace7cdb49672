use std::time::Duration;

use reqwest::StatusCode;
use reqwest_steady::{AutoKey, Backoff, Budget, CoalesceMiddleware, ConfigError, Deposit, Jitter, KeyBy, Preset, RetryMiddleware, StatusClass, Steady, ThrottleMiddleware};
use reqwest_steady::dead_letter::Secrets;
use reqwest_steady::observe::LogLevels;
use tracing::level_filters::LevelFilter;

/// Builds the middlewares. `ClientBuilderExt::with_steady` adds them to a client.
fn steady() -> Result<Steady, ConfigError> {
    let coalesce = CoalesceMiddleware::builder()
        .ignore_extensions(true)
        .ignore_header("x-request-id")
        .leader_timeout(Duration::from_secs(10))
        .max_body(1000);
    let backoff = Backoff::exponential(Duration::from_millis(100))
        .alone()
        .cap(Duration::from_secs(5))
        .jitter(Jitter::Additive(Duration::from_millis(50)))
        .multiplier(3.0);
    let budget = Budget::builder()
        .deposit_on(Deposit::Request)
        .min_retries_per_sec(0.5)
        .retry_ratio(0.1)
        .ttl(Duration::from_secs(20));
    let retry_levels = LogLevels::default()
        .abandoned(LevelFilter::OFF)
        .given_up(LevelFilter::ERROR)
        .pace(LevelFilter::OFF)
        .pause(LevelFilter::OFF)
        .recovery(LevelFilter::INFO)
        .refusal(LevelFilter::OFF)
        .rejection(LevelFilter::INFO)
        .retry(LevelFilter::WARN)
        .success(LevelFilter::DEBUG);
    let secrets = Secrets::new()
        .header("x-tenant")
        .header("x-user")
        .keep("token-count")
        .parameter("ticket");
    let retry = RetryMiddleware::builder()
        .attempt_header("x-attempt")
        .attempt_timeout(Duration::from_millis(1500))
        .auto_key(AutoKey::Random)
        .backoff(backoff)
        .budget_per_host(budget)
        .client_follows_redirects(false)
        .dead_letter_max_body(1000)
        .dead_letter_timeout(Duration::from_secs(2))
        .deadline(Duration::from_secs(60))
        .dry_run(true)
        .idempotency_header("acme-request-id")
        .launch_spread(Duration::from_secs(1))
        .log_levels(retry_levels)
        .max_retries(3)
        .max_server_delay(Duration::from_secs(90))
        .retry_unsent(true)
        .retry_window(Duration::from_secs(120))
        .retry_without_key(true)
        .secrets(secrets)
        .seed(18446744073709551615)
        .status(StatusCode::from_u16(404).unwrap(), StatusClass::Conditional)
        .status(StatusCode::from_u16(503).unwrap(), StatusClass::Never);
    let throttle_levels = LogLevels::default()
        .abandoned(LevelFilter::INFO)
        .given_up(LevelFilter::OFF)
        .pace(LevelFilter::DEBUG)
        .pause(LevelFilter::WARN)
        .recovery(LevelFilter::OFF)
        .refusal(LevelFilter::ERROR)
        .rejection(LevelFilter::OFF)
        .retry(LevelFilter::OFF)
        .success(LevelFilter::OFF);
    let throttle = ThrottleMiddleware::builder()
        .adaptive(false)
        .key_by(KeyBy::HostAndPath(1))
        .log_levels(throttle_levels)
        .max_in_flight(64)
        .max_queue(100)
        .max_queue_wait(Duration::from_secs(10))
        .rate(50.0, 10)
        .seed(7);
    Steady::builder()
        .coalesce(coalesce)
        .preset(Preset::GitHub)
        .retry(retry)
        .throttle(throttle)
        .build()
}
