//! The kinds of calls that the benches measure.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest_middleware::{ClientWithMiddleware, RequestBuilder};
use reqwest_steady::{IdempotencyKey, RequestBuilderExt};

use super::memory::Memory;
use super::stacks::{Stack, Trouble};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Get,
    Post,
    PostWithKey,
    /// A GET that gets a 503, and then a 200.
    Recovers,
    /// A POST with a key and a body of 1 MiB.
    Large,
    NotFound,
    /// The response is not ready at the first poll.
    Later,
    /// The response has no extensions. A response from a socket always has some.
    GetEmpty,
    PostEmpty,
}

/// The cases that run with every stack.
pub(crate) const CASES: [Case; 5] = [
    Case::Get,
    Case::Post,
    Case::PostWithKey,
    Case::Recovers,
    Case::Large,
];

/// The cases that only measure what a stack adds.
pub(crate) const ODD_CASES: [Case; 4] =
    [Case::NotFound, Case::Later, Case::GetEmpty, Case::PostEmpty];

static LARGE: [u8; 1 << 20] = [b'x'; 1 << 20];

impl Case {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET ok",
            Self::Post => "POST ok, no key",
            Self::PostWithKey => "POST ok, key",
            Self::Recovers => "GET 503, then 200",
            Self::Large => "POST 1 MiB, key",
            Self::NotFound => "GET 404",
            Self::Later => "GET ok, second poll",
            Self::GetEmpty => "GET ok, empty",
            Self::PostEmpty => "POST ok, no key, empty",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut found = CASES.into_iter().chain(ODD_CASES);
        found
            .find(|case| case.name() == name)
            .unwrap_or_else(|| panic!("no case {name}"))
    }

    pub(crate) fn trouble(self) -> Trouble {
        match self {
            Self::Recovers => Trouble::Retries(1),
            _ => Trouble::None,
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        }
    }

    pub(crate) fn server(self) -> Memory {
        Memory {
            status: self.status(),
            waits: self == Self::Later,
            empty: matches!(self, Self::GetEmpty | Self::PostEmpty),
            ..Memory::default()
        }
    }

    /// Builds a request for a client of this stack. A key is set as users of that stack set it, so that all stacks send
    /// the same bytes.
    pub(crate) fn request(
        self,
        stack: Stack,
        client: &ClientWithMiddleware,
        url: &str,
    ) -> RequestBuilder {
        match self {
            Self::Get | Self::Recovers | Self::NotFound | Self::Later | Self::GetEmpty => {
                with_headers(client.get(url))
            }
            Self::Post | Self::PostEmpty => with_headers(client.post(url)).body("x".repeat(1024)),
            Self::PostWithKey => with_key(stack, client.post(url)).body("x".repeat(1024)),
            Self::Large => with_key(stack, client.post(url)).body(Bytes::from_static(&LARGE)),
        }
    }
}

const KEY: &str = "order-4711";

fn with_key(stack: Stack, builder: RequestBuilder) -> RequestBuilder {
    let builder = with_headers(builder);
    match stack {
        Stack::Bare | Stack::ReqwestRetry => builder.header("idempotency-key", KEY),
        _ => builder.idempotency_key(IdempotencyKey::new(KEY).unwrap()),
    }
}

fn with_headers(builder: RequestBuilder) -> RequestBuilder {
    builder
        .header("accept", HeaderValue::from_static("application/json"))
        .header("user-agent", HeaderValue::from_static("bench/1.0"))
        .header("x-request-id", "5b2c8f0e-4f1d-4b7e")
        .header("x-tenant", "acme")
}

/// Returns headers without a meaning for middlewares.
pub(crate) fn plain_headers(count: usize) -> http::HeaderMap {
    let name = |number| HeaderName::try_from(format!("x-plain-{number:02}")).unwrap();
    let value = HeaderValue::from_static("a value of some length");
    (0..count)
        .map(|number| (name(number), value.clone()))
        .collect()
}
