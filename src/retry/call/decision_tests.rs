use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode};
use reqwest::{Body, Request};

use super::*;
use crate::admit::{Budget, Scope};
use crate::decide::StatusClass;
use crate::handoff::{Pacing, ThrottleVisit};
use crate::outcome::{Attempt, AttemptOutcome, Effect, FailureKind};
use crate::retry::call::Opening;
use crate::retry::config::{RetryConfig, RetryParts, RetryState};
use crate::schedule::{Backoff, Jitter};
use crate::settings::RetrySettings;

const SEC: Duration = Duration::from_secs(1);

/// Waits of 1 s, 2 s, 4 s.
fn settings() -> RetrySettings {
    RetrySettings {
        backoff: Backoff::exponential(SEC).jitter(Jitter::None),
        ..RetrySettings::default()
    }
}

/// A retry, without its loop.
struct Retry {
    config: Arc<RetryConfig>,
    state: RetryState,
}

impl Retry {
    fn new(settings: RetrySettings) -> Self {
        Self::with_parts(settings, RetryParts::default())
    }

    fn with_budget(settings: RetrySettings, budget: &Budget) -> Self {
        let parts = RetryParts {
            budget: Some(budget.clone()),
            ..RetryParts::default()
        };
        Self::with_parts(settings, parts)
    }

    fn with_parts(settings: RetrySettings, parts: RetryParts) -> Self {
        let config = RetryConfig::new(settings, None, &parts).unwrap();
        let state = RetryState::new(config, parts);
        let config = state.config.get();
        Self { config, state }
    }
}

fn call_with(retry: &Retry, method: Method, body: Option<Body>) -> Call<'_> {
    let mut request = Request::new(method, "http://api.example.com/".parse().unwrap());
    *request.body_mut() = body;
    let mut extensions = http::Extensions::new();
    let opening = Opening::read(&retry.config, &mut request, &mut extensions).unwrap();
    let mut call = Call::new(
        &retry.state,
        &retry.config,
        &request,
        opening.options,
        opening.has_key,
    );
    call.start(opening.outer, &mut request, &extensions);
    call.begin_attempt(&mut request, &mut extensions);
    call
}

fn call(retry: &Retry) -> Call<'_> {
    call_with(retry, Method::GET, None)
}

fn status(status: u16, class: StatusClass) -> ClassifiedOutcome {
    ClassifiedOutcome {
        outcome: AttemptOutcome::Status(StatusCode::from_u16(status).unwrap()),
        class,
        unsent: false,
        effect: Effect::Unknown,
        by_user: false,
    }
}

const NOT_PROCESSED: ClassifiedOutcome = ClassifiedOutcome {
    outcome: AttemptOutcome::Failure(FailureKind::NotProcessed),
    class: StatusClass::Retry,
    unsent: true,
    effect: Effect::DidNotHappen,
    by_user: false,
};

fn visit(pacing: Pacing) -> Option<ThrottleVisit> {
    Some(ThrottleVisit {
        pacing,
        ..ThrottleVisit::default()
    })
}

#[test]
fn decide_says_why_a_request_is_not_sent_again() {
    let mut none = settings();
    none.max_retries = 0;
    let (usual, none) = (Retry::new(settings()), Retry::new(none));
    let unavailable = status(503, StatusClass::Retry);
    let veto = HeaderMap::from_iter([(
        http::HeaderName::from_static("x-should-retry"),
        HeaderValue::from_static("false"),
    )]);
    let (get, post) = (Method::GET, Method::POST);
    for (state, method, outcome, headers, expected) in [
        (&usual, &get, unavailable, None, Ok(())),
        (
            &usual,
            &get,
            status(200, StatusClass::Never),
            None,
            Err(StopReason::Succeeded),
        ),
        (
            &usual,
            &get,
            status(404, StatusClass::Never),
            None,
            Err(StopReason::NotRetryable),
        ),
        (
            &usual,
            &get,
            unavailable,
            Some(&veto),
            Err(StopReason::ServerVeto),
        ),
        (
            &usual,
            &post,
            unavailable,
            None,
            Err(StopReason::NotIdempotent),
        ),
        (&none, &get, unavailable, None, Err(StopReason::Disabled)),
    ] {
        let call = call_with(state, method.clone(), None);
        assert_eq!(call.may_retry(outcome, None, headers), expected);
    }

    let mut last = call(&usual);
    last.attempt = Attempt::after(usual.config.limits.max_retries);
    let exhausted = Err(StopReason::RetriesExhausted);
    assert_eq!(last.may_retry(unavailable, None, None), exhausted);

    let stream = Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("a")]));
    let call = call_with(&usual, Method::PUT, Some(stream));
    let gone = Err(StopReason::BodyNotReplayable);
    assert_eq!(call.may_retry(unavailable, None, None), gone);
}

