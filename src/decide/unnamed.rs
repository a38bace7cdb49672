//! Failures for which hyper has no type or method of its own that others could name.
//!
//! Both are common over HTTP/2, where one connection carries all calls and its end is the end of all of
//! them. Nothing but a variant's name tells them from what would end the same way again. If a later
//! hyper changes the names they are final once more, and `tests/steady/http2.rs` says so.

use std::error::Error as StdError;

/// Calls wait together for one connection. If it does not come about, one of them gets the reason, and
/// the others this. It looks like any other failure to connect: like an invalid certificate.
pub(super) fn is_without_connection(link: &(dyn StdError + 'static)) -> bool {
    let variant = format!("{link:?}");
    matches!(
        variant.as_str(),
        "CheckoutNoLongerWanted" | "CheckedOutClosedValue"
    )
}

/// The connection ended while the request waited for its stream. hyper counts it among the mistakes of its
/// user, like a body that fails. It is no proof that nothing was sent: hyper says the same whenever the
/// task of a connection is dropped.
pub(super) fn is_without_dispatcher(error: &hyper::Error) -> bool {
    error.is_user() && format!("{error:?}").starts_with("hyper::Error(User(DispatchGone)")
}
