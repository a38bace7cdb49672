//! Failures that have no type or method that this crate could name.
//!
//! hyper and hyper-util keep these types private. A dependency on native-tls would burden every user. Only the `Debug`
//! text tells these failures apart, and each text is matched as exactly as possible. If a later version changes a text,
//! the failure is no longer retried, and tests in `http2.rs`, `proxy.rs` and `proof/native-tls/` fail.

use std::error::Error as StdError;

/// Whether this failure to connect may be over at the next attempt.
pub(super) fn is_transient(link: &(dyn StdError + 'static)) -> bool {
    let text = format!("{link:?}");
    is_without_connection(&text) || is_ended_handshake(&text) || is_refused_tunnel(&text)
}

/// Calls wait together for one connection. If it does not come about, one of them gets the reason, and
/// the others this. It looks like any other failure to connect: like an invalid certificate.
fn is_without_connection(text: &str) -> bool {
    matches!(text, "CheckoutNoLongerWanted" | "CheckedOutClosedValue")
}

/// A forward proxy answered `CONNECT` with neither 200 nor 407, or with nothing. hyper-util does not tell a 503 from a
/// 403. To ask again is always safe, because nothing was sent. To give up would be wrong for 429, 502, 503 and 504, so
/// a 403 costs some retries. A proxy that wants other credentials (407) is another variant, and final.
fn is_refused_tunnel(text: &str) -> bool {
    matches!(text, "TunnelUnsuccessful" | "TunnelUnexpectedEof")
}

/// native-tls: the server ended the connection during the handshake. rustls reports an `io::Error` then.
///
/// A reset needs no text with OpenSSL, because that comes with an `io::Error`. An alert, a bad certificate or another
/// protocol than TLS has another code, or another reason.
fn is_ended_handshake(text: &str) -> bool {
    const OPENSSL: [&str; 2] = [
        // SSL_ERROR_SYSCALL without an error: end of file. OpenSSL 1.1, LibreSSL, and OpenSSL 3 as well as long as
        // the crate `openssl` does not report the end of file to it.
        "Ssl(Error { code: ErrorCode(5), cause: None },",
        // SSL_ERROR_ZERO_RETURN: the server sent close_notify.
        "Ssl(Error { code: ErrorCode(6), cause: None },",
    ];
    // SSL_ERROR_SSL is almost anything. From OpenSSL 3 on it is also the end of file, with this reason.
    const OPENSSL_3: &str = "Ssl(Error { code: ErrorCode(1), cause: Some(Ssl(ErrorStack([Error {";
    const OPENSSL_3_REASON: &str = "reason: \"unexpected eof while reading\"";
    // The other two were read in the sources of native-tls 0.2.18, schannel 0.1.30 and security-framework 3.7.0.
    // No test meets them: those need Windows and macOS.
    const SCHANNEL: [&str; 2] = [
        "Custom { kind: UnexpectedEof, error: \"unexpected EOF during handshake\" }",
        // An `io::Error` that native-tls wraps so that nobody can get at it.
        "Os { code: 10054, kind: ConnectionReset,",
    ];
    const SECURE_TRANSPORT: [&str; 4] = [
        // errSSLClosedGraceful and errSSLClosedNoNotify. Not errSSLClosedAbort: that is a reset, and also
        // what a server does that wants another version of TLS.
        "Error { code: -9805 ",
        "Error { code: -9805,",
        "Error { code: -9816 ",
        "Error { code: -9816,",
    ];

    let starts_with = |known: &[&str]| known.iter().any(|known| text.starts_with(known));
    starts_with(&OPENSSL)
        || (text.starts_with(OPENSSL_3) && text.contains(OPENSSL_3_REASON))
        || starts_with(&SCHANNEL)
        || starts_with(&SECURE_TRANSPORT)
}

/// Two connections turned out to be HTTP/2 at the same moment, and one is enough: hyper-util cancels the call that
/// opened the other. It has no connection yet, so nothing was sent.
pub(super) fn is_cancelled_for_http2(link: &(dyn StdError + 'static)) -> bool {
    format!("{link:?}")
        == "hyper_util::client::legacy::Error(Canceled, \"ALPN upgraded to HTTP/2\")"
}

/// The connection ended while the request waited for its stream. hyper counts it among the mistakes of its
/// user, like a body that fails. It is no proof that nothing was sent: hyper says the same whenever the
/// task of a connection is dropped.
pub(super) fn is_without_dispatcher(error: &hyper::Error) -> bool {
    error.is_user() && format!("{error:?}").starts_with("hyper::Error(User(DispatchGone)")
}

#[cfg(test)]
mod tests {
    use super::*;

    // What OpenSSL 3.0 says to all of these was seen on a socket, but for the reason of an end of file, which the
    // crate `openssl` 0.10.82 does not let it find.
    #[test]
    fn of_native_tls_only_the_end_of_a_connection_may_pass() {
        let stack = |code: u32, reason: &str| {
            format!(
                "Ssl(Error {{ code: ErrorCode(1), cause: Some(Ssl(ErrorStack([Error {{ code: {code}, \
                 library: \"SSL routines\", function: \"ssl3_read_bytes\", reason: {reason:?}, \
                 file: \"../ssl/record/rec_layer_s3.c\", line: 1601 }}]))) }}, \
                 X509VerifyResult {{ code: 0, error: \"ok\" }})"
            )
        };
        let code = |code: u32| {
            format!(
                "Ssl(Error {{ code: ErrorCode({code}), cause: None }}, \
                 X509VerifyResult {{ code: 0, error: \"ok\" }})"
            )
        };
        let passing = [
            code(5),
            code(6),
            stack(167772454, "unexpected eof while reading"),
            "Custom { kind: UnexpectedEof, error: \"unexpected EOF during handshake\" }".into(),
            "Os { code: 10054, kind: ConnectionReset, message: \"reset\" }".into(),
            "Error { code: -9816, message: \"connection closed with no notification\" }".into(),
            "Error { code: -9805 }".into(),
        ];
        for text in passing {
            assert!(is_ended_handshake(&text), "{text}");
        }
        let last = [
            code(1),
            code(55),
            stack(167773200, "sslv3 alert handshake failure"),
            stack(167772427, "wrong version number"),
            stack(167772294, "certificate verify failed"),
            // What the server says is quoted, and cannot be taken for what OpenSSL says.
            stack(167772294, "reason: \"unexpected eof while reading\""),
            "Error { code: -9807, message: \"invalid certificate chain\" }".into(),
            "Custom { kind: InvalidData, error: UnknownIssuer }".into(),
            "unexpected EOF".into(),
        ];
        for text in last {
            assert!(!is_ended_handshake(&text), "{text}");
        }
    }
}
