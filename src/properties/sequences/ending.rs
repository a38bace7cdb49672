//! How an attempt of the model ends, and its class.

use std::io::ErrorKind;
use std::time::Duration;

use super::script::{Hint, ModelBody, ModelResponse};
use crate::outcome::{AttemptOutcome, FailureKind, TimeLimit};

#[derive(Clone, Debug)]
pub(super) enum Ending {
    Response(ModelResponse),
    Fail(ErrorKind),
    TimedOut(TimeLimit),
    /// The body was to be buffered, and the connection broke.
    CutOff,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Class {
    Retry,
    Conditional,
    Never,
}

impl Ending {
    /// Returns the outcome that a report shows.
    pub(super) fn outcome(&self) -> AttemptOutcome {
        AttemptOutcome::Failure(match self {
            Self::Response(response) => {
                let status = http::StatusCode::from_u16(response.status).unwrap();
                return AttemptOutcome::Status(status);
            }
            Self::TimedOut(_) | Self::Fail(ErrorKind::TimedOut) => FailureKind::Timeout,
            Self::CutOff | Self::Fail(ErrorKind::ConnectionReset) => FailureKind::Reset,
            Self::Fail(ErrorKind::ConnectionRefused) => FailureKind::Connect,
            Self::Fail(ErrorKind::UnexpectedEof) => FailureKind::Incomplete,
            Self::Fail(_) => FailureKind::Middleware,
        })
    }

    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Response(response) => Some(response.status),
            _ => None,
        }
    }

    pub(super) fn directive(&self) -> Option<bool> {
        match self {
            Self::Response(response) => response.directive,
            _ => None,
        }
    }

    pub(super) fn hint(&self) -> Option<Duration> {
        match self {
            Self::Response(response) => response.hint.map(Hint::wait),
            _ => None,
        }
    }

    /// Whether a call with an empty budget waits in line.
    pub(super) fn asks_to_wait(&self) -> bool {
        match self.status() {
            Some(429) => true,
            Some(503) => self.hint().is_some(),
            _ => false,
        }
    }

    pub(super) fn is_unclear(&self) -> bool {
        self.status().is_none_or(|status| status >= 500)
    }

    pub(super) fn class(&self, still_running: bool) -> Class {
        match self {
            Self::Response(response) => match response.status {
                429 | 502 | 503 | 504 => Class::Retry,
                408 | 425 | 500 | 520 | 599 => Class::Conditional,
                409 if still_running => Class::Conditional,
                _ => Class::Never,
            },
            Self::Fail(ErrorKind::PermissionDenied) => Class::Never,
            Self::Fail(_) | Self::TimedOut(_) | Self::CutOff => Class::Conditional,
        }
    }
}

impl Hint {
    fn wait(self) -> Duration {
        match self {
            Self::Seconds(seconds) => Duration::from_secs(seconds.into()),
            Self::Milliseconds(millis) => Duration::from_millis(millis.into()),
            Self::Endless => Duration::MAX,
        }
    }
}

/// Buffers a body. Returns how that fails, if it does, and when.
pub(super) fn read(
    response: &ModelResponse,
    now: Duration,
    limit: Duration,
    which: TimeLimit,
) -> (Option<Ending>, Duration) {
    let (failed, at) = match response.body {
        ModelBody::Whole => (None, now),
        ModelBody::Late(takes) => (None, now + takes),
        ModelBody::Cut(takes) => (Some(Ending::CutOff), now + takes),
    };
    if limit <= now {
        (Some(Ending::TimedOut(which)), now)
    } else if at > limit {
        (Some(Ending::TimedOut(which)), limit)
    } else {
        (failed, at)
    }
}
