//! Writes idempotency keys, and knows which methods are idempotent.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::{Body, Request};

use crate::request::{
    DEFAULT_HEADER, IdempotencyKey, InvalidKeyError, RequestOptions, check_header, has_key,
};

/// Which header holds keys, and whether requests get one automatically.
#[derive(Clone, Debug)]
pub(crate) struct KeyRule {
    header: HeaderName,
    /// `header` is not [`DEFAULT_HEADER`].
    renamed: bool,
    pub(crate) auto: AutoKey,
}

impl Default for KeyRule {
    fn default() -> Self {
        Self {
            header: DEFAULT_HEADER,
            renamed: false,
            auto: AutoKey::Off,
        }
    }
}

impl KeyRule {
    pub(crate) fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Returns the header that holds the key of this request, if the request has one.
    pub(crate) fn header_of<'a>(&'a self, options: Option<&'a RequestOptions>) -> &'a HeaderName {
        let replayed = options.and_then(|options| options.key_header.as_ref());
        replayed.unwrap_or(&self.header)
    }

    /// Sets the header that holds keys.
    pub(crate) fn rename(&mut self, header: HeaderName) {
        self.renamed = header != DEFAULT_HEADER;
        self.header = header;
    }

    /// Writes the key that the request needs. Returns whether the request now carries a key.
    ///
    /// For safe methods a plain header does not count, because there is no effect to repeat.
    pub(crate) fn apply(
        &self,
        request: &mut Request,
        options: Option<&RequestOptions>,
    ) -> Result<bool, InvalidKeyError> {
        if let Some(header) = options.and_then(|options| options.key_header.as_ref()) {
            // A replayed request brings its key. A second key in another header would name another operation.
            return has_key(request.headers(), header);
        }
        let from_caller = options.and_then(|options| options.key.as_ref());
        let from_caller = from_caller.map(IdempotencyKey::header_value);
        if !self.renamed && from_caller.is_some() {
            let mut lines = request.headers().get_all(&self.header).iter();
            if lines.next() == from_caller && lines.next().is_none() {
                // `idempotency_key` has already written it to this header.
                return Ok(true);
            }
        }
        let moved = self.take_from_default_header(request.headers_mut())?;
        // After `build` and `execute` the options are lost, and the key is only in the default header.
        let key = match from_caller.cloned().or(moved) {
            Some(key) => key,
            None if is_safe(request.method()) => return Ok(false),
            None if has_key(request.headers(), &self.header)? => return Ok(true),
            None if is_idempotent(request.method()) || options.is_some_and(|it| it.idempotent) => {
                // This request needs no key.
                return Ok(false);
            }
            None => match self.auto.key_for(request) {
                Some(key) => key.header_value().clone(),
                None => return Ok(false),
            },
        };
        request.headers_mut().insert(&self.header, key);
        Ok(true)
    }

    /// Removes the key from the default header if keys belong in another one, and returns it.
    ///
    /// [`idempotency_key`](crate::RequestBuilderExt::idempotency_key) marks its value as sensitive. Lines
    /// without this mark were set by hand and stay.
    fn take_from_default_header(
        &self,
        headers: &mut HeaderMap,
    ) -> Result<Option<HeaderValue>, InvalidKeyError> {
        if !self.renamed {
            return Ok(None);
        }
        let lines = headers.get_all(DEFAULT_HEADER).iter().cloned();
        let (mut marked, by_hand): (Vec<_>, Vec<_>) = lines.partition(HeaderValue::is_sensitive);
        let Some(key) = marked.pop() else {
            return Ok(None);
        };
        if !marked.is_empty() {
            return Err(InvalidKeyError::several_lines(marked.len() + 1));
        }
        check_header(&key)?;
        headers.remove(DEFAULT_HEADER);
        for line in by_hand {
            headers.append(DEFAULT_HEADER, line);
        }
        Ok(Some(key))
    }
}

/// Generates idempotency keys for requests that need one and have none.
///
/// Turn it on only for servers that are known to honour keys. A server that ignores keys can process a retried
/// `POST` twice.
///
/// Default: [`Off`](Self::Off).
///
/// ```
/// use reqwest_steady::{AutoKey, RetryMiddleware};
///
/// let payments = RetryMiddleware::builder().auto_key(AutoKey::Random).build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum AutoKey {
    /// Generates no keys. Only the caller sets them.
    #[default]
    Off,
    /// Generates an [`IdempotencyKey::random`] for each call.
    Random,
    /// Computes an [`IdempotencyKey::from_content`]. Requests with a streaming body get no key.
    Content,
}

#[cfg(feature = "serde")]
impl crate::config::choice::Choice for AutoKey {
    const FORMS: &'static str = "\"off\", \"random\" or \"content\"";
}

impl AutoKey {
    fn key_for(self, request: &Request) -> Option<IdempotencyKey> {
        match self {
            Self::Off => None,
            Self::Random => Some(IdempotencyKey::random()),
            Self::Content => {
                let (method, url) = (request.method(), request.url());
                let body = request.body().map_or(Some(&[][..]), Body::as_bytes)?;
                Some(IdempotencyKey::from_content(method, url, body))
            }
        }
    }
}

/// Whether the method has no effect on the server: RFC 9110 §9.2.1, and QUERY of RFC 10008.
pub(crate) fn is_safe(method: &Method) -> bool {
    method.is_safe() || method.as_str() == "QUERY"
}

/// Whether the method is idempotent by definition: RFC 9110 §9.2.2, and QUERY of RFC 10008.
pub(crate) fn is_idempotent(method: &Method) -> bool {
    method.is_idempotent() || is_safe(method)
}
