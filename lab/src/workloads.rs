//! Workloads that are hard for clients. Each is a function of the latency of the service.

use std::time::Duration;

use reqwest::Request;
use reqwest_steady::testing::{
    Chance, Down, Flaky, Limit, Load, Reply, Rule, SimulatedService, Simulation, Steps, Worker,
};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
pub const TICK: Duration = Duration::from_millis(100);

pub const NEAR: Duration = Duration::from_millis(2);
pub const FAR: Duration = Duration::from_millis(50);

/// Calls that start after this time find a warm client.
pub const WARM: Duration = Duration::from_millis(200);

pub const HOST: &str = "api.example.com";
const DEAD_HOST: &str = "dead.example.com";

/// Nine writes at once. The service accepts 5 per 100 ms.
pub fn nine_writes(latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency).rule(Limit::window(50.0, TICK));
    Simulation::new(service, Load::AtOnce(9)).writes()
}

/// A thousand writes at once. The service accepts 50 per 100 ms, without `Retry-After`.
pub fn thousand_writes(latency: Duration) -> Simulation {
    thousand_writes_on(Limit::window(500.0, TICK), latency)
}

/// The same, but every 429 has `Retry-After: 1`.
pub fn thousand_writes_with_retry_after(latency: Duration) -> Simulation {
    let limit = Limit::window(500.0, TICK).on_refusal("retry-after", "1");
    thousand_writes_on(limit, latency)
}

fn thousand_writes_on(limit: Limit, latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency).rule(limit);
    Simulation::new(service, Load::AtOnce(1000)).writes()
}

/// 500 calls at once, while the service is down.
pub fn controllers(latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency)
        .rule(Down::with_status(503, Duration::ZERO..CONTROLLERS_UP));
    Simulation::new(service, Load::AtOnce(500))
}

pub const CONTROLLERS_UP: Duration = Duration::from_secs(3);

/// The same, but the service refuses connections.
pub fn controllers_cut_off(latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency)
        .rule(Down::unreachable(Duration::ZERO..CONTROLLERS_UP));
    Simulation::new(service, Load::AtOnce(500))
}

/// 1000 calls per second for 30 s. Every response is a 503.
pub fn blackout(latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency)
        .rule(Down::with_status(503, Duration::ZERO..Duration::MAX));
    Simulation::new(service, Load::Rate(1000.0, 30 * SEC))
}

/// Twice the capacity for 10 s. The limit is a token bucket that holds 10 ms of it.
pub fn overload_of_bucket(latency: Duration) -> Simulation {
    overload(Limit::bucket(500.0, 5.0), latency)
}

/// The same with windows of 50 per 100 ms.
pub fn overload_of_window(latency: Duration) -> Simulation {
    overload(Limit::window(500.0, TICK), latency)
}

/// The same with a limit that looks like a failure: its status is 503.
pub fn overload_with_503(latency: Duration) -> Simulation {
    overload(Limit::window(500.0, TICK).status(503), latency)
}

/// A 503 from a limit that refuses evenly: a bucket of 200 per second that holds 10. 500 writes at once.
pub fn bucket_with_503(latency: Duration) -> Simulation {
    let service =
        SimulatedService::with_latency(latency).rule(Limit::bucket(200.0, 10.0).status(503));
    Simulation::new(service, Load::AtOnce(500)).writes()
}

/// 2500 calls at once. The quota is 1000 per 10 s, and every response shows it.
pub fn quota(latency: Duration) -> Simulation {
    let service =
        SimulatedService::with_latency(latency).rule(Limit::window(100.0, 10 * SEC).with_hints());
    Simulation::new(service, Load::AtOnce(2500))
}

/// 2000 calls per second for 5 s. The worker handles 1000 per second and refuses none, so responses get slower.
pub fn slow_worker(latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency).rule(Worker::patient(1000.0));
    Simulation::new(service, Load::Rate(2000.0, 5 * SEC))
}

fn overload(limit: Limit, latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency).rule(limit);
    Simulation::new(service, Load::Rate(1000.0, 10 * SEC)).writes()
}

/// A worker that handles 1000 per second stalls for 3 s.
///
/// Afterwards it can handle the 800 calls per second, unless retries have multiplied them.
pub fn stalled_worker(latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency)
        .rule(Worker::new(STALLED_WORKER_RATE, 10 * SEC..13 * SEC));
    Simulation::new(service, Load::Rate(800.0, 60 * SEC))
}

pub const STALLED_WORKER_RATE: f64 = 1000.0;

/// 5000 calls per second for 10 s to a healthy service.
pub fn busy_and_healthy(latency: Duration) -> Simulation {
    Simulation::new(
        SimulatedService::with_latency(latency),
        Load::Rate(5000.0, 10 * SEC),
    )
}

/// 1000 calls at once to a healthy service.
pub fn burst_and_healthy(latency: Duration) -> Simulation {
    Simulation::new(SimulatedService::with_latency(latency), Load::AtOnce(1000))
}

