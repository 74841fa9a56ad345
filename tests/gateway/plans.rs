//! Plans: the consequences of a configuration before it is applied, and a reload of exactly one plan.

use std::fmt::Write as _;

use futures_util::StreamExt as _;
use futures_util::stream;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use trunkline::admin::{ConfigPlan, PlanError};
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::gateway::Builder;
use crate::support::{Gateway, Upstream, client_table, json_lines, until};

/// A record of a call in an audit log.
fn record(days_ago: i64, principal: &str, tool: &str, arguments: &str) -> String {
    let time = Timestamp::now() - SignedDuration::from_hours(24 * days_ago);
    format!(
        "{{\"time\":\"{time}\",\"event\":\"call\",\"principal\":\"{principal}\",\
         \"profile\":\"default\",\"method\":\"tools/call\",\"tool\":\"s__{tool}\",\
         \"native_tool\":\"{tool}\",\"server\":\"s\"{arguments}}}\n"
    )
}

fn builder(upstream: &Upstream, server: &str, more: &str) -> Builder {
    Gateway::with("s", upstream.http() + server)
        .toml(&client_table("ann", "a", ""))
        .toml("[audit]\nfile = \"audit.jsonl\"")
        .toml(more)
}

/// Plans another configuration in the folder of a gateway.
async fn plan(gateway: &Gateway, builder: &Builder) -> ConfigPlan {
    std::fs::write(gateway.folder().join("gateway.toml"), builder.text()).unwrap();
    gateway.reloader.plan(30).await
}

#[tokio::test]
async fn a_plan_has_the_consequences_for_servers_clients_protections_and_recorded_calls() {
    let upstream = Upstream::modern().await;
    let folder = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for line in [
        record(1, "ann", "echo", ""),
        record(2, "ann", "count", ",\"arguments\":{\"n\":1}"),
        record(2, "ann", "count", ",\"arguments\":{\"n\":7}"),
        record(3, "ann", "count", ""),
        record(4, "ann", "fail", ""),
        record(5, "ann", "fail", ""),
        // Too old.
        record(40, "ann", "fail", ""),
    ] {
        let _ = write!(log, "{line}");
    }
    log.push_str("not a record\n");
    std::fs::write(folder.path().join("audit.jsonl.1"), log).unwrap();
    let rules =
        "[policy.rules.all]\n[policy.rules.never]\neffect = \"deny\"\ntools = [\"s__hold\"]";
    let gateway = builder(&upstream, "", rules).server("old", upstream.http());
    let gateway = gateway.in_folder(folder).start().await;

    let rules = "[policy.rules.all]\n\
        [policy.rules.seven]\neffect = \"deny\"\ntools = [\"s__count\"]\nwhen = \"arguments.n == 7\"";
    let server = "tools.deny = [\"fail\"]\ntools.echo.name = \"mirror\"";
    let after = builder(&upstream, server, rules).server("new", upstream.http());
    let planned = plan(&gateway, &after).await;
    assert_eq!((&planned.faults[..], planned.is_unchanged), (&[][..], false));
    let consequences = &planned.consequences;
    assert_eq!(consequences.added, ["new"]);
    let removed: Vec<_> = consequences.removed.iter().map(|server| server.name.as_str()).collect();
    assert_eq!((removed, consequences.restarted.len()), (vec!["old"], 0));
    assert!(
        consequences.weakened.iter().any(|loss| loss.contains("policy.rules.never")),
        "{consequences:?}"
    );
    let [ann] = &consequences.clients[..] else { panic!("{consequences:?}") };
    assert_eq!((ann.client.as_str(), ann.profile.as_str()), ("ann", "default"));
    assert_eq!(ann.gained, ["s__hold"]);
    assert!(
        ann.lost.contains(&"s__fail".to_owned()) && ann.lost.contains(&"old__echo".to_owned()),
        "{ann:?}"
    );
    assert_eq!(json!(ann.renamed), json!([{ "before": "s__echo", "after": "mirror" }]));
    let [tokens] = &consequences.profiles[..] else { panic!("{consequences:?}") };
    assert!(tokens.before > tokens.after, "{tokens:?}");

    let calls = planned.calls.as_ref().unwrap();
    assert_eq!((calls.unchanged, calls.without_arguments, calls.without_token), (2, 1, 0));
    let changed = json!([
        { "caller": "ann", "tool": "s__count", "is_allowed": false, "rule": "seven", "calls": 1 },
        { "caller": "ann", "tool": "s__fail", "is_allowed": false, "rule": "servers.s.tools", "calls": 2 },
    ]);
    assert_eq!(json!(calls.changed), changed);
    assert_eq!((calls.unreadable_lines, &calls.unreadable_files[..]), (1, &[][..]));
    // A plan changes nothing.
    assert!(
        !gateway.modern().key("a").call("s__fail", json!({})).await.answer()["result"].is_null()
    );
}

