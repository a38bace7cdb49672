//! One call that may be shared, until it is known whether it is.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Next, Result};

use super::flight::{Boarding, Leadership};
use super::identity::Identity;
use super::{Call, CoalesceMiddleware};

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Response>> + Send + 'a>>;

/// The future of a call that has an identity. It boards when it is first polled.
///
/// Most calls lead and are alone. So this is written out, where an `async` block would move their answers
/// three times more.
pub(super) struct Passenger<'a> {
    middleware: &'a CoalesceMiddleware,
    next: Next<'a>,
    // Until it boards.
    identity: Option<Identity>,
    request: Option<Request>,
    extensions: Option<&'a mut Extensions>,
    // From then on. The answer is dropped first: nobody takes over while it is still asked for.
    answer: Option<Answer<'a>>,
    leading: Option<(Leadership, Call<'a>)>,
}

impl<'a> Passenger<'a> {
    #[inline]
    pub(super) fn new(
        middleware: &'a CoalesceMiddleware,
        identity: Identity,
        request: Request,
        extensions: &'a mut Extensions,
        next: Next<'a>,
    ) -> Self {
        Self {
            middleware,
            next,
            identity: Some(identity),
            request: Some(request),
            extensions: Some(extensions),
            answer: None,
            leading: None,
        }
    }

    /// Nothing, if it has boarded before.
    #[inline]
    fn board(&mut self) -> Option<Answer<'a>> {
        let (identity, extensions) = (self.identity.take()?, self.extensions.take()?);
        let CoalesceMiddleware { settings, flights } = self.middleware;
        let call = Call::open(settings, self.request.as_ref()?, extensions);
        let next = self.next.clone();
        match flights.board(identity, call.started) {
            Boarding::Lead(leadership) => {
                self.leading = Some((leadership, call));
                Some(next.run(self.request.take()?, extensions))
            }
            Boarding::Follow(seat) => {
                let request = self.request.take()?;
                Some(Box::pin(call.follow(seat, request, extensions, next)))
            }
        }
    }

    /// Whether others wait for the answer that is there now.
    #[inline]
    fn is_awaited(&mut self) -> bool {
        // Whatever still runs in there is over, before anybody else is told.
        self.answer = None;
        let leading = self.leading.as_mut();
        leading.is_some_and(|(leadership, _)| leadership.is_awaited())
    }

    /// Sees to those who wait.
    #[cold]
    fn land(&mut self, polled: &mut Poll<Result<Response>>, context: &mut Context<'_>) {
        let answer = std::mem::replace(polled, Poll::Pending);
        if let (Poll::Ready(answer), Some((leadership, call))) = (answer, self.leading.take()) {
            let answer = self.answer.insert(Box::pin(call.land(leadership, answer)));
            *polled = answer.as_mut().poll(context);
        }
    }
}

impl Future for Passenger<'_> {
    type Output = Result<Response>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(answer) = this.board() {
            this.answer = Some(answer);
        }
        let answer = this.answer.as_mut();
        let answer = answer.expect("nobody polls a future again that is done");
        let mut polled = answer.as_mut().poll(context);
        if polled.is_ready() && this.is_awaited() {
            this.land(&mut polled, context);
        }
        polled
    }
}
