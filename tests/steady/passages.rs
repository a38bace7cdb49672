//! Who may say how an attempt gets through a throttle: its own one, and no other that is asked on the way. Each of
//! these was wrong once.

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use reqwest_steady::testing::{Reply, ScriptedServer as Server};
use reqwest_steady::*;
use tokio::time::{Instant, sleep, timeout};

use crate::between::{retry, throttle};

const URL: &str = "http://api.example.com/orders?page=7";
const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

fn budget() -> (Budget, f64) {
    let budget = Budget::builder()
        .retry_ratio(0.0)
        .ttl(600 * SEC)
        .build()
        .unwrap();
    let full = budget.balance();
    (budget, full)
}

#[derive(Clone, Copy)]
enum Mode {
    Plain,
    Timeout(Duration),
    Post,
    Poll,
}

struct Greets(ClientWithMiddleware, Mode);

#[async_trait::async_trait]
impl Middleware for Greets {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let other = "http://other.example.com";
        match self.1 {
            Mode::Plain => {
                let _ = self.0.get(other).send().await;
            }
            Mode::Timeout(t) => {
                let _ = timeout(t, self.0.get(other).send()).await;
            }
            Mode::Post => {
                let _ = self.0.post(other).send().await;
            }
            Mode::Poll => {
                for _ in 0..20 {
                    let _ = self.0.get(other).send().await;
                    sleep(500 * MS).await;
                }
            }
        }
        next.run(request, extensions).await
    }
}

fn greeted_stack(
    server: &Arc<Server>,
    retry: RetryMiddlewareBuilder,
    greets: Greets,
    own: Option<ThrottleMiddlewareBuilder>,
) -> ClientWithMiddleware {
    let mut b = ClientBuilder::new(reqwest::Client::new())
        .with(retry.build().unwrap())
        .with(greets);
    if let Some(own) = own {
        b = b.with(own.build().unwrap());
    }
    b.with_arc(server.clone()).build()
}

/// Takes the only place in the greeter's throttle, for ever.
async fn hold(greeter: &ClientWithMiddleware) {
    let holder = greeter.clone();
    tokio::spawn(async move { holder.get("http://other.example.com").send().await });
    sleep(MS).await;
}

/// A greeter whose call waits in its throttle, is given up there, and then the silent server: attempt_timeout
/// must still cut it off.
#[tokio::test(start_paused = true)]
async fn the_clock_goes_on_when_a_wait_in_another_clients_throttle_is_given_up() {
    let greeted = Server::new(|_| Reply::silence());
    let greeter = greeted.client(throttle().max_in_flight(1).build().unwrap());
    hold(&greeter).await;
    let server = Server::new(|_| Reply::silence());
    let client = greeted_stack(
        &server,
        retry().max_retries(0).attempt_timeout(SEC),
        Greets(greeter, Mode::Timeout(500 * MS)),
        None,
    );
    let r = timeout(60 * SEC, client.get(URL).send()).await;
    assert!(
        r.is_ok(),
        "attempt_timeout of 1 s did not end it within 60 s"
    );
}

#[tokio::test(start_paused = true)]
async fn the_clock_goes_on_when_another_clients_throttle_refuses() {
    let greeted = Server::new(|_| Reply::silence());
    let greeter = greeted.client(
        throttle()
            .max_in_flight(1)
            .max_wait(500 * MS)
            .build()
            .unwrap(),
    );
    hold(&greeter).await;
    let server = Server::new(|_| Reply::silence());
    let client = greeted_stack(
        &server,
        retry().max_retries(0).attempt_timeout(SEC),
        Greets(greeter, Mode::Plain),
        None,
    );
    let r = timeout(60 * SEC, client.get(URL).send()).await;
    assert!(
        r.is_ok(),
        "attempt_timeout of 1 s did not end it within 60 s"
    );
}

