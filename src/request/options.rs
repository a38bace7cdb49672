//! The options of one request.

use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, HeaderName};
use reqwest::Request;

use super::{BodyFactory, IdempotencyKey};
use crate::config::{ConfigError, longer_than_zero};
use crate::outcome::ReportSlot;

/// The options that [`RequestBuilderExt`](super::RequestBuilderExt) sets. `None` leaves a setting to the middleware.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestOptions {
    pub(crate) max_retries: Option<u32>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    /// The attempt timeout if neither the request nor the middleware sets one.
    pub(crate) fallback_timeout: Option<Duration>,
    pub(crate) idempotent: bool,
    /// The key, which is also in the default header.
    pub(crate) key: Option<IdempotencyKey>,
    /// The header of a replayed key. The key stays there, because the server has seen it there.
    pub(crate) key_header: Option<HeaderName>,
    pub(crate) body: Option<Arc<BodyFactory>>,
    /// The most bytes of a response body to buffer.
    pub(crate) buffer: Option<usize>,
    pub(crate) report: Option<ReportSlot>,
    /// The key is invalid, so the request cannot be built.
    pub(crate) has_invalid_key: bool,
}

impl RequestOptions {
    /// Returns the options of a request, if it has any.
    pub(crate) fn of(extensions: &Extensions) -> Option<&Arc<Self>> {
        extensions.get()
    }

    /// Changes the options in the extensions. They are in an `Arc`, because extensions are cloned for each attempt.
    pub(crate) fn change(extensions: &mut Extensions, change: impl FnOnce(&mut Self)) {
        let options: &mut Arc<Self> = extensions.get_or_insert_default();
        change(Arc::make_mut(options));
    }

    /// Refuses invalid options before anything is sent.
    pub(crate) fn check(&self, request: &Request) -> Result<(), ConfigError> {
        longer_than_zero("attempt_timeout", self.attempt_timeout)?;
        self.body
            .as_ref()
            .map_or(Ok(()), |body| body.check(request))
    }
}
