//! Many workers on one store, in virtual time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::LeaseTurn;
use crate::clock;
use crate::fleet::{
    FleetError, FleetLimits, FleetStore, Lease, LeaseAsk, MemoryStore, Pauses, Retries, RetriesAsk,
    SharedRate, StoreFuture, WorkerId,
};

const KEY: &str = "gate:api.example.com";

/// A store with latency, that can hang.
#[derive(Debug)]
struct Remote {
    memory: MemoryStore,
    hangs: AtomicBool,
}

impl Remote {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryStore::new(),
            hangs: AtomicBool::new(false),
        })
    }
}

impl FleetStore for Remote {
    fn lease<'a>(&'a self, key: &'a str, ask: LeaseAsk) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            if self.hangs.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_millis(1)).await;
            let lease = self.memory.lease(key, ask).await;
            sleep(Duration::from_millis(1)).await;
            lease
        })
    }

    fn retries<'a>(&'a self, key: &'a str, ask: RetriesAsk) -> StoreFuture<'a, Retries> {
        self.memory.retries(key, ask)
    }

    fn pause<'a>(&'a self, key: &'a str, length: Duration) -> StoreFuture<'a, ()> {
        self.memory.pause(key, length)
    }

    fn pauses(&self) -> StoreFuture<'_, Box<dyn Pauses>> {
        self.memory.pauses()
    }
}

/// How calls come to a worker.
#[derive(Clone, Copy)]
enum Calls {
    /// More calls than can go.
    Always,
    /// The same, until the worker dies without giving tokens back.
    UntilDeath,
    /// Evenly, at this rate per second.
    Every(f64),
}

/// What happened to the calls of one worker.
#[derive(Clone, Default)]
struct Log {
    /// When each call was sent, and how long it had waited.
    sent: Vec<(Duration, Duration)>,
    /// Longest wait for the store.
    longest_store_wait: Duration,
    round_trips: u64,
    refused: u64,
    unused: u32,
}

impl Log {
    fn within(&self, from: u64, to: u64) -> usize {
        let range = Duration::from_secs(from)..Duration::from_secs(to);
        let within = |(at, _): &&(Duration, Duration)| range.contains(at);
        self.sent.iter().filter(within).count()
    }

    fn longest_wait(&self, from: u64) -> Duration {
        let later = |(at, _): &&(Duration, Duration)| *at >= Duration::from_secs(from);
        let sent = self.sent.iter().filter(later);
        sent.map(|(_, wait)| *wait).max().unwrap_or_default()
    }
}

/// Does what a gate does.
async fn work(
    fleet: FleetLimits,
    rate: SharedRate,
    calls: Calls,
    from: Duration,
    to: Duration,
    phase: f64,
) -> Log {
    let born = clock::now();
    let mut held = fleet.worker_lease(Some(rate));
    let mut log = Log::default();
    let mut queue = VecDeque::new();
    let mut next_call = from + Duration::from_secs_f64(phase / rate.per_second);
    type PendingLease = Pin<Box<dyn Future<Output = Result<Lease, FleetError>> + Send>>;
    let mut pending: Option<PendingLease> = None;
    let mut waits_for_store: Option<Duration> = None;
    loop {
        let now = clock::now().duration_since(born);
        while next_call <= now && next_call < to {
            match calls {
                Calls::Always | Calls::UntilDeath => {
                    queue.resize(1000, now);
                    break;
                }
                Calls::Every(rate) => {
                    queue.push_back(next_call);
                    next_call += Duration::from_secs_f64(1.0 / rate);
                }
            }
        }
        if now >= to {
            queue.clear();
            if let Calls::UntilDeath = calls {
                log.round_trips = fleet.round_trips();
                return log;
            }
        }
        let mut wake = Duration::MAX;
        let mut store_wanted = false;
        while let Some(since) = queue.front().copied() {
            let turn = held.turn(now);
            assert_eq!(held.lacks_token(now), turn != LeaseTurn::Now);
            match turn {
                LeaseTurn::Now => {
                    held.take(now);
                    log.sent.push((now, now.saturating_sub(since)));
                    queue.pop_front();
                }
                LeaseTurn::At(at) => {
                    assert!(at > now);
                    wake = at;
                    break;
                }
                LeaseTurn::AwaitStore(at) => {
                    assert!(at > now);
                    store_wanted = true;
                    wake = at;
                    break;
                }
            }
        }
        if store_wanted {
            waits_for_store.get_or_insert(now);
        } else if let Some(since) = waits_for_store.take() {
            log.longest_store_wait = log.longest_store_wait.max(now - since);
        }
        let ask = held.ask(now, queue.len(), None);
        let ask = ask.or_else(|| held.give_back(now));
        if let Some(ask) = ask {
            assert!(pending.is_none(), "one at a time");
            log.unused += ask.unused;
            let fleet = fleet.clone();
            pending = Some(Box::pin(async move { fleet.ask_lease(KEY, ask).await }));
        }
        if now < to {
            if let Calls::Every(_) = calls {
                wake = wake.min(next_call);
            } else if next_call > now {
                wake = wake.min(next_call);
            }
            wake = wake.min(to);
        } else if pending.is_none() && held.give_back_at().is_none() {
            log.round_trips = fleet.round_trips();
            return log;
        }
        if let Some(idle) = held.give_back_at() {
            wake = wake.min(idle.max(now + Duration::from_millis(1)));
        }
        let mut timer = Box::pin(sleep_until(clock::after(born, wake)));
        let result = poll_fn(|context| {
            if let Some(pending) = &mut pending {
                if let Poll::Ready(result) = pending.as_mut().poll(context) {
                    return Poll::Ready(Some(result));
                }
            }
            timer.as_mut().poll(context).map(|()| None)
        });
        if let Some(result) = result.await {
            pending = None;
            if result.as_ref().is_ok_and(|lease| lease.tokens == 0) {
                log.refused += 1;
            }
            let now = clock::now().duration_since(born);
            held.receive(now, result.map_err(drop));
        }
    }
}

