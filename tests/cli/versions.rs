//! `trunkline history` and `trunkline rollback`: versions of the configuration file.

use serde_json::Value;

use super::process::{Process, eventually, text};
use super::running::beside;
use super::{DONE, FAILURE, WRONG_USE, contains_all, file, trunkline};

/// Starts a gateway that keeps versions, with a second one applied.
fn with_two_versions() -> (Process, String) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let state =
        format!("state_dir = {:?}\nreload = \"off\"\ndrain = ", folder.path().join("state"));
    let more = "# The first one.\n[profiles.few]\ntools = []\n[clients.ci]\nkey = \"0000000000000000000000000000000000000000000000000000000000000001\"\n";
    let first = text(more).replace("drain = ", &state);
    std::fs::write(&config, &first).unwrap();
    let gateway = Process::start_with(folder, &config, &[]);
    let second = first.replace("# The first one.", "# The second one.").replace("few", "none");
    std::fs::write(gateway.config(), second).unwrap();
    beside(&gateway, &["reload"]).exits_with(DONE).prints(&["the configuration is applied"]);
    (gateway, first)
}

#[test]
fn versions_are_listed_and_one_is_restored_with_its_comments() {
    let (gateway, first) = with_two_versions();
    let listed = beside(&gateway, &["history"]).exits_with(DONE).said();
    for words in [
        "*   2  ",
        "    1  ",
        "by the start",
        "by uid ",
        "added profiles.none; removed profiles.few",
        "trunkline rollback N",
    ] {
        assert!(listed.contains(words), "{words}: {listed}");
    }
    assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    let shown = beside(&gateway, &["history", "1"]).exits_with(DONE).said();
    for words in ["-# The second one.\n", "+# The first one.\n", "A rollback to it changes:"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let shown = beside(&gateway, &["history", "1", "--text"]).exits_with(DONE).said();
    assert!(shown.contains("key = \"***\"") && shown.contains("[profiles.few]"), "{shown}");
    beside(&gateway, &["history", "9"]).exits_with(FAILURE).complains_of(&["(unknown_version)"]);

    // Without a terminal nobody can be asked.
    let ran = beside(&gateway, &["rollback", "1"]).exits_with(WRONG_USE);
    contains_all(&ran.0.stderr, &["no terminal", "--yes"]);
    let ran = beside(&gateway, &["rollback", "1", "--yes"]).exits_with(DONE);
    ran.prints(&["version 1 is applied", "before: "]);
    assert_eq!(std::fs::read_to_string(gateway.config()).unwrap(), first);
    let status = gateway.status();
    assert_eq!(status["configuration"]["last_reload"]["outcome"], "applied", "{status}");
    let listed = beside(&gateway, &["history", "--json"]).exits_with(DONE).said();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["versions"].as_array().unwrap().len(), 3, "{listed}");
    assert_eq!(listed["running"], listed["versions"][2]["digest"], "the text of version 1");
    let answer = beside(&gateway, &["rollback", "2", "--yes", "--json"]).exits_with(DONE).said();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["outcome"], "applied", "{answer}");
}

#[test]
fn versions_are_not_kept_without_a_folder() {
    let gateway = Process::start("");
    for args in [&["history"][..], &["history", "1"], &["rollback", "1", "--yes"]] {
        beside(&gateway, args)
            .exits_with(FAILURE)
            .complains_of(&["set gateway.state_dir", "(state_dir_needed)"]);
    }
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "");
    trunkline(&["history", "-c", &config]).exits_with(3).complains_of(&["no gateway runs"]);
}

#[test]
fn a_rollback_is_not_undone_by_the_watcher() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let state = format!("state_dir = {:?}\ndrain = ", folder.path().join("state"));
    // The rollback removes a rule, which the watcher alone would refuse.
    let first = text("").replace("drain = ", &state);
    std::fs::write(&config, &first).unwrap();
    let gateway = Process::start_with(folder, &config, &[]);
    let rule = format!("{first}[policy.rules.all]\n");
    let draft = gateway.folder().join("draft");
    std::fs::write(&draft, rule).unwrap();
    std::fs::rename(&draft, gateway.config()).unwrap();
    let outcome = || gateway.status()["configuration"]["last_reload"]["outcome"].clone();
    eventually("the watcher has applied the rule", || outcome() == "applied");
    beside(&gateway, &["rollback", "1", "--yes"])
        .exits_with(DONE)
        .prints(&["! weaker ", "version 1 is applied"]);
    eventually("the watcher has looked", || outcome() == "unchanged");
    assert_eq!(std::fs::read_to_string(gateway.config()).unwrap(), first);
    let listed = beside(&gateway, &["history"]).exits_with(DONE).said();
    assert!(listed.contains("*   3  ") && listed.contains("by uid "), "{listed}");
}

#[test]
fn records_of_the_audit_log_are_shown_and_followed() {
    let gateway = Process::start("[audit]\nfile = \"audit.jsonl\"\n");
    for _ in 0..2 {
        beside(&gateway, &["reload"]).exits_with(DONE);
    }
    let shown = || beside(&gateway, &["audit", "show", "--kind", "reload"]).exits_with(DONE).said();
    eventually("both are recorded", || shown().lines().count() == 2);
    let shown = shown();
    assert!(shown.contains("Z  reload uid ") && shown.contains(" ok unchanged"), "{shown}");
    let one = beside(&gateway, &["audit", "show", "--kind", "reload", "-n", "1", "--json"]);
    let one = one.exits_with(DONE).said();
    assert_eq!(serde_json::from_str::<Value>(&one).unwrap()["operation"], "reload", "{one}");
    beside(&gateway, &["audit", "show", "--client", "none"]).exits_with(DONE).prints(&[]);
    beside(&gateway, &["audit", "tail", "-n", "1", "--kind", "change"])
        .exits_with(DONE)
        .prints(&["change uid ", "/configuration/reload"]);
    beside(&gateway, &["audit", "show", "--since", "today"])
        .exits_with(FAILURE)
        .complains_of(&["since: expected a time"]);
    let without = Process::start("");
    beside(&without, &["audit", "tail"]).exits_with(FAILURE).complains_of(&["set audit.file"]);
}
