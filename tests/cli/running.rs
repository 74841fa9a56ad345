//! Commands that ask the running gateway.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::process::{Process, TRUNKLINE, Tag, eventually, text};
use super::{DONE, FAILURE, Ran, WRONG_USE, clock, contains_all, file, trunkline};

/// Exit code of a command that finds no gateway.
pub(super) const UNREACHABLE: i32 = 3;

/// Runs a command like a user in the same session as the gateway.
pub(super) fn beside(gateway: &Process, args: &[&str]) -> Ran {
    let mut command = Command::new(TRUNKLINE);
    command.env("XDG_RUNTIME_DIR", gateway.folder()).env_remove("TRUNKLINE_CONFIG");
    Ran(command.args(args).current_dir(gateway.folder()).stdin(Stdio::null()).output().unwrap())
}

#[test]
fn a_gateway_that_does_not_run_is_named_with_all_places_that_were_tried() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "");
    let name = std::fs::canonicalize(&config).unwrap();
    let name = name.to_str().unwrap();
    trunkline(&["status", "-c", &config]).exits_with(UNREACHABLE).complains_of(&[
        &format!("no gateway runs with {name}: start it with `trunkline serve --config {name}`"),
        "tried ",
        "there is no such socket",
    ]);
    trunkline(&["status", &config]).exits_with(UNREACHABLE).complains_of(&["no gateway runs"]);
    let off = file(folder.path(), "[admin]\nsocket = \"off\"\n");
    trunkline(&["status", &off]).exits_with(UNREACHABLE).complains_of(&["admin.socket is \"off\""]);
    trunkline(&["status", &config, "-c", &config]).exits_with(WRONG_USE);
    trunkline(&["status", "--key-file", "x"]).exits_with(WRONG_USE).complains_of(&["--url"]);
    trunkline(&["status", "--url", "ftp://a/"]).exits_with(WRONG_USE).complains_of(&["http://"]);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    trunkline(&["status", "--url", &format!("http://{closed}")])
        .exits_with(UNREACHABLE)
        .complains_of(&[&closed.to_string(), "does not answer"]);
}

#[test]
fn a_second_gateway_of_a_configuration_answers_commands_once_the_first_has_ended() {
    let shared = tempfile::tempdir().unwrap();
    let socket = shared.path().join("own").join("gateway.sock");
    let with_socket = format!("[admin]\nsocket = {socket:?}\n");
    let config = file(shared.path(), &text("").replace("[admin]\n", &with_socket));
    let start =
        || Process::start_with(tempfile::tempdir().unwrap(), std::path::Path::new(&config), &[]);
    let (mut first, mut second) = (start(), start());
    eventually("the second one waits", || second.log().contains("commands ask another gateway"));
    let asked = || trunkline(&["status", "-c", &config, "--json"]);
    let started = |ran: Ran| {
        let status: Value = serde_json::from_slice(&ran.0.stdout).unwrap_or_default();
        status["started_at"].as_str().map(str::to_owned)
    };
    let by_first = started(asked().exits_with(DONE)).expect("the time of its start");
    first.signal(Signal::TERM);
    first.ended();
    eventually("the second one answers", || {
        started(asked()).is_some_and(|by_second| by_second > by_first)
    });
    second.signal(Signal::TERM);
    second.ended();
    assert!(!socket.exists());
}

#[test]
fn the_status_of_the_running_gateway_is_shown_also_beside_a_faulty_file() {
    let tag = Tag::new();
    let gateway = Process::start(&clock(&tag));
    gateway.ready(&["clock"]);
    let config = gateway.config();
    let config = config.to_str().unwrap();
    for args in [&["status"][..], &["status", config], &["status", "-c", config]] {
        beside(&gateway, args).exits_with(DONE).prints(&[
            "1 of 1 servers ready, ",
            "SERVER  STATE       ERA",
            "clock   ready       legacy",
        ]);
    }
    let json = beside(&gateway, &["status", "--json"]).exits_with(DONE);
    let status: Value = serde_json::from_str(&json.said()).unwrap();
    assert_eq!(status["servers"][0]["name"], "clock");
    // The file is not loaded: only the place of the socket is read from it, if it can be.
    let written = std::fs::read_to_string(gateway.config()).unwrap();
    std::fs::write(gateway.config(), format!("{written}x = 1\n")).unwrap();
    eventually("the reload is rejected", || gateway.status()["findings"] != serde_json::json!([]));
    beside(&gateway, &["status"]).exits_with(FAILURE).prints(&[
        "error: configuration: the new configuration has faults",
        "  = cure: correct the file (trunkline check)",
    ]);
}

