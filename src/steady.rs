//! The bundle that most clients install: retry and throttle in the right order, with one observer and one fleet.
//!
//! The middlewares know nothing of this module. [`Steady`] builds them from one place, and
//! [`ClientBuilderExt::with_steady`] adds them to a client.

mod builder;
#[cfg(feature = "serde")]
mod read;
mod replace;
mod state;

use std::fmt;
use std::sync::{Arc, Mutex};

use reqwest_middleware::ClientBuilder;

pub use builder::SteadyBuilder;
#[cfg(feature = "serde")]
pub use read::SettingsError;

use crate::coalesce::CoalesceMiddleware;
use crate::retry::RetryMiddleware;
use crate::throttle::ThrottleMiddleware;

/// Bundles retry and throttle for a client, in the right order.
///
/// This is what most clients need. Give it an [`attempt_timeout`](SteadyBuilder::attempt_timeout) and a
/// [`deadline`](SteadyBuilder::deadline): without a timeout, a silent server blocks the call forever.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = wiremock::MockServer::start().await;
/// # let once = wiremock::Mock::given(wiremock::matchers::any()).respond_with(wiremock::ResponseTemplate::new(503));
/// # once.up_to_n_times(1).mount(&server).await;
/// # let then = wiremock::Mock::given(wiremock::matchers::any()).respond_with(wiremock::ResponseTemplate::new(200));
/// # then.mount(&server).await;
/// # let url = server.uri();
/// use std::time::Duration;
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::{ClientBuilderExt, Steady};
///
/// let steady = Steady::builder()
///     .attempt_timeout(Duration::from_secs(10))
///     .deadline(Duration::from_secs(60))
///     .build()?;
/// let client = ClientBuilder::new(reqwest::Client::new()).with_steady(steady).build();
///
/// let response = client.get(url).send().await?; // 503, then 200
/// assert_eq!(response.status(), 200);
/// # Ok(()) }
/// ```
///
/// # What it installs
///
/// From the outside in:
///
/// 1. A [`CoalesceMiddleware`], if you opt in with [`coalesce`](SteadyBuilder::coalesce).
/// 2. A [`RetryMiddleware`].
/// 3. A [`ThrottleMiddleware`], inside the retry, so that every attempt passes through it.
///
/// To register them one by one, use `.with(..)` of the [`ClientBuilder`]. The [guide](crate::guide) explains each of
/// them.
///
/// Clones share retry budgets and learned limits. The coalescing of a clone is separate.
#[derive(Clone, Default)]
pub struct Steady {
    retry: RetryMiddleware,
    throttle: ThrottleMiddleware,
    coalesce: Option<CoalesceMiddleware>,
    /// Held while settings are replaced, so that two replacements never mix.
    replacing: Arc<Mutex<()>>,
}

impl Steady {
    /// Returns a builder with the default settings.
    pub fn builder() -> SteadyBuilder {
        SteadyBuilder::default()
    }

    /// Returns the retry.
    pub fn retry(&self) -> &RetryMiddleware {
        &self.retry
    }

    /// Returns the throttle.
    pub fn throttle(&self) -> &ThrottleMiddleware {
        &self.throttle
    }

    /// Returns the coalescing, if it is on.
    pub fn coalesce(&self) -> Option<&CoalesceMiddleware> {
        self.coalesce.as_ref()
    }
}

/// Shows the settings of each middleware on one line.
impl fmt::Debug for Steady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steady")
            .field("retry", &format_args!("{:?}", self.retry))
            .field("throttle", &format_args!("{:?}", self.throttle))
            .field("coalesce", &format_args!("{:?}", self.coalesce))
            .finish()
    }
}

/// Adds [`Steady`] to the builder of a client.
pub trait ClientBuilderExt: sealed::Sealed {
    /// Adds retry, throttle and, if it is on, coalescing, in the right order.
    ///
    /// Middleware that you add before it sees the call as a whole. Middleware that you add after it sees every
    /// attempt. Add middleware that sets credentials before it, especially if you use
    /// [`coalesce`](SteadyBuilder::coalesce): headers that are added later are not compared.
    ///
    /// ```
    /// use reqwest_middleware::ClientBuilder;
    /// use reqwest_steady::{ClientBuilderExt, Steady};
    ///
    /// let client = ClientBuilder::new(reqwest::Client::new())
    ///     .with_steady(Steady::default())
    ///     .build();
    /// ```
    #[must_use]
    fn with_steady(self, steady: Steady) -> Self;
}

impl ClientBuilderExt for ClientBuilder {
    fn with_steady(self, steady: Steady) -> Self {
        let builder = match steady.coalesce {
            Some(coalesce) => self.with(coalesce),
            None => self,
        };
        builder.with(steady.retry).with(steady.throttle)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for reqwest_middleware::ClientBuilder {}
}
