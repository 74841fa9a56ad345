//! The Legacy session behind a stdio client. On a pipe the process is the session, so the client
//! does not see one. At the endpoint it is an `Mcp-Session-Id`, opened with the client's own
//! `initialize`, and opened again with the same message when the endpoint has lost it.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::jsonrpc::{self, Id};
use crate::mcp::{add_session_headers, header, notification};

/// A session that is presumably open.
pub(super) struct OpenPipeSession {
    /// Headers of every request in it.
    pub(super) headers: HeaderMap,
    /// The request that opened it, and its id.
    pub(super) initialize: (Bytes, Id),
    /// Notifications for the kinds of lists with changes that the server announces.
    tells: Vec<&'static str>,
    /// The client has sent `initialized`.
    ready: AtomicBool,
    /// Cancelled when another session replaces it.
    pub(super) closed: CancellationToken,
}

impl OpenPipeSession {
    /// Creates the session that an answer to `initialize` opened, from its id in the head and its
    /// raw result.
    pub(super) fn new(initialize: (Bytes, Id), id: Option<HeaderValue>, result: &[u8]) -> Self {
        let said: PipeInitializeParams = jsonrpc::object(result).unwrap_or_default();
        let mut headers = HeaderMap::new();
        let version = HeaderValue::from_str(&said.protocol_version).ok();
        add_session_headers(&mut headers, version, id);
        let lists = [
            ("tools", notification::TOOLS_CHANGED),
            ("prompts", notification::PROMPTS_CHANGED),
            ("resources", notification::RESOURCES_CHANGED),
        ];
        let tells = lists.into_iter().filter(|(kind, _)| {
            let kind = said.capabilities.get(kind);
            kind.and_then(|kind| kind.get("listChanged")) == Some(&Value::Bool(true))
        });
        Self {
            headers,
            initialize,
            tells: tells.map(|(_, changed)| changed).collect(),
            ready: AtomicBool::new(false),
            closed: CancellationToken::new(),
        }
    }

    /// Returns true if the endpoint keeps it under an id, which can be lost.
    pub(super) fn has_id(&self) -> bool {
        self.headers.contains_key(header::SESSION_ID)
    }

    /// Notes that the client is ready. Returns true the first time.
    pub(super) fn is_now_ready(&self) -> bool {
        !self.ready.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Returns notifications that every list may have changed.
    pub(super) fn all_changed(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.tells.iter().map(|changed| jsonrpc::notification(changed, None))
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PipeInitializeParams {
    protocol_version: String,
    capabilities: Value,
}
