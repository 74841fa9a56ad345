//! Explanations agree with real calls, for generated policies and calls.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fastrand::Rng;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};
use trunkline::pipeline::{CallExplanation, ExplainedVerdict};
use trunkline::policy::CallGate;

use super::explain_at;
use crate::support::gateway::Builder;
use crate::support::{Gateway, Said, Step, Upstream, client_table};

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
    let seeds = stream::iter(0..POLICIES).map(|seed| compare_policy(&upstream, seed));
    let refusals: Vec<_> = seeds.buffer_unordered(4).collect().await;
    let mut counts = BTreeMap::new();
    for refusal in refusals.into_iter().flatten() {
        *counts.entry(refusal).or_insert(0) += 1;
    }
    // The generator reaches each gate, and calls that pass.
    for gate in [
        None,
        Some(CallGate::Profile),
        Some(CallGate::RequestRates),
        Some(CallGate::Name),
        Some(CallGate::Rules),
        Some(CallGate::Scopes),
        Some(CallGate::Rates),
        Some(CallGate::Arguments),
        Some(CallGate::Quotas),
    ] {
        assert!(counts.get(&gate).is_some_and(|count| *count > 2), "{gate:?}: {counts:?}");
    }
}

/// Makes calls under a generated policy, each explained before. Returns the gates that refused.
async fn compare_policy(upstream: &Upstream, seed: u64) -> Vec<Option<CallGate>> {
    let mut rng = Rng::with_seed(seed);
    let builder = make_policy(&mut rng, &upstream.http());
    let text = builder.text();
    let gateway = builder.start().await;
    let mut refusals = Vec::new();
    for _ in 0..CALLS_PER_POLICY {
        let call = MadeCall::generate(&mut rng);
        let explained =
            explain_at(&gateway, call.client, Some(call.profile), call.tool, &call.arguments);
        let explained = explained.await;
        let endpoint = if call.profile == "default" { "/mcp" } else { "/mcp/p" };
        let client = gateway.modern().key(call.client).at(endpoint);
        let said = client.call(call.tool, call.arguments.clone()).await;
        let context = || format!("seed {seed}: {call:?}\n{said:?}\n{explained:#?}\n{text}");
        assert!(agrees(&explained, &said), "{}", context());
        assert!(is_located(&explained), "{}", context());
        refusals.push(explained.refused_by);
    }
    refusals
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
        CallGate::Name => is_unknown(said),
        CallGate::Rules => is_unknown(said) || is_told(said, "not allowed with these arguments"),
        CallGate::Arguments => is_told(said, "do not fit the tool's input schema"),
        CallGate::RequestRates | CallGate::Rates | CallGate::Quotas => {
            let limit =
                said.messages.last().and_then(|answer| answer["error"]["data"]["limit"].as_str());
            said.status == 429 && limit.is_some_and(|limit| reason.contains(limit))
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
}

impl MadeCall {
    fn generate(rng: &mut Rng) -> Self {
        let arguments = [json!({}), json!({ "n": 1 }), json!({ "n": 5 }), json!({ "n": "x" })];
        Self {
            client: pick(rng, &["ann", "ann", "ann", "bob"]),
            profile: pick(rng, &["default", "default", "default", "p"]),
            tool: pick(
                rng,
                &["s__echo", "s__echo", "s__count", "s__typed", "s__typed", "s__never", "own"],
            ),
            arguments: pick(rng, &arguments),
        }
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
