//! A sink for those who take letters in their own process.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use super::{DeadLetter, DeadLetterSink, Delivery};

/// Creates a dead letter sink and its receiver, with room for `capacity` letters.
///
/// A capacity of 0 counts as 1, because a channel needs room for one letter.
///
/// A letter that finds no room waits for it, and is reported as timed out if there is none in time.
/// When the receiver is gone, delivery fails.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (sink, mut letters) = reqwest_steady::dead_letter_channel(100);
/// tokio::spawn(async move {
///     while let Some(letter) = letters.recv().await {
///         println!("{letter}");
///     }
/// });
/// # drop(sink);
/// # }
/// ```
pub fn dead_letter_channel(capacity: usize) -> (ChannelSink, DeadLetterReceiver) {
    let (sender, receiver) = mpsc::channel(capacity.clamp(1, Semaphore::MAX_PERMITS));
    (ChannelSink(sender), DeadLetterReceiver(receiver))
}

/// The end of a [`dead_letter_channel`] that letters go into. Its clones share it.
#[derive(Clone, Debug)]
pub struct ChannelSink(mpsc::Sender<Arc<DeadLetter>>);

impl DeadLetterSink for ChannelSink {
    fn deliver(&self, letter: Arc<DeadLetter>) -> Delivery<'_> {
        Box::pin(async move {
            let sent = self.0.send(letter).await;
            sent.map_err(|_| "nobody receives dead letters any more".into())
        })
    }
}

/// The end of a [`dead_letter_channel`] that letters come out of.
#[derive(Debug)]
pub struct DeadLetterReceiver(mpsc::Receiver<Arc<DeadLetter>>);

impl DeadLetterReceiver {
    /// The next letter, when there is one. `None` if all sinks are gone, and no letter is left.
    ///
    /// Nothing is lost if this is dropped before it is done.
    pub async fn recv(&mut self) -> Option<Arc<DeadLetter>> {
        self.0.recv().await
    }

    /// The next letter, if there is one already.
    pub fn try_recv(&mut self) -> Option<Arc<DeadLetter>> {
        self.0.try_recv().ok()
    }
}
