//! Dropping a call at a given point.

use std::future::poll_fn;
use std::task::Poll;

/// The suspension at which a call is dropped, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The first suspension is 1. With 0, the call is never polled.
    pub(super) suspension: usize,
    pub(super) moment: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Moment {
    /// As soon as it waits, before anything else happens.
    Asleep,
    /// After it was woken by its turn, its response or a timer, but before it is polled.
    Woken,
}

impl Cut {
    /// Never: the call runs to its end.
    pub(super) const NEVER: Self = Self {
        suspension: usize::MAX,
        moment: Moment::Woken,
    };

    /// Runs a call and drops it there. Returns its output if it ends before.
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
