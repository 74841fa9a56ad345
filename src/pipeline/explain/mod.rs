//! Explanations of calls that are not made: every gate of a call, evaluated by the code that admits
//! real calls, and described with the setting that decides.
//!
//! [`Gateway::explain_call`] follows the steps of a request: its sender and profile, the rates of the
//! client, the route in the client's view, admission, and the server. Nothing is charged, asked or
//! sent. Unlike the answer to a client, an explanation names hidden elements: it is for operators.

mod caller;
mod explainer;
mod hidden;
mod limit_settings;
mod rule_reasons;

pub use explainer::{CallExplanation, ExplainedGate, ExplainedVerdict};
pub(crate) use hidden::hiding_setting;

use std::collections::BTreeSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use crate::call::{Call, Context, Failure, Params};
use crate::catalog::CatalogElement;
use crate::config::ConfigPlaces;
use crate::jsonrpc::WrittenObject;
use crate::mcp::Method;
use crate::policy::{AccessDecision, CallGate, DryRun, GateVerdict};
use crate::snapshot::Snapshot;

use super::client_view::ClientView;
use super::input::Requester;
use super::own_tools::{FoundOwnTool, find_own_tool, needed_tools};
use super::{Gateway, meta_tools, route};

use explainer::Explainer;

/// A call to explain.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallQuery {
    /// The client `NAME` of `[clients.NAME]`, a user as `ISSUER:SUBJECT`, or `anonymous`.
    pub client: String,
    /// The profile; by default the first one that the client may use.
    pub profile: Option<String>,
    /// The public name of the tool.
    pub tool: String,
    /// The arguments; `null` if they are not known. By default there are none.
    #[serde(default = "no_arguments")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub arguments: Option<WrittenObject>,
    /// The facts in the token of a user, if they are known.
    pub token: Option<TokenFacts>,
}

impl Default for CallQuery {
    fn default() -> Self {
        let (client, tool, arguments) = (String::new(), String::new(), no_arguments());
        Self { client, profile: None, tool, arguments, token: None }
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the type of the field")]
fn no_arguments() -> Option<WrittenObject> {
    Some(WrittenObject::default())
}

/// Facts in the token of a user.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenFacts {
    /// Its scopes.
    pub scopes: BTreeSet<String>,
    /// The groups of the user.
    pub groups: BTreeSet<String>,
    /// All claims.
    pub claims: Map<String, Value>,
}

impl Gateway {
    /// Evaluates a call against every gate without making it. `places` has the lines of the running
    /// configuration.
    pub async fn explain_call(
        self: &Arc<Self>,
        query: &CallQuery,
        places: &ConfigPlaces,
    ) -> CallExplanation {
        let snapshot = self.snapshots.load_full();
        // Refusals of a call that is not made do not belong into the log.
        let explained = self.explain_in(snapshot, query).with_subscriber(NoSubscriber::default());
        let mut explanation = explained.await;
        explanation.locate(places);
        explanation
    }

    async fn explain_in(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        query: &CallQuery,
    ) -> CallExplanation {
        let mut explainer = Explainer::new(&snapshot.config, query);
        let rules = snapshot.policy.authorization();
        explainer.reads_tokens = rules.is_some_and(|rules| rules.reads_tokens());
        let Some(context) = explainer.find_caller(&snapshot) else { return explainer.finish() };
        let run = snapshot.policy.try_request(&context);
        let run = match parse_call(query, context) {
            Ok(call) => {
                let key = self.view_key(&call.context);
                let client = ClientView::find(snapshot, key, &call.context);
                self.explain_tool(&client, call, run, &mut explainer).await
            }
            Err(failure) => {
                explainer.refuse(CallGate::Arguments, failure.to_string());
                run
            }
        };
        explainer.add_outcomes(run.into_outcomes());
        explainer.finish()
    }

    /// Explains the steps of a call once its sender is known.
    async fn explain_tool(
        self: &Arc<Self>,
        client: &ClientView,
        call: Box<Call>,
        mut run: DryRun,
        explainer: &mut Explainer<'_>,
    ) -> DryRun {
        let ClientView { snapshot, view, .. } = client;
        if let Some(meta) = meta_tools::named_meta_tool(&call)
            && meta_tools::is_offered(view, meta)
        {
            explainer.pass(CallGate::Name, "a meta-tool: explain the tool that it calls");
            return run;
        }
        if let Some(own) = find_own_tool(client, &call) {
            return explain_own_tool(client, &own, &call, run, explainer).await;
        }
        let asker = Requester::bind(&self.inputs, &call);
        let route = match route::find(client, &call, &asker) {
            Ok(route) => route,
            Err(failure) => {
                hidden::explain_missing_route(client, &call, &failure, explainer);
                return run;
            }
        };
        for gate in [CallGate::Name, CallGate::Definitions] {
            run.note(gate, GateVerdict::Passes);
        }
        let member = route.member;
        let target = route.into_target(&call.params);
        explainer.set_target(&target.server, target.native.as_ref());
        if let Some(authorization) = snapshot.policy.authorization() {
            explainer.rules = authorization.explain_call(&call, target.access());
            let listed = authorization.rights_of(&call.context).decide_target(target.access());
            explainer.rules_read_arguments = listed == AccessDecision::Depends;
        }
        explainer.describe_server(&member.server.view());
        snapshot.policy.try_call(call, target, run).await
    }
}

fn parse_call(query: &CallQuery, context: Context) -> Result<Box<Call>, Failure> {
    // Gates that depend on unknown arguments are reported as not known.
    let arguments = query.arguments.as_ref().map_or("{}", WrittenObject::get);
    let params = format!("{{\"name\":{},\"arguments\":{arguments}}}", json!(query.tool));
    let params = Params::parse(Some(params.into()))?;
    Ok(Box::new(Call { method: Method::ToolsCall, params, context, input: None }))
}

/// Explains a call of a tool of the gateway itself, which has no server.
async fn explain_own_tool(
    client: &ClientView,
    own: &FoundOwnTool,
    call: &Call,
    mut run: DryRun,
    explainer: &mut Explainer<'_>,
) -> DryRun {
    let policy = &client.snapshot.policy;
    run.note(CallGate::Name, GateVerdict::Passes);
    if let Some(authorization) = policy.authorization() {
        let name = own.tool.native.as_str();
        explainer.rules = Some(authorization.explain_own_tool(call, name));
        let rights = authorization.rights_of(&call.context);
        let listed = rights.decide_listing(&CatalogElement::own_tool(name));
        explainer.rules_read_arguments = listed == AccessDecision::Depends;
    }
    let needed = needed_tools(client, own.place);
    for gate in [CallGate::Rules, CallGate::Scopes, CallGate::Arguments] {
        run.note(gate, GateVerdict::Passes);
    }
    // Admission stops at the first refusal, and the gates after it are not evaluated.
    if let Err(failure) = policy.admit_own_tool(&own.tool, call, &needed).await {
        let gate = match &failure {
            Failure::ScopesNeeded(_) => CallGate::Scopes,
            Failure::InvalidArguments(_) | Failure::OverLimit { .. } => CallGate::Arguments,
            _ => CallGate::Rules,
        };
        if gate == CallGate::Rules && explainer.lacks_rule_arguments() {
            let reason = "the scopes are checked after the rules".to_owned();
            explainer.report(CallGate::Scopes, ExplainedVerdict::NotKnown, reason);
        }
        run.note(gate, GateVerdict::Refuses(failure));
    }
    run
}
