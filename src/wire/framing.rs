//! A body, taken out of what was read as it comes.

use bytes::{Buf, Bytes, BytesMut};

use super::WireFault;
use super::head::Framing;

/// How far a body was read.
#[derive(Debug)]
pub struct Framed {
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// So many bytes are left.
    Left(u64),
    /// A line with a chunk's size comes next.
    Size,
    /// So many bytes of the chunk are left, and the line end behind it.
    Chunk(u64),
    /// Behind the last chunk: trailers, then an empty line. So many bytes of
    /// them were passed.
    Trailers(usize),
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
    More(u64),
    /// Nothing any more.
    End,
}

impl Framed {
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

    /// How many bytes are still to come, as far as that is known: at least,
    /// and whether that is all.
    pub fn left(&self) -> (u64, bool) {
        match self.state {
            State::Left(left) => (left, true),
            State::Chunk(left) => (left, false),
            State::Over => (0, true),
            State::Size | State::Trailers(_) | State::Close => (0, false),
        }
    }

    /// Takes the next piece out of `input`.
    ///
    /// # Errors
    /// [`WireFault::Chunk`] for chunks that are none.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Piece, WireFault> {
        Ok(match self.pass(input)? {
            Next::End => Piece::End,
            Next::More(missing) => Piece::More(missing),
            Next::Data => match &mut self.state {
                State::Left(left) => {
                    let piece = take(input, left);
                    if *left == 0 {
                        self.state = State::Over;
                    }
                    Piece::Data(piece)
                }
                State::Chunk(left) => Piece::Data(take(input, left)),
                _ => Piece::Data(input.split().freeze()),
            },
        })
    }

    /// Whether nothing is to come any more, as far as was read.
    ///
    /// # Errors
    /// [`WireFault::Chunk`] for chunks that are none.
    pub fn is_over(&mut self, input: &mut BytesMut) -> Result<bool, WireFault> {
        Ok(matches!(self.pass(input)?, Next::End))
    }

    /// Passes over what stands before the next piece.
    fn pass(&mut self, input: &mut BytesMut) -> Result<Next, WireFault> {
        loop {
            match self.state {
                State::Over => return Ok(Next::End),
                State::Close if input.is_empty() => return Ok(Next::More(1)),
                State::Left(left) | State::Chunk(left) if left > 0 && input.is_empty() => {
                    return Ok(Next::More(left));
                }
                State::Chunk(0) => {
                    let Some(end) = input.get(..2) else { return Ok(Next::More(2)) };
                    if end != b"\r\n" {
                        return Err(WireFault::Chunk);
                    }
                    input.advance(2);
                    self.state = State::Size;
                }
                State::Close | State::Left(_) | State::Chunk(_) => return Ok(Next::Data),
                // No size at all would be read as none left, and whoever stands on the way may see
                // other lines where one ends without a CR.
                State::Size if input.first().is_some_and(|first| !first.is_ascii_hexdigit()) => {
                    return Err(WireFault::Chunk);
                }
                State::Size => match httparse::parse_chunk_size(input) {
                    Ok(httparse::Status::Complete((length, size))) => {
                        if has_loose_end(input.get(..length.saturating_sub(2))) {
                            return Err(WireFault::Chunk);
                        }
                        input.advance(length);
                        self.state =
                            if size == 0 { State::Trailers(0) } else { State::Chunk(size) };
                    }
                    Ok(httparse::Status::Partial) if input.len() < MOST_LINE => {
                        return Ok(Next::More(1));
                    }
                    _ => return Err(WireFault::Chunk),
                },
                State::Trailers(passed) => match memchr::memmem::find(input, b"\r\n") {
                    Some(0) => {
                        input.advance(2);
                        self.state = State::Over;
                    }
                    Some(end) if has_loose_end(input.get(..end)) => return Err(WireFault::Chunk),
                    Some(end) if passed + end < MOST_LINE => {
                        input.advance(end + 2);
                        self.state = State::Trailers(passed + end + 2);
                    }
                    None if passed + input.len() < MOST_LINE => return Ok(Next::More(1)),
                    _ => return Err(WireFault::Chunk),
                },
            }
        }
    }
}

/// Whether a line without its end has an end in it.
fn has_loose_end(line: Option<&[u8]>) -> bool {
    memchr::memchr2(b'\r', b'\n', line.unwrap_or_default()).is_some()
}

/// What stands next in a body.
enum Next {
    Data,
    /// It is not there yet; at least so many bytes are missing.
    More(u64),
    End,
}

/// As much of `left` bytes as is there.
fn take(input: &mut BytesMut, left: &mut u64) -> Bytes {
    let taken = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
    *left -= taken as u64;
    input.split_to(taken).freeze()
}

/// More than any line between chunks has, and all trailers together.
const MOST_LINE: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole body, fed byte by byte.
    fn read(framing: Framing, text: &[u8]) -> Result<Option<Vec<u8>>, WireFault> {
        let (mut body, mut input, mut found) = (Framed::new(framing), BytesMut::new(), Vec::new());
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
        let endless = format!("0\r\n{}", "x: y\r\n".repeat(MOST_LINE / 6 + 1));
        for text in [
            &b"x\r\n"[..],
            b"1\r\nabc",
            b"fffffffffffffffff\r\n",
            b"\r\n",
            b" 1\r\na\r\n",
            b";x\r\n",
            b"3\r\nabc\r\n\r\n\r\n",
            b"2;\nxx\r\nab",
            b"0\r\nx: a\n\r\n",
            b"0\r\nx: a\ry\r\n",
            endless.as_bytes(),
        ] {
            assert!(matches!(read(Framing::Chunked, text), Err(WireFault::Chunk)), "{text:?}");
        }
    }

    #[test]
    fn a_huge_chunk_is_nothing_to_be_afraid_of() {
        let found = read(Framing::Chunked, b"7fffffffffffffff\r\nabc");
        assert_eq!(found.unwrap(), None);
    }
}
