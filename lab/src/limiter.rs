//! The rule of a random or described service: its limit, its hints and its noise.

use std::io::ErrorKind;
use std::time::{Duration, SystemTime};

use reqwest::{Method, Request};
use reqwest_steady::testing::{Chance, Concurrency, Limit, Reply, Rule, Steps, Worker};

use crate::random::{Hint, LimitKind, Noise};

/// The service's clock at the start. It has a fraction of a second, as real clocks have.
const EPOCH: Duration = Duration::from_millis(1_700_000_000_370);

/// The header with the time of the arrival, in microseconds since the service started.
///
/// With it a middleware knows when a request arrived, even if the latency varies.
pub(crate) const ARRIVED: &str = "x-arrived-us";

/// The limit of a service.
pub(crate) enum AnyLimit {
    None,
    Rate(Limit),
    Concurrency(Concurrency),
    Worker(Worker),
}

impl AnyLimit {
    /// Makes a limit of this kind. `capacity_times` is the capacity in requests per second, times a factor.
    pub(crate) fn new(kind: LimitKind, capacity_times: impl Fn(f64) -> Steps, status: u16) -> Self {
        match kind {
            LimitKind::Windows(width) => {
                Self::Rate(Limit::window(capacity_times(1.0), width).status(status))
            }
            LimitKind::TokenBucket(burst) | LimitKind::Gcra(burst) => {
                Self::Rate(Limit::bucket(capacity_times(1.0), burst).status(status))
            }
            LimitKind::Concurrency(work) => {
                let most = capacity_times(work.as_secs_f64());
                Self::Concurrency(Concurrency::new(most, work).status(status))
            }
        }
    }
}

/// Applies a limit, and adds hints and noise.
pub(crate) struct Limiter {
    limit: AnyLimit,
    hint: Hint,
    noise: Vec<Noise>,
}

impl Limiter {
    pub(crate) fn new(limit: AnyLimit, hint: Hint, noise: Vec<Noise>) -> Self {
        Self { limit, hint, noise }
    }

    /// Returns how many requests the limit accepts at this time, and the time until it accepts more.
    pub(crate) fn remaining(&mut self, at: Duration) -> (usize, Duration) {
        match &mut self.limit {
            AnyLimit::None | AnyLimit::Worker(_) => (usize::MAX, Duration::ZERO),
            AnyLimit::Rate(limit) => limit.remaining(at),
            AnyLimit::Concurrency(limit) => limit.remaining(at),
        }
    }

    /// Accepts a request for which there is room, without noise.
    pub(crate) fn accept(&mut self, at: Duration) {
        let url = "http://api.example.com/".parse().expect("a valid URL");
        let request = Request::new(Method::GET, url);
        let _ = self.limit_reply(&request, at, &mut Chance::new(0));
    }

    fn limit_reply(&mut self, request: &Request, at: Duration, chance: &mut Chance) -> Reply {
        let reply = match &mut self.limit {
            AnyLimit::None => None,
            AnyLimit::Worker(worker) => worker.decide(request, at, chance),
            AnyLimit::Rate(limit) => limit.decide(request, at, chance),
            AnyLimit::Concurrency(limit) => limit.decide(request, at, chance),
        };
        reply.unwrap_or_else(|| Reply::status(200))
    }

    /// Replaces a few of the accepted requests' replies.
    fn noisy(&self, reply: Reply, chance: &mut Chance) -> Reply {
        self.noise.iter().fold(reply, |reply, noise| match *noise {
            Noise::Status(status, share) if chance.happens(share) => Reply::status(status),
            Noise::Resets(share) if chance.happens(share) => {
                Reply::fail(ErrorKind::ConnectionReset)
            }
            _ => reply,
        })
    }

    /// Adds the headers that tell about the limit.
    fn hinted(&mut self, reply: Reply, refused: bool, at: Duration) -> Reply {
        if matches!(self.limit, AnyLimit::None | AnyLimit::Worker(_)) {
            return reply;
        }
        let (remaining, grows_in) = self.remaining(at);
        let seconds = grows_in.as_secs_f64().ceil();
        let left = remaining.to_string();
        match self.hint {
            Hint::RetryAfter if refused => reply.header("retry-after", "1"),
            Hint::RetryAfterSeconds if refused => reply.header("retry-after", &seconds.to_string()),
            Hint::RetryAfterMs if refused => {
                let ms = grows_in.as_nanos().div_ceil(1_000_000);
                reply.header("retry-after-ms", &ms.to_string())
            }
            Hint::None | Hint::RetryAfter | Hint::RetryAfterSeconds | Hint::RetryAfterMs => reply,
            Hint::RateLimit => {
                reply.header("ratelimit", &format!("\"default\";r={left};t={seconds}"))
            }
            Hint::XRateLimitSeconds => reply
                .header("x-ratelimit-remaining", &left)
                .header("x-ratelimit-reset", &seconds.to_string()),
            Hint::XRateLimitEpoch => {
                let now = EPOCH + at;
                let reset = (now + grows_in).as_secs_f64().ceil();
                // The format drops the fraction of the second.
                let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + now);
                reply
                    .header("date", &date)
                    .header("x-ratelimit-remaining", &left)
                    .header("x-ratelimit-reset", &reset.to_string())
            }
        }
    }
}

impl Rule for Limiter {
    fn decide(&mut self, request: &Request, at: Duration, chance: &mut Chance) -> Option<Reply> {
        let refused = self.remaining(at).0 == 0;
        let mut reply = self.limit_reply(request, at, chance);
        if !refused {
            reply = self.noisy(reply, chance);
        }
        let reply = self.hinted(reply, refused, at);
        Some(reply.header(ARRIVED, &at.as_micros().to_string()))
    }
}
