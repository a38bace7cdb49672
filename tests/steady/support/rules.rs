//! What a simulated service does with a request: rules that are asked in turn.

#![allow(
    dead_code,
    reason = "shared by tests and benches, and neither needs all of it"
)]

use std::io;
use std::ops::Range;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

pub(crate) type Headers = Vec<(&'static str, String)>;

/// What comes of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// This much after the request arrived.
    Answer(u16, Headers, Duration),
    /// The connection fails in this way.
    Fail(io::ErrorKind),
}

impl Verdict {
    pub(crate) fn at_once(status: u16) -> Self {
        Self::Answer(status, Headers::new(), Duration::ZERO)
    }
}

/// `at` is the time since the service started. It never goes back.
pub(crate) trait Rule: Send + 'static {
    /// `None` leaves it to the next rule, and what passes all of them gets a 200.
    fn decide(&mut self, at: Duration, chance: &mut StdRng) -> Option<Verdict>;

    /// What it adds to the headers of every answer, right after the decision.
    fn hints(&self, _at: Duration) -> Headers {
        Headers::new()
    }
}

/// A number that changes with time, in steps.
#[derive(Clone, Debug)]
pub(crate) struct Steps(Vec<(Duration, f64)>);

impl From<f64> for Steps {
    fn from(always: f64) -> Self {
        Self(vec![(Duration::ZERO, always)])
    }
}

impl Steps {
    /// Another value from `time` on, which is after all steps so far.
    pub(crate) fn then(mut self, time: Duration, value: f64) -> Self {
        assert!(self.0.last().is_some_and(|(last, _)| *last < time));
        self.0.push((time, value));
        self
    }

    pub(crate) fn at(&self, time: Duration) -> f64 {
        let step = self.0.iter().rev().find(|(from, _)| *from <= time);
        step.map_or(0.0, |(_, value)| *value)
    }

    /// What a rate by the second adds up to from one time to another.
    pub(crate) fn sum(&self, over: Range<Duration>) -> f64 {
        let ends = self.0.iter().skip(1).map(|(from, _)| *from);
        let ends = ends.chain([Duration::MAX]);
        let parts = self.0.iter().zip(ends).map(|((from, value), end)| {
            let time = over.end.min(end).saturating_sub(over.start.max(*from));
            time.as_secs_f64() * value
        });
        parts.sum()
    }
}

#[derive(Debug)]
enum Shape {
    /// Windows of this width follow each other from the start of the service. What was refused
    /// does not count.
    Window {
        width: Duration,
        start: Duration,
        taken: f64,
    },
    /// Full at the start. GCRA with the same burst refuses the same requests.
    Bucket {
        burst: f64,
        tokens: f64,
        filled: Duration,
    },
}

/// Takes so many a second, and refuses the rest.
#[derive(Debug)]
pub(crate) struct Limit {
    rate: Steps,
    shape: Shape,
    status: u16,
    on_refusal: Headers,
    hints: bool,
}

impl Limit {
    /// As many as `rate` makes in one window, at any time within it.
    pub(crate) fn window(rate: impl Into<Steps>, width: Duration) -> Self {
        let (start, taken) = (Duration::ZERO, 0.0);
        Self::new(
            rate,
            Shape::Window {
                width,
                start,
                taken,
            },
        )
    }

    pub(crate) fn bucket(rate: impl Into<Steps>, burst: f64) -> Self {
        let (tokens, filled) = (burst, Duration::ZERO);
        Self::new(
            rate,
            Shape::Bucket {
                burst,
                tokens,
                filled,
            },
        )
    }

    fn new(rate: impl Into<Steps>, shape: Shape) -> Self {
        Self {
            rate: rate.into(),
            shape,
            status: 429,
            on_refusal: Headers::new(),
            hints: false,
        }
    }

    /// Refuses with this one instead of 429.
    pub(crate) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// A header on every refusal.
    pub(crate) fn on_refusal(mut self, name: &'static str, value: &str) -> Self {
        self.on_refusal.push((name, value.to_owned()));
        self
    }

    /// `ratelimit-remaining` and `ratelimit-reset` on every answer.
    pub(crate) fn with_hints(mut self) -> Self {
        self.hints = true;
        self
    }

    /// How many more it would take now, and how long until it takes more than that.
    fn left(&self, at: Duration) -> (f64, Duration) {
        // Sums of fractions miss whole numbers by a hair.
        const HAIR: f64 = 1e-6;
        match &self.shape {
            Shape::Window {
                width,
                start,
                taken,
            } => {
                let limit = (self.rate.at(*start) * width.as_secs_f64()).round();
                (limit - taken, (*start + *width).saturating_sub(at))
            }
            Shape::Bucket { tokens, .. } => {
                let whole = (tokens + HAIR).floor();
                let missing = (whole + 1.0 - tokens) / self.rate.at(at);
                (
                    whole,
                    Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX),
                )
            }
        }
    }
}

