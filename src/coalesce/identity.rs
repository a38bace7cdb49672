//! What makes two requests the same.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue};
use http::{Extensions, Method, Version};
use reqwest::{Request, Url};

use crate::observe::Attempt;
use crate::request::RequestSettings;
use crate::throttle::Passed;

/// All of a request by which its answer, or how the answer is come by, could differ. It is compared in
/// full: a hash that two share must not give one the answer of the other.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    method: Method,
    url: Url,
    version: Version,
    /// By name; the values of one name in their order, which may matter.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Of reqwest, for one attempt. With another one, the leader's patience is not the follower's.
    timeout: Option<Duration>,
    /// With another one, the leader would give up earlier, or later, than the follower.
    max_retries: Option<u32>,
}

/// What of a request does not count.
#[derive(Clone, Debug)]
pub(crate) struct Ignored {
    /// As texts, which are quicker to compare: it is done for each header of each request.
    headers: Vec<Box<str>>,
    pub(crate) extensions: bool,
}

impl Default for Ignored {
    fn default() -> Self {
        Self {
            headers: TRACING.map(Box::from).into(),
            extensions: false,
        }
    }
}

/// Headers that say where a request belongs in a log, and nothing else. `baggage` is none of them: it
/// carries what the application puts there, a tenant or a feature, on which the answer may depend.
const TRACING: [&str; 10] = [
    "traceparent",
    "tracestate",
    "b3",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-flags",
    "x-request-id",
    "x-correlation-id",
];

/// Headers that always count: credentials, and those by which HTTP itself selects another answer (RFC
/// 9110 §7.2, §12.5, §13.1, §14.2).
const NEVER_IGNORED: [&str; 18] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "dpop",
    "x-forwarded-user",
    "x-remote-user",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "host",
    "origin",
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
];

/// The signature of AWS is spread over several headers.
const NEVER_IGNORED_START: &str = "x-amz-";

/// `x-api-key`, `ocp-apim-subscription-key`, `private-token`, `x-csrf-token`,
/// `cf-access-jwt-assertion` … Everybody names their own, but nearly all end like this.
const NEVER_IGNORED_ENDS: [&str; 7] = [
    "key",
    "token",
    "secret",
    "password",
    "signature",
    "assertion",
    "credential",
];

fn always_counts(name: &str) -> bool {
    NEVER_IGNORED.contains(&name)
        || name.starts_with(NEVER_IGNORED_START)
        || NEVER_IGNORED_ENDS.iter().any(|end| name.ends_with(end))
}

impl Ignored {
    pub(crate) fn add(&mut self, name: HeaderName) -> Result<(), HeaderName> {
        if always_counts(name.as_str()) {
            return Err(name);
        }
        if !self.has(name.as_str()) {
            self.headers.push(name.as_str().into());
        }
        Ok(())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        let mut headers = self.headers.iter();
        headers.any(|ignored| ignored.eq_ignore_ascii_case(name))
    }

    /// A value that somebody marked as sensitive counts, whatever the header is called.
    fn has_value(&self, name: &HeaderName, value: &HeaderValue) -> bool {
        let name = name.as_str();
        !value.is_sensitive() && self.headers.iter().any(|ignored| **ignored == *name)
    }
}

/// Why a request is not compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unshared {
    /// It is not safe, has a body, or wants an answer of its own.
    ByItself,
    /// Somebody put something into its extensions that an inner middleware may act upon.
    UnknownExtensions,
}

