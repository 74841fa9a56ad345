//! How the gateway introduces itself.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::call::Context;
use crate::catalog::Offers;
use crate::config::Gateway as Settings;
use crate::link::State;
use crate::mcp::{Era, ProtocolVersion, meta};
use crate::snapshot::{Member, Snapshot, View};

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
    pub fn introduce(&self, introduction: Introduction, context: &Context) -> Bytes {
        let snapshot = self.snapshots.load();
        let view = snapshot.view(&self.view_key(context));
        let settings = &snapshot.config.gateway;
        let mut result = match introduction {
            Introduction::Discover => json!({
                "resultType": "complete",
                "supportedVersions": supported(),
                "capabilities": capabilities(&snapshot, &view),
                "ttlMs": u64::try_from(settings.list_ttl.as_millis()).unwrap_or(u64::MAX),
                "cacheScope": "public",
                "_meta": { meta::SERVER_INFO: info(settings) },
            }),
            Introduction::Initialize(version) => json!({
                "protocolVersion": version.as_str(),
                "capabilities": capabilities(&snapshot, &view),
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

/// What the gateway can do for a client: what some server can, or may be able
/// to that has not been heard of yet. Clients ask once, and a server that comes
/// a moment later should not stay unused for that.
fn capabilities(snapshot: &Snapshot, view: &View) -> Map<String, Value> {
    let unheard = |member: &Member| {
        view.list(&member.config.name).is_none() && member.server.view().state != State::Failed
    };
    let mut said = json!({ "tools": {} });
    if snapshot.servers().any(unheard) {
        said = json!({
            "tools": {}, "prompts": {}, "resources": { "subscribe": true },
            "completions": {}, "logging": {},
        });
    }
    let lists = snapshot.servers().filter_map(|member| view.list(&member.config.name));
    let supposed = Offers::new(&said, None);
    Offers::union(std::iter::once(&supposed).chain(lists.map(|list| &*list.offers)))
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
