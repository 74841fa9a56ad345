//! Chooses the tool to call, and its arguments.

use serde_json::Value;

use trunkline_catalog::{ArgumentSchema, ParamHeader, find_param_headers};

use super::arguments::Generator;
use super::handshake::ListedTool;
use crate::{BenchFault, Load};

/// A tool, and the arguments of its calls in turn.
#[derive(Debug, Clone)]
pub(crate) struct ChosenTool {
    /// The tool's name.
    pub name: String,
    /// Raw arguments; used in turn.
    pub arguments: Vec<String>,
    /// The parameters that are mirrored into headers.
    pub mirrored: Vec<ParamHeader>,
}

impl ChosenTool {
    /// Chooses the tool and arguments as the command line requests.
    ///
    /// # Errors
    /// [`BenchFault`] names similar tools, or the violations of the schema.
    pub(crate) fn new(tools: &[ListedTool], url: &str, load: &Load) -> Result<Self, BenchFault> {
        let tool = match &load.tool {
            Some(name) => named(tools, name).ok_or_else(|| BenchFault::UnknownTool {
                url: url.to_owned(),
                name: name.clone(),
                near: near(tools, name),
            })?,
            None => {
                harmless(tools).map_err(|why| BenchFault::NoTool { url: url.to_owned(), why })?
            }
        };
        let arguments = match &load.arguments {
            Some(text) => vec![given(tool, text, load.unchecked)?],
            None => generated(tool, load.seed)?,
        };
        let mirrored = tool.schema.as_object().map(find_param_headers);
        let mirrored = mirrored.and_then(Result::ok).unwrap_or_default();
        Ok(Self { name: tool.name.clone(), arguments, mirrored })
    }
}

/// Returns the tool of this name, or the only one with a name that ends in it, after a gateway's
/// prefix.
fn named<'a>(tools: &'a [ListedTool], name: &str) -> Option<&'a ListedTool> {
    if let Some(exact) = tools.iter().find(|tool| tool.name == name) {
        return Some(exact);
    }
    let prefixed = |tool: &&ListedTool| {
        tool.name
            .strip_suffix(name)
            .is_some_and(|prefix| prefix.ends_with(['_', '-', '.', '/', ':']))
    };
    let mut found = tools.iter().filter(prefixed);
    found.next().filter(|_| found.next().is_none())
}

/// Returns a read-only tool: the user chose none, and may not know the effects of the others.
fn harmless(tools: &[ListedTool]) -> Result<&ListedTool, String> {
    match tools {
        [] => Err("it lists no tools".into()),
        _ => tools
            .iter()
            .find(|tool| tool.reads)
            .ok_or_else(|| format!("no tool declares readOnlyHint; {}", some(tools))),
    }
}

/// The tools that the user may have meant.
fn near(tools: &[ListedTool], name: &str) -> String {
    let mut found: Vec<_> = tools
        .iter()
        .map(|tool| (strsim::jaro_winkler(&tool.name, name), &tool.name))
        .filter(|(nearness, other)| *nearness > 0.75 || other.contains(name))
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let found: Vec<_> = found.into_iter().take(5).map(|(_, name)| format!("{name:?}")).collect();
    if found.is_empty() { some(tools) } else { format!("near: {}", found.join(", ")) }
}

fn some(tools: &[ListedTool]) -> String {
    let names: Vec<_> = tools.iter().take(MAX_NAMED_TOOLS).map(|tool| &*tool.name).collect();
    match tools.len().checked_sub(MAX_NAMED_TOOLS) {
        _ if tools.is_empty() => "it lists no tools".into(),
        Some(more @ 1..) => format!("it has {}, and {more} more", names.join(", ")),
        _ => format!("it has {}", names.join(", ")),
    }
}

