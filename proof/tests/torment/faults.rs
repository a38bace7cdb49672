//! What the server can do to a request, and how often it does.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// What becomes of one connection or one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// None: it is answered.
    Answered,
    /// The connection is broken off as soon as it is there.
    ResetOnAccept,

    // Before the work.
    ResetBeforeReading,
    ResetInTheMiddle,
    Silence,
    Busy,
    Limited,

    // After the work.
    ResetAfterWork,
    CloseAfterWork,
    ErrorAfterWork,
    SilenceAfterWork,
    /// Over HTTP/2 it ends the connection, within a frame or between two.
    HalfAHead,
    BodyCut,
    /// Fewer bytes than were announced.
    WrongLength,
    SlowDrip,

    /// The work takes longer than the client waits, and goes on without it.
    SlowWork,
    /// A 303 to the same URL, where every `GET` fails.
    SeeOtherAfterWork,
    /// A 307 to the same URL, before the work.
    TemporaryRedirect,
    /// The answer is right, and not the first thing that is sent.
    EarlyHints,
    /// The answer is right, and more bytes follow than it announced.
    Surplus,
    /// The answer is right, and sent twice. Over HTTP/2 that is a violation, for which a client may end the
    /// connection.
    DuplicateAnswer,

    // HTTP/2 only.
    RefusedStream,
    StreamResetAfterWork,
    StreamCancelledAfterWork,
    BodyReset,
    /// No new streams, and those that are there are answered.
    GoAway,
    /// No new streams, and none of those that are there is answered.
    GoAwayAtOnce,
    /// With an error code, which may also end what was processed.
    GoAwayInTrouble,
    ConnectionBroken,

    // The load balancer ends the TLS handshake (`front.rs`).
    EndOnAccept,
    EndAfterClientHello,
    EndWithinServerHello,
    CloseNotify,

    // The proxy opens no tunnel (`front.rs`).
    TunnelLimited,
    TunnelBadGateway,
    TunnelUnavailable,
    TunnelTimeout,
    TunnelClosed,
}

/// Faults, and how many of a thousand requests meet each.
pub(crate) type Odds = &'static [(Fault, u32)];

pub(crate) const ON_ACCEPT: Odds = &[(Fault::ResetOnAccept, 40)];

pub(crate) const HTTP1: Odds = &[
    (Fault::ResetBeforeReading, 25),
    (Fault::ResetInTheMiddle, 25),
    (Fault::Silence, 10),
    (Fault::Busy, 40),
    (Fault::Limited, 40),
    (Fault::ResetAfterWork, 40),
    (Fault::CloseAfterWork, 25),
    (Fault::ErrorAfterWork, 25),
    (Fault::SilenceAfterWork, 10),
    (Fault::HalfAHead, 40),
    (Fault::BodyCut, 40),
    (Fault::WrongLength, 30),
    (Fault::SlowDrip, 15),
    (Fault::SlowWork, 10),
    (Fault::EarlyHints, 15),
    (Fault::Surplus, 20),
    (Fault::DuplicateAnswer, 40),
    (Fault::SeeOtherAfterWork, 40),
    (Fault::TemporaryRedirect, 20),
];

/// What ends a connection ends a hundred streams with it, so it is rare.
pub(crate) const HTTP2: Odds = &[
    (Fault::RefusedStream, 60),
    (Fault::Silence, 10),
    (Fault::Busy, 40),
    (Fault::Limited, 40),
    (Fault::ErrorAfterWork, 25),
    (Fault::SilenceAfterWork, 10),
    (Fault::SlowWork, 10),
    (Fault::EarlyHints, 15),
    (Fault::StreamResetAfterWork, 40),
    (Fault::StreamCancelledAfterWork, 20),
    (Fault::BodyReset, 40),
    (Fault::WrongLength, 30),
    (Fault::Surplus, 20),
    (Fault::SlowDrip, 15),
    (Fault::HalfAHead, 8),
    (Fault::DuplicateAnswer, 8),
    (Fault::GoAway, 8),
    (Fault::GoAwayAtOnce, 8),
    (Fault::GoAwayInTrouble, 8),
    (Fault::ConnectionBroken, 8),
    (Fault::SeeOtherAfterWork, 40),
    (Fault::TemporaryRedirect, 20),
];

/// A quota that is far from used up, as many servers tell of it with every response.
pub(crate) const RATE_LIMIT: &str = "\"q\";r=4990;t=900";

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Nothing goes wrong.
    Calm,
    /// As the odds say.
    Foul,
}

impl Weather {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Foul => "foul",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Self::Calm, Self::Foul]
            .into_iter()
            .find(|weather| weather.word() == word)
    }
}

/// Draws faults and counts what was drawn.
pub(crate) struct Dice(Mutex<Rolls>);

struct Rolls {
    generator: StdRng,
    weather: Weather,
    drawn: BTreeMap<Fault, u64>,
}

impl Dice {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Mutex::new(Rolls {
            generator: StdRng::seed_from_u64(seed),
            weather: Weather::Calm,
            drawn: BTreeMap::new(),
        }))
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.rolls().weather = weather;
    }

    pub(crate) fn draw(&self, odds: Odds) -> Fault {
        let mut rolls = self.rolls();
        if rolls.weather == Weather::Calm {
            return Fault::Answered;
        }
        let mut roll: u32 = rolls.generator.random_range(0..1000);
        let hit = odds
            .iter()
            .find(|(_, share)| match roll.checked_sub(*share) {
                Some(rest) => {
                    roll = rest;
                    false
                }
                None => true,
            });
        let fault = hit.map_or(Fault::Answered, |(fault, _)| *fault);
        *rolls.drawn.entry(fault).or_default() += 1;
        fault
    }

    /// A number below `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.rolls().generator.random_range(0..end)
    }

    /// What was drawn since this was last asked.
    pub(crate) fn take_drawn(&self) -> BTreeMap<Fault, u64> {
        std::mem::take(&mut self.rolls().drawn)
    }

    fn rolls(&self) -> MutexGuard<'_, Rolls> {
        self.0.lock().unwrap()
    }
}
