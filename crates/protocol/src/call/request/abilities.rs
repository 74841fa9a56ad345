//! Client abilities: the server requests that a client can answer.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use trunkline_jsonrpc::{MAX_CLIENT_DEPTH, parse_strict};

use crate::mcp::meta::TASKS;
use crate::mcp::{Era, ProtocolVersion};

/// A client's capabilities, normalized: clients with the same capabilities have equal abilities,
/// regardless of their era and the order of their keys.
///
/// Servers receive exactly these capabilities; lists that depend on client capabilities are kept
/// once per value of this type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each kind of question, as the protocol has them"
)]
pub struct Abilities {
    raw: Bytes,
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// `sampling/createMessage` with tools for the model.
    pub sampling_tools: bool,
    /// `elicitation/create` with a form.
    pub form: bool,
    /// `elicitation/create` with a URL.
    pub url: bool,
    /// `roots/list`.
    pub roots: bool,
    /// Task support: the extension `io.modelcontextprotocol/tasks`, which is absent from all Legacy
    /// versions.
    pub tasks: bool,
}

impl Abilities {
    /// Returns no abilities: the gateway declares these in its own requests.
    pub fn none() -> Self {
        Self {
            raw: Bytes::from_static(b"{}"),
            sampling: false,
            sampling_tools: false,
            form: false,
            url: false,
            roots: false,
            tasks: false,
        }
    }

    /// Parses a client's raw `capabilities`. A value that is not an object counts as no
    /// capabilities; extensions of more than [`MAX_CAPABILITY_BYTES`] bytes are ignored.
    pub fn parse(raw: &[u8]) -> Self {
        Self::of(raw, ProtocolVersion::LATEST_MODERN)
    }

    /// Parses the capabilities of a client that speaks this version. Capabilities that the version
    /// does not define are ignored.
    ///
    /// A Modern client sends the same capabilities with every request, so each thread caches the
    /// latest results.
    pub fn of(raw: &[u8], version: ProtocolVersion) -> Self {
        if raw == b"{}" {
            return Self::none();
        }
        if raw.len() > MAX_CACHED_CAPABILITY_BYTES {
            return Self::read(raw, version);
        }
        LAST_ABILITIES.with_borrow_mut(|last| {
            let same = |(said, by, _): &CachedAbilities| **said == *raw && *by == version;
            if let Some((_, _, can)) = last.iter().find(|one| same(one)) {
                return can.clone();
            }
            let can = Self::read(raw, version);
            if last.len() == MAX_CACHED_ABILITIES {
                last.pop_front();
            }
            last.push_back((raw.into(), version, can.clone()));
            can
        })
    }

    fn read(raw: &[u8], version: ProtocolVersion) -> Self {
        // Capabilities with duplicate keys are ignored: a server could read another of them.
        let mut said = match parse_strict(raw, MAX_CLIENT_DEPTH as usize) {
            Ok(Value::Object(said)) => said,
            _ => Map::new(),
        };
        if version < ProtocolVersion::V2025_06_18 {
            said.remove("elicitation");
        }
        if version < ProtocolVersion::V2025_11_25 {
            // Older versions have no elicitation modes and no tools in
            // sampling.
            for key in ["elicitation", "sampling"] {
                said.entry(key).and_modify(|value| {
                    value.is_object().then(|| *value = json!({}));
                });
            }
        }
        let mut tasks = false;
        if let Some(Value::Object(extensions)) = said.get_mut("extensions") {
            if version.era() == Era::Legacy && extensions.remove(TASKS).is_some() {
                // Not defined for these versions (SEP-2663, "Backward
                // Compatibility").
                if extensions.is_empty() {
                    said.remove("extensions");
                }
            } else {
                tasks = extensions.get(TASKS).is_some_and(Value::is_object);
            }
        }
        let has = |key: &str| said.get(key).is_some_and(Value::is_object);
        let mode = |mode: &str| said.get("elicitation").and_then(|all| all.get(mode)).is_some();
        let (elicits, url) = (has("elicitation"), mode("url"));
        // An empty object means forms (2025-11-25 and later, Elicitation).
        let form = elicits && (mode("form") || !url);
        let mut kept = Map::new();
        let sampling_tools = said.get("sampling").is_some_and(|all| all.get("tools").is_some());
        if let Some(sampling) = said.get("sampling").filter(|value| value.is_object()) {
            let plain = if sampling_tools { json!({ "tools": {} }) } else { json!({}) };
            let is_small = sampling.to_string().len() <= MAX_CAPABILITY_BYTES;
            kept.insert("sampling".into(), if is_small { sampling.clone() } else { plain });
        }
        if elicits {
            let modes = [("form", form), ("url", url)].into_iter().filter(|(_, can)| *can);
            let modes: Map<_, _> = modes.map(|(mode, _)| (mode.to_owned(), json!({}))).collect();
            kept.insert("elicitation".into(), Value::Object(modes));
        }
        if has("roots") {
            // `listChanged` is dropped: such changes are not forwarded to
            // servers.
            kept.insert("roots".into(), json!({}));
        }
        for key in ["experimental", "extensions", "tasks"] {
            let value = said.get(key).filter(|value| value.is_object());
            if let Some(value) =
                value.filter(|value| value.to_string().len() <= MAX_CAPABILITY_BYTES)
            {
                kept.insert(key.to_owned(), value.clone());
            }
        }
        let mut kept = Value::Object(kept);
        kept.sort_all_objects();
        Self {
            raw: kept.to_string().into(),
            sampling: has("sampling"),
            sampling_tools,
            form,
            url,
            roots: has("roots"),
            tasks,
        }
    }

