//! The load server over standard streams, with as few steps as possible: one
//! thread that reads and writes, and a second one only if answers have a
//! latency.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;

use trunkline_core::clock;

use super::answers::{Answers, LoadAnswer, LoadSession};

/// Serves until the input ends.
pub(super) fn serve(answers: &Answers, latency: Duration) -> io::Result<()> {
    if latency.is_zero() {
        return read(answers, &mut |answer, _| write(&answer));
    }
    let (later, due) = sync_channel(MAX_WAITING_CALLS);
    let writer = std::thread::spawn(move || write_when_due(&due));
    read(answers, &mut |answer, wait| {
        let then = clock::real_now() + if wait { latency } else { Duration::ZERO };
        later.send((then, answer)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    })?;
    drop(later);
    writer.join().map_err(|_| io::Error::other("the writer failed"))?
}

/// Reads lines, and passes each answer to `hand`, together with true if it has to wait.
fn read(answers: &Answers, hand: &mut dyn FnMut(Bytes, bool) -> io::Result<()>) -> io::Result<()> {
    let mut input = io::BufReader::with_capacity(READ_BUFFER_BYTES, io::stdin().lock());
    let mut line = Vec::new();
    // The process is the session.
    let mut session = LoadSession::None;
    loop {
        line.clear();
        if input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        match answers.answer(&line, session) {
            LoadAnswer::Call(message) => hand(message, true)?,
            LoadAnswer::Now(message) | LoadAnswer::Invalid(message) => hand(message, false)?,
            LoadAnswer::Initialized(message) => {
                session = LoadSession::Open;
                hand(message, false)?;
            }
            LoadAnswer::NoSession => {
                hand(super::answers::error("null", -32600, "not initialized"), false)?;
            }
            LoadAnswer::Nothing => {}
        }
    }
}

/// Writes answers when they are due. All calls wait for the same latency, so sending them in order
/// is nearly exact, and cheap.
fn write_when_due(due: &Receiver<(Instant, Bytes)>) -> io::Result<()> {
    while let Ok((then, answer)) = due.recv() {
        #[expect(
            clippy::disallowed_methods,
            reason = "a thread of its own, that does nothing else"
        )]
        std::thread::sleep(then.saturating_duration_since(clock::real_now()));
        write(&answer)?;
    }
    Ok(())
}

fn write(answer: &[u8]) -> io::Result<()> {
    // A single write for the whole line.
    let mut line = Vec::with_capacity(answer.len() + 1);
    line.extend_from_slice(answer);
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}

const READ_BUFFER_BYTES: usize = 64 * 1024;
const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;
const MAX_WAITING_CALLS: usize = 4096;
