//! What reads a child's lines: one task, on the thread of whoever calls it.
//!
//! A child starts on the runtime that all servers live on, and its callers are
//! served on others. Read there, each of its answers wakes one thread, and that
//! one the caller's. So the task follows a caller that is alone with the child:
//! to its runtime, pipe and all.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;
use tokio::process::ChildStdout;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::codec::lines::{LineError, LineReader};

use super::wire::ChildLink;

/// A child's output. It can be read on any runtime, the one it is on included.
pub(in crate::upstream) struct ChildOutput {
    /// None where it could not be brought from one runtime to another.
    pipe: Option<pipe::Receiver>,
    at: runtime::Id,
}

impl ChildOutput {
    /// The output of a child that was started on this runtime.
    ///
    /// # Errors
    /// What the system says where it is no pipe of this process any more.
    pub(in crate::upstream) fn new(output: ChildStdout) -> io::Result<Self> {
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

/// Where the task is, and how it is called elsewhere.
#[derive(Default)]
pub(super) struct ReaderTask(Mutex<ReaderTaskState>);

#[derive(Default)]
struct ReaderTaskState {
    at: Option<runtime::Id>,
    since: Option<Instant>,
    call: Option<oneshot::Sender<Handle>>,
}

impl ReaderTask {
    /// Has the task come to this runtime, unless it has just moved: callers of
    /// different threads must not send it to and fro.
    pub(super) fn call_here(&self) {
        let here = Handle::current();
        let mut standing = self.standing();
        let settled = standing.since.is_none_or(|since| since.elapsed() >= SETTLED);
        if standing.at != Some(here.id())
            && settled
            && let Some(call) = standing.call.take()
        {
            standing.since = Some(Instant::now());
            let _ = call.send(here);
        }
    }

    /// The task is on this runtime now; gives what calls it to another.
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

/// The task. Where it ends, however it does, the child is lost.
pub(super) struct OutputReader<R> {
    wire: Arc<ChildLink>,
    lines: LineReader<R>,
}

impl<R: AsyncRead + Send + Unpin + 'static> OutputReader<R> {
    pub(super) fn start(wire: &Arc<ChildLink>, output: R, limit: usize) {
        let reader = Self { wire: Arc::clone(wire), lines: LineReader::new(output, limit) };
        tokio::spawn(reader.run());
    }

    /// Boxed, because it starts itself elsewhere.
    fn run(mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut called = self.wire.place.settle();
            let reason = loop {
                let line = tokio::select! {
                    line = self.lines.next() => line,
                    Ok(there) = &mut called => {
                        there.spawn(self.run());
                        return;
                    }
                };
                match line {
                    Ok(Some(line)) => self.wire.take(&line),
                    Ok(None) => break "it closed its output".to_owned(),
                    Err(LineError::TooLong { limit, ends }) => self.wire.too_long(limit, &ends),
                    Err(error) => break error.to_string(),
                }
            };
            self.wire.lost(&reason);
        })
    }
}

impl<R> Drop for OutputReader<R> {
    fn drop(&mut self) {
        // Does nothing where a reason was given, or it goes on elsewhere.
        self.wire.lost("nobody reads its output any more");
    }
}

/// How long it stays where it is.
const SETTLED: Duration = Duration::from_secs(1);
