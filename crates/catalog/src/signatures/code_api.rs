//! The API of code, as a model reads it: a declaration of every tool, or instructions to find tools
//! if the declarations would be too long.

use std::fmt::Write as _;

use bytes::Bytes;

use trunkline_protocol::call::MetaTool;

use super::declaration::{ToolDeclaration, script_names};
use crate::Catalog;
use crate::kind::Kind;
use crate::views::meta_tools::run_code_form;

/// A tool as code calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeFunction {
    /// The public name of the tool.
    pub public: String,
    /// The identifier of its function.
    pub identifier: String,
}

impl Catalog {
    /// The functions of code: first those that find others, then all tools in the order of their
    /// list.
    pub fn code_functions(&self) -> &[CodeFunction] {
        self.functions.get_or_init(|| self.name_functions())
    }

    fn name_functions(&self) -> Vec<CodeFunction> {
        let finders = [MetaTool::Find, MetaTool::Describe].map(MetaTool::name);
        let own = self.own_tool_names();
        let entries = self.entries.iter().map(|entry| entry.public.as_str());
        let names: Vec<&str> = finders.into_iter().chain(own).chain(entries).collect();
        let identifiers = script_names(&names);
        let functions = names.into_iter().zip(identifiers);
        functions
            .map(|(public, identifier)| CodeFunction { public: public.to_owned(), identifier })
            .collect()
    }

    /// `run_code` as an element of `tools`. Its description contains the API if that has at most
    /// this many bytes.
    pub(crate) fn describe_run_code(&self, longest_api: usize) -> Bytes {
        let api = self.declare_tools(longest_api).unwrap_or_else(|| self.explain_finding());
        run_code_form(&api).to_string().into()
    }

    /// The declarations of all tools; `None` if they are longer than this many bytes.
    fn declare_tools(&self, longest: usize) -> Option<String> {
        let mut api = "\n\ndeclare const tools: {\n".to_owned();
        let functions = self.code_functions().iter().skip(FINDER_COUNT);
        for (function, raw) in functions.zip(self.list(Kind::Tools).items()) {
            let _ = writeln!(api, "{}", ToolDeclaration::write(&function.identifier, &raw));
            if api.len() > longest {
                return None;
            }
        }
        api.push_str("};");
        Some(api)
    }

    fn explain_finding(&self) -> String {
        let mut text = format!(
            "\n\nThere are {} tools. Find them first, in code: `await tools.find_tools({{ query: \
             \"the task\" }})` resolves to `{{ tools: string[] }}`, signatures such as \
             `find_issue(repo: string, limit?: int) — Finds an issue.`, and `await \
             tools.describe_tools({{ names: [\"find_issue\"] }})` to `{{ tools: object[] }}`, \
             full definitions with schemas. Number of tools per server:",
            self.list(Kind::Tools).len()
        );
        text.push(' ');
        text.push_str(&self.name_servers());
        text.push('.');
        text
    }

    /// The servers in the order of the list, each with the number of its tools.
    pub fn name_servers(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for entry in &self.entries {
            match counts.last_mut() {
                Some((server, count)) if *server == entry.server.as_str() => *count += 1,
                _ => counts.push((entry.server.as_str(), 1)),
            }
        }
        let more = counts.len().saturating_sub(MAX_NAMED_SERVERS);
        let named = counts.iter().take(MAX_NAMED_SERVERS);
        let mut named: Vec<_> =
            named.map(|(server, count)| format!("{server} ({count})")).collect();
        named.extend((more > 0).then(|| format!("{more} more")));
        named.join(", ")
    }
}

/// The number of functions that find others.
const FINDER_COUNT: usize = 2;
/// The most servers that are named.
const MAX_NAMED_SERVERS: usize = 50;
