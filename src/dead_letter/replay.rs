//! Sends a dead letter again, with fresh credentials.

use std::fmt;
use std::pin::Pin;

use http::HeaderMap;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Response, Url};
use reqwest_middleware::{ClientWithMiddleware, Error, RequestBuilder};

use super::credentials::{Credentials, Fill};
use super::secrets::{PLACEHOLDER, rewrite_query, without_parameter};
use super::{DeadLetter, LetterBody, Redacted};
use crate::decide::Failure;
use crate::request::{RequestBuilderExt, keep_key_header};

/// All characters except those that have no special meaning in a query.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

impl DeadLetter {
    /// Sends the request again, with the same method, URL, headers, body and idempotency key.
    ///
    /// The middlewares of the client handle it like any other call. The replay does not wait until
    /// [`not_before`](DeadLetter::not_before); wait before you call this.
    ///
    /// ```
    /// # use reqwest_middleware::ClientWithMiddleware;
    /// use reqwest_steady::dead_letter::{Credentials, DeadLetter, ReplayError};
    ///
    /// async fn again(letter: &DeadLetter, client: &ClientWithMiddleware) {
    ///     let fresh = Credentials::for_host("api.example.com").header("authorization", "Bearer 4711");
    ///     match letter.replay(client).credentials(&fresh).await {
    ///         Ok(response) => println!("{letter}; now {}", response.status()),
    ///         Err(ReplayError::Missing(places)) => println!("not sent: {places:?}"),
    ///         Err(error) => println!("{error}"),
    ///     }
    /// }
    /// ```
    pub fn replay<'a>(&'a self, client: &'a ClientWithMiddleware) -> Replay<'a> {
        Replay {
            letter: self,
            client,
            credentials: Vec::new(),
            even_without_key: false,
        }
    }
}

/// Sends a dead letter again when you `.await` it.
#[derive(Clone)]
#[must_use = "nothing is sent unless it is awaited"]
pub struct Replay<'a> {
    letter: &'a DeadLetter,
    client: &'a ClientWithMiddleware,
    credentials: Vec<&'a Credentials>,
    even_without_key: bool,
}

impl<'a> Replay<'a> {
    /// Adds credentials that replace redacted secrets.
    ///
    /// Call it once per host. Credentials for other hosts are not used.
    pub fn credentials(mut self, credentials: &'a Credentials) -> Self {
        self.credentials.push(credentials);
        self
    }

    /// Sends the letter even if its effect may happen twice.
    pub fn even_without_key(mut self) -> Self {
        self.even_without_key = true;
        self
    }

    /// Returns the redacted places without credentials. If there are any, the replay fails.
    pub fn missing(&self) -> Vec<Redacted> {
        let mut places = self.letter.redacted();
        places.retain(|place| self.fill(place).is_none());
        places
    }

