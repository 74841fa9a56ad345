//! The gateway's own `server/discover` and `initialize` results: version,
//! capabilities and instructions.

use std::collections::HashSet;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::call::{Context, MetaTool, ServerName};
use crate::catalog::{
    DefinitionKind, HiddenNames, Kind, MetaListing, Naming, ServerList, ServerOffers, ToolEntry,
};
use crate::clock;
use crate::config::GatewayConfig as Settings;
use crate::mcp::{Era, Method, ProtocolVersion, meta};
use crate::snapshot::{Snapshot, SnapshotServer, View};
use crate::text::clip;
use crate::upstream::LifeState;

use super::record::answered::log_introduction;
use super::{Gateway, listing, tasks};

/// Kinds of introductions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Introduction {
    /// `server/discover`.
    Discover,
    /// `initialize`, with the negotiated version.
    Initialize(ProtocolVersion),
}

impl Gateway {
    /// Builds the result of `server/discover` or `initialize`.
    pub fn introduce(&self, introduction: Introduction, context: &Context) -> Bytes {
        let started = clock::real_now();
        let snapshot = self.snapshots.load();
        let key = self.view_key(context);
        let view = snapshot.view(&key, context);
        // The client will list next: request its lists now, without waiting for them.
        drop(listing::request_lists(&snapshot, &view, context, Kind::Tools));
        let settings = &snapshot.config.gateway;
        let profile = snapshot.profile(context.endpoint.profile());
        let title = profile.and_then(|it| it.title.as_ref()).or(settings.title.as_ref());
        let words = profile.and_then(|it| it.instructions.as_ref());
        let words = words.or(settings.instructions.as_ref());
        let own = self.info_of_server(&snapshot).unwrap_or_else(|| info(settings, title).into());
        let mut result = match introduction {
            Introduction::Discover => json!({
                "resultType": "complete",
                "supportedVersions": supported(),
                "capabilities": capabilities(&snapshot, &view, ProtocolVersion::LATEST_MODERN),
                "ttlMs": u64::try_from(settings.list_ttl.as_millis()).unwrap_or(u64::MAX),
                "cacheScope": view.audience().as_str(),
                "_meta": { meta::SERVER_INFO: own },
            }),
            Introduction::Initialize(version) => json!({
                "protocolVersion": version.as_str(),
                "capabilities": capabilities(&snapshot, &view, version),
                "serverInfo": own,
            }),
        };
        let found = snapshot.meta_list(&view, &context.client);
        let found = found.filter(|list| list.form == MetaListing::Pinned);
        let of_meta = found.map(|_| explain_meta_tools(&view));
        let words = match (of_meta, words) {
            (Some(of_meta), Some(words)) => Some(format!("{words}\n\n{of_meta}")),
            (of_meta, words) => of_meta.or_else(|| words.cloned()),
        };
        let words = instructions(&snapshot, &view, words.as_ref());
        if let (Some(text), Some(result)) = (words, result.as_object_mut()) {
            result.insert("instructions".into(), json!(text));
        }
        let method = match introduction {
            Introduction::Discover => Method::Discover,
            Introduction::Initialize(_) => Method::Initialize,
        };
        log_introduction(&method, context, started);
        result.to_string().into()
    }
}

impl Gateway {
    /// Returns the information about the only server, for which this gateway stands; `None` for any
    /// other gateway.
    fn info_of_server(&self, snapshot: &Snapshot) -> Option<Value> {
        let server = snapshot.servers().next().filter(|_| self.inputs.passes_states())?;
        serde_json::from_slice(&server.server.peer()?.info).ok()
    }
}

/// Returns the supported versions, only Modern ones: Legacy clients never ask.
fn supported() -> Vec<&'static str> {
    let all = ProtocolVersion::ALL.into_iter();
    all.filter(|version| version.era() == Era::Modern).map(ProtocolVersion::as_str).collect()
}

/// Returns the capabilities that the gateway offers a client: those of its servers. A server that
/// has not answered yet counts with all that it may have: clients ask only once, so a server that
/// connects a moment later would otherwise stay unused.
pub(super) fn capabilities(
    snapshot: &Snapshot,
    view: &View,
    version: ProtocolVersion,
) -> Map<String, Value> {
    let unheard = |member: &SnapshotServer| {
        view.list(&member.config.name).is_none() && member.server.view().state != LifeState::Failed
    };
    let servers = || snapshot.servers().filter(|it| view.scope().admits_server(&it.config.name));
    let mut said = json!({ "tools": {} });
    if servers().any(unheard) {
        said = json!({
            "tools": {}, "prompts": {}, "resources": { "subscribe": true },
            "completions": {}, "logging": {},
            "extensions": { meta::SKILLS: { "directoryRead": true } },
        });
    }
    // Results that exceeded the size limit are readable as resources.
    let keeps = snapshot.config.keeps_results();
    if let (true, Some(said)) = (keeps, said.as_object_mut()) {
        said.entry("resources").or_insert_with(|| json!({}));
    }
    let lists = servers().filter_map(|member| view.list(&member.config.name));
    let supposed = ServerOffers::new(&said, None);
    let lists: Vec<_> = lists.map(|list| &*list.offers).collect();
    let mut all =
        ServerOffers::merge_capabilities(std::iter::once(&supposed).chain(lists.iter().copied()));
    tasks::advertise_tasks(&mut all, &lists, version);
    let shown = |kind| view.scope().may_show(kind);
    all.retain(|key, _| match key.as_str() {
        "tools" => shown(Kind::Tools),
        "prompts" => shown(Kind::Prompts),
        "resources" => shown(Kind::Resources) || view.catalog.has_interfaces() || keeps,
        "completions" => shown(Kind::Prompts) || shown(Kind::Resources),
        _ => true,
    });
    if !shown(Kind::Skills)
        && let Some(extensions) = all.get_mut("extensions").and_then(Value::as_object_mut)
    {
        extensions.remove(meta::SKILLS);
    }
    all
}

