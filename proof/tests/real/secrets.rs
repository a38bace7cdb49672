//! Puts a secret into every place where requests carry one, and searches all output for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderValue, Method};
use metrics_exporter_prometheus::PrometheusBuilder;
use reqwest::{Request, Url};
use reqwest_middleware::Middleware;
use reqwest_steady::dead_letter::{Credentials, JsonLinesReader, JsonLinesSink, Secrets};
use reqwest_steady::observe::Metrics;
use reqwest_steady::{
    CoalesceMiddleware, KeyBy, ReportSlot, RequestBuilderExt, RetryMiddleware, RetryReport,
    SteadyError, ThrottleMiddleware,
};
use tokio::time::timeout;

use crate::support::directory::Directory;
use crate::support::scripted::{Reply, Server, respond_with};
use crate::support::trace::Trace;

const MS: Duration = Duration::from_millis(1);

/// A text in every secret, and nowhere else.
const SECRET: &str = "hush";
/// Not a secret, but only for a replay of the letter.
const PRIVATE: [&str; 2] = ["page-seven", "key-of-this-order"];

const HEADERS: [&str; 19] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "api-key",
    "apikey",
    "x-auth-token",
    "x-access-token",
    "x-csrf-token",
    "x-goog-api-key",
    "x-amz-security-token",
    "ocp-apim-subscription-key",
    "x-functions-key",
    "x-vault-token",
    "private-token",
    "dd-api-key",
    "x-forwarded-client-cert",
    // Named by the user.
    "x-tenant",
    // Marked as sensitive.
    "x-harmless",
];

/// Secrets inside URLs in headers and parameters.
const URLS: [(&str, &str); 3] = [
    ("referer", "https://me:hush@other.example.com/"),
    ("x-copy-source", "https://store.example.com/a?sp=r&sig=hush"),
    ("x-forwarded-uri", "/back?token=hush"),
];

const PARAMETERS: [&str; 15] = [
    "key",
    "api_key",
    "apikey",
    "token",
    "access_token",
    "sig",
    "X-Amz-Signature",
    "X-Amz-Credential",
    "password",
    "client_secret",
    "code",
    "device_code",
    "user_code",
    "%74oken",
    // Named by the user.
    "ticket",
];

