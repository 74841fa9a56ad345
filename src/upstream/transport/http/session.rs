//! A Legacy server's session: opened, kept, and reopened when lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::timeout;

use bytes::Bytes;

use crate::call::Answer;
use crate::http_client::RequestHeaders;
use crate::jsonrpc::{self, Frame, Id, MAX_SERVER_DEPTH, Response, ServerText, parse_from_server};
use crate::mcp::{Method, ProtocolVersion, add_session_headers, header, notification};
use crate::upstream::UpstreamError;
use crate::upstream::peer::{Peer, initialize_params, judge_initialize};
use crate::upstream::transport::request_ids::RequestIds;

use super::calls::reply::HttpReply;
use super::client::ServerClient;

/// The current Legacy session with a peer. Callers that lose it together open only one replacement.
pub struct SessionCell<S> {
    current: Mutex<Option<Arc<S>>>,
    /// Held while a session is opened.
    opening: AsyncMutex<()>,
    /// Counts the sessions, for state that must be set up again in each.
    opened: watch::Sender<u64>,
}

impl<S> Default for SessionCell<S> {
    fn default() -> Self {
        let (opening, opened) = (AsyncMutex::new(()), watch::Sender::new(0));
        Self { current: Mutex::new(None), opening, opened }
    }
}

impl<S> SessionCell<S> {
    /// Returns the open session, as far as is known.
    pub fn current(&self) -> Option<Arc<S>> {
        self.current.lock().clone()
    }

    /// Replaces the session, and returns the previous one.
    pub fn replace(&self, open: Arc<S>) -> Option<Arc<S>> {
        let mut current = self.current.lock();
        self.opened.send_modify(|opened| *opened += 1);
        current.replace(open)
    }

    /// Opens a session in place of the lost one. Returns `None` if another caller has done so.
    ///
    /// # Errors
    /// The error of `open`, which leaves the lost session in its place.
    pub async fn reopen<E>(
        &self,
        lost: &Arc<S>,
        open: impl Future<Output = Result<S, E>>,
    ) -> Result<Option<Arc<S>>, E> {
        let _turn = self.opening.lock().await;
        if self.current().is_some_and(|current| !Arc::ptr_eq(&current, lost)) {
            return Ok(None);
        }
        let open = Arc::new(open.await?);
        self.replace(Arc::clone(&open));
        Ok(Some(open))
    }
}

/// The session with one server, shared by all calls to it. Modern servers have
/// none.
#[derive(Default)]
pub(super) struct LegacySession(SessionCell<OpenSession>);

pub(super) struct OpenSession {
    /// The server's session id. Some servers use none.
    id: Option<HeaderValue>,
    version: ProtocolVersion,
    /// True once the server has lost the session. The next call then opens another.
    is_lost: AtomicBool,
}

impl OpenSession {
    /// Marks the session as lost, so that the next call opens another.
    pub(super) fn mark_lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_marked_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Returns true if the session has an id, which the server can lose.
    pub(super) fn can_be_lost(&self) -> bool {
        self.id.is_some()
    }
}

impl RequestHeaders for OpenSession {
    fn add_to(&self, headers: &mut HeaderMap) {
        add_session_headers(headers, Some(self.version.to_header()), self.id.clone());
    }
}

impl LegacySession {
    /// Notifies of new sessions.
    pub(super) fn numbers(&self) -> watch::Receiver<u64> {
        self.0.opened.subscribe()
    }

    /// Returns the number of the current session.
    pub(super) fn number(&self) -> u64 {
        *self.0.opened.borrow()
    }

    /// Sends `initialize` with these raw client capabilities, and opens a
    /// session.
    pub(super) async fn open(
        client: &ServerClient,
        told: &[u8],
        limit: usize,
    ) -> Result<(Peer, Self), UpstreamError> {
        let (peer, open) = open(client, told, limit).await?;
        let session = Self::default();
        session.0.replace(Arc::new(open));
        Ok((peer, session))
    }

    /// Returns the open session, as far as is known.
    pub(super) fn current(&self) -> Option<Arc<OpenSession>> {
        self.0.current()
    }

    /// Adds the session's headers. Returns the session if the server can lose it.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) -> Option<Arc<OpenSession>> {
        let open = self.current()?;
        open.add_to(headers);
        Some(open).filter(|open| open.can_be_lost())
    }

    /// Opens a new session in place of a lost one, unless another call has done so. Limited in
    /// time, because all calls wait for it.
    pub(super) async fn reopen(
        &self,
        lost: &Arc<OpenSession>,
        open: impl Future<Output = Result<(Peer, OpenSession), UpstreamError>>,
    ) -> Result<(), UpstreamError> {
        let open = async {
            let opened = timeout(OPENING_TIMEOUT, open).await;
            Ok(opened.map_err(|_| UpstreamError::Timeout { after: OPENING_TIMEOUT })??.1)
        };
        self.0.reopen(lost, open).await.map(drop)
    }

    /// Ends the session at the server.
    pub(super) async fn close(&self, client: &ServerClient) {
        let mut headers = HeaderMap::new();
        if self.add_to(&mut headers).is_some() {
            // A server that does not support this may answer 405.
            let _ = client.send_empty(&HttpMethod::DELETE, &headers).await;
        }
    }
}

