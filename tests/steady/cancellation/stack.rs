//! A stack of the three middlewares, and checks of everything that is visible from outside.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest_middleware::{ClientWithMiddleware, Middleware, RequestBuilder, Result};
use reqwest_steady::dead_letter::{DeadLetter, DeadLetterSink, Delivery};
use reqwest_steady::observe::{AttemptOutcome, CallInfo, Observer, Stopped};
use reqwest_steady::testing::ScriptedServer;
use reqwest_steady::{
    Backoff, Budget, CoalesceMiddleware, Jitter, RetryMiddleware, RetryMiddlewareBuilder, Scope,
    SteadyError, StopReason, ThrottleMiddleware, ThrottleMiddlewareBuilder,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::counts::EventCounter;
use super::script::{ATTEMPT, Action, CALLER, Record, server};
use crate::support::stacks::{MS, doubling, empty_budget, saved_budget};

/// The number of retries in the scope around the dropped call.
pub(super) const SCOPE: u32 = 9;

/// A client with all three middlewares, and its server.
pub(super) struct Stack {
    pub(super) client: ClientWithMiddleware,
    pub(super) events: Arc<EventCounter>,
    pub(super) record: Record,
    pub(super) letters: Letters,
    coalesce: Arc<CoalesceMiddleware>,
    budget: Budget,
    full: f64,
    deposits: Arc<Deposits>,
    #[cfg(feature = "metrics")]
    recorder: metrics_util::debugging::DebuggingRecorder,
}

/// Settings of the middlewares beyond those of every stack.
pub(super) struct Setup {
    pub(super) retry: fn(RetryMiddlewareBuilder) -> RetryMiddlewareBuilder,
    pub(super) throttle: fn(ThrottleMiddlewareBuilder) -> ThrottleMiddlewareBuilder,
    /// Inside the retry, another client fetches a token before every attempt.
    pub(super) nested: bool,
    /// So calls that are refused for their rate wait in line until another call succeeds.
    pub(super) empty_budget: bool,
    /// A throttle keeps calls that get a 429 out of the line.
    pub(super) no_throttle: bool,
}

/// Counts the calls that feed the budget.
#[derive(Default)]
struct Deposits(AtomicUsize);

impl Observer for Deposits {
    fn stopped(&self, _: &CallInfo<'_>, stop: &Stopped) {
        let is_final = matches!(
            stop.stop_reason,
            StopReason::Succeeded | StopReason::NotRetryable
        );
        let is_deposit = match stop.outcome {
            AttemptOutcome::Status(status) => is_final && !status.is_server_error(),
            _ => false,
        };
        self.0.fetch_add(is_deposit.into(), Ordering::Relaxed);
    }
}

impl Stack {
    pub(super) fn new(
        setup: &Setup,
        script: impl Fn(&str, usize) -> Action + Send + Sync + 'static,
    ) -> Self {
        let (server, record) = server(script);
        let events = Arc::new(EventCounter::default());
        let letters = Letters::default();
        // Each success adds a retry. What is missing otherwise was spent.
        let budget = match setup.empty_budget {
            true => empty_budget(),
            false => saved_budget(1000),
        };
        let deposits = Arc::new(Deposits::default());
        let backoff = doubling(50 * MS);
        let retry = || {
            let retry = RetryMiddleware::builder().seed(1).backoff(backoff.clone());
            let retry = retry.budget(budget.clone()).attempt_header(ATTEMPT);
            retry
                .observer(events.clone())
                .dead_letter_sink(letters.clone())
        };
        // A nested call with the same budget makes no deposit.
        let outer = (setup.retry)(retry()).observer(deposits.clone());
        let throttle = || {
            let throttle = (setup.throttle)(ThrottleMiddleware::builder().seed(1));
            throttle.observer(events.clone())
        };
        let inner = throttle();
        #[cfg(feature = "metrics")]
        let recorder = metrics_util::debugging::DebuggingRecorder::new();
        #[cfg(feature = "metrics")]
        let (outer, inner) = {
            let metrics = Arc::new(reqwest_steady::observe::Metrics::new());
            (outer.observer(metrics.clone()), inner.observer(metrics))
        };
        let coalesce = Arc::new(CoalesceMiddleware::default());
        let mut chain: Vec<Arc<dyn Middleware>> = vec![coalesce.clone()];
        chain.push(Arc::new(outer.build().unwrap()));
        if setup.nested {
            let retry: Arc<dyn Middleware> = Arc::new(retry().build().unwrap());
            let throttle = Arc::new(throttle().build().unwrap());
            chain.push(Arc::new(Token(server.client_behind([retry, throttle]))));
        }
        if !setup.no_throttle {
            chain.push(Arc::new(inner.build().unwrap()));
        }
        Self {
            client: server.client_behind(chain),
            events,
            record,
            letters,
            coalesce,
            full: budget.balance(),
            deposits,
            budget,
            #[cfg(feature = "metrics")]
            recorder,
        }
    }

    pub(super) fn get(&self, path: &str, caller: &str) -> RequestBuilder {
        let url = format!("http://api.example.com{path}");
        self.client.get(url).header(CALLER, caller)
    }

    /// The budget paid exactly for the retries that were sent.
    #[track_caller]
    pub(super) fn assert_paid(&self, place: &str) {
        let (spent, sent) = self.paid();
        assert_eq!(spent, sent, "{place}: {:?}", self.record.all());
    }

    /// The same if a nested call may keep an attempt from being sent. An attempt is then paid when it
    /// starts.
    #[track_caller]
    pub(super) fn assert_paid_or_begun(&self, place: &str) {
        let (spent, sent) = self.paid();
        let begun = self.events.counts().retries_begun as f64;
        let right = (sent..=begun).contains(&spent);
        assert!(
            right,
            "{place}: {spent} of {begun}, {:?}",
            self.record.all()
        );
    }

    /// What the budget spent, and how many retries it should have paid for.
    fn paid(&self) -> (f64, f64) {
        let (_, sent) = self.record.retries(None);
        let deposits = self.deposits.0.load(Ordering::Relaxed) as f64;
        let had = self.full + deposits * self.budget.retry_ratio().unwrap();
        (had - self.budget.balance(), sent as f64)
    }

    /// No call, task or flight is left in the stack.
    #[track_caller]
    pub(super) fn assert_empty(&self, place: &str) {
        self.events.counts().assert_all_ended(place);
        let coalesce = format!("{:?}", self.coalesce);
        assert!(coalesce.contains("in_flight: 0"), "{place}: {coalesce}");
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0, "{place}");
        let (kept, counts) = (self.letters.count(), self.events.counts());
        assert_eq!(kept, counts.letters, "{place}: {counts:?}");
        assert_eq!(kept, counts.given_up, "{place}: {counts:?}");
    }

    /// The scope spent exactly the retries that the call in it sent.
    pub(super) async fn assert_drawn(&self, scope: &Scope, caller: &str, place: &str) {
        let (sent, _) = self.record.retries(Some(caller));
        assert_eq!(left_of(scope).await, SCOPE - sent as u32, "{place}");
        // A call outside of the scope does not use it.
        assert_eq!(left_of(&Scope::new()).await, 100, "{place}");
    }

    /// Records the metrics of this thread.
    #[cfg(feature = "metrics")]
    pub(super) fn measure(&self) -> metrics::LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(&self.recorder)
    }

    /// How many tasks reset the gauge of a pause when it is over: one for each host that pauses.
    pub(super) fn pause_timers(&self) -> usize {
        #[cfg(feature = "metrics")]
        return (self.recorder.snapshotter().snapshot().into_vec().iter())
            .filter(|(key, _, _, value)| {
                let is_zero = *value == metrics_util::debugging::DebugValue::Gauge(0.0.into());
                key.key().name() == "steady_throttle_pause_seconds" && !is_zero
            })
            .count();
        #[cfg(not(feature = "metrics"))]
        0
    }

    #[cfg(feature = "metrics")]
    #[track_caller]
    pub(super) fn assert_gauges(&self, place: &str) {
        use metrics_util::debugging::DebugValue;

        // What calls leave behind on purpose: a budget, and a learned pace.
        let kept = [
            "steady_retry_budget_balance",
            "steady_throttle_pace_requests_per_second",
        ];
        for (key, _, _, value) in self.recorder.snapshotter().snapshot().into_vec() {
            let name = key.key().name();
            if let DebugValue::Gauge(value) = value {
                if !kept.contains(&name) {
                    assert_eq!(value, 0.0, "{place}: {name}");
                }
            }
        }
    }
}

