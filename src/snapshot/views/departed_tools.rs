//! Tools that clients could see until a moment ago.
//!
//! A model calls tools from a list that it read some turns ago. If a reload or a changed list has
//! removed the tool since, the result explains this in words that the model can act on; a name that
//! it never saw stays unknown. A view is compared with the next snapshot when that is published,
//! not when a client calls: by then, the view and its profile are no longer known.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::{Principal, PublicName, ServerName};
use crate::catalog::{Kind, Scope, Selection};
use crate::identity::Identity;

use super::view_cache::is_configured;
use crate::snapshot::{Snapshot, View, ViewKey};

/// Tools that have left views within the last ten minutes, within limits.
#[derive(Default)]
pub(crate) struct DepartedTools(Mutex<HashMap<ViewKey, ViewMemory>>);

/// Remembered tools of the views of one key.
struct ViewMemory {
    /// Tools of the newest of them.
    shown: Arc<[ShownTool]>,
    /// Time when it was current.
    at: Instant,
    departed: HashMap<PublicName, DepartedTool>,
}

/// A tool in a view.
struct ShownTool {
    name: PublicName,
    server: ServerName,
    list: ListOrigin,
}

/// Audience of a server's list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListOrigin {
    /// For all clients.
    Plain,
    /// For clients with certain abilities, or of one era.
    ForSome,
}

/// A tool that a view showed, and may no longer show.
struct DepartedTool {
    server: ServerName,
    at: Instant,
    /// The principals that could use the view.
    identity: Arc<Identity>,
}

impl DepartedTools {
    /// Remembers the tools of the views of `before` that the views of `next` may no longer show. If
    /// a tool still exists, calls find it in the catalog first.
    pub(crate) fn note(&self, before: &Snapshot, next: &Snapshot, now: Instant) {
        let mut all = self.0.lock();
        remember_views(&mut all, before, now);
        for (key, memory) in &mut *all {
            let scope = next_scope(key, next);
            let gone = memory.shown.iter().filter(|tool| {
                // Lists for certain clients are unknown until these clients list again.
                tool.list == ListOrigin::ForSome
                    || !scope.admits(&tool.server, Kind::Tools, tool.name.as_str())
                    || !is_in(&next.plain, tool)
            });
            memory.departed.extend(gone.map(|tool| {
                let identity = Arc::clone(&before.identity);
                (tool.name.clone(), DepartedTool { server: tool.server.clone(), at: now, identity })
            }));
            memory.departed.retain(|_, tool| is_recent(tool.at, now));
            bound_names(&mut memory.departed);
        }
        all.retain(|_, memory| is_recent(memory.at, now) || !memory.departed.is_empty());
        bound_views(&mut all);
    }

    /// Returns true if a view of this key showed a tool to this principal until a moment ago.
    pub(crate) fn has(&self, key: &ViewKey, who: &Principal, name: &str, now: Instant) -> bool {
        let all = self.0.lock();
        let tool = all.get(key).and_then(|memory| memory.departed.get(name));
        tool.is_some_and(|tool| {
            is_recent(tool.at, now) && tool.identity.served(who, key.endpoint.profile())
        })
    }
}

/// Remembers the tools in the views of a snapshot. Equal views share the memory.
#[allow(clippy::mutable_key_type, reason = "the log state of rules is not part of a key")]
fn remember_views(all: &mut HashMap<ViewKey, ViewMemory>, snapshot: &Snapshot, now: Instant) {
    let mut made: HashMap<*const View, Arc<[ShownTool]>> = HashMap::new();
    for (key, view) in snapshot.built_views() {
        let shown = made.entry(Arc::as_ptr(&view)).or_insert_with(|| shown_tools(&view, snapshot));
        let shown = Arc::clone(shown);
        let departed = all.remove(&key).map(|memory| memory.departed).unwrap_or_default();
        all.insert(key, ViewMemory { shown, at: now, departed });
    }
}

fn shown_tools(view: &View, snapshot: &Snapshot) -> Arc<[ShownTool]> {
    let origin = |server: &ServerName| match (view.list(server), snapshot.plain.list(server)) {
        (Some(own), Some(plain)) if Arc::ptr_eq(own, plain) => ListOrigin::Plain,
        _ => ListOrigin::ForSome,
    };
    let tools = view.catalog.entries().map(|entry| ShownTool {
        name: entry.public.clone(),
        server: entry.server.clone(),
        list: origin(&entry.server),
    });
    tools.collect()
}

/// Returns the scope of a key's profile in a snapshot.
fn next_scope(key: &ViewKey, next: &Snapshot) -> Scope {
    let profile = next.profile(key.endpoint.profile());
    Scope::new([profile.map(Selection::from_profile).unwrap_or_default()])
}

fn is_in(view: &View, tool: &ShownTool) -> bool {
    let same = view.catalog.find_tool(tool.name.as_str());
    same.is_some_and(|same| same.server == tool.server)
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < DEPARTED_TOOL_TIME
}

/// Forgets the oldest names of servers with too many.
fn bound_names(departed: &mut HashMap<PublicName, DepartedTool>) {
    let mut by_server: HashMap<ServerName, Vec<(Instant, PublicName)>> = HashMap::new();
    for (name, tool) in &*departed {
        by_server.entry(tool.server.clone()).or_default().push((tool.at, name.clone()));
    }
    for names in by_server.values_mut().filter(|names| names.len() > MAX_DEPARTED_NAMES) {
        names.sort_unstable();
        for (_, name) in names.drain(..names.len() - MAX_DEPARTED_NAMES) {
            departed.remove(&name);
        }
    }
}

