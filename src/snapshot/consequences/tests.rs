//! A recorded audit log with a known outcome under a new configuration.

use super::*;
use crate::call::NativeName;
use crate::config::{Config, ConfigSource, SystemEnvironment};

fn config(text: &str) -> Config {
    let bytes = text.as_bytes().to_vec();
    let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
    Config::read(&source, &SystemEnvironment).unwrap_or_else(|faults| panic!("{faults}"))
}

/// A record of a call, as the audit log has it.
fn record(principal: &str, profile: &str, tool: &str, arguments: &str) -> String {
    format!(
        "{{\"seq\":1,\"time\":\"2026-11-20T10:00:00.000000Z\",\"id\":\"r-1\",\"event\":\"call\",\
         \"principal\":\"{principal}\",\"profile\":\"{profile}\",\"method\":\"tools/call\",\
         \"tool\":\"s__{tool}\",\"native_tool\":\"{tool}\",\"server\":\"s\",\"decision\":\"allow\"\
         {arguments}}}"
    )
}

fn replay(before: &str, after: &str, records: &[String]) -> ReplayReport {
    let (before, after) = (config(before), config(after));
    let mut replay = CallReplay::new(&before, &after, ListedTools);
    for line in records {
        replay.add(&serde_json::from_str(line).unwrap());
    }
    replay.finish()
}

/// A server `s` that lists `read` and `push`.
struct ListedTools;

impl RecordedToolNames for ListedTools {
    fn find(&self, _profile: &str, public: &str) -> Option<RecordedTool> {
        let native = public.strip_prefix("s__").filter(|it| ["read", "push"].contains(it))?;
        let server = ServerName::new("s").unwrap();
        Some(RecordedTool::OfServer { server, native: NativeName::new(native) })
    }
}

/// A record of a call that was refused by its name.
fn refused_by_name(principal: &str, tool: &str) -> String {
    let record = record(principal, "default", "NAME", "").replace("s__NAME", tool);
    let record = record.replace(
        "\"native_tool\":\"NAME\",\"server\":\"s\"",
        "\"native_tool\":null,\"server\":null",
    );
    record.replace("\"allow\"", "\"deny\",\"check\":\"catalog\"")
}

const KEYS: &str = "\
    [clients.ann]\nkey = \"0000000000000000000000000000000000000000000000000000000000000001\"\n\
    groups = [\"builders\"]\n\
    [clients.bob]\nkey = \"0000000000000000000000000000000000000000000000000000000000000002\"\n\
    [issuers.corp]\nissuer = \"https://login.example.com\"\njwks_file = \"/jwks.json\"\n\
    [servers.s]\ncommand = \"x\"\n";

const URL: &str = "[gateway]\npublic_url = \"https://gateway.example.com\"\n";

