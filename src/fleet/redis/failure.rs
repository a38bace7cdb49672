//! Turns errors of Redis into errors that show no secret.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::fleet::FleetError;

/// Codes that a script can cause. An old Redis sends `ERR`, with one of these later in the text.
const CODES: &str =
    "WRONGTYPE NOPERM OOM READONLY NOAUTH MISCONF NOREPLICAS MASTERDOWN CLUSTERDOWN";
/// What Redis sends instead of `NOAUTH` for a long command before a login.
const UNAUTHENTICATED: &str = "unauthenticated";
/// The code of Redis for other errors.
const UNKNOWN: &str = "ERR";
/// Upper limit in bytes. The longest known code is `CLUSTERDOWN`, with 11.
const LONGEST_CODE: usize = 20;

/// Keeps only the error code of Redis: `NOAUTH`, `READONLY`, `BUSY` …
///
/// The text after the code may hold a secret, because Redis repeats the arguments of an unknown command.
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
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => refused("an unknown reply"),
        _ => refused(&code(error)),
    }
}

pub(super) fn unavailable(why: &'static str) -> FleetError {
    FleetError::Unavailable { why }
}

/// Whether to reconnect: the connection is broken, or its node is no longer the master.
pub(super) fn breaks(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io
            | ErrorKind::Parse
            | ErrorKind::ClusterConnectionNotFound
            | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    ) || error.is_unrecoverable_error()
}

/// The error code: the first word of the message.
fn code(error: &RedisError) -> String {
    // For a pipelined command, only the server errors hold the code.
    let errors = error.clone().into_server_errors();
    let (code, detail) = match errors.as_deref().and_then(<[_]>::first) {
        Some((_, error)) => (error.code(), error.details()),
        None => (error.code().unwrap_or(UNKNOWN), error.detail()),
    };
    let detail = detail.unwrap_or_default();
    let mut words = detail.split(|letter| !is_code_letter(letter));
    let code = match code {
        UNKNOWN if detail.contains(UNAUTHENTICATED) => "NOAUTH",
        UNKNOWN => words
            .find(|word| CODES.split(' ').any(|known| known == *word))
            .unwrap_or(code),
        // The message of a proxy may begin with any word.
        _ if !code.chars().all(is_code_letter) || code.len() > LONGEST_CODE => UNKNOWN,
        _ => code,
    };
    code.to_owned()
}

fn is_code_letter(letter: char) -> bool {
    letter.is_ascii_uppercase()
}

fn refused(code: &str) -> FleetError {
    FleetError::Refused {
        code: code.to_owned(),
    }
}
