//! Content codings of responses. The gateway requests `identity`. It decodes gzip and brotli
//! nevertheless, because some servers and proxies ignore `Accept-Encoding`.
//!
//! A decoded body is read in small pieces, on demand, so that the limits of its readers count
//! decoded bytes: a small response never becomes a large one.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, Response};
use http_body::{Body as _, Frame};
use tokio::io::AsyncRead;
use tokio::task::coop;
use tokio_util::io::{StreamReader, poll_read_buf};

use trunkline_core::text::clip;

use super::ResponseBody;
use crate::error::{HttpError, TransportError};

/// Replaces the body of a response with a content coding by the decoded one. A response with an
/// error status keeps its body if the coding is unknown, because its status is the message.
///
/// # Errors
/// [`HttpError::Encoding`] names a coding that is not known, or more than one.
#[inline]
pub fn decode_body(response: &mut Response<ResponseBody>) -> Result<(), HttpError> {
    if !response.headers().contains_key(CONTENT_ENCODING) {
        return Ok(());
    }
    decode_by_header(response)
}

#[cold]
fn decode_by_header(response: &mut Response<ResponseBody>) -> Result<(), HttpError> {
    let coding = match ContentCoding::named_in(response.headers()) {
        Ok(Some(coding)) => coding,
        Ok(None) => return Ok(()),
        Err(_) if !response.status().is_success() => return Ok(()),
        Err(found) => return Err(HttpError::Encoding { found }),
    };
    let headers = response.headers_mut();
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    response.body_mut().decode(coding);
    Ok(())
}

/// A content coding that is decoded (RFC 9110, 8.4.1; RFC 7932).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentCoding {
    Gzip,
    Brotli,
}

impl ContentCoding {
    /// Returns the only coding that the headers name, or `None` for `identity`.
    ///
    /// # Errors
    /// The codings, if there are several, or one that is not supported.
    fn named_in(headers: &HeaderMap) -> Result<Option<Self>, String> {
        let values = headers.get_all(CONTENT_ENCODING).into_iter();
        let codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let codings = codings.map(|coding| String::from_utf8_lossy(coding).trim().to_owned());
        let mut codings = codings.filter(|coding| !is_identity(coding));
        let Some(first) = codings.next() else { return Ok(None) };
        if let Some(second) = codings.next() {
            return Err(clip(&format!("{first}, {second}"), MAX_SHOWN_CODING_BYTES).to_owned());
        }
        match first.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Ok(Some(Self::Gzip)),
            "br" => Ok(Some(Self::Brotli)),
            _ => Err(clip(&first, MAX_SHOWN_CODING_BYTES).to_owned()),
        }
    }

    /// Returns the name in `Content-Encoding`.
    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
        }
    }
}

fn is_identity(coding: &str) -> bool {
    coding.is_empty() || coding.eq_ignore_ascii_case("identity")
}

/// The rest of a body with a content coding.
pub(super) struct DecodedBody {
    coding: ContentCoding,
    decoder: Pin<Box<dyn AsyncRead + Send>>,
    is_over: bool,
}

impl DecodedBody {
    pub(super) fn new(body: ResponseBody, coding: ContentCoding) -> Self {
        let encoded = StreamReader::new(EncodedPieces { body, coding, has_begun: false });
        let decoder: Pin<Box<dyn AsyncRead + Send>> = match coding {
            ContentCoding::Gzip => {
                let mut decoder = GzipDecoder::new(encoded);
                // RFC 1952, 2.2: a file consists of members.
                decoder.multiple_members(true);
                Box::pin(decoder)
            }
            ContentCoding::Brotli => Box::pin(BrotliDecoder::new(encoded)),
        };
        Self { coding, decoder, is_over: false }
    }

    /// Returns the next piece, or `None` at the end.
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, TransportError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        // A small input can produce much output without ever waiting. This lets other tasks run in
        // between.
        let turn = ready!(coop::poll_proceed(cx));
        let mut piece = BytesMut::with_capacity(DECODED_PIECE);
        let read = ready!(poll_read_buf(self.decoder.as_mut(), cx, &mut piece));
        turn.made_progress();
        self.is_over = !matches!(read, Ok(size) if size > 0);
        Poll::Ready(match read {
            Ok(0) => None,
            Ok(_) => Some(Ok(piece.freeze())),
            Err(error) => Some(Err(self.fault(error))),
        })
    }

    /// Returns the fault of the connection, or otherwise of the coding.
    fn fault(&self, error: io::Error) -> TransportError {
        match error.downcast::<TransportError>() {
            Ok(fault) => fault,
            Err(error) => {
                let coding = self.coding.name();
                TransportError::Undecodable { coding, source: error }
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

impl fmt::Debug for DecodedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodedBody").field("coding", &self.coding).finish_non_exhaustive()
    }
}

/// The pieces of a body before they are decoded.
struct EncodedPieces {
    body: ResponseBody,
    coding: ContentCoding,
    has_begun: bool,
}

impl Stream for EncodedPieces {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { body, coding, has_begun } = self.get_mut();
        loop {
            let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
            let piece = match frame.map(|frame| frame.map(Frame::into_data)) {
                None => return Poll::Ready(None),
                Some(Err(fault)) => return Poll::Ready(Some(Err(io::Error::other(fault)))),
                Some(Ok(Ok(piece))) if !piece.is_empty() => piece,
                Some(Ok(_)) => continue,
            };
            let is_first = !std::mem::replace(has_begun, true);
            if is_first && *coding == ContentCoding::Brotli && has_large_window(&piece) {
                return Poll::Ready(Some(Err(io::Error::other(WindowSizeError))));
            }
            return Poll::Ready(Some(Ok(piece)));
        }
    }
}

/// Returns true for a header that RFC 7932 (9.1) forbids. The decoder reads it as an extension with
/// windows of up to a gibibyte, where the standard allows 16 MiB.
fn has_large_window(beginning: &[u8]) -> bool {
    beginning.first().is_some_and(|byte| byte & 0x7f == 0x11)
}

#[derive(Debug, thiserror::Error)]
#[error("its window is larger than 16 MiB")]
struct WindowSizeError;

/// Maximum length in bytes of a content coding in an error.
const MAX_SHOWN_CODING_BYTES: usize = 100;
/// Maximum number of bytes to decode at once.
const DECODED_PIECE: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn one_known_coding_is_decoded_and_every_other_is_named() {
        for (values, coding) in [
            (&["gzip"][..], Ok(Some(ContentCoding::Gzip))),
            (&[" X-GZip "], Ok(Some(ContentCoding::Gzip))),
            (&["br"], Ok(Some(ContentCoding::Brotli))),
            (&["identity, br"], Ok(Some(ContentCoding::Brotli))),
            (&["identity", "gzip"], Ok(Some(ContentCoding::Gzip))),
            (&["identity"], Ok(None)),
            (&["", " ,"], Ok(None)),
            (&["gzip", "br"], Err("gzip, br")),
            (&["gzip, gzip"], Err("gzip, gzip")),
            (&["zstd"], Err("zstd")),
            (&["deflate"], Err("deflate")),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            let coding = coding.map_err(str::to_owned);
            assert_eq!(ContentCoding::named_in(&headers), coding, "{values:?}");
        }
    }

    #[test]
    fn a_large_window_shows_in_the_first_byte() {
        assert!(has_large_window(&[0x11]) && has_large_window(&[0x91, 0]));
        assert!(!has_large_window(&[]) && !has_large_window(&[0x0b]) && !has_large_window(&[0x01]));
    }
}
