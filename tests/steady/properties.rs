//! What holds for any settings and any sequence of responses.

use std::io::ErrorKind;
use std::time::Duration;

use http::Method;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use reqwest_steady::observe::AttemptOutcome;
use reqwest_steady::{
    Backoff, Budget, Jitter, ReportSlot, RequestBuilderExt, RetryMiddleware, StopReason,
};

use crate::support::scripted::{Reply, Server, URL, late, respond_with};

#[derive(Clone, Debug)]
enum Event {
    Response {
        status: u16,
        hint: Option<(&'static str, String)>,
    },
    Fail(ErrorKind),
    Silence,
}

#[derive(Clone, Debug)]
struct Step {
    takes: Duration,
    event: Event,
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        8 => (1..20_000_u64).prop_map(Duration::from_millis),
        1 => Just(Duration::from_nanos(1)),
        1 => Just(Duration::MAX),
    ]
}

fn hint() -> impl Strategy<Value = (&'static str, String)> {
    let names = select(vec![
        "retry-after",
        "retry-after-ms",
        "x-ratelimit-reset-after",
        "x-ratelimit-reset",
        "ratelimit",
        "x-should-retry",
    ]);
    let values = prop_oneof![
        (0..100_u32).prop_map(|number| number.to_string()),
        (0..100_000_u32).prop_map(|number| format!("{}.5", number / 1000)),
        Just("99999999999999999999".to_owned()),
        Just("Sun, 06 Nov 2095 08:49:37 GMT".to_owned()),
        Just("\"a\";r=0;t=3".to_owned()),
        Just("false".to_owned()),
        Just("true".to_owned()),
        "[ -~]{0,40}",
    ];
    (names, values)
}

fn step() -> impl Strategy<Value = Step> {
    let event = prop_oneof![
        6 => (
            select(vec![200, 204, 301, 404, 408, 409, 425, 429, 500, 502, 503, 504, 529]),
            proptest::option::of(hint()),
        )
            .prop_map(|(status, hint)| Event::Response { status, hint }),
        2 => select(vec![
            ErrorKind::ConnectionReset,
            ErrorKind::ConnectionRefused,
            ErrorKind::UnexpectedEof,
            ErrorKind::InvalidData,
        ])
            .prop_map(Event::Fail),
        1 => Just(Event::Silence),
    ];
    (0..3000_u64, event).prop_map(|(takes, event)| Step {
        takes: Duration::from_millis(takes),
        event,
    })
}

fn jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::Full),
        Just(Jitter::Equal),
        Just(Jitter::Decorrelated),
        duration().prop_map(Jitter::Additive),
        Just(Jitter::None),
    ]
}

#[derive(Clone, Debug)]
struct Settings {
    max_retries: u32,
    backoff: Backoff,
    window: Duration,
    max_server_delay: Duration,
    deadline: Option<Duration>,
    attempt_timeout: Option<Duration>,
    launch_spread: Duration,
    own_max_retries: Option<u32>,
    buffer: Option<usize>,
    opt_in: bool,
    method: Method,
    key: bool,
    seed: u64,
}

fn settings() -> impl Strategy<Value = Settings> {
    let backoff = (duration(), duration(), 1.0..1e9, jitter()).prop_map(
        |(base, more, multiplier, jitter)| {
            Backoff::exponential(base)
                .cap(base.saturating_add(more))
                .multiplier(multiplier)
                .jitter(jitter)
        },
    );
    (
        (0..12_u32, backoff, duration(), duration()),
        (
            proptest::option::of(duration()),
            proptest::option::of(duration()),
            prop_oneof![Just(Duration::ZERO), duration()],
        ),
        (
            proptest::option::of(0..5_u32),
            proptest::option::of(0..20_usize),
            any::<bool>(),
        ),
        select(vec![Method::GET, Method::PUT, Method::POST]),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(limits, times, own, method, key, seed)| Settings {
            max_retries: limits.0,
            backoff: limits.1,
            window: limits.2,
            max_server_delay: limits.3,
            deadline: times.0,
            // `build` refuses a timeout longer than the deadline.
            attempt_timeout: times.1.map(|it| it.min(times.0.unwrap_or(it))),
            launch_spread: times.2.min(limits.2),
            own_max_retries: own.0,
            buffer: own.1,
            opt_in: own.2,
            method,
            key,
            seed,
        })
}

/// How long the client must wait after this step. Computed independently of the crate.
fn asked_pause(step: &Step) -> Duration {
    match &step.event {
        Event::Response {
            hint: Some((name, value)),
            status,
        } => match (*name, value.parse::<u32>()) {
            _ if value.starts_with('+') => step.takes,
            ("retry-after", Ok(seconds)) => step.takes + Duration::from_secs(seconds.into()),
            // This header does not say how much quota is left.
            ("x-ratelimit-reset-after", Ok(seconds)) if *status == 429 => {
                step.takes + Duration::from_secs(seconds.into())
            }
            ("retry-after-ms", Ok(millis)) => step.takes + Duration::from_millis(millis.into()),
            _ => step.takes,
        },
        _ => Duration::ZERO,
    }
}

