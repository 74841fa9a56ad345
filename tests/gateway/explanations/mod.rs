//! Explanations of calls that are not made: the gate that refuses, its setting, and the cure.

mod agreement;
#[path = "../../support/captured_log.rs"]
mod captured_log;

use serde_json::{Map, Value, json};
use trunkline::config::ConfigSource;
use trunkline::pipeline::{
    CallExplanation, CallQuery, ExplainedGate, ExplainedVerdict, TokenFacts,
};
use trunkline::policy::CallGate;

use captured_log::CapturedLog;

use crate::support::{Gateway, Step, Upstream, client_table, until};

/// Explains a call of a client at a profile. The arguments `null` are not known.
pub async fn explain_at(
    gateway: &Gateway,
    client: &str,
    profile: Option<&str>,
    tool: &str,
    arguments: &Value,
) -> CallExplanation {
    let query = CallQuery {
        client: client.to_owned(),
        profile: profile.map(str::to_owned),
        tool: tool.to_owned(),
        arguments: serde_json::from_str(&arguments.to_string()).ok(),
        token: None,
    };
    explain(gateway, &query).await
}

async fn explain(gateway: &Gateway, query: &CallQuery) -> CallExplanation {
    let path = gateway.folder().join("gateway.toml");
    let places = ConfigSource::open(&path).unwrap().places();
    gateway.running.gateway.explain_call(query, &places).await
}

/// Returns the explanation of a gate.
#[track_caller]
fn gate(explained: &CallExplanation, gate: CallGate) -> &ExplainedGate {
    let found = explained.gates.iter().find(|one| one.gate == gate);
    found.unwrap_or_else(|| panic!("{gate:?}: {explained:#?}"))
}

/// Returns the line of a setting as it is written in the configuration.
fn line_of(gateway: &Gateway, line: Option<u32>) -> String {
    let text = std::fs::read_to_string(gateway.folder().join("gateway.toml")).unwrap();
    let line = line.and_then(|line| text.lines().nth(line as usize - 1).map(str::to_owned));
    line.unwrap_or_default()
}

#[tokio::test]
async fn a_refusal_names_the_term_of_the_condition_its_line_and_the_cure() {
    let upstream = Upstream::modern().await;
    let rules = "[policy.rules.builders]\ngroups = [\"builders\"]\ntools = [\"s__echo\"]\n\
        when = \"'builders' in principal.groups && arguments.branch == 'main'\"\n\
        [policy.rules.never]\neffect = \"deny\"\ntools = [\"s__fail\"]\n\
        [policy.rules.fail]\ntools = [\"s__fail\"]\n";
    let gateway = Gateway::with("s", upstream.http())
        .toml(&client_table("ann", "a", "groups = [\"builders\"]"))
        .toml(&client_table("bob", "b", ""))
        .toml(rules)
        .start()
        .await;
    let explained = async |client, tool, arguments: Value| {
        let explained = explain_at(&gateway, client, None, tool, &arguments).await;
        let rules = gate(&explained, CallGate::Rules).clone();
        let line = line_of(&gateway, rules.line);
        (rules.reason, line, rules.cure.unwrap_or_default())
    };
    let (reason, line, cure) = explained("ann", "s__echo", json!({ "branch": "x" })).await;
    assert!(reason.contains("builders: \"arguments.branch == 'main'\" does not hold"), "{reason}");
    assert!(line.starts_with("when = "), "{line}");
    assert!(cure.contains("change the condition"), "{cure}");
    let (reason, ..) = explained("ann", "s__echo", json!({})).await;
    assert!(reason.contains("arguments.branch is missing"), "{reason}");
    let (reason, line, cure) = explained("bob", "s__echo", json!({ "branch": "main" })).await;
    assert!(reason.contains("builders: not for this call (`groups`)"), "{reason}");
    assert!(line.starts_with("groups = "), "{line}");
    assert!(cure.contains("policy.rules.builders.groups"), "{cure}");
    let (reason, line, _) = explained("ann", "s__fail", json!({})).await;
    assert!(reason.contains("the rule never denies it"), "{reason}");
    assert_eq!(line, "[policy.rules.never]");
    let (reason, ..) = explained("ann", "s__echo", json!({ "branch": "main" })).await;
    assert_eq!(reason, "the rule builders allows it");
    assert_eq!(upstream.calls().len(), 0, "nothing is sent");
}