#[test]
fn a_server_that_is_down_is_a_finding_with_its_cure() {
    let gateway = Process::start("\n[servers.down]\ncommand = \"no-such-program-anywhere\"\n");
    eventually("the start has failed", || !gateway.server("down")["last_error"].is_null());
    beside(&gateway, &["status"]).exits_with(FAILURE).prints(&[
        "0 of 1 servers ready",
        "error: servers.down: ",
        "  = cure: ",
    ]);
}

#[test]
fn a_child_process_of_the_gateway_cannot_operate_it() {
    let folder = tempfile::tempdir().unwrap();
    let code = folder.path().join("code");
    // The child asks once it has the path of the configuration, and writes the exit code.
    let script = format!(
        "until test -s config; do sleep 0.1; done; {TRUNKLINE} status -c \"$(cat config)\" > out 2>&1; \
         echo $? > code.new; mv code.new code; exec cat"
    );
    let table = format!(
        "\n[servers.curious]\ncommand = \"sh\"\nargs = [\"-c\", '{script}']\ncwd = {:?}\n",
        folder.path()
    );
    let gateway = Process::start(&table);
    let own = beside(&gateway, &["status"]).said();
    assert!(own.contains("0 of 1 servers ready"), "{own}");
    let draft = folder.path().join("draft");
    std::fs::write(&draft, gateway.config().to_str().unwrap()).unwrap();
    std::fs::rename(&draft, folder.path().join("config")).unwrap();
    eventually("the child has asked", || code.exists());
    let said = std::fs::read_to_string(folder.path().join("out")).unwrap();
    assert_eq!(std::fs::read_to_string(&code).unwrap().trim(), "3", "{said}");
}

/// Only root can run a process as another user.
#[test]
fn a_socket_of_another_user_in_a_shared_folder_is_not_asked() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::create_dir(&shared).unwrap();
    open(folder.path(), 0o755);
    open(&shared, 0o1777);
    let config = file(folder.path(), "[admin]\nsocket = \"shared/a.sock\"\n");
    // It records all bytes that it receives.
    let script = "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\n\
                  s.listen(1)\nopen(sys.argv[1] + '.up', 'w')\nc, _ = s.accept()\nsys.stdout.write(c.recv(1 << 16).decode())";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(shared.join("a.sock")).uid(65534).gid(65534);
    let child = python.stdout(Stdio::piped()).spawn().unwrap();
    eventually("the socket exists", || shared.join("a.sock.up").exists());
    let asked = trunkline(&["status", "-c", &config]);
    assert_ne!(asked.0.status.code(), Some(DONE));
    asked.complains_of(&["belongs to a process of the user 65534"]);
    let received = child.wait_with_output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&received), "", "nothing is sent to it");
}

/// Only root can give a socket to another user.
#[test]
fn root_asks_a_gateway_of_another_user_whose_socket_is_in_a_folder_of_its_own() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir_in("/run").unwrap();
    let config = file(folder.path(), "[admin]\nsocket = \"a.sock\"\n");
    let script = "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\n\
                  open(sys.argv[1] + '.up', 'w')\nos.setgid(65534)\nos.setuid(65534)\n\
                  s.listen(1)\nc, _ = s.accept()\nsys.stdout.write(c.recv(1 << 16).decode())";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(folder.path().join("a.sock"));
    let child = python.stdout(Stdio::piped()).spawn().unwrap();
    eventually("it is asked", || {
        let ran = trunkline(&["status", "-c", &config]);
        let said = String::from_utf8_lossy(&ran.0.stderr).into_owned();
        assert!(!said.contains("belongs to a process"), "{said}");
        said.contains("does not answer")
    });
    let received = child.wait_with_output().unwrap().stdout;
    assert!(received.starts_with(b"GET /api/v1/status"), "{}", String::from_utf8_lossy(&received));
}

