//! Tables with keys that are names chosen by the operator.

use std::marker::PhantomData;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use serde_json::{Value as Json, json};

use trunkline_protocol::call::{NativeName, ServerName};

use crate::faults::problem::SettingFault;
use crate::reader::setting::{Section, SectionOutline, SectionPart, Setting, SettingRow};
use crate::reader::values::header_name::HeaderSetting;
use crate::reader::{ConfigNode, ConfigReader, ConfigTable};
use crate::sections::clients::ClientConfig;
use crate::sections::gateway::admin::AdminRole;
use crate::sections::issuers::IssuerConfig;
use crate::sections::profiles::ProfileConfig;
use crate::sections::server::ServerConfig;
use crate::sections::server::tools::ToolOverride;
use crate::source::secret::Secret;

/// A key that is a name, with further rules for its value.
pub(crate) trait NameKey<V>: Sized + PartialEq {
    /// The word for the name in the docs.
    const WORD: &'static str;

    /// Parses the name.
    fn parse_name(text: &str) -> Result<Self, SettingFault>;

    /// Checks the value.
    fn check_value(_value: &V) -> Result<(), SettingFault> {
        Ok(())
    }
}

impl NameKey<Secret> for HeaderName {
    const WORD: &'static str = "header";

    fn parse_name(text: &str) -> Result<Self, SettingFault> {
        HeaderSetting::from_text(text)
    }

    fn check_value(value: &Secret) -> Result<(), SettingFault> {
        HeaderValue::from_str(value.expose()).map(drop).map_err(|_| SettingFault::HeaderValue)
    }
}

impl NameKey<Secret> for String {
    const WORD: &'static str = "variable";

    fn parse_name(text: &str) -> Result<Self, SettingFault> {
        // Less strict than a substitution's name: some programs read names like npm_config_a-b.
        let wrong = |c: char| c == '=' || c.is_whitespace() || c.is_control();
        let valid = !text.is_empty() && !text.contains(wrong);
        if valid { Ok(text.to_owned()) } else { Err(SettingFault::EnvName) }
    }

    fn check_value(value: &Secret) -> Result<(), SettingFault> {
        if value.expose().contains('\0') { Err(SettingFault::Nul) } else { Ok(()) }
    }
}

impl NameKey<String> for String {
    const WORD: &'static str = "template variable";

    fn parse_name(text: &str) -> Result<Self, SettingFault> {
        // RFC 6570, "Variables".
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '%');
        let valid = !text.is_empty() && text.chars().all(allowed);
        if valid { Ok(text.to_owned()) } else { Err(SettingFault::TemplateVariable) }
    }
}

impl NameKey<AdminRole> for String {
    const WORD: &'static str = "group";

    fn parse_name(text: &str) -> Result<Self, SettingFault> {
        Ok(text.to_owned())
    }
}

/// A table of names and values, in file order.
impl<K: NameKey<V>, V: Setting<Value = V>> Setting for Vec<(K, V)> {
    type Value = Self;

    fn kind_word() -> String {
        format!("table of {} = {}", K::WORD, V::kind_word())
    }

    fn example_value() -> String {
        "{ NAME = \"…\" }".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let Some(table) = node.as_table() else {
            node.refuse_kind::<Self>(reader);
            // The value may be a misplaced secret.
            reader.hidden.push(node.span.clone());
            return None;
        };
        let (mut pairs, mut whole): (Self, _) = (Vec::new(), true);
        for node in table.all_nodes() {
            match read_pair(&node, reader) {
                Some((name, _)) if pairs.iter().any(|(other, _)| *other == name) => {
                    node.report_fault_at_key(reader, SettingFault::Twice);
                }
                Some(pair) => pairs.push(pair),
                None => whole = false,
            }
        }
        whole.then_some(pairs)
    }

    fn json_schema() -> Json {
        json!({ "type": "object", "additionalProperties": V::json_schema() })
    }
}

