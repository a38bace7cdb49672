//! What makes two requests the same.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue};
use http::{Extensions, Method, Version};
use reqwest::{Request, Url};

use super::spare_text::{empty_text, leave_text};
use crate::handoff::Handoff;
use crate::outcome::{Attempt, FailedReport};
use crate::request::RequestOptions;

/// All of a request by which its answer, or how the answer is come by, could differ. It is compared in
/// full: a hash that two share must not give one the answer of the other.
///
/// Most calls are alone, and then nobody ever looks at it. So it is made to be quickly made: one copy
/// of the URL and the headers, as they come, in one piece of memory.
pub(crate) struct Identity {
    terms: Terms,
    /// The URL, and then name and value of each header, all after their lengths: wherever one ends and
    /// the next begins, no two requests that differ have the same text.
    text: Vec<u8>,
}

/// What else than URL and headers counts.
#[derive(PartialEq, Eq)]
struct Terms {
    method: SafeMethod,
    version: Version,
    /// Of reqwest, for one attempt. With another one, the leader's patience is not the follower's.
    timeout: Option<Duration>,
    /// With another one, the leader would give up earlier, or later, than the follower.
    max_retries: Option<u32>,
    /// With another one, the leader would time out earlier, or later, than the follower.
    attempt_timeout: Option<Duration>,
}

impl Hash for Terms {
    /// Of what most requests to one URL have in common, no more than tells them apart.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.method as u8);
        if let Some(timeout) = self.timeout {
            timeout.hash(state);
        }
    }
}

/// One of those that may be shared.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum SafeMethod {
    Get,
    Head,
    Options,
}

impl SafeMethod {
    fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET => Some(Self::Get),
            Method::HEAD => Some(Self::Head),
            Method::OPTIONS => Some(Self::Options),
            _ => None,
        }
    }
}

/// What a length takes, or those of a name and its value.
const LENGTH: usize = size_of::<u64>();

/// What most headers take, at most. For longer ones, the text grows.
const HEADER: usize = 64;

/// What of a request does not count.
#[derive(Clone, Debug)]
pub(crate) struct Ignored {
    /// As texts, which are quicker to compare: it is done for each header of each request.
    headers: Vec<Box<str>>,
    /// The [`mark`]s of them all: what has none of these is none of them, and most have none.
    marks: u64,
    pub(crate) extensions: bool,
}

impl Default for Ignored {
    fn default() -> Self {
        Self {
            headers: TRACING.map(Box::from).into(),
            marks: TRACING.into_iter().map(mark).fold(0, |all, one| all | one),
            extensions: false,
        }
    }
}