#[tokio::test(start_paused = true)]
async fn schedule_waits_for_backoff_and_hint_within_the_limits() {
    let mut settings = settings();
    settings.retry_window = 60 * SEC;
    settings.deadline = Some(50 * SEC);
    settings.max_server_delay = 40 * SEC;
    let state = Retry::new(settings);
    let mut call = call(&state);
    let start = call.time.started;
    let wait = |call: &Call<'_>, hint, at| call.schedule(hint, at).map(|plan| plan.wait);

    assert_eq!(wait(&call, None, start), Ok(SEC));
    let hinted = wait(&call, Some(10 * SEC), start).unwrap();
    assert!(hinted >= 10 * SEC && hinted <= 11 * SEC, "{hinted:?}");
    let too_long = Err(StopReason::ServerDelayTooLong);
    assert_eq!(wait(&call, Some(41 * SEC), start), too_long);
    let too_close = Err(StopReason::DeadlineTooClose);
    assert_eq!(wait(&call, None, start + 49 * SEC), too_close);
    let closed = Err(StopReason::WindowClosed);
    assert_eq!(wait(&call, None, start + 60 * SEC), closed);

    // The throttle keeps the pause, so there is no backoff beside it.
    call.visit = visit(Pacing::Paused);
    let hinted = wait(&call, Some(10 * SEC), start).unwrap();
    assert!(hinted >= 10 * SEC && hinted <= 11 * SEC, "{hinted:?}");
    assert_eq!(wait(&call, None, start), Ok(Duration::ZERO));
    // A 503 at a pace may be an outage, so its backoff stays.
    call.visit = visit(Pacing::Limited);
    assert_eq!(wait(&call, None, start), Ok(SEC));
    call.visit = visit(Pacing::None);
    call.attempt = Attempt::after(2);
    assert_eq!(wait(&call, None, start), Ok(4 * SEC));
}

#[tokio::test(start_paused = true)]
async fn admit_takes_from_budget_and_scope_and_gives_back_what_is_dropped() {
    let budget = Budget::builder().min_retries_per_sec(0.1).retry_ratio(0.0);
    let budget = budget.build().unwrap();
    let full = budget.balance();
    assert_eq!(full, 1.0);
    let settings = settings();
    let state = Retry::with_budget(settings, &budget);
    let unavailable = status(503, StatusClass::Retry);
    let scope = Scope::new().max_retries(2);
    let admit = async |outcome, visit| {
        let mut call = call(&state);
        call.visit = visit;
        call.admit(outcome, clock::now()).await
    };
    scope
        .run(async {
            // Given back, so the next one finds it.
            drop(admit(unavailable, None).await.unwrap());
            assert_eq!(budget.balance(), full);
            admit(unavailable, None).await.unwrap().spend();
            assert_eq!(budget.balance(), 0.0);
            let refused = admit(unavailable, None).await.err();
            assert_eq!(refused, Some(StopReason::BudgetEmpty));
            for pacing in [Pacing::None, Pacing::Limited] {
                let refused = admit(unavailable, visit(pacing)).await.err();
                assert_eq!(refused, Some(StopReason::BudgetEmpty));
            }
            // The throttle keeps the pause: no budget, but a retry all the same.
            admit(unavailable, visit(Pacing::Paused))
                .await
                .unwrap()
                .spend();
            let refused = admit(unavailable, visit(Pacing::Paused)).await.err();
            assert_eq!(refused, Some(StopReason::AllowanceSpent));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn admit_lets_two_unprocessed_attempts_of_a_call_go_for_free() {
    let budget = Budget::builder().build().unwrap();
    let settings = settings();
    let full = budget.balance();
    let state = Retry::with_budget(settings, &budget);
    let mut call = call(&state);
    for (unprocessed, cost) in [(0, 0.0), (1, 0.0), (2, 1.0)] {
        call.history_or_new().unprocessed = unprocessed;
        let permit = call.admit(NOT_PROCESSED, clock::now()).await.unwrap();
        assert_eq!(full - budget.balance(), cost, "after {unprocessed}");
        drop(permit);
    }
}