#[test]
fn recorded_calls_that_would_be_decided_differently_are_counted_by_caller_and_rule() {
    let before = format!("{URL}{KEYS}[profiles.p]\n");
    let after = format!(
        "{URL}{KEYS}tools.deny = [\"drop\"]\n[profiles.p]\ntools = [\"s__read\"]\n\
         [policy.rules.builders]\ngroups = [\"builders\"]\n\
         [policy.rules.readers]\ntools = [\"s__read\"]\n\
         [policy.rules.not_main]\neffect = \"deny\"\ntools = [\"s__push\"]\n\
         when = \"arguments.branch == 'main'\"\n"
    );
    let arguments = |json: &str| format!(",\"arguments\":{json}");
    let records = [
        // The same decision.
        record("ann", "default", "read", ""),
        record("bob", "default", "read", ""),
        record("ann", "default", "push", &arguments("{\"branch\":\"x\"}")),
        // Denied by a rule with the recorded arguments.
        record("ann", "default", "push", &arguments("{\"branch\":\"main\"}")),
        record("ann", "default", "push", &arguments("{\"branch\":\"main\",\"n\":1}")),
        // No rule allows it.
        record("bob", "default", "write", ""),
        // Hidden by the server's settings, and by the profile.
        record("ann", "default", "drop", ""),
        record("ann", "p", "write", ""),
        // The arguments are not recorded, redacted, or cut.
        record("ann", "default", "push", ""),
        record("ann", "default", "push", &arguments("{\"branch\":\"[redacted]\"}")),
        record("ann", "default", "push", &arguments("{\"branch\":\"ma⟨9 bytes⟩\"}")),
        // The groups of a user are not recorded.
        record("corp:carl", "default", "write", ""),
    ];
    let changed = |caller: &str, tool: &str, rule: &str, calls| ChangedDecision {
        caller: caller.into(),
        tool: format!("s__{tool}"),
        is_allowed: false,
        rule: rule.into(),
        calls,
    };
    let expected = ReplayReport {
        unchanged: 3,
        changed: vec![
            changed("ann", "drop", "servers.s.tools", 1),
            changed("ann", "push", "not_main", 2),
            changed("ann", "write", "profiles.p", 1),
            changed("bob", "write", "policy.rules", 1),
        ],
        without_arguments: 3,
        without_token: 1,
        ..ReplayReport::default()
    };
    assert_eq!(replay(&before, &after, &records), expected);
    // The way back allows the same calls.
    let back = replay(&after, &before, &records);
    assert!(back.changed.iter().all(|change| change.is_allowed), "{back:?}");
    assert_eq!((back.unchanged, back.without_arguments), (3, 3));
}

#[test]
fn each_setting_that_takes_a_call_away_is_named() {
    let record = |principal| record(principal, "p", "read", "");
    let base = format!("{URL}{KEYS}[profiles.p]\n");
    let without = |text: &str| base.replace(text, "");
    let scoped = base.replace("command", "scopes = [\"files\"]\ncommand");
    let issuer = "[issuers.corp]\nissuer = \"https://login.example.com\"\n\
                  jwks_file = \"/jwks.json\"\n";
    let elsewhere = "[clients.bob]\nprofiles = [\"default\"]\n";
    for (after, principal, rule) in [
        (without("[profiles.p]\n"), "ann", "profiles"),
        (without("[servers.s]\ncommand = \"x\"\n"), "ann", "servers.s"),
        (base.clone() + "tools = [\"s__write\"]\n", "ann", "profiles.p"),
        (base.replace("[clients.bob]\n", elsewhere), "bob", "clients"),
        (scoped.clone(), "ann", "scopes"),
        (without(issuer), "corp:carl", "clients"),
    ] {
        let report = replay(&base, &after, &[record(principal)]);
        let rules: Vec<_> = report.changed.iter().map(|change| change.rule.as_str()).collect();
        assert_eq!(rules, [rule], "{after}");
    }
    // The scopes of a user are not recorded.
    assert_eq!(replay(&base, &scoped, &[record("corp:carl")]).without_token, 1);
    // An anonymous caller exists as long as nobody needs a credential.
    let open = "[servers.s]\ncommand = \"x\"\n[profiles.p]\n";
    let report = replay(open, &base, &[record("anonymous")]);
    assert_eq!(report.changed[0].rule, "clients", "{report:?}");
}

#[test]
fn records_of_other_events_and_clients_that_are_gone_are_told_apart() {
    let keys = KEYS.replace("[clients.bob]", "[clients.rob]");
    let list = record("bob", "default", "read", "").replace("\"call\"", "\"list\"");
    let records = [list, record("bob", "default", "read", "")];
    let report = replay(&format!("{URL}{KEYS}"), &format!("{URL}{keys}"), &records);
    assert_eq!(report.unchanged, 0);
    let [gone] = &report.changed[..] else { panic!("{report:?}") };
    assert_eq!((gone.rule.as_str(), gone.calls, gone.is_allowed), ("clients", 1, false));
}