/// Foreign wait dropped, deadline ends the (really sent) retries: they must be paid.
#[tokio::test(start_paused = true)]
async fn a_retry_is_paid_for_after_a_wait_in_another_clients_throttle() {
    let (budget, full) = budget();
    let greeted = Server::new(|_| Reply::silence());
    let greeter = greeted.client(
        throttle()
            .max_in_flight(1)
            .max_wait(500 * MS)
            .build()
            .unwrap(),
    );
    hold(&greeter).await;
    let server = Server::new(|i| {
        if i == 0 {
            Reply::status(500)
        } else {
            Reply::silence()
        }
    });
    let client = greeted_stack(
        &server,
        retry()
            .max_retries(1)
            .attempt_timeout(SEC)
            .deadline(20 * SEC)
            .budget(budget.clone()),
        Greets(greeter, Mode::Plain),
        None,
    );
    // Without own throttle: first attempt ends 500 -> fare spent at once.
    let _ = timeout(60 * SEC, client.get(URL).send()).await;
    assert_eq!(server.count(), 2);
    assert_eq!(full - budget.balance(), 1.0);
}

/// The same, where every attempt is silent: the first one "timed out in a throttle", so the fare of the second is in
/// its passage.
#[tokio::test(start_paused = true)]
async fn a_retry_is_paid_for_after_waits_elsewhere_and_timeouts() {
    let (budget, full) = budget();
    // The greeter answers fast at first, later its gate is full.
    let greeted = Server::new(|i| {
        if i == 0 {
            Reply::status(200)
        } else {
            Reply::silence()
        }
    });
    let greeter = greeted.client(
        throttle()
            .max_in_flight(1)
            .max_wait(500 * MS)
            .build()
            .unwrap(),
    );
    let holder = greeter.clone();
    let _held = tokio::spawn(async move {
        sleep(500 * MS).await;
        let _ = holder.get("http://other.example.com").send().await;
    });
    let server = Server::new(|_| Reply::silence());
    let client = greeted_stack(
        &server,
        retry()
            .max_retries(1)
            .attempt_timeout(SEC)
            .deadline(20 * SEC)
            .budget(budget.clone()),
        Greets(greeter, Mode::Plain),
        None,
    );
    let _ = timeout(60 * SEC, client.get(URL).send()).await;
    assert_eq!(server.count(), 2);
    assert_eq!(full - budget.balance(), 1.0);
}

/// Foreign throttle lets the greeting through, own throttle refuses the retry: given back.
#[tokio::test(start_paused = true)]
async fn a_refused_retry_is_given_back_although_another_throttle_let_something_through() {
    let (budget, full) = budget();
    let greeted = Server::new(|_| Reply::status(200));
    let greeter = greeted.client(throttle().build().unwrap());
    let server = Server::new(|i| {
        if i == 0 {
            Reply::status(500)
        } else {
            Reply::silence()
        }
    });
    let own = throttle().max_in_flight(1).max_queue(0);
    let client = greeted_stack(
        &server,
        retry().max_retries(1).budget(budget.clone()),
        Greets(greeter, Mode::Plain),
        Some(own),
    );
    let (first, _) = tokio::join!(client.get(URL).send(), async {
        sleep(500 * MS).await;
        let _ = timeout(30 * SEC, client.get("http://api.example.com/other").send()).await;
    });
    assert_eq!(first.unwrap().status(), 500);
    assert_eq!(server.count(), 2);
    assert_eq!(full - budget.balance(), 0.0);
}

/// Dropped while it waits in its own throttle, after a foreign one let a greeting through: given back.
#[tokio::test(start_paused = true)]
async fn a_retry_dropped_in_the_queue_is_given_back_although_another_throttle_let_something_through()
 {
    let (budget, full) = budget();
    let greeted = Server::new(|_| Reply::status(200));
    let greeter = greeted.client(throttle().build().unwrap());
    let server = Server::new(|i| {
        if i == 0 {
            Reply::status(500)
        } else {
            Reply::silence()
        }
    });
    let own = throttle().max_in_flight(1);
    let client = greeted_stack(
        &server,
        retry().max_retries(1).budget(budget.clone()),
        Greets(greeter, Mode::Plain),
        Some(own),
    );
    tokio::join!(
        async {
            let _ = timeout(10 * SEC, client.get(URL).send()).await;
        },
        async {
            sleep(500 * MS).await;
            let _ = timeout(30 * SEC, client.get("http://api.example.com/other").send()).await;
        }
    );
    assert_eq!(server.count(), 2);
    assert_eq!(full - budget.balance(), 0.0);
}

