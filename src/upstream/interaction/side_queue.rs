//! Queue of messages for one call that arrive outside its stream.
//!
//! A call that waits for a slow client does not read them. The queue is limited in number and in
//! bytes. The sender never waits: it drops or refuses a message that does not fit.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::upstream::interaction::questions::SideMessage;

/// Creates an empty queue for one call.
pub(crate) fn side_queue() -> (SideSender, SideReceiver) {
    let (queue, messages) = mpsc::channel(MAX_WAITING_MESSAGES);
    (
        SideSender { queue, room: Arc::new(Semaphore::new(MAX_SIDE_QUEUE_BYTES)) },
        SideReceiver(messages),
    )
}

/// Sender's side of a call's queue.
#[derive(Debug, Clone)]
pub(crate) struct SideSender {
    queue: mpsc::Sender<(SideMessage, OwnedSemaphorePermit)>,
    /// Number of bytes left.
    room: Arc<Semaphore>,
}

impl SideSender {
    /// Queues a message. Returns false if the queue is full or the call has ended. An empty queue
    /// accepts a message of any size.
    pub(crate) fn send(&self, message: SideMessage) -> bool {
        let size = u32::try_from(message.size().min(MAX_SIDE_QUEUE_BYTES)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(size);
        room.is_ok_and(|room| self.queue.try_send((message, room)).is_ok())
    }
}

/// Receiver's side of a call's queue.
#[derive(Debug)]
pub(crate) struct SideReceiver(mpsc::Receiver<(SideMessage, OwnedSemaphorePermit)>);

impl SideReceiver {
    /// Returns the oldest message, or `None` once there is no sender.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn next(&mut self) -> Option<SideMessage> {
        self.0.recv().await.map(|(message, _)| message)
    }
}

/// Maximum number of messages that wait for one call.
const MAX_WAITING_MESSAGES: usize = 64;
/// Maximum size of these messages in bytes: two of the largest requests.
const MAX_SIDE_QUEUE_BYTES: usize = 8 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::call::Question;
    use crate::jsonrpc::Id;

    fn question(size: usize) -> SideMessage {
        let params = Some(Bytes::from(vec![b' '; size]));
        SideMessage::Asks(Id::number(1), Question { method: String::new(), params })
    }

    #[tokio::test]
    async fn messages_wait_for_a_call_up_to_a_number_and_a_sum_of_bytes() {
        let (sender, mut messages) = side_queue();
        assert!(sender.send(question(2 * MAX_SIDE_QUEUE_BYTES)), "one always fits");
        assert!(!sender.send(question(1)));
        assert!(sender.send(SideMessage::TookBack(Id::number(1))), "it takes no room");
        assert!(messages.next().await.is_some());
        assert!(messages.next().await.is_some());
        for place in 0..10 {
            assert_eq!(sender.send(question(MAX_SIDE_QUEUE_BYTES / 4)), place < 4, "{place}");
        }
        let (sender, _messages) = side_queue();
        assert_eq!(
            (0..2 * MAX_WAITING_MESSAGES).filter(|_| sender.send(question(0))).count(),
            MAX_WAITING_MESSAGES
        );
    }
}