/// Timers round up to 1 ms, and draining a response may take 100 ms.
const SLACK: Duration = Duration::from_millis(2);

async fn check(settings: Settings, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let script = steps.clone();
    let server = Server::new(move |index| {
        let Step { takes, event } = script[index % script.len()].clone();
        late(
            takes,
            match event {
                Event::Response { status, hint } => {
                    let hint: Vec<_> = hint
                        .iter()
                        .map(|(name, value)| (*name, &value[..]))
                        .collect();
                    respond_with(status, &hint)
                }
                Event::Fail(kind) => Reply::fail(kind),
                Event::Silence => Reply::silence(),
            },
        )
    });
    let mut retry = RetryMiddleware::builder()
        .max_retries(settings.max_retries)
        .backoff(settings.backoff.clone())
        .retry_window(settings.window)
        .max_server_delay(settings.max_server_delay)
        .launch_spread(settings.launch_spread)
        .budget(Budget::unlimited())
        .seed(settings.seed);
    if let Some(timeout) = settings.attempt_timeout {
        retry = retry.attempt_timeout(timeout);
    }
    if settings.opt_in {
        retry = retry.client_follows_redirects(false);
        retry = retry.retry_without_key(true).retry_unsent(true);
    }
    if let Some(deadline) = settings.deadline {
        retry = retry.deadline(deadline);
    }
    let slot = ReportSlot::new();
    let client = server.client(retry.build().unwrap());
    let mut request = client
        .request(settings.method.clone(), URL)
        .report_to(&slot);
    if settings.key {
        request = request.idempotency_key("order-1");
    }
    if let Some(retries) = settings.own_max_retries {
        request = request.max_retries(retries);
    }
    if let Some(limit) = settings.buffer {
        request = request.buffer_response(limit);
    }
    // Silence and pauses of `Duration::MAX` really take that long. Nothing may be sent after giving up.
    let began = tokio::time::Instant::now();
    let decade = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    let Ok(result) = tokio::time::timeout(decade, request.send()).await else {
        return Ok(());
    };
    let took = began.elapsed();
    let report = slot.get().unwrap();
    let attempts: Vec<_> = report.attempts().collect();

    let max_retries = settings.own_max_retries.unwrap_or(settings.max_retries);
    prop_assert!(attempts.len() <= max_retries as usize + 1);
    prop_assert_eq!(report.retries() as usize + 1, attempts.len());
    // With a deadline near zero, the only attempt is not sent.
    let hopeless = settings.deadline.is_some_and(|deadline| deadline < SLACK);
    prop_assert!(attempts.len() == server.count() || hopeless && server.count() == 0);
    prop_assert!(report.waited() <= settings.window);
    if let Some(deadline) = settings.deadline {
        prop_assert!(
            took <= deadline.saturating_add(SLACK),
            "{:?} over {:?}",
            took,
            deadline
        );
    }
    for pair in attempts.windows(2) {
        let hint = pair[0].hint().unwrap_or_default();
        prop_assert!(pair[1].waited() >= hint);
        prop_assert!(hint <= settings.max_server_delay);
        prop_assert!(pair[1].sent_at() >= pair[0].sent_at() + pair[1].waited());
        prop_assert!(pair[1].sent_at() <= settings.window.saturating_add(SLACK));
    }
    for (index, gap) in server.gaps().into_iter().enumerate() {
        let step = &steps[index % steps.len()];
        let responded = matches!(attempts[index].outcome(), AttemptOutcome::Status(_));
        prop_assert!(
            !responded || gap >= asked_pause(step),
            "{:?} after {:?}",
            gap,
            step
        );
    }
    if settings.method == Method::POST && !settings.key && !settings.opt_in {
        prop_assert_eq!(attempts.len(), 1);
    }
    match (result, attempts[attempts.len() - 1].outcome()) {
        (Ok(response), AttemptOutcome::Status(status)) => {
            prop_assert_eq!(response.status(), status);
            prop_assert_eq!(
                report.stop_reason() == StopReason::Succeeded,
                status.as_u16() < 400
            );
        }
        (Err(_), AttemptOutcome::Failure(_)) => {
            prop_assert_ne!(report.stop_reason(), StopReason::Succeeded);
        }
        (result, outcome) => prop_assert!(false, "{:?} reported as {:?}", result, outcome),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_settings_and_responses_stay_within_the_limits(
        settings in settings(),
        steps in vec(step(), 1..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(check(settings, steps))?;
    }
}
