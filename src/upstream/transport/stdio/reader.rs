//! Task that reads a child's lines, on the thread of its caller.
//!
//! A child is started on the runtime that all servers share, while its callers run on others. If
//! the shared runtime read the child's output, each response would wake one thread there and then
//! the caller's. So the task follows a child's only caller to the caller's runtime, together with
//! the pipe.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;
use tokio::process::ChildStdout;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::clock;
use crate::codec::large_message::{LARGE_MESSAGE, work_on};
use crate::codec::lines::{LineError, LineReader};
use crate::upstream::ExitCause;

use super::wire::ChildLink;

/// A child's output, which can be read on any runtime.
pub(crate) struct ChildOutput {
    /// `None` if the move from one runtime to another failed.
    pipe: Option<pipe::Receiver>,
    at: runtime::Id,
}

impl ChildOutput {
    /// Registers the output of a child that was started on this runtime.
    ///
    /// # Errors
    /// The system's error, if the pipe cannot be registered.
    pub(crate) fn new(output: ChildStdout) -> io::Result<Self> {
        pipe::Receiver::from_owned_fd(output.into_owned_fd()?).map(Self::of)
    }

    pub(super) fn of(pipe: pipe::Receiver) -> Self {
        Self { pipe: Some(pipe), at: Handle::current().id() }
    }

    fn move_to(&mut self, here: runtime::Id) -> io::Result<()> {
        if let Some(pipe) = self.pipe.take() {
            self.pipe = Some(pipe::Receiver::from_owned_fd_unchecked(pipe.into_nonblocking_fd()?)?);
        }
        self.at = here;
        Ok(())
    }
}

impl AsyncRead for ChildOutput {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let here = Handle::current().id();
        if this.at != here {
            this.move_to(here)?;
        }
        match &mut this.pipe {
            Some(pipe) => Pin::new(pipe).poll_read(cx, buffer),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// Runtime of the reading task, and the channel that calls the task to another one.
#[derive(Default)]
pub(super) struct ReaderTask(Mutex<ReaderTaskState>);

#[derive(Default)]
struct ReaderTaskState {
    at: Option<runtime::Id>,
    since: Option<Instant>,
    call: Option<oneshot::Sender<Handle>>,
}

impl ReaderTask {
    /// Calls the task to this runtime, unless it has just moved: callers on
    /// different threads must not move it back and forth.
    pub(super) fn call_here(&self) {
        let here = Handle::current();
        let mut standing = self.standing();
        let settled = standing.since.is_none_or(|since| since.elapsed() >= MIN_MOVE_INTERVAL);
        if standing.at != Some(here.id())
            && settled
            && let Some(call) = standing.call.take()
        {
            standing.since = Some(clock::now());
            let _ = call.send(here);
        }
    }

    /// Records that the task is on this runtime. Returns the channel that calls it to another.
    fn settle(&self) -> oneshot::Receiver<Handle> {
        let (call, called) = oneshot::channel();
        let mut standing = self.standing();
        standing.at = Some(Handle::current().id());
        standing.call = Some(call);
        called
    }

    #[cfg(test)]
    pub(super) fn at(&self) -> Option<runtime::Id> {
        self.standing().at
    }

    fn standing(&self) -> MutexGuard<'_, ReaderTaskState> {
        self.0.lock()
    }
}

/// The reading task. When it ends, for any reason, the child is lost.
pub(super) struct OutputReader<R> {
    wire: Arc<ChildLink>,
    lines: LineReader<R>,
}

impl<R: AsyncRead + Send + Unpin + 'static> OutputReader<R> {
    pub(super) fn start(wire: &Arc<ChildLink>, output: R, limit: usize) {
        let reader = Self { wire: Arc::clone(wire), lines: LineReader::new(output, limit) };
        tokio::spawn(reader.run());
    }

    /// Boxed, because the task spawns itself on another runtime.
    fn run(mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut called = self.wire.place.settle();
            let cause = loop {
                let line = tokio::select! {
                    line = self.lines.next() => line,
                    Ok(there) = &mut called => {
                        there.spawn(self.run());
                        return;
                    }
                };
                match line {
                    Ok(Some(line)) if line.len() > LARGE_MESSAGE => self.take_aside(line).await,
                    Ok(Some(line)) => self.wire.take(&line),
                    Ok(None) => break ExitCause::OutputClosed,
                    Err(LineError::TooLong { limit, ends }) => self.wire.too_long(limit, &ends),
                    Err(LineError::Io(error)) => break ExitCause::Unreadable(Arc::new(error)),
                }
            };
            self.wire.lost(&cause);
        })
    }

    /// Parses a large line away from the thread that serves clients. The next line waits for it, so
    /// that messages keep their order.
    #[cold]
    fn take_aside(&self, line: Bytes) -> impl Future<Output = ()> + use<R> {
        let wire = Arc::clone(&self.wire);
        let taken = work_on(line.len(), move || wire.take(&line));
        async move {
            if let Err(error) = taken.await {
                tracing::error!(%error, "a large line of a server was not read");
            }
        }
    }
}

impl<R> Drop for OutputReader<R> {
    fn drop(&mut self) {
        // Does nothing if a reason was given, or the task has moved.
        self.wire.lost(&ExitCause::Unread);
    }
}

/// Minimum time between two moves.
const MIN_MOVE_INTERVAL: Duration = Duration::from_secs(1);