#[tokio::test]
async fn a_client_loses_the_tools_of_a_profile_that_it_may_not_use_and_gains_none_of_a_new_one() {
    let upstream = Upstream::modern().await;
    let own = "[profiles.p]\ntools = [\"s__echo\"]\n";
    let gateway = builder(&upstream, "", own).start().await;
    let after = Gateway::with("s", upstream.http())
        .toml(&client_table("ann", "a", "profiles = [\"p\"]"))
        .toml("[audit]\nfile = \"audit.jsonl\"")
        .toml(&format!("{own}[profiles.q]\n"));
    let consequences = plan(&gateway, &after).await.consequences;
    let [default] = &consequences.clients[..] else { panic!("{consequences:?}") };
    assert_eq!((default.client.as_str(), default.profile.as_str()), ("ann", "default"));
    assert_eq!((default.gained.len(), default.lost.len()), (0, 4), "{default:?}");
}

#[tokio::test]
async fn a_reload_with_the_digest_of_a_plan_applies_this_plan_and_nothing_else() {
    let upstream = Upstream::modern().await;
    let gateway = builder(&upstream, "", "").start().await;
    let reload_if = async |digest: &str| gateway.reloader.reload_if(digest).await;
    let unknown = |digest: &str| Err(PlanError::Unknown { digest: digest.to_owned() });
    assert_eq!(reload_if("0000").await, unknown("0000"));

    let hidden = builder(&upstream, "tools.deny = [\"fail\"]", "");
    let first = plan(&gateway, &hidden).await.digest.unwrap();
    // The file changes after the plan was shown.
    let other = builder(&upstream, "tools.deny = [\"echo\"]", "");
    std::fs::write(gateway.folder().join("gateway.toml"), other.text()).unwrap();
    assert_eq!(reload_if(&first).await, Err(PlanError::Outdated));
    assert!(!gateway.modern().key("a").call("s__echo", json!({})).await.is_error());

    // The running configuration changes after the plan was shown.
    let second = plan(&gateway, &hidden).await.digest.unwrap();
    assert_eq!(
        gateway.reload(builder(&upstream, "rate = \"9/s\"", "")).await,
        ReloadOutcome::Applied
    );
    std::fs::write(gateway.folder().join("gateway.toml"), hidden.text()).unwrap();
    assert_eq!(reload_if(&second).await, Err(PlanError::Outdated));

    let third = plan(&gateway, &hidden).await.digest.unwrap();
    assert_eq!(reload_if("0000").await, unknown("0000"), "and the plan stays");
    assert_eq!(reload_if(&third).await, Ok(ReloadOutcome::Applied));
    let names = gateway.modern().key("a").tool_names().await;
    assert!(!names.contains(&"s__fail".to_owned()), "{names:?}");
    assert_eq!(reload_if(&third).await, unknown(&third), "a plan is applied once");
}

#[tokio::test]
async fn a_plan_of_a_file_with_faults_has_the_faults_and_no_digest() {
    let upstream = Upstream::modern().await;
    let gateway = builder(&upstream, "", "").start().await;
    let planned = plan(&gateway, &builder(&upstream, "nonsense = 1", "")).await;
    assert_eq!(planned.digest, None);
    assert!(planned.faults[0].contains("servers.s.nonsense"), "{planned:?}");
    let same = plan(&gateway, &builder(&upstream, "", "")).await;
    assert!(same.is_unchanged && same.digest.is_some(), "{same:?}");
}

