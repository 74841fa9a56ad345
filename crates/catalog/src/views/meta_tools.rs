//! The meta-tools as clients see them, and lists of tools that have them.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use serde_json::{Value, json};

use trunkline_config::{Pattern, SlimConfig};
use trunkline_jsonrpc::{Members, object_of};
use trunkline_protocol::call::{CallIntent, MetaTool};

use super::slim::slim_tool;
use crate::Catalog;
use crate::elements::tool::{HeaderRules, Tool};
use crate::kind::Kind;
use crate::lists::list::CatalogList;
use crate::repair::legacy_tool;

/// The tools in a list beside the meta-tools, and their marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaListing {
    /// Only the pinned ones.
    Pinned,
    /// All, for clients that search by themselves. The pinned ones and the meta-tools have a mark:
    /// [`ALWAYS_LOAD`].
    Marked,
    /// All, in a shorter form. The only meta-tool is `describe_tools`, which completes it.
    Shortened,
    /// Only the pinned ones, for clients that send code: the only meta-tool is `run_code`.
    Code,
}

/// The rules of a list with meta-tools.
#[derive(Debug, Clone, Copy)]
pub struct MetaListRules<'a> {
    /// Its tools beside the meta-tools.
    pub form: MetaListing,
    /// The pinned tools, by public name.
    pub pinned: &'a [Pattern],
    /// True if there is a meta-tool for each intent of a call.
    pub by_intent: bool,
    /// The shortening of definitions.
    pub slim: Option<&'a SlimConfig>,
    /// The most bytes of an API for code that is described in full.
    pub longest_api: usize,
}

impl MetaListing {
    /// Returns true if such a list has a meta-tool.
    fn lists(self, tool: MetaTool, by_intent: bool) -> bool {
        match self {
            Self::Pinned | Self::Marked => tool.is_for_search(by_intent),
            Self::Shortened => tool == MetaTool::Describe,
            Self::Code => tool == MetaTool::RunCode,
        }
    }

    /// Returns true if clients with such a list can call a meta-tool. Code can also search.
    pub fn offers(self, tool: MetaTool, by_intent: bool) -> bool {
        let is_for_code = self == Self::Code && matches!(tool, MetaTool::Find | MetaTool::Describe);
        is_for_code || self.lists(tool, by_intent)
    }
}

/// The member of a tool's `_meta` that marks tools for clients that search by themselves: a model
/// always needs these tools. Other clients ignore it.
pub const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";

/// A meta-tool, compiled.
pub fn meta_tool(tool: MetaTool) -> Option<&'static Arc<Tool>> {
    static META_TOOLS: LazyLock<Vec<(MetaTool, Arc<Tool>)>> = LazyLock::new(|| {
        let compile = |tool: MetaTool| {
            let listed = listed_form(tool).to_string();
            let compiled = Tool::parse(listed.as_bytes(), HeaderRules::Ignore).ok()?;
            Some((tool, Arc::new(compiled)))
        };
        MetaTool::ALL.into_iter().filter_map(compile).collect()
    });
    META_TOOLS.iter().find(|(one, _)| *one == tool).map(|(_, compiled)| compiled)
}

impl Catalog {
    /// The list of tools for clients that have meta-tools: these, the tools of the gateway itself,
    /// and those of servers, in the catalog's order.
    pub fn list_with_meta_tools(&self, rules: &MetaListRules<'_>) -> CatalogList {
        let all = self.list(Kind::Tools);
        let is_marked = rules.form == MetaListing::Marked;
        let meta = MetaTool::ALL.into_iter();
        let meta = meta.filter(|tool| rules.form.lists(*tool, rules.by_intent));
        let write_meta = meta.filter_map(|tool| match tool {
            MetaTool::RunCode => Some(self.describe_run_code(rules.longest_api)),
            tool => meta_tool(tool).map(|tool| tool.shown().clone()),
        });
        let write_meta = write_meta.map(|raw| if is_marked { mark(&raw) } else { raw });
        let names =
            self.own_tool_names().chain(self.entries.iter().map(|entry| entry.public.as_str()));
        let is_pinned = |name: &str| rules.pinned.iter().any(|pattern| pattern.matches(name));
        let shown = names.zip(all.items()).filter_map(|(name, raw)| match rules.form {
            MetaListing::Pinned | MetaListing::Code => is_pinned(name).then_some(raw),
            MetaListing::Marked => Some(if is_pinned(name) { mark(&raw) } else { raw }),
            MetaListing::Shortened => Some(raw),
        });
        let shown = shown.map(|raw| match rules.slim {
            Some(slim) => slim_tool(&raw, slim).into(),
            None => raw,
        });
        let write = write_meta.chain(shown);
        let write = write.map(|raw| move |out: &mut Vec<u8>| out.extend_from_slice(&raw));
        let list = CatalogList::write_list(Kind::Tools, all.freshness(), 0, write);
        let mut all_tools = self.own.iter().chain(self.entries.iter().map(|entry| &entry.tool));
        if all_tools.any(|tool| tool.has_legacy_form()) {
            list.with_legacy_form(Kind::Tools, legacy_tool)
        } else {
            list
        }
    }
}

/// A tool with the mark; unchanged if its `_meta` cannot be read.
fn mark(raw: &Bytes) -> Bytes {
    let Ok(tool) = Members::parse(raw) else { return raw.clone() };
    let own = tool.find("_meta").map_or("{}", |own| own.get());
    let Ok(own) = Members::parse(own.as_bytes()) else { return raw.clone() };
    let kept = own.0.iter().filter(|(name, _)| name != ALWAYS_LOAD);
    let kept = kept.map(|(name, value)| (&**name, value.get().into()));
    let own = object_of(kept.chain([(ALWAYS_LOAD, "true".into())]));
    let Ok(own) = String::from_utf8(own) else { return raw.clone() };
    let kept = tool.0.iter().filter(|(name, _)| name != "_meta");
    let kept = kept.map(|(name, value)| (&**name, value.get().into()));
    object_of(kept.chain([("_meta", own.into())])).into()
}