#[tokio::test]
async fn a_tool_without_a_route_is_explained_by_profile_configuration_hold_or_name() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http() + "tools.deny = [\"fail\"]")
        .server("held", upstream.http() + "trusted = false\npins = \"hold\"")
        .gateway("state_dir = \"state\"")
        .toml(&client_table("ann", "a", ""))
        .toml("[profiles.p]\nservers = [\"s\"]\ntools = [\"s__echo\"]")
        .start()
        .await;
    let refused = async |profile, tool| {
        let explained = explain_at(&gateway, "ann", profile, tool, &json!({})).await;
        let found = gate(&explained, explained.refused_by.unwrap()).clone();
        (
            found.gate,
            found.reason,
            found.setting.unwrap_or_default(),
            found.cure.unwrap_or_default(),
        )
    };
    let (at, reason, setting, cure) = refused(Some("p"), "s__count").await;
    assert_eq!((at, setting.as_str()), (CallGate::Name, "profiles.p.tools"), "{reason}");
    assert!(cure.contains("\"s__count\""), "{cure}");
    let (at, _, setting, _) = refused(None, "s__fail").await;
    assert_eq!((at, setting.as_str()), (CallGate::Name, "servers.s.tools.deny"));
    let (at, reason, _, cure) = refused(None, "s__ecko").await;
    assert_eq!((at, cure.as_str()), (CallGate::Name, "list the tools of the client"), "{reason}");
    let (at, _, _, cure) = refused(None, "x__echo").await;
    assert_eq!((at, cure.as_str()), (CallGate::Name, "did you mean s__echo?"));
    let (at, reason, setting, cure) = refused(None, "held__echo").await;
    assert_eq!((at, setting.as_str()), (CallGate::Definitions, "servers.held.pins"), "{reason}");
    assert_eq!(cure, "trunkline pin approve held");
}

#[tokio::test]
async fn limits_are_explained_with_their_rest_and_are_not_used_up() {
    let upstream = Upstream::modern().await;
    let server = upstream.http() + "rate = \"3/h\"\nquota_each = \"5/hour\"\ntools.count.cost = 3";
    let gateway =
        Gateway::with("s", server).toml(&client_table("ann", "a", "rate = \"10/h\"")).start().await;
    for _ in 0..5 {
        let explained = explain_at(&gateway, "ann", None, "s__echo", &json!({})).await;
        assert_eq!(explained.refused_by, None, "{explained:#?}");
        let reason = |at| gate(&explained, at).reason.clone();
        assert_eq!(reason(CallGate::RequestRates), "client:ann: 10 left of 10/h");
        assert_eq!(reason(CallGate::Rates), "server:s: 3 left of 3/h");
        assert_eq!(reason(CallGate::Quotas), "quota:server:s: 5 left of 5/h");
    }
    assert!(!gateway.modern().key("a").call("s__echo", json!({})).await.is_error());
    let explained = explain_at(&gateway, "ann", None, "s__echo", &json!({})).await;
    assert_eq!(gate(&explained, CallGate::Rates).reason, "server:s: 2 left of 3/h");
    let refused = explain_at(&gateway, "ann", None, "s__count", &json!({})).await;
    assert_eq!(refused.refused_by, Some(CallGate::Rates));
    let rates = gate(&refused, CallGate::Rates);
    assert_eq!(rates.setting.as_deref(), Some("servers.s.rate"));
    assert_eq!(line_of(&gateway, rates.line), "rate = \"3/h\"");
}

#[tokio::test]
async fn an_explanation_writes_no_line_of_a_call() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http())
        .toml("[policy.rules.one]\nwhen = \"arguments.n == 1\"")
        .start()
        .await;
    let log = CapturedLog::start();
    for _ in 0..3 {
        let explained = explain_at(&gateway, "anonymous", None, "s__echo", &json!({})).await;
        assert_eq!(explained.refused_by, Some(CallGate::Rules), "{explained:#?}");
    }
    assert_eq!(log.text(), "");
}

#[tokio::test]
async fn limits_that_are_not_set_are_told_apart() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let explained = explain_at(&gateway, "anonymous", None, "s__echo", &json!({})).await;
    let reasons = explained.gates.iter().map(|gate| gate.reason.as_str());
    let reasons: Vec<_> = reasons.filter(|reason| reason.starts_with("no ")).collect();
    let expected = [
        "no rates of the client or the gateway are set",
        "no rates of the tool, the server or the profile are set",
    ];
    assert_eq!(reasons, expected);
}

