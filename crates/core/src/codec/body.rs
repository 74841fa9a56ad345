//! Reads whole HTTP bodies, within a limit.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use super::large_message::make_room;

/// Reasons that a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError<E> {
    /// The body has more bytes than allowed.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// Limit of the bytes.
        limit: usize,
    },
    /// A stream of events has more lines without a message than allowed.
    #[error("more than {limit} lines without a message came within a second")]
    Chatter {
        /// Limit of the lines.
        limit: usize,
    },
    /// The peer or the connection failed before the end of the body.
    #[error("the body is incomplete")]
    Broken(#[source] E),
}

/// Reads a body of at most `limit` bytes.
///
/// # Errors
/// [`BodyError::TooLarge`] as soon as the size is known or exceeded, [`BodyError::Broken`] if the
/// transport fails.
///
/// # Cancel safety
/// Not cancel safe: bytes that were read are lost when the future is dropped.
pub async fn collect<B>(mut body: B, limit: usize) -> Result<Bytes, BodyError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
        if first.len() + whole.len() + data.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        // A body that arrives in one piece, as most do, is never copied, and is not polled again if
        // it reports its end.
        if first.is_empty() && whole.is_empty() {
            first = data;
            if body.is_end_stream() {
                break;
            }
            continue;
        }
        if whole.is_empty() {
            let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
            whole.reserve(first.len() + data.len() + announced.min(MAX_RESERVED_AHEAD));
            whole.extend_from_slice(&first);
            first = Bytes::new();
        }
        make_room(&mut whole, data.len());
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// Limit of announced bytes that are reserved in advance: a growing buffer is copied each time.
const MAX_RESERVED_AHEAD: usize = 256 * 1024;
