//! The middleware stacks that the benches compare.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use reqwest_steady::dead_letter::dead_letter_channel;
use reqwest_steady::observe::Metrics;
use reqwest_steady::{
    Backoff, Budget, CoalesceMiddleware, Inspect, RetryMiddleware, RetryMiddlewareBuilder,
    ThrottleMiddleware, ThrottleMiddlewareBuilder,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// The middleware client without middlewares.
    Bare,
    ReqwestRetry,
    Retry,
    /// A retry with an observer that does nothing.
    Observed,
    /// A retry that inspects the bodies of errors.
    Inspecting,
    Throttled,
    /// Coalescing outside, a retry with observer, metrics, dead letters and both time limits, and a throttle inside.
    Everything,
}

/// The stacks that run every kind of call.
pub(crate) const STACKS: [Stack; 5] = [
    Stack::Bare,
    Stack::ReqwestRetry,
    Stack::Retry,
    Stack::Throttled,
    Stack::Everything,
];

/// The failures of a call, as far as the retry settings depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No failures. All settings are defaults.
    None,
    /// Up to this many retries. Waits are minimal and the budget is unlimited, so that only the work is measured.
    Retries(u32),
}

/// The shortest wait. tokio's clock rounds it up to 1 ms.
const NEXT_TO_NOTHING: Duration = Duration::from_nanos(1);

impl Stack {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare client",
            Self::ReqwestRetry => "reqwest-retry",
            Self::Retry => "retry",
            Self::Observed => "retry, observed",
            Self::Inspecting => "retry, inspects errors",
            Self::Throttled => "retry + throttle",
            Self::Everything => "everything on",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        let all = STACKS.into_iter().chain([Self::Observed, Self::Inspecting]);
        let mut found = all.filter(|stack| stack.name() == name);
        found.next().unwrap_or_else(|| panic!("no stack {name}"))
    }

    /// Builds a client with `server` in place of the network, or with the network.
    pub(crate) fn client<M: Middleware>(
        self,
        trouble: Trouble,
        server: Option<M>,
    ) -> ClientWithMiddleware {
        self.client_with(ThrottleMiddleware::builder(), trouble, server)
    }

    /// Builds the same client with another throttle, if the stack has one.
    pub(crate) fn client_with<M: Middleware>(
        self,
        throttle: ThrottleMiddlewareBuilder,
        trouble: Trouble,
        server: Option<M>,
    ) -> ClientWithMiddleware {
        // All calls go to loopback, and the search for a proxy takes time.
        let client = reqwest::Client::builder().no_proxy().build();
        let mut builder = ClientBuilder::new(client.expect("valid client settings"));
        for middleware in self.middlewares(throttle, trouble) {
            builder = builder.with_arc(middleware);
        }
        match server {
            Some(server) => builder.with(server).build(),
            None => builder.build(),
        }
    }

    fn middlewares(
        self,
        throttle: ThrottleMiddlewareBuilder,
        trouble: Trouble,
    ) -> Vec<Arc<dyn Middleware>> {
        let retry = retry(trouble);
        match self {
            Self::Bare => Vec::new(),
            Self::ReqwestRetry => vec![reqwest_retry(trouble)],
            Self::Retry => vec![Arc::new(retry.build().unwrap())],
            Self::Observed => vec![Arc::new(retry.observe_fn(|_| {}).build().unwrap())],
            Self::Inspecting => {
                let retry = retry.inspect_body(Inspect::errors(), |_, _| None);
                vec![Arc::new(retry.build().unwrap())]
            }
            Self::Throttled => vec![
                Arc::new(retry.build().unwrap()),
                Arc::new(throttle.build().unwrap()),
            ],
            Self::Everything => everything(retry, throttle),
        }
    }
}

fn retry(trouble: Trouble) -> RetryMiddlewareBuilder {
    match trouble {
        Trouble::None => RetryMiddleware::builder(),
        Trouble::Retries(most) => {
            let backoff = Backoff::exponential(NEXT_TO_NOTHING).cap(NEXT_TO_NOTHING);
            let mut budget = Budget::builder().retry_ratio(1.0);
            if most > 1 {
                budget = budget.min_retries_per_sec(1_000_000.0);
            }
            let builder = RetryMiddleware::builder().max_retries(most);
            builder.backoff(backoff).budget_per_host(budget)
        }
    }
}

fn reqwest_retry(trouble: Trouble) -> Arc<dyn Middleware> {
    let policy = match trouble {
        Trouble::None => ExponentialBackoff::builder().build_with_max_retries(5),
        Trouble::Retries(most) => ExponentialBackoff::builder()
            .retry_bounds(NEXT_TO_NOTHING, NEXT_TO_NOTHING)
            .build_with_max_retries(most),
    };
    Arc::new(RetryTransientMiddleware::new_with_policy(policy))
}

/// Adds all middlewares in the order of the guide: coalescing outside, the throttle inside.
fn everything(
    retry: RetryMiddlewareBuilder,
    throttle: ThrottleMiddlewareBuilder,
) -> Vec<Arc<dyn Middleware>> {
    let metrics = Arc::new(prometheus());
    // No call gives up, so the receiver is not needed.
    let (sink, _) = dead_letter_channel(100);
    let retry = retry
        .observe_fn(|_| {})
        .observer(Arc::clone(&metrics))
        .dead_letter_sink(sink)
        .deadline(Duration::from_secs(60))
        .attempt_timeout(Duration::from_secs(10));
    let throttle = throttle.observer(metrics);
    vec![
        Arc::new(CoalesceMiddleware::default()),
        Arc::new(retry.build().unwrap()),
        Arc::new(throttle.build().unwrap()),
    ]
}

/// Creates metrics with a Prometheus recorder, the common choice. A process has only one recorder.
fn prometheus() -> Metrics {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::set_global_recorder(recorder).expect("the only recorder");
    });
    Metrics::new()
}
