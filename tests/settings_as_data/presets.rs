//! Presets: the documented responses of each service, with the number of requests and the waits.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use reqwest_middleware::ClientWithMiddleware;
use reqwest_steady::testing::{Reply, ScriptedServer};
use reqwest_steady::{
    AutoKey, BodyVerdict, Inspect, Preset, RequestBuilderExt, RetryMiddleware, RetryReport,
    StatusClass, Steady, SteadySettings, StopReason,
};

use crate::files::read_toml;
use crate::replace::{change, client};

const URL: &str = "http://api.example.com/things";
const SEC: Duration = Duration::from_secs(1);

/// A response as a service documents it.
#[derive(Clone)]
struct Sample {
    preset: Preset,
    method: Method,
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Sample {
    fn reply(&self) -> Reply {
        let reply = Reply::status(self.status);
        let headers = self.headers.iter();
        let reply = headers.fold(reply, |reply, (name, value)| reply.header(name, value));
        reply.body(self.body.clone())
    }

    /// Sends a request that gets this response and then a 200.
    ///
    /// Returns the status that the caller gets, the number of requests, and the first wait.
    async fn play(&self, retry: RetryMiddleware, key: Option<&str>) -> (u16, usize, Duration) {
        let sample = self.clone();
        let server = ScriptedServer::new(move |before| match before {
            0 => sample.reply(),
            _ => Reply::status(200),
        });
        let client = server.client(retry);
        let mut request = client.request(self.method.clone(), URL);
        if let Some(key) = key {
            request = request.idempotency_key(key);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        if server.count() == 1 {
            // All bytes are there, although a rule has looked at them.
            assert_eq!(response.text().await.unwrap(), self.body);
        }
        let wait = server.gaps().first().copied().unwrap_or_default();
        (status, server.count(), wait)
    }
}

fn sample(preset: Preset, method: Method, status: u16) -> Sample {
    Sample {
        preset,
        method,
        status,
        headers: Vec::new(),
        body: String::new(),
    }
}

impl Sample {
    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    fn json(self, body: &str) -> Self {
        self.typed("application/json; charset=utf-8", body)
    }

    fn typed(mut self, content_type: &str, body: &str) -> Self {
        self.body = body.to_owned();
        self.header("content-type", content_type)
    }
}

/// What follows a sample if the request may be repeated.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// One request.
    Final,
    /// A retry after a wait within the backoff.
    Soon,
    /// A retry after this wait, and at most a second later.
    After(u64),
}

const SPENT: &str = r#"{"error": {"message": "You exceeded your current quota, please check your plan and billing details.", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}}"#;
const SECONDARY: &str = r#"{"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.", "documentation_url": "https://docs.github.com/rest"}"#;

fn samples() -> Vec<(Sample, Then)> {
    [
        stripe(),
        openai(),
        anthropic(),
        github(),
        s3(),
        kubernetes(),
    ]
    .concat()
}

fn stripe() -> Vec<(Sample, Then)> {
    let post = |status| sample(Preset::Stripe, Method::POST, status);
    let in_use = r#"{"error": {"code": "idempotency_key_in_use", "type": "idempotency_error", "message": "There is currently another in-progress request using this Idempotent Key."}}"#;
    let locked = r#"{"error": {"code": "lock_timeout", "type": "invalid_request_error", "message": "This object cannot be accessed right now because another API request or Stripe process is currently accessing it."}}"#;
    let declined = r#"{"error": {"code": "card_declined", "type": "card_error"}}"#;
    let failed = r#"{"error": {"type": "api_error"}}"#;
    vec![
        (post(409).json(in_use), Then::Soon),
        (post(429).json(locked), Then::Soon),
        (post(500).json(failed), Then::Soon),
        (
            post(500).json(failed).header("idempotent-replayed", "true"),
            Then::Final,
        ),
        (post(402).json(declined), Then::Final),
        // The directive is followed with any preset and without one.
        (
            post(409)
                .json(in_use)
                .header("stripe-should-retry", "false"),
            Then::Final,
        ),
        (
            post(400).json("{}").header("stripe-should-retry", "true"),
            Then::Soon,
        ),
    ]
}

fn openai() -> Vec<(Sample, Then)> {
    let post = |status| sample(Preset::OpenAi, Method::POST, status);
    let rate = r#"{"error": {"message": "Rate limit reached for requests", "type": "requests", "param": null, "code": "rate_limit_exceeded"}}"#;
    let spend = r#"{"error": {"message": "…", "type": "insufficient_quota", "code": "organization_spend_limit_exceeded"}}"#;
    let slow = r#"{"error": {"message": "Slow down", "type": "service_unavailable_error", "code": "server_is_overloaded"}}"#;
    vec![
        (post(429).json(SPENT), Then::Final),
        (
            post(429).json(SPENT).header("x-should-retry", "true"),
            Then::Final,
        ),
        (post(429).json(spend), Then::Final),
        (
            post(429).json(rate).header("retry-after-ms", "7000"),
            Then::After(7),
        ),
        (post(429).json(rate), Then::Soon),
        (
            (post(429).json(rate))
                .header("x-ratelimit-remaining-requests", "0")
                .header("x-ratelimit-reset-requests", "8s"),
            Then::After(8),
        ),
        (
            post(429).json(rate).header("x-should-retry", "false"),
            Then::Final,
        ),
        (post(503).json(slow), Then::Soon),
        (post(409), Then::Soon),
        (post(401).json("{}"), Then::Final),
    ]
}

fn anthropic() -> Vec<(Sample, Then)> {
    let post = |status| sample(Preset::Anthropic, Method::POST, status);
    let rate = r#"{"type": "error", "error": {"type": "rate_limit_error", "message": "Number of request tokens has exceeded your per-minute rate limit"}}"#;
    let spent = r#"{"type": "error", "error": {"type": "rate_limit_error", "message": "You have reached your API usage limits", "details": {"error_code": "enforced_spend_limit_reached"}}, "request_id": "req_1"}"#;
    let busy =
        r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#;
    let stream = |event: &str, kind: &str| {
        let data =
            format!(r#"{{"type": "{event}", "error": {{"type": "{kind}", "message": "…"}}}}"#);
        post(200).typed(
            "text/event-stream; charset=utf-8",
            &format!("event: {event}\ndata: {data}\n\n"),
        )
    };
    vec![
        (
            post(429).json(rate).header("retry-after", "7"),
            Then::After(7),
        ),
        (post(429).json(spent), Then::Final),
        (post(529).json(busy), Then::Soon),
        (
            post(529).json(busy).header("retry-after", "9"),
            Then::After(9),
        ),
        (
            post(500).json(r#"{"type": "error", "error": {"type": "api_error"}}"#),
            Then::Soon,
        ),
        (post(504), Then::Soon),
        (post(402), Then::Final),
        (post(409), Then::Final),
        (stream("error", "overloaded_error"), Then::Soon),
        (stream("error", "invalid_request_error"), Then::Final),
        (stream("message_start", "none"), Then::Final),
    ]
}

fn github() -> Vec<(Sample, Then)> {
    let get = |status| sample(Preset::GitHub, Method::GET, status);
    vec![
        (
            get(403).json(SECONDARY).header("retry-after", "20"),
            Then::After(20),
        ),
        (get(403).json(SECONDARY), Then::After(60)),
        (
            get(403)
                .json(SECONDARY)
                .header("x-ratelimit-remaining", "4321"),
            Then::After(60),
        ),
        (get(429), Then::After(60)),
        (get(429).header("retry-after", "20"), Then::After(20)),
        (
            (get(403).json(r#"{"message": "API rate limit exceeded for user ID 1."}"#))
                .header("date", "Wed, 18 Nov 2026 10:00:00 GMT")
                .header("x-ratelimit-remaining", "0")
                .header("x-ratelimit-reset", "1794996030"),
            Then::After(30),
        ),
        // It asks for more than `max_server_delay`.
        (
            (get(403))
                .header("date", "Wed, 18 Nov 2026 10:00:00 GMT")
                .header("x-ratelimit-remaining", "0")
                .header("x-ratelimit-reset", "1794999600"),
            Then::Final,
        ),
        (
            get(403).json(r#"{"message": "Resource not accessible by integration"}"#),
            Then::Final,
        ),
        (get(403), Then::Final),
        (get(502), Then::Soon),
    ]
}

fn s3() -> Vec<(Sample, Then)> {
    let error = |method, status, code: &str| {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>…</Message></Error>"
        );
        sample(Preset::S3, method, status).typed("application/xml", &body)
    };
    let copied =
        "<CopyObjectResult><ETag>\"9b2cf535f27731c974343645a3985328\"</ETag></CopyObjectResult>";
    let put = || Method::PUT;
    vec![
        (error(put(), 503, "SlowDown"), Then::Soon),
        (error(put(), 500, "InternalError"), Then::Soon),
        (error(put(), 400, "RequestTimeout"), Then::Soon),
        (error(put(), 400, "EntityTooLarge"), Then::Final),
        (error(put(), 409, "OperationAborted"), Then::Soon),
        (error(put(), 409, "ConditionalRequestConflict"), Then::Soon),
        (
            error(Method::POST, 409, "ConditionalRequestConflict"),
            Then::Final,
        ),
        (error(Method::DELETE, 409, "BucketNotEmpty"), Then::Final),
        (error(put(), 412, "PreconditionFailed"), Then::Final),
        (error(put(), 200, "InternalError"), Then::Soon),
        (error(Method::POST, 200, "SlowDown"), Then::Soon),
        (error(put(), 200, "AccessDenied"), Then::Final),
        // An object may look like an error.
        (error(Method::GET, 200, "InternalError"), Then::Final),
        (
            sample(Preset::S3, put(), 200).typed("application/xml", copied),
            Then::Final,
        ),
    ]
}

fn kubernetes() -> Vec<(Sample, Then)> {
    let status = |status: u16, reason: &str, details: &str| {
        let body = format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"…","reason":"{reason}","details":{{{details}}},"code":{status}}}"#
        );
        sample(Preset::Kubernetes, Method::PUT, status).typed("application/json", &body)
    };
    let seconds = r#""kind":"pods","retryAfterSeconds":7"#;
    vec![
        (
            status(429, "TooManyRequests", "").header("retry-after", "1"),
            Then::After(1),
        ),
        (status(429, "TooManyRequests", seconds), Then::After(7)),
        (status(500, "ServerTimeout", seconds), Then::After(7)),
        (status(504, "Timeout", seconds), Then::After(7)),
        (status(503, "ServiceUnavailable", ""), Then::Soon),
        (status(409, "Conflict", seconds), Then::Final),
        (status(410, "Expired", ""), Then::Final),
        (status(422, "Invalid", ""), Then::Final),
        (status(403, "Forbidden", ""), Then::Final),
    ]
}

fn with_preset(preset: Preset) -> RetryMiddleware {
    RetryMiddleware::builder().preset(preset).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn documented_responses_are_retried_as_documented() {
    for (sample, then) in samples() {
        let key = (sample.method == Method::POST).then_some("key-1");
        let played = sample.play(with_preset(sample.preset), key).await;
        let (status, count, wait) = played;
        let case = format!(
            "{} {} {:?}: {played:?}",
            sample.preset, sample.status, sample.body
        );
        match then {
            Then::Final => assert_eq!((status, count), (sample.status, 1), "{case}"),
            Then::Soon => {
                assert_eq!((status, count), (200, 2), "{case}");
                assert!(wait <= Duration::from_millis(200), "{case}");
            }
            Then::After(seconds) => {
                assert_eq!((status, count), (200, 2), "{case}");
                let wait = wait.as_secs_f64() - seconds as f64;
                assert!((0.0..=1.0).contains(&wait), "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_preset_retries_a_post_without_a_key() {
    for (mut sample, _) in samples() {
        for method in [Method::POST, Method::PATCH] {
            sample.method = method;
            let (status, count, _) = sample.play(with_preset(sample.preset), None).await;
            assert_eq!(
                (status, count),
                (sample.status, 1),
                "{} {:?}",
                sample.preset,
                sample.body
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_preset_the_same_responses_are_as_ever() {
    for (sample, retries) in [
        (
            sample(Preset::GitHub, Method::GET, 403).header("retry-after", "1"),
            0,
        ),
        (sample(Preset::OpenAi, Method::GET, 429).json(SPENT), 1),
        (sample(Preset::Kubernetes, Method::GET, 504), 1),
    ] {
        let (_, count, _) = sample.play(RetryMiddleware::default(), None).await;
        assert_eq!(count, 1 + retries, "{}", sample.preset);
    }
}

#[tokio::test(start_paused = true)]
async fn settings_of_the_user_win() {
    let forbidden = sample(Preset::GitHub, Method::GET, 403);
    let limited = (forbidden.clone())
        .header("retry-after", "5")
        .json(SECONDARY);
    let never = RetryMiddleware::builder().preset(Preset::GitHub);
    let never = never.status(StatusCode::FORBIDDEN, StatusClass::Never);
    assert_eq!(limited.play(never.build().unwrap(), None).await.1, 1);

    // Also over what the body says.
    let silent = forbidden.clone().json(SECONDARY);
    let never = RetryMiddleware::builder().preset(Preset::GitHub);
    let never = never.classify_fn(|_| Some(StatusClass::Never));
    assert_eq!(silent.play(never.build().unwrap(), None).await.1, 1);
    let retry = RetryMiddleware::builder().preset(Preset::OpenAi);
    let retry = retry.status(StatusCode::TOO_MANY_REQUESTS, StatusClass::Retry);
    let unpaid = sample(Preset::OpenAi, Method::GET, 429).json(SPENT);
    assert_eq!(unpaid.play(retry.build().unwrap(), None).await.1, 2);

    // A function without an opinion leaves the class to the preset.
    let unsure = RetryMiddleware::builder()
        .preset(Preset::GitHub)
        .classify_fn(|_| None);
    let (_, count, wait) = limited.play(unsure.build().unwrap(), None).await;
    assert_eq!(count, 2);
    assert!(wait >= 5 * SEC && wait <= 6 * SEC, "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_the_user_is_asked_before_the_preset() {
    let silent = sample(Preset::GitHub, Method::GET, 403).json(SECONDARY);
    let with_rule = |verdict: Option<BodyVerdict>| {
        let builder = RetryMiddleware::builder().preset(Preset::GitHub);
        let own = Inspect::errors().limit(16);
        builder.inspect_body(own, move |_, start| {
            assert_eq!(start.bytes().len(), 16);
            verdict
        })
    };
    let play = async |verdict| {
        let retry = with_rule(verdict).build().unwrap();
        let (_, count, wait) = silent.play(retry, None).await;
        (count, wait.as_secs())
    };
    assert_eq!(play(Some(BodyVerdict::never())).await, (1, 0));
    let soon = BodyVerdict::retry().after(5 * SEC);
    assert!(matches!(play(Some(soon)).await, (2, 5..=6)));
    // No opinion: the preset reads the same body, and more of it.
    assert!(matches!(play(None).await, (2, 60..=61)));
}

#[tokio::test(start_paused = true)]
async fn the_key_header_of_the_user_wins() {
    for (own, expected) in [
        (None, "idempotency-key"),
        (Some("x-request-id"), "x-request-id"),
    ] {
        let server = ScriptedServer::statuses([503, 200]);
        let mut settings = SteadySettings::default();
        settings.preset = Some(Preset::Stripe);
        settings.retry.idempotency_header = own.map(str::to_owned);
        settings.retry.auto_key = AutoKey::Random;
        let steady = Steady::from_settings(&settings).unwrap();
        let response = client(&steady, &server).post(URL).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let received = server.received();
        assert_eq!(received.len(), 2);
        assert_eq!(received[0].headers[expected], received[1].headers[expected]);
        assert_eq!(steady.retry().idempotency_header(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_preset_is_exchanged_while_a_client_runs() {
    let server = ScriptedServer::new(|before| match before % 2 {
        0 => Reply::status(403).header("retry-after", "1"),
        _ => Reply::status(200),
    });
    let steady = Steady::from_settings(&read_toml("preset = 'github'").unwrap()).unwrap();
    assert_eq!(steady.retry().preset(), Some(Preset::GitHub));
    let client = client(&steady, &server);
    let status = async || client.get(URL).send().await.unwrap().status();
    assert_eq!((status().await, server.count()), (StatusCode::OK, 2));
    assert!(server.gaps()[0] >= SEC);

    for other in [Some(Preset::S3), None] {
        change(&steady, |settings| settings.preset = other);
        assert_eq!(
            (status().await, status().await),
            (StatusCode::FORBIDDEN, StatusCode::OK)
        );
    }
    assert_eq!(server.count(), 2 + 4);
    change(&steady, |settings| settings.preset = Some(Preset::GitHub));
    assert_eq!((status().await, server.count()), (StatusCode::OK, 8));

    // The settings of the retry alone leave it.
    steady.retry().replace(steady.retry().settings()).unwrap();
    assert_eq!(steady.settings().preset, Some(Preset::GitHub));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_preset_does_not_wait_for_bodies() {
    let body = || {
        let chunks = async_body(SEC);
        Reply::status(200)
            .header("content-type", "text/event-stream")
            .body(chunks)
    };
    for (preset, waits) in [
        (None, 0),
        (Some(Preset::GitHub), 0),
        (Some(Preset::Anthropic), 1),
    ] {
        let server: Arc<ScriptedServer> = ScriptedServer::new(move |_| body());
        let mut settings = SteadySettings::default();
        settings.preset = preset;
        let steady = Steady::from_settings(&settings).unwrap();
        let client: ClientWithMiddleware = client(&steady, &server);
        let start = tokio::time::Instant::now();
        let response = client.get(URL).send().await.unwrap();
        assert_eq!(start.elapsed().as_secs(), waits, "{preset:?}");
        assert_eq!(
            RetryReport::of(&response).unwrap().stop_reason(),
            StopReason::Succeeded
        );
        assert_eq!(
            response.text().await.unwrap(),
            "event: message_start\ndata: {}\n\n"
        );
    }
}

/// A body whose only chunk comes after a while.
fn async_body(after: Duration) -> reqwest::Body {
    let chunk = async move {
        tokio::time::sleep(after).await;
        Ok::<_, std::io::Error>("event: message_start\ndata: {}\n\n")
    };
    reqwest::Body::wrap_stream(futures_util::stream::once(chunk))
}

#[test]
fn a_preset_has_its_name_in_data() {
    for (name, preset) in [
        ("stripe", Preset::Stripe),
        ("openai", Preset::OpenAi),
        ("anthropic", Preset::Anthropic),
        ("github", Preset::GitHub),
        ("s3", Preset::S3),
        ("kubernetes", Preset::Kubernetes),
    ] {
        let settings = read_toml(&format!("preset = '{name}'")).unwrap();
        assert_eq!(settings.preset, Some(preset));
        assert_eq!(
            (preset.as_str(), preset.to_string()),
            (name, name.to_owned())
        );
        assert!(
            toml::to_string(&settings)
                .unwrap()
                .contains(&format!("preset = \"{name}\""))
        );
        let steady = Steady::builder().preset(preset).build().unwrap();
        assert_eq!(steady.settings(), settings);
        // A name in the code wins over one in the file, as other settings do.
        let steady = Steady::builder()
            .preset(Preset::Stripe)
            .settings(&settings)
            .build()
            .unwrap();
        assert_eq!(steady.settings().preset, Some(Preset::Stripe));
    }
}

#[test]
fn an_unknown_preset_gets_the_nearest_name() {
    for (name, said) in [
        (
            "gihub",
            "preset (`gihub`) is unknown: did you mean `github`?",
        ),
        (
            "GitHub",
            "preset (`GitHub`) is unknown: did you mean `github`?",
        ),
        (
            "k8s",
            "preset (`k8s`) is unknown: use one of `stripe`, `openai`, `anthropic`, `github`, `s3`, `kubernetes`",
        ),
    ] {
        let file = format!("preset = \"{name}\"");
        assert_eq!(read_toml(&file).unwrap_err(), said);
    }
}
