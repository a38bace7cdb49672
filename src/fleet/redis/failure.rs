//! What went wrong at Redis, in words that hold no secret.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::fleet::FleetError;

/// What a script can run into. An old Redis says `ERR`, and these further on in a text.
const WORDS: [&str; 6] = [
    "WRONGTYPE",
    "NOPERM",
    "OOM",
    "READONLY",
    "NOAUTH",
    "MISCONF",
];

/// The server's own text is not shown: of a command that it does not know, it repeats the arguments.
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
        _ => refused(word(error)),
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

fn word(error: &RedisError) -> &str {
    let code = error.code().unwrap_or("ERR");
    let detail = error.detail().unwrap_or_default();
    let known = WORDS.iter().find(|word| detail.contains(**word));
    match known {
        Some(word) if code == "ERR" => word,
        _ => code,
    }
}

fn refused(code: &str) -> FleetError {
    FleetError::Refused {
        code: code.to_owned(),
    }
}
