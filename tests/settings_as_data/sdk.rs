//! The SDK of a service, as its author would write it: one struct of settings, and overrides for each request.

use std::sync::Arc;
use std::time::Duration;

use acme::{Config, Options};
use reqwest_steady::testing::{Reply, ScriptedServer};

/// The crate of the SDK.
#[allow(unreachable_pub)] // A crate exports them.
mod acme {
    use std::time::Duration;

    use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware};
    use reqwest_steady::{
        ClientBuilderExt, IdempotencyKey, RequestBuilderExt, Steady, SteadySettings,
    };
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize};

    /// What the users of the SDK write into their own configuration.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub(super) struct Config {
        pub(super) base_url: String,
        pub(super) token: String,
        /// Retries and rate limits.
        #[serde(deserialize_with = "over_our_defaults")]
        pub(super) http: SteadySettings,
    }

    /// What users leave out keeps the defaults of this service.
    fn over_our_defaults<'de, D: Deserializer<'de>>(file: D) -> Result<SteadySettings, D::Error> {
        SteadySettings::read_over(&Config::default().http, file).map_err(D::Error::custom)
    }

    impl Default for Config {
        fn default() -> Self {
            // The defaults of this service differ from those of the crate.
            let mut http = SteadySettings::default();
            http.retry.attempt_timeout = Some(Duration::from_secs(10));
            http.retry.deadline = Some(Duration::from_secs(60));
            http.retry.idempotency_header = Some("Acme-Request-Id".to_owned());
            Self {
                base_url: "http://api.acme.example".to_owned(),
                token: String::new(),
                http,
            }
        }
    }

    /// What differs for one request.
    #[derive(Clone, Debug, Default)]
    pub(super) struct Options {
        pub(super) max_retries: Option<u32>,
        pub(super) deadline: Option<Duration>,
        pub(super) key: Option<String>,
    }

    pub(super) struct Client {
        config: Config,
        steady: Steady,
        http: ClientWithMiddleware,
    }

    impl Client {
        pub(super) fn new(
            config: Config,
            last: impl Middleware,
        ) -> Result<Self, reqwest_steady::ConfigError> {
            let steady = Steady::from_settings(&config.http)?;
            let builder = ClientBuilder::new(reqwest::Client::new());
            let http = builder.with_steady(steady.clone()).with(last).build();
            Ok(Self {
                config,
                steady,
                http,
            })
        }

        /// Takes over another configuration without a restart.
        pub(super) fn reconfigure(
            &self,
            http: &SteadySettings,
        ) -> Result<(), reqwest_steady::ConfigError> {
            self.steady.replace(http)
        }

        pub(super) async fn order(
            &self,
            what: &str,
            options: Options,
        ) -> Result<u16, Box<dyn std::error::Error>> {
            let key = match options.key {
                Some(key) => IdempotencyKey::new(key)?,
                None => IdempotencyKey::random(),
            };
            let mut request = self.http.post(format!("{}/orders", self.config.base_url));
            request = request.bearer_auth(&self.config.token).idempotency_key(key);
            if let Some(retries) = options.max_retries {
                request = request.max_retries(retries);
            }
            if let Some(deadline) = options.deadline {
                request = request.deadline(deadline);
            }
            Ok(request
                .body(what.to_owned())
                .send()
                .await?
                .status()
                .as_u16())
        }
    }
}

struct Last(Arc<ScriptedServer>);

#[async_trait::async_trait]
impl reqwest_middleware::Middleware for Last {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http::Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        self.0.handle(request, extensions, next).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_sdk_has_settings_of_its_users_and_of_each_request() {
    let config: Config = toml::from_str(
        r#"
        token = "secret"
        [http.retry]
        max_retries = 2
        attempt_timeout = "5s"
        "#,
    )
    .unwrap();
    let mut expected = Config {
        token: "secret".to_owned(),
        ..Config::default()
    };
    expected.http.retry.max_retries = 2;
    expected.http.retry.attempt_timeout = Some(Duration::from_secs(5));
    assert_eq!(config, expected);
    let server = ScriptedServer::new(|_| Reply::status(503));
    let client = acme::Client::new(config, Last(server.clone())).unwrap();

    assert_eq!(client.order("tea", Options::default()).await.unwrap(), 503);
    assert_eq!(server.count(), 3);
    let once = Options {
        max_retries: Some(0),
        deadline: Some(Duration::from_secs(1)),
        key: Some("order-7".to_owned()),
    };
    assert_eq!(client.order("tea", once).await.unwrap(), 503);
    assert_eq!(server.count(), 4);

    let mut http = acme::Config::default().http;
    http.retry.max_retries = 1;
    client.reconfigure(&http).unwrap();
    let key = Options {
        key: Some("order-8".to_owned()),
        ..Options::default()
    };
    assert_eq!(client.order("tea", key).await.unwrap(), 503);
    let received = server.received();
    assert_eq!(received.len(), 6);
    let last = &received[4..];
    assert!(
        last.iter()
            .all(|it| it.headers["acme-request-id"] == "order-8")
    );
}

#[test]
fn the_section_around_the_settings_is_the_path_of_the_outer_error() {
    let file = toml::Deserializer::parse("[http.retry]\nmax_retry = 1").unwrap();
    let error = serde_path_to_error::deserialize::<_, Config>(file).unwrap_err();
    assert_eq!(
        format!("{}: {}", error.path(), error.inner().message()),
        "http: retry.max_retry is unknown: did you mean `max_retries`?"
    );
}

#[test]
fn a_typo_in_the_configuration_of_an_sdk_is_found() {
    let error = toml::from_str::<Config>("[http.retry]\nmax_retry = 1").unwrap_err();
    assert_eq!(
        error.message(),
        "retry.max_retry is unknown: did you mean `max_retries`?"
    );
    let error = toml::from_str::<Config>("[http.retry]\ndeadline = \"0s\"").unwrap_err();
    assert_eq!(
        error.message(),
        "retry.deadline (0s) should be longer than zero"
    );
    let mut config = Config::default();
    config.http.retry.deadline = Some(Duration::ZERO);
    assert_eq!(
        config.http.check().unwrap_err().to_string(),
        "retry.deadline (0s) should be longer than zero",
    );
}
