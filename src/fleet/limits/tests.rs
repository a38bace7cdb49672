use std::sync::atomic::{AtomicBool, AtomicU32};

use tokio::time::sleep;

use super::*;
use crate::fleet::{Pauses, StoreFuture};

#[derive(Debug, Default)]
struct PauseCounter(AtomicU32);

impl PauseListener for PauseCounter {
    fn paused(&self, length: Duration) {
        assert_eq!(length, Duration::from_secs(7));
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl PauseCounter {
    fn times(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn listener(counter: &Arc<PauseCounter>) -> Weak<dyn PauseListener> {
    let counter: Arc<dyn PauseListener> = counter.clone();
    Arc::downgrade(&counter)
}

/// Fails until `works` is set.
#[derive(Debug, Default)]
struct Broken {
    memory: MemoryStore,
    works: AtomicBool,
    connected: AtomicU32,
}

impl Broken {
    fn check(&self) -> Result<(), FleetError> {
        if self.works.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(FleetError::Unavailable { why: "a test" })
    }
}

impl FleetStore for Broken {
    fn lease<'a>(&'a self, key: &'a str, ask: LeaseAsk) -> StoreFuture<'a, Lease> {
        match self.check() {
            Ok(()) => self.memory.lease(key, ask),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn retries<'a>(&'a self, _: &'a str, _: RetriesAsk) -> StoreFuture<'a, Retries> {
        Box::pin(std::future::pending())
    }

    fn pause<'a>(&'a self, key: &'a str, length: Duration) -> StoreFuture<'a, ()> {
        self.memory.pause(key, length)
    }

    fn pauses(&self) -> StoreFuture<'_, Box<dyn Pauses>> {
        self.connected.fetch_add(1, Ordering::Relaxed);
        match self.check() {
            Ok(()) => self.memory.pauses(),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

#[test]
fn an_invalid_setting_is_named_with_its_value() {
    let builder = FleetLimits::builder;
    for (built, text) in [
        (
            builder().lease(Duration::from_millis(49)).build(),
            "lease (49ms) should be from 50 ms to 10 s",
        ),
        (
            builder().store_timeout(Duration::ZERO).build(),
            "store_timeout (0s) should be longer than zero and at most 10 s",
        ),
        (
            builder().prefix("billing").build(),
            "prefix (\"billing\") should only be given with Redis",
        ),
        #[cfg(feature = "redis")]
        (
            builder().redis("redis://host").prefix("a:b").build(),
            "prefix (\"a:b\") should be up to 64 letters, digits, `-`, `_`, `.` or `/`",
        ),
        #[cfg(feature = "redis")]
        (
            FleetLimits::redis("redis://user:secret@host/zero"),
            "url (redis://host) should be like redis://user:password@host:6379/0",
        ),
    ] {
        assert_eq!(built.unwrap_err().to_string(), text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_store_times_out_and_each_ask_is_counted() {
    let fleet = FleetLimits::builder()
        .store(Arc::new(Broken::default()))
        .store_timeout(Duration::from_millis(20))
        .build()
        .unwrap();
    let terms = crate::fleet::RetryTerms {
        ttl: Duration::from_secs(10),
        ratio: 0.2,
        min_per_sec: 2.0,
    };
    let start = crate::clock::now();
    let after = Duration::from_millis(20);
    let result = fleet.retries("retry:a", RetriesAsk::new(terms)).await;
    assert_eq!(result, Err(FleetError::TimedOut { after }));
    assert_eq!(crate::clock::now() - start, after);
    let ask = LeaseAsk::new(WorkerId::random(), fleet.lease());
    assert!(fleet.ask_lease("gate:a", ask).await.is_err());
    assert_eq!(fleet.round_trips(), 2);
    assert_eq!(fleet.store_timeout(), after);
}

#[tokio::test(start_paused = true)]
async fn all_listeners_of_a_key_get_its_pause() {
    let fleet = FleetLimits::in_memory();
    let (one, other, elsewhere) =
        <(Arc<PauseCounter>, Arc<PauseCounter>, Arc<PauseCounter>)>::default();
    fleet.listen("gate:a", listener(&one));
    fleet.listen("gate:a", listener(&other));
    fleet.listen("gate:b", listener(&elsewhere));
    sleep(Duration::from_millis(1)).await;
    fleet.pause("gate:a", Duration::from_secs(7)).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    assert_eq!((one.times(), other.times(), elsewhere.times()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn pauses_arrive_again_after_an_outage() {
    let store = Arc::new(Broken::default());
    let fleet = FleetLimits::with_store(store.clone());
    let counter = Arc::<PauseCounter>::default();
    fleet.listen("gate:a", listener(&counter));
    sleep(Duration::from_secs(60)).await;
    let tries = store.connected.load(Ordering::Relaxed);
    assert!((15..20).contains(&tries), "{tries}");
    store.works.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(6)).await;
    fleet.pause("gate:a", Duration::from_secs(7)).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(counter.times(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_last_handle() {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let fleet = FleetLimits::in_memory();
    let clone = fleet.clone();
    for number in 0..10_000 {
        let counter = Arc::<PauseCounter>::default();
        fleet.listen(&format!("gate:{}", number % 5000), listener(&counter));
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(tasks(), before + 1);
    drop(fleet);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(tasks(), before + 1);
    drop(clone);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(tasks(), before);
}

#[test]
fn an_incredible_lease_does_little_harm() {
    let period = Duration::from_millis(500);
    let ask = LeaseAsk::new(WorkerId::random(), period)
        .rate(10.0, 5)
        .want(7);
    let nonsense = Lease {
        tokens: u32::MAX,
        retry_after: Duration::MAX,
        pause: Duration::ZERO,
        workers: 0,
        pace: Some(f64::NAN),
    };
    let lease = sanitized(nonsense, &ask);
    assert_eq!((lease.tokens, lease.workers, lease.pace), (7, 1, None));
    // Four periods.
    assert_eq!(lease.retry_after, Duration::from_secs(2));
    let many = Lease {
        workers: u32::MAX,
        ..nonsense
    };
    assert_eq!(sanitized(many, &ask).workers, 1_000_000);
    // A credible lease stays as it is.
    let good = Lease {
        tokens: 3,
        retry_after: Duration::from_millis(70),
        pause: Duration::from_secs(1),
        workers: 4,
        pace: Some(80.0),
    };
    assert_eq!(sanitized(good, &ask), good);
}
