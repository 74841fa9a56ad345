//! The Legacy session that a stdio client knows nothing of: on a pipe the
//! process is the session. Here it is the endpoint's `Mcp-Session-Id`, opened
//! with the client's own `initialize`, and opened again by the same words when
//! the endpoint has lost it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;

use crate::jsonrpc::{self, Id};
use crate::mcp::{header, notification};

/// The session of this process's client, once it has opened one.
#[derive(Default)]
pub(super) struct PipeSession {
    current: Mutex<Option<Arc<OpenPipeSession>>>,
    /// Held while a lost session is opened anew, so that requests that lose it
    /// together open one between them.
    pub(super) opening: AsyncMutex<()>,
}

/// A session that is open, as far as is known.
pub(super) struct OpenPipeSession {
    /// What goes with every request in it.
    pub(super) headers: HeaderMap,
    /// The request that it was opened with, and its id.
    pub(super) initialize: (Bytes, Id),
    /// The kinds of list that its changes are told of.
    tells: Vec<&'static str>,
    /// The client has said `initialized`.
    ready: AtomicBool,
    /// Cancelled when another takes its place.
    pub(super) closed: CancellationToken,
}

impl OpenPipeSession {
    /// A session that an answer to `initialize` opened, by its id in the
    /// head and its raw result.
    pub(super) fn new(initialize: (Bytes, Id), id: Option<HeaderValue>, result: &[u8]) -> Self {
        let said: PipeInitializeParams = jsonrpc::object(result).unwrap_or_default();
        let mut headers = HeaderMap::new();
        if let Ok(version) = HeaderValue::from_str(&said.protocol_version) {
            headers.insert(header::PROTOCOL_VERSION, version);
        }
        if let Some(id) = id {
            headers.insert(header::SESSION_ID, id);
        }
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

    /// Whether the endpoint keeps it under an id, which can be lost.
    pub(super) fn has_id(&self) -> bool {
        self.headers.contains_key(header::SESSION_ID)
    }

    /// Notes that the client is ready; true the first time.
    pub(super) fn is_now_ready(&self) -> bool {
        !self.ready.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Notifications that every list may be another.
    pub(super) fn all_changed(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.tells.iter().map(|changed| jsonrpc::notification(changed, None))
    }
}

impl PipeSession {
    pub(super) fn current(&self) -> Option<Arc<OpenPipeSession>> {
        self.lock().clone()
    }

    /// Puts a session in the place of the one before, which is given back.
    pub(super) fn replace(&self, open: Arc<OpenPipeSession>) -> Option<Arc<OpenPipeSession>> {
        let before = self.lock().replace(open);
        if let Some(before) = &before {
            before.closed.cancel();
        }
        before
    }

    /// The headers of a Legacy message: none before `initialize`.
    pub(super) fn headers(&self) -> HeaderMap {
        self.lock().as_ref().map(|open| open.headers.clone()).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<OpenPipeSession>>> {
        self.current.lock()
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PipeInitializeParams {
    protocol_version: String,
    capabilities: Value,
}
