//! A server's declaration: its capabilities and instructions.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use trunkline_core::text::clip;
use trunkline_protocol::call::NativeName;
use trunkline_protocol::mcp::meta::{SKILLS, TASKS};

use crate::clip_foreign_text;
use crate::elements::definition::DefinitionCells;
use crate::kind::{DefinitionKind, Kind};

/// A server's capabilities and its instructions for models, as declared at
/// initialization or discovery.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerOffers {
    capabilities: Map<String, Value>,
    /// The server's instructions for models.
    pub instructions: Option<String>,
    /// Computed once: every call needs it.
    tasks: Option<TaskForm>,
    words: Vec<Arc<ServerWords>>,
}

/// A server's description of itself, which pins and scans treat like an element of its lists.
#[derive(Debug)]
pub struct ServerWords {
    pub(crate) kind: DefinitionKind,
    pub(crate) native: NativeName,
    pub(crate) raw: Bytes,
    pub(crate) cells: DefinitionCells,
}

impl ServerWords {
    fn new(kind: DefinitionKind, raw: Bytes) -> Arc<Self> {
        let native = NativeName::new(kind.member());
        Arc::new(Self { kind, native, raw, cells: DefinitionCells::default() })
    }

    /// The raw object.
    #[inline]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }
}

impl PartialEq for ServerWords {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.raw == other.raw
    }
}

/// The form of tasks that calls of a server's tools may become: by era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskForm {
    /// The experimental tasks of 2025-11-25.
    Legacy,
    /// The extension `io.modelcontextprotocol/tasks`.
    Modern,
}

impl ServerOffers {
    /// Reads a server's declaration. If the capabilities exceed [`MAX_BYTES`],
    /// only the well-known ones are kept.
    pub fn new(capabilities: &Value, instructions: Option<&str>) -> Self {
        let mut capabilities = capabilities.as_object().cloned().unwrap_or_default();
        capabilities.retain(|_, value| value.is_object());
        if Value::Object(capabilities.clone()).to_string().len() > MAX_BYTES {
            capabilities.retain(|key, _| KNOWN_CAPABILITIES.contains(&key.as_str()));
            for value in capabilities.values_mut() {
                let told = LIST_FLAGS.iter().filter(|flag| value[**flag] == true);
                *value = told.map(|flag| ((*flag).to_owned(), json!(true))).collect();
            }
        }
        let instructions = instructions.map(|text| clip(text, MAX_INSTRUCTIONS).to_owned());
        let tasks = parse_task_form(&capabilities);
        let words = instructions.iter().map(|text| {
            let raw = json!({ INSTRUCTIONS_KEY: text }).to_string();
            ServerWords::new(DefinitionKind::Instructions, raw.into())
        });
        let words = words.collect();
        Self { capabilities, instructions, tasks, words }
    }

    /// The same declaration of a server with this raw `serverInfo`.
    #[must_use]
    pub fn with_info(mut self, info: &Bytes) -> Self {
        self.words.push(ServerWords::new(DefinitionKind::ServerInfo, info.clone()));
        self
    }

    /// The server's descriptions of itself.
    #[inline]
    pub fn words(&self) -> impl Iterator<Item = &ServerWords> {
        self.words.iter().map(|words| &**words)
    }

    /// The server's description of itself of this kind.
    #[inline]
    pub fn find_words(&self, kind: DefinitionKind) -> Option<&ServerWords> {
        self.words().find(|words| words.kind == kind)
    }

    /// Its raw capabilities: with them and its instructions, [`Self::new`] makes
    /// an equal declaration.
    #[inline]
    pub fn capabilities(&self) -> &Map<String, Value> {
        &self.capabilities
    }

    /// Returns true if the server has this capability.
    #[inline]
    pub fn has_capability(&self, capability: &str) -> bool {
        self.capabilities.contains_key(capability)
    }

    /// The form of tasks that calls of its tools may become; `None` if it
    /// supports no tasks.
    #[inline]
    pub fn task_form(&self) -> Option<TaskForm> {
        self.tasks
    }

