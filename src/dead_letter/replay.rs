//! Sends a dead letter again, with fresh credentials.

use std::fmt;
use std::pin::Pin;

use http::HeaderMap;
use reqwest::{Response, Url};
use reqwest_middleware::{ClientWithMiddleware, Error, RequestBuilder};

use super::credentials::{Credentials, Fill, percent_encoded};
use super::secrets::{PLACEHOLDER, rewrite_query, without_parameter};
use super::{DeadLetter, LetterBody, Redacted};
use crate::decide::Failure;
use crate::request::{RequestBuilderExt, keep_key_header};

impl DeadLetter {
    /// Sends the request again, with the same method, URL, headers, body and idempotency key.
    ///
    /// The middlewares of the client handle it like any other call. The replay does not wait until
    /// [`not_before`](DeadLetter::not_before); wait before you call this.
    ///
    /// ```
    /// # use reqwest_middleware::ClientWithMiddleware;
    /// use reqwest_steady::{Credentials, DeadLetter, ReplayError};
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

    fn fill(&self, place: &Redacted) -> Option<Fill<'a>> {
        self.letter.fill(place, &self.credentials)
    }

    async fn send(self) -> Result<Response, ReplayError> {
        self.check()?;
        let request = self.request()?;
        let sent = request.send().await;
        sent.map_err(|error| ReplayError::Request(self.without_secrets(error)))
    }

    /// Puts the redacted URL into an error of reqwest, whose text would show the fresh credentials.
    fn without_secrets(&self, error: Error) -> Error {
        match error {
            Error::Reqwest(error) => error.with_url(self.letter.url.clone()).into(),
            other => other,
        }
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
        let mut url = self.url();
        let headers = self.headers(&mut url)?;
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

    /// Returns the URL with its secret parameters and user info.
    fn url(&self) -> Url {
        let letter = self.letter;
        let mut url = letter.url.clone();
        let query = url.query().and_then(|query| {
            rewrite_query(query, |name, value| {
                let place = Redacted::Parameter(name.to_owned());
                if value != PLACEHOLDER || !letter.url_redacted.contains(&place) {
                    return None;
                }
                match self.fill(&place) {
                    Some(Fill::Parameter(value)) => Some(percent_encoded(value)),
                    _ => None,
                }
            })
        });
        if let Some(query) = query {
            url.set_query(Some(&query));
        }
        for place in &letter.url_redacted {
            if let (Redacted::Parameter(name), Some(Fill::ByClient)) = (place, self.fill(place)) {
                let left = url.query().map(|query| without_parameter(query, name));
                url.set_query(left.as_deref().filter(|query| !query.is_empty()));
            }
        }
        if letter.url_redacted.contains(&Redacted::UserInfo) {
            if let Some(fill) = self.fill(&Redacted::UserInfo) {
                fill.put_into(&mut url);
            }
        }
        url
    }

    /// Returns all headers, with the secret ones and the key.
    ///
    /// An `authorization` header that comes from user info goes into `url` instead.
    fn headers(&self, url: &mut Url) -> Result<HeaderMap, ReplayError> {
        let mut headers = HeaderMap::new();
        let mut filled = Vec::new();
        for (name, value) in &self.letter.headers {
            if let Some(value) = value {
                headers.append(name, value.clone());
                continue;
            }
            // The first line of a name adds all lines of its replacement.
            if filled.contains(&name) {
                continue;
            }
            filled.push(name);
            let place = Redacted::Header(name.clone());
            match self.fill(&place) {
                Some(Fill::Header(lines)) => {
                    for line in lines {
                        let line = line.ok_or_else(|| ReplayError::Invalid(place.clone()))?;
                        headers.append(name, line.clone());
                    }
                }
                Some(fill) => fill.put_into(url),
                None => {}
            }
        }
        if let Some((name, value)) = &self.letter.key {
            let mut value = value.clone();
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

impl Fill<'_> {
    fn put_into(&self, url: &mut Url) {
        if let Fill::UserInfo((name, password)) = self {
            // Both fail only for URLs without a host, and credentials always have one.
            let _ = url.set_username(name);
            let _ = url.set_password(Some(password));
        }
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
                f.write_str("not sent, for there are no credentials for: ")?;
                for (index, place) in places.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{place}")?;
                }
                Ok(())
            }
            Self::Invalid(place) => {
                write!(
                    f,
                    "not sent, for the value given for {place} cannot stand there"
                )
            }
            Self::BodyNotKept => f.write_str("not sent, for the letter does not have the body"),
            Self::NotRepeatable => f.write_str(
                "not sent, for it may have had its effect already, and has no idempotency key",
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