#[test]
fn calls_that_were_refused_by_name_are_decided_by_the_tool_that_the_name_means() {
    let hiding = "[policy.rules.all]\n\
        [policy.rules.no_push]\neffect = \"deny\"\ntools = [\"s__push\", \"own\"]\n";
    let own = "[tools.own]\ntext = \"own\"\n";
    let before = format!("{URL}{KEYS}{own}{hiding}");
    let records = [
        refused_by_name("ann", "s__push"),
        refused_by_name("ann", "s__push"),
        refused_by_name("bob", "own"),
        // Refused under both, and allowed under both: these belong to no changed rule.
        refused_by_name("zoe", "s__push"),
        refused_by_name("ann", "s__read"),
        // No server has them.
        refused_by_name("ann", "s__gone"),
        refused_by_name("ann", "x__read"),
        // The calls inside have records of their own.
        refused_by_name("ann", "call_tool"),
    ];
    let report = replay(&before, &format!("{URL}{KEYS}{own}"), &records);
    let changed = |caller: &str, tool: &str, calls| ChangedDecision {
        caller: caller.into(),
        tool: tool.into(),
        is_allowed: true,
        rule: "no_push".into(),
        calls,
    };
    let expected = ReplayReport {
        unchanged: 2,
        changed: vec![changed("ann", "s__push", 2), changed("bob", "own", 1)],
        without_tool: 2,
        ..ReplayReport::default()
    };
    assert_eq!(report, expected);
    // A tool of the gateway itself that only one of the files has.
    let report = replay(&format!("{URL}{KEYS}"), &format!("{URL}{KEYS}{own}"), &records[2..3]);
    assert_eq!(
        (report.changed[0].rule.as_str(), report.changed[0].is_allowed),
        ("tools.own", true)
    );
    let profile = format!("{URL}{KEYS}{own}[profiles.default]\ntools = [\"s__read\"]\n");
    let report = replay(&format!("{URL}{KEYS}{own}"), &profile, &records[2..3]);
    assert_eq!(report.changed[0].rule, "profiles.default", "{report:?}");
}

#[test]
fn records_of_operations_and_losses_are_records() {
    for line in [
        "{\"seq\":2,\"time\":\"2026-11-20T10:00:00.000000Z\",\"id\":\"r-2\",\"event\":\"operation\",\
         \"operation\":\"reload\",\"outcome\":\"ok\"}",
        "{\"seq\":3,\"time\":\"2026-11-20T10:00:00.000000Z\",\"id\":\"r-3\",\"event\":\"lost\",\"records\":7}",
    ] {
        let call: RecordedCall = serde_json::from_str(line).unwrap();
        let config = config(URL);
        let mut replay = CallReplay::new(&config, &config, ListedTools);
        replay.add(&call);
        assert_eq!(replay.finish(), ReplayReport::default());
    }
}

#[test]
fn a_plan_names_the_replicas_that_run_the_children_which_it_starts() {
    let cluster = "[gateway]\nstate_keys = [\"a key that replicas share\"]\n[cluster]\n\
        store = \"redis://127.0.0.1\"\nlisten = \"127.0.0.1:7070\"\nadvertise = \"127.0.0.1:7070\"\n";
    let servers = "[servers.kept]\ncommand = \"x\"\n[servers.moved]\ncommand = \"x\"\n";
    let changed = "[servers.kept]\ncommand = \"x\"\n\
        [servers.moved]\ncommand = \"x\"\ninstances = \"one\"\n\
        [servers.new]\ncommand = \"x\"\n[servers.far]\nurl = \"https://far.example.com/mcp\"\n";
    let children_of = |place: &str| {
        let (before, after) = (config(&(place.to_owned() + servers)), place.to_owned() + changed);
        let after = config(&after);
        let children = find_started_children(&plan(&before, &after), &after);
        let children = children.into_iter().map(|child| (child.server, child.instances));
        children.collect::<Vec<_>>()
    };
    assert_eq!(children_of(cluster), [("moved".to_owned(), "one"), ("new".to_owned(), "each")]);
    assert_eq!(children_of(""), []);
}
