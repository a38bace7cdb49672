//! The script of the server: what it does with each request.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use http_body::Frame;
use reqwest::Body;
use tokio::time::{Sleep, sleep};

use super::plan::{maybe, span};
use crate::testing::Reply;

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) takes: Duration,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Respond(ModelResponse),
    Fail(ErrorKind),
    Silence,
}

#[derive(Clone, Debug)]
pub(super) struct ModelResponse {
    pub(super) status: u16,
    pub(super) hint: Option<Hint>,
    /// The value of `x-should-retry`.
    pub(super) directive: Option<bool>,
    pub(super) body: ModelBody,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Hint {
    Seconds(u32),
    Milliseconds(u32),
    /// More digits than any clock can count.
    Endless,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ModelBody {
    Whole,
    /// The body arrives this long after the headers.
    Late(Duration),
    /// The connection breaks this long after the headers.
    Cut(Duration),
}

impl Step {
    pub(super) fn of(input: &mut Unstructured<'_>) -> Result<Self> {
        let kinds = [
            ErrorKind::ConnectionRefused,
            ErrorKind::ConnectionReset,
            ErrorKind::UnexpectedEof,
            ErrorKind::TimedOut,
            ErrorKind::PermissionDenied,
        ];
        Ok(Self {
            takes: match input.ratio(1, 2)? {
                true => span(input)?,
                false => Duration::ZERO,
            },
            what: match input.int_in_range(0..=9)? {
                0 => What::Silence,
                1 | 2 => What::Fail(*input.choose(&kinds)?),
                _ => What::Respond(ModelResponse::of(input)?),
            },
        })
    }

    /// Returns the step after the last one: a success.
    pub(super) fn success() -> Self {
        Self {
            takes: Duration::ZERO,
            what: What::Respond(ModelResponse {
                status: 200,
                hint: None,
                directive: None,
                body: ModelBody::Whole,
            }),
        }
    }
}

impl ModelResponse {
    fn of(input: &mut Unstructured<'_>) -> Result<Self> {
        let statuses = [
            503, 429, 500, 200, 502, 504, 408, 409, 425, 404, 501, 301, 204, 520, 403, 599, 511,
        ];
        Ok(Self {
            status: *input.choose(&statuses)?,
            hint: maybe(input, |input| {
                Ok(match input.int_in_range(0..=7)? {
                    0 => Hint::Endless,
                    1..=3 => Hint::Milliseconds(input.int_in_range(0..=3000)?),
                    _ => Hint::Seconds(input.int_in_range(0..=12)?),
                })
            })?,
            directive: *input.choose(&[None, None, None, Some(true), Some(false)])?,
            body: match input.int_in_range(0..=7)? {
                0 => ModelBody::Late(span(input)?),
                1 => ModelBody::Cut(span(input)?),
                _ => ModelBody::Whole,
            },
        })
    }
}

pub(super) fn reply(step: &Step) -> Reply {
    let reply = match &step.what {
        What::Silence => Reply::silence(),
        What::Fail(kind) => Reply::fail(*kind),
        What::Respond(response) => {
            let mut reply = Reply::status(response.status);
            match response.hint {
                None => {}
                Some(Hint::Seconds(hint)) => reply = reply.header("retry-after", &hint.to_string()),
                Some(Hint::Milliseconds(hint)) => {
                    reply = reply.header("retry-after-ms", &hint.to_string());
                }
                Some(Hint::Endless) => reply = reply.header("retry-after", &"9".repeat(30)),
            }
            if let Some(directive) = response.directive {
                reply = reply.header("x-should-retry", if directive { "true" } else { "false" });
            }
            reply.body(match response.body {
                ModelBody::Whole => Body::from("whole"),
                ModelBody::Late(takes) => Body::wrap(LateBody::new(takes, Ok("late"))),
                ModelBody::Cut(takes) => {
                    Body::wrap(LateBody::new(takes, Err(ErrorKind::ConnectionReset)))
                }
            })
        }
    };
    reply.after(step.takes)
}

/// A body that arrives some time after it was first polled.
struct LateBody {
    takes: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    end: Option<std::result::Result<&'static str, ErrorKind>>,
}

impl LateBody {
    fn new(takes: Duration, end: std::result::Result<&'static str, ErrorKind>) -> Self {
        Self {
            takes,
            sleep: None,
            end: Some(end),
        }
    }
}

impl http_body::Body for LateBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let takes = self.takes;
        let waiting = self.sleep.get_or_insert_with(|| Box::pin(sleep(takes)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(self.end.take().map(|end| match end {
            Ok(text) => Ok(Frame::data(Bytes::from_static(text.as_bytes()))),
            Err(kind) => Err(kind.into()),
        }))
    }
}
