//! A large result that is forwarded while it is still arriving.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;

use trunkline_core::codec::large_message::{make_room, share_thread, work_on};

use crate::mcp::Era;

use crate::call::{Failure, InternalFault, ReplyWatch, ResultBody, ServerFault, ServerName};

/// The raw JSON of a result, in pieces. Dropping it before its end closes the
/// server's stream.
pub struct Passing {
    server: ServerName,
    era: Era,
    pieces: Pin<Box<dyn Stream<Item = Result<Bytes, Failure>> + Send>>,
    at_end: Option<AtEnd>,
    /// Number of bytes read so far.
    passed: u64,
    held: Vec<Box<dyn Send>>,
    watch: Option<Box<dyn ReplyWatch>>,
    meter: Option<Box<dyn ResultMeter>>,
}

/// Counts the memory of a result that is read whole.
pub trait ResultMeter: Send {
    /// Counts a result with this many bytes in memory.
    ///
    /// # Errors
    /// The [`Failure`] of the call if there is no memory for them.
    fn count(&mut self, bytes: usize) -> Result<(), Failure>;

    /// Returns the whole result, which stays counted until its last byte is dropped.
    fn hold(&mut self, whole: Bytes) -> Bytes;
}

/// Called with the outcome at the end, and the size of the result.
type AtEnd = Box<dyn FnOnce(Result<(), &Failure>, u64) + Send>;

impl Passing {
    /// Creates a result from `server`, which speaks that era. No pieces follow a failure.
    pub fn new(
        server: ServerName,
        era: Era,
        pieces: impl Stream<Item = Result<Bytes, Failure>> + Send + 'static,
    ) -> Self {
        Self {
            server,
            era,
            pieces: Box::pin(pieces),
            at_end: None,
            passed: 0,
            held: Vec::new(),
            watch: None,
            meter: None,
        }
    }

    /// Counts the memory of the result with `meter` if it is read whole.
    #[must_use]
    pub fn metered_by(self, meter: impl ResultMeter + 'static) -> Self {
        Self { meter: Some(Box::new(meter)), ..self }
    }

    /// Returns the era of the server that sends it.
    #[inline]
    pub fn era(&self) -> Era {
        self.era
    }

    /// Keeps a guard until the result ends.
    #[inline]
    pub fn hold(&mut self, what: Box<dyn Send>) {
        self.held.push(what);
    }

    /// Sets the watch that is notified of the result's end.
    #[inline]
    pub fn set_watch(&mut self, watch: Option<Box<dyn ReplyWatch>>) {
        self.watch = watch;
    }

    /// Sets a callback for the end of the result, with the number of its bytes. It is dropped if
    /// the result is not read to its end.
    pub fn on_end(&mut self, told: impl FnOnce(Result<(), &Failure>, u64) + Send + 'static) {
        self.at_end = Some(Box::new(told));
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// The [`Failure`] that ended the result early.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let piece = poll_fn(|cx| self.pieces.as_mut().poll_next(cx)).await;
        let ended = match &piece {
            Some(Ok(bytes)) => {
                self.passed += bytes.len() as u64;
                return piece.transpose();
            }
            Some(Err(failure)) => Err(failure),
            None => Ok(()),
        };
        if let Some(watch) = self.watch.take() {
            watch.ended(ended);
        }
        if let Some(told) = self.at_end.take() {
            told(ended, self.passed);
        }
        self.held.clear();
        piece.transpose()
    }

    /// Reads the whole result. `upstream` has bounded its size.
    ///
    /// # Errors
    /// The [`Failure`] that ended the result early, or an invalid result.
    pub async fn whole(self) -> Result<ResultBody, Failure> {
        self.whole_within(|_| Ok(())).await
    }

    /// Reads the whole result, for as long as `hold` accepts the bytes of each piece.
    ///
    /// # Errors
    /// That of `hold`, the [`Failure`] that ended the result early, or an invalid result.
    pub async fn whole_within<E: From<Failure>>(
        mut self,
        hold: impl Fn(usize) -> Result<(), E>,
    ) -> Result<ResultBody, E> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.next().await? {
            hold(piece.len())?;
            if let Some(meter) = &mut self.meter {
                meter.count(whole.len() + piece.len())?;
            }
            make_room(&mut whole, piece.len());
            whole.extend_from_slice(&piece);
            share_thread(piece.len()).await;
        }
        let whole = whole.freeze();
        let whole = match &mut self.meter {
            Some(meter) => meter.hold(whole),
            None => whole,
        };
        let parsed = work_on(whole.len(), move || ResultBody::parse(whole)).await;
        let parsed = parsed.map_err(|_| Failure::from(InternalFault::LargeWork))?;
        let invalid = |fault| Failure::bad_answer(self.server, ServerFault::Answer(fault));
        Ok(parsed.map_err(invalid)?)
    }
}

impl fmt::Debug for Passing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passing").field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use trunkline_core::codec::large_message::{LARGE_MESSAGE, leaves_its_thread};

    #[test]
    fn a_large_result_that_is_read_whole_is_parsed_away_from_the_serving_thread() {
        for (size, is_large) in [(100, false), (LARGE_MESSAGE + 1, true)] {
            let pieces = [Bytes::from_static(b"{\"a\":\""), "x".repeat(size).into(), "\"}".into()];
            let pieces = stream::iter(pieces.map(Ok));
            let passing = Passing::new(ServerName::new("s").unwrap(), Era::Modern, pieces);
            let (leaves, result) = leaves_its_thread(passing.whole());
            assert_eq!((leaves, result.unwrap().raw().len()), (is_large, size + 8));
        }
    }
}
