//! Dropping a call at a given point.

use std::future::poll_fn;
use std::task::Poll;

/// At which suspension a call is dropped, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The first is 1. With 0, it is not even polled.
    pub(super) suspension: usize,
    pub(super) moment: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Moment {
    /// As soon as it waits: nothing has happened yet.
    Asleep,
    /// When it was woken, and has not looked yet what for: its turn, its answer, its time.
    Woken,
}

impl Cut {
    /// Never: it runs to its end.
    pub(super) const NEVER: Self = Self {
        suspension: usize::MAX,
        moment: Moment::Woken,
    };

    /// What comes of a call that is dropped there: nothing, unless it ends before. It is gone when this
    /// returns.
    pub(super) async fn off<F: Future>(self, call: F) -> Option<F::Output> {
        let mut call = Box::pin(call);
        let mut suspensions = 0;
        poll_fn(move |context| {
            if self.moment == Moment::Woken && suspensions == self.suspension {
                return Poll::Ready(None);
            }
            match call.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => {
                    suspensions += 1;
                    match self.moment {
                        Moment::Asleep if suspensions >= self.suspension => Poll::Ready(None),
                        _ => Poll::Pending,
                    }
                }
            }
        })
        .await
    }
}
