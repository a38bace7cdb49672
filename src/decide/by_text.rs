//! Recognises failures whose types are private, by their `Debug` text.
//!
//! hyper and hyper-util keep these types private, and a dependency on native-tls would burden every user. Each text is
//! matched as exactly as possible. If a later version changes a text, the failure is no longer retried. Tests in
//! `http2.rs`, `proxy.rs` and `proof/native-tls/` then fail.

use std::error::Error as StdError;

/// Whether the next attempt to connect may succeed after this failure.
pub(super) fn is_transient(link: &(dyn StdError + 'static)) -> bool {
    let text = format!("{link:?}");
    is_without_connection(&text) || is_ended_handshake(&text) || is_refused_tunnel(&text)
}

/// Whether another call failed to open the connection that this call waited for.
///
/// Only that other call gets the cause. reqwest reports both like any other failure to connect, for example an invalid
/// certificate.
fn is_without_connection(text: &str) -> bool {
    matches!(text, "CheckoutNoLongerWanted" | "CheckedOutClosedValue")
}

/// Whether a forward proxy responded to `CONNECT` with neither 200 nor 407, or closed the connection.
///
/// hyper-util hides the status. A retry is always safe, because nothing was sent. To give up would be wrong for 429,
/// 502, 503 and 504, so a 403 costs some retries. A proxy that wants other credentials (407) is another variant, and
/// final.
fn is_refused_tunnel(text: &str) -> bool {
    matches!(text, "TunnelUnsuccessful" | "TunnelUnexpectedEof")
}

/// Whether the server closed the connection during a native-tls handshake. rustls reports an `io::Error` instead.
///
/// With OpenSSL, a reset also comes as an `io::Error`. An alert, an invalid certificate or a protocol other than TLS
/// has another code or reason.
fn is_ended_handshake(text: &str) -> bool {
    const OPENSSL: [&str; 2] = [
        // SSL_ERROR_SYSCALL without an error: end of file. From OpenSSL 1.1, LibreSSL, and OpenSSL 3 while the
        // crate `openssl` does not report the end of file to it.
        "Ssl(Error { code: ErrorCode(5), cause: None },",
        // SSL_ERROR_ZERO_RETURN: the server sent close_notify.
        "Ssl(Error { code: ErrorCode(6), cause: None },",
    ];
    // SSL_ERROR_SSL has many causes. Since OpenSSL 3, end of file is one of them, with this reason.
    const OPENSSL_3: &str = "Ssl(Error { code: ErrorCode(1), cause: Some(Ssl(ErrorStack([Error {";
    const OPENSSL_3_REASON: &str = "reason: \"unexpected eof while reading\"";
    // These two come from the sources of native-tls 0.2.18, schannel 0.1.30 and security-framework 3.7.0. No test
    // covers them, because they need Windows and macOS.
    const SCHANNEL: [&str; 2] = [
        "Custom { kind: UnexpectedEof, error: \"unexpected EOF during handshake\" }",
        // An `io::Error` inside a private type of native-tls.
        "Os { code: 10054, kind: ConnectionReset,",
    ];
    const SECURE_TRANSPORT: [&str; 4] = [
        // errSSLClosedGraceful and errSSLClosedNoNotify. Not errSSLClosedAbort: that is a reset, which servers
        // also send when they want another version of TLS.
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

/// Whether hyper-util cancelled the call because another connection to the host became HTTP/2 first.
///
/// One HTTP/2 connection is enough. The cancelled call had no connection yet, so nothing was sent.
pub(super) fn is_cancelled_for_http2(link: &(dyn StdError + 'static)) -> bool {
    format!("{link:?}")
        == "hyper_util::client::legacy::Error(Canceled, \"ALPN upgraded to HTTP/2\")"
}

/// Whether the connection ended while the request waited for its stream.
///
/// hyper reports it as a user error, like a body that fails. It does not prove that nothing was sent: hyper reports
/// the same when the task of a connection is dropped.
pub(super) fn is_without_dispatcher(error: &hyper::Error) -> bool {
    error.is_user() && format!("{error:?}").starts_with("hyper::Error(User(DispatchGone)")
}

#[cfg(test)]
mod tests {
    use super::*;

    // OpenSSL 3.0 produced these texts on a real socket, except for the reason of an end of file: the crate `openssl`
    // 0.10.82 does not let OpenSSL find it.
    #[test]
    fn of_native_tls_only_a_closed_connection_is_transient() {
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
        let transient = [
            code(5),
            code(6),
            stack(167772454, "unexpected eof while reading"),
            "Custom { kind: UnexpectedEof, error: \"unexpected EOF during handshake\" }".into(),
            "Os { code: 10054, kind: ConnectionReset, message: \"reset\" }".into(),
            "Error { code: -9816, message: \"connection closed with no notification\" }".into(),
            "Error { code: -9805 }".into(),
        ];
        for text in transient {
            assert!(is_ended_handshake(&text), "{text}");
        }
        let permanent = [
            code(1),
            code(55),
            stack(167773200, "sslv3 alert handshake failure"),
            stack(167772427, "wrong version number"),
            stack(167772294, "certificate verify failed"),
            // Text from the server is quoted and escaped, so it does not match.
            stack(167772294, "reason: \"unexpected eof while reading\""),
            "Error { code: -9807, message: \"invalid certificate chain\" }".into(),
            "Custom { kind: InvalidData, error: UnknownIssuer }".into(),
            "unexpected EOF".into(),
        ];
        for text in permanent {
            assert!(!is_ended_handshake(&text), "{text}");
        }
    }
}
