//! Effects of `import --write`, `add` and `remove` on a configuration that a person wrote.

use super::super::process::{Process, eventually};
use super::*;

const OWN: &str = "# My gateway\n[gateway]\nlisten = \"127.0.0.1:0\" # any port\n\n[servers.clock] # first\ncommand = \"trunkline\"\nargs = [\"example\", \"clock\"]\n\n# Logging\n[log]\nlevel = \"warn\"\n\n# the end\n";

#[test]
fn comments_and_order_stay_and_new_servers_follow_the_others() {
    let user = User::new();
    user.has(&user.project("gateway.toml"), OWN);
    user.has(&user.home(".lmstudio/mcp.json"), fixture("lm-studio.json"));
    user.types(&["import", "lm-studio", "--write"]).exits_with(DONE);
    let gateway = user.gateway();
    let (before, after) = OWN.split_once("\n# Logging").unwrap();
    assert!(gateway.starts_with(before), "{gateway}");
    assert!(gateway.ends_with(&format!("\n# Logging{after}")), "{gateway}");
    user.types(&["remove", "hf-mcp-server"]).exits_with(DONE).prints(&["removed"]);
    assert_eq!(user.gateway(), OWN);
}

#[test]
fn servers_that_are_there_already_are_recognised_under_any_name() {
    let user = User::new();
    user.has(
        &user.project("gateway.toml"),
        "[servers.mine]\ncommand = \"npx\"\nargs = [\"-y\", \"pkg\"]\n\n[servers.b]\nurl = \"https://b.example.com/mcp\"\n",
    );
    let servers = r#"{"mcpServers": {
        "theirs": {"command": "npx", "args": ["-y", "pkg"]},
        "b": {"command": "other"},
        "c": {"url": "https://b.example.com/mcp"},
        "d": {"command": "other"}
    }}"#;
    let path = user.project("x.json");
    user.has(&path, servers);
    let path = path.to_str().unwrap();
    user.types(&["import", path]).exits_with(DONE).prints(&[
        "`theirs` is there already, as [servers.mine]",
        "`c` is there already, as [servers.b]",
        "[servers.b-2]\ncommand = \"other\"",
        "`d` is there already, as [servers.b-2]",
    ]);
}

#[test]
fn add_writes_a_command_or_a_url_and_hides_secrets() {
    let user = User::new();
    let add =
        ["add", "files", "--env", "API_KEY=hunter2-add", "--", "npx", "-y", "pkg", "--root=."];
    user.types(&add).exits_with(DONE).prints(&["added [servers.files]", "secrets/files.API_KEY"]);
    let header = "Authorization: Bearer ${env:DOCS_TOKEN}";
    let add = ["add", "docs", "https://docs.example.com/mcp", "--header", header];
    user.types(&add).exits_with(DONE);
    assert_eq!(
        user.gateway(),
        "[servers.files]\ncommand = \"npx\"\nargs = [\"-y\", \"pkg\", \"--root=.\"]\nenv = { API_KEY = \"${file:secrets/files.API_KEY}\" }\n\n[servers.docs]\nurl = \"https://docs.example.com/mcp\"\nheaders = { Authorization = \"Bearer ${env:DOCS_TOKEN}\" }\n"
    );
    assert_eq!(user.secrets(), [("files.API_KEY".into(), 0o600, "hunter2-add".into())]);
    user.types(&["add", "docs", "https://x/"]).exits_with(FAILURE).complains_of(&["already"]);
    user.types(&["add", "a__b", "https://x/"]).exits_with(WRONG_USE).complains_of(&["__"]);
    user.types(&["add", "x"]).exits_with(WRONG_USE);
    user.types(&["add", "x", "ftp://x/"])
        .exits_with(WRONG_USE)
        .complains_of(&["nothing was added"]);
    user.types(&["add", "crm", "http://127.0.0.1:8000", "--openapi"]).exits_with(DONE);
    assert!(
        user.gateway()
            .ends_with("\n[servers.crm]\nkind = \"openapi\"\nurl = \"http://127.0.0.1:8000\"\n")
    );
    user.types(&["add", "x", "--openapi", "--", "npx"]).exits_with(WRONG_USE);
    let dry = user.types(&["add", "more", "--dry-run", "--", "npx"]).exits_with(DONE);
    dry.prints(&["[servers.more]\ncommand = \"npx\"\n"]);
    assert!(!user.gateway().contains("more"));
}

