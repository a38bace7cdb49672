//! Sinks that accept letters, and sinks that fail. Neither changes the call.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest_middleware::ClientWithMiddleware;
use reqwest_steady::dead_letter::{
    DeadLetter, DeadLetterOutcome, DeadLetterSink, Delivery, dead_letter_channel,
};
use reqwest_steady::observe::{EventKind, LogLevels};
use reqwest_steady::{
    Budget, RequestBuilderExt, RetryMiddleware, RetryReport, SteadyError, StopReason,
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::log::Log;
use crate::support::scripted::{Reply, Server, URL, respond_with};
use crate::support::stacks::{MS, SEC, constant};
use crate::support::trace::Listening;

/// How long a delivery may take here.
const MAX_WAIT: Duration = Duration::from_millis(2345);
/// Duration of a call without its letter: two retries, 1 s apart.
const CALL: Duration = Duration::from_secs(2);

/// What a sink does with a letter.
#[derive(Clone, Copy, Debug)]
enum Act {
    TakeAfter(Duration),
    /// Whatever the letter contains.
    Accept(Duration),
    FailAfter(Duration),
    Hang,
    Panic,
    PanicAtOnce,
}

#[derive(Clone)]
struct Sink(Act, Arc<AtomicUsize>);

impl DeadLetterSink for Sink {
    fn deliver(&self, letter: Arc<DeadLetter>) -> Delivery<'_> {
        assert!(!matches!(self.0, Act::PanicAtOnce), "at once");
        Box::pin(async move {
            match self.0 {
                Act::TakeAfter(wait) | Act::Accept(wait) => sleep(wait).await,
                Act::FailAfter(wait) => {
                    sleep(wait).await;
                    return Err("the disk is full".into());
                }
                Act::Hang => std::future::pending().await,
                Act::Panic | Act::PanicAtOnce => panic!("later"),
            }
            if !matches!(self.0, Act::Accept(_)) {
                assert_eq!(letter.stop_reason(), Some(StopReason::RetriesExhausted));
            }
            self.1.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }
}

type Events = Arc<Mutex<Vec<(Duration, EventKind)>>>;

/// A client whose letters go to a sink, with its events and log.
struct Setting {
    server: Arc<Server>,
    client: ClientWithMiddleware,
    started: Instant,
    events: Events,
    taken: Arc<AtomicUsize>,
    log: Log,
    _listening: Listening,
}

impl Setting {
    fn new(server: Arc<Server>, act: Act) -> Self {
        let taken = Arc::new(AtomicUsize::new(0));
        let sink = Sink(act, taken.clone());
        Self::with_sink(server, sink, taken)
    }

    fn with_sink(server: Arc<Server>, sink: impl DeadLetterSink, taken: Arc<AtomicUsize>) -> Self {
        let log = Log::default();
        let (events, started) = (Events::default(), Instant::now());
        let heard = events.clone();
        let retry = RetryMiddleware::builder()
            .max_retries(2)
            .backoff(constant(SEC))
            .budget(Budget::unlimited())
            .log_levels(LogLevels::off())
            .dead_letter_sink(sink)
            .dead_letter_timeout(MAX_WAIT)
            .observe_fn(move |event| {
                assert_eq!(event.call.host, "api.example.com");
                let mut heard = heard.lock().unwrap();
                heard.push((started.elapsed(), event.kind));
            });
        Self {
            client: server.client(retry.build().unwrap()),
            server,
            started,
            events,
            taken,
            _listening: log.listen(),
            log,
        }
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// When each delivery ended, and its outcome.
    fn letters(&self) -> Vec<(Duration, DeadLetterOutcome)> {
        let events = self.events.lock().unwrap();
        let letters = events.iter().filter_map(|(at, kind)| match kind {
            EventKind::DeadLettered(outcome) => Some((*at, *outcome)),
            _ => None,
        });
        letters.collect()
    }
}

/// A server that is down, with a note in the headers of each response.
fn down() -> Arc<Server> {
    Server::new(|_| respond_with(503, &[("x-note", "kept")]))
}

#[tokio::test(start_paused = true)]
async fn no_sink_changes_the_response_or_delays_it_without_limit() {
    use DeadLetterOutcome::{Delivered, Failed, Panicked, TimedOut};
    for (act, outcome, wait) in [
        (Act::TakeAfter(Duration::ZERO), Delivered, Duration::ZERO),
        (Act::TakeAfter(SEC), Delivered, SEC),
        (Act::TakeAfter(MAX_WAIT - MS), Delivered, MAX_WAIT - MS),
        (Act::TakeAfter(MAX_WAIT + MS), TimedOut, MAX_WAIT),
        (Act::FailAfter(Duration::ZERO), Failed, Duration::ZERO),
        (Act::FailAfter(SEC), Failed, SEC),
        (Act::Hang, TimedOut, MAX_WAIT),
        (Act::Panic, Panicked, Duration::ZERO),
        (Act::PanicAtOnce, Panicked, Duration::ZERO),
    ] {
        let setting = Setting::new(down(), act);
        let response = setting.client.put(URL).send().await.unwrap();
        assert_eq!(setting.started.elapsed(), CALL + wait, "{act:?}");
        assert_eq!(setting.server.gaps(), [SEC, SEC]);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["x-note"], "kept");
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(report.stop_reason(), StopReason::RetriesExhausted);
        assert_eq!((report.retries(), report.waited()), (2, 2 * SEC));
        assert_eq!(response.text().await.unwrap(), "body of 503");

        // The event fires once, before the call returns.
        assert_eq!(setting.letters(), [(CALL + wait, outcome)], "{act:?}");
        sleep(60 * SEC).await;
        assert_eq!(setting.letters().len(), 1, "{act:?}");
        assert_eq!(setting.taken(), usize::from(outcome == Delivered));
        let warnings = usize::from(outcome != Delivered);
        assert_eq!(setting.log.count(), warnings, "{act:?}");
        if warnings == 1 {
            let message = setting.log.last();
            let why = message
                .strip_prefix("dead letter not confirmed")
                .expect(&message);
            assert_eq!(why == ": the disk is full", outcome == Failed, "{message}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_comes_back_untouched_too() {
    for act in [Act::FailAfter(SEC), Act::Hang, Act::Panic] {
        let server = Server::new(|_| Reply::fail(ErrorKind::ConnectionReset));
        let setting = Setting::new(server, act);
        let error = setting.client.put(URL).send().await.unwrap_err();
        let reqwest_middleware::Error::Middleware(error) = error else {
            panic!("{error}")
        };
        let error: std::io::Error = error.downcast().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!((setting.server.count(), setting.log.count()), (3, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_covers_delivery_and_the_letter_still_arrives() {
    let deadline = CALL + 300 * MS;
    for (act, outcome, told_after) in [
        (Act::TakeAfter(SEC), DeadLetterOutcome::Delivered, SEC),
        (Act::FailAfter(SEC), DeadLetterOutcome::Failed, SEC),
        (Act::Hang, DeadLetterOutcome::TimedOut, MAX_WAIT),
    ] {
        let setting = Setting::new(down(), act);
        let request = setting.client.put(URL).deadline(deadline);
        let response = request.send().await.unwrap();
        assert_eq!(setting.started.elapsed(), deadline, "{act:?}");
        assert_eq!(setting.server.count(), 3);
        assert_eq!(response.text().await.unwrap(), "body of 503");
        assert_eq!((setting.letters(), setting.taken()), (vec![], 0));
        sleep(60 * SEC).await;
        assert_eq!(setting.letters(), [(CALL + told_after, outcome)]);
        let delivered = usize::from(outcome == DeadLetterOutcome::Delivered);
        assert_eq!(setting.taken(), delivered);
        assert_eq!(setting.log.count(), 1 - delivered);
    }
}

/// Counts letters, and takes 1 s for each.
struct Slow(Arc<AtomicUsize>);

impl DeadLetterSink for Slow {
    fn deliver(&self, _: Arc<DeadLetter>) -> Delivery<'_> {
        Box::pin(async {
            sleep(SEC).await;
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_past_its_deadline_waits_briefly_for_its_letter() {
    let taken = Arc::new(AtomicUsize::new(0));
    let silent = Server::new(|_| Reply::silence());
    let setting = Setting::with_sink(silent, Slow(taken.clone()), taken);
    let request = setting.client.put(URL).deadline(SEC);
    let error = request.send().await.unwrap_err();
    assert!(
        SteadyError::of(&error).is_some_and(SteadyError::is_timeout),
        "{error}"
    );
    assert_eq!(setting.started.elapsed(), SEC + 100 * MS);
    assert_eq!(setting.taken(), 0);
    sleep(60 * SEC).await;
    let delivered = DeadLetterOutcome::Delivered;
    assert_eq!(setting.letters(), [(2 * SEC, delivered)]);
    assert_eq!((setting.taken(), setting.log.count()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_letter_about_a_deadline_is_there_when_the_call_returns() {
    let silent = Server::new(|_| Reply::silence());
    for took in [Duration::ZERO, 30 * MS] {
        let setting = Setting::new(silent.clone(), Act::Accept(took));
        let request = setting.client.put(URL).deadline(SEC);
        request.send().await.unwrap_err();
        assert_eq!(setting.started.elapsed(), SEC + took);
        assert_eq!(setting.taken(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_during_delivery_keeps_its_letter() {
    let setting = Setting::new(down(), Act::TakeAfter(2 * SEC));
    let call = timeout(CALL + SEC, setting.client.put(URL).send()).await;
    assert!(call.is_err());
    assert_eq!(setting.taken(), 0);
    sleep(60 * SEC).await;
    assert_eq!((setting.taken(), setting.log.count()), (1, 0));
    // The call had stopped when it was dropped, so no event reports it as abandoned.
    let events = setting.events.lock().unwrap();
    let [.., (stopped_at, stopped), (told_at, told)] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(matches!(stopped, EventKind::Stopped(_)), "{events:?}");
    assert_eq!(*stopped_at, CALL);
    let delivered = EventKind::DeadLettered(DeadLetterOutcome::Delivered);
    assert_eq!((*told_at, *told), (CALL + 2 * SEC, delivered));
    let abandoned = |(_, kind): &(_, EventKind)| matches!(kind, EventKind::Abandoned(_));
    assert!(!events.iter().any(abandoned), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_full_or_closed_channel_is_logged() {
    let (sink, mut letters) = dead_letter_channel(1);
    let setting = Setting::with_sink(down(), sink, Arc::default());
    for _ in 0..2 {
        setting.client.put(URL).send().await.unwrap();
    }
    assert_eq!(setting.started.elapsed(), 2 * CALL + MAX_WAIT);
    assert_eq!(setting.log.count(), 1);
    assert!(letters.try_recv().is_some() && letters.try_recv().is_none());
    drop(letters);
    setting.client.put(URL).send().await.unwrap();
    assert_eq!(setting.started.elapsed(), 3 * CALL + MAX_WAIT);
    assert_eq!(setting.log.count(), 2);
    let message = setting.log.last();
    let why = ": nobody receives dead letters any more";
    assert!(message.ends_with(why), "{message}");
    let outcomes: Vec<_> = setting
        .letters()
        .into_iter()
        .map(|(_, each)| each)
        .collect();
    assert_eq!(
        outcomes,
        [
            DeadLetterOutcome::Delivered,
            DeadLetterOutcome::TimedOut,
            DeadLetterOutcome::Failed
        ]
    );
}
