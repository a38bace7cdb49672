//! Which parts of a request decide its response.
//!
//! Two requests with equal identities are the same request. The table of flights has one flight for each
//! [`Identity`]. Whether a request may be shared at all is a different question: see
//! [`shareable`](super::shareable).

use std::time::Duration;

use http::Version;
use reqwest::Request;

use super::ignored::Ignored;
use crate::hashed::{hash_of, hash_of_value};
use crate::request::{RequestOptions, without_fragment};

/// Every part of a request that can change its response, or how the call obtains it.
pub(super) struct Identity {
    /// The same for the same headers in another order.
    hash: u64,
    /// The URL, the method and then each header that counts, one per line. None of them contains a line break,
    /// so different requests never have the same text.
    text: Vec<u8>,
    rest: Rest,
}

/// What is not text.
#[derive(Default, PartialEq, Eq, Hash)]
struct Rest {
    version: Version,
    timeout: Option<Duration>,
    attempt_timeout: Option<Duration>,
    max_retries: Option<u32>,
}

/// The usual size of a header in the text.
const USUAL: usize = 64;

impl Identity {
    pub(super) fn of(
        request: &Request,
        options: Option<&RequestOptions>,
        ignored: &Ignored,
    ) -> Self {
        // A fragment is not sent (RFC 9110 §7.1).
        let url = without_fragment(request.url()).as_bytes();
        let headers = request.headers();
        let mut text = Vec::with_capacity(url.len() + USUAL * (headers.len() + 1));
        text.extend_from_slice(url);
        text.push(b'\n');
        text.extend_from_slice(request.method().as_str().as_bytes());
        let mut hash = hash_of(&text);
        for (name, value) in headers {
            let name = name.as_str();
            if !ignored.has(name, value) {
                let start = text.len();
                text.push(b'\n');
                text.extend_from_slice(name.as_bytes());
                text.push(b':');
                text.extend_from_slice(value.as_bytes());
                hash = hash.wrapping_add(hash_of(&text[start..]));
            }
        }
        let rest = Rest {
            version: request.version(),
            timeout: request.timeout().copied(),
            attempt_timeout: options
                .and_then(|options| options.attempt_timeout.or(options.fallback_timeout)),
            max_retries: options.and_then(|options| options.max_retries),
        };
        // Most requests have none of it.
        if rest != Rest::default() {
            hash = hash.wrapping_add(hash_of_value(&rest));
        }
        Self { hash, text, rest }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// Stands for a collision.
    #[cfg(test)]
    pub(super) fn with_hash(self, hash: u64) -> Self {
        Self { hash, ..self }
    }

    /// The timeout of the request, which all calls of one flight share.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.rest.timeout
    }

    /// The lines of the text, with headers sorted by name. Values of one name keep their order, which can matter.
    fn sorted_lines(&self) -> Vec<&[u8]> {
        let mut lines: Vec<_> = self.text.split(|byte| *byte == b'\n').collect();
        let name = |line: &&[u8]| line.split(|byte| *byte == b':').next().map(<[u8]>::to_vec);
        // The first two are the URL and the method. The sort is stable.
        lines[2..].sort_by_key(name);
        lines
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        // Most callers set their headers in the same order.
        let is_same_text =
            || self.text == other.text || self.sorted_lines() == other.sorted_lines();
        self.hash == other.hash && self.rest == other.rest && is_same_text()
    }
}

impl Eq for Identity {}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};

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

    fn identity(request: &Request) -> Identity {
        Identity::of(request, None, &Ignored::default())
    }

    fn same(one: &Request, other: &Request) -> bool {
        identity(one) == identity(other)
    }

    #[test]
    fn all_that_could_change_the_response_counts() {
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
    fn only_what_is_the_same_has_the_same_hash() {
        let same_hash = |one: &Request, other: &Request| identity(one).hash == identity(other).hash;
        let plain = with(&[("accept", "a"), ("accept", "b"), ("cookie", "c")]);
        let order = with(&[("cookie", "c"), ("accept", "a"), ("accept", "b")]);
        let traced = with(&[
            ("accept", "a"),
            ("b3", "0"),
            ("accept", "b"),
            ("cookie", "c"),
        ]);
        assert!(same(&plain, &order) && same(&plain, &traced));
        assert!(same_hash(&plain, &order));
        assert!(same_hash(&plain, &traced));
        for other in [
            with(&[("accept", "a"), ("accept", "b"), ("cookie", "d")]),
            with(&[("accept", "a"), ("accept", "b")]),
            with(&[]),
        ] {
            assert!(!same_hash(&plain, &other), "{other:?}");
        }
        let mut head = with(&[]);
        *head.method_mut() = Method::HEAD;
        assert!(!same_hash(&with(&[]), &head));
    }

    #[test]
    fn what_cannot_change_the_response_does_not() {
        let plain = with(&[("accept", "a"), ("cookie", "b")]);
        assert!(same(&plain, &with(&[("cookie", "b"), ("accept", "a")])));
        for name in ["traceparent", "b3", "x-request-id"] {
            let traced = with(&[("cookie", "b"), (name, "1"), ("accept", "a")]);
            assert!(same(&plain, &traced), "{name}");
        }
        let fragment = request(|it| it.url_mut().set_fragment(Some("here")));
        assert!(same(&request(|_| ()), &fragment));
    }

    #[test]
    fn settings_for_one_request_count_where_they_change_its_outcome() {
        let with = |options| {
            let request = request(|_| ());
            Identity::of(&request, Some(&options), &Ignored::default())
        };
        let plain = || with(RequestOptions::default());
        let patient = with(RequestOptions {
            deadline: Some(Duration::from_secs(1)),
            ..RequestOptions::default()
        });
        assert!(patient == plain());
        assert!(patient == identity(&request(|_| ())));
        let once = with(RequestOptions {
            max_retries: Some(0),
            ..RequestOptions::default()
        });
        assert!(once != plain());
        let hasty = with(RequestOptions {
            attempt_timeout: Some(Duration::from_secs(1)),
            ..RequestOptions::default()
        });
        assert!(hasty != plain());
    }
}