/// Forgets views, if there are too many: first those that clients made up by queries and
/// capabilities, the oldest of these first.
#[allow(clippy::mutable_key_type, reason = "the log state of rules is not part of a key")]
fn bound_views(all: &mut HashMap<ViewKey, ViewMemory>) {
    if all.len() <= MAX_DEPARTED_VIEWS {
        return;
    }
    let mut keys: Vec<_> =
        all.iter().map(|(key, memory)| (is_configured(key), memory.at, key.clone())).collect();
    keys.sort_unstable_by_key(|(is_configured, at, _)| (*is_configured, *at));
    for (_, _, key) in keys.drain(..keys.len() - MAX_DEPARTED_VIEWS) {
        all.remove(&key);
    }
}

impl fmt::Debug for DepartedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DepartedTools").field("views", &self.0.lock().len()).finish_non_exhaustive()
    }
}

/// Time for which a removed tool is remembered.
const DEPARTED_TOOL_TIME: Duration = Duration::from_mins(10);
/// Limit of the remembered names of one server in a view.
const MAX_DEPARTED_NAMES: usize = 256;
/// Limit of the views with remembered names.
const MAX_DEPARTED_VIEWS: usize = 256;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::call::{Abilities, Endpoint, ProfileName};
    use crate::clock;
    use crate::policy::DefinitionGuard;
    use crate::snapshot::{DisabledAtStart, Snapshots, StartUp};
    use crate::upstream::tests::{config, surroundings};

    /// A gateway without servers.
    fn snapshots() -> Arc<Snapshots> {
        let info = Bytes::from_static(b"{}");
        Snapshots::start(StartUp {
            shared_limits: None,
            config: config(&[]),
            surroundings: surroundings(),
            info,
            definitions: DefinitionGuard::default(),
            quotas: Arc::default(),
            disabled: DisabledAtStart::default(),
        })
    }

    fn narrowed(number: usize) -> ViewKey {
        let narrowing = Some(format!("tools=t{number}").into());
        ViewKey { endpoint: Endpoint { profile: None, narrowing }, ..ViewKey::default() }
    }

    fn memory(at: Instant) -> ViewMemory {
        ViewMemory { shown: Arc::from([]), at, departed: HashMap::new() }
    }

    #[tokio::test]
    async fn a_departed_tool_is_remembered_for_ten_minutes() {
        let (snapshot, start) = (snapshots().load_full(), clock::now());
        let (all, key) = (DepartedTools::default(), narrowed(0));
        let gone = DepartedTool {
            server: ServerName::new("s").unwrap(),
            at: start,
            identity: Arc::clone(&snapshot.identity),
        };
        let departed = HashMap::from([(PublicName::new("gone"), gone)]);
        all.0.lock().insert(key.clone(), ViewMemory { departed, ..memory(start) });
        let has = |after| all.has(&key, &Principal::Anonymous, "gone", start + after);
        let last = Duration::from_secs(599);
        assert!(has(Duration::ZERO) && has(last) && !has(DEPARTED_TOOL_TIME));
        // The memory is dropped when the next snapshot is published, and not earlier.
        let note = |after| all.note(&snapshot, &snapshot, start + after);
        let names = || all.0.lock().get(&key).map(|memory| memory.departed.len());
        note(last);
        assert_eq!(names(), Some(1));
        all.0.lock().get_mut(&key).unwrap().at = start + last;
        note(DEPARTED_TOOL_TIME);
        assert_eq!(names(), Some(0), "the view is recent, the tool is not");
        note(last + DEPARTED_TOOL_TIME);
        assert_eq!(names(), None, "the view is no longer recent");
    }

    #[tokio::test]
    async fn names_of_so_many_views_are_remembered_and_those_of_configured_views_go_last() {
        let (snapshot, start) = (snapshots().load_full(), clock::now());
        let all = DepartedTools::default();
        let profile = |number: usize| {
            let profile = ProfileName::new(&format!("p{number}")).ok();
            ViewKey { endpoint: Endpoint { profile, narrowing: None }, ..ViewKey::default() }
        };
        let able = |number: usize| {
            let raw = format!("{{\"experimental\":{{\"x{number}\":{{}}}}}}");
            let abilities = Some(Abilities::parse(raw.as_bytes()));
            ViewKey { abilities, ..ViewKey::default() }
        };
        let made_up = (0..MAX_DEPARTED_VIEWS).map(|number| match number % 2 {
            0 => narrowed(number),
            _ => able(number),
        });
        let made_up: Vec<_> = made_up.collect();
        for (number, key) in (1..).zip(&made_up) {
            all.0.lock().insert(key.clone(), memory(start + Duration::from_millis(number)));
        }
        // The oldest is evicted.
        for number in 0..9 {
            all.0.lock().insert(profile(number), memory(start));
        }
        all.note(&snapshot, &snapshot, start + Duration::from_secs(1));
        let kept = all.0.lock();
        assert_eq!(kept.len(), MAX_DEPARTED_VIEWS);
        // The view of the snapshot itself counts as another one.
        assert!((0..9).all(|number| kept.contains_key(&profile(number))));
        for (number, key) in made_up.iter().enumerate() {
            assert_eq!(kept.contains_key(key), number >= 10, "{number}");
        }
    }
}
