//! Rules tried with made-up calls: `trunkline policy test`.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::call::{Client, Context, Endpoint, Grants, Principal, ProfileName, ServerName};
use crate::catalog::{CatalogElement, ElementBasis, HeaderRules, ItemError, Kind, Tool};
use crate::mcp::{Method, ProtocolVersion};

use crate::policy::authorization::Authorization;
use crate::policy::authorization::decision::{AccessDecision, NamedRuleFault};
use crate::policy::authorization::values::facts::RequestFacts;

/// A made-up call.
#[derive(Debug, Clone, Default)]
pub struct TrialCall {
    /// The name of the caller; `None` for one without credentials.
    pub principal: Option<String>,
    /// Its groups.
    pub groups: Vec<String>,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// The claims of its token.
    pub claims: Map<String, Value>,
    /// The profile; `None` for `/mcp`.
    pub profile: Option<ProfileName>,
    /// The name of the client's software.
    pub client: Option<String>,
    /// The requested element.
    pub element: TrialElement,
    /// The arguments.
    pub arguments: Map<String, Value>,
}

/// The requested element of a made-up call.
#[derive(Debug, Clone)]
pub struct TrialElement {
    /// Its kind.
    pub kind: Kind,
    /// Its server; `None` for a tool of the gateway itself.
    pub server: Option<ServerName>,
    /// Its public name or URI.
    pub public: String,
    /// Its server's own name or URI.
    pub native: String,
    /// The annotations of a tool.
    pub annotations: Map<String, Value>,
}

/// Decision of the rules about a made-up call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialOutcome {
    /// It is made.
    Allow,
    /// The element is visible, but the call is refused for its arguments.
    Deny,
    /// The call fails as if the element did not exist.
    Hidden,
}

/// The decision about a made-up call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialResult {
    /// The outcome.
    pub outcome: TrialOutcome,
    /// The rule that decides, if one does.
    pub rule: Option<Arc<str>>,
    /// The condition that could not be evaluated, if that is the reason of the refusal.
    pub fault: Option<NamedRuleFault>,
}

impl TrialOutcome {
    /// Returns its label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Hidden => "hidden",
        }
    }
}

impl Default for TrialElement {
    fn default() -> Self {
        let (public, native, annotations) = Default::default();
        Self { kind: Kind::Tools, server: None, public, native, annotations }
    }
}

impl Authorization {
    /// Decides about a made-up call.
    ///
    /// # Errors
    /// The name or the annotations are not valid for a tool.
    pub fn try_call(self: &Arc<Self>, call: &TrialCall) -> Result<TrialResult, ItemError> {
        let context = call.context();
        let asked = &call.element;
        let tool = match asked.kind {
            Kind::Tools => Some(asked.as_tool()?),
            _ => None,
        };
        let element = CatalogElement {
            kind: asked.kind,
            server: asked.server.as_ref(),
            public: &asked.public,
            native: &asked.native,
            tool: tool.as_ref(),
            basis: ElementBasis::Itself,
        };
        let rights = self.rights_of(&context);
        let listed = rights.decide_listing(&element);
        let arguments = Value::Object(call.arguments.clone()).to_string();
        let (method, arguments) = (asked.method(), Some(arguments.as_bytes()));
        let facts = RequestFacts::new(&method, arguments, &context);
        let judged = rights.judge_call(&facts, &element);
        let (outcome, rule) = match (listed, judged.decision) {
            (AccessDecision::Denied { rule }, _) => (TrialOutcome::Hidden, rule),
            (_, AccessDecision::Allowed { rule }) => (TrialOutcome::Allow, rule),
            (_, AccessDecision::Denied { rule }) => (TrialOutcome::Deny, rule),
            (_, AccessDecision::Depends) => (TrialOutcome::Deny, None),
        };
        let fault = judged.fault.and_then(|fault| self.name_fault(fault));
        Ok(TrialResult { outcome, rule: self.name_of(rule), fault })
    }
}

impl TrialCall {
    fn context(&self) -> Context {
        let shared = |names: &[String]| names.iter().map(|name| name.as_str().into()).collect();
        let grants = Grants {
            groups: shared(&self.groups),
            scopes: shared(&self.scopes),
            claims: self.claims.clone(),
            token: None,
        };
        let info = self.client.as_ref().map(|name| json!({ "name": name, "version": "" }));
        let info = info.map(|info| Bytes::from(info.to_string()));
        let version = ProtocolVersion::LATEST_MODERN;
        let principal = match &self.principal {
            // As in logs: only users have a colon in their names.
            Some(name) if name.contains(':') => Principal::User(name.as_str().into()),
            Some(name) => Principal::Client(name.as_str().into()),
            None => Principal::Anonymous,
        };
        let endpoint = Endpoint { profile: self.profile.clone(), narrowing: None };
        let client = Arc::new(Client::new(version, info, Bytes::from_static(b"{}")));
        Context { client, ..Context::assumed(principal, Some(Arc::new(grants)), endpoint) }
    }
}

impl TrialElement {
    fn as_tool(&self) -> Result<Tool, ItemError> {
        let listed = json!({
            "name": self.native,
            "inputSchema": { "type": "object" },
            "annotations": self.annotations,
        });
        Tool::parse(listed.to_string().as_bytes(), HeaderRules::Ignore)
    }

    fn method(&self) -> Method {
        match self.kind {
            Kind::Tools => Method::ToolsCall,
            Kind::Prompts => Method::PromptsGet,
            Kind::Resources | Kind::Templates | Kind::Skills => Method::ResourcesRead,
        }
    }
}