/// A meta-tool as an element of `tools`.
fn listed_form(tool: MetaTool) -> Value {
    let name = tool.name();
    match tool {
        MetaTool::Find => json!({
            "name": name, "title": "Find tools",
            "description": "Finds tools by their purpose, the best match first. Most tools are \
                            not listed: search before you answer that a task is impossible. \
                            Search in English: most definitions are in English. Each result is a \
                            signature; `*` and `…` mark omitted parts, which describe_tools \
                            returns.",
            "inputSchema": object_schema(&json!({
                "query": {
                    "type": "string", "minLength": 1, "maxLength": MAX_QUERY,
                    "description": "The task, in a few English words.",
                },
                "limit": { "type": "integer", "minimum": 1, "maximum": MAX_FOUND,
                    "description": format!("The maximum number of results; {DEFAULT_FOUND_TOOLS} by default.") },
                "kind": {
                    "enum": ["tools", "prompts", "resources", "skills"],
                    "description": "The kind to find; tools by default.",
                },
            }), &["query"]),
            "annotations": read_only(),
        }),
        MetaTool::Describe => json!({
            "name": name, "title": "Describe tools",
            "description": "Describes tools in full, with the schemas of their arguments.",
            "inputSchema": object_schema(&json!({
                "names": {
                    "type": "array", "minItems": 1, "maxItems": MAX_DESCRIBED,
                    "items": { "type": "string" },
                    "description": "Names from the results of find_tools.",
                },
            }), &["names"]),
            "annotations": read_only(),
        }),
        MetaTool::RunCode => run_code_form(""),
        MetaTool::Call(intent) => {
            let (title, what) = match intent {
                None => ("Call a tool", "any tool"),
                Some(CallIntent::Read) => ("Call a tool that reads", "a tool that changes nothing"),
                Some(CallIntent::Write) => {
                    ("Call a tool that writes", "a tool that changes something and deletes nothing")
                }
                Some(CallIntent::Destructive) => (
                    "Call a tool that may destroy",
                    "a tool that may overwrite or delete something",
                ),
            };
            let annotations = match intent {
                Some(CallIntent::Read) => json!({ "readOnlyHint": true }),
                Some(CallIntent::Write) => {
                    json!({ "readOnlyHint": false, "destructiveHint": false })
                }
                Some(CallIntent::Destructive) | None => {
                    json!({ "readOnlyHint": false, "destructiveHint": true })
                }
            };
            json!({
                "name": name, "title": title,
                "description": format!(
                    "Calls {what} by its name from find_tools. Returns the tool's own result."
                ),
                "inputSchema": object_schema(&json!({
                    "name": { "type": "string", "description": "The name of the tool." },
                    "arguments": {
                        "type": "object", "description": "The arguments, as in its signature.",
                    },
                }), &["name"]),
                "annotations": annotations,
            })
        }
    }
}

/// `run_code` as an element of `tools`, with the API of code.
pub(crate) fn run_code_form(api: &str) -> Value {
    json!({
        "name": MetaTool::RunCode.name(), "title": "Run code",
        "description": format!("{RUN_CODE}{api}"),
        "inputSchema": object_schema(&json!({
            "code": {
                "type": "string", "minLength": 1,
                "description": "JavaScript: the body of an async function.",
            },
        }), &["code"]),
        "annotations": { "readOnlyHint": false, "destructiveHint": true },
    })
}

fn object_schema(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

fn read_only() -> Value {
    json!({ "readOnlyHint": true, "openWorldHint": false })
}

/// The description of code for models, before its API.
const RUN_CODE: &str = "Runs JavaScript that calls tools, and returns its return value and its \
                        printed text. The code is the body of an async function: `await` calls, \
                        run independent ones with `Promise.all`, filter and combine results, and \
                        `return` only what you need. Each tool is an async function of the object \
                        `tools` that takes one object, resolves to the tool's structured result \
                        or its text, and throws an Error that can be caught. `console.log` \
                        prints. There is no network, no file system, no timer and no module. \
                        `tools.describe_tools({ names: [] })` returns full definitions.";
/// The default number of answers of `find_tools`.
pub const DEFAULT_FOUND_TOOLS: usize = 6;
/// The most answers of `find_tools`.
pub const MAX_FOUND: usize = 20;
/// The most characters of a query.
const MAX_QUERY: usize = 400;
/// The most tools that are described at once.
const MAX_DESCRIBED: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_meta_tool_is_a_tool() {
        for tool in MetaTool::ALL {
            let compiled = meta_tool(tool).unwrap_or_else(|| panic!("{tool:?}"));
            assert_eq!(compiled.native.as_str(), tool.name());
        }
    }

    #[test]
    fn a_mark_keeps_the_fields_of_the_tool() {
        for (tool, marked) in [
            (
                r#"{"name":"a","n":1.0}"#,
                r#"{"name":"a","n":1.0,"_meta":{"anthropic/alwaysLoad":true}}"#,
            ),
            (
                r#"{"_meta":{"x":[1, 2],"anthropic/alwaysLoad":false},"name":"a"}"#,
                r#"{"name":"a","_meta":{"x":[1, 2],"anthropic/alwaysLoad":true}}"#,
            ),
            (r#"{"name":"a","_meta":7}"#, r#"{"name":"a","_meta":7}"#),
        ] {
            assert_eq!(mark(&Bytes::from_static(tool.as_bytes())), marked);
        }
    }
}
