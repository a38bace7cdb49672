//! What the page asks for: to run a service, or to show its form.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use lab::service::{Service, ServiceError};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::choices::Choice;
use super::form::{Form, Values, settings};
use super::limits::{self, Bound};
use crate::page::section;
use crate::trial::{self, MakeSteady};
use crate::yours::{InvalidSettings, Yours};

/// The runs at the same time. A run uses one thread.
const MOST_RUNS: usize = 2;
/// How long a run waits for another to end.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Runs simulations, few at once.
pub(super) struct Lab {
    runs: Arc<Semaphore>,
}

/// A response in JSON.
pub(super) struct JsonResponse {
    pub(super) status: StatusCode,
    pub(super) body: String,
}

impl JsonResponse {
    pub(super) fn error(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            body: json!({ "path": "", "message": message.into() }).to_string(),
        }
    }

    fn ok(body: &serde_json::Value) -> Self {
        Self {
            status: StatusCode::OK,
            body: body.to_string(),
        }
    }
}

/// A description that the page has to change. The page shows the message beside the value.
impl From<ServiceError> for JsonResponse {
    fn from(error: ServiceError) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            body: json!({ "path": error.path, "message": error.to_string() }).to_string(),
        }
    }
}

impl From<InvalidSettings> for JsonResponse {
    fn from(error: InvalidSettings) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            body: json!({ "path": error.path, "message": error.message }).to_string(),
        }
    }
}

/// The values of the forms, by their path in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunRequest {
    service: Values,
    #[serde(default)]
    settings: Values,
    /// The settings that have no field, in TOML.
    #[serde(default)]
    other_settings: String,
    #[serde(default = "first_seed")]
    seed: u64,
}

fn first_seed() -> u64 {
    1
}

/// What a form has to show: an example, a service in TOML, or settings in TOML.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormRequest {
    Example(String),
    Service(String),
    Settings(String),
}

impl Lab {
    pub(super) fn new() -> Self {
        Self {
            runs: Arc::new(Semaphore::new(MOST_RUNS)),
        }
    }

    /// Runs a service. Returns its charts, its description in TOML, and the settings in TOML and Rust.
    pub(super) async fn run(&self, body: &[u8]) -> JsonResponse {
        self.try_run(body).await.unwrap_or_else(|response| response)
    }

    #[allow(clippy::disallowed_methods, reason = "it measures real time")]
    async fn try_run(&self, body: &[u8]) -> Result<JsonResponse, JsonResponse> {
        let request: RunRequest = read(body)?;
        let text = Form::service().toml(&request.service)?;
        let service = Service::from_toml(&text)?;
        let yours = settings::read(&request.settings, &request.other_settings)?;
        let (settings_toml, settings_rust) = (yours.to_toml(), yours.to_rust());
        limits::check(&service)?;
        let room = timeout(LONGEST_WAIT, self.runs.clone().acquire_owned()).await;
        let Ok(Ok(room)) = room else {
            let message = "other runs take too long: try again";
            return Err(JsonResponse::error(
                StatusCode::SERVICE_UNAVAILABLE,
                message,
            ));
        };
        let started = Instant::now();
        let bound = Arc::new(Bound::new(started));
        let of_run = bound.clone();
        let run = tokio::task::spawn_blocking(move || {
            // Kept to the end of the run, even if the page has gone.
            let _room = room;
            let make = |seed| yours.steady(seed);
            // Without changes, they are the defaults, which run anyway.
            let make: Option<&MakeSteady<'_>> = match yours.changes().is_empty() {
                true => None,
                false => Some(&make),
            };
            trial::compare(&service, request.seed, make, Some(&of_run))
        });
        let results = run.await.map_err(|error| match error.try_into_panic() {
            Ok(panic) => JsonResponse::error(StatusCode::INTERNAL_SERVER_ERROR, message_of(&panic)),
            Err(_) => JsonResponse::error(StatusCode::INTERNAL_SERVER_ERROR, "the run was stopped"),
        })?;
        if let Some(message) = bound.exceeded() {
            return Err(JsonResponse::error(
                StatusCode::UNPROCESSABLE_ENTITY,
                message,
            ));
        }
        Ok(JsonResponse::ok(&json!({
            "toml": text,
            "settings_toml": match settings_toml.as_str() {
                "" => "# All settings have their defaults.\n",
                changed => changed,
            },
            "settings_rust": settings_rust,
            "html": section(&results).into_string(),
            "requests": bound.requests(),
            "milliseconds": started.elapsed().as_millis() as u64,
        })))
    }

    /// Shows the form of a service or of settings.
    pub(super) fn form(&self, body: &[u8]) -> JsonResponse {
        let form = || {
            let (text, note) = match read(body)? {
                FormRequest::Settings(text) => {
                    let (values, rest) = settings::split(&Yours::from_toml(&text)?);
                    let html = Form::settings().draw(&values).into_string();
                    return Ok(JsonResponse::ok(
                        &json!({ "html": html, "other_settings": rest }),
                    ));
                }
                FormRequest::Service(text) => (text, String::new()),
                FormRequest::Example(name) => {
                    let message = || format!("no example has the name {name:?}");
                    let choice = Choice::find(&name)
                        .ok_or_else(|| JsonResponse::error(StatusCode::NOT_FOUND, message()))?;
                    (choice.text.to_owned(), choice.note())
                }
            };
            let service = Service::from_toml(&text)?;
            let html = Form::service().draw(&values(&service)).into_string();
            Ok(JsonResponse::ok(&json!({ "html": html, "note": note })))
        };
        form().unwrap_or_else(|response: JsonResponse| response)
    }
}

/// Returns the values of a service, by their path.
pub(super) fn values(service: &Service) -> Values {
    let table = service.to_toml().parse::<toml::Table>();
    let mut values = BTreeMap::new();
    super::form::flatten("", &table.expect("valid TOML"), &mut values);
    values
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, JsonResponse> {
    serde_json::from_slice(body).map_err(|error| {
        JsonResponse::error(StatusCode::BAD_REQUEST, format!("not a request: {error}"))
    })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the run failed: {}", text.unwrap_or("no message"))
}