#[test]
fn a_running_gateway_applies_the_changes_of_add_and_remove() {
    let gateway = Process::start("");
    let config = gateway.config();
    let config = config.to_str().unwrap();
    let user = User::new();
    let add = ["add", "clock", "--config", config, "--", "trunkline", "example", "clock"];
    user.types(&add).exits_with(DONE);
    gateway.ready(&["clock"]);
    user.types(&["remove", "clock", "--config", config]).exits_with(DONE);
    eventually("the server is gone", || gateway.server("clock").is_null());
}

#[test]
fn nothing_is_written_that_check_would_refuse() {
    let user = User::new();
    let faulty = "[gateway]\nlimts = 1\n";
    user.has(&user.project("gateway.toml"), faulty);
    let add = user.types(&["add", "a", "https://a.example.com/mcp"]).exits_with(CONFIG_FAULT);
    add.complains_of(&["nothing was written", "gateway.limts"]);
    assert_eq!(user.gateway(), faulty);
    let profile = "[servers.a]\ncommand = \"a\"\n\n[profiles.p]\nservers = [\"a\"]\n";
    user.has(&user.project("gateway.toml"), profile);
    let remove = user.types(&["remove", "a"]).exits_with(CONFIG_FAULT);
    remove.complains_of(&["nothing was written", "profiles.p.servers"]);
    user.types(&["remove", "b"]).exits_with(WRONG_USE).complains_of(&["no [servers.b]"]);
    assert_eq!(user.gateway(), profile);
}

#[test]
fn a_variable_that_is_not_set_here_is_no_reason_to_refuse_an_edit() {
    let user = User::new();
    let config = "[servers.a]\nurl = \"https://a.example.com/mcp\"\nheaders = { X-Team = \"${env:TEAM}\" }\n\n[servers.b]\ncommand = \"b\"\n";
    user.has(&user.project("gateway.toml"), config);
    let path = user.project("x.json");
    user.has(
        &path,
        r#"{"mcpServers": {
            "same": {"url": "https://a.example.com/mcp", "headers": {"X-Team": "${TEAM}"}},
            "new": {"command": "new"}
        }}"#,
    );
    let import = ["import", path.to_str().unwrap(), "--write"];
    user.types(&import).exits_with(DONE).prints(&[
        "`same` is there already, as [servers.a]",
        "added [servers.new]",
        "warning: gateway.toml: the environment variable TEAM is not set here",
    ]);
    user.types(&["remove", "b"]).exits_with(DONE).prints(&["removed", "warning:"]);
    user.has(&user.project("gateway.toml"), config.replace("url", "urll"));
    let ran = user.types(&["import", path.to_str().unwrap()]).exits_with(DONE);
    ran.prints(&[
        "[servers.a] has a fault and is not compared",
        "cannot be written: the rest of gateway.toml is not valid",
    ]);
}

#[test]
fn a_removed_server_takes_only_its_own_comments_and_can_be_looked_at_before() {
    let user = User::new();
    let config = "# About this file\n\n# a's own\n[servers.a]\ncommand = \"a\"\nenv = { PASS = \"hunter2\" }\n\n#[servers.off]\n#command = \"off\"\n";
    user.has(&user.project("gateway.toml"), config);
    let shown = user.types(&["remove", "a", "--dry-run"]).exits_with(DONE);
    shown.prints(&["-[servers.a]\n-command = \"a\"\n-env = { PASS = \"***\" }\n"]);
    assert!(std::fs::read_to_string(user.project("gateway.toml")).unwrap() == config);
    user.types(&["remove", "a"]).exits_with(DONE).prints(&["removed [servers.a]", "before: "]);
    assert_eq!(user.gateway(), "# About this file\n\n#[servers.off]\n#command = \"off\"\n");
    user.types(&["import", "--undo"]).exits_with(DONE).prints(&["gateway.toml: as it was"]);
    assert_eq!(std::fs::read_to_string(user.project("gateway.toml")).unwrap(), config);
    user.types(&["import", "--undo"]).exits_with(DONE).prints(&["nothing to undo"]);
}

