//! A payments client: what it knows about the money when a response is lost or a card is declined.
//!
//! Without a key, the client cannot send a payment again, because the card could be charged twice. With a key, it
//! retries, and the provider charges the card once. After any call, [`Effect`] says whether the payment happened.
//!
//! `cargo run --example post_with_key`

#[path = "support/print.rs"]
mod print;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use print::{bold, dim, green, red};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_steady::{
    ClientBuilderExt, Effect, IdempotencyKey, ReportSlot, RequestBuilderExt, Steady,
};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let steady = Steady::builder()
        .attempt_timeout(Duration::from_secs(5))
        .deadline(Duration::from_secs(30))
        .build()?;
    let client = ClientBuilder::new(reqwest::Client::new())
        .with_steady(steady)
        .build();

    println!(
        "{}\n",
        bold(
            "Three payments: twice the response is lost after the charge, and once the card is declined."
        )
    );
    println!(
        "{}",
        dim(
            "payment                    requests   charges   effect       next step             report"
        )
    );
    // Use one key per payment, and store it with the payment. Here it is random.
    let key = || Some(IdempotencyKey::random());
    let no_key = pay("no key, response lost", &client, None, "good card").await?;
    let with_key = pay("with key, response lost", &client, key(), "good card").await?;
    let declined = pay("with key, card declined", &client, key(), "bad card").await?;

    ensure!(no_key == (Effect::Unknown, 1));
    ensure!(with_key == (Effect::Happened, 1));
    ensure!(declined == (Effect::DidNotHappen, 0));
    println!(
        "\n{}",
        green("With a key, the client retried the lost payment, and the card was charged once.")
    );
    Ok(())
}

/// Makes one payment at a new provider and prints a line. Returns its effect and the number of charges.
async fn pay(
    name: &str,
    client: &ClientWithMiddleware,
    key: Option<IdempotencyKey>,
    card: &'static str,
) -> anyhow::Result<(Effect, usize)> {
    let provider = Arc::new(Mutex::new(Provider::default()));
    let url = start(provider.clone()).await?;

    let slot = ReportSlot::new();
    let mut payment = client.post(url).body(card).report_to(&slot);
    if let Some(key) = key {
        payment = payment.idempotency_key(key);
    }
    let _ = payment.send().await;
    let effect = slot.effect();
    let (known, step) = match effect {
        // The provider confirmed the payment.
        Effect::Happened => (green("charged"), "deliver the goods"),
        // Nothing was charged, for certain.
        Effect::DidNotHappen => (green("not charged"), "ask for another card"),
        // Either is possible. Never pay again with a new key.
        Effect::Unknown => (red("unknown"), "ask the provider"),
    };

    let provider = provider.lock().unwrap();
    let report = slot.get().context("the call has no report")?;
    println!(
        "{name:<24} {:>10} {:>9}   {known:<11}  {step:<20}  {}",
        provider.requests,
        provider.charges,
        dim(report)
    );
    Ok((effect, provider.charges))
}

/// Charges cards, and remembers what it did for each key.
#[derive(Default)]
struct Provider {
    requests: usize,
    charges: usize,
    done: HashMap<String, StatusCode>,
}

impl Provider {
    /// Returns the status of the response. `None` if the response is lost.
    fn charge(&mut self, key: Option<String>, card: &[u8]) -> Option<StatusCode> {
        self.requests += 1;
        if card != b"good card" {
            return Some(StatusCode::PAYMENT_REQUIRED);
        }
        if let Some(done) = key.as_ref().and_then(|key| self.done.get(key)) {
            return Some(*done);
        }
        self.charges += 1;
        if let Some(key) = key {
            self.done.insert(key, StatusCode::CREATED);
        }
        None
    }
}

/// Serves the provider on loopback, and returns the URL for payments.
async fn start(provider: Arc<Mutex<Provider>>) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let provider = provider.clone();
            let service = service_fn(move |request| respond(provider.clone(), request));
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(format!("http://{address}/payments"))
}

async fn respond(
    provider: Arc<Mutex<Provider>>,
    request: hyper::Request<Incoming>,
) -> io::Result<hyper::Response<Full<Bytes>>> {
    let key = request.headers().get("idempotency-key");
    let key = key.and_then(|key| Some(key.to_str().ok()?.to_owned()));
    let card = request.into_body().collect().await;
    let card = card.map_err(io::Error::other)?.to_bytes();
    let status = provider.lock().unwrap().charge(key, &card);
    // An error here closes the connection without a response.
    let status = status.ok_or_else(|| io::Error::other("the response is lost"))?;
    let mut response = hyper::Response::new(Full::default());
    *response.status_mut() = status;
    Ok(response)
}