/// Inner calls through a foreign throttle, again and again, in one attempt.
#[tokio::test(start_paused = true)]
async fn what_another_throttle_lets_through_does_not_restart_the_clock() {
    let greeted = Server::new(|_| Reply::status(200));
    let greeter = greeted.client(throttle().build().unwrap());
    let server = Server::new(|_| Reply::silence());
    let client = greeted_stack(
        &server,
        retry().max_retries(0).attempt_timeout(SEC),
        Greets(greeter, Mode::Poll),
        None,
    );
    let begun = Instant::now();
    let _ = client.get(URL).send().await;
    assert_eq!(begun.elapsed().as_secs(), 1);
}

/// Whether an unrelated scope exists anywhere must make no difference.
#[tokio::test(start_paused = true)]
async fn a_scope_elsewhere_makes_no_difference() {
    let mut took = vec![];
    for with in [false, true] {
        let scope = with.then(Scope::new);
        let greeted = Server::new(|_| Reply::status(200));
        let greeter = ClientBuilder::new(reqwest::Client::new())
            .with(retry().max_retries(0).build().unwrap())
            .with(throttle().rate(0.2, 1).build().unwrap())
            .with_arc(greeted.clone())
            .build();
        greeter
            .post("http://other.example.com")
            .send()
            .await
            .unwrap();
        let server = Server::new(|_| Reply::status(200));
        let client = greeted_stack(
            &server,
            retry().max_retries(0).attempt_timeout(SEC),
            Greets(greeter, Mode::Post),
            None,
        );
        let begun = Instant::now();
        let r = client.get(URL).send().await;
        took.push((begun.elapsed().as_secs(), r.is_ok()));
        drop(scope);
    }
    assert_eq!(took[0], took[1]);
}

struct OwnExtensions;
#[async_trait::async_trait]
impl Middleware for OwnExtensions {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let mut own = extensions.clone();
        let answer = next.run(request, &mut own).await;
        *extensions = own;
        answer
    }
}

/// Two retries in a chain; the retry of the outer one is sent, and the caller goes away: it was sent, so it is paid.
async fn sent_and_dropped(inner: RetryMiddlewareBuilder, own_extensions: bool) -> f64 {
    let (budget, full) = budget();
    let server = Server::new(|i| {
        if i == 0 {
            Reply::status(500)
        } else {
            Reply::silence()
        }
    });
    let mut b = ClientBuilder::new(reqwest::Client::new()).with(
        retry()
            .max_retries(1)
            .budget(budget.clone())
            .build()
            .unwrap(),
    );
    if own_extensions {
        b = b.with(OwnExtensions);
    }
    let client = b
        .with(inner.build().unwrap())
        .with(throttle().build().unwrap())
        .with_arc(server.clone())
        .build();
    let r = timeout(5 * SEC, client.get(URL).send()).await;
    assert!(r.is_err());
    assert_eq!(server.count(), 2);
    full - budget.balance()
}
#[tokio::test(start_paused = true)]
async fn the_outer_of_two_retries_has_paid_if_the_inner_has_a_timeout() {
    assert_eq!(
        sent_and_dropped(
            retry().max_retries(0).no_budget().attempt_timeout(60 * SEC),
            false
        )
        .await,
        1.0
    );
}
#[tokio::test(start_paused = true)]
async fn the_outer_of_two_retries_has_paid_if_the_inner_is_plain() {
    assert_eq!(
        sent_and_dropped(retry().max_retries(0).no_budget(), false).await,
        1.0
    );
}
#[tokio::test(start_paused = true)]
async fn the_outer_of_two_retries_has_paid_through_other_extensions() {
    assert_eq!(
        sent_and_dropped(retry().max_retries(0).no_budget().deadline(60 * SEC), true).await,
        1.0
    );
}
#[tokio::test(start_paused = true)]
async fn the_outer_of_two_retries_has_paid_if_the_inner_has_a_deadline() {
    assert_eq!(
        sent_and_dropped(retry().max_retries(0).no_budget().deadline(60 * SEC), false).await,
        1.0
    );
}
#[tokio::test(start_paused = true)]
async fn the_outer_of_two_retries_has_paid_while_there_is_a_scope() {
    let _s = Scope::new();
    assert_eq!(
        sent_and_dropped(retry().max_retries(0).no_budget(), false).await,
        1.0
    );
    assert_eq!(
        sent_and_dropped(retry().max_retries(0).no_budget(), true).await,
        1.0
    );
}