/// Headers that say where a request belongs in a log, and nothing else. `baggage` is none of them: it
/// carries what the application puts there, a tenant or a feature, on which the answer may depend.
const TRACING: [&str; 10] = [
    "traceparent",
    "tracestate",
    "x-request-id",
    "x-correlation-id",
    "b3",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-flags",
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

/// One bit of 64, by the length of a name and how it ends.
fn mark(name: &str) -> u64 {
    let end = name.as_bytes().last().copied().unwrap_or_default();
    1 << ((name.len() * 5 + usize::from(end)) % 64)
}

impl Ignored {
    pub(crate) fn add(&mut self, name: HeaderName) -> Result<(), HeaderName> {
        if always_counts(name.as_str()) {
            return Err(name);
        }
        if !self.has(name.as_str()) {
            self.headers.push(name.as_str().into());
            self.marks |= mark(name.as_str());
        }
        Ok(())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        let mut headers = self.headers.iter();
        headers.any(|ignored| ignored.eq_ignore_ascii_case(name))
    }

    /// A value that somebody marked as sensitive counts, whatever the header is called.
    fn has_value(&self, name: &str, value: &HeaderValue) -> bool {
        self.marks & mark(name) != 0
            && !value.is_sensitive()
            && self.headers.iter().any(|ignored| **ignored == *name)
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
    /// With a hash of it, which is the same for all that are equal and have the same hasher.
    pub(crate) fn of(
        request: &Request,
        extensions: &Extensions,
        ignored: &Ignored,
        hasher: &RandomState,
    ) -> Result<(Self, u64), Unshared> {
        let method = SafeMethod::of(request.method()).ok_or(Unshared::ByItself)?;
        let own = RequestOptions::of(extensions);
        let has_key = own.is_some_and(|own| own.key.is_some());
        if request.body().is_some() || has_key {
            return Err(Unshared::ByItself);
        }
        let headers = request.headers();
        if !extensions.is_empty() && !ignored.extensions && !are_known(extensions) {
            let wants_its_own = headers
                .iter()
                .any(|(name, line)| wants_its_own(name.as_str(), line));
            return Err(match wants_its_own {
                true => Unshared::ByItself,
                false => Unshared::UnknownExtensions,
            });
        }
        let terms = Terms {
            method,
            version: request.version(),
            timeout: request.timeout().copied(),
            max_retries: own.and_then(|own| own.max_retries),
            attempt_timeout: own.and_then(|own| own.attempt_timeout),
        };
        let url = sent(request.url());
        let mut text = empty_text(LENGTH + url.len() + headers.len() * HEADER);
        text.extend_from_slice(&(url.len() as u64).to_ne_bytes());
        text.extend_from_slice(url.as_bytes());
        let mut state = hasher.build_hasher();
        terms.hash(&mut state);
        state.write(&text);
        let sum = copy(headers, ignored, &mut text, hasher).ok_or(Unshared::ByItself)?;
        Ok((Self { terms, text }, sum.wrapping_add(state.finish())))
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.terms.timeout
    }

    pub(crate) fn is_head(&self) -> bool {
        self.terms.method == SafeMethod::Head
    }

    /// The URL, and the headers by name. The values of one name are in their order, which may matter.
    fn sorted(&self) -> Option<(&[u8], Vec<Line<'_>>)> {
        let mut rest = &self.text[..];
        let length = take_length(&mut rest)?;
        let url = take(&mut rest, length as usize)?;
        let mut headers = Vec::new();
        while !rest.is_empty() {
            let lengths = take_length(&mut rest)?;
            let name = take(&mut rest, (lengths >> 32) as usize)?;
            headers.push([name, take(&mut rest, lengths as u32 as usize)?]);
        }
        // Stable.
        headers.sort_by_key(|[name, _]| *name);
        Some((url, headers))
    }
}

/// Name and value of a header.
type Line<'a> = [&'a [u8]; 2];

impl Drop for Identity {
    fn drop(&mut self) {
        leave_text(std::mem::take(&mut self.text));
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.terms == other.terms
            && self.text.len() == other.text.len()
            // Who asks the same mostly writes it in the same order, too.
            && (self.text == other.text
                || self.sorted().is_some_and(|own| other.sorted() == Some(own)))
    }
}

/// A URL without its fragment, which is not sent (RFC 9110 §7.1).
fn sent(url: &Url) -> &str {
    let whole = url.as_str();
    let end = url.fragment().map_or(0, |fragment| fragment.len() + 1);
    &whole[..whole.len() - end]
}

/// Adds the headers that count to the text, and gives their hash, which is the same in any order:
/// unless one of them forbids to share. All in one pass, for that is most of the cost.
fn copy(
    headers: &HeaderMap,
    ignored: &Ignored,
    text: &mut Vec<u8>,
    hasher: &RandomState,
) -> Option<u64> {
    let mut sum = 0_u64;
    for (name, value) in headers {
        let name = name.as_str();
        if wants_its_own(name, value) {
            return None;
        }
        if ignored.has_value(name, value) {
            continue;
        }
        let start = text.len();
        // Neither is anywhere near so long.
        let lengths = (name.len() as u64) << 32 | value.len() as u64;
        text.extend_from_slice(&lengths.to_ne_bytes());
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(value.as_bytes());
        let mut state = hasher.build_hasher();
        state.write(&text[start..]);
        // To sort them would take longer than all the rest.
        sum = sum.wrapping_add(state.finish());
    }
    Some(sum)
}

fn take_length(text: &mut &[u8]) -> Option<u64> {
    let length = take(text, LENGTH)?.try_into().ok();
    length.map(u64::from_ne_bytes)
}

/// So many bytes, which are taken from the beginning of a text.
fn take<'a>(text: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = text.split_at_checked(length)?;
    *text = rest;
    Some(taken)
}

