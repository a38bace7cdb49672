//! reqwest-tracing inside the retry: one span per attempt.

use std::sync::Arc;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Result};
use reqwest_steady::observe::Attempt;
use reqwest_steady::{RequestBuilderExt, RetryMiddleware};
use reqwest_tracing::{ReqwestOtelSpanBackend, TracingMiddleware, reqwest_otel_span};
use tracing::Span;

use crate::support::scripted::{Server, URL};
use crate::support::trace::Trace;

/// The code that a user of reqwest-tracing writes to get the number of the attempt into each span.
struct WithResendCount;

impl ReqwestOtelSpanBackend for WithResendCount {
    fn on_request_start(request: &Request, extensions: &mut Extensions) -> Span {
        let count = Attempt::of(extensions).resend_count();
        let name = request.method().as_str();
        reqwest_otel_span!(name = name, request, http.request.resend_count = count)
    }

    fn on_request_end(span: &Span, outcome: &Result<Response>, _: &mut Extensions) {
        reqwest_tracing::default_on_request_end(span, outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn reqwest_tracing_inside_has_a_span_per_attempt() {
    let trace = Trace::default();
    let _listening = trace.listen();
    let server = Server::statuses([503, 503, 200]);
    let spans = TracingMiddleware::<WithResendCount>::new();
    let client = server.client_behind([
        Arc::new(RetryMiddleware::default()) as Arc<dyn Middleware>,
        Arc::new(spans),
    ]);
    let response = client.post(URL).idempotency_key("one").send().await;
    assert_eq!(response.unwrap().status(), 200);
    let spans = trace.spans();
    let seen: Vec<_> = spans
        .iter()
        .map(|span| {
            let field = |name: &str| span.get(name).map(String::as_str);
            (
                field("http.response.status_code"),
                field("http.request.resend_count"),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Some("503"), None),
            (Some("503"), Some("1")),
            (Some("200"), Some("2")),
        ]
    );
}
