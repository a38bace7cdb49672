//! A call that has new settings of the retry finds those of the throttle, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use futures_util::future::join_all;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};
use reqwest_steady::testing::ScriptedServer;
use reqwest_steady::{Steady, SteadySettings};

/// Stands behind the retry or behind the throttle, and counts calls whose retry has newer settings than the throttle.
struct Probe {
    steady: Steady,
    is_behind_throttle: bool,
    newest: AtomicU32,
    torn: AtomicU32,
}

impl Probe {
    fn new(steady: &Steady, is_behind_throttle: bool) -> Arc<Self> {
        Arc::new(Self {
            steady: steady.clone(),
            is_behind_throttle,
            newest: AtomicU32::new(0),
            torn: AtomicU32::new(0),
        })
    }
}

#[async_trait]
impl Middleware for Probe {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        // The least limit that the throttle has now, in its settings and in its gates.
        let throttle = match self.is_behind_throttle {
            false => self.steady.throttle().max_in_flight(),
            true => {
                let hosts = self.steady.state().hosts;
                let gates = hosts.iter().flat_map(|host| &host.gates);
                gates.map(|gate| gate.max_in_flight).min().unwrap()
            }
        };
        let number = |name: &str| name.strip_prefix("x-settings-")?.parse::<u32>().ok();
        let mut names = request.headers().keys();
        let retry = names.find_map(|name| number(name.as_str())).unwrap();
        self.newest.fetch_max(retry, Ordering::Relaxed);
        self.torn
            .fetch_add((throttle < retry).into(), Ordering::Relaxed);
        next.run(request, extensions).await
    }
}

/// The settings with this number. The retry has it in the name of a header, and the throttle as a limit.
fn numbered(number: u32) -> SteadySettings {
    let mut settings = SteadySettings::default();
    settings.retry.attempt_header = Some(format!("X-Settings-{number}"));
    settings.throttle.max_in_flight = number;
    settings
}

#[tokio::test]
async fn a_call_with_the_new_retry_finds_the_new_throttle() {
    const FIRST: u32 = 1000;
    let steady = Steady::from_settings(&numbered(FIRST)).unwrap();
    let probes = [false, true].map(|is_behind| Probe::new(&steady, is_behind));
    let server = ScriptedServer::statuses([200]);
    // As `with_steady`, with the probes between.
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(steady.retry().clone())
        .with_arc(probes[0].clone())
        .with(steady.throttle().clone())
        .with_arc(probes[1].clone())
        .with_arc(server.clone())
        .build();
    let done = Arc::new(AtomicBool::new(false));
    let replaces = {
        let (steady, done) = (steady.clone(), done.clone());
        std::thread::spawn(move || {
            let mut number = FIRST;
            while !done.load(Ordering::Relaxed) {
                number += 1;
                steady.replace(&numbered(number)).unwrap();
            }
            number
        })
    };
    let mut calls = 0;
    while calls < 20_000 || (probes[1].newest.load(Ordering::Relaxed) == FIRST && calls < 200_000) {
        let some = (0..10).map(|_| client.get("http://api.example.com/").send());
        for response in join_all(some).await {
            assert_eq!(response.expect("no call is lost").status(), 200);
        }
        calls += 10;
    }
    done.store(true, Ordering::Relaxed);
    assert!(replaces.join().unwrap() > FIRST + 100);
    for probe in probes {
        assert!(probe.newest.load(Ordering::Relaxed) > FIRST);
        assert_eq!(probe.torn.load(Ordering::Relaxed), 0);
    }
}
