//! Which requests may be sent twice, and which of them get a key.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::Request;

use crate::request::{
    DEFAULT_HEADER, IdempotencyKey, InvalidKey, RequestOptions, check_header, has_key,
};

/// Where keys go, and whether they come by themselves.
#[derive(Clone, Debug)]
pub(crate) struct KeyRule {
    header: HeaderName,
    /// Whether `header` is another one than [`DEFAULT_HEADER`].
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

    /// The header in which this request has its key, if it has one.
    pub(crate) fn header_of<'a>(&'a self, own: Option<&'a RequestOptions>) -> &'a HeaderName {
        let replayed = own.and_then(|own| own.key_header.as_ref());
        replayed.unwrap_or(&self.header)
    }

    /// Lets keys stand in this header.
    pub(crate) fn rename(&mut self, header: HeaderName) {
        self.renamed = header != DEFAULT_HEADER;
        self.header = header;
    }

    /// Sees to it that the request carries the key that it should. Says whether it carries one.
    #[inline]
    pub(crate) fn settle(
        &self,
        request: &mut Request,
        own: Option<&RequestOptions>,
    ) -> Result<bool, InvalidKey> {
        match own {
            // Whatever is in the header, there is nothing to be done twice.
            None if is_safe(request.method()) && !self.renamed => Ok(false),
            _ => self.settle_for(request, own),
        }
    }

    fn settle_for(
        &self,
        request: &mut Request,
        own: Option<&RequestOptions>,
    ) -> Result<bool, InvalidKey> {
        if let Some(header) = own.and_then(|own| own.key_header.as_ref()) {
            // A second key in another header would name another operation.
            return has_key(request.headers(), header);
        }
        let set = own.and_then(|own| own.key.as_ref());
        if let Some(key) = set {
            let mut lines = request.headers().get_all(&self.header).iter();
            if !self.renamed && lines.next() == Some(key.header_value()) && lines.next().is_none() {
                // It is where it belongs.
                return Ok(true);
            }
        }
        let written = self.take_written(request.headers_mut())?;
        // A request that was built and executed has no settings any more, but the header is left.
        let written = set.map(|key| key.header_value().clone()).or(written);
        let key = if let Some(key) = written {
            key
        } else if is_safe(request.method()) {
            // One that asked for something else.
            return Ok(false);
        } else if has_key(request.headers(), &self.header)? {
            return Ok(true);
        } else if self.auto == AutoKey::Off
            || is_idempotent(request.method())
            || own.is_some_and(|own| own.idempotent)
        {
            // A request that needs no key is left as it is.
            return Ok(false);
        } else {
            match self.auto.key_for(request) {
                Some(key) => key.header_value().clone(),
                None => return Ok(false),
            }
        };
        request.headers_mut().insert(&self.header, key);
        Ok(true)
    }

    /// Takes the key out of the default header, if it belongs elsewhere.
    ///
    /// [`idempotency_key`](crate::RequestBuilderExt::idempotency_key) marks what it writes as sensitive. A
    /// line without the mark was set by hand, and stays.
    fn take_written(&self, headers: &mut HeaderMap) -> Result<Option<HeaderValue>, InvalidKey> {
        if !self.renamed {
            return Ok(None);
        }
        let lines = headers.get_all(DEFAULT_HEADER).iter().cloned();
        let (mut written, by_hand): (Vec<_>, Vec<_>) = lines.partition(HeaderValue::is_sensitive);
        let Some(key) = written.pop() else {
            return Ok(None);
        };
        if !written.is_empty() {
            return Err(InvalidKey::several_lines(written.len() + 1));
        }
        check_header(&key)?;
        headers.remove(DEFAULT_HEADER);
        for line in by_hand {
            headers.append(DEFAULT_HEADER, line);
        }
        Ok(Some(key))
    }
}

/// Whether requests that need a key, and were given none, get one by themselves.
///
/// Off by default: a key means nothing to a server that ignores it, and then a retried `POST` can
/// happen twice. Turn it on for servers that are known to honour keys.
///
/// ```
/// use reqwest_steady::{AutoKey, RetryMiddleware};
///
/// let payments = RetryMiddleware::builder().auto_key(AutoKey::Random).build()?;
/// # Ok::<(), reqwest_steady::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AutoKey {
    /// Only keys that the caller sets.
    #[default]
    Off,
    /// [`IdempotencyKey::random`] for each call.
    Random,
    /// [`IdempotencyKey::from_content`]. A streaming body has no content to compute it from: such
    /// a request gets no key.
    Content,
}

impl AutoKey {
    fn key_for(self, request: &Request) -> Option<IdempotencyKey> {
        match self {
            Self::Off => None,
            Self::Random => Some(IdempotencyKey::random()),
            Self::Content => {
                let body = match request.body() {
                    None => &[][..],
                    Some(body) => body.as_bytes()?,
                };
                Some(IdempotencyKey::from_content(
                    request.method(),
                    request.url(),
                    body,
                ))
            }
        }
    }
}

/// Without an effect that could be had twice: RFC 9110 §9.2.1, and QUERY of RFC 10008.
fn is_safe(method: &Method) -> bool {
    method.is_safe() || method.as_str() == "QUERY"
}

/// Idempotent by definition: RFC 9110 §9.2.2, and QUERY of RFC 10008.
pub(crate) fn is_idempotent(method: &Method) -> bool {
    method.is_idempotent() || is_safe(method)
}
