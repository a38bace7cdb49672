use std::sync::Mutex;
use std::task::{Context, Waker};

use http::{Extensions, HeaderName, Method, StatusCode};
use reqwest::{Request, Url};

use super::*;
use crate::dead_letter::{LetterDraft, dead_letter_channel};
use crate::outcome::{AttemptOutcome, AttemptReport, Effect, RetryReport, StopReason};
use crate::request::RequestSnapshot;

fn letter(path: &str) -> DeadLetter {
    let url = Url::parse("http://api.example.com").unwrap();
    let url = url.join(path).unwrap();
    let header = HeaderName::from_static("idempotency-key");
    let mut request = Request::new(Method::GET, url);
    let snapshot = RequestSnapshot::of(&mut request, false, &Extensions::new());
    let draft = LetterDraft {
        request: &snapshot,
        factory: None,
        key_header: &header,
        has_key: false,
        repeatable: true,
    };
    let report = RetryReport {
        earlier: Vec::new(),
        last: AttemptReport {
            outcome: AttemptOutcome::Status(StatusCode::BAD_GATEWAY),
            sent_at: Duration::ZERO,
            waited: Duration::ZERO,
            wait_reason: None,
            took: Duration::ZERO,
            hint: None,
            effect: Effect::Unknown,
        },
        refused_wait: Duration::ZERO,
        took: Duration::ZERO,
        stop_reason: StopReason::BudgetEmpty,
    };
    let settings = DeadLetters::default();
    draft.into_letter(&settings, &report, clock::wall(), Duration::ZERO)
}

fn letters_to(sink: Arc<dyn DeadLetterSink>) -> DeadLetters {
    DeadLetters {
        sink: Some(sink),
        ..DeadLetters::default()
    }
}

/// What the test sink does with a letter.
enum Act {
    Take,
    Fail,
    Panic,
    PanicAtOnce,
    PanicInText,
    PanicWhenDropped,
    Hang,
    TakeLater(Duration),
    Block(Duration),
}

/// An error that panics in its text.
#[derive(Debug)]
struct Unspeakable;

impl Error for Unspeakable {}

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("in its text");
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("when dropped");
    }
}

struct Sink {
    act: Act,
    taken: Mutex<usize>,
}

impl DeadLetterSink for Sink {
    fn deliver(&self, _: Arc<DeadLetter>) -> Delivery<'_> {
        if matches!(self.act, Act::PanicAtOnce) {
            panic!("at once");
        }
        Box::pin(async move {
            match self.act {
                Act::Take | Act::PanicAtOnce => {}
                Act::Fail => return Err("the disk is full".into()),
                Act::PanicInText => return Err(Unspeakable.into()),
                Act::PanicWhenDropped => {
                    let _bomb = Bomb;
                    std::future::pending().await
                }
                Act::Panic => panic!("later"),
                Act::Hang => std::future::pending().await,
                Act::TakeLater(wait) => tokio::time::sleep(wait).await,
                Act::Block(wait) => std::thread::sleep(wait),
            }
            *self.taken.lock().unwrap() += 1;
            Ok(())
        })
    }
}

type Reported = Arc<Mutex<Vec<(DeadLetterOutcome, Option<String>)>>>;

struct Setting {
    sink: Arc<Sink>,
    letters: DeadLetters,
    reported: Reported,
}

impl Setting {
    fn new(act: Act) -> Self {
        let taken = Mutex::new(0);
        let sink = Arc::new(Sink { act, taken });
        Self {
            letters: letters_to(sink.clone()),
            sink,
            reported: Reported::default(),
        }
    }

    fn deliver(&self, latest: Option<Instant>) -> impl Future<Output = ()> + use<> {
        let reported = self.reported.clone();
        let delivery = (self.letters).deliver(letter("/a"), latest, move |outcome, text| {
            reported.lock().unwrap().push((outcome, text));
        });
        delivery.unwrap()
    }

    fn reported(&self) -> Vec<(DeadLetterOutcome, Option<String>)> {
        self.reported.lock().unwrap().clone()
    }

