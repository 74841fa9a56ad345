//! Explanations agree with real calls, for generated policies and calls.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fastrand::Rng;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};
use trunkline::pipeline::{CallExplanation, CallQuery, ExplainedVerdict, TokenFacts};
use trunkline::policy::CallGate;

use super::explain;
use crate::support::client::Kind;
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Issuer, Said, Step, Upstream, client_table};

/// Number of generated policies, each with its own seed.
const POLICIES: u64 = 200;
/// Number of calls under each policy: later ones meet limits that earlier ones have used up.
const CALLS_PER_POLICY: usize = 5;

#[tokio::test]
async fn explanations_agree_with_the_real_calls_of_two_hundred_generated_policies() {
    let upstream = Upstream::modern().await;
    let typed = json!({
        "name": "typed",
        "inputSchema": { "type": "object", "properties": { "n": { "type": "integer" } } },
    });
    upstream.tool(&typed, |_| vec![Step::text("typed")]);
    let issuer = Issuer::start().await;
    let seeds = stream::iter(0..POLICIES).map(|seed| compare_policy(&upstream, &issuer, seed));
    let compared: Vec<_> = seeds.buffer_unordered(4).collect().await;
    let mut counts = BTreeMap::new();
    let (mut of_sessions, mut of_users) = (0, 0);
    for compared in compared.into_iter().flatten() {
        *counts.entry(compared.refused_by).or_insert(0) += 1;
        of_sessions += usize::from(compared.has_session);
        of_users += usize::from(compared.is_of_user);
    }
    // The generator reaches each gate, and calls that pass.
    for gate in [
        None,
        Some(CallGate::Profile),
        Some(CallGate::RequestRates),
        Some(CallGate::Name),
        Some(CallGate::Definitions),
        Some(CallGate::Rules),
        Some(CallGate::Scopes),
        Some(CallGate::Rates),
        Some(CallGate::Arguments),
        Some(CallGate::Quotas),
    ] {
        assert!(counts.get(&gate).is_some_and(|count| *count > 2), "{gate:?}: {counts:?}");
    }
    assert!(of_sessions > 100 && of_users > 50, "{of_sessions} {of_users}");
}

/// A call that was explained and made.
struct ComparedCall {
    refused_by: Option<CallGate>,
    /// True for a call in a Legacy session.
    has_session: bool,
    /// True for a call of a user with a token.
    is_of_user: bool,
}

/// Makes calls under a generated policy, each explained before.
async fn compare_policy(upstream: &Upstream, issuer: &Issuer, seed: u64) -> Vec<ComparedCall> {
    let mut rng = Rng::with_seed(seed);
    let user = (rng.u32(..100) < 40).then(|| make_user(&mut rng));
    let holds = rng.u32(..100) < 25;
    let mut builder = make_policy(&mut rng, &upstream.http());
    if user.is_some() {
        let mut lines = "groups_claim = \"groups\"\n".to_owned();
        maybe(&mut rng, 30, &mut lines, "quota_each = \"2/day\"");
        builder = builder.toml(&issuer.table("corp", &lines));
    }
    if holds {
        let held = upstream.http() + "trusted = false\npins = \"hold\"";
        builder = builder.gateway("state_dir = \"state\"").server("held", held);
    }
    let text = builder.text();
    let gateway = builder.start().await;
    let mut compared = Vec::new();
    for _ in 0..CALLS_PER_POLICY {
        let call = MadeCall::generate(&mut rng, user.is_some(), holds);
        let facts = user.as_ref().filter(|_| call.is_of_user());
        let (client, has_session) = open_client(&gateway, issuer, &call, facts).await;
        let query = CallQuery {
            client: call.client.to_owned(),
            profile: Some(call.profile.to_owned()),
            tool: call.tool.to_owned(),
            arguments: serde_json::from_str(&call.arguments.to_string()).ok(),
            token: facts.cloned(),
        };
        let explained = explain(&gateway, &query).await;
        let said = client.call(call.tool, call.arguments.clone()).await;
        let context = || format!("seed {seed}: {call:?}\n{said:?}\n{explained:#?}\n{text}");
        assert!(agrees(&explained, &said), "{}", context());
        assert!(is_located(&explained), "{}", context());
        let (refused_by, is_of_user) = (explained.refused_by, call.is_of_user());
        compared.push(ComparedCall { refused_by, has_session, is_of_user });
    }
    // Two hundred gateways at once would mostly look after themselves.
    gateway.stop().await;
    compared
}

