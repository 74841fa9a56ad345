//! Reasons not to call a tool: arguments that violate its schema, or the wrong meta-tool.

use std::fmt;

/// Violations of a tool's schema by the arguments of a call.
///
/// The lines name paths, rules and kinds, never values: arguments may contain secrets, and the text
/// goes to the model, to logs and to traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentsError {
    /// One line per violation: path, rule, expectation and the kind found.
    pub lines: Vec<String>,
    /// Shows if the list is complete.
    pub others: OtherViolations,
}

/// Violations that are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherViolations {
    /// None: all violations are listed, or only the first was searched for.
    None,
    /// Some. They are not counted.
    Some,
}

impl ArgumentsError {
    /// Adds the schema that they violate, for a client that may not know it.
    #[must_use]
    pub fn with_schema(mut self, schema: &str) -> Self {
        if std::mem::replace(&mut self.others, OtherViolations::None) == OtherViolations::Some {
            self.lines.push("… and more".to_owned());
        }
        self.lines.push(format!("The schema: {schema}"));
        self
    }
}

impl ArgumentsError {
    /// Creates one violation from a line.
    pub fn of_line(line: impl Into<String>) -> Self {
        Self { lines: vec![line.into()], others: OtherViolations::None }
    }
}

impl fmt::Display for ArgumentsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))?;
        match self.others {
            OtherViolations::None => Ok(()),
            OtherViolations::Some => f.write_str("\n… and more"),
        }
    }
}

impl std::error::Error for ArgumentsError {}

/// Reasons for a meta-tool to refuse a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaCallError {
    /// The tool does not exist, or this principal may not use it.
    #[error(
        "there is no tool {name:?}{}: find_tools finds the names of tools",
        did_you_mean(similar)
    )]
    UnknownTool {
        /// The requested name.
        name: String,
        /// Similar names of tools.
        similar: Vec<String>,
    },
    /// The tool is a meta-tool itself.
    #[error("call {name} directly, not through another tool")]
    CalledDirectly {
        /// The name of the meta-tool.
        name: &'static str,
    },
    /// The tool is for another meta-tool.
    #[error("call {name} with {right}, not with this tool")]
    OtherIntent {
        /// The name of the tool.
        name: String,
        /// The name of the meta-tool that calls it.
        right: &'static str,
    },
}

fn did_you_mean(similar: &[String]) -> String {
    if similar.is_empty() {
        return String::new();
    }
    format!(", but {}", similar.join(", "))
}
