//! A store that is slow, fails or never responds, and calls that cannot wait for it. In virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use reqwest_middleware::{ClientWithMiddleware, Middleware};
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::fleet::{
    FleetError, FleetStore, Lease, LeaseAsk, MemoryStore, Pauses, Retries, RetriesAsk, StoreFuture,
};
use reqwest_steady::testing::{Reply, ScriptedServer as Server};
use reqwest_steady::{
    RetryMiddleware, RetryMiddlewareBuilder, ThrottleMiddleware, ThrottleMiddlewareBuilder,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A store in memory with faults.
#[derive(Debug, Default)]
struct Odd {
    memory: MemoryStore,
    /// A response takes this long.
    delay: Duration,
    /// No response.
    silent: bool,
    away: AtomicBool,
    pauses_to_fail: AtomicUsize,
    leases: AtomicUsize,
    granted: AtomicUsize,
}

impl Odd {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn slow(delay: Duration) -> Arc<Self> {
        Arc::new(Self {
            delay,
            ..Self::default()
        })
    }

    fn silent() -> Arc<Self> {
        Arc::new(Self {
            silent: true,
            ..Self::default()
        })
    }

    async fn check(&self) -> Result<(), FleetError> {
        if self.silent {
            std::future::pending::<()>().await;
        }
        if self.away.load(Relaxed) {
            return Err(FleetError::Unavailable { why: "a test" });
        }
        Ok(())
    }

    fn granted(&self) -> usize {
        self.granted.load(Relaxed)
    }
}

impl FleetStore for Odd {
    fn lease<'a>(&'a self, key: &'a str, ask: LeaseAsk) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            self.check().await?;
            self.leases.fetch_add(1, Relaxed);
            let lease = self.memory.lease(key, ask).await;
            sleep(self.delay).await;
            lease
        })
    }

    fn retries<'a>(&'a self, key: &'a str, ask: RetriesAsk) -> StoreFuture<'a, Retries> {
        Box::pin(async move {
            self.check().await?;
            let retries = self.memory.retries(key, ask).await?;
            self.granted.fetch_add(retries.granted as usize, Relaxed);
            sleep(self.delay).await;
            Ok(retries)
        })
    }

    fn pause<'a>(&'a self, key: &'a str, length: Duration) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let failed = |left: usize| left.checked_sub(1);
            if (self.pauses_to_fail.fetch_update(Relaxed, Relaxed, failed)).is_ok() {
                return Err(FleetError::Unavailable { why: "a test" });
            }
            self.memory.pause(key, length).await
        })
    }

    fn pauses(&self) -> StoreFuture<'_, Box<dyn Pauses>> {
        self.memory.pauses()
    }
}

fn fleet(store: &Arc<Odd>) -> FleetLimits {
    FleetLimits::with_store(store.clone())
}

fn throttle(store: &Arc<Odd>) -> ThrottleMiddlewareBuilder {
    ThrottleMiddleware::builder()
        .rate(100.0, 10)
        .fleet(fleet(store))
}

fn retry(store: &Arc<Odd>) -> RetryMiddlewareBuilder {
    RetryMiddleware::builder()
        .seed(1)
        .max_retries(1)
        .fleet(fleet(store))
}

fn throttled(server: &Arc<Server>, throttle: ThrottleMiddlewareBuilder) -> ClientWithMiddleware {
    let throttle: Arc<dyn Middleware> = Arc::new(throttle.build().unwrap());
    server.client_behind(vec![throttle])
}

fn retrying(server: &Arc<Server>, retry: RetryMiddlewareBuilder) -> ClientWithMiddleware {
    let retry: Arc<dyn Middleware> = Arc::new(retry.build().unwrap());
    server.client_behind(vec![retry])
}

async fn call(client: &ClientWithMiddleware) -> Result<u16, String> {
    let sent = client.get("http://api.example.com/").send().await;
    sent.map(|response| response.status().as_u16())
        .map_err(|error| error.to_string())
}

