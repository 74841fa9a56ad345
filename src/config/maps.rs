//! Tables whose keys are names that the operator chose.

use std::marker::PhantomData;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use serde_json::{Value as Json, json};

use crate::call::{NativeName, ServerName};

use super::clients::Client;
use super::network::Header;
use super::problem::Problem;
use super::profiles::Profile;
use super::reader::{Node, Reader, Table};
use super::secret::Secret;
use super::server::{Server, ToolOverride};
use super::setting::{Outline, Part, Row, Section, Setting};

/// A key that is a name, and what its value must be besides what its kind says.
pub(super) trait Name<V>: Sized + PartialEq {
    /// What the name is called in the docs.
    const WORD: &'static str;

    /// Reads the name.
    fn parse(text: &str) -> Result<Self, Problem>;

    /// Checks the value.
    fn accepts(_value: &V) -> Result<(), Problem> {
        Ok(())
    }
}

impl Name<Secret> for HeaderName {
    const WORD: &'static str = "header";

    fn parse(text: &str) -> Result<Self, Problem> {
        Header::from_text(text)
    }

    fn accepts(value: &Secret) -> Result<(), Problem> {
        HeaderValue::from_str(value.expose()).map(drop).map_err(|_| Problem::HeaderValue)
    }
}

impl Name<Secret> for String {
    const WORD: &'static str = "variable";

    fn parse(text: &str) -> Result<Self, Problem> {
        // Looser than what a substitution can name: programs read npm_config_a-b and the like.
        let wrong = |c: char| c == '=' || c.is_whitespace() || c.is_control();
        let valid = !text.is_empty() && !text.contains(wrong);
        if valid { Ok(text.to_owned()) } else { Err(Problem::EnvName) }
    }

    fn accepts(value: &Secret) -> Result<(), Problem> {
        if value.expose().contains('\0') { Err(Problem::Nul) } else { Ok(()) }
    }
}

impl Name<String> for String {
    const WORD: &'static str = "template variable";

    fn parse(text: &str) -> Result<Self, Problem> {
        // RFC 6570, "Variables".
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '%');
        let valid = !text.is_empty() && text.chars().all(allowed);
        if valid { Ok(text.to_owned()) } else { Err(Problem::TemplateVariable) }
    }
}

/// A table of names and values, read in the order of the file.
impl<K: Name<V>, V: Setting<Value = V>> Setting for Vec<(K, V)> {
    type Value = Self;

    fn word() -> String {
        format!("table of {} = {}", K::WORD, V::word())
    }

    fn example() -> String {
        "{ NAME = \"…\" }".into()
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let Some(table) = node.as_table() else {
            node.refuse_kind::<Self>(reader);
            // Perhaps a secret put here by mistake.
            reader.hidden.push(node.span.clone());
            return None;
        };
        let (mut pairs, mut whole): (Self, _) = (Vec::new(), true);
        for node in table.nodes() {
            match pair(&node, reader) {
                Some((name, _)) if pairs.iter().any(|(other, _)| *other == name) => {
                    node.fault_at_name(reader, Problem::Twice);
                }
                Some(pair) => pairs.push(pair),
                None => whole = false,
            }
        }
        whole.then_some(pairs)
    }

    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": V::schema() })
    }
}

/// Reads one name and its value, and tells of what is wrong with either.
fn pair<K: Name<V>, V: Setting<Value = V>>(
    node: &Node<'_>,
    reader: &mut Reader<'_>,
) -> Option<(K, V)> {
    let name = K::parse(node.name()).map_err(|problem| node.fault_at_name(reader, problem)).ok();
    let value = V::read(node, reader)?;
    let value = K::accepts(&value).map_err(|problem| node.fault(reader, problem)).map(|()| value);
    Some((name?, value.ok()?))
}

/// `[servers.NAME]`, in the order of the file.
pub(super) struct Servers;

impl Setting for Servers {
    type Value = Vec<Arc<Server>>;

    fn word() -> String {
        "table of servers".into()
    }

    fn example() -> String {
        "[servers.NAME]".into()
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self::Value> {
        let servers: Vec<_> = node
            .table(reader)?
            .nodes()
            .iter()
            .map(|node| <Server as Setting>::read(node, reader).map(Arc::new))
            .collect();
        servers.into_iter().collect()
    }

    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": Server::schema() })
    }

    fn outline() -> Option<Outline> {
        Some(Outline { suffix: ".NAME", about: Server::ABOUT, rows: Server::rows() })
    }
}

/// Tables with names of the operator's choice, in the order of the file.
pub(super) struct Named<S>(PhantomData<S>);

/// What [`Named`] tables are called in messages.
pub(super) trait Plural {
    const PLURAL: &'static str;
}

impl Plural for Client {
    const PLURAL: &'static str = "clients";
}

impl Plural for Profile {
    const PLURAL: &'static str = "profiles";
}

impl<S: Section + Setting<Value = S> + Plural> Setting for Named<S> {
    type Value = Vec<S>;

    fn word() -> String {
        format!("table of {}", S::PLURAL)
    }

    fn example() -> String {
        format!("[{}.NAME]", S::PLURAL)
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self::Value> {
        let tables = node.table(reader)?.nodes();
        let tables: Vec<_> = tables.iter().map(|node| S::read(node, reader)).collect();
        tables.into_iter().collect()
    }

    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": S::schema() })
    }

    fn outline() -> Option<Outline> {
        Some(Outline { suffix: ".NAME", about: S::ABOUT, rows: S::rows() })
    }
}

/// A server's name is its table's.
impl Part for ServerName {
    fn read(table: &Table<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        Self::new(table.name)
            .map_err(|error| reader.fault(table.name_span.clone(), &table.key, error.into()))
            .ok()
    }
}

/// Every table within `tools` is one tool's.
impl Part for Vec<(NativeName, ToolOverride)> {
    fn rows() -> Vec<Row> {
        const DOC: &[&str] =
            &["What clients see of one tool: `TOOL` is the server's own name for it."];
        vec![Row::of::<ToolOverride>("TOOL", DOC, None).for_any_key()]
    }

    fn read(table: &Table<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let nodes = table.nodes();
        // `allow` and `deny` are settings of the table itself.
        let tools = nodes
            .iter()
            .filter(|node| node.as_table().is_some() && !matches!(node.name(), "allow" | "deny"));
        let overrides: Vec<_> = tools
            .map(|node| {
                let tool = <ToolOverride as Setting>::read(node, reader)?;
                Some((NativeName::new(node.name()), tool))
            })
            .collect();
        overrides.into_iter().collect()
    }
}
