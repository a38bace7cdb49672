//! A sink that sends letters to a receiver in the same process.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use super::{DeadLetter, DeadLetterSink, Delivery};

/// Creates a dead letter sink and its receiver, with room for `capacity` letters.
///
/// A capacity of 0 counts as 1, because a channel needs room for one letter.
///
/// If the channel is full, a delivery waits for room, and times out after its time limit. If the receiver is
/// dropped, deliveries fail.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (sink, mut letters) = reqwest_steady::dead_letter::dead_letter_channel(100);
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

/// Sends letters into a [`dead_letter_channel`]. Clones share the channel.
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

/// Receives letters from a [`dead_letter_channel`].
#[derive(Debug)]
pub struct DeadLetterReceiver(mpsc::Receiver<Arc<DeadLetter>>);

impl DeadLetterReceiver {
    /// Waits for the next letter. Returns `None` when all sinks are dropped and no letter is left.
    ///
    /// If the future is dropped, no letter is lost.
    pub async fn recv(&mut self) -> Option<Arc<DeadLetter>> {
        self.0.recv().await
    }

    /// Returns the next letter if there is one, without waiting.
    pub fn try_recv(&mut self) -> Option<Arc<DeadLetter>> {
        self.0.try_recv().ok()
    }
}