/// The given arguments, validated against the schema.
fn given(tool: &ListedTool, text: &str, unchecked: bool) -> Result<String, BenchFault> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| BenchFault::Args(error.to_string()))?;
    if !value.is_object() {
        return Err(BenchFault::Args("expected a JSON object".into()));
    }
    // The placeholder for the number is a number by the time it is sent.
    let sent = text.replace("\"{{n}}\"", "1000000000");
    if !unchecked
        && let Ok(schema) = ArgumentSchema::compile(tool.schema.to_string().as_bytes())
        && let Err(violations) = schema.check(Some(sent.as_bytes()))
    {
        let violations = violations.lines.join("\n  ");
        return Err(BenchFault::Schema { tool: tool.name.clone(), violations });
    }
    Ok(text.trim().to_owned())
}

/// Generated arguments: several, so that the calls differ.
fn generated(tool: &ListedTool, seed: u64) -> Result<Vec<String>, BenchFault> {
    let fault = |why: String| BenchFault::Generate { tool: tool.name.clone(), why };
    let generator = Generator::new(&tool.schema).map_err(|error| fault(error.to_string()))?;
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut all: Vec<String> = Vec::new();
    for _ in 0..ARGUMENT_VARIANTS {
        let arguments =
            generator.arguments(&mut chance).map_err(|error| fault(error.to_string()))?;
        if !all.contains(&arguments) {
            all.push(arguments);
        }
    }
    Ok(all)
}

/// The number of generated arguments.
const ARGUMENT_VARIANTS: usize = 64;
/// Maximum number of tools in an error.
const MAX_NAMED_TOOLS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(name: &str, reads: bool) -> ListedTool {
        let schema = json!({
            "type": "object",
            "properties": { "x": { "type": "integer" } },
            "required": ["x"],
        });
        ListedTool { name: name.into(), schema, reads }
    }

    #[test]
    fn a_tool_is_found_by_its_name_or_behind_a_prefix() {
        let tools = [
            tool("search", true),
            tool("a__read", true),
            tool("b__read", true),
            tool("c__add", false),
        ];
        let found = |name: &str| named(&tools, name).map(|tool| tool.name.clone());
        assert_eq!(found("search").as_deref(), Some("search"));
        assert_eq!(found("add").as_deref(), Some("c__add"));
        assert_eq!(found("read"), None);
        assert_eq!(found("dd"), None);
    }

    #[test]
    fn who_names_no_tool_calls_only_one_that_reads() {
        assert_eq!(harmless(&[tool("rm", false), tool("ls", true)]).unwrap().name, "ls");
        assert!(harmless(&[tool("rm", false)]).unwrap_err().contains("rm"));
        assert!(harmless(&[]).is_err());
    }

    #[test]
    fn a_wrong_name_is_answered_with_those_that_are_near() {
        let tools = [tool("search_issues", true), tool("delete", true)];
        assert_eq!(near(&tools, "serch_issue"), "near: \"search_issues\"");
        assert!(near(&tools, "zzz").contains("it has search_issues, delete"));
    }

    #[test]
    fn given_arguments_have_to_fit_unless_unchecked() {
        let tool = tool("t", true);
        assert!(given(&tool, r#"{"x":1}"#, false).is_ok());
        assert!(given(&tool, r#"{"x":"{{n}}"}"#, false).is_ok());
        let fault = given(&tool, r#"{"x":"a"}"#, false).unwrap_err().to_string();
        assert!(fault.contains('x') && fault.contains("integer"), "{fault}");
        assert!(given(&tool, r#"{"x":"a"}"#, true).is_ok());
        assert!(given(&tool, "[]", false).is_err() && given(&tool, "{", true).is_err());
    }

    #[test]
    fn generated_arguments_are_the_same_for_a_seed() {
        let tool = tool("t", true);
        let all = generated(&tool, 1).unwrap();
        assert_eq!(all, generated(&tool, 1).unwrap());
        assert_ne!(all, generated(&tool, 2).unwrap());
        assert!(all.len() > 8);
    }
}
