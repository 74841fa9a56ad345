//! Parsing of large messages away from the threads that serve clients.
//!
//! Parsing tens of megabytes of escaped text takes up to a second, during which a thread serves no
//! other client.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::codec::large_message::{LARGE_MESSAGE, work_on};
use crate::jsonrpc::{MAX_SERVER_DEPTH, ServerText, parse_from_server};
use crate::upstream::UpstreamError;
use crate::upstream::fault::SetupFault;

/// A message that is parsed on a thread for blocking work.
pub(super) type ParsingMessage =
    Pin<Box<dyn Future<Output = Result<ServerText, UpstreamError>> + Send>>;

/// Parses a server's text, on another thread if it is large.
///
/// # Errors
/// [`UpstreamError::Frame`].
pub(super) async fn parse_message(data: Bytes) -> Result<ServerText, UpstreamError> {
    if data.len() <= LARGE_MESSAGE {
        return Ok(parse_from_server(&data, MAX_SERVER_DEPTH)?);
    }
    begin_parsing(data).await
}

/// Runs work on a server's message, on another thread if it is large.
///
/// # Errors
/// [`UpstreamError`] if the work panicked.
pub(super) async fn work_on_message<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, UpstreamError> {
    Ok(work_on(bytes, work).await.map_err(|error| SetupFault::Task(Arc::new(error)))?)
}

/// Begins to parse a large message. The future can be polled again after another one was
/// awaited: the parsing continues.
pub(super) fn begin_parsing(data: Bytes) -> ParsingMessage {
    Box::pin(async move {
        let bytes = data.len();
        Ok(work_on_message(bytes, move || parse_from_server(&data, MAX_SERVER_DEPTH)).await??)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;
    use crate::jsonrpc::Frame;

    #[tokio::test]
    async fn a_large_message_takes_no_time_of_the_serving_thread() {
        let text = "\\n\\u00e4".repeat(4 << 20);
        let message = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"a\":\"{text}\"}}}}");
        let message = Bytes::from(message);
        let before = clock::thread_cpu_time();
        let frame = parse_message(message).await;
        let held = clock::thread_cpu_time().saturating_sub(before);
        assert!(matches!(frame, Ok(ServerText::Message(Frame::Response { .. }))));
        assert!(held < Duration::from_millis(20), "{held:?}");
        assert!(parse_message(Bytes::from_static(b"{\"id\":1}")).await.is_err());
    }
}