    /// Returns true if the server has lists of this kind.
    pub fn offers_list(&self, kind: Kind) -> bool {
        match kind.capability() {
            Some(capability) => self.has_capability(capability),
            None => self.skills().is_some(),
        }
    }

    /// Returns true if the server declares a capability for any list.
    #[inline]
    pub fn declares_lists(&self) -> bool {
        LIST_CAPABILITIES.iter().any(|capability| self.has_capability(capability))
    }

    /// The same declaration with the capabilities for these lists.
    #[must_use]
    pub fn with_lists(mut self, kinds: &[Kind]) -> Self {
        for capability in kinds.iter().filter_map(|kind| kind.capability()) {
            self.capabilities.entry(capability).or_insert_with(|| json!({}));
        }
        self
    }

    /// Returns true if the server announces changes of this list.
    #[inline]
    pub fn announces_changes(&self, kind: Kind) -> bool {
        kind.capability().is_some_and(|capability| self.capability_flag(capability, "listChanged"))
    }

    /// Returns true if the server lists the children of its directories.
    #[inline]
    pub fn reads_directories(&self) -> bool {
        self.skills().is_some_and(|settings| settings[DIRECTORY_READ] == true)
    }

    /// The settings of the extension for skills, if the server declares it.
    fn skills(&self) -> Option<&Value> {
        self.capabilities.get("extensions")?.get(SKILLS).filter(|settings| settings.is_object())
    }

    /// Returns true if the server accepts subscriptions to its resources.
    #[inline]
    pub fn allows_subscriptions(&self) -> bool {
        self.capability_flag("resources", "subscribe")
    }

    fn capability_flag(&self, capability: &str, flag: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|value| value[flag] == true)
    }

    /// Returns true if this server may implement an unknown method: the method's first segment is
    /// the name of one of its capabilities, experimental capabilities or extensions.
    pub fn may_know(&self, method: &str) -> bool {
        let Some((space, _)) = method.split_once('/') else { return false };
        let inner = |key: &str| self.capabilities.get(key).and_then(Value::as_object);
        let named = |key: &String| key.rsplit('/').next() == Some(space);
        self.capabilities.contains_key(space)
            || ["extensions", "experimental"]
                .into_iter()
                .filter_map(inner)
                .any(|map| map.keys().any(named))
    }

    /// The union of all capabilities, for clients. If two servers configure one extension
    /// differently, the first in order wins, but directories can be read if any server has them.
    /// `listChanged` is the gateway's own and always set.
    pub fn merge_capabilities<'a>(all: impl IntoIterator<Item = &'a Self>) -> Map<String, Value> {
        let mut union = Map::new();
        for offers in all {
            for (key, value) in &offers.capabilities {
                match key.as_str() {
                    "extensions" | "experimental" => add_capability(&mut union, key, value),
                    "tools" | "prompts" => {
                        union.insert(key.clone(), json!({ "listChanged": true }));
                    }
                    "resources" => {
                        let before = union.get(key).is_some_and(|all| all["subscribe"] == true);
                        let mut said = json!({ "listChanged": true });
                        if before || offers.allows_subscriptions() {
                            said = json!({ "subscribe": true, "listChanged": true });
                        }
                        union.insert(key.clone(), said);
                    }
                    key if NOT_CARRIED.contains(&key) => {}
                    _ => {
                        union.entry(key.clone()).or_insert_with(|| value.clone());
                    }
                }
            }
            let settings = union.get_mut("extensions").and_then(|all| all.get_mut(SKILLS));
            if let Some(settings) = settings.and_then(Value::as_object_mut)
                && offers.reads_directories()
            {
                settings.insert(DIRECTORY_READ.into(), json!(true));
            }
        }
        union
    }
}

fn parse_task_form(capabilities: &Map<String, Value>) -> Option<TaskForm> {
    let has = |key: &str, path: &str| {
        capabilities.get(key).and_then(|all| all.pointer(path)).is_some_and(Value::is_object)
    };
    // In a JSON pointer a slash is escaped.
    let extension = format!("/{}", TASKS.replace('/', "~1"));
    if has("tasks", "/requests/tools/call") {
        Some(TaskForm::Legacy)
    } else {
        has("extensions", &extension).then_some(TaskForm::Modern)
    }
}

