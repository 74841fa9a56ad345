//! A Legacy server's session: opened, kept, and reopened when lost.

use http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, watch};

use bytes::Bytes;

use crate::jsonrpc::{self, Frame, Id};
use crate::mcp::{Method, ProtocolVersion, header, notification};
use crate::upstream::UpstreamError;
use crate::upstream::transport::peer::{Peer, initialize_params, judge_initialize};

use super::client::HttpClient;
use super::reply::HttpReply;

/// The session with one server, shared by all calls to it.
pub(super) struct LegacySession {
    current: Mutex<Option<OpenSession>>,
    /// Held while a new session is opened, so that calls that lose the old one
    /// together open only one.
    opening: AsyncMutex<()>,
    /// The number of the current session, for state that must be set up again
    /// in each session.
    numbers: watch::Sender<u64>,
}

#[derive(Clone)]
struct OpenSession {
    /// Counts the sessions that were opened.
    number: u64,
    /// The server's session id. Some servers use none.
    id: Option<HeaderValue>,
    version: ProtocolVersion,
}

impl LegacySession {
    /// The absence of a session, for Modern servers.
    pub(super) fn none() -> Self {
        Self::of(None)
    }

    fn of(open: Option<OpenSession>) -> Self {
        let number = open.as_ref().map_or(0, |open| open.number);
        Self {
            current: Mutex::new(open),
            opening: AsyncMutex::new(()),
            numbers: watch::Sender::new(number),
        }
    }

    /// Notifies of new sessions.
    pub(super) fn numbers(&self) -> watch::Receiver<u64> {
        self.numbers.subscribe()
    }

    /// The number of the current session.
    pub(super) fn number(&self) -> u64 {
        *self.numbers.borrow()
    }

    /// Sends `initialize` with these raw client capabilities, and opens a
    /// session.
    pub(super) async fn open(
        client: &HttpClient,
        told: &[u8],
        limit: usize,
    ) -> Result<(Peer, Self), UpstreamError> {
        let (peer, open) = open(client, told, limit, 1).await?;
        Ok((peer, Self::of(Some(open))))
    }

    /// Adds the session's headers; returns the session's number if it has an
    /// id, which a server can lose.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) -> Option<u64> {
        let current = self.current();
        let open = current.as_ref()?;
        let version = HeaderValue::from_static(open.version.as_str());
        headers.insert(header::PROTOCOL_VERSION, version);
        let id = open.id.as_ref()?;
        headers.insert(header::SESSION_ID, id.clone());
        Some(open.number)
    }

    /// Opens a new session in place of the one numbered `lost`, unless another
    /// call has done so.
    pub(super) async fn reopen(
        &self,
        client: &HttpClient,
        told: &[u8],
        limit: usize,
        lost: Option<u64>,
    ) -> Result<(), UpstreamError> {
        let _turn = self.opening.lock().await;
        let number = self.current().as_ref().map(|open| open.number);
        if number != lost {
            return Ok(());
        }
        let (_, open) = open(client, told, limit, number.unwrap_or(0) + 1).await?;
        let number = open.number;
        *self.current() = Some(open);
        self.numbers.send_replace(number);
        Ok(())
    }

    /// Ends the session at the server.
    pub(super) async fn close(&self, client: &HttpClient) {
        let mut headers = HeaderMap::new();
        if self.add_to(&mut headers).is_some() {
            // A server that does not support this may answer 405.
            let _ = client.send(&HttpMethod::DELETE, &headers, Bytes::new()).await;
        }
    }

    fn current(&self) -> parking_lot::MutexGuard<'_, Option<OpenSession>> {
        self.current.lock()
    }
}

async fn open(
    client: &HttpClient,
    told: &[u8],
    limit: usize,
    number: u64,
) -> Result<(Peer, OpenSession), UpstreamError> {
    let request = Id::number(1);
    let body = jsonrpc::request(&request, Method::Initialize.as_str(), &initialize_params(told));
    let response = client.post(&HeaderMap::new(), body).await?;
    let id = response.headers().get(header::SESSION_ID).cloned();
    let answer = HttpReply::read(response, limit).await?.answer(&request).await?;
    let peer = judge_initialize(&answer)?;
    let open = OpenSession { number, id, version: peer.version };
    let mut headers = HeaderMap::new();
    headers.insert(header::PROTOCOL_VERSION, HeaderValue::from_static(peer.version.as_str()));
    if let Some(id) = &open.id {
        headers.insert(header::SESSION_ID, id.clone());
    }
    client.post(&headers, jsonrpc::notification(notification::INITIALIZED, None)).await?;
    Ok((peer, open))
}

/// Whether an HTTP error means that the server does not know the session: 404
/// as the specification demands, or 400 with a text about sessions that is no
/// response to the request. The reference servers send the latter as an error
/// without an id, as an error with a made-up id, or as plain text; after a
/// restart they report that the server is not initialized.
pub(super) fn is_lost(reception: &HttpReply, asked: &Id) -> bool {
    let HttpReply::Refused { status, frame, body } = reception else { return false };
    match *status {
        StatusCode::NOT_FOUND => true,
        StatusCode::BAD_REQUEST => {
            let answers =
                matches!(frame, Some(Frame::Response { id: Some(id), .. }) if id == asked);
            let text = String::from_utf8_lossy(body).to_lowercase();
            !answers && (text.contains("session") || text.contains("not initialized"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(status: u16, body: &'static str) -> bool {
        let body = Bytes::from_static(body.as_bytes());
        let frame = jsonrpc::parse(&body, 8).ok();
        let status = StatusCode::from_u16(status).unwrap();
        is_lost(&HttpReply::Refused { status, frame, body }, &Id::number(7))
    }

    #[test]
    fn a_lost_session_is_told_from_other_refusals() {
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
            assert_eq!(lost(status, body), is_lost, "{status} {body}");
        }
    }
}