struct Fleet {
    store: Arc<Remote>,
    rate: SharedRate,
    workers: Vec<(Calls, Duration, Duration)>,
}

impl Fleet {
    fn new(per_second: f64, burst: u32) -> Self {
        Self {
            store: Remote::new(),
            rate: SharedRate { per_second, burst },
            workers: Vec::new(),
        }
    }

    fn workers(self, count: usize, calls: Calls, seconds: u64) -> Self {
        self.workers_between(count, calls, 0, seconds)
    }

    fn workers_between(mut self, count: usize, calls: Calls, from: u64, to: u64) -> Self {
        let worker = (calls, Duration::from_secs(from), Duration::from_secs(to));
        self.workers.extend(std::iter::repeat_n(worker, count));
        self
    }

    async fn run(self) -> Outcome {
        let mut tasks = JoinSet::new();
        let count = self.workers.len() as f64;
        for (index, (calls, from, to)) in self.workers.into_iter().enumerate() {
            let store: Arc<dyn FleetStore> = self.store.clone();
            let fleet = FleetLimits::with_store(store);
            let rate = self.rate;
            let phase = index as f64 / count;
            tasks.spawn(async move { (index, work(fleet, rate, calls, from, to, phase).await) });
        }
        let mut logs = tasks.join_all().await;
        logs.sort_by_key(|(index, _)| *index);
        let logs: Vec<_> = logs.into_iter().map(|(_, log)| log).collect();
        let mut sent: Vec<_> = logs
            .iter()
            .flat_map(|log| &log.sent)
            .map(|sent| sent.0)
            .collect();
        sent.sort();
        Outcome { logs, sent }
    }
}

struct Outcome {
    logs: Vec<Log>,
    /// When each call of all workers was sent.
    sent: Vec<Duration>,
}

impl Outcome {
    fn within(&self, from: u64, to: u64) -> f64 {
        let logs = self.logs.iter();
        logs.map(|log| log.within(from, to)).sum::<usize>() as f64
    }

    /// Round trips per 1000 calls.
    fn round_trips(&self) -> f64 {
        let all = self.logs.iter().map(|log| log.round_trips).sum::<u64>();
        1000.0 * all as f64 / self.sent.len() as f64
    }

    fn most_in_a_second(&self) -> usize {
        let mut most = 0;
        let mut first = 0;
        for (index, at) in self.sent.iter().enumerate() {
            while self.sent[first] + Duration::from_secs(1) <= *at {
                first += 1;
            }
            most = most.max(index + 1 - first);
        }
        most
    }

