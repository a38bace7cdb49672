//! TLS: a certificate that is not trusted today will not be in a second, but a peer that went away
//! during the handshake may be back.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use reqwest::{Certificate, ClientBuilder};
use reqwest_steady::{ReportSlot, RequestBuilderExt, RetryReport, StopReason};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

use crate::support::raw::{Server, Wire, answer, client, direct, in_time, retry};

impl Wire for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// A key of its own for this name, and the certificate that nobody else has signed.
struct Identity(CertifiedKey<rcgen::KeyPair>);

impl Identity {
    fn of(name: &str) -> Self {
        Self(generate_simple_self_signed([name.to_owned()]).unwrap())
    }

    fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::try_from(self.0.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.0.cert.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    /// A client that trusts this one, and nobody else.
    fn trusted(&self) -> ClientBuilder {
        let certificate = Certificate::from_der(self.0.cert.der()).unwrap();
        direct().tls_certs_only([certificate])
    }
}

/// Closes the first connections, and talks TLS on the others: first 503, then 200.
async fn start(identity: &Identity, closed: usize) -> (Server, String) {
    let acceptor = identity.acceptor();
    let open = move |index, tcp| {
        let acceptor = acceptor.clone();
        async move {
            if index < closed {
                return None;
            }
            acceptor.accept(tcp).await.ok()
        }
    };
    let server = Server::start_with(open, |index| match index {
        0 => answer(503, "later"),
        _ => answer(200, "whole"),
    })
    .await;
    let url = format!("https://127.0.0.1:{}/orders", server.port());
    (server, url)
}

fn outcomes(report: &RetryReport) -> Vec<String> {
    let attempts = report.attempts();
    attempts
        .map(|attempt| attempt.outcome().to_string())
        .collect()
}

#[tokio::test]
async fn an_answer_over_tls_is_retried_like_any_other() {
    let identity = Identity::of("127.0.0.1");
    let (server, url) = start(&identity, 0).await;
    let client = client(identity.trusted(), retry());
    let response = in_time(client.get(url).send()).await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(outcomes(report), ["503", "200"]);
    assert_eq!(server.count(), 2);
}

/// The client makes one connection, and never a second.
async fn is_final(identity: &Identity, inner: ClientBuilder) {
    let (server, url) = start(identity, 0).await;
    let client = client(inner, retry().retry_unsent());
    let slot = ReportSlot::new();
    let get = client.get(&url).report_to(&slot);
    let error = in_time(get.send()).await.unwrap_err();
    assert!(error.is_connect());
    assert_eq!(error.url().unwrap().as_str(), url);
    let report = slot.get().unwrap();
    assert_eq!(outcomes(&report), ["handshake"]);
    assert_eq!(report.stop(), StopReason::NotRetryable);
    assert_eq!(server.connections(), 1);
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_final() {
    let stranger = Identity::of("127.0.0.1");
    is_final(&Identity::of("127.0.0.1"), stranger.trusted()).await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_final() {
    let identity = Identity::of("elsewhere.example");
    is_final(&identity, identity.trusted()).await;
}

#[tokio::test]
async fn a_peer_that_goes_away_during_the_handshake_is_tried_again() {
    let identity = Identity::of("127.0.0.1");
    let (server, url) = start(&identity, 2).await;
    let client = client(identity.trusted(), retry());
    let response = in_time(client.get(url).send()).await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(outcomes(report), ["connect", "connect", "503", "200"]);
    assert_eq!(server.connections(), 3);
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn a_post_that_met_no_handshake_was_never_sent() {
    let identity = Identity::of("127.0.0.1");
    let (server, url) = start(&identity, 1).await;
    let plain = client(identity.trusted(), retry());
    let error = in_time(plain.post(&url).send()).await.unwrap_err();
    assert!(error.is_connect());
    assert_eq!(server.connections(), 1);

    let (server, url) = start(&identity, 1).await;
    let eager = client(identity.trusted(), retry().retry_unsent());
    let response = in_time(eager.post(&url).send()).await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(outcomes(report), ["connect", "503"]);
    assert_eq!(report.stop(), StopReason::NotIdempotent);
    assert_eq!(server.connections(), 2);
    assert_eq!(server.count(), 1);
}
