//! **Presets**: what is known of the errors of a service, by its name.
//!
//! [`Preset`] is the name. Each service has a file with its [`ServiceRules`]: classes by status and headers, rules that
//! look at bodies, and the header of its keys. Everything here is pure. The rules hold where the user's settings say
//! nothing. `docs/guide/presets.md` says by which document each rule is.

mod anthropic;
mod github;
mod json;
mod kubernetes;
mod openai;
mod s3;
mod stripe;

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method};

use crate::decide::{AttemptView, BodyStart, BodyVerdict, ClassifyResponse, Inspect, InspectRule};

/// Names a service whose errors this crate knows.
///
/// A preset adds rules where the defaults do not know the service: which errors are temporary, and which are final.
/// The page of each service says what it sets, why, and by which document. A preset holds no limits: those belong to
/// your account and change.
///
/// Your own settings win: a `status`, a result of a `classify_fn` or an `inspect_body`, and an `idempotency_header`.
/// A preset never retries a request that may not be sent twice.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::testing::{Reply, ScriptedServer};
/// use reqwest_steady::{ClientBuilderExt, Preset, Steady};
///
/// // GitHub refuses with 403 if there are too many requests.
/// let server = ScriptedServer::new(|before| match before {
///     0 => Reply::status(403).header("retry-after", "30"),
///     _ => Reply::status(200),
/// });
/// let steady = Steady::builder().preset(Preset::GitHub).build()?;
/// let client = ClientBuilder::new(reqwest::Client::new()).with_steady(steady);
/// let client = client.with_arc(server.clone()).build();
///
/// let response = client.get("https://api.github.com/repos/rust-lang/rust").send().await?;
/// assert_eq!(response.status(), 200);
/// assert!(server.gaps()[0] >= Duration::from_secs(30));
/// # Ok(()) }
/// ```
///
/// In a [file](crate::settings), it is `preset = "github"`, before the sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::config::schema::tidy))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Preset {
    /// The API of Stripe. In data: `"stripe"`.
    ///
    /// See its [page](crate::guide::presets#stripe).
    Stripe,
    /// The API of OpenAI. In data: `"openai"`.
    ///
    /// See its [page](crate::guide::presets#openai).
    OpenAi,
    /// The Claude API of Anthropic. In data: `"anthropic"`.
    ///
    /// See its [page](crate::guide::presets#anthropic).
    Anthropic,
    /// The REST API of GitHub. In data: `"github"`.
    ///
    /// See its [page](crate::guide::presets#github).
    GitHub,
    /// Amazon S3, and stores with its API. In data: `"s3"`.
    ///
    /// See its [page](crate::guide::presets#s3).
    S3,
    /// The API server of Kubernetes. In data: `"kubernetes"`.
    ///
    /// See its [page](crate::guide::presets#kubernetes).
    Kubernetes,
}

#[cfg(feature = "serde")]
impl crate::config::choice::Choice for Preset {
    const FORMS: &'static str = "the name of a service, like \"github\"";
}

impl Preset {
    /// Returns the name in data, such as `github`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::GitHub => "github",
            Self::S3 => "s3",
            Self::Kubernetes => "kubernetes",
        }
    }

    pub(crate) fn rules(self) -> ServiceRules {
        match self {
            Self::Stripe => stripe::rules(),
            Self::OpenAi => openai::rules(),
            Self::Anthropic => anthropic::rules(),
            Self::GitHub => github::rules(),
            Self::S3 => s3::rules(),
            Self::Kubernetes => kubernetes::rules(),
        }
    }
}

/// Shows the name in data.
impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a preset knows of its service.
#[derive(Default)]
pub(crate) struct ServiceRules {
    /// The documented header of idempotency keys. `None` if there is no such header.
    pub(crate) key_header: Option<&'static str>,
    /// `None` if status and headers say no more than the defaults know.
    pub(crate) classify: Option<ClassifyResponse>,
    pub(crate) inspect: Vec<InspectRule>,
}

/// A response as the rule of a service sees it.
struct Seen<'a> {
    method: &'a Method,
    status: u16,
    headers: &'a HeaderMap,
    /// The beginning of the body.
    body: &'a [u8],
}

type Judge = fn(&Seen<'_>) -> Option<BodyVerdict>;

/// Makes a rule that shows the selected bodies to a function.
fn inspect(what: Inspect, judge: Judge) -> InspectRule {
    let ask = move |attempt: &AttemptView<'_>, start: &BodyStart<'_>| {
        judge(&Seen {
            method: attempt.method(),
            status: attempt.status()?.as_u16(),
            headers: attempt.headers()?,
            body: start.bytes(),
        })
    };
    InspectRule {
        what,
        ask: Arc::new(ask),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const ALL: [Preset; 6] = [
        Preset::Stripe,
        Preset::OpenAi,
        Preset::Anthropic,
        Preset::GitHub,
        Preset::S3,
        Preset::Kubernetes,
    ];

    pub(super) fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        lines.collect()
    }

    /// What a function says about a response without headers.
    pub(super) fn judge(
        judge: Judge,
        method: Method,
        status: u16,
        body: &str,
    ) -> Option<BodyVerdict> {
        judge(&Seen {
            method: &method,
            status,
            headers: &HeaderMap::new(),
            body: body.as_bytes(),
        })
    }

    #[test]
    fn the_rules_of_every_preset_are_valid() {
        for preset in ALL {
            let rules = preset.rules();
            for rule in &rules.inspect {
                rule.what.check().unwrap();
            }
            assert!(rules.classify.is_some() || !rules.inspect.is_empty());
        }
    }

    #[test]
    fn a_body_that_is_not_understood_changes_nothing() {
        let bodies = [
            "",
            "{",
            "null",
            "<html>",
            "\"code\"",
            "\"code\":",
            "{\"code\":\"",
            "{\"message\":7}",
            "<?xml",
            "<Error>",
            "<Code>",
            "event: error",
            "\u{FEFF}",
        ];
        for (function, statuses) in [
            (openai::judge as Judge, &[429][..]),
            (anthropic::judge_spend, &[429]),
            (anthropic::judge_stream, &[200]),
            (github::judge, &[403]),
            (s3::judge_error, &[400, 409]),
            (s3::judge_success, &[200]),
            (kubernetes::judge, &[429, 500, 503, 504]),
        ] {
            for (status, body) in statuses
                .iter()
                .flat_map(|it| bodies.map(|body| (*it, body)))
            {
                let verdict = judge(function, Method::PUT, status, body);
                assert_eq!(verdict, None, "{status} {body}");
            }
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn the_name_is_that_in_data() {
        for preset in ALL {
            let name = format!("\"{preset}\"");
            assert_eq!(serde_json::to_string(&preset).unwrap(), name);
            assert_eq!(serde_json::from_str::<Preset>(&name).unwrap(), preset);
        }
    }
}
