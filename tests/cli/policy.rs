//! `trunkline policy test`, and the report of `trunkline check` about rules.

use std::fs;

use super::{CONFIG_FAULT, DONE, FAILURE, WRONG_USE, contains_all, trunkline};

const DOCS: &str = include_str!("../../docs/policy.md");

/// Returns the block of the page that begins with this line.
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
    let mistyped = "[[case]]\nprincipal = \"ci\"\ntool = \"git__push\"\n\
                    arguments = { branch = [\"main\"] }\nexpect = \"deny\"\n";
    fs::write(&cases, mistyped).unwrap();
    test().exits_with(DONE).prints(&[
        "git__push  deny (no rule): the condition of builders: unexpected type of arguments.branch",
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
            "policy.rules.no.servers: no server can match \"x*\"",
        ],
    );
    let never = "[policy.rules.r]\nprincipals = [\"ci\"]\n[profiles.p]\ntools = [\"gone__*\"]\n";
    let warned = check(never).exits_with(DONE);
    contains_all(
        &warned.0.stderr,
        &[
            "policy.rules.r.principals: no client can match \"ci\"",
            "profiles.p.tools: no tool can match \"gone__*\"",
        ],
    );
    let fine = "[policy.rules.r]\nprincipals = [\"anonymous\"]\nprofiles = [\"def*\"]\n";
    assert!(check(fine).exits_with(DONE).0.stderr.is_empty());
    check("[policy.rules.no]\nwhen = \"tool.nmae == 'x'\"\n").exits_with(FAILURE).complains_of(&[
        "policy.rules.no.when",
        "`tool` has no member `nmae`",
        "did you mean `name`?",
        ":2:",
    ]);
    check("[policy.rules.no]\neffect = \"maybe\"\ntool = [\"x\"]\n")
        .exits_with(FAILURE)
        .complains_of(&["allow", "did you mean `tools`?"]);
}

#[test]
fn a_case_has_claims_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (config, cases) = (path("gateway.toml"), path("cases.toml"));
    let rules = "[servers.git]\ncommand = \"x\"\n[policy.rules.web]\n\
                 when = \"claims.team.name == 'web' && claims.level >= 2\"\n\
                 [policy.rules.away]\neffect = \"deny\"\n\
                 when = \"has(claims.locations) && claims.locations.exists(l, l == 'away')\"\n";
    fs::write(&config, rules).unwrap();
    let case = |claims: &str, expect: &str, rule: &str| {
        let rule = if rule.is_empty() { String::new() } else { format!("rule = \"{rule}\"\n") };
        format!(
            "[[case]]\nprincipal = \"idp:ann\"\ntool = \"git__push\"\n{claims}\n\
             expect = \"{expect}\"\n{rule}"
        )
    };
    let table = [
        case("claims = { team = { name = \"web\" }, level = 2 }", "allow", "web"),
        case("claims = { team = { name = \"web\" }, level = 1 }", "hidden", ""),
        case("claims = { team = { name = \"app\" }, level = 2 }", "hidden", ""),
        case("claims = { level = 2 }", "hidden", ""),
        case("", "hidden", ""),
        case(
            "claims = { team = { name = \"web\" }, level = 3, locations = [\"away\"] }",
            "hidden",
            "away",
        ),
    ];
    fs::write(&cases, table.concat()).unwrap();
    trunkline(&["policy", "-c", &config, "test", &cases]).exits_with(DONE).prints(&[
        "ok     1  idp:ann  git__push  allow (rule web)",
        "ok     2  idp:ann  git__push  hidden (no rule)",
        "ok     6  idp:ann  git__push  hidden (rule away)",
        "6 case(s), 0 failed",
    ]);
}

#[test]
fn a_check_prints_the_matches_of_each_denial_and_warns_where_others_can_rename() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml").to_str().unwrap().to_owned();
    let check = |gateway: &str, rules: &str| {
        let servers = "[servers.git]\ncommand = \"x\"\n[servers.git.tools.drop]\nname = \"remove\"\n\
            [servers.b]\ncommand = \"x\"\n[policy.rules.all]\n";
        fs::write(&config, format!("[gateway]\n{gateway}\n{servers}{rules}")).unwrap();
        trunkline(&["check", "-c", &config]).exits_with(DONE)
    };
    let never = "[policy.rules.never]\neffect = \"deny\"\n";
    let by_name = format!("{never}tools = [\"git__d*\", \"remove\", \"gti__x\"]\n");
    let checked = check("", &by_name);
    contains_all(
        &checked.0.stdout,
        &[
            "policy.rules.never.tools: \"git__d*\" denies \"d*\" of server git, \"git__d*\" of every server; \
         known: \"drop\" of git",
            "\"remove\" denies \"remove\" of every server; known: \"drop\" of git",
        ],
    );
    let warned = &checked.0.stderr;
    contains_all(warned, &["\"gti__x\" does not begin with the prefix of any server"]);
    let warned = String::from_utf8_lossy(warned);
    assert!(!warned.contains("other servers can"), "{warned}");

    let by_condition = format!("{never}when = \"tool.name == 'x' || item.name == 'x'\"\n");
    let safe = format!("{never}when = \"tool.native == 'x' && tool.server == 'git'\"\n");
    let allowed = "[policy.rules.some]\ntools = [\"x\"]\nresources = [\"file:///x\"]\n";
    for (gateway, because) in [
        ("naming = \"conflict\"", "with naming = \"conflict\", other servers"),
        ("naming = \"first\"", "with naming = \"first\", other servers"),
        ("name_format = \"{tool}{server}\"", ""),
    ] {
        for (rules, setting) in [
            (&*by_name, "never.tools"),
            (&*by_condition, "never.when"),
            (allowed, "some.tools"),
            (&*safe, ""),
        ] {
            let warned = check(gateway, rules);
            let warned = String::from_utf8_lossy(&warned.0.stderr);
            let expected = format!("policy.rules.{setting}: {because}");
            let is_expected = !because.is_empty() && !setting.is_empty();
            assert_eq!(
                warned.contains("other servers can"),
                is_expected,
                "{gateway} {rules} {warned}"
            );
            assert!(!is_expected || warned.contains(&expected), "{gateway} {rules} {warned}");
        }
    }
    let original = check("uris = \"original\"", allowed);
    contains_all(
        &original.0.stderr,
        &[
            "policy.rules.some.resources: with uris = \"original\", other servers can take these names",
        ],
    );
}
