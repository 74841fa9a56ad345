//! Rules and calls in the audit log: the decision about a call, as far as its record has the facts.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::call::{Context, ServerName};
use crate::catalog::{CatalogElement, ElementBasis, Kind};
use crate::config::RuleConfig;
use crate::mcp::Method;

use crate::policy::authorization::Authorization;
use crate::policy::authorization::decision::AccessDecision;
use crate::policy::authorization::values::facts::RequestFacts;

/// The tool of a recorded call. Annotations are not recorded: those that promise nothing are assumed.
#[derive(Debug, Clone, Copy)]
pub struct RecordedElement<'a> {
    /// The server; `None` for the gateway itself.
    pub server: Option<&'a ServerName>,
    /// The public name.
    pub public: &'a str,
    /// The server's own name.
    pub native: &'a str,
}

/// Decision of the rules about a recorded call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedDecision {
    /// It is allowed.
    Allowed,
    /// It is denied.
    Denied {
        /// The rule that denies it; `None` if no rule allows it.
        rule: Option<Arc<str>>,
    },
    /// It depends on the arguments, which are not recorded.
    NeedsArguments,
}

impl Authorization {
    /// Decides about a recorded call of a tool. `arguments` are `None` if they are not recorded.
    pub fn decide_recorded(
        self: &Arc<Self>,
        context: &Context,
        tool: RecordedElement<'_>,
        arguments: Option<&Map<String, Value>>,
    ) -> RecordedDecision {
        let element = CatalogElement {
            kind: Kind::Tools,
            server: tool.server,
            public: tool.public,
            native: tool.native,
            tool: None,
            basis: ElementBasis::Itself,
        };
        let rights = self.rights_of(context);
        let listed = rights.decide_listing(&element);
        let decision = match (listed, arguments) {
            (AccessDecision::Depends, Some(arguments)) => {
                let raw = Value::Object(arguments.clone()).to_string();
                let facts = RequestFacts::new(&Method::ToolsCall, Some(raw.as_bytes()), context);
                rights.judge_call(&facts, &element).decision
            }
            (listed, _) => listed,
        };
        match decision {
            AccessDecision::Allowed { .. } => RecordedDecision::Allowed,
            AccessDecision::Denied { rule } => {
                RecordedDecision::Denied { rule: self.name_of(rule) }
            }
            AccessDecision::Depends => RecordedDecision::NeedsArguments,
        }
    }

    /// Returns true if a rule reads facts that only the token of a user has.
    pub fn reads_tokens(&self) -> bool {
        self.settings.iter().any(reads_token)
    }
}

fn reads_token(rule: &RuleConfig) -> bool {
    let reads = rule.when.as_ref().is_some_and(|when| {
        let (claims, principal) = (when.reads().of("claims"), when.reads().of("principal"));
        claims.is_some() || ["groups", "scopes", "actors"].iter().any(|name| principal.has(name))
    });
    rule.groups.is_some() || rule.scopes.is_some() || reads
}
