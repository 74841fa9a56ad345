//! `[tools.NAME]`: tools of the gateway itself, with a fixed answer or made of calls of other
//! tools.

mod order;
mod templates;

pub use order::{CallOrder, ROOT_ARGUMENTS};
pub use templates::ValueTemplate;

use std::time::Duration;

use serde_json::Value as Json;

use trunkline_protocol::call::PublicName;

use super::named_tables::{NamedTables, PluralName};
use super::transforms::{InputSchema, MessageTemplate, plain_json};
use crate::faults::problem::SettingFault;
use crate::reader::macros::section;
use crate::reader::setting::{SectionPart, Setting, TextSetting};
use crate::reader::values::units::DurationSetting;
use crate::reader::{ConfigNode, ConfigReader, ConfigTable};

section! {
    /// A tool of the gateway itself. `NAME` is its name for clients: 1 to 64 characters of `a-z`,
    /// `A-Z`, `0-9`, `_` and `-`. Its answer is the same every time (`text`, `json`), or made from
    /// the results of other tools (`calls`). A profile shows it if its `tools` name it, or if it
    /// names neither servers nor elements.
    #[derive(Debug, Clone, PartialEq)]
    pub struct OwnToolConfig {
        parts {
            /// The `NAME` of its table.
            name: PublicName,
            /// The order of its calls.
            order: CallOrder,
        }
        settings {
            /// The description for the client's model.
            description: Option<String>,
            /// The schema of its arguments: a table, or the path of a JSON file. By default any
            /// object.
            input_schema: Option<InputSchema>,
            /// The answer: a text, with a path within `{ }` for each value in it. Paths begin with
            /// `arguments` or the name of a call. By default, with `calls`, all results as JSON.
            text: Option<MessageTemplate>,
            /// The answer: a JSON object, which clients get as `structuredContent`, too.
            json: Option<FixedObject>,
            /// The calls of other tools, at most 16. Calls that do not depend on one another are
            /// made concurrently.
            calls: Vec<OwnCallConfig> as NamedTables<OwnCallConfig> = {},
            /// The time limit for all calls together.
            timeout: Duration as DurationSetting = "1m",
        }
    }
}

section! {
    /// One call of another tool. `NAME` is its name in templates: letters, digits, `_` and `-`, but
    /// not `arguments`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct OwnCallConfig {
        parts {
            /// The `NAME` of its table.
            name: CallName,
        }
        settings {
            /// The tool to call, by its public name. The client must be allowed to call it.
            tool: PublicName,
            /// Its arguments. Within texts, `{arguments.x}` is an argument of the client's call,
            /// and `{lookup.id}` a value in the result of the call `lookup`, which is made first; a
            /// text that is nothing else keeps the type of the value, and is left out if there is
            /// none.
            arguments: ValueTemplate = {},
            /// The other calls go on if this one fails. By default all fail with it.
            optional: bool = false,
        }
    }
}

/// The name of a call in the templates of its tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallName(Box<str>);

impl CallName {
    /// The name as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A JSON object in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct FixedObject(Box<str>);

impl FixedObject {
    /// The object as JSON text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PluralName for OwnToolConfig {
    const PLURAL: &'static str = "tools";
}

impl PluralName for OwnCallConfig {
    const PLURAL: &'static str = "calls";
}

/// A tool's name is the key of its table.
impl SectionPart for PublicName {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let parsed = Self::parse_text(table.name, reader);
        let parsed = parsed
            .map_err(|problem| reader.report_fault(table.name_span.clone(), &table.key, problem));
        parsed.ok().flatten()
    }
}

/// A call's name is the key of its table.
impl SectionPart for CallName {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let name = table.name;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name == ROOT_ARGUMENTS || !name.chars().all(is_plain) {
            reader.report_fault(table.name_span.clone(), &table.key, SettingFault::CallName);
            return None;
        }
        Some(Self(name.into()))
    }
}

impl Setting for FixedObject {
    type Value = Self;

    fn kind_word() -> String {
        "table".into()
    }

    fn example_value() -> String {
        "{ phone = \"+41 44 000 00 00\" }".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        node.expect_table(reader)?;
        plain_json(node, reader).map(|object| Self(object.to_string().into()))
    }

    fn json_schema() -> Json {
        serde_json::json!({ "type": "object" })
    }
}

/// The rules between the settings of a tool, and the order of its calls.
impl SectionPart for CallOrder {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let set = |key| table.find_node(key).is_some();
        let is_fixed = set("json");
        if is_fixed == (set("calls") || set("text")) {
            let (span, key) = (table.name_span.clone(), &table.key);
            reader.report_fault(span, key, SettingFault::OwnAnswer);
            return None;
        }
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        let calls = table.find_node("calls");
        let calls = match &calls {
            Some(node) => NamedTables::<OwnCallConfig>::read_value(node, quiet)?,
            None => Vec::new(),
        };
        let text = table.find_node("text");
        let text = text.and_then(|node| <MessageTemplate as Setting>::read_value(&node, quiet));
        Self::new(&calls, text.as_ref())
            .map_err(|problem| {
                let (span, key) = (table.name_span.clone(), &table.key);
                reader.report_fault(span, key, problem);
            })
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, ConfigSource, SystemEnvironment};

    fn faults(text: &str) -> String {
        let source =
            ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes: text.into() };
        let read = Config::read(&source, &SystemEnvironment);
        read.map_or_else(|faults| faults.to_string(), |_| String::new())
    }

    #[test]
    fn a_tool_has_one_answer_and_calls_that_end() {
        let many = "[tools.t.calls.cN]\ntool = \"s__x\"\n";
        let many: String = (0..17).map(|n| many.replace('N', &n.to_string())).collect();
        for (text, expected) in [
            ("[tools.t]\ntext = \"x {arguments.y}\"", ""),
            ("[tools.t]\ndescription = \"x\"", "a tool has one answer"),
            ("[tools.t]\ntext = \"x\"\njson = {}", "a tool has one answer"),
            ("[tools.t]\njson = {}\n[tools.t.calls.a]\ntool = \"s__x\"", "a tool has one answer"),
            ("[tools.t]\ntext = \"{a}\"", "begins with `a`"),
            ("[tools.\"t t\"]\ntext = \"x\"", "not a public tool name"),
            ("[tools.t.calls.arguments]\ntool = \"s__x\"", "not the name of a call"),
            (
                "[tools.t.calls.a]\ntool = \"s__x\"\narguments = { x = \"{b.c}\" }",
                "begins with `b`",
            ),
            (
                "[tools.t.calls.a]\ntool = \"s__x\"\narguments = { x = \"{a.c}\" }",
                "depend on one another",
            ),
            (
                "[tools.t.calls.a]\ntool = \"s__x\"\narguments = { x = \"{b.c}\" }\n\
                 [tools.t.calls.b]\ntool = \"s__x\"\narguments = { x = \"{a.c}\" }",
                "depend on one another",
            ),
            ("[tools.t.calls.a]\ntool = \"s__x\"\narguments = { x = \"{\" }", "not a template"),
            (&many, "at most 16 calls"),
            (
                "[tools.t.calls.a]\ntool = \"u\"\n[tools.u]\ntext = \"x\"",
                "`u` is a tool of the gateway itself",
            ),
            (
                "[servers.s]\ncommand = \"x\"\ntools.y.name = \"t\"\n[tools.t]\ntext = \"x\"",
                "tools.t",
            ),
        ] {
            let told = faults(text);
            assert!(told.contains(expected), "{text}: {told}");
            assert_eq!(told.is_empty(), expected.is_empty(), "{text}: {told}");
        }
    }
}