    fn print(&self, what: &str, seconds: u64, rate: f64) {
        let use_ = self.within(0, seconds) / (rate * seconds as f64);
        let each: Vec<_> = self.logs.iter().map(|log| log.sent.len()).collect();
        let refused = self.logs.iter().map(|log| log.refused).sum::<u64>();
        let unused = self.logs.iter().map(|log| log.unused).sum::<u32>();
        let store_wait = self
            .logs
            .iter()
            .map(|log| log.longest_store_wait)
            .max()
            .unwrap();
        println!(
            "{what}: use {:.1} %, {:.1} round trips per 1000, {refused} of them refused, {} in the fullest \
             second, {unused} given back, waits for the store {store_wait:?}, each {:?}..{:?}",
            100.0 * use_,
            self.round_trips(),
            self.most_in_a_second(),
            each.iter().min().unwrap(),
            each.iter().max().unwrap(),
        );
    }
}

/// Tokens in the lease of one worker.
fn lease(rate: f64, workers: f64) -> f64 {
    (rate * 0.5 / workers).max(60.0)
}

#[tokio::test(start_paused = true)]
async fn greedy_workers_use_the_whole_rate_and_ask_seldom() {
    for (workers, rate, burst) in [
        (8, 500.0, 20),
        (8, 500.0, 500),
        (1, 500.0, 20),
        (2, 500.0, 20),
        (4, 500.0, 20),
        (16, 500.0, 20),
        (8, 5000.0, 100),
        (16, 2000.0, 50),
    ] {
        let fleet = Fleet::new(rate, burst).workers(workers, Calls::Always, 60);
        let outcome = fleet.run().await;
        let what = format!("{workers} workers want all of {rate}/s (burst {burst})");
        outcome.print(&what, 60, rate);
        assert!(outcome.within(0, 60) >= 0.95 * rate * 60.0);
        assert!(outcome.within(0, 60) <= rate * 60.0 + f64::from(burst) + lease(rate, 1.0));
        assert!(outcome.round_trips() <= 50.0);
        let count = workers as f64;
        let most = rate + f64::from(burst).max(count * lease(rate, count));
        assert!(outcome.most_in_a_second() as f64 <= most, "{most}");
        for log in &outcome.logs {
            let part = log.sent.len() as f64 / (outcome.sent.len() as f64 / count);
            assert!((0.75..1.25).contains(&part), "{part}");
        }
    }
}

/// A few tokens per second need at most one ask each, or a few per second.
#[tokio::test(start_paused = true)]
async fn a_low_rate_costs_little_more_than_a_round_trip_per_request() {
    for (workers, rate, burst) in [(8, 100.0, 20), (8, 10.0, 1), (3, 2.0, 1), (1, 1.0, 1)] {
        let fleet = Fleet::new(rate, burst).workers(workers, Calls::Always, 600);
        let outcome = fleet.run().await;
        let what = format!("{workers} workers want all of {rate}/s (burst {burst})");
        outcome.print(&what, 600, rate);
        assert!(outcome.within(0, 600) >= 0.95 * rate * 600.0);
        assert!(outcome.within(0, 600) <= rate * 600.0 + f64::from(burst) + lease(rate, 1.0));
        let asked = outcome.round_trips() / 1000.0 * outcome.sent.len() as f64;
        assert!(asked / 600.0 / workers as f64 <= 2.0, "a second, for each");
    }
}

/// Together up to four fifths of the rate: above it, workers that ask at the same moment are refused.
#[tokio::test(start_paused = true)]
async fn steady_traffic_never_waits_after_its_first_lease() {
    for (workers, each, most_round_trips) in [
        (1, 400.0, 50.0),
        (1, 50.0, 50.0),
        (4, 100.0, 50.0),
        (8, 50.0, 50.0),
        (16, 20.0, 50.0),
        (2, 20.0, 100.0),
        (2, 4.0, 500.0),
    ] {
        let fleet = Fleet::new(500.0, 20).workers(workers, Calls::Every(each), 60);
        let outcome = fleet.run().await;
        outcome.print(
            &format!("{workers} workers at {each}/s of 500/s"),
            60,
            500.0,
        );
        for log in &outcome.logs {
            let wait = log.longest_wait(5);
            // Timers fire on whole milliseconds.
            assert!(wait <= Duration::from_millis(1), "{wait:?} {each}");
        }
        assert!(outcome.round_trips() <= most_round_trips);
    }
}

