//! Closing a Legacy call's stream: the SDK can do it, but does not give a handler access to its own
//! stream. These sessions do.

use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::poll_fn;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, GetExtensions as _, ServerJsonRpcMessage};
use rmcp::service::RequestContext;
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionHandle, LocalSessionManager,
};
use rmcp::transport::streamable_http_server::session::{SessionId, SessionManager};

type Result<T> = std::result::Result<T, <LocalSessionManager as SessionManager>::Error>;

/// The SDK's sessions, with requests that know their streams.
pub struct Sessions(LocalSessionManager);

impl Sessions {
    /// Creates sessions to which clients reconnect soon after their stream was closed.
    pub fn new() -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.sse_retry = Some(Duration::from_millis(100));
        Self(sessions)
    }
}

/// A request's stream.
#[derive(Clone)]
struct Own {
    session: LocalSessionHandle,
    number: u64,
}

/// Ends the call's stream, if it has one that the client can resume. Soon: a client that reconnects
/// after the answer finds no stream here.
pub async fn leave(context: &RequestContext<RoleServer>) {
    if let Some(stream) = context.extensions.get::<Own>() {
        let soon = Some(Duration::from_millis(100));
        let _ = stream.session.close_sse_stream(stream.number, soon).await;
    }
}

impl SessionManager for Sessions {
    type Error = <LocalSessionManager as SessionManager>::Error;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        let session = self.0.sessions.read().await.get(id).cloned();
        let session = session.ok_or_else(|| Self::Error::SessionNotFound(id.clone()))?;
        let mut receiver = session.establish_request_wise_channel().await?;
        if let (ClientJsonRpcMessage::Request(request), Some(number)) =
            (&mut message, receiver.http_request_id)
        {
            let session = session.clone();
            request.request.extensions_mut().insert(Own { session, number });
        }
        session.push_message(message, receiver.http_request_id).await?;
        Ok(poll_fn(move |context| receiver.inner.poll_recv(context)))
    }

    async fn create_session(&self) -> Result<(SessionId, Self::Transport)> {
        self.0.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage> {
        self.0.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool> {
        self.0.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<()> {
        self.0.close_session(id).await
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<()> {
        self.0.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        self.0.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        self.0.resume(id, last_event_id).await
    }
}