fn add_capability(union: &mut Map<String, Value>, key: &str, value: &Value) {
    let Some(more) = value.as_object() else { return };
    let more = more.iter().filter(|(name, _)| !NOT_CARRIED.contains(&name.as_str()));
    for (name, value) in more {
        let all = union.entry(key.to_owned()).or_insert_with(|| json!({}));
        if let Some(all) = all.as_object_mut() {
            all.entry(clip_foreign_text(name)).or_insert_with(|| value.clone());
        }
    }
}

/// The capabilities for lists.
const LIST_CAPABILITIES: [&str; 3] = ["tools", "prompts", "resources"];
const INSTRUCTIONS_KEY: &str = "instructions";
/// The most bytes of capabilities kept.
const MAX_BYTES: usize = 64 * 1024;
/// The most characters of a server's instructions.
const MAX_INSTRUCTIONS: usize = 64 * 1024;
/// Left out here: each client receives these in the form of its own era.
const NOT_CARRIED: [&str; 2] = ["tasks", "io.modelcontextprotocol/tasks"];
/// The setting of the extension for skills.
const DIRECTORY_READ: &str = "directoryRead";
const KNOWN_CAPABILITIES: [&str; 5] = ["tools", "prompts", "resources", "completions", "logging"];
const LIST_FLAGS: [&str; 2] = ["listChanged", "subscribe"];

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "it reads like an answer of a server")]
    fn offers(capabilities: Value) -> ServerOffers {
        ServerOffers::new(&capabilities, None)
    }

    #[test]
    fn combined_abilities_are_those_of_any_member() {
        let all = [
            offers(json!({ "tools": {}, "resources": { "subscribe": true }, "logging": {} })),
            offers(json!({
                "tools": { "listChanged": true }, "resources": {}, "later": { "x": 1 }, "bad": 1,
                "extensions": { "io.modelcontextprotocol/ui": { "a": 1 }, "io.modelcontextprotocol/tasks": {} },
            })),
            offers(
                json!({ "extensions": { "io.modelcontextprotocol/ui": { "a": 2 }, "com.example/x": {} } }),
            ),
        ];
        assert_eq!(
            Value::Object(ServerOffers::merge_capabilities(&all)),
            json!({
                "tools": { "listChanged": true },
                "resources": { "subscribe": true, "listChanged": true },
                "logging": {},
                "later": { "x": 1 },
                "extensions": { "io.modelcontextprotocol/ui": { "a": 1 }, "com.example/x": {} },
            })
        );
    }

    #[test]
    fn capabilities_without_end_are_cut_to_the_known_ones() {
        let huge = "x".repeat(MAX_BYTES);
        let cut = offers(json!({ "tools": { "listChanged": true, "y": huge }, "x": { "y": 1 } }));
        assert_eq!(cut, offers(json!({ "tools": { "listChanged": true } })));
        let long = ServerOffers::new(&json!({}), Some(&huge.repeat(2)));
        assert_eq!(long.instructions.unwrap().len(), MAX_INSTRUCTIONS);
    }

    #[test]
    fn a_server_has_one_form_of_tasks_or_none() {
        let tasks = |said: Value| offers(said).task_form();
        let calls = json!({ "requests": { "tools": { "call": {} } } });
        assert_eq!(tasks(json!({ "tasks": calls })), Some(TaskForm::Legacy));
        assert_eq!(tasks(json!({ "tasks": { "list": {} } })), None);
        let extension = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        assert_eq!(tasks(extension), Some(TaskForm::Modern));
        assert_eq!(tasks(json!({ "extensions": { "com.example/tasks": {} } })), None);
    }

    #[test]
    fn a_method_belongs_to_the_server_that_declares_its_capability() {
        let one = offers(json!({ "extensions": { "com.example/maps": {} }, "later": {} }));
        assert!(one.may_know("maps/find") && one.may_know("later/x"));
        assert!(!one.may_know("other/x") && !one.may_know("maps"));
    }
}
