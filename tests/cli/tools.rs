//! `trunkline tools` and `trunkline report`: the cost of tools, and unused ones.

use std::fmt::Write as _;

use super::{CONFIG_FAULT, DONE, FAILURE, WRONG_USE, clock, contains_all, file, trunkline};
use crate::process::Tag;

#[test]
fn tools_are_listed_with_their_signatures_or_their_tokens() {
    let (folder, tag) = (tempfile::tempdir().unwrap(), Tag::new());
    let found = "[profiles.found]\ndiscovery = \"search\"\nbudget = 300\n";
    let path = file(folder.path(), &format!("{found}{}", clock(&tag)));
    let said = trunkline(&["tools", "-c", &path]).exits_with(DONE).said();
    let lines: Vec<_> = said.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("clock__")), "{said}");
    assert!(lines[0].contains('(') && lines[0].contains(" — "), "{said}");

    let counted = trunkline(&["tools", "-c", &path, "--tokens"]).exits_with(DONE).said();
    let tokens = |line: &str| line.split_whitespace().next().unwrap().parse::<usize>().unwrap();
    let tools: Vec<_> = counted.lines().take(lines.len()).map(tokens).collect();
    assert!(
        tools.is_sorted_by(|a, b| a >= b) && tools.iter().all(|count| *count > 10),
        "{counted}"
    );
    let total = counted.lines().find(|line| line.contains("profile default")).unwrap();
    assert_eq!(tokens(total), tools.iter().sum::<usize>(), "{counted}");
    assert!(counted.contains("an estimate"), "{counted}");

    let found = trunkline(&["tools", "-c", &path, "--tokens", "--profile", "found"]);
    let found = found.exits_with(DONE).said();
    contains_all(found.as_bytes(), &["find_tools", "call_tool", "the budget is 300", "in full"]);
    trunkline(&["tools", "-c", &path, "--profile", "nope"])
        .exits_with(WRONG_USE)
        .complains_of(&["no profile \"nope\""]);
}

#[test]
fn uncalled_tools_are_reported_with_the_lines_that_hide_them() {
    let (folder, tag) = (tempfile::tempdir().unwrap(), Tag::new());
    let log = folder.path().join("audit.jsonl");
    let servers = clock(&tag) + &clock(&tag).replace("servers.clock", "servers.other");
    let deny = "\n[servers.clock.tools]\ndeny = [\"x_*\"]\n";
    let path = file(folder.path(), &format!("[audit]\nfile = {log:?}\n{servers}{deny}"));
    let time = |days: i64| jiff::Timestamp::now() - jiff::Span::new().hours(days * 24);
    let called = |days: i64, tool: &str| {
        format!(
            "{{\"time\":\"{}\",\"event\":\"call\",\"method\":\"tools/call\",\"profile\":\"default\",\
             \"server\":\"clock\",\"native_tool\":\"{tool}\"}}\n",
            time(days)
        )
    };
    let listed = trunkline(&["tools", "-c", &path]).exits_with(DONE).said();
    let native = |line: &str| line.split('(').next().unwrap().replace("clock__", "");
    let natives: Vec<_> =
        listed.lines().filter(|line| line.starts_with("clock__")).map(native).collect();
    let mut records = called(3, &natives[0]);
    let _ = write!(
        records,
        "no record\n{{\"time\":\"{}\",\"event\":\"list\",\"method\":\"tools/list\",\"profile\":\"default\"}}\n",
        time(2)
    );
    std::fs::write(&log, records).unwrap();
    // The file before it, which begins earlier.
    std::fs::write(log.with_extension("jsonl.1"), called(40, &natives[1])).unwrap();

    let said = trunkline(&["report", "-c", &path]).exits_with(DONE).said();
    let unused = 2 * natives.len() - 1;
    contains_all(
        said.as_bytes(),
        &[
            "The last 30 day(s): 1 call(s) of tools, and tools were listed 1 time(s).",
            "1 line(s) of it are not records.",
            &format!("{unused} of {} tools were not called.", 2 * natives.len()),
            &format!("other: none of its {} tool(s) was called", natives.len()),
            "[servers.other.tools]\ndeny = [\"*\"]\n",
            &format!("[servers.clock.tools]\ndeny = [\"x_*\", \"{}\"", natives[1]),
        ],
    );
    assert!(!said.contains("begins later"), "{said}");
    let toml: String = said.split_once("configuration:\n").unwrap().1.to_owned();
    toml.parse::<toml::Table>().unwrap();
    let longer = trunkline(&["report", "-c", &path, "--days", "60"]).exits_with(DONE).said();
    contains_all(longer.as_bytes(), &["2 call(s) of tools", "The log begins later, at "]);
}

#[test]
fn a_log_without_records_advises_nothing() {
    let (folder, tag) = (tempfile::tempdir().unwrap(), Tag::new());
    let log = folder.path().join("audit.jsonl");
    let path = file(folder.path(), &format!("[audit]\nfile = {log:?}\n{}", clock(&tag)));
    for (text, words) in
        [("", "no records: wait"), ("x\ny\n", "and 2 line(s) that are not records")]
    {
        std::fs::write(&log, text).unwrap();
        let ran = trunkline(&["report", "-c", &path, "--offline"]).exits_with(FAILURE);
        ran.complains_of(&["no report is possible, because the audit log has no records", words]);
    }
    let ran = trunkline(&["report", "-c", &path, "--offline", "--json"]).exits_with(FAILURE);
    let report: serde_json::Value = serde_json::from_str(&ran.said()).unwrap();
    assert_eq!(report["servers"][0]["unused"], serde_json::Value::Null, "{report}");
    assert_eq!(report["log_begins_at"], serde_json::Value::Null, "{report}");
}

#[test]
fn a_report_without_a_log_names_the_missing_setting() {
    let (folder, tag) = (tempfile::tempdir().unwrap(), Tag::new());
    let path = file(folder.path(), &clock(&tag));
    trunkline(&["report", "-c", &path]).exits_with(FAILURE).complains_of(&[
        "calls are not recorded",
        "set `file` in [audit] of ",
        "--log FILE",
    ]);
    trunkline(&["report", "-c", &path, "--log", "/nonexistent/audit.jsonl"])
        .exits_with(CONFIG_FAULT)
        .complains_of(&["cannot read /nonexistent/audit.jsonl"]);
    trunkline(&["report", "-c", &path, "--days", "0"]).exits_with(WRONG_USE);
    let down = file(folder.path(), "[servers.down]\ncommand = \"/nonexistent/server\"\n");
    let said = trunkline(&["tools", "-c", &down]).exits_with(FAILURE);
    contains_all(&said.0.stderr, &["servers.down: it cannot be listed"]);
}
