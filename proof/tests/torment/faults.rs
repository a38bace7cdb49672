//! The faults of the server, and their probabilities.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A fault of one connection or one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The server responds.
    None,
    /// Resets the connection right after it is accepted.
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
    /// Ends the connection. Over HTTP/2 it ends within a frame or between two.
    HalfAHead,
    BodyCut,
    /// Sends fewer bytes than announced.
    WrongLength,
    SlowDrip,

    /// The work takes longer than the client waits, and continues.
    SlowWork,
    /// A 303 to the same URL, where every `GET` fails.
    SeeOtherAfterWork,
    /// A 307 to the same URL, before the work.
    TemporaryRedirect,
    /// Sends a correct response after an informational one.
    EarlyHints,
    /// Sends a correct response, and more bytes than announced.
    Surplus,
    /// Sends a correct response twice. Over HTTP/2 that is a violation, so the client may end the connection.
    DuplicateResponse,

    // HTTP/2 only.
    RefusedStream,
    StreamResetAfterWork,
    StreamCancelledAfterWork,
    BodyReset,
    /// Accepts no new streams, and responds on the existing ones.
    GoAway,
    /// Accepts no new streams, and ends the existing ones without a response.
    GoAwayAtOnce,
    /// The same with an error code, which may also end processed streams.
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

/// Faults, with their frequency per thousand requests.
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
    (Fault::DuplicateResponse, 40),
    (Fault::SeeOtherAfterWork, 40),
    (Fault::TemporaryRedirect, 20),
];

/// Faults that end a connection are rare, because they end a hundred streams.
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
    (Fault::DuplicateResponse, 8),
    (Fault::GoAway, 8),
    (Fault::GoAwayAtOnce, 8),
    (Fault::GoAwayInTrouble, 8),
    (Fault::ConnectionBroken, 8),
    (Fault::SeeOtherAfterWork, 40),
    (Fault::TemporaryRedirect, 20),
];

/// A quota that is far from spent, as many servers send it with every response.
pub(crate) const RATE_LIMIT: &str = "\"q\";r=4990;t=900";

/// Whether faults occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// No faults.
    Calm,
    /// Faults with the given probabilities.
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

/// Draws random faults and counts them.
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
            return Fault::None;
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
        let fault = hit.map_or(Fault::None, |(fault, _)| *fault);
        *rolls.drawn.entry(fault).or_default() += 1;
        fault
    }

    /// Returns a random number below `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.rolls().generator.random_range(0..end)
    }

    /// Returns the faults since the last call.
    pub(crate) fn take_drawn(&self) -> BTreeMap<Fault, u64> {
        std::mem::take(&mut self.rolls().drawn)
    }

    fn rolls(&self) -> MutexGuard<'_, Rolls> {
        self.0.lock().unwrap()
    }
}
