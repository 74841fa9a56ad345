//! Work on large messages, away from the threads that serve clients.
//!
//! Parsing, rewriting or copying tens of megabytes takes tens to hundreds of milliseconds, in which a
//! thread would serve no other client.

use std::num::NonZeroUsize;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use bytes::BytesMut;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, consume_budget, spawn_blocking};

/// Runs work on a message of this size, on a thread for blocking work if it is large.
///
/// # Errors
/// [`JoinError`] if the work on a large message panicked.
///
/// # Cancel safety
/// The result is lost when the future is dropped.
pub async fn work_on<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if bytes <= LARGE_MESSAGE {
        return Ok(work());
    }
    // Never closed.
    let place = WORK_PLACES.acquire().await.ok();
    let work = spawn_blocking(move || {
        let _place = place;
        work()
    });
    work.await
}

/// Makes room for more bytes of a message that arrives in pieces.
///
/// A buffer that grows is copied. A large one grows to many times its size at once: the operating
/// system gives memory only to the part that is written, and copying the megabytes of a buffer that
/// doubles takes longer than a thread may serve one client.
#[inline]
pub fn make_room(buffer: &mut BytesMut, more: usize) {
    let is_large = buffer.len() >= SPARSE_FROM;
    if is_large && buffer.capacity() - buffer.len() < more {
        buffer.reserve(more.max(buffer.len().saturating_mul(SPARSE_FACTOR)));
    } else {
        buffer.reserve(more);
    }
}

/// Takes the first bytes out of a buffer. A large message leaves no buffer behind that it shares
/// with the messages after it: as long as one of them lives, so does all of a shared buffer.
pub fn take_first(buffer: &mut BytesMut, bytes: usize) -> BytesMut {
    let first = buffer.split_to(bytes);
    if first.len() >= SPARSE_FROM {
        *buffer = BytesMut::from(&buffer[..]);
    }
    first
}

/// Lets the other tasks of the thread run from time to time while a message arrives without a pause.
/// `bytes` is the size of the piece that has just been read.
///
/// # Cancel safety
/// Safe.
pub async fn share_thread(bytes: usize) {
    for _ in 0..bytes / BUDGET_UNIT {
        consume_budget().await;
    }
}

/// Limit of the work on large messages at a time: one per core. More would finish nothing sooner, and
/// each further thread retains memory that others have freed until it allocates again.
static WORK_PLACES: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, NonZeroUsize::get)));

/// Size in bytes from which parsing a message takes more than some hundred microseconds.
pub const LARGE_MESSAGE: usize = 256 << 10;
/// Size in bytes from which buffers grow to [`SPARSE_FACTOR`] times their size.
const SPARSE_FROM: usize = 4 << 20;
const SPARSE_FACTOR: usize = 31;
/// The bytes that use up a unit of a task's budget, of which the runtime gives it 128 at a time.
const BUDGET_UNIT: usize = 16 << 10;

/// Returns true if a future does some of its work on a thread for blocking work. The future is
/// driven while no such thread is free, which it must outlast, and then to its end.
///
/// # Panics
/// If the work panics.
#[cfg(feature = "test-support")]
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
pub fn leaves_its_thread<T>(work: impl Future<Output = T>) -> (bool, T) {
    use std::pin::pin;

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let (busy, is_busy) = oneshot::channel();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let blocker = spawn_blocking(move || {
            busy.send(()).unwrap();
            released.recv()
        });
        is_busy.await.unwrap();
        let mut work = pin!(work);
        for _ in 0..100 {
            if let Some(output) = work.as_mut().now_or_never() {
                return (false, output);
            }
            yield_now().await;
        }
        release.send(()).unwrap();
        blocker.await.unwrap().unwrap();
        (true, work.await)
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn only_work_on_large_messages_leaves_the_thread() {
        let here = thread::current().id();
        for (bytes, stays) in [(0, true), (LARGE_MESSAGE, true), (LARGE_MESSAGE + 1, false)] {
            let there = work_on(bytes, || thread::current().id()).await.unwrap();
            assert_eq!(here == there, stays, "{bytes}");
        }
    }

    #[test]
    fn a_large_message_shares_no_buffer_with_the_next_one() {
        for (bytes, shares) in [(100, true), (SPARSE_FROM, false)] {
            let mut buffer = BytesMut::with_capacity(2 * SPARSE_FROM);
            buffer.resize(bytes + 3, b'x');
            let whole = buffer.as_ptr_range();
            let first = take_first(&mut buffer, bytes);
            assert_eq!((first.len(), &buffer[..]), (bytes, &b"xxx"[..]));
            assert_eq!(whole.contains(&buffer.as_ptr()), shares, "{bytes}");
        }
    }

    #[test]
    fn a_message_that_arrives_without_a_pause_lets_other_tasks_run() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (small, large) = (BUDGET_UNIT - 1, 32 << 20);
        for (bytes, yields) in [(small, false), (large, true)] {
            let polls = runtime.block_on(async {
                let (mut polls, mut work) = (0, std::pin::pin!(share_thread(bytes)));
                std::future::poll_fn(|cx| {
                    polls += 1;
                    work.as_mut().poll(cx)
                })
                .await;
                polls
            });
            assert_eq!(polls > 1, yields, "{bytes}: {polls}");
        }
    }

    #[test]
    fn a_large_buffer_is_copied_once_on_its_way_to_tens_of_megabytes() {
        let piece = vec![0; 64 << 10];
        let (mut buffer, mut copied) = (BytesMut::new(), 0);
        while buffer.len() < 100 << 20 {
            let (before, len) = (buffer.capacity(), buffer.len());
            make_room(&mut buffer, piece.len());
            if buffer.capacity() != before {
                copied += len;
                assert!(len <= SPARSE_FROM, "{len} bytes are copied at once");
            }
            buffer.extend_from_slice(&piece);
        }
        assert!(copied < 4 * SPARSE_FROM, "{copied}");
    }
}