#[tokio::test]
async fn calls_that_a_rule_hides_are_counted_as_allowed_by_a_file_without_the_rule() {
    let upstream = Upstream::modern().await;
    let own = "[tools.own]\ntext = \"own\"\n";
    let rules = "[policy.rules.all]\n\
        [policy.rules.no_count]\neffect = \"deny\"\ntools = [\"s__count\", \"own\"]";
    let gateway = builder(&upstream, "tools.deny = [\"fail\"]", &format!("{own}{rules}"));
    let gateway = gateway.start().await;
    let calls = ["s__count", "s__count", "own", "s__fail", "s__never", "s__echo"];
    let [(_, modern), (_, legacy)] = gateway.both_as("a", "/mcp").await;
    for client in [modern, legacy] {
        for tool in calls {
            client.call(tool, json!({})).await;
        }
    }
    let log = gateway.folder().join("audit.jsonl");
    let is_call = |record: &&Value| record["event"] == "call";
    until(|| json_lines(&log).iter().filter(is_call).count() == 2 * calls.len()).await;
    let hidden = json_lines(&log).into_iter().find(|record| record["tool"] == "s__count").unwrap();
    assert_eq!((&hidden["server"], &hidden["reason"]), (&Value::Null, &json!("unknown_tool")));

    let after = builder(&upstream, "", &format!("{own}[policy.rules.all]"));
    let calls = plan(&gateway, &after).await.calls.unwrap();
    let allowed = |tool: &str, rule: &str, calls: usize| json!({ "caller": "ann", "tool": tool, "is_allowed": true, "rule": rule, "calls": calls });
    let expected = json!([
        allowed("own", "no_count", 2),
        allowed("s__count", "no_count", 4),
        allowed("s__fail", "servers.s.tools", 2),
    ]);
    assert_eq!(json!(calls.changed), expected);
    assert_eq!((calls.unchanged, calls.without_tool), (2, 2));
}

#[tokio::test]
async fn a_file_of_the_log_that_cannot_be_read_is_part_of_the_plan() {
    let upstream = Upstream::modern().await;
    let gateway = builder(&upstream, "", "").start().await;
    std::fs::create_dir(gateway.folder().join("audit.jsonl.1")).unwrap();
    let calls = plan(&gateway, &builder(&upstream, "", "")).await.calls.unwrap();
    let [fault] = &calls.unreadable_files[..] else { panic!("{calls:?}") };
    assert!(fault.contains("audit.jsonl.1: ") && fault.contains("directory"), "{fault}");
}

#[tokio::test]
async fn a_disabled_server_that_the_file_drops_is_removed_by_the_plan() {
    let upstream = Upstream::modern().await;
    let gateway = builder(&upstream, "", "").server("old", upstream.http()).start().await;
    let disable = gateway.operator();
    let said = disable.http("POST", "/api/v1/servers/old/disable").body("{}");
    let said = said.header("content-type", "application/json").send().await.said().await;
    assert_eq!(said.status, 200, "{said:?}");
    let consequences = plan(&gateway, &builder(&upstream, "", "")).await.consequences;
    assert_eq!(json!(consequences.removed), json!([{ "name": "old", "sessions": 0, "calls": 0 }]));
}

#[tokio::test]
async fn all_sessions_of_a_removed_server_are_counted() {
    const SESSIONS: usize = 110;
    let upstream = Upstream::legacy().await;
    let lines = upstream.http() + "isolation = \"client\"\nmax_instances = 1000\n";
    let gateway = Gateway::with("s", lines).start().await;
    let sessions = stream::iter(0..SESSIONS).map(async |_| {
        let client = gateway.legacy().await;
        assert!(!client.call("s__echo", json!({})).await.is_error());
        client
    });
    let clients: Vec<_> = sessions.buffer_unordered(8).collect().await;
    let consequences = plan(&gateway, &Gateway::alone()).await.consequences;
    let removed = json!([{ "name": "s", "sessions": SESSIONS, "calls": 0 }]);
    assert_eq!((clients.len(), json!(consequences.removed)), (SESSIONS, removed));
}

#[tokio::test]
async fn issuers_are_named_because_their_users_are_not_known() {
    let upstream = Upstream::modern().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("jwks.json"), "{\"keys\":[]}").unwrap();
    let with_issuer = |server: &str| {
        builder(&upstream, server, "").gateway("public_url = \"http://127.0.0.1:8080\"").toml(
            "[issuers.corp]\nissuer = \"https://login.example.com\"\njwks_file = \"jwks.json\"",
        )
    };
    let gateway = with_issuer("").in_folder(folder).start().await;
    assert!(plan(&gateway, &with_issuer("")).await.consequences.users_of.is_empty());
    let planned = plan(&gateway, &with_issuer("tools.deny = [\"fail\"]")).await;
    assert_eq!(planned.consequences.users_of, ["corp"], "{planned:?}");
    let dropped = plan(&gateway, &builder(&upstream, "", "")).await;
    assert_eq!(dropped.consequences.users_of, ["corp"], "{dropped:?}");
}