#[tokio::test]
async fn a_cost_that_is_taken_in_two_steps_is_looked_at_as_a_whole() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http() + "tools.count.cost = 3")
        .toml(&client_table("ann", "a", "rate = \"3/h\""))
        .start()
        .await;
    let client = gateway.modern().key("a");
    assert!(!client.call("s__echo", json!({})).await.is_error());
    let explained = explain_at(&gateway, "ann", None, "s__count", &json!({})).await;
    assert_eq!(explained.refused_by, Some(CallGate::Rates), "two of three are left");
    assert_eq!(client.call("s__count", json!({})).await.status, 429);
}

#[tokio::test]
async fn a_full_queue_a_slot_to_wait_for_and_consent_are_told_apart() {
    let upstream = Upstream::modern().await;
    upstream.does("hold", |_| vec![Step::Hold, Step::text("held")]);
    let gateway = Gateway::with("s", upstream.http() + "in_flight = 1\nqueue = 1")
        .server("asks", upstream.http() + "confirm = true")
        .start()
        .await;
    let explained = async |tool| explain_at(&gateway, "anonymous", None, tool, &json!({})).await;
    let verdict = |explained: &CallExplanation, at| gate(explained, at).verdict;
    assert_eq!(verdict(&explained("s__echo").await, CallGate::InFlight), ExplainedVerdict::Passes);
    let client = gateway.modern();
    let held = client.call("s__hold", json!({}));
    let waiting = client.call("s__hold", json!({}));
    let check = async {
        upstream.heard("tools/call", 1).await;
        let queued = || {
            let snapshot = gateway.running.gateway.snapshots.load_full();
            let server = trunkline::call::ServerName::new("s").unwrap();
            snapshot.policy.server(&server).unwrap().gate().queued() == 1
        };
        until(queued).await;
        let full = explained("s__echo").await;
        assert_eq!(full.refused_by, Some(CallGate::InFlight), "{full:#?}");
        assert_eq!(gate(&full, CallGate::InFlight).setting.as_deref(), Some("servers.s.in_flight"));
        upstream.release(2);
    };
    let (..) = tokio::join!(held, waiting, check);
    let asks = explained("asks__echo").await;
    assert_eq!(
        (asks.refused_by, verdict(&asks, CallGate::Consent)),
        (None, ExplainedVerdict::AsksUser)
    );
}

#[tokio::test]
async fn a_caller_that_cannot_enter_is_explained_without_its_calls() {
    let upstream = Upstream::modern().await;
    let expired = "keys = [{ hash = \"".to_owned()
        + &"0".repeat(64)
        + "\", expires = 2020-01-01 }]\n[profiles.p]\n";
    let gateway = Gateway::with("s", upstream.http())
        .toml(&client_table("ann", "a", "profiles = [\"default\"]"))
        .toml(&format!("[clients.old]\n{expired}"))
        .start()
        .await;
    let explained =
        async |client, profile| explain_at(&gateway, client, profile, "s__echo", &json!({})).await;
    let stranger = explained("zoe", None).await;
    assert_eq!((stranger.refused_by, stranger.gates.len()), (Some(CallGate::Client), 1));
    assert_eq!(explained("anonymous", None).await.refused_by, Some(CallGate::Client));
    let foreign = explained("corp:ann", None).await;
    assert_eq!((foreign.refused_by, foreign.gates.len()), (Some(CallGate::Client), 1));
    let old = explained("old", None).await;
    assert_eq!(old.refused_by, Some(CallGate::Client));
    assert!(gate(&old, CallGate::Client).cure.as_deref().unwrap().contains("trunkline key"));
    let other = explained("ann", Some("p")).await;
    assert_eq!(other.refused_by, Some(CallGate::Profile));
    let setting = gate(&other, CallGate::Profile).setting.as_deref();
    assert_eq!(setting, Some("clients.ann.profiles"));
    let missing = explained("ann", Some("q")).await;
    assert_eq!((missing.refused_by, missing.gates.len()), (Some(CallGate::Profile), 2));
}