/// Nested client (retry + throttle) does the attempt's real work, after own throttle was passed the first time.
struct Fallback;
#[async_trait::async_trait]
impl Middleware for Fallback {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        match next.run(request, extensions).await {
            Err(e) if Refusal::of(&e).is_some() => {
                let r = http::Response::builder()
                    .status(200)
                    .body("cached")
                    .unwrap();
                Ok(r.into())
            }
            r => r,
        }
    }
}
#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_turned_into_an_answer_is_given_back() {
    let (budget, full) = budget();
    let server = Server::new(|i| {
        if i == 0 {
            Reply::status(500)
        } else {
            Reply::silence()
        }
    });
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(
            retry()
                .max_retries(1)
                .budget(budget.clone())
                .build()
                .unwrap(),
        )
        .with(Fallback)
        .with(throttle().max_in_flight(1).max_queue(0).build().unwrap())
        .with_arc(server.clone())
        .build();
    let (first, _) = tokio::join!(client.get(URL).send(), async {
        sleep(500 * MS).await;
        let _ = timeout(30 * SEC, client.get("http://api.example.com/other").send()).await;
    });
    assert_eq!(first.unwrap().status(), 200);
    assert_eq!(server.count(), 2);
    assert_eq!(full - budget.balance(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn more_values_of_a_header_than_a_map_has_names_are_sent_again() {
    let server = Server::statuses([500, 200]);
    let client = server.client(retry().no_budget().build().unwrap());
    let mut r = client.get(URL).build().unwrap();
    for _ in 0..30_000 {
        r.headers_mut().append("x-tag", "a".parse().unwrap());
    }
    let a = client.execute(r).await.unwrap();
    assert_eq!(a.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_carried_scope_begins_with_the_first_call() {
    use task_local_extensions::{Extensions as Storage, with_extensions};
    let slow = Server::new(|_| Reply::status(200).after(8 * SEC));
    let silent = Server::new(|_| Reply::silence());
    let a = slow.client(CoalesceMiddleware::builder().build().unwrap());
    let b = silent.client(retry().no_budget().build().unwrap());
    let scope = Scope::new().deadline(10 * SEC);
    let begun = Instant::now();
    with_extensions(Storage::new().with(scope.clone()), async {
        a.get(URL).send().await.unwrap();
        b.get(URL).send().await.unwrap_err();
    })
    .await;
    assert_eq!(begun.elapsed().as_secs(), 10);
}

/// One attempt asks two at once: join!
struct Both(ClientWithMiddleware);
#[async_trait::async_trait]
impl Middleware for Both {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let (_, r) = tokio::join!(
            self.0.get("http://other.example.com").send(),
            next.run(request, extensions)
        );
        r
    }
}
/// The greeting waits for its turn for long, the attempt itself was sent and hangs: attempt_timeout holds.
#[tokio::test(start_paused = true)]
async fn the_clock_goes_on_while_a_call_beside_the_attempt_waits_for_its_turn() {
    let greeted = Server::new(|_| Reply::silence());
    let greeter = greeted.client(
        throttle()
            .max_in_flight(1)
            .max_wait(50 * SEC)
            .build()
            .unwrap(),
    );
    hold(&greeter).await;
    let server = Server::new(|_| Reply::silence());
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(retry().max_retries(0).attempt_timeout(SEC).build().unwrap())
        .with(Both(greeter))
        .with_arc(server.clone())
        .build();
    let begun = Instant::now();
    let _ = timeout(40 * SEC, client.get(URL).send()).await;
    assert_eq!(begun.elapsed().as_secs(), 1);
}
/// The own attempt waits for its turn; the greeting was sent: the clock stands still.
#[tokio::test(start_paused = true)]
async fn the_clock_stands_still_while_the_attempt_waits_and_a_call_beside_it_is_sent() {
    let greeted = Server::new(|_| Reply::status(200).after(2 * SEC));
    let greeter = greeted.client(throttle().build().unwrap());
    let server = Server::new(|_| Reply::status(200));
    struct Rev(ClientWithMiddleware);
    #[async_trait::async_trait]
    impl Middleware for Rev {
        async fn handle(
            &self,
            request: Request,
            extensions: &mut Extensions,
            next: Next<'_>,
        ) -> Result<Response> {
            let (r, _) = tokio::join!(next.run(request, extensions), async {
                sleep(MS).await;
                let _ = self.0.get("http://other.example.com").send().await;
            });
            r
        }
    }
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(
            retry()
                .max_retries(0)
                .attempt_timeout(3 * SEC)
                .build()
                .unwrap(),
        )
        .with(Rev(greeter))
        .with(throttle().rate(0.2, 1).build().unwrap())
        .with_arc(server.clone())
        .build();
    client.get(URL).send().await.unwrap();
    let begun = Instant::now();
    let r = client.get(URL).send().await;
    assert!(r.is_ok(), "{r:?} after {:?}", begun.elapsed());
}

/// A panic in the attempt: the fare, and nothing left behind.
#[tokio::test(start_paused = true)]
async fn a_panic_in_an_attempt_leaves_nothing_behind() {
    use futures_util::FutureExt;
    struct Panics(std::sync::atomic::AtomicUsize);
    #[async_trait::async_trait]
    impl Middleware for Panics {
        async fn handle(
            &self,
            request: Request,
            extensions: &mut Extensions,
            next: Next<'_>,
        ) -> Result<Response> {
            if self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
                sleep(MS).await;
                panic!("on purpose");
            }
            next.run(request, extensions).await
        }
    }
    let (budget, full) = budget();
    let server = Server::new(|i| {
        if i == 0 {
            Reply::status(500)
        } else {
            Reply::status(200)
        }
    });
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(
            retry()
                .max_retries(1)
                .budget(budget.clone())
                .attempt_timeout(SEC)
                .build()
                .unwrap(),
        )
        .with(Panics(0.into()))
        .with(throttle().rate(0.2, 1).build().unwrap())
        .with_arc(server.clone())
        .build();
    let r = std::panic::AssertUnwindSafe(client.get(URL).send())
        .catch_unwind()
        .await;
    assert!(r.is_err());
    assert_eq!(full - budget.balance(), 0.0);
    let begun = Instant::now();
    client.get(URL).send().await.unwrap();
    assert!(begun.elapsed() > SEC);
}

/// Attempt timeout while queued / refused by own throttle later / sent: cost of each.
#[tokio::test(start_paused = true)]
async fn an_attempt_costs_what_was_sent() {
    for (rate, deadline, sent, cost) in [(0.1, 5, 1, 0.0), (0.1, 30, 2, 1.0)] {
        let (budget, full) = budget();
        let server = Server::new(|i| {
            if i == 0 {
                Reply::status(500)
            } else {
                Reply::silence()
            }
        });
        let client = ClientBuilder::new(reqwest::Client::new())
            .with(
                retry()
                    .max_retries(1)
                    .budget(budget.clone())
                    .attempt_timeout(SEC)
                    .deadline(deadline * SEC)
                    .build()
                    .unwrap(),
            )
            .with(throttle().rate(rate, 1).build().unwrap())
            .with_arc(server.clone())
            .build();
        let _ = client.get(URL).send().await;
        assert_eq!(server.count(), sent);
        assert_eq!(full - budget.balance(), cost);
    }
}
