//! Responses with an unrequested content coding.

use ::http::Response;
use ::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use async_compression::tokio::write::{BrotliEncoder, GzipEncoder};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::io::AsyncWriteExt as _;

use super::http::Body;

/// Encodes a text.
pub async fn encode(coding: &str, text: &[u8]) -> Bytes {
    let mut encoder = Encoder::new(coding);
    let beginning = encoder.push(text).await;
    let end = encoder.finish().await;
    [beginning, end].concat().into()
}

/// Encodes a response, each piece as soon as it arrives.
pub(super) fn encoded(coding: &'static str, response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    head.headers.insert(CONTENT_ENCODING, coding.parse().unwrap());
    let pieces = stream::unfold(Some((body, Encoder::new(coding))), |state| async {
        let (mut body, mut encoder) = state?;
        let piece = match body.frame().await {
            Some(frame) => {
                let piece = encoder.push(&frame.unwrap().into_data().unwrap()).await;
                return Some((Ok(Frame::data(piece)), Some((body, encoder))));
            }
            None => encoder.finish().await,
        };
        Some((Ok(Frame::data(piece)), None))
    });
    Response::from_parts(head, StreamBody::new(pieces).boxed_unsync())
}

enum Encoder {
    Gzip(GzipEncoder<Vec<u8>>),
    Brotli(Box<BrotliEncoder<Vec<u8>>>),
}

impl Encoder {
    fn new(coding: &str) -> Self {
        match coding {
            "gzip" => Self::Gzip(GzipEncoder::new(Vec::new())),
            "br" => Self::Brotli(Box::new(BrotliEncoder::new(Vec::new()))),
            other => panic!("{other} is no coding of these tests"),
        }
    }

    async fn push(&mut self, piece: &[u8]) -> Bytes {
        match self {
            Self::Gzip(encoder) => {
                encoder.write_all(piece).await.unwrap();
                encoder.flush().await.unwrap();
                std::mem::take(encoder.get_mut()).into()
            }
            Self::Brotli(encoder) => {
                encoder.write_all(piece).await.unwrap();
                encoder.flush().await.unwrap();
                std::mem::take(encoder.get_mut()).into()
            }
        }
    }

    async fn finish(mut self) -> Bytes {
        match &mut self {
            Self::Gzip(encoder) => {
                encoder.shutdown().await.unwrap();
                std::mem::take(encoder.get_mut()).into()
            }
            Self::Brotli(encoder) => {
                encoder.shutdown().await.unwrap();
                std::mem::take(encoder.get_mut()).into()
            }
        }
    }
}
