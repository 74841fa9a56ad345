//! `trunkline policy test` and what `trunkline check` says of rules.

use std::fs;

use super::{CONFIG_FAULT, DONE, FAILURE, WRONG_USE, contains_all, trunkline};

const DOCS: &str = include_str!("../../docs/policy.md");

/// The block of the page that begins with this line.
fn block(first: &str) -> String {
    let start = DOCS.find(first).unwrap_or_else(|| panic!("{first} is not in docs/policy.md"));
    DOCS[start..].split("```").next().unwrap().to_owned()
}

#[test]
fn the_example_of_the_page_is_tried_as_the_page_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (config, cases) = (path("gateway.toml"), path("cases.toml"));
    fs::write(&config, block("# gateway.toml")).unwrap();
    fs::write(&cases, block("# cases.toml")).unwrap();
    let test = || trunkline(&["policy", "-c", &config, "test", &cases]);
    test().exits_with(DONE).prints(&[
        "ok     1  ci  git__push  allow (rule builders)",
        "ok     2  ci  git__push  deny (no rule)",
        "ok     4  ci  mcp://files/file:///srv/docs/a.txt  hidden (no rule)",
        "ok     5  ann  git__delete_repository  hidden (rule never)",
        "5 case(s), 0 failed",
    ]);
    trunkline(&["check", "-c", &config]).exits_with(DONE);

    let wrong = block("# cases.toml").replacen("expect = \"allow\"", "expect = \"hidden\"", 1);
    fs::write(&cases, wrong.replace("rule = \"never\"", "rule = \"admins\"")).unwrap();
    test().exits_with(FAILURE).prints(&[
        "FAIL   1  ci  git__push  allow (rule builders): expected hidden (builders)",
        "FAIL   5  ann  git__delete_repository  hidden (rule never): expected hidden (admins)",
        "5 case(s), 2 failed",
    ]);
    for (case, fault) in [
        ("expect = \"allow\"", "one of `tool`, `prompt` and `resource`"),
        ("tool = \"git__x\"\nprompt = \"y\"\nexpect = \"deny\"", "one of `tool`"),
        ("tool = \"nowhere__x\"\nexpect = \"deny\"", "no server \"nowhere\""),
        ("tool = \"x\"\nexpect = \"deny\"", "add `server`"),
        ("tool = \"git__x\"\nprofile = \"p\"\nexpect = \"deny\"", "no profile \"p\""),
        ("tool = \"git__x\"\nexpect = \"perhaps\"", "perhaps"),
        ("tool = \"git__x\"\nexpct = \"allow\"", "expct"),
    ] {
        fs::write(&cases, format!("[[case]]\n{case}\n")).unwrap();
        test().exits_with(CONFIG_FAULT).complains_of(&["cases.toml", fault]);
    }
    fs::write(&config, "").unwrap();
    fs::write(&cases, "[[case]]\ntool = \"x\"\nexpect = \"allow\"\n").unwrap();
    test().exits_with(CONFIG_FAULT).complains_of(&["no [policy.rules]"]);
    trunkline(&["policy", "test"]).exits_with(WRONG_USE);
    trunkline(&["policy", "test", "--help"]).exits_with(DONE).prints(&["[[case]]", "Exit codes"]);
}

#[test]
fn rules_that_can_hold_for_nothing_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml").to_str().unwrap().to_owned();
    let check = |text: &str| {
        fs::write(&config, text).unwrap();
        trunkline(&["check", "-c", &config])
    };
    let idle = "[policy.rules.no]\neffect = \"deny\"\nservers = [\"gone\", \"x*\"]\nprofiles = [\"lost\"]\n";
    let warned = check(idle).exits_with(DONE);
    contains_all(
        &warned.0.stderr,
        &[
            "no rule allows anything",
            "policy.rules.no: there is no server \"gone\"",
            "policy.rules.no: there is no profile \"lost\"",
        ],
    );
    check("[policy.rules.no]\nwhen = \"tool.nmae == 'x'\"\n")
        .exits_with(CONFIG_FAULT)
        .complains_of(&[
            "policy.rules.no.when",
            "`tool` has no member `nmae`",
            "did you mean `name`?",
            ":2:",
        ]);
    check("[policy.rules.no]\neffect = \"maybe\"\ntool = [\"x\"]\n")
        .exits_with(CONFIG_FAULT)
        .complains_of(&["allow", "did you mean `tools`?"]);
}