    fn taken(&self) -> usize {
        *self.sink.taken.lock().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn how_a_delivery_ends_is_reported_once_before_the_call_goes_on() {
    use DeadLetterOutcome::{Delivered, Failed, Panicked, TimedOut};
    let error = Some("the disk is full".to_owned());
    for (act, outcome, text, waited) in [
        (Act::Take, Delivered, None, 0),
        (Act::TakeLater(Duration::from_secs(4)), Delivered, None, 4),
        (Act::Fail, Failed, error, 0),
        (Act::Panic, Panicked, None, 0),
        (Act::PanicAtOnce, Panicked, None, 0),
        (Act::PanicInText, Panicked, None, 0),
        (Act::PanicWhenDropped, Panicked, None, 5),
        (Act::Hang, TimedOut, None, 5),
        (Act::TakeLater(Duration::from_secs(6)), TimedOut, None, 5),
    ] {
        let setting = Setting::new(act);
        let start = clock::now();
        setting.deliver(None).await;
        assert_eq!(setting.reported(), [(outcome, text)]);
        assert_eq!(start.elapsed().as_secs(), waited, "{outcome}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(setting.reported().len(), 1, "{outcome}");
        assert_eq!(setting.taken(), usize::from(outcome == Delivered));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_deadline_returns_in_time_and_its_letter_is_still_written() {
    let setting = Setting::new(Act::TakeLater(Duration::from_secs(3)));
    let start = clock::now();
    let deadline = start + Duration::from_secs(1);
    setting.deliver(Some(deadline)).await;
    assert_eq!(start.elapsed().as_secs(), 1);
    assert_eq!((setting.reported(), setting.taken()), (vec![], 0));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(setting.reported(), [(DeadLetterOutcome::Delivered, None)]);
    assert_eq!(setting.taken(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_does_not_lose_its_letter() {
    // The future is never polled.
    let setting = Setting::new(Act::Take);
    drop(setting.deliver(None));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(setting.reported(), [(DeadLetterOutcome::Delivered, None)]);

    let setting = Setting::new(Act::TakeLater(Duration::from_secs(2)));
    let impatient = tokio::time::timeout(Duration::from_secs(1), setting.deliver(None));
    assert!(impatient.await.is_err());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(setting.taken(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_blocks_its_thread_does_not_hold_the_call() {
    let mut setting = Setting::new(Act::Block(Duration::from_secs(1)));
    setting.letters.timeout = Duration::from_millis(1);
    let task = tokio::spawn(setting.deliver(None));
    task.await.unwrap();
    assert_eq!(setting.taken(), 0, "it is still blocked");
}

#[test]
fn without_a_runtime_delivery_fails_and_nothing_panics() {
    let setting = Setting::new(Act::Take);
    let mut wait = Box::pin(setting.deliver(None));
    let poll = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_ready());
    let text = Some("there is no tokio runtime to deliver it on, or no longer".to_owned());
    assert_eq!(setting.reported(), [(DeadLetterOutcome::Failed, text)]);
}

#[tokio::test(start_paused = true)]
async fn a_full_channel_is_waited_for_and_a_closed_one_fails() {
    let (sink, mut receiver) = dead_letter_channel(0);
    let letters = letters_to(Arc::new(sink));
    let reported = Reported::default();
    let deliver = |path| {
        let reported = reported.clone();
        let delivery = letters.deliver(letter(path), None, move |outcome, text| {
            reported.lock().unwrap().push((outcome, text));
        });
        delivery.unwrap()
    };
    let start = clock::now();
    deliver("/1").await;
    deliver("/2").await;
    assert_eq!(start.elapsed().as_secs(), 5);
    let third = deliver("/3");
    assert_eq!(receiver.recv().await.unwrap().url().path(), "/1");
    third.await;
    assert_eq!(receiver.recv().await.unwrap().url().path(), "/3");
    assert!(receiver.try_recv().is_none());
    drop(receiver);
    deliver("/4").await;
    let text = "nobody receives dead letters any more".to_owned();
    assert_eq!(
        *reported.lock().unwrap(),
        [
            (DeadLetterOutcome::Delivered, None),
            (DeadLetterOutcome::TimedOut, None),
            (DeadLetterOutcome::Delivered, None),
            (DeadLetterOutcome::Failed, Some(text)),
        ]
    );
}

#[test]
fn a_sink_can_be_shared_and_chosen_at_run_time() {
    fn is_sink(_: impl DeadLetterSink) {}
    let shared: Arc<dyn DeadLetterSink> = Arc::new(dead_letter_channel(1).0);
    is_sink(shared);
}

#[test]
fn a_runtime_that_ends_before_the_delivery_does_is_reported() {
    let setting = Setting::new(Act::Hang);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let wait = setting.deliver(Some(clock::now()));
        tokio::time::timeout(Duration::from_millis(1), wait)
            .await
            .unwrap_err();
    });
    assert_eq!(setting.reported(), []);
    drop(runtime);
    let text = Some("there is no tokio runtime to deliver it on, or no longer".to_owned());
    assert_eq!(setting.reported(), [(DeadLetterOutcome::Failed, text)]);
}

#[tokio::test]
async fn the_text_of_a_sinks_own_request_is_not_told() {
    let sent = reqwest::Client::new()
        .get("hush://me:hush@hush/?token=hush")
        .send();
    let error = sent.await.unwrap_err();
    assert!(error.to_string().contains("hush"), "{error}");
    let inside = std::io::Error::other(error);
    let text = error_text(&inside.into());
    assert_eq!(text, "a request of the sink's own failed");
    assert_eq!(error_text(&"full".into()), "full");
}