/// Reads one name and its value, and reports the faults of both.
fn read_pair<K: NameKey<V>, V: Setting<Value = V>>(
    node: &ConfigNode<'_>,
    reader: &mut ConfigReader<'_>,
) -> Option<(K, V)> {
    let name = K::parse_name(node.key_name())
        .map_err(|problem| node.report_fault_at_key(reader, problem))
        .ok();
    let value = V::read_value(node, reader)?;
    let value = K::check_value(&value)
        .map_err(|problem| node.report_fault(reader, problem))
        .map(|()| value);
    Some((name?, value.ok()?))
}

/// The tables `[servers.NAME]`, in file order.
pub(crate) struct ServerTables;

impl Setting for ServerTables {
    type Value = Vec<Arc<ServerConfig>>;

    fn kind_word() -> String {
        "table of servers".into()
    }

    fn example_value() -> String {
        "[servers.NAME]".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self::Value> {
        let servers: Vec<_> = node
            .expect_table(reader)?
            .all_nodes()
            .iter()
            .map(|node| <ServerConfig as Setting>::read_value(node, reader).map(Arc::new))
            .collect();
        servers.into_iter().collect()
    }

    fn json_schema() -> Json {
        json!({ "type": "object", "additionalProperties": ServerConfig::json_schema() })
    }

    fn section_outline() -> Option<SectionOutline> {
        Some(SectionOutline {
            suffix: ".NAME",
            about: ServerConfig::ABOUT,
            rows: ServerConfig::setting_rows(),
        })
    }
}

/// Tables with names chosen by the operator, in file order.
pub(crate) struct NamedTables<S>(PhantomData<S>);

/// The plural noun for [`NamedTables`] in messages.
pub(crate) trait PluralName {
    const PLURAL: &'static str;
}

impl PluralName for ClientConfig {
    const PLURAL: &'static str = "clients";
}

impl PluralName for IssuerConfig {
    const PLURAL: &'static str = "issuers";
}

impl PluralName for ProfileConfig {
    const PLURAL: &'static str = "profiles";
}

impl<S: Section + Setting<Value = S> + PluralName> Setting for NamedTables<S> {
    type Value = Vec<S>;

    fn kind_word() -> String {
        format!("table of {}", S::PLURAL)
    }

    fn example_value() -> String {
        format!("[{}.NAME]", S::PLURAL)
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self::Value> {
        let tables = node.expect_table(reader)?.all_nodes();
        let tables: Vec<_> = tables.iter().map(|node| S::read_value(node, reader)).collect();
        tables.into_iter().collect()
    }

    fn json_schema() -> Json {
        json!({ "type": "object", "additionalProperties": S::json_schema() })
    }

    fn section_outline() -> Option<SectionOutline> {
        Some(SectionOutline { suffix: ".NAME", about: S::ABOUT, rows: S::setting_rows() })
    }
}

/// A server's name is the key of its table.
impl SectionPart for ServerName {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Self::new(table.name)
            .map_err(|error| reader.report_fault(table.name_span.clone(), &table.key, error.into()))
            .ok()
    }
}

/// Every table within `tools` configures one tool.
impl SectionPart for Vec<(NativeName, ToolOverride)> {
    fn part_rows() -> Vec<SettingRow> {
        const PRESENTATION_DOC: &[&str] =
            &["Presentation of one tool to clients; `TOOL` is the server's own name for it."];
        vec![SettingRow::for_setting::<ToolOverride>("TOOL", PRESENTATION_DOC, None).for_any_key()]
    }

    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let nodes = table.all_nodes();
        // `allow` and `deny` are settings of `tools` itself.
        let tools = nodes.iter().filter(|node| {
            node.as_table().is_some() && !matches!(node.key_name(), "allow" | "deny")
        });
        let overrides: Vec<_> = tools
            .map(|node| {
                let tool = <ToolOverride as Setting>::read_value(node, reader)?;
                Some((NativeName::new(node.key_name()), tool))
            })
            .collect();
        overrides.into_iter().collect()
    }
}