#[tokio::test]
async fn the_rights_of_a_user_are_not_known_without_the_facts_of_its_token() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http() + "scopes = [\"files\"]")
        .gateway("public_url = \"http://127.0.0.1:8080\"")
        .toml("[issuers.corp]\nissuer = \"https://login.example.com\"\njwks_file = \"jwks.json\"")
        .toml("[policy.rules.team]\nwhen = \"claims.team == 'web'\"")
        .in_folder(folder_with_keys())
        .start()
        .await;
    let ask = async |token| {
        let query = CallQuery {
            client: "corp:ann".into(),
            tool: "s__echo".into(),
            token,
            ..CallQuery::default()
        };
        explain(&gateway, &query).await
    };
    let unknown = ask(None).await;
    assert_eq!(gate(&unknown, CallGate::Rules).verdict, ExplainedVerdict::NotKnown);
    assert_eq!(unknown.refused_by, None, "{unknown:#?}");
    let claims = Map::from_iter([("team".to_owned(), json!("web"))]);
    let facts = TokenFacts { claims, ..TokenFacts::default() };
    let known = ask(Some(facts.clone())).await;
    assert_eq!(gate(&known, CallGate::Rules).verdict, ExplainedVerdict::Passes);
    assert_eq!(known.refused_by, Some(CallGate::Scopes));
    let scopes = ["files".to_owned()].into();
    let allowed = ask(Some(TokenFacts { scopes, ..facts })).await;
    assert_eq!(allowed.refused_by, None, "{allowed:#?}");
}

#[tokio::test]
async fn the_scopes_of_a_user_are_not_known_without_the_facts_of_its_token() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http() + "scopes = [\"files\"]")
        .gateway("public_url = \"http://127.0.0.1:8080\"")
        .toml("[issuers.corp]\nissuer = \"https://login.example.com\"\njwks_file = \"jwks.json\"")
        .in_folder(folder_with_keys())
        .start()
        .await;
    let unknown = explain_at(&gateway, "corp:ann", None, "s__echo", &json!({})).await;
    assert_eq!(gate(&unknown, CallGate::Scopes).verdict, ExplainedVerdict::NotKnown);
    assert_eq!(unknown.refused_by, None, "{unknown:#?}");
}

#[tokio::test]
async fn gates_that_read_unknown_arguments_are_not_known() {
    let upstream = Upstream::modern().await;
    let typed = json!({
        "name": "typed",
        "inputSchema": {
            "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
        },
    });
    upstream.tool(&typed, |_| vec![Step::text("typed")]);
    let rules = "[policy.rules.main]\ntools = [\"s__echo\", \"own\"]\nwhen = \"arguments.branch == 'main'\"\n\
        [policy.rules.typed]\ntools = [\"s__typed\"]\n\
        [policy.rules.bob]\ntools = [\"s__count\"]\n\
        when = \"arguments.branch == 'main' && principal.name == 'bob'\"";
    let gateway = Gateway::with("s", upstream.http())
        .toml(&client_table("ann", "a", ""))
        .toml("[tools.own]\ntext = \"own\"")
        .toml(rules)
        .start()
        .await;
    let explained = async |tool| explain_at(&gateway, "ann", None, tool, &Value::Null).await;
    for tool in ["s__echo", "own"] {
        let asks = explained(tool).await;
        let rules = gate(&asks, CallGate::Rules);
        assert_eq!(
            (rules.verdict, asks.refused_by),
            (ExplainedVerdict::NotKnown, None),
            "{asks:#?}"
        );
        assert_eq!(rules.cure.as_deref(), Some("give the arguments"));
    }
    // The rules allow it with any arguments; the schema requires one.
    let typed = explained("s__typed").await;
    let verdict = |at| gate(&typed, at).verdict;
    assert_eq!(verdict(CallGate::Rules), ExplainedVerdict::Passes, "{typed:#?}");
    assert_eq!(verdict(CallGate::Arguments), ExplainedVerdict::NotKnown);
    assert_eq!(typed.refused_by, None);
    // The rules deny it with any arguments, and none of them is blamed.
    let denied = explained("s__count").await;
    assert_eq!(denied.refused_by, Some(CallGate::Rules), "{denied:#?}");
    let reason = &gate(&denied, CallGate::Rules).reason;
    assert!(!reason.contains("arguments."), "{reason}");
}

fn folder_with_keys() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("jwks.json"), "{\"keys\":[]}").unwrap();
    folder
}