#[tokio::test(start_paused = true)]
async fn one_busy_worker_uses_what_the_others_do_not() {
    for (busy, idle, each) in [
        (1, 7, 0.0),
        (1, 7, 1.0),
        (1, 7, 5.0),
        (1, 7, 20.0),
        (4, 4, 10.0),
    ] {
        let fleet = Fleet::new(500.0, 20).workers(busy, Calls::Always, 60);
        // The idle workers were busy before.
        let seconds = if each == 0.0 { 1 } else { 60 };
        let each = if each == 0.0 { 10.0 } else { each };
        let fleet = fleet.workers(idle, Calls::Every(each), seconds);
        let outcome = fleet.run().await;
        outcome.print(
            &format!("{busy} busy, {idle} at {each}/s for {seconds} s"),
            60,
            500.0,
        );
        assert!(outcome.within(0, 60) >= 0.9 * 500.0 * 60.0);
        assert!(outcome.round_trips() <= 50.0);
        for log in &outcome.logs[busy..] {
            assert_eq!(log.sent.len(), (each * seconds as f64) as usize);
            let wait = log.longest_wait(0);
            assert!(wait < Duration::from_secs(1), "{wait:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_others_use_the_share_of_a_worker_that_died() {
    let fleet =
        Fleet::new(500.0, 20)
            .workers(4, Calls::Always, 60)
            .workers(4, Calls::UntilDeath, 20);
    let outcome = fleet.run().await;
    outcome.print("8 workers, of which 4 die after 20 s", 60, 500.0);
    assert!(outcome.within(0, 20) >= 0.95 * 500.0 * 20.0);
    let soon = outcome.within(20, 25) / (500.0 * 5.0);
    println!("use {soon:.2} in the 5 s after they died");
    assert!(soon >= 0.75);
    assert!(outcome.within(25, 60) >= 0.95 * 500.0 * 35.0);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_hangs_each_worker_sends_its_fair_share() {
    let fleet = Fleet::new(500.0, 20).workers(8, Calls::Always, 60);
    let store = Arc::clone(&fleet.store);
    tokio::spawn(async move {
        sleep(Duration::from_secs(20)).await;
        store.hangs.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(5)).await;
        store.hangs.store(false, Ordering::Relaxed);
    });
    let outcome = fleet.run().await;
    outcome.print("8 workers, a store that hangs from 20 s to 25 s", 60, 500.0);
    for log in &outcome.logs {
        let wait = log.longest_store_wait;
        // 1 ms for the timer.
        assert!(wait <= Duration::from_millis(51), "{wait:?}");
    }
    let each: Vec<_> = (19..31)
        .map(|second| outcome.within(second, second + 1))
        .collect();
    println!("from 19 s on, in each second: {each:?}");
    for sent in &each[1..6] {
        assert!((400.0..=600.0).contains(sent), "{sent}");
    }
    // All workers find the store again at the same time, and share what it has at once.
    assert!(outcome.within(25, 30) >= 0.9 * 500.0 * 5.0);
    assert!(outcome.within(30, 60) >= 0.95 * 500.0 * 30.0);
    assert!(outcome.round_trips() <= 50.0);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_store_costs_each_key_one_short_wait() {
    let fleet = Fleet::new(100.0, 20).workers(1, Calls::Every(50.0), 20);
    fleet.store.hangs.store(true, Ordering::Relaxed);
    let outcome = fleet.run().await;
    outcome.print("a store that was never there", 20, 100.0);
    let log = &outcome.logs[0];
    assert_eq!(log.sent.len(), 1000);
    assert!(log.longest_wait(0) <= Duration::from_millis(51));
    assert!(log.longest_wait(1) <= Duration::from_millis(1));
    // After 250, 500, 1000, and then every 2000 ms, with the 50 ms that each takes.
    assert!((11..=13).contains(&log.round_trips), "{}", log.round_trips);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_gives_its_tokens_back_and_stops_asking() {
    // So slow that missing tokens stay missing.
    let fleet = Fleet::new(1.0, 500).workers(1, Calls::Every(20.0), 2);
    let store = Arc::clone(&fleet.store);
    let born = clock::now();
    let outcome = fleet.run().await;
    outcome.print("one that stops", 2, 20.0);
    let log = &outcome.logs[0];
    assert_eq!(log.sent.len(), 40);
    assert!(log.unused > 0);
    let ask = LeaseAsk::new(WorkerId::random(), Duration::from_millis(1));
    let lease = store.memory.lease(KEY, ask.rate(1.0, 500).want(1000));
    let left = f64::from(lease.await.unwrap().tokens);
    // One token is kept for the first worker.
    let refilled = clock::now().duration_since(born).as_secs_f64();
    let expected = 500.0 - 40.0 + refilled - 1.0;
    assert!(
        (expected - 2.0..=expected).contains(&left),
        "{left} of {expected}"
    );
}
