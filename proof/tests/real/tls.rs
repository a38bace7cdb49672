//! TLS failures. An untrusted certificate is final, but a peer that closes during the handshake may recover.
//!
//! `proof/native-tls/` runs the same tests with native-tls instead of rustls.

use reqwest::ClientBuilder;
use reqwest_steady::{RetryReport, StopReason};

use crate::identity::{Ending, Identity};
use crate::support::raw::{Server, client, in_time, outcomes, reported, respond, retry};

/// Ends the first handshakes like this, and completes the others. The first response is a 503, then 200s follow.
async fn start(identity: &Identity, endings: &'static [Ending]) -> (Server, String) {
    let config = identity.config(&[]);
    let acceptor = identity.acceptor();
    let open = move |index: usize, tcp| {
        let (acceptor, config) = (acceptor.clone(), config.clone());
        async move {
            if let Some(ending) = endings.get(index) {
                ending.perform(tcp, config).await;
                return None;
            }
            acceptor.accept(tcp).await.ok()
        }
    };
    let server = Server::start_with(open, |index| match index {
        0 => respond(503, "later"),
        _ => respond(200, "whole"),
    })
    .await;
    let url = format!("https://127.0.0.1:{}/orders", server.port());
    (server, url)
}

#[tokio::test]
async fn a_response_over_tls_is_retried_like_any_other() {
    let identity = Identity::of("127.0.0.1");
    let (server, url) = start(&identity, &[]).await;
    let client = client(identity.trusted(), retry());
    let response = in_time(client.get(url).send()).await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(outcomes(report), ["503", "200"]);
    assert_eq!(server.count(), 2);
}

/// Checks that the client makes exactly one connection.
async fn is_final(identity: &Identity, endings: &'static [Ending], inner: ClientBuilder) {
    let (server, url) = start(identity, endings).await;
    let client = client(inner, retry().retry_unsent(true));
    let (result, report) = reported(client.get(&url)).await;
    let error = result.unwrap_err();
    assert!(error.is_connect());
    assert_eq!(error.url().unwrap().as_str(), url);
    assert_eq!(outcomes(&report), ["handshake"], "{endings:?}: {error:?}");
    assert_eq!(report.stop_reason(), StopReason::NotRetryable);
    assert_eq!(server.connections(), 1);
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_final() {
    let stranger = Identity::of("127.0.0.1");
    is_final(&Identity::of("127.0.0.1"), &[], stranger.trusted()).await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_final() {
    let identity = Identity::of("elsewhere.example");
    is_final(&identity, &[], identity.trusted()).await;
}

#[tokio::test]
async fn a_fatal_alert_or_plain_http_during_the_handshake_is_final() {
    let identity = Identity::of("127.0.0.1");
    let refusals: [&'static [Ending]; 3] = [
        &[Ending::HandshakeFailure],
        &[Ending::InternalError],
        &[Ending::PlainHttp],
    ];
    for refusal in refusals {
        is_final(&identity, refusal, identity.trusted()).await;
    }
}

/// Each ending occurs twice in a row, as with a load balancer that has no live server.
const GONE: [&[Ending]; 6] = [
    &[Ending::OnAccept; 2],
    &[Ending::AfterClientHello; 2],
    &[Ending::WithinServerHello; 2],
    &[Ending::AfterServerHello; 2],
    &[Ending::Reset; 2],
    &[Ending::CloseNotify; 2],
];

#[tokio::test]
async fn a_peer_that_closes_during_the_handshake_is_retried() {
    let identity = Identity::of("127.0.0.1");
    for endings in GONE {
        let (server, url) = start(&identity, endings).await;
        let client = client(identity.trusted(), retry());
        let (result, report) = reported(client.get(url)).await;
        let seen = outcomes(&report);
        assert_eq!(
            seen,
            ["connect", "connect", "503", "200"],
            "{endings:?}: {result:?}"
        );
        assert_eq!(server.connections(), 3);
        assert_eq!(server.count(), 2);
    }
}

#[tokio::test]
async fn a_post_without_a_completed_handshake_was_never_sent() {
    let identity = Identity::of("127.0.0.1");
    for endings in GONE {
        let (server, url) = start(&identity, &endings[..1]).await;
        let plain = client(identity.trusted(), retry());
        let error = in_time(plain.post(&url).send()).await.unwrap_err();
        assert!(error.is_connect());
        assert_eq!(server.connections(), 1);

        let (server, url) = start(&identity, &endings[..1]).await;
        let eager = client(identity.trusted(), retry().retry_unsent(true));
        let response = in_time(eager.post(&url).send()).await.unwrap();
        let report = RetryReport::of(&response).unwrap();
        assert_eq!(outcomes(report), ["connect", "503"]);
        assert_eq!(report.stop_reason(), StopReason::NotIdempotent);
        assert_eq!(server.connections(), 2);
        assert_eq!(server.count(), 1);
    }
}
