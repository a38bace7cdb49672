//! What went wrong at Redis, in words that hold no secret.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::fleet::FleetError;

/// What a script can run into. An old Redis says `ERR`, and these further on in a text.
const WORDS: [&str; 9] = [
    "WRONGTYPE",
    "NOPERM",
    "OOM",
    "READONLY",
    "NOAUTH",
    "MISCONF",
    "NOREPLICAS",
    "MASTERDOWN",
    "CLUSTERDOWN",
];
/// What Redis says to a long command of a client that has not logged in, in place of `NOAUTH`.
const UNAUTHENTICATED: &str = "unauthenticated";
/// What Redis says where it has no better code.
const UNKNOWN: &str = "ERR";
/// Upper limit in bytes. The longest known code is `CLUSTERDOWN`, with 11.
const LONGEST_CODE: usize = 20;

/// Keeps the code by which Redis says what is wrong: `NOAUTH`, `READONLY`, `BUSY` …
///
/// The text behind it is not shown: of a command that it does not know, Redis repeats the arguments.
pub(super) fn of(error: &RedisError) -> FleetError {
    if error.is_connection_refusal() {
        return unavailable("it refuses connections");
    }
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => unavailable("to connect took too long"),
        ErrorKind::Io => unavailable("the connection broke"),
        ErrorKind::ClusterConnectionNotFound => unavailable("no node of the cluster is connected"),
        ErrorKind::AuthenticationFailed => refused("AUTH"),
        ErrorKind::RESP3NotSupported => refused("HELLO"),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => refused("an unknown answer"),
        _ => refused(&code(error)),
    }
}

pub(super) fn unavailable(why: &'static str) -> FleetError {
    FleetError::Unavailable { why }
}

/// Whether another connection may do better: this one is broken, or leads to one that is no longer the master.
pub(super) fn breaks(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io
            | ErrorKind::Parse
            | ErrorKind::ClusterConnectionNotFound
            | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    ) || error.is_unrecoverable_error()
}

/// The first word of what Redis says.
fn code(error: &RedisError) -> String {
    // Of a command that was sent among others, only these know what it was.
    let errors = error.clone().into_server_errors();
    let (code, detail) = match errors.as_deref().and_then(<[_]>::first) {
        Some((_, error)) => (error.code(), error.details()),
        None => (error.code().unwrap_or(UNKNOWN), error.detail()),
    };
    let detail = detail.unwrap_or_default();
    let mut words = detail.split(|letter| !is_of_a_code(letter));
    let code = match code {
        UNKNOWN if detail.contains(UNAUTHENTICATED) => "NOAUTH",
        UNKNOWN => words.find(|word| WORDS.contains(word)).unwrap_or(code),
        // A proxy may begin with any word of a sentence.
        _ if !code.chars().all(is_of_a_code) || code.len() > LONGEST_CODE => UNKNOWN,
        _ => code,
    };
    code.to_owned()
}

fn is_of_a_code(letter: char) -> bool {
    letter.is_ascii_uppercase()
}

fn refused(code: &str) -> FleetError {
    FleetError::Refused {
        code: code.to_owned(),
    }
}