/// 500 calls per second for 20 s. 1 % of the responses are 503s.
pub fn one_in_a_hundred(latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency).rule(Flaky::new(0.01));
    Simulation::new(service, Load::Rate(500.0, 20 * SEC))
}

/// 500 calls per second for 6 s. 1 % of the responses are 503s.
pub fn three_thousand(latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency).rule(Flaky::new(0.01));
    Simulation::new(service, Load::Rate(500.0, 6 * SEC))
}

/// The same, but every response shows a quota that is far from spent.
pub fn three_thousand_with_quota_left(latency: Duration) -> Simulation {
    let service = SimulatedService::with_latency(latency);
    let service = service.rule(QuotaLeft).rule(Flaky::new(0.01));
    Simulation::new(service, Load::Rate(500.0, 6 * SEC))
}

/// Sends the headers of a quota with every response.
struct QuotaLeft;

impl Rule for QuotaLeft {
    fn decide(&mut self, _: &Request, _: Duration, _: &mut Chance) -> Option<Reply> {
        None
    }

    fn hints(&self, _: Duration) -> Vec<(&'static str, String)> {
        vec![
            ("x-ratelimit-limit", "5000".to_owned()),
            ("x-ratelimit-remaining", "4990".to_owned()),
            ("x-ratelimit-reset", "6".to_owned()),
        ]
    }
}

/// Twenty independent clients together send twice the capacity.
pub fn twenty_clients(latency: Duration) -> Simulation {
    let service =
        SimulatedService::with_latency(latency).rule(Limit::bucket(TWENTY_CLIENTS_RATE, 10.0));
    Simulation::new(service, Load::Rate(2000.0, TWENTY_CLIENTS_TIME)).clients(20)
}

pub const TWENTY_CLIENTS_RATE: f64 = 1000.0;
pub const TWENTY_CLIENTS_TIME: Duration = Duration::from_secs(20);

/// 400 calls per second for 10 s, half of them to a dead host. `of_host(HOST)` has the results of the rest.
pub fn with_dead_host(latency: Duration) -> Simulation {
    let dead = Down::with_status(503, Duration::ZERO..Duration::MAX);
    let service = SimulatedService::with_latency(latency).host_rule(DEAD_HOST, dead);
    Simulation::new(service, Load::Rate(400.0, 10 * SEC)).hosts(&[HOST, DEAD_HOST])
}

/// The same without the dead host and its calls.
pub fn without_dead_host(latency: Duration) -> Simulation {
    Simulation::new(
        SimulatedService::with_latency(latency),
        Load::Rate(200.0, 10 * SEC),
    )
}

/// 1000 calls per second for 15 s. The capacity is 500 per second, and 250 from 5 to 10 s.
pub fn halved_and_doubled(latency: Duration) -> Simulation {
    let service =
        SimulatedService::with_latency(latency).rule(Limit::bucket(halved_capacity(), 5.0));
    Simulation::new(service, Load::Rate(1000.0, 15 * SEC)).writes()
}

pub fn halved_capacity() -> Steps {
    let whole = Steps::from(500.0);
    whole.then(5 * SEC, 250.0).then(10 * SEC, 500.0)
}

/// The kind of limit.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Window(Duration),
    /// The burst, as a share of the tokens per second.
    Bucket(f64),
}

/// A backlog of two seconds and at least 50 calls, all at once.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    pub rate: f64,
    pub shape: Shape,
}

impl Drain {
    /// Returns every combination that accepts at least one request.
    pub fn grid() -> Vec<Self> {
        let windows = [10 * MS, TICK, SEC].map(Shape::Window);
        let shapes = windows.into_iter().chain([Shape::Bucket(0.1)]);
        let rates = [5.0, 20.0, 100.0, 500.0, 2000.0, 5000.0];
        let all = shapes.flat_map(|shape| rates.map(|rate| Self { rate, shape }));
        all.filter(|drain| drain.step() >= 1.0).collect()
    }

    pub fn calls(self) -> usize {
        (2.0 * self.rate).max(50.0) as usize
    }

    /// Returns how many requests the limit accepts at once.
    fn step(self) -> f64 {
        match self.shape {
            Shape::Window(width) => self.rate * width.as_secs_f64(),
            Shape::Bucket(share) => (self.rate * share).max(1.0),
        }
    }

    pub fn simulation(self, latency: Duration) -> Simulation {
        let limit = match self.shape {
            Shape::Window(width) => Limit::window(self.rate, width),
            Shape::Bucket(_) => Limit::bucket(self.rate, self.step()),
        };
        let service = SimulatedService::with_latency(latency).rule(limit);
        Simulation::new(service, Load::AtOnce(self.calls())).writes()
    }

    /// Returns how long a client takes that knows the limit.
    pub fn ideal(self, latency: Duration) -> Duration {
        let calls = self.calls() as f64;
        let last = match self.shape {
            Shape::Window(width) => width.mul_f64((calls / self.step()).ceil() - 1.0),
            Shape::Bucket(_) => {
                let waiting = (calls - self.step()).max(0.0);
                Duration::from_secs_f64(waiting / self.rate)
            }
        };
        // A request can already be on its way before the limit accepts it.
        last.max(latency / 2) + latency / 2
    }
}
