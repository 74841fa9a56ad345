//! A body, taken out of what was read as it comes.

use bytes::{Buf, Bytes, BytesMut};

use super::WireFault;
use super::head::Framing;

/// How far a body was read.
#[derive(Debug)]
pub struct Body {
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// So many bytes are left.
    Left(usize),
    /// A line with a chunk's size comes next.
    Size,
    /// So many bytes of the chunk are left, and the line end behind it.
    Chunk(usize),
    /// Behind the last chunk: trailers, then an empty line.
    Trailers,
    /// All until the connection ends.
    Close,
    Over,
}

/// What can be had of a body now.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Some bytes.
    Data(Bytes),
    /// Nothing before more is read; at least so many bytes are still to come.
    More(usize),
    /// Nothing any more.
    End,
}

impl Body {
    /// A body of which nothing was read.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Over,
            Framing::Length(length) => State::Left(length),
            Framing::Chunked => State::Size,
            Framing::Close => State::Close,
        };
        Self { state }
    }

    /// Whether the end of the connection is its end.
    pub fn ends_with_connection(&self) -> bool {
        self.state == State::Close
    }

    /// Takes the next piece out of `input`.
    ///
    /// # Errors
    /// [`WireFault::Chunk`] for chunks that are none.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Piece, WireFault> {
        loop {
            match self.state {
                State::Over => return Ok(Piece::End),
                State::Close if input.is_empty() => return Ok(Piece::More(1)),
                State::Close => return Ok(Piece::Data(input.split().freeze())),
                State::Left(left) | State::Chunk(left) if input.is_empty() && left > 0 => {
                    return Ok(Piece::More(left));
                }
                State::Left(left) => {
                    let taken = left.min(input.len());
                    self.state =
                        if taken == left { State::Over } else { State::Left(left - taken) };
                    return Ok(Piece::Data(input.split_to(taken).freeze()));
                }
                State::Chunk(0) => {
                    let Some(end) = input.get(..2) else { return Ok(Piece::More(2)) };
                    if end != b"\r\n" {
                        return Err(WireFault::Chunk);
                    }
                    input.advance(2);
                    self.state = State::Size;
                }
                State::Chunk(left) => {
                    let taken = left.min(input.len());
                    self.state = State::Chunk(left - taken);
                    return Ok(Piece::Data(input.split_to(taken).freeze()));
                }
                State::Size => match httparse::parse_chunk_size(input) {
                    Ok(httparse::Status::Complete((length, size))) => {
                        input.advance(length);
                        let size = usize::try_from(size).map_err(|_| WireFault::Chunk)?;
                        self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                    }
                    Ok(httparse::Status::Partial) if input.len() < MOST_LINE => {
                        return Ok(Piece::More(1));
                    }
                    _ => return Err(WireFault::Chunk),
                },
                State::Trailers => match memchr::memmem::find(input, b"\r\n") {
                    Some(0) => {
                        input.advance(2);
                        self.state = State::Over;
                    }
                    Some(end) => input.advance(end + 2),
                    None if input.len() < MOST_LINE => return Ok(Piece::More(1)),
                    None => return Err(WireFault::Chunk),
                },
            }
        }
    }
}

/// More than any line between chunks has.
const MOST_LINE: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole body, fed byte by byte.
    fn read(framing: Framing, text: &[u8]) -> Result<Option<Vec<u8>>, WireFault> {
        let (mut body, mut input, mut found) = (Body::new(framing), BytesMut::new(), Vec::new());
        let mut rest = text.iter();
        loop {
            match body.next(&mut input)? {
                Piece::Data(piece) => found.extend_from_slice(&piece),
                Piece::End => return Ok((rest.len() == 0 && input.is_empty()).then_some(found)),
                Piece::More(_) => match rest.next() {
                    Some(byte) => input.extend_from_slice(&[*byte]),
                    None => return Ok(None),
                },
            }
        }
    }

    #[test]
    fn a_body_is_read_whole_however_it_comes() {
        let chunked = b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n";
        assert_eq!(read(Framing::Chunked, chunked).unwrap().unwrap(), b"abc0123456789");
        assert_eq!(read(Framing::Length(3), b"abc").unwrap().unwrap(), b"abc");
        assert_eq!(read(Framing::Length(0), b"").unwrap().unwrap(), b"");
        assert_eq!(read(Framing::Chunked, b"3\r\nab").unwrap(), None);
    }

    #[test]
    fn chunks_that_are_none_are_refused() {
        for text in [&b"x\r\n"[..], b"1\r\nabc", b"fffffffffffffffff\r\n"] {
            assert!(matches!(read(Framing::Chunked, text), Err(WireFault::Chunk)), "{text:?}");
        }
    }
}