/// Whether the caller asked for an answer that was not made for others (RFC 9111 §5.2.1, §5.4), or
/// promised the server that the request is the only one with its key.
#[inline(always)] // Asked for each header, and mostly answered by the length of its name.
fn wants_its_own(name: &str, line: &HeaderValue) -> bool {
    match name {
        "idempotency-key" => true,
        "cache-control" => lists(line, &["no-cache", "no-store", "max-age=0"]),
        "pragma" => lists(line, &["no-cache"]),
        _ => false,
    }
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
#[inline(never)] // Most requests have none.
fn are_known(extensions: &Extensions) -> bool {
    let known = [
        extensions.get::<Arc<RequestOptions>>().is_some(),
        extensions.get::<Attempt>().is_some(),
        extensions.get::<Handoff>().is_some(),
        extensions.get::<FailedReport>().is_some(),
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

    fn of(
        request: &Request,
        extensions: &Extensions,
        ignored: &Ignored,
    ) -> Result<Identity, Unshared> {
        let (identity, _) = Identity::of(request, extensions, ignored, &RandomState::default())?;
        Ok(identity)
    }

    fn identity(request: &Request) -> Result<Identity, Unshared> {
        of(request, &Extensions::new(), &Ignored::default())
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

    /// All parts are in one text.
    #[test]
    fn it_counts_where_one_part_ends_and_the_next_begins() {
        let long = "v".repeat(1000);
        let long: &'static str = long.leak();
        for (one, other) in [
            (&[("a", "bc")][..], &[("ab", "c")][..]),
            (&[("a", "1b"), ("c", "2")], &[("a", "1"), ("bc", "2")]),
            (&[("a", "b"), ("c", "")], &[("a", ""), ("c", "b")]),
            (&[("a", ""), ("a", "b")], &[("a", "b"), ("a", "")]),
            (&[("a", "bab")], &[("a", "b"), ("a", "b")]),
            (&[("a", long), ("b", "c")], &[("a", long), ("bc", "")]),
        ] {
            assert!(same(&with(one), &with(one)), "{one:?}");
            assert!(!same(&with(one), &with(other)), "{one:?}, {other:?}");
        }
        let url = |path| request(|it| it.url_mut().set_path(path));
        let mut longer = url("/b");
        let value = HeaderValue::from_static("d");
        longer.headers_mut().append("c", value);
        assert!(!same(&url("/bcd"), &longer));
    }

    #[test]
    fn what_is_the_same_has_the_same_hash() {
        let hasher = RandomState::default();
        let hash = |request: &Request| {
            let known = Identity::of(request, &Extensions::new(), &Ignored::default(), &hasher);
            known.unwrap_or_else(|reason| panic!("{reason:?}")).1
        };
        let plain = with(&[("accept", "a"), ("accept", "b"), ("cookie", "c")]);
        let order = with(&[("cookie", "c"), ("accept", "a"), ("accept", "b")]);
        let traced = with(&[
            ("accept", "a"),
            ("b3", "0"),
            ("accept", "b"),
            ("cookie", "c"),
        ]);
        assert!(same(&plain, &order) && same(&plain, &traced));
        assert_eq!(hash(&plain), hash(&order));
        assert_eq!(hash(&plain), hash(&traced));
        for other in [
            with(&[("accept", "a"), ("accept", "b"), ("cookie", "d")]),
            with(&[("accept", "a"), ("accept", "b")]),
            with(&[]),
        ] {
            assert_ne!(hash(&plain), hash(&other), "{other:?}");
        }
        let mut head = with(&[]);
        *head.method_mut() = Method::HEAD;
        assert_ne!(hash(&with(&[])), hash(&head));
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
        extensions.insert(Handoff::default());
        extensions.insert(Arc::new(RequestOptions::default()));
        let plain = request(|_| ());
        let mut ignored = Ignored::default();
        assert!(of(&plain, &extensions, &ignored).is_ok());
        extensions.insert("the credentials of somebody");
        let unknown = of(&plain, &extensions, &ignored);
        assert_eq!(unknown.err(), Some(Unshared::UnknownExtensions));
        ignored.extensions = true;
        assert!(of(&plain, &extensions, &ignored).is_ok());
    }

    #[test]
    fn settings_for_one_request_count_where_they_change_its_outcome() {
        let with = |settings| {
            let mut extensions = Extensions::new();
            extensions.insert(Arc::new(settings));
            of(&request(|_| ()), &extensions, &Ignored::default())
        };
        let plain = || with(RequestOptions::default()).unwrap();
        let patient = with(RequestOptions {
            deadline: Some(Duration::from_secs(1)),
            ..RequestOptions::default()
        });
        assert!(patient.unwrap() == plain());
        let once = with(RequestOptions {
            max_retries: Some(0),
            ..RequestOptions::default()
        });
        assert!(once.unwrap() != plain());
        let hasty = with(RequestOptions {
            attempt_timeout: Some(Duration::from_secs(1)),
            ..RequestOptions::default()
        });
        assert!(hasty.unwrap() != plain());
        let keyed = with(RequestOptions {
            key: Some("key".try_into().unwrap()),
            ..RequestOptions::default()
        });
        assert_eq!(keyed.err(), Some(Unshared::ByItself));
    }
}