/// Returns the sender of a call, and true if it has a Legacy session. A client that gets none sends
/// the call as a Modern one.
async fn open_client(
    gateway: &Gateway,
    issuer: &Issuer,
    call: &MadeCall,
    user: Option<&TokenFacts>,
) -> (Client, bool) {
    const VERSION: &str = "2025-11-25";
    let address = gateway.running.address;
    let endpoint = if call.profile == "default" { "/mcp" } else { "/mcp/p" };
    let key = match user {
        Some(facts) => {
            let scopes: Vec<_> = facts.scopes.iter().map(String::as_str).collect();
            let claims =
                json!({ "sub": "carl", "groups": facts.groups, "scope": scopes.join(" ") });
            issuer.token(&format!("http://{address}{endpoint}"), claims)
        }
        None => call.client.to_owned(),
    };
    let modern = gateway.modern().key(&key).at(endpoint);
    if !call.is_legacy {
        return (modern, false);
    }
    let legacy = Client::sessionless(address, VERSION).key(&key).at(endpoint);
    let session = legacy.initialize(VERSION).await.header("mcp-session-id");
    match session {
        Some(session) => {
            let kind = Kind::Legacy { session: Some(session), version: VERSION.into() };
            (legacy.becomes(kind), true)
        }
        None => (modern, false),
    }
}

fn make_user(rng: &mut Rng) -> TokenFacts {
    let mut draw = |name: &str| (rng.u32(..100) < 60).then(|| name.to_owned());
    let groups = draw("builders").into_iter().collect();
    let scopes = [draw("files"), draw("mail")].into_iter().flatten().collect();
    TokenFacts { groups, scopes, ..TokenFacts::default() }
}

/// Returns true if the first refusal of an explanation is the reason of a real answer.
fn agrees(explained: &CallExplanation, said: &Said) -> bool {
    let Some(gate) = explained.refused_by else { return is_made(said) };
    let reason = &explained.gates.iter().find(|one| one.gate == gate).unwrap().reason;
    match gate {
        CallGate::Profile => {
            said.status == 404 || (said.status == 403 && reason.contains("scopes"))
        }
        CallGate::Scopes => said.status == 403,
        CallGate::Name | CallGate::Definitions => is_unknown(said),
        CallGate::Rules => is_unknown(said) || is_told(said, "not allowed with these arguments"),
        CallGate::Arguments => is_told(said, "do not fit the tool's input schema"),
        CallGate::RequestRates | CallGate::Rates | CallGate::Quotas => {
            // The status is 429, and 200 in a Legacy session.
            let error = said.messages.last().map(|answer| &answer["error"]);
            let limit = error.and_then(|error| error["data"]["limit"].as_str());
            limit.is_some_and(|limit| reason.contains(limit))
        }
        _ => false,
    }
}

fn is_made(said: &Said) -> bool {
    let answer = said.messages.last();
    said.status == 200
        && answer.is_some_and(|answer| {
            answer["error"].is_null()
                && (answer["result"]["isError"] != true || is_told(said, "it failed"))
        })
}

fn is_unknown(said: &Said) -> bool {
    let answer = said.messages.last();
    answer.is_some_and(|answer| answer["error"]["code"] == -32602)
        && said.body.contains("unknown tool")
}

fn is_told(said: &Said, words: &str) -> bool {
    said.body.contains(words)
}

/// Returns true if each refusal names the line that causes it.
fn is_located(explained: &CallExplanation) -> bool {
    let mut refused = explained.gates.iter();
    refused.all(|gate| {
        let is_unknown = gate.gate == CallGate::Name && gate.reason.contains("no tool");
        gate.verdict != ExplainedVerdict::Refuses || gate.line.is_some() || is_unknown
    })
}

#[derive(Debug)]
struct MadeCall {
    client: &'static str,
    profile: &'static str,
    tool: &'static str,
    arguments: Value,
    /// True if it is sent in a Legacy session.
    is_legacy: bool,
}