#[test]
fn over_tcp_a_key_with_a_role_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
    std::fs::write(&good, "the-key\n").unwrap();
    std::fs::write(&bad, "another\n").unwrap();
    let digest = trunkline::crypto::sha256(b"the-key");
    let digest = data_encoding::HEXLOWER.encode(&digest);
    let table = format!("[clients.ops]\nkey = \"{digest}\"\nrole = \"viewer\"\n");
    let gateway = Process::start(&table);
    let url = format!("http://{}", gateway.admin);
    let ask = |key: &std::path::Path| {
        trunkline(&["status", "--url", &url, "--key-file", key.to_str().unwrap()])
    };
    ask(&good).exits_with(DONE).prints(&["0 of 0 servers ready"]);
    ask(&bad).exits_with(FAILURE).complains_of(&["(unauthenticated)"]);
    trunkline(&["status", "--url", &url]).exits_with(FAILURE).complains_of(&["(unauthenticated)"]);
    ask(&folder.path().join("none")).exits_with(WRONG_USE).complains_of(&["--key-file"]);
}

#[test]
fn a_call_is_explained_without_a_request_to_its_server() {
    let tag = Tag::new();
    let more = "[clients.ci]\nkey = \"0000000000000000000000000000000000000000000000000000000000000001\"\n\
        [policy.rules.ci]\nprincipals = [\"ci\"]\nwhen = \"has(arguments.zone) && arguments.zone != 'UTC'\"\n\
        [audit]\nfile = \"audit.jsonl\"\n";
    let gateway = Process::start(&format!("{}{more}", clock(&tag)));
    gateway.ready(&["clock"]);
    let tool = "clock__now";
    let refused = beside(&gateway, &["why", "ci", tool, "zone=UTC"]).exits_with(FAILURE);
    let text = refused.said();
    for words in [
        "ci calls clock__now (server clock) in the profile default",
        "→ refused rules",
        "\"arguments.zone != 'UTC'\" does",
        "policy.rules.ci.when",
        "change the condition or the call",
        "The call is refused by: rules.",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let rules = ["why", "ci", tool, "zone=CET", "--json"];
    let allowed: Value = serde_json::from_str(&beside(&gateway, &rules).said()).unwrap();
    let gates = allowed["gates"].as_array().unwrap();
    let rules = gates.iter().find(|gate| gate["gate"] == "rules").unwrap();
    assert_eq!(rules["verdict"], "passes", "{allowed}");
    beside(&gateway, &["why", "ci", tool, "zone"])
        .exits_with(WRONG_USE)
        .complains_of(&["KEY=VALUE"]);
    beside(&gateway, &["why", "ci"]).exits_with(WRONG_USE);
}

/// A number that a tree of values would round.
const LONG_NUMBER: &str = "123456789012345678901";

/// A record of a request of `ci`, as the audit log has it.
fn record(id: &str, members: &str) -> String {
    format!(
        "{{\"seq\":1,\"time\":\"2026-11-20T10:00:00.000000Z\",\"id\":\"{id}\",\"event\":\"call\",\
         \"principal\":\"ci\",\"profile\":\"default\",{members}}}\n"
    )
}

#[test]
fn a_recorded_call_is_explained_with_its_decision_then_and_the_arguments_that_are_known() {
    let tag = Tag::new();
    let more = "[clients.ci]\nkey = \"0000000000000000000000000000000000000000000000000000000000000001\"\n\
        [policy.rules.ci]\nprincipals = [\"ci\"]\nwhen = \"arguments.zone != 'UTC'\"\n\
        [audit]\nfile = \"audit.jsonl\"\n";
    let gateway = Process::start(&format!("{}rate = \"1/h\"\n{more}", clock(&tag)));
    gateway.ready(&["clock"]);
    let called = "\"method\":\"tools/call\",\"tool\":\"clock__now\",\"decision\":\"deny\"";
    let limited = "\"check\":\"limit\",\"rule\":\"client:ci\",\"reason\":\"over_limit\"";
    let zone = |zone: &str| format!("\"arguments\":{{\"zone\":\"{zone}\"}}");
    let log = [
        record("r-1", &format!("{called},{limited},{}", zone("CET"))),
        record("r-2", &format!("{called},{limited}")),
        record("r-3", &format!("{called},{limited},{}", zone("[redacted]"))),
        record("r-4", &format!("{called},\"check\":\"rule\",{}", zone("UTC"))),
        record(
            "r-5",
            "\"method\":\"prompts/get\",\"prompt\":\"p\",\"decision\":\"deny\",\"check\":\"catalog\"",
        ),
        record("r-6", &format!("{called},\"check\":\"key\"")).replace("\"ci\"", "null"),
        record(
            "r-8",
            &format!("{called},{limited},\"arguments\":{{\"zone\":\"CET\",\"n\":{LONG_NUMBER}}}"),
        ),
    ];
    std::fs::write(gateway.folder().join("audit.jsonl.1"), log.concat()).unwrap();
    // The file on disk may be faulty: the gateway has the log.
    let written = std::fs::read_to_string(gateway.config()).unwrap();
    std::fs::write(gateway.config(), written + "nonsense = 1\n").unwrap();
    let why = |id: &str| beside(&gateway, &["why", "--from-audit", id]);

    let then = "Recorded: refused by limit client:ci (over_limit) at 2026-11-20T10:00:00.000000Z";
    let passes = why("r-1").exits_with(FAILURE).said();
    let words: Vec<_> = passes.split_whitespace().collect();
    assert!(words.join(" ").starts_with(&format!("{then} Now: ci calls clock__now")), "{passes}");
    assert!(passes.contains("No check refuses the call now."), "{passes}");
    assert!(passes.lines().all(|line| line.chars().count() <= 80), "{passes}");
    for id in ["r-2", "r-3"] {
        let text = why(id).exits_with(FAILURE).said();
        assert!(text.contains("unknown rules"), "{text}");
        assert!(text.contains("unknown arguments      they are not known"), "{text}");
        assert!(!text.contains("is missing") && !text.contains("refused rules"), "{text}");
    }
    why("r-4").exits_with(FAILURE).prints(&["Recorded: refused by rule", "→ refused rules"]);
    let prompt = why("r-5").exits_with(FAILURE);
    assert!(prompt.said().starts_with("Recorded: refused by catalog"), "{}", prompt.said());
    contains_all(&prompt.0.stderr, &["prompts/get is not a call of a tool"]);
    contains_all(&why("r-6").exits_with(FAILURE).0.stderr, &["the caller is not known"]);
    why("r-7").exits_with(FAILURE).complains_of(&["no record with the id r-7"]);
    let json = beside(&gateway, &["why", "--from-audit", "r-2", "--json"]).exits_with(FAILURE);
    let json: Value = serde_json::from_str(&json.said()).unwrap();
    assert_eq!((&json["recorded"]["id"], &json["refused_by"]), (&"r-2".into(), &Value::Null));

    let digits = format!("\"n\":{LONG_NUMBER}");
    let json = beside(&gateway, &["why", "--from-audit", "r-8", "--json"]).exits_with(FAILURE);
    assert!(json.said().contains(&digits), "{}", json.said());
    for command in ["show", "tail"] {
        let shown = beside(&gateway, &["audit", command, "--json"]).exits_with(DONE).said();
        assert!(shown.contains(&digits), "{command}: {shown}");
    }

    // A real call over the rate of the server.
    let call = ["call", "clock__now", "zone=CET", "--as", "ci", "--json"];
    beside(&gateway, &call).exits_with(DONE);
    beside(&gateway, &call).exits_with(FAILURE);
    let mut found = None;
    eventually("the refusal is recorded", || {
        let log = std::fs::read_to_string(gateway.folder().join("audit.jsonl")).unwrap_or_default();
        let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut refused = records.filter(|record| record["check"] == "limit");
        found = refused.next().and_then(|record| record["id"].as_str().map(str::to_owned));
        found.is_some()
    });
    why(&found.unwrap()).exits_with(FAILURE).prints(&[
        "Recorded: refused by limit server:clock (over_limit) at\n",
        "→ refused rates",
        "The call is refused by: rates.",
    ]);
}

#[test]
fn a_report_reads_the_log_of_the_running_gateway_also_beside_a_faulty_file() {
    let tag = Tag::new();
    let servers =
        format!("{}tools.deny = [\"x_*\"]\n[audit]\nfile = \"audit.jsonl\"\n", clock(&tag));
    let gateway = Process::start(&servers);
    gateway.ready(&["clock"]);
    let time = |days: i64| jiff::Timestamp::now() - jiff::Span::new().hours(days * 24);
    let called = |days: i64| {
        format!(
            "{{\"time\":\"{}\",\"event\":\"call\",\"method\":\"tools/call\",\"profile\":\"default\",\
             \"server\":\"clock\",\"native_tool\":\"now\"}}\n",
            time(days)
        )
    };
    let log = [called(40), called(4), "no record\n".to_owned(), called(3)].concat();
    std::fs::write(gateway.folder().join("audit.jsonl.1"), log).unwrap();
    let written = std::fs::read_to_string(gateway.config()).unwrap();
    std::fs::write(gateway.config(), written + "nonsense = 1\n").unwrap();
    let text = beside(&gateway, &["report"]).exits_with(DONE).said();
    for words in ["2 call(s) of tools", "1 line(s) of it are not records.", "deny = [\"x_*\", \""] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("begins later") && !text.contains("clock__now\n"), "{text}");
    let longer = beside(&gateway, &["report", "--days", "60"]).exits_with(DONE).said();
    assert!(longer.contains("3 call(s) of tools") && longer.contains("begins later"), "{longer}");
}