pub(super) async fn open(
    client: &ServerClient,
    told: &[u8],
    limit: usize,
) -> Result<(Peer, OpenSession), UpstreamError> {
    let request = Id::number(RequestIds::default().draw());
    let body = jsonrpc::request(&request, Method::Initialize.as_str(), &initialize_params(told));
    let response = client.post_repeatable(&HeaderMap::new(), body).await?;
    let id = response.headers().get(header::SESSION_ID).cloned();
    let answer = HttpReply::read(response, limit).await?.answer(&request).await?;
    let peer = judge_initialize(&answer)?;
    let open = OpenSession { id, version: peer.version, is_lost: AtomicBool::new(false) };
    let mut headers = HeaderMap::new();
    open.add_to(&mut headers);
    let initialized = jsonrpc::notification(notification::INITIALIZED, None);
    client.post_repeatable(&headers, initialized).await?;
    Ok((peer, open))
}

/// Returns true if an HTTP error means that the server does not know the session: 404 as the
/// specification demands, 410, the error of the TypeScript SDK, or 400 with a text about sessions
/// that is not a response to the request. The reference servers send the last one as an error
/// without an id, as an error with a made-up id, or as plain text. After a restart they report that
/// the server is not initialized.
///
/// `asked` is the id of the request; `None` for a message that is not a request.
pub fn is_session_lost(status: StatusCode, body: &Bytes, asked: Option<&Id>) -> bool {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => true,
        _ if status.is_client_error() && says_session_lost(body) => true,
        StatusCode::BAD_REQUEST => {
            let frame = jsonrpc::parse(body, MAX_SERVER_DEPTH);
            let answers =
                matches!(&frame, Ok(Frame::Response { id: Some(id), .. }) if Some(id) == asked);
            let text = String::from_utf8_lossy(body).to_lowercase();
            !answers && (text.contains("session") || text.contains("not initialized"))
        }
        _ => false,
    }
}

/// Returns true if a text is an error with the code and the message by which the TypeScript SDK
/// reports a lost session. The code alone also denotes other errors.
fn says_session_lost(body: &Bytes) -> bool {
    let frame = parse_from_server(body, MAX_SERVER_DEPTH).and_then(ServerText::into_response);
    matches!(frame, Ok(Frame::Response { response, .. }) if is_session_error(&response))
}

/// Returns true if a response is the error of a lost session.
pub(super) fn is_session_error(response: &Response) -> bool {
    let Response::Error(raw) = response else { return false };
    let Ok(Answer::Error(error)) = Answer::parse(Response::Error(raw.clone())) else {
        return false;
    };
    let message = error.message().to_lowercase();
    error.code() == SESSION_NOT_FOUND && LOST_WORDS.iter().any(|words| message.contains(words))
}

/// Returns true if a reply means that the server does not know the session.
pub(super) fn is_lost(reply: &HttpReply, asked: &Id) -> bool {
    matches!(reply, HttpReply::Refused { status, body, .. } if is_session_lost(*status, body, Some(asked)))
}

/// The JSON-RPC code of a lost session in the TypeScript SDK.
const SESSION_NOT_FOUND: i64 = -32001;
/// Words in the messages of a lost session.
const LOST_WORDS: [&str; 6] = [
    "session not found",
    "session expired",
    "session has expired",
    "session terminated",
    "invalid session",
    "unknown session",
];
/// Time limit for opening a session in place of a lost one.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_session_differs_from_other_refusals() {
        for (status, body, is_lost) in [
            (404, "", true),
            (
                400,
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#,
                true,
            ),
            (
                400,
                r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID"}}"#,
                true,
            ),
            (410, "", true),
            (410, "gone", true),
            (
                400,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}"#,
                true,
            ),
            (
                403,
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session expired, log in"}}"#,
                true,
            ),
            (
                409,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Unknown session ID"}}"#,
                true,
            ),
            (
                400,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Request timed out"}}"#,
                false,
            ),
            (
                500,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}"#,
                false,
            ),
            (400, "Bad Request: No valid session ID provided", true),
            (
                400,
                r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}"#,
                true,
            ),
            (
                400,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such session"}}"#,
                false,
            ),
            (400, "no", false),
            (401, "session", false),
            (500, "session", false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let told = is_session_lost(status, &body.into(), Some(&Id::number(7)));
            assert_eq!(told, is_lost, "{status} {body}");
        }
    }
}