impl MadeCall {
    fn generate(rng: &mut Rng, has_user: bool, has_held: bool) -> Self {
        let arguments = [json!({}), json!({ "n": 1 }), json!({ "n": 5 }), json!({ "n": "x" })];
        let clients: &[_] = if has_user {
            &["ann", "bob", "corp:carl", "corp:carl"]
        } else {
            &["ann", "ann", "ann", "bob"]
        };
        let held = if has_held { "held__echo" } else { "s__never" };
        Self {
            client: pick(rng, clients),
            profile: pick(rng, &["default", "default", "default", "p"]),
            tool: pick(
                rng,
                &["s__echo", "s__echo", "s__count", "s__typed", "s__typed", held, "own"],
            ),
            arguments: pick(rng, &arguments),
            is_legacy: rng.u32(..100) < 40,
        }
    }

    fn is_of_user(&self) -> bool {
        self.client.contains(':')
    }
}

fn pick<T: Clone>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())].clone()
}

/// Adds a line with this probability in percent.
fn maybe(rng: &mut Rng, percent: u32, lines: &mut String, line: &str) {
    if rng.u32(..100) < percent {
        let _ = writeln!(lines, "{line}");
    }
}

fn make_policy(rng: &mut Rng, server: &str) -> Builder {
    let mut lines = server.to_owned();
    maybe(rng, 15, &mut lines, "rate = \"3/h\"");
    maybe(rng, 10, &mut lines, "rate_each = \"2/h\"");
    maybe(rng, 30, &mut lines, "quota_each = \"2/day\"");
    maybe(rng, 10, &mut lines, "scopes = [\"files\"]");
    maybe(rng, 20, &mut lines, "arguments = \"coerce\"");
    maybe(rng, 10, &mut lines, "tools.deny = [\"count\"]");
    maybe(rng, 20, &mut lines, "tools.count.cost = 2");
    maybe(rng, 10, &mut lines, "tools.echo.scopes = [\"mail\"]");
    maybe(rng, 10, &mut lines, "tools.typed.rate = \"1/h\"");
    let mut builder = Gateway::with("s", lines);
    if rng.u32(..100) < 15 {
        builder = builder.gateway("rate = \"3/h\"");
    }
    for name in ["ann", "bob"] {
        let mut client = String::new();
        maybe(rng, 60, &mut client, "groups = [\"builders\"]");
        maybe(rng, 60, &mut client, "scopes = [\"files\", \"mail\"]");
        maybe(rng, 15, &mut client, "rate = \"2/h\"");
        maybe(rng, 30, &mut client, "quota = \"2/day\"");
        let profiles = pick(rng, &["", "", "", "profiles = [\"default\"]", "profiles = [\"p\"]"]);
        maybe(rng, 100, &mut client, profiles);
        builder = builder.toml(&client_table(name, name, &client));
    }
    let mut profile = "[profiles.p]\n".to_owned();
    maybe(rng, 40, &mut profile, "tools = [\"s__echo\", \"own\"]");
    maybe(rng, 20, &mut profile, "scopes = [\"mail\"]");
    maybe(rng, 20, &mut profile, "rate = \"2/h\"");
    builder = builder.toml(&profile).toml("[tools.own]\ntext = \"own\"");
    let rules = if rng.bool() { 0 } else { rng.usize(1..5) };
    (0..rules).fold(builder, |builder, number| builder.toml(&make_rule(rng, number)))
}

fn make_rule(rng: &mut Rng, number: usize) -> String {
    let mut rule = format!("[policy.rules.r{number}]\n");
    // The first rule allows: otherwise most policies would allow nothing.
    if number > 0 {
        maybe(rng, 40, &mut rule, "effect = \"deny\"");
    }
    maybe(rng, 20, &mut rule, "principals = [\"a*\"]");
    maybe(rng, 20, &mut rule, "groups = [\"builders\"]");
    maybe(rng, 10, &mut rule, "scopes = [\"files\"]");
    maybe(rng, 10, &mut rule, "profiles = [\"default\"]");
    maybe(rng, 10, &mut rule, "servers = [\"s\"]");
    let tools = pick(rng, &["", "", "tools = [\"s__*\"]", "tools = [\"*__typed\", \"own\"]"]);
    maybe(rng, 100, &mut rule, tools);
    let when = pick(
        rng,
        &[
            "",
            "",
            "when = \"has(arguments.n) && arguments.n == 1\"",
            "when = \"arguments.n != 5\"",
            "when = \"'builders' in principal.groups && tool.native != 'count'\"",
            "when = \"request.profile == 'default' && tool.name.startsWith('s__')\"",
        ],
    );
    maybe(rng, 100, &mut rule, when);
    rule
}