impl Identity {
    pub(crate) fn of(
        request: &Request,
        extensions: &Extensions,
        ignored: &Ignored,
    ) -> Result<Self, Unshared> {
        let own = RequestSettings::of(extensions);
        let is_safe = matches!(
            *request.method(),
            Method::GET | Method::HEAD | Method::OPTIONS
        );
        let has_key = own.is_some_and(|own| own.key.is_some());
        if !is_safe || request.body().is_some() || has_key || wants_its_own(request.headers()) {
            return Err(Unshared::ByItself);
        }
        if !ignored.extensions && !are_known(extensions) {
            return Err(Unshared::UnknownExtensions);
        }
        let mut url = request.url().clone();
        if url.fragment().is_some() {
            // It is not sent (RFC 9110 §7.1).
            url.set_fragment(None);
        }
        let mut headers = Vec::with_capacity(request.headers().len());
        let counting = request.headers().iter();
        let counting = counting.filter(|(name, value)| !ignored.has_value(name, value));
        headers.extend(counting.map(|(name, value)| (name.clone(), value.clone())));
        // Stable, so that the values of one name stay in their order.
        headers.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        Ok(Self {
            method: request.method().clone(),
            url,
            version: request.version(),
            headers,
            timeout: request.timeout().copied(),
            max_retries: own.and_then(|own| own.max_retries),
        })
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }
}

/// Whether the caller asked for an answer that was not made for others (RFC 9111 §5.2.1, §5.4), or
/// promised the server that the request is the only one with its key.
fn wants_its_own(headers: &HeaderMap) -> bool {
    // One look at each is quicker than a search for all.
    headers.iter().any(|(name, line)| match name.as_str() {
        "idempotency-key" => true,
        "cache-control" => lists(line, &["no-cache", "no-store", "max-age=0"]),
        "pragma" => lists(line, &["no-cache"]),
        _ => false,
    })
}

/// Whether `Cache-Control` contains this.
pub(crate) fn has_directive(headers: &HeaderMap, directive: &str) -> bool {
    let mut lines = headers.get_all(CACHE_CONTROL).into_iter();
    lines.any(|line| lists(line, &[directive]))
}

/// Whether this line of a list contains any of these.
fn lists(line: &HeaderValue, directives: &[&str]) -> bool {
    let mut members = line.as_bytes().split(|byte| *byte == b',');
    members.any(|member| {
        let member = member.trim_ascii();
        let mut directives = directives.iter();
        directives.any(|directive| member.eq_ignore_ascii_case(directive.as_bytes()))
    })
}

