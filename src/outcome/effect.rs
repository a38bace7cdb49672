//! Whether a request took effect, as far as its result tells.

use std::fmt;

/// Says whether the server did what a request asked for: "may we have been charged?"
///
/// Ask [`RetryReport::effect`](crate::RetryReport::effect) after a response, and
/// [`ReportSlot::effect`](crate::ReportSlot::effect) after any call, also one that failed or was dropped.
///
/// ```
/// use reqwest_middleware::ClientWithMiddleware;
/// use reqwest_steady::{Effect, IdempotencyKey, ReportSlot, RequestBuilderExt};
///
/// # async fn example(client: &ClientWithMiddleware, key: IdempotencyKey, order: &'static str) {
/// let slot = ReportSlot::new();
/// let charge = client.post("https://api.example.com/charges").idempotency_key(key).body(order);
/// let result = charge.report_to(&slot).send().await;
/// match slot.effect() {
///     Effect::Happened => println!("charged: {result:?}"),
///     Effect::DidNotHappen => println!("not charged, the order can be changed: {result:?}"),
///     Effect::Unknown => println!("send it again with the same key, or ask the provider: {result:?}"),
/// }
/// # }
/// ```
///
/// # Which results say what
///
/// | result of an attempt | effect |
/// |---|---|
/// | 2xx, 101, 303, 304 | `Happened` |
/// | 2xx or 3xx that your [`classify_fn`](crate::RetryMiddlewareBuilder::classify_fn) or [`status`](crate::RetryMiddlewareBuilder::status) retries | `Unknown` |
/// | 2xx, 101, 303 or 304 on which your [`inspect_body`](crate::RetryMiddlewareBuilder::inspect_body) gives any verdict | `Unknown` |
/// | any status on which it says `conditional` | `Unknown` |
/// | 300, 301, 302 and other 3xx | `Unknown`: servers send them before and after they act |
/// | 307, 308 | `DidNotHappen`: the server asks for the same request at another URL |
/// | 4xx | `DidNotHappen`, with these exceptions: |
/// | 408, 460, 499 | `Unknown`: the connection was slow or closed, and a proxy may have passed the request on |
/// | 409 to a request with an idempotency key | `Unknown`: the original may still be running |
/// | 501, 505, 511 | `DidNotHappen` |
/// | other 5xx, also 503 | `Unknown`: proxies send them after they have passed the request on |
/// | refused by a throttle, invalid key or setting | `DidNotHappen`: nothing was sent |
/// | DNS, connection or handshake failed, stream refused, invalid URL | `DidNotHappen` if redirects are off (see below), else `Unknown` |
/// | timeout, reset, any other error, call dropped during an attempt | `Unknown` |
/// | body of a [buffered](crate::RequestBuilderExt::buffer_response) or inspected response broke | by its status |
///
/// A call combines its attempts. If one `Happened`, the call `Happened`. If all `DidNotHappen`, the call
/// `DidNotHappen`. Otherwise, its effect is `Unknown`: a 404 after a timeout says nothing about the attempt that timed
/// out.
///
/// # Redirects
///
/// By default, reqwest follows redirects inside one attempt. A server may accept a `POST` with a 303, and the request
/// after it may fail. So the effect of a request that is not safe (`POST`, `PUT`, `PATCH`, `DELETE` …) is `Unknown`
/// - if the response comes from another URL,
/// - after any failure to connect, because reqwest's error does not tell at which URL it failed.
///
/// A redirect to the same URL cannot be seen. For an API that should not redirect, turn redirects off in both places.
/// Then these results count as well:
///
/// ```
/// use reqwest_middleware::ClientBuilder;
/// use reqwest_steady::RetryMiddleware;
///
/// let inner = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
/// let retry = RetryMiddleware::builder().client_follows_redirects(false).build()?;
/// let client = ClientBuilder::new(inner).with(retry).build();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What it cannot see
///
/// It knows only the attempts of this crate. A middleware inside the retry that sends a request twice hides the first
/// result, and so does a `reqwest::retry` policy that repeats more than the default one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The server confirmed the request, or accepted it for later (202).
    Happened,
    /// Provably nothing happened: the request was not sent, not processed, or rejected.
    DidNotHappen,
    /// The request may or may not have taken effect.
    ///
    /// Send it again with the same idempotency key, or ask the server.
    Unknown,
}

impl Effect {
    pub(crate) const ALL: [Self; 3] = [Self::Happened, Self::DidNotHappen, Self::Unknown];

    /// Returns a stable name in snake_case, for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::DidNotHappen => "did_not_happen",
            Self::Unknown => "unknown",
        }
    }

    #[cfg_attr(not(feature = "dead-letter-file"), allow(dead_code))]
    pub(crate) fn from_label(label: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|effect| effect.as_str() == label)
    }

    /// Combines the effects of two attempts at the same thing.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Happened, _) | (_, Self::Happened) => Self::Happened,
            (Self::DidNotHappen, Self::DidNotHappen) => Self::DidNotHappen,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_success_is_enough_and_one_doubt_is_too_much() {
        use Effect::{DidNotHappen, Happened, Unknown};

        for effect in Effect::ALL {
            assert_eq!(effect.or(Happened), Happened);
            assert_eq!(Happened.or(effect), Happened);
            assert_eq!(effect.or(DidNotHappen), effect);
            assert_eq!(DidNotHappen.or(effect), effect);
            assert_eq!(Effect::from_label(effect.as_str()), Some(effect));
        }
        assert_eq!(Unknown.or(Unknown), Unknown);
        assert_eq!(Effect::from_label("perhaps"), None);
    }
}