#[test]
fn the_configuration_keeps_its_byte_order_mark_and_its_line_ends() {
    let user = User::new();
    let config = format!("\u{feff}{}", OWN.replace('\n', "\r\n"));
    user.has(&user.project("gateway.toml"), &config);
    user.types(&["add", "b", "--", "b"]).exits_with(DONE);
    let added = user.gateway();
    assert!(added.contains("\r\n[servers.b]\r\ncommand = \"b\"\r\n"), "{added}");
    assert_eq!(added.matches('\n').count(), added.matches("\r\n").count());
    user.types(&["remove", "b"]).exits_with(DONE);
    assert_eq!(user.gateway(), config);
}

#[test]
fn the_written_text_equals_the_shown_one() {
    let user = User::new();
    let path = user.project("x.json");
    user.has(&path, r#"{"mcpServers": {"a": {"command": "a"}}}"#);
    let path = path.to_str().unwrap();
    let shown = user.types(&["import", path]).exits_with(DONE).said();
    let hash = shown.split_whitespace().last().unwrap().to_owned();
    let write = ["import", path, "--write", "--expect", &hash];
    user.has(&user.project("x.json"), r#"{"mcpServers": {"a": {"command": "other"}}}"#);
    user.types(&write).exits_with(FAILURE).complains_of(&["not touched"]);
    user.has(&user.project("x.json"), r#"{"mcpServers": {"a": {"command": "a"}}}"#);
    user.types(&write).exits_with(DONE);
    assert!(user.gateway().contains("command = \"a\""));
    // The secrets that move to files are part of the hash.
    let with_key = |key: &str| {
        format!(r#"{{"mcpServers": {{"b": {{"command": "b", "env": {{"API_KEY": "{key}"}}}}}}}}"#)
    };
    user.has(&user.project("x.json"), with_key("one-secret-key"));
    let shown = user.types(&["import", path]).exits_with(DONE).said();
    let hash = shown.split_whitespace().last().unwrap().to_owned();
    let write = ["import", path, "--write", "--expect", &hash];
    user.has(&user.project("x.json"), with_key("another-secret-key"));
    user.types(&write).exits_with(FAILURE).complains_of(&["not touched"]);
    user.has(&user.project("x.json"), with_key("one-secret-key"));
    user.types(&write).exits_with(DONE);
}

#[test]
fn a_server_in_a_comment_is_recognised_by_its_settings() {
    let user = User::new();
    let path = user.project("x.json");
    let server = r#"{"mcpServers": {"a": {"command": "a", "env": {"K_TOKEN": "hunter2"}, "disabled": true}}}"#;
    user.has(&path, server);
    let import = ["import", path.to_str().unwrap(), "--write"];
    user.types(&import).exits_with(DONE).prints(&["added [servers.a], as a comment"]);
    user.types(&import).exits_with(DONE).prints(&["is there already, as a comment"]);
    user.has(&path, server.replace("\"a\", \"env\"", "\"b\", \"env\""));
    user.types(&import).exits_with(DONE).prints(&["added [servers.a-2], as a comment"]);
    let gateway = user.gateway();
    assert!(gateway.contains("#command = \"a\"") && gateway.contains("#command = \"b\""));
}

#[test]
fn an_import_says_which_settings_of_a_known_server_differ() {
    let user = User::new();
    user.has(&user.project("gateway.toml"), "[servers.a]\ncommand = \"a\"\ntimeout = \"5s\"\n");
    let path = user.project("x.json");
    user.has(
        &path,
        r#"{"mcpServers": {"x": {"command": "a", "timeout": 9000, "includeTools": []}}}"#,
    );
    let ran = user.types(&["import", path.to_str().unwrap()]).exits_with(DONE);
    ran.prints(&["as [servers.a], with another value of timeout, tools.deny"]);
}

#[test]
fn add_names_missing_variables_and_takes_values_unchanged() {
    let user = User::new();
    let add = user.types(&["add", "files", "npx"]).exits_with(WRONG_USE);
    add.complains_of(&["`npx` is not a URL", "trunkline add files -- npx"]);
    user.types(&["add", "files", "--env", "LEVEL= a ", "--", "npx"]).exits_with(DONE);
    assert!(user.gateway().contains("env = { LEVEL = \" a \" }"));
    let same = user.types(&["add", "more", "--env", "LEVEL= a ", "--", "npx"]).exits_with(FAILURE);
    same.complains_of(&["has this server already, as [servers.files]"]);
    let twice = user.types(&["add", "x", "https://x/mcp", "--header", "A: 1", "--header", "a: 2"]);
    twice.exits_with(WRONG_USE).complains_of(&["--header: a is given more than once"]);
    let unset = user.types(&["add", "x", "https://x/mcp", "--header", "A: ${env:NONE}"]);
    unset.exits_with(WRONG_USE).complains_of(&["nothing was added", "`NONE` is not set"]);
}

#[test]
fn only_five_backups_stay_for_their_owner_only_and_all_of_them_can_be_undone() {
    let user = User::new();
    let config = user.project("gateway.toml");
    let number = |number: usize| format!("s{number}");
    for added in 1..=7 {
        user.types(&["add", &number(added), "--", "npx", &number(added)]).exits_with(DONE);
    }
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o644)).unwrap();
    user.types(&["remove", &number(1)]).exits_with(DONE);
    let backups = || -> Vec<u32> {
        let entries = std::fs::read_dir(user.project("")).unwrap().map(Result::unwrap);
        let entries = entries.filter(|entry| {
            let name = entry.file_name().to_str().unwrap().to_owned();
            name.contains(".before-trunkline-") || name.contains(".created-by-trunkline-")
        });
        entries.map(|entry| entry.metadata().unwrap().permissions().mode() & 0o777).collect()
    };
    assert_eq!(backups(), [0o600; 5]);
    let servers = || user.gateway().matches("[servers.").count();
    assert_eq!(servers(), 6);
    for left in [7, 6, 5, 4, 3] {
        user.types(&["import", "--undo"]).exits_with(DONE).prints(&["gateway.toml: as it was"]);
        assert_eq!(servers(), left);
        if left == 7 {
            let mode = std::fs::metadata(&config).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o644, "the mode before the last edit");
        }
    }
    user.types(&["import", "--undo"]).exits_with(DONE).prints(&["nothing to undo"]);
    assert!(backups().is_empty());
}

#[test]
fn an_undo_removes_the_unchanged_secrets_of_its_import() {
    let user = User::new();
    let path = user.project("x.json");
    let servers = |keys: &[&str]| {
        let env: Vec<_> = keys.iter().map(|key| format!(r#""{key}": "hunter2-{key}""#)).collect();
        format!(r#"{{"mcpServers": {{"gh": {{"command": "gh", "env": {{{}}}}}}}}}"#, env.join(","))
    };
    user.has(&path, servers(&["A_TOKEN", "B_TOKEN"]));
    let import = ["import", path.to_str().unwrap(), "--write"];
    // An earlier file of the same person stays.
    user.has(&user.project("secrets/own"), "mine");
    user.types(&import).exits_with(DONE).prints(&["secrets/gh.A_TOKEN: written"]);
    assert_eq!(user.secrets().len(), 3);
    user.has(&user.project("secrets/gh.B_TOKEN"), "hunter2-rotated");
    user.types(&["import", "--undo"]).exits_with(DONE).prints(&[
        "gateway.toml: removed, as it was before\n",
        "secrets/gh.A_TOKEN: removed\n",
        "secrets/gh.B_TOKEN: kept, it has changed since\n",
    ]);
    let left = user.secrets();
    let left: Vec<_> = left.iter().map(|(name, _, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(left, [("gh.B_TOKEN", "hunter2-rotated"), ("own", "mine")]);
    // An edit between the import and its undo changes nothing.
    let user = User::new();
    user.has(&user.project("gateway.toml"), OWN);
    let add = ["add", "b", "--env", "API_KEY=hunter2-add", "--", "b"];
    user.types(&add).exits_with(DONE).prints(&["secrets/b.API_KEY: written"]);
    user.types(&["remove", "b"]).exits_with(DONE);
    user.types(&["import", "--undo"]).exits_with(DONE);
    assert_eq!(user.secrets().len(), 1, "the server is back");
    user.types(&["import", "--undo"]).exits_with(DONE).prints(&["secrets/b.API_KEY: removed\n"]);
    assert!(!user.project("secrets").exists());
    let names = std::fs::read_dir(user.project("")).unwrap().map(|it| it.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["gateway.toml"], "neither backups nor lists are left");
    assert_eq!(user.gateway(), OWN);
}
