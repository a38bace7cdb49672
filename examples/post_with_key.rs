//! An order that is placed, but whose answer gets lost on the way.
//!
//! The client cannot know whether the order was placed. Sent again without a key, it would be placed
//! twice; so it is not sent again, and the caller is left with an error. Sent with a key, it is
//! repeated until it is answered, and the server places it once.
//!
//! `cargo run --example post_with_key`

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use reqwest_middleware::ClientBuilder;
use reqwest_steady::{IdempotencyKey, ReportSlot, RequestBuilderExt, RetryMiddleware};
use tokio::net::TcpListener;

/// Takes orders, and remembers which keys it has seen.
#[derive(Default)]
struct Shop {
    arrivals: usize,
    orders: Vec<String>,
    receipts: HashMap<String, String>,
}

impl Shop {
    fn order(&mut self, key: Option<String>, item: String) -> String {
        self.arrivals += 1;
        if let Some(receipt) = key.as_ref().and_then(|key| self.receipts.get(key)) {
            println!("    shop: \"{item}\" again, with a key I know: here is the first receipt");
            return receipt.clone();
        }
        self.orders.push(item.clone());
        let receipt = format!("order no. {}: {item}", self.orders.len());
        println!("    shop: placed {receipt}");
        if let Some(key) = key {
            self.receipts.insert(key, receipt.clone());
        }
        receipt
    }
}

/// Serves the shop, and loses the answer to every request that arrives as an odd one.
async fn open_shop(shop: Arc<Mutex<Shop>>) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let shop = shop.clone();
            let service = service_fn(move |request| serve(shop.clone(), request));
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                // An error here is an answer that was lost on purpose.
                let _ = connection.await;
            });
        }
    });
    Ok(address)
}

async fn serve(
    shop: Arc<Mutex<Shop>>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, std::io::Error> {
    let key = request.headers().get("idempotency-key");
    let key = key.and_then(|key| Some(key.to_str().ok()?.to_owned()));
    let item = request.into_body().collect().await;
    let item = item.map_err(std::io::Error::other)?.to_bytes();
    let mut shop = shop.lock().unwrap();
    let receipt = shop.order(key, String::from_utf8_lossy(&item).into_owned());
    if shop.arrivals % 2 == 1 {
        println!("    shop: (the connection breaks before the answer is out)");
        return Err(std::io::Error::other("answer lost"));
    }
    Ok(hyper::Response::new(Full::from(receipt)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(RetryMiddleware::default())
        .build();

    println!("1. Without a key:");
    let shop = Arc::new(Mutex::new(Shop::default()));
    let url = format!("http://{}/orders", open_shop(shop.clone()).await?);
    let slot = ReportSlot::new();
    let result = client.post(&url).body("a teapot").report_to(&slot).send();
    let error = result.await.expect_err("the answer was lost");
    let report = slot.get().expect("the call has ended");
    println!("    client: {error}");
    println!(
        "    client: not sent again ({}), or it might be placed twice",
        report.stop_reason()
    );
    println!(
        "    -> {} order, and the client does not know of it\n",
        placed(&shop)
    );

    println!("2. With a key:");
    let shop = Arc::new(Mutex::new(Shop::default()));
    let url = format!("http://{}/orders", open_shop(shop.clone()).await?);
    let response = client
        .post(&url)
        .idempotency_key(IdempotencyKey::random())
        .body("a teapot")
        .send()
        .await?;
    println!(
        "    client: {} \"{}\"",
        response.status(),
        response.text().await?
    );
    let arrivals = shop.lock().unwrap().arrivals;
    println!(
        "    -> {} order, from {arrivals} requests: a duplicate avoided",
        placed(&shop)
    );
    Ok(())
}

fn placed(shop: &Mutex<Shop>) -> usize {
    shop.lock().unwrap().orders.len()
}