/// Extensions cannot be compared, but counted.
fn are_known(extensions: &Extensions) -> bool {
    let known = [
        extensions.get::<Arc<RequestSettings>>().is_some(),
        extensions.get::<Attempt>().is_some(),
        extensions.get::<Passed>().is_some(),
    ];
    extensions.len() == known.into_iter().filter(|known| *known).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(change: impl FnOnce(&mut Request)) -> Request {
        let url = "http://user@a.example/b?c=d".parse().unwrap();
        let mut request = Request::new(Method::GET, url);
        change(&mut request);
        request
    }

    fn with(headers: &[(&'static str, &'static str)]) -> Request {
        request(|request| {
            for (name, value) in headers {
                let value = HeaderValue::from_static(value);
                request.headers_mut().append(*name, value);
            }
        })
    }

    fn identity(request: &Request) -> Result<Identity, Unshared> {
        Identity::of(request, &Extensions::new(), &Ignored::default())
    }

    fn same(one: &Request, other: &Request) -> bool {
        identity(one).unwrap() == identity(other).unwrap()
    }

    #[test]
    fn whatever_could_change_the_answer_counts() {
        let plain = request(|_| ());
        assert!(same(&plain, &request(|_| ())));
        for other in [
            request(|it| *it.method_mut() = Method::HEAD),
            request(|it| it.url_mut().set_path("/B")),
            request(|it| it.url_mut().set_query(Some("c=e"))),
            request(|it| it.url_mut().set_query(None)),
            request(|it| it.url_mut().set_username("other").unwrap()),
            request(|it| it.url_mut().set_port(Some(8080)).unwrap()),
            request(|it| *it.version_mut() = Version::HTTP_2),
            request(|it| *it.timeout_mut() = Some(Duration::from_secs(1))),
            with(&[("authorization", "Bearer a")]),
            with(&[("x-tenant", "")]),
            with(&[("baggage", "tenant=a")]),
        ] {
            assert!(!same(&plain, &other), "{other:?}");
        }
        assert!(!same(
            &with(&[("authorization", "Bearer a")]),
            &with(&[("authorization", "Bearer A")])
        ));
        assert!(!same(
            &with(&[("accept", "a"), ("accept", "b")]),
            &with(&[("accept", "b"), ("accept", "a")])
        ));
        // One name more, one value less.
        assert!(!same(
            &with(&[("a", "1"), ("b", "1")]),
            &with(&[("a", "1"), ("a", "1")])
        ));
    }

    #[test]
    fn what_cannot_change_the_answer_does_not() {
        let plain = with(&[("accept", "a"), ("cookie", "b")]);
        assert!(same(&plain, &with(&[("cookie", "b"), ("accept", "a")])));
        for name in TRACING {
            let traced = with(&[("cookie", "b"), (name, "1"), ("accept", "a")]);
            assert!(same(&plain, &traced), "{name}");
        }
        let fragment = request(|it| it.url_mut().set_fragment(Some("here")));
        assert!(same(&request(|_| ()), &fragment));
    }

    #[test]
    fn what_is_not_safe_or_not_known_is_not_compared() {
        let mut methods = [Method::POST, Method::PUT, Method::DELETE].to_vec();
        methods.extend([Method::PATCH, Method::TRACE, Method::CONNECT]);
        methods.push(Method::from_bytes(b"QUERY").unwrap());
        for method in methods {
            let request = request(|it| *it.method_mut() = method);
            assert_eq!(identity(&request).err(), Some(Unshared::ByItself));
        }
        let body = request(|it| *it.body_mut() = Some("".into()));
        assert_eq!(identity(&body).err(), Some(Unshared::ByItself));
        for (name, value) in [
            ("cache-control", "no-store"),
            ("cache-control", "max-age=60, No-Cache"),
            ("cache-control", "Max-Age=0"),
            ("pragma", "no-cache"),
            ("idempotency-key", "key"),
        ] {
            let fresh = with(&[(name, value)]);
            assert_eq!(
                identity(&fresh).err(),
                Some(Unshared::ByItself),
                "{name}: {value}"
            );
        }
        assert!(identity(&with(&[("cache-control", "max-age=60")])).is_ok());

        let mut extensions = Extensions::new();
        extensions.insert(Attempt::FIRST);
        extensions.insert(Arc::new(RequestSettings::default()));
        let plain = request(|_| ());
        let mut ignored = Ignored::default();
        assert!(Identity::of(&plain, &extensions, &ignored).is_ok());
        extensions.insert("the credentials of somebody");
        let unknown = Identity::of(&plain, &extensions, &ignored);
        assert_eq!(unknown.err(), Some(Unshared::UnknownExtensions));
        ignored.extensions = true;
        assert!(Identity::of(&plain, &extensions, &ignored).is_ok());
    }

    #[test]
    fn settings_for_one_request_count_where_they_change_its_outcome() {
        let with = |settings| {
            let mut extensions = Extensions::new();
            extensions.insert(Arc::new(settings));
            Identity::of(&request(|_| ()), &extensions, &Ignored::default())
        };
        let plain = || with(RequestSettings::default()).unwrap();
        let patient = with(RequestSettings {
            deadline: Some(Duration::from_secs(1)),
            ..RequestSettings::default()
        });
        assert!(patient.unwrap() == plain());
        let once = with(RequestSettings {
            max_retries: Some(0),
            ..RequestSettings::default()
        });
        assert!(once.unwrap() != plain());
        let keyed = with(RequestSettings {
            key: Some("key".try_into()),
            ..RequestSettings::default()
        });
        assert_eq!(keyed.err(), Some(Unshared::ByItself));
    }
}