/// Makes `calls` calls with each client.
async fn all_at_once(clients: &[ClientWithMiddleware], calls: usize) {
    let mut tasks = JoinSet::new();
    for client in clients {
        for _ in 0..calls {
            let client = client.clone();
            tasks.spawn(async move { call(&client).await });
        }
    }
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_store_did_not_take_is_sent_again() {
    let store = Odd::new();
    store.pauses_to_fail.store(4, Relaxed);
    let refuses = Arc::new(AtomicBool::new(false));
    let asked = refuses.clone();
    let server = Server::new(move |_| match asked.swap(false, Relaxed) {
        true => Reply::status(429).header("retry-after", "30"),
        false => Reply::status(200),
    });
    let (one, other) = (
        throttled(&server, throttle(&store)),
        throttled(&server, throttle(&store)),
    );
    for _ in 0..20 {
        call(&one).await.unwrap();
        call(&other).await.unwrap();
        sleep(millis(20)).await;
    }
    refuses.store(true, Relaxed);
    let began = Instant::now();
    assert_eq!(call(&one).await, Ok(429));
    // Four failures: after 100, 200, 400 and 800 ms.
    sleep(millis(1600)).await;
    let held = timeout(Duration::from_secs(60), call(&other))
        .await
        .unwrap();
    // The pause lasts for its remaining time, not for another 30 s.
    let took = began.elapsed();
    assert_eq!(held, Ok(200));
    assert!(took > Duration::from_secs(29), "{took:?}");
    assert!(took < Duration::from_secs(31), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_in_a_hurry_does_not_wait_for_a_slow_store() {
    let server = Server::new(|_| Reply::status(200));
    let patient = throttle(&Odd::silent()).max_queue_wait(millis(20));
    let began = Instant::now();
    assert_eq!(call(&throttled(&server, patient)).await, Ok(200));
    assert_eq!(began.elapsed(), millis(20));
    // A call that cannot wait at all does not wait for a healthy store, either.
    let store = Odd::new();
    let impatient = throttled(&server, throttle(&store).max_queue_wait(Duration::ZERO));
    for _ in 0..100 {
        assert_eq!(call(&impatient).await, Ok(200));
        sleep(millis(20)).await;
    }
    // But the rate still limits it.
    let mut refused = 0;
    for _ in 0..100 {
        refused += usize::from(call(&impatient).await.is_err());
    }
    assert!(refused > 60, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_is_asked_once_for_all_and_not_overspent() {
    for delay in [0, 30] {
        let store = Odd::slow(millis(delay));
        let server = Server::new(|_| Reply::status(503));
        let clients: Vec<_> = (0..8).map(|_| retrying(&server, retry(&store))).collect();
        all_at_once(&clients, 60).await;
        // Only the reserve, because no call has succeeded.
        let retries = server.count() - 480;
        assert!((15..=20).contains(&retries), "{retries} with {delay} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_in_sequence_do_not_overspend_the_budget() {
    let store = Odd::slow(millis(30));
    let server = Server::new(|_| Reply::status(503));
    let client = retrying(&server, retry(&store));
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        tasks.spawn(async move { call(&client).await });
        sleep(millis(3)).await;
    }
    tasks.join_all().await;
    let retries = server.count() - 100;
    assert!((18..=25).contains(&retries), "{retries}");
}

#[tokio::test(start_paused = true)]
async fn calls_dropped_while_they_ask_the_store_spend_nothing() {
    let store = Odd::slow(millis(30));
    let server = Server::new(|_| Reply::status(503));
    let client = retrying(&server, retry(&store));
    for _ in 0..20 {
        let _ = timeout(millis(10), call(&client)).await;
    }
    sleep(millis(100)).await;
    // Other calls can use the leases that they asked for, except for those already sent.
    let spare = store.granted() - (server.count() - 20);
    assert!((1..=10).contains(&spare), "{spare}");
    let before = server.count();
    for _ in 0..5 {
        call(&client).await.unwrap();
    }
    assert_eq!(server.count() - before, 10);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_takes_nothing_from_the_fleet() {
    let store = Odd::new();
    let server = Server::new(|_| Reply::status(503));
    let dry = retrying(&server, retry(&store).dry_run(true));
    for _ in 0..60 {
        call(&dry).await.unwrap();
    }
    assert_eq!((server.count(), store.granted()), (60, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_store_no_longer_than_its_deadline() {
    let server = Server::new(|_| Reply::status(503));
    let silent = Odd::silent();
    let short = retrying(&server, retry(&silent).deadline(millis(10)));
    let began = Instant::now();
    assert_eq!(call(&short).await, Ok(503));
    assert!(began.elapsed() <= millis(11), "{:?}", began.elapsed());
    // It does not wait at all if there is no time for a retry.
    let store = Odd::new();
    let shortest = retrying(&server, retry(&store).deadline(Duration::from_micros(100)));
    for _ in 0..30 {
        call(&shortest).await.unwrap();
    }
    assert_eq!(store.granted(), 0);
}

/// Lets the store of eight workers fail together with the server, and returns how many retries they add.
///
/// The outage goes on for ten minutes, in which they add none.
async fn retries_in_an_outage(with_throttle: bool) -> (usize, usize) {
    let store = Odd::new();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let server = Server::new(move |_| match failing.load(Relaxed) {
        true => Reply::status(503),
        false => Reply::status(200),
    });
    let worker = || {
        let fleet = fleet(&store);
        let retry = RetryMiddleware::builder()
            .max_retries(1)
            .fleet(fleet.clone());
        let mut chain: Vec<Arc<dyn Middleware>> = vec![Arc::new(retry.build().unwrap())];
        if with_throttle {
            let throttle = ThrottleMiddleware::builder().adaptive(false).fleet(fleet);
            let throttle = throttle.rate(1000.0, 1000);
            chain.push(Arc::new(throttle.build().unwrap()));
        }
        server.client_behind(chain)
    };
    let clients: Vec<_> = (0..8).map(|_| worker()).collect();
    for _ in 0..30 {
        for client in &clients {
            call(client).await.unwrap();
        }
        sleep(Duration::from_secs(1)).await;
    }
    store.away.store(true, Relaxed);
    fails.store(true, Relaxed);
    let leases = store.leases.load(Relaxed);
    let before = server.count();
    for _ in 0..30 {
        for client in &clients {
            call(client).await.unwrap();
        }
    }
    let retries = server.count() - before - 240;
    let before = server.count();
    for _ in 0..600 {
        sleep(Duration::from_secs(1)).await;
        for client in &clients {
            call(client).await.unwrap();
        }
    }
    assert_eq!(server.count() - before, 4800, "time refilled a budget");
    (retries, leases)
}

#[tokio::test(start_paused = true)]
async fn without_leases_each_worker_has_its_share_of_the_reserve() {
    let (with_leases, _) = retries_in_an_outage(true).await;
    let (without, asked) = retries_in_an_outage(false).await;
    // 20 and a fifth of 80 calls, rounded up to whole retries per worker.
    assert!(with_leases <= 40, "{with_leases}");
    assert!(without <= 40, "{without}");
    // Each worker asks once in 5 s.
    assert!((8..=56).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_throttle_that_does_not_pause_ignores_pauses_of_others() {
    let store = Odd::new();
    let server = Server::new(|_| Reply::status(200));
    let fixed = throttled(&server, throttle(&store).adaptive(false));
    let second = Duration::from_secs(1);
    call(&fixed).await.unwrap();
    let pause = store.memory.pause("gate:api.example.com", 60 * second);
    pause.await.unwrap();
    let began = Instant::now();
    for _ in 0..200 {
        call(&fixed).await.unwrap();
    }
    let took = began.elapsed();
    assert!(took > second && took < 3 * second, "{took:?}");
}