impl Rule for Limit {
    fn decide(&mut self, at: Duration, _: &mut StdRng) -> Option<Verdict> {
        match &mut self.shape {
            Shape::Window {
                width,
                start,
                taken,
            } => {
                if at >= *start + *width {
                    let index = at.as_nanos() / width.as_nanos();
                    *start = *width * index as u32;
                    *taken = 0.0;
                }
            }
            Shape::Bucket {
                burst,
                tokens,
                filled,
            } => {
                *tokens = burst.min(*tokens + self.rate.sum(*filled..at));
                *filled = at;
            }
        }
        if self.left(at).0 < 1.0 {
            let headers = self.on_refusal.clone();
            return Some(Verdict::Answer(self.status, headers, Duration::ZERO));
        }
        match &mut self.shape {
            Shape::Window { taken, .. } => *taken += 1.0,
            Shape::Bucket { tokens, .. } => *tokens -= 1.0,
        }
        None
    }

    fn hints(&self, at: Duration) -> Headers {
        if !self.hints {
            return Headers::new();
        }
        let (remaining, reset) = self.left(at);
        vec![
            ("ratelimit-remaining", remaining.to_string()),
            // Whole seconds is all that the header can say.
            ("ratelimit-reset", reset.as_secs_f64().ceil().to_string()),
        ]
    }
}

/// Nothing but this, for a time.
#[derive(Debug)]
pub(crate) struct Down {
    during: Range<Duration>,
    instead: Verdict,
}

impl Down {
    pub(crate) fn answering(status: u16, during: Range<Duration>) -> Self {
        let instead = Verdict::at_once(status);
        Self { during, instead }
    }

    pub(crate) fn unreachable(during: Range<Duration>) -> Self {
        let instead = Verdict::Fail(io::ErrorKind::ConnectionRefused);
        Self { during, instead }
    }
}

impl Rule for Down {
    fn decide(&mut self, at: Duration, _: &mut StdRng) -> Option<Verdict> {
        self.during.contains(&at).then(|| self.instead.clone())
    }
}

/// Answers 503 to this share of all requests, by chance.
#[derive(Debug)]
pub(crate) struct Flaky(pub(crate) f64);

impl Rule for Flaky {
    fn decide(&mut self, _: Duration, chance: &mut StdRng) -> Option<Verdict> {
        chance.random_bool(self.0).then(|| Verdict::at_once(503))
    }
}

/// One worker that does everything in turn, behind a gateway that loses patience.
///
/// The gateway answers 504 while the work goes on: it is done though nobody waits for it any more.
/// A caller that goes away does not call it off either.
#[derive(Debug)]
pub(crate) struct Worker {
    one: Duration,
    stall: Range<Duration>,
    patience: Duration,
    longest_queue: Duration,
    /// All work that was ever taken, and the idle time before it, on the worker's own clock.
    done_at: Duration,
}

impl Worker {
    pub(crate) fn new(rate: f64, stall: Range<Duration>) -> Self {
        Self {
            one: Duration::from_secs_f64(1.0 / rate),
            stall,
            patience: Duration::from_secs(1),
            longest_queue: Duration::from_secs(10),
            done_at: Duration::ZERO,
        }
    }

    /// One that nobody loses patience with, and that never stalls.
    pub(crate) fn patient(rate: f64) -> Self {
        Self {
            patience: Duration::MAX,
            longest_queue: Duration::MAX,
            ..Self::new(rate, Duration::ZERO..Duration::ZERO)
        }
    }

    /// The worker's own clock, which stands still during the stall.
    fn own_time(&self, at: Duration) -> Duration {
        let stalled = at.min(self.stall.end).saturating_sub(self.stall.start);
        at - stalled
    }

    /// When the worker's own clock gets there.
    fn real_time(&self, own: Duration) -> Duration {
        if own <= self.stall.start {
            return own;
        }
        own + (self.stall.end - self.stall.start)
    }
}

impl Rule for Worker {
    fn decide(&mut self, at: Duration, _: &mut StdRng) -> Option<Verdict> {
        let now = self.own_time(at);
        if self.done_at.saturating_sub(now) > self.longest_queue {
            return Some(Verdict::at_once(503));
        }
        self.done_at = self.done_at.max(now) + self.one;
        let wait = self.real_time(self.done_at) - at;
        Some(if wait > self.patience {
            Verdict::Answer(504, Headers::new(), self.patience)
        } else {
            Verdict::Answer(200, Headers::new(), wait)
        })
    }
}