#[test]
fn a_plan_is_shown_and_applied_by_its_digest() {
    let tag = Tag::new();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let text = text(&clock(&tag)).replace("drain = ", "reload = \"off\"\ndrain = ");
    std::fs::write(&config, text).unwrap();
    let gateway = Process::start_with(folder, &config, &[]);
    gateway.ready(&["clock"]);
    let same = beside(&gateway, &["plan"]).exits_with(DONE).said();
    assert!(same.contains("The file has the running configuration."), "{same}");
    assert!(!same.contains("reload --if"), "{same}");
    let written = std::fs::read_to_string(gateway.config()).unwrap();
    let hidden =
        format!("{written}tools.deny = [\"now\"]\n[servers.more]\ncommand = \"trunkline\"\n");
    std::fs::write(gateway.config(), &hidden).unwrap();
    let text = beside(&gateway, &["plan"]).exits_with(FAILURE).said();
    for words in [
        "+ server more: its tools are not known before it starts",
        "anonymous, profile default:",
        "  - tool clock__now",
        "Calls are not recorded",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 92), "{text}");
    let json = beside(&gateway, &["plan", "--json"]).exits_with(FAILURE);
    let json: Value = serde_json::from_str(&json.said()).unwrap();
    let digest = json["digest"].as_str().unwrap();
    assert!(text.contains(&format!("trunkline reload --if {digest}")), "{text}");
    // Only the table of the server that runs changes.
    std::fs::write(gateway.config(), written.replace("env = { ", "env = { X = \"1\", ")).unwrap();
    let restarts = beside(&gateway, &["plan"]).exits_with(DONE).said();
    let words: Vec<_> = restarts.split_whitespace().collect();
    let expected =
        "~ server clock: 0 session(s), 0 call(s) in flight; its tools are taken as they are now";
    assert!(words.join(" ").contains(expected), "{restarts}");
    std::fs::write(gateway.config(), &hidden).unwrap();
    beside(&gateway, &["plan"]).exits_with(FAILURE);
    beside(&gateway, &["reload", "--if", "0000"])
        .exits_with(FAILURE)
        .complains_of(&["(plan_outdated)"]);
    // That attempt leaves the plan.
    beside(&gateway, &["reload", "--if", digest, "--wait"])
        .exits_with(DONE)
        .prints(&["the configuration is applied"]);
    beside(&gateway, &["reload"]).exits_with(DONE).prints(&["the configuration has not changed"]);
    let answer = beside(&gateway, &["reload", "--json"]).exits_with(DONE).said();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["outcome"], "unchanged", "{answer}");
    std::fs::write(gateway.config(), format!("{written}nonsense = 1\n")).unwrap();
    beside(&gateway, &["plan"]).exits_with(FAILURE).prints(&["fault: ", "nonsense"]);
    beside(&gateway, &["reload"])
        .exits_with(FAILURE)
        .complains_of(&["nonsense", "the running configuration is kept: the file is rejected"]);
}

#[test]
fn a_part_of_the_log_that_cannot_be_read_is_a_finding_of_a_plan() {
    let tag = Tag::new();
    let gateway = Process::start(&format!("{}[audit]\nfile = \"audit.jsonl\"\n", clock(&tag)));
    gateway.ready(&["clock"]);
    beside(&gateway, &["plan"]).exits_with(DONE);
    let earlier = gateway.folder().join("audit.jsonl.1");
    std::fs::create_dir(&earlier).unwrap();
    beside(&gateway, &["plan"])
        .exits_with(FAILURE)
        .prints(&["? the log cannot be read: ", "audit.jsonl.1"]);
    std::fs::remove_dir(&earlier).unwrap();
    let unknown = record("r-1", "\"method\":\"tools/call\",\"tool\":\"clock__gone\"");
    std::fs::write(&earlier, &unknown).unwrap();
    beside(&gateway, &["plan", "--days", "3650"])
        .exits_with(DONE)
        .prints(&["? 1 whose tool is not known"]);
    std::fs::write(&earlier, "no record\n").unwrap();
    beside(&gateway, &["plan"])
        .exits_with(FAILURE)
        .prints(&["? 1 line(s) of the log are no records"]);
}