    /// Returns the replacement from the first credentials that are for the host of the letter.
    fn fill(&self, place: &Redacted) -> Option<Fill<'a>> {
        let mut own = (self.credentials.iter()).filter(|own| own.are_for(&self.letter.url));
        own.find_map(|own| own.fill(place))
    }

    async fn send(self) -> Result<Response, ReplayError> {
        self.check()?;
        let sent = self.request()?.send().await;
        sent.map_err(|error| {
            ReplayError::Request(match error {
                // The text of the error would show the fresh credentials in the URL.
                Error::Reqwest(error) => error.with_url(self.letter.url.clone()).into(),
                other => other,
            })
        })
    }

    fn check(&self) -> Result<(), ReplayError> {
        let letter = self.letter;
        if matches!(
            letter.body,
            LetterBody::TooLarge(_) | LetterBody::NotReplayable
        ) {
            return Err(ReplayError::BodyNotKept);
        }
        if !letter.repeatable && !self.even_without_key {
            return Err(ReplayError::NotRepeatable);
        }
        let missing = self.missing();
        if !missing.is_empty() {
            return Err(ReplayError::Missing(missing));
        }
        Ok(())
    }

    fn request(&self) -> Result<RequestBuilder, ReplayError> {
        let letter = self.letter;
        let (url, headers) = self.url_and_headers()?;
        let mut request = (self.client)
            .request(letter.method.clone(), url)
            .headers(headers);
        if let LetterBody::Bytes(bytes) = &letter.body {
            request = request.body(bytes.clone());
        }
        if letter.repeatable {
            // The key alone is not enough, because this client may use another header for keys.
            request = request.mark_idempotent();
        }
        if let Some((header, _)) = &letter.key {
            request = keep_key_header(request, header);
        }
        Ok(request)
    }

    /// Returns the URL and the headers with fresh credentials, and with the key.
    fn url_and_headers(&self) -> Result<(Url, HeaderMap), ReplayError> {
        let mut url = self.letter.url.clone();
        let mut headers = HeaderMap::new();
        for place in &self.letter.url_redacted {
            self.fill_in(place, &mut url, &mut headers)?;
        }
        let mut filled = Vec::new();
        for (name, value) in &self.letter.headers {
            if let Some(value) = value {
                headers.append(name, value.clone());
            } else if !filled.contains(&name) {
                // The first line of a name adds all lines of its replacement.
                filled.push(name);
                self.fill_in(&Redacted::Header(name.clone()), &mut url, &mut headers)?;
            }
        }
        if let Some((name, value)) = &self.letter.key {
            let mut value = value.clone();
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok((url, headers))
    }

    fn fill_in(
        &self,
        place: &Redacted,
        url: &mut Url,
        headers: &mut HeaderMap,
    ) -> Result<(), ReplayError> {
        match (place, self.fill(place)) {
            // Also for the `authorization` header, which reqwest makes of user info.
            (_, Some(Fill::UserInfo((name, password)))) => {
                // Both fail only for URLs without a host, and credentials always have one.
                let _ = url.set_username(name);
                let _ = url.set_password(Some(password));
            }
            (Redacted::Parameter(name), Some(fill)) => fill_parameter(url, name, &fill),
            (Redacted::Header(name), Some(Fill::Header(lines))) => {
                for line in lines {
                    let line = line.ok_or_else(|| ReplayError::Invalid(place.clone()))?;
                    headers.append(name, line.clone());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Replaces the placeholder of a parameter, or removes the parameter if the client adds it.
fn fill_parameter(url: &mut Url, parameter: &str, fill: &Fill<'_>) {
    let query = url.query().unwrap_or_default();
    let Fill::Parameter(value) = fill else {
        let others = without_parameter(query, parameter);
        url.set_query(Some(&*others).filter(|others| !others.is_empty()));
        return;
    };
    let filled = rewrite_query(query, |name, old| {
        let is_place = name == parameter && old == PLACEHOLDER;
        is_place.then(|| utf8_percent_encode(value, VALUE).to_string())
    });
    if let Some(filled) = filled {
        url.set_query(Some(&filled));
    }
}

/// Leaves out the client, whose `Debug` shows the headers that it adds.
impl fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("letter", self.letter)
            .field("credentials", &self.credentials)
            .field("even_without_key", &self.even_without_key)
            .finish_non_exhaustive()
    }
}

impl<'a> IntoFuture for Replay<'a> {
    type Output = Result<Response, ReplayError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// Lists why a replay failed. Only with [`Request`](ReplayError::Request) was the request sent.
///
/// `Debug` and `Display` do not show the client's error, because its text contains the whole URL. It is in
/// [`Request`](ReplayError::Request) and in the [source](std::error::Error::source).
#[non_exhaustive]
pub enum ReplayError {
    /// The credentials for these redacted places are missing.
    Missing(Vec<Redacted>),
    /// The credentials for this place have an invalid value.
    Invalid(Redacted),
    /// The letter has no body, because it was too large or a stream.
    BodyNotKept,
    /// An attempt may have had its effect, and a replay could repeat the effect. See
    /// [`even_without_key`](Replay::even_without_key).
    NotRepeatable,
    /// The request failed with this error of the client.
    Request(reqwest_middleware::Error),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(places) => {
                let places: Vec<_> = places.iter().map(Redacted::to_string).collect();
                let places = places.join(", ");
                write!(f, "not sent: missing credentials for {places}")
            }
            Self::Invalid(place) => {
                write!(f, "not sent: invalid value for {place}")
            }
            Self::BodyNotKept => f.write_str("not sent: the letter has no body"),
            Self::NotRepeatable => f.write_str(
                "not sent: the request may have taken effect and has no idempotency key",
            ),
            Self::Request(error) => write!(f, "the request failed: {}", Failure::of(error).kind),
        }
    }
}

impl fmt::Debug for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(places) => f.debug_tuple("Missing").field(places).finish(),
            Self::Invalid(place) => f.debug_tuple("Invalid").field(place).finish(),
            Self::BodyNotKept => f.write_str("BodyNotKept"),
            Self::NotRepeatable => f.write_str("NotRepeatable"),
            Self::Request(error) => {
                let kind = Failure::of(error).kind;
                f.debug_tuple("Request").field(&kind).finish()
            }
        }
    }
}

impl std::error::Error for ReplayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request(error) => Some(error),
            _ => None,
        }
    }
}