/// Returns the instructions for models: the gateway's own, then each server's under its name. A
/// single server's instructions get no heading.
fn instructions(snapshot: &Snapshot, view: &View, own: Option<&String>) -> Option<String> {
    let naming = Naming::new(&snapshot.config.gateway);
    // Under rules, instructions must not reveal a hidden tool, or a server without any visible
    // element.
    let has_rules = snapshot.policy.authorization().is_some();
    let told = |member: &SnapshotServer| {
        let list = view.list(&member.config.name)?;
        let text = list.offers.instructions.clone()?;
        if snapshot.screen.holds_words(list, DefinitionKind::Instructions) {
            return None;
        }
        (!has_rules || !names_hidden_tool(view, list, &text)).then_some(text)
    };
    let is_seen = |name: &ServerName| {
        view.scope().admits_server(name) && (!has_rules || view.catalog.shows_any_of(name))
    };
    let servers = || snapshot.servers().filter(|it| is_seen(&it.config.name));
    let alone = servers().count() == 1 && own.is_none();
    let mut all = own.cloned();
    for (member, text) in servers().filter_map(|member| Some((member, told(member)?))) {
        if alone {
            return Some(ellipsize(text, MAX_INSTRUCTIONS_BYTES));
        }
        let name = member.config.name.as_str();
        let prefix = naming
            .prefix_of(&member.config.name)
            .map(|prefix| format!("The names of its tools and prompts begin with `{prefix}`.\n\n"));
        let prefix = prefix.unwrap_or_default();
        let section = format!(
            "## {name}\n\n{prefix}{}",
            ellipsize(text, MAX_SERVER_INSTRUCTION_BYTES).trim()
        );
        let before = all.take().map(|before| before + "\n\n").unwrap_or_default();
        if before.len() + section.len() > MAX_INSTRUCTIONS_BYTES {
            // The gateway's own instructions come from the operator: no length limit.
            return Some(before.trim_end().to_owned());
        }
        all = Some(before + &section);
    }
    all
}

/// Returns true if a server's text names one of its tools that the view does not have.
fn names_hidden_tool(view: &View, list: &ServerList, text: &str) -> bool {
    let shown = view.catalog.entries().filter(|entry| entry.server == list.server);
    let shown: HashSet<_> = shown.map(ToolEntry::native).collect();
    let hidden = list.tools.iter().filter(|tool| !shown.contains(&tool.native));
    hidden.map(|tool| tool.native.as_str()).collect::<HiddenNames<'_>>().are_in(text)
}

/// Returns instructions for models when most tools are not listed: how to find tools, and the
/// number of tools by server.
fn explain_meta_tools(view: &View) -> String {
    format!(
        "Most tools are not listed. `{}` finds them by their purpose; call them through the other \
         tools of the gateway. Number of tools per server: {}.",
        MetaTool::Find.name(),
        view.catalog.name_servers()
    )
}

/// Clips a text to `limit` bytes, with an ellipsis if anything was cut.
fn ellipsize(text: String, limit: usize) -> String {
    if text.len() > limit { format!("{}…", clip(&text, limit)) } else { text }
}

fn info(settings: &Settings, title: Option<&String>) -> Map<String, Value> {
    let mut info = Map::new();
    info.insert("name".into(), json!("trunkline"));
    info.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
    if let Some(title) = title {
        info.insert("title".into(), json!(title));
    }
    if let Some(url) = &settings.website_url {
        info.insert("websiteUrl".into(), json!(url.as_str()));
    }
    if !settings.icons.is_empty() {
        let icons = settings.icons.iter().map(|src| json!({ "src": src }));
        info.insert("icons".into(), icons.collect());
    }
    info
}

/// Limit of the bytes of all servers' instructions together.
const MAX_INSTRUCTIONS_BYTES: usize = 32 * 1024;
/// Limit of the bytes of one server's instructions among several.
const MAX_SERVER_INSTRUCTION_BYTES: usize = 4 * 1024;