    /// Adds task support.
    #[must_use]
    pub fn with_tasks(&self) -> Self {
        Self { raw: add_tasks(&self.raw), tasks: true, ..self.clone() }
    }

    /// Returns true if there are no abilities at all.
    #[inline]
    pub fn are_none(&self) -> bool {
        self.raw == "{}"
    }

    /// Returns true if the client can answer any server request.
    #[inline]
    pub fn any(&self) -> bool {
        self.sampling || self.form || self.url || self.roots
    }

    /// Returns the capabilities object that servers receive.
    #[inline]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }
}

/// Adds task support to raw capabilities.
pub(crate) fn add_tasks(capabilities: &[u8]) -> Bytes {
    let mut said: Map<String, Value> = serde_json::from_slice(capabilities).unwrap_or_default();
    let extensions = said.entry("extensions").or_insert_with(|| json!({}));
    if let Some(extensions) = extensions.as_object_mut() {
        extensions.insert(TASKS.into(), json!({}));
    }
    Value::Object(said).to_string().into()
}

/// The raw capabilities, the version, and the abilities read from them.
type CachedAbilities = (Box<[u8]>, ProtocolVersion, Abilities);

thread_local! {
    static LAST_ABILITIES: RefCell<VecDeque<CachedAbilities>> = const { RefCell::new(VecDeque::new()) };
}

/// Limit of the bytes of each of `sampling`, `experimental`, `extensions` and `tasks`.
const MAX_CAPABILITY_BYTES: usize = 4096;
/// Limit of the results that a thread caches.
const MAX_CACHED_ABILITIES: usize = 8;
/// Limit of the bytes of raw capabilities that are cached.
const MAX_CACHED_CAPABILITY_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_can_do_the_same_are_the_same() {
        let one = Abilities::parse(br#"{"roots":{"listChanged":true},"elicitation":{}}"#);
        let two = Abilities::parse(br#"{"elicitation":{"form":{}},"roots":{},"x":1}"#);
        assert_eq!(one, two);
        assert!(one.form && one.roots && !one.url && !one.sampling);
        let one =
            Abilities::parse(br#"{"extensions":{"a/b":{"x":1,"y":2},"c/d":{}},"sampling":{}}"#);
        let two =
            Abilities::parse(br#"{"sampling":{},"extensions":{"c/d":{},"a/b":{"y":2,"x":1}}}"#);
        assert_eq!(one, two);
        let url = Abilities::parse(br#"{"elicitation":{"url":{}}}"#);
        assert!(url.url && !url.form);
        assert_eq!(Abilities::parse(b"[]"), Abilities::none());
        for twice in [r#"{"roots":{},"roots":{}}"#, r#"{"roots":{"a":1,"a":2}}"#] {
            assert_eq!(Abilities::parse(twice.as_bytes()), Abilities::none(), "{twice}");
        }
        assert_eq!(Abilities::parse(br#"{"sampling":true}"#), Abilities::none());
        let large = format!(
            r#"{{"sampling":{{"tools":{{}},"x":"{}"}}}}"#,
            "x".repeat(MAX_CAPABILITY_BYTES)
        );
        assert_eq!(
            Abilities::parse(large.as_bytes()),
            Abilities::parse(br#"{"sampling":{"tools":{}}}"#)
        );
    }

    #[test]
    fn remembered_abilities_equal_the_declared_ones_within_bounds() {
        let versions = [ProtocolVersion::V2025_06_18, ProtocolVersion::V2026_07_28];
        for round in 0..3 * MAX_CACHED_ABILITIES {
            let name = "x".repeat(round % (MAX_CACHED_ABILITIES + 3) * 120);
            let raw =
                format!(r#"{{"elicitation":{{"url":{{}}}},"experimental":{{"{name}":{{}}}}}}"#);
            for version in versions {
                let (can, read) = (
                    Abilities::of(raw.as_bytes(), version),
                    Abilities::read(raw.as_bytes(), version),
                );
                assert_eq!(can, read, "{raw} {version}");
                assert_eq!(can, Abilities::of(raw.as_bytes(), version));
            }
        }
        LAST_ABILITIES.with_borrow(|last| {
            assert_eq!(last.len(), MAX_CACHED_ABILITIES);
            assert!(last.iter().all(|(raw, ..)| raw.len() <= MAX_CACHED_CAPABILITY_BYTES));
        });
    }

    #[test]
    fn a_client_has_the_abilities_of_its_version() {
        let raw = br#"{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{}}"#;
        for (version, form, url, tools) in [
            (ProtocolVersion::V2025_03_26, false, false, false),
            (ProtocolVersion::V2025_06_18, true, false, false),
            (ProtocolVersion::V2025_11_25, true, true, true),
            (ProtocolVersion::V2026_07_28, true, true, true),
        ] {
            let can = Abilities::of(raw, version);
            assert!(can.sampling && can.roots, "{version}");
            assert_eq!((can.form, can.url, can.sampling_tools), (form, url, tools), "{version}");
        }
    }
}
