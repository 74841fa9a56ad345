//! `arguments` of one tool: validation of arguments against the schema, or changes of single ones.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::json::ArgumentValue;
use crate::faults::problem::SettingFault;
use crate::reader::macros::section;
use crate::reader::setting::{Section, SectionOutline, Setting};
use crate::reader::{ConfigNode, ConfigReader};
use crate::sections::server::ArgumentsChoice;

section! {
    /// Changes of one argument of the tool; `ARGUMENT` is the server's own name for it. The schema
    /// that clients see, and the check against it, follow.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ArgumentEdit {
        settings {
            /// The value that every call has. Clients do not see the argument and cannot set it.
            /// `${header:NAME}` in a text is a header of the client's request; if the request does
            /// not have it, the call is refused, or made without the argument if it is optional.
            value: Option<ArgumentValue>,
            /// The value of calls that come without it. Clients see it in the schema, unless it
            /// contains a substitution.
            default: Option<ArgumentValue>,
            /// Another argument of the tool, by the server's own name, with a value that is sent
            /// for this one, too. Clients do not see the argument and cannot set it.
            from: Option<String>,
            /// Hides the argument: clients do not see it and cannot set it, and it is never sent.
            hide: bool = false,
            /// The name that clients use for it.
            rename: Option<String>,
            /// The description for the client's model, instead of the server's own.
            description: Option<String>,
        }
    }
}

impl ArgumentEdit {
    /// Returns true if clients neither see the argument nor may set it.
    #[inline]
    pub fn is_hidden(&self) -> bool {
        self.hide || self.value.is_some() || self.from.is_some()
    }
}

/// The setting `arguments` of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolArguments {
    /// Validation of arguments against the schema, if the tool has its own rule.
    pub choice: Option<ArgumentsChoice>,
    /// The changes of single arguments, by the server's own names, in file order.
    pub edits: Arc<[(String, ArgumentEdit)]>,
}

impl Setting for ToolArguments {
    type Value = Self;

    fn kind_word() -> String {
        format!("{}, or a table of arguments", ArgumentsChoice::kind_word())
    }

    fn example_value() -> String {
        "{ repo = { value = \"acme/app\" } }".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if let DeValue::String(_) = node.value {
            let choice = <ArgumentsChoice as Setting>::read_value(node, reader)?;
            return Some(Self { choice: Some(choice), edits: Arc::default() });
        }
        let nodes = node.expect_table(reader)?.all_nodes();
        let edits: Vec<_> = nodes
            .iter()
            .map(|node| {
                let edit = <ArgumentEdit as Setting>::read_value(node, reader)?;
                check_edit(node, &edit, reader);
                Some((node.key_name().to_owned(), edit))
            })
            .collect();
        let edits: Vec<_> = edits.into_iter().collect::<Option<_>>()?;
        check_edits(&nodes, &edits, reader);
        Some(Self { choice: None, edits: edits.into() })
    }

    fn absent_value() -> Option<Self> {
        Some(Self::default())
    }

    fn json_schema() -> Json {
        json!({ "anyOf": [
            ArgumentsChoice::json_schema(),
            { "type": "object", "additionalProperties": ArgumentEdit::json_schema() },
        ] })
    }

    fn section_outline() -> Option<SectionOutline> {
        Some(SectionOutline {
            suffix: ".ARGUMENT",
            about: ArgumentEdit::ABOUT,
            rows: ArgumentEdit::setting_rows(),
        })
    }
}

/// Checks that an argument has one source of its value, and that a hidden one has no name.
fn check_edit(node: &ConfigNode<'_>, edit: &ArgumentEdit, reader: &mut ConfigReader<'_>) {
    let Some(table) = node.as_table() else { return };
    let sources = ["value", "from", "hide"].into_iter().filter(|key| match *key {
        "value" => edit.value.is_some(),
        "from" => edit.from.is_some(),
        _ => edit.hide,
    });
    let mut sources = sources.filter_map(|key| table.find_node(key).zip(Some(key)));
    let Some((_, owner)) = sources.next() else { return };
    let clients = ["default", "rename", "description"];
    let others = sources.map(|(node, _)| node).collect::<Vec<_>>().into_iter();
    for other in others.chain(clients.iter().filter_map(|key| table.find_node(key))) {
        other.report_fault_at_key(reader, SettingFault::HiddenArgument { owner });
    }
}

/// Checks that names are unique, and that `from` names an argument that is not itself a copy.
fn check_edits(
    nodes: &[ConfigNode<'_>],
    edits: &[(String, ArgumentEdit)],
    reader: &mut ConfigReader<'_>,
) {
    for (node, (name, edit)) in nodes.iter().zip(edits) {
        let Some(table) = node.as_table() else { continue };
        let public = |(name, edit): &(String, ArgumentEdit)| {
            (!edit.is_hidden()).then(|| edit.rename.clone().unwrap_or_else(|| name.clone()))
        };
        let is_taken = |new: &String| {
            let others = edits.iter().filter(|(other, _)| other != name);
            new.is_empty() || others.filter_map(public).any(|other| other == *new)
        };
        if edit.rename.as_ref().is_some_and(is_taken)
            && let Some(node) = table.find_node("rename")
        {
            node.report_fault(reader, SettingFault::ArgumentName);
        }
        let copies = |source: &String| {
            let found = edits.iter().find(|(other, _)| other == source);
            source == name || found.is_some_and(|(_, edit)| edit.from.is_some() || edit.hide)
        };
        if edit.from.as_ref().is_some_and(copies)
            && let Some(node) = table.find_node("from")
        {
            node.report_fault(reader, SettingFault::ArgumentSource);
        }
    }
}