/// Builds a request full of secrets. The path selects the behaviour of the server.
fn request(method: Method, path: &str) -> Request {
    let mut url =
        format!("http://{SECRET}-user:{SECRET}-word@api.example.com/{path}?page=page-seven");
    for name in PARAMETERS {
        url += &format!("&{name}={SECRET}");
    }
    url += &format!("&next=https://me:{SECRET}@h/&via=%2Fx%3Ftoken%3D{SECRET}");
    url += &format!("#access_token={SECRET}");
    let mut request = Request::new(method, Url::parse(&url).unwrap());
    for name in HEADERS {
        let mut value = HeaderValue::from_str(&format!("{SECRET} {name}")).unwrap();
        value.set_sensitive(name == "x-harmless");
        request.headers_mut().append(name, value.clone());
        request.headers_mut().append(name, value);
    }
    for (name, value) in URLS {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    if request.method() == Method::PUT {
        let key = HeaderValue::from_static("key-of-this-order");
        request.headers_mut().insert("idempotency-key", key);
    }
    *request.body_mut() = Some("the body is the user's own".into());
    request
}

fn secrets() -> Secrets {
    Secrets::default().header("X-Tenant").parameter("ticket")
}

/// All output, with its place.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<(String, String)>>>);

impl Output {
    fn add(&self, place: &str, text: impl Into<String>) {
        let text = text.into();
        assert!(!text.is_empty(), "no output of {place}");
        self.0.lock().unwrap().push((place.to_owned(), text));
    }

    fn find(&self, text: &str) -> Vec<(String, String)> {
        let all = self.0.lock().unwrap();
        let found = all.iter().filter(|(_, output)| output.contains(text));
        found.cloned().collect()
    }

    fn len(&self, place: &str) -> usize {
        let all = self.0.lock().unwrap();
        all.iter().filter(|(of, _)| of == place).count()
    }
}

/// Responds by path.
fn server() -> Arc<Server> {
    let cookie = || format!("session={SECRET}");
    Server::by_request(move |request| match request.url().path() {
        "/silence" => Reply::silence(),
        "/throttled" => respond_with(429, &[("retry-after", "120"), ("set-cookie", &cookie())]),
        _ => respond_with(503, &[("set-cookie", &cookie())]),
    })
}

#[tokio::test(start_paused = true)]
async fn a_secret_appears_in_no_output_of_any_kind() {
    let output = Output::default();
    let trace = Trace::default();
    let _trace = trace.listen();
    let recorder = PrometheusBuilder::new().build_recorder();
    let _recorder = metrics::set_default_local_recorder(&recorder);

    let directory = Directory::new();
    let file = directory.file("letters.jsonl");
    let metrics = Arc::new(Metrics::new());
    let (events, views) = (output.clone(), output.clone());
    let builder = RetryMiddleware::builder()
        .max_retries(1)
        .attempt_timeout(20 * MS)
        .observer(Arc::clone(&metrics))
        .observe_fn(move |event| events.add("event", format!("{event:?}")))
        .classify_fn(move |view| {
            views.add("view", format!("{view:?} {view:#?}"));
            None
        })
        .secrets(secrets())
        .dead_letter_sink(JsonLinesSink::open(&file).unwrap());
    output.add("builder", format!("{builder:?}"));
    let retry = builder.build().unwrap();
    let gate_events = output.clone();
    let throttle = ThrottleMiddleware::builder()
        .max_in_flight(1)
        .max_queue_wait(10 * MS)
        .key_by(KeyBy::from_fn(|request| {
            format!("{:?}", request.headers()["x-api-key"])
        }))
        .observer(metrics)
        .observe_fn(move |event| gate_events.add("throttle event", format!("{event:?}")));
    output.add("builder", format!("{throttle:?}"));
    let throttle = throttle.build().unwrap();
    let coalesce = CoalesceMiddleware::default();

    let server = server();
    let chain: [Arc<dyn Middleware>; 3] = [
        Arc::new(coalesce.clone()),
        Arc::new(retry.clone()),
        Arc::new(throttle.clone()),
    ];
    let client = server.client_behind(chain);

    // Calls that give up: with and without a key, and with a hint that is too long.
    for (method, path) in [
        (Method::GET, "down"),
        (Method::PUT, "down"),
        (Method::POST, "down"),
        (Method::GET, "throttled"),
    ] {
        let response = client.execute(request(method, path)).await.unwrap();
        output.add(
            "report",
            format!("{:?}", RetryReport::of(&response).unwrap()),
        );
        tokio::time::sleep(200_000 * MS).await;
    }
    // A call that fails with a broken connection, and one that is refused meanwhile. The middlewares are shown, too.
    let (late, refused, ()) = tokio::join!(
        client.execute(request(Method::GET, "silence")),
        client.execute(request(Method::POST, "down")),
        async {
            tokio::time::sleep(5 * MS).await;
            output.add("middleware", format!("{coalesce:?}{coalesce:#?}"));
            output.add("middleware", format!("{retry:?}{retry:#?}"));
            output.add("middleware", format!("{throttle:?}{throttle:#?}"));
        }
    );
    let errors = [late.unwrap_err(), refused.unwrap_err()];
    assert!(
        SteadyError::of(&errors[0]).is_some_and(SteadyError::is_timeout),
        "{errors:?}"
    );
    assert!(SteadyError::of(&errors[1]).is_some_and(SteadyError::is_throttled));
    for error in &errors {
        output.add("error", format!("{error} {error:?} {error:#?}"));
    }
    // A dropped call.
    tokio::time::sleep(200_000 * MS).await;
    let dropped = timeout(MS, client.execute(request(Method::GET, "silence"))).await;
    assert!(dropped.is_err());
    tokio::time::sleep(200_000 * MS).await;
    // An invalid key, and user info that reqwest turns into a header.
    let slot = ReportSlot::new();
    let url = format!("http://{SECRET}:{SECRET}@api.example.com/?token={SECRET}");
    let send = || {
        client
            .post(&url)
            .header("x-api-key", SECRET)
            .report_to(&slot)
    };
    let key = format!("{SECRET} é");
    let invalid = send().idempotency_key(key.as_str()).send().await;
    let invalid = invalid.unwrap_err();
    assert!(invalid.is_builder(), "{invalid:?}");
    output.add("error", format!("{invalid} {invalid:?}"));
    let invalid = send().header("idempotency-key", key.as_str()).send().await;
    let invalid = invalid.unwrap_err();
    assert!(
        SteadyError::of(&invalid).is_some_and(SteadyError::is_config),
        "{invalid:?}"
    );
    output.add("error", format!("{invalid} {invalid:?}"));
    send().idempotency_key(PRIVATE[1]).send().await.unwrap();
    output.add("report", format!("{slot:?}"));

    // The letters, as stored and as shown.
    let mut letters = Vec::new();
    for letter in JsonLinesReader::open_all(&file).unwrap() {
        letters.push(letter.unwrap());
    }
    let whole = std::fs::read_to_string(&file).unwrap();
    let reasons: Vec<_> = letters
        .iter()
        .map(|letter| letter.stop_reason_label())
        .collect();
    assert_eq!(
        reasons,
        [
            "retries_exhausted",
            "retries_exhausted",
            "not_idempotent",
            "server_delay_too_long",
            "throttled",
            "throttled",
            "retries_exhausted",
        ]
    );
    let unavailable = server.client_behind([Arc::new(retry.clone()) as Arc<dyn Middleware>]);
    let wrong = Credentials::for_host("api.example.com")
        .header("authorization", SECRET)
        .parameter("token", SECRET)
        .user_info(SECRET, SECRET);
    output.add("credentials", format!("{wrong:?} {wrong:#?}"));
    for letter in &letters {
        output.add("letter", format!("{letter} {letter:?} {letter:#?}"));
        let replay = letter.replay(&unavailable).credentials(&wrong);
        output.add("replay", format!("{replay:?} {:?}", replay.missing()));
        let refused = replay.await.unwrap_err();
        output.add("replay", format!("{refused} {refused:?}"));
    }
    for (level, message, fields) in trace.events() {
        output.add("log", format!("{level} {message} {fields:?}"));
    }
    output.add("metrics", recorder.handle().render());

    // Each kind of output exists, so the search is not empty.
    for (place, least) in [
        ("event", 40),
        ("throttle event", 20),
        ("log", 12),
        ("metrics", 1),
        ("letter", 7),
        ("error", 3),
        ("report", 5),
        ("middleware", 3),
        ("view", 10),
    ] {
        assert!(output.len(place) >= least, "{place}: {}", output.len(place));
    }
    for private in PRIVATE {
        assert_eq!(output.find(private), [], "in shown output");
        assert!(whole.contains(private), "needed for a replay");
    }
    output.add("file", whole);
    assert_eq!(output.find(SECRET), []);
}
