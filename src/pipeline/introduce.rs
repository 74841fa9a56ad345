//! How the gateway introduces itself.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::config::Gateway as Settings;
use crate::mcp::{Era, ProtocolVersion, meta};

use super::Gateway;

/// Which introduction is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Introduction {
    /// `server/discover`.
    Discover,
    /// `initialize`, with the version agreed on.
    Initialize(ProtocolVersion),
}

impl Gateway {
    /// The result of `server/discover` or `initialize`.
    pub fn introduce(&self, introduction: Introduction) -> Bytes {
        let snapshot = self.snapshots.load();
        let settings = &snapshot.config.gateway;
        let mut result = match introduction {
            Introduction::Discover => json!({
                "resultType": "complete",
                "supportedVersions": supported(),
                "capabilities": capabilities(),
                "ttlMs": u64::try_from(settings.list_ttl.as_millis()).unwrap_or(u64::MAX),
                "cacheScope": "public",
                "_meta": { meta::SERVER_INFO: info(settings) },
            }),
            Introduction::Initialize(version) => json!({
                "protocolVersion": version.as_str(),
                "capabilities": capabilities(),
                "serverInfo": info(settings),
            }),
        };
        if let (Some(text), Some(result)) = (&settings.instructions, result.as_object_mut()) {
            result.insert("instructions".into(), json!(text));
        }
        result.to_string().into()
    }
}

/// Modern versions alone: a Legacy client never asks.
fn supported() -> Vec<&'static str> {
    let all = ProtocolVersion::ALL.into_iter();
    all.filter(|version| version.era() == Era::Modern).map(ProtocolVersion::as_str).collect()
}

fn capabilities() -> Value {
    json!({ "tools": { "listChanged": true } })
}

fn info(settings: &Settings) -> Value {
    let mut info = json!({ "name": "trunkline", "version": env!("CARGO_PKG_VERSION") });
    if let (Some(title), Some(info)) = (&settings.title, info.as_object_mut()) {
        info.insert("title".into(), json!(title));
    }
    info
}

/// The gateway's raw `serverInfo`, for results that no server sent.
pub fn own_info() -> Bytes {
    json!({ "name": "trunkline", "version": env!("CARGO_PKG_VERSION") }).to_string().into()
}