/// Uses up the retries left in a scope, and returns how many there were, up to 100.
async fn left_of(scope: &Scope) -> u32 {
    let server = ScriptedServer::statuses([503]);
    let backoff = Backoff::exponential(MS).cap(MS).jitter(Jitter::None);
    let retry = RetryMiddleware::builder().max_retries(100).backoff(backoff);
    let client = server.client(retry.budget(Budget::unlimited()).build().unwrap());
    let call = client.get("http://other.example.com/").send();
    assert_eq!(scope.clone().run(call).await.unwrap().status(), 503);
    server.count() as u32 - 1
}

/// Keeps letters, and takes 20 ms for each.
#[derive(Clone, Default)]
pub(super) struct Letters(Arc<Mutex<Vec<Arc<DeadLetter>>>>);

impl Letters {
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl DeadLetterSink for Letters {
    fn deliver(&self, letter: Arc<DeadLetter>) -> Delivery<'_> {
        Box::pin(async move {
            sleep(10 * MS).await;
            self.0.lock().unwrap().push(letter);
            sleep(10 * MS).await;
            Ok(())
        })
    }
}

/// Fetches a token with another client before every attempt, except for `/fresh`.
struct Token(ClientWithMiddleware);

#[async_trait::async_trait]
impl Middleware for Token {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http::Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> Result<reqwest::Response> {
        if request.url().path() != "/fresh" {
            let caller = request.headers()[CALLER].clone();
            let token = self.0.get("http://token.example.com/token");
            token.header(CALLER, caller).send().await?;
        }
        next.run(request, extensions).await
    }
}

/// Makes a call that succeeds, and returns its duration: `Duration::MAX` if it is refused.
pub(super) async fn fresh(stack: &Stack) -> Duration {
    let start = Instant::now();
    match stack.get("/fresh", "fresh").send().await {
        Ok(response) => assert_eq!(response.status(), 200),
        Err(error) if SteadyError::of(&error).is_some_and(SteadyError::is_throttled) => {
            return Duration::MAX;
        }
        Err(error) => panic!("{error:?}"),
    }
    start.elapsed()
}
