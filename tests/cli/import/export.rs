//! Effects of an export on a client's file, and their reversal.

use super::*;

const CURSOR: &str = ".cursor/mcp.json";

#[test]
fn an_export_is_shown_as_a_diff_and_written_only_when_asked() {
    let user = User::new();
    let file = user.home(CURSOR);
    user.has(&file, fixture("cursor.json"));
    let shown = user.types(&["export", "--client", "cursor"]).exits_with(DONE);
    shown.prints(&[
        "+    \"trunkline\": {",
        "+      \"url\": \"http://127.0.0.1:8080/mcp\"",
        "--write --expect",
    ]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), fixture("cursor.json"));
    // Secrets near the change, or removed by it, are hidden.
    user.types(&["import", "cursor", "--write"]).exits_with(DONE);
    let shown = user.types(&["export", "--client", "cursor", "--replace"]).exits_with(DONE);
    shown.prints(&["-      \"headers\": { \"X-API-Key\": \"***\" }"]);
}

#[test]
fn a_terminal_obeys_nothing_that_a_clients_file_contains() {
    let user = User::new();
    user.has(&user.home(CURSOR), "{\n  \"\u{202e}a\": 1\n}\n");
    let shown = user.types(&["export", "--client", "cursor"]).exits_with(DONE).said();
    assert!(!shown.contains('\u{202e}') && shown.contains("\\u{202e}a"), "{shown}");
}

#[test]
fn a_file_that_changed_since_it_was_shown_is_not_touched() {
    let user = User::new();
    let file = user.home(CURSOR);
    user.has(&file, fixture("cursor.json"));
    let shown = user.types(&["export", "--client", "cursor"]).exits_with(DONE).said();
    let digest = shown.split_whitespace().last().unwrap().to_owned();
    let changed = fixture("cursor.json").replace("envFile", "other");
    user.has(&file, &changed);
    let write = ["export", "--client", "cursor", "--write", "--expect", &digest];
    user.types(&write).exits_with(FAILURE).complains_of(&["not touched"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), changed);
    user.has(&file, fixture("cursor.json"));
    user.types(&write).exits_with(DONE).prints(&["written", "before: "]);
    // A file that changed after the export is not restored either.
    let exported = std::fs::read_to_string(&file).unwrap();
    let edited = exported.replace("search.example.com", "find.example.com");
    user.has(&file, &edited);
    let undo = ["export", "--client", "cursor", "--undo"];
    user.types(&undo).exits_with(FAILURE).complains_of(&["not touched", ".before-trunkline-"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), edited);
    user.has(&file, &exported);
    user.types(&["export", "--undo"]).exits_with(DONE).prints(&["as it was"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), fixture("cursor.json"));
    user.types(&undo).exits_with(DONE).prints(&["nothing to undo"]);
}

#[test]
fn modes_and_links_stay_and_a_new_file_goes_away_again() {
    let user = User::new();
    let (file, target) = (user.home(CURSOR), user.home("dotfiles/cursor.json"));
    user.has(&target, "{}\n");
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&target, &file).unwrap();
    user.types(&["export", "--client", "cursor", "--write"]).exits_with(DONE);
    assert!(file.symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read_to_string(&target).unwrap().contains("trunkline"));
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
    let backup = std::fs::read_dir(file.parent().unwrap()).unwrap().map(Result::unwrap);
    let backup = backup.map(|entry| entry.path()).find(|path| *path != file).unwrap();
    assert_eq!(std::fs::metadata(backup).unwrap().permissions().mode() & 0o777, 0o600);
    user.types(&["export", "--client", "cursor", "--undo"]).exits_with(DONE);
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "{}\n");
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);

    user.types(&["export", "--client", "zed", "--write"]).exits_with(DONE);
    assert!(user.home(".config/zed/settings.json").exists());
    user.types(&["export", "--client", "zed", "--undo"]).exits_with(DONE).prints(&["removed"]);
    assert_eq!(std::fs::read_dir(user.home(".config/zed")).unwrap().count(), 0);
}

#[test]
fn profiles_keys_and_addresses_are_part_of_the_entry() {
    let user = User::new();
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let gateway = format!(
        "[gateway]\nlisten = \"0.0.0.0:9000\"\nallowed_hosts = [\"mcp.example.com\"]\n\n[profiles.time]\n\n[clients.ci]\nkey = \"{hash}\"\n"
    );
    user.has(&user.project("gateway.toml"), gateway);
    let export = |client: &str| {
        let args = ["export", "--client", client, "--profile", "time"];
        user.types(&args).exits_with(DONE).said()
    };
    for (client, words) in [
        ("claude-code", vec!["http://mcp.example.com:9000/mcp/time", "Bearer ${TRUNKLINE_KEY}"]),
        ("vscode", vec!["\"servers\"", "Bearer ${env:TRUNKLINE_KEY}"]),
        ("windsurf", vec!["serverUrl"]),
        ("gemini", vec!["httpUrl", "Bearer $TRUNKLINE_KEY"]),
        ("opencode", vec!["\"type\": \"remote\"", "Bearer {env:TRUNKLINE_KEY}"]),
        ("codex", vec!["+bearer_token_env_var = \"TRUNKLINE_KEY\""]),
        ("goose", vec!["+    uri: \"http://mcp.example.com:9000/mcp/time\""]),
        ("cline", vec!["streamableHttp"]),
    ] {
        contains_all(export(client).as_bytes(), &words);
    }
    for client in ["claude-desktop", "zed", "lm-studio"] {
        let ran = user.types(&["export", "--client", client]).exits_with(WRONG_USE);
        ran.complains_of(&["--key-file"]);
    }
    user.has(&user.project("ci.key"), "hunter2-key\n");
    let args = ["export", "--client", "claude-desktop", "--key-file", "ci.key", "--write"];
    user.types(&args).exits_with(DONE).prints(&["\"TRUNKLINE_KEY\": \"***\"", "stdio"]);
    let written = user.home(".config/Claude/claude_desktop_config.json");
    let mode = std::fs::metadata(&written).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(std::fs::read_to_string(written).unwrap().contains("hunter2-key"));
    let url = ["export", "--client", "cursor", "--url", "ftp://x"];
    user.types(&url).exits_with(WRONG_USE).complains_of(&["--url: expected an http or https URL"]);
    let args = ["export", "--client", "cursor", "--profile", "tme"];
    user.types(&args).exits_with(WRONG_USE).complains_of(&["no profile `tme`"]);
    user.types(&["export", "--client", "ava"]).exits_with(WRONG_USE).complains_of(&["no config"]);
    let unknown = user.types(&["export", "--client", "x"]).exits_with(WRONG_USE);
    unknown.complains_of(&["goose, cline, lm-studio\n"]);
}

#[test]
fn exports_in_a_row_keep_every_version_and_undo_goes_back_through_all() {
    let user = User::new();
    let file = user.home(CURSOR);
    user.has(&file, fixture("cursor.json"));
    user.has(&user.project("gateway.toml"), "[profiles.a]\n\n[profiles.b]\n");
    let write = ["export", "--client", "cursor", "--write"];
    for profile in ["a", "b", "a"] {
        user.types(&[&write[..], &["--profile", profile]].concat()).exits_with(DONE);
    }
    let again = user.types(&[&write[..], &["--profile", "a"]].concat()).exits_with(DONE);
    again.prints(&["is up to date"]);
    for profile in ["/mcp/b\"", "/mcp/a\"", ""] {
        user.types(&["export", "--undo"]).exits_with(DONE).prints(&["as it was"]);
        assert!(std::fs::read_to_string(&file).unwrap().contains(profile));
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), fixture("cursor.json"));
}

#[test]
fn only_the_entry_that_was_imported_is_replaced_and_not_another_of_its_name() {
    let user = User::new();
    let folder = std::fs::canonicalize(user.project("")).unwrap();
    let folder = folder.to_str().unwrap();
    let file = user.home(".claude.json");
    user.has(
        &file,
        format!(
            r#"{{"mcpServers": {{"a": {{"command": "mine"}}}},
            "projects": {{"{folder}": {{"mcpServers": {{"a": {{"command": "theirs"}}}}}}}}}}"#
        ),
    );
    let config = format!("[servers.a]\ncommand = \"theirs\"\ncwd = \"{folder}\"\n");
    user.has(&user.project("gateway.toml"), config);
    let export = ["export", "--client", "claude-code", "--replace", "--write"];
    user.types(&export).exits_with(DONE);
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(after.contains("mine") && !after.contains("theirs"), "{after}");
}

#[test]
fn an_entry_that_shows_fewer_tools_is_not_replaced() {
    let user = User::new();
    let file = user.home(".gemini/settings.json");
    user.has(
        &file,
        r#"{"mcpServers": {"a": {"command": "a", "includeTools": ["read"]}, "b": {"command": "b"}}}"#,
    );
    user.has(
        &user.project("gateway.toml"),
        "[servers.a]\ncommand = \"a\"\n\n[servers.b]\ncommand = \"b\"\n",
    );
    let export = ["export", "--client", "gemini", "--replace", "--write"];
    let ran = user.types(&export).exits_with(DONE);
    ran.prints(&["`a` stays: tools.allow of [servers.a] would show other tools"]);
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(after.contains("includeTools") && !after.contains("\"b\""), "{after}");
}

#[test]
fn an_entry_with_hidden_tools_is_not_replaced() {
    let user = User::new();
    let file = user.home(CURSOR);
    user.has(&file, r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}"#);
    user.has(
        &user.project("gateway.toml"),
        "[servers.a]\ncommand = \"a\"\n[servers.a.tools]\nallow = [\"one\"]\n\n[servers.b]\ncommand = \"b\"\n\n[profiles.p]\nservers = [\"a\"]\n",
    );
    let export = ["export", "--client", "cursor", "--replace"];
    let ran = user.types(&export).exits_with(DONE);
    ran.prints(&["`a` stays: tools.allow of [servers.a] would show other tools"]);
    let of_profile = user.types(&[&export[..], &["--profile", "p", "--write"]].concat());
    of_profile.exits_with(DONE).prints(&["`b` stays: profile p does not show all of it"]);
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(after.contains("\"a\"") && after.contains("\"b\""), "{after}");
}

#[test]
fn a_file_keeps_its_byte_order_mark_and_its_line_ends() {
    let user = User::new();
    let file = user.home(CURSOR);
    let text = format!("\u{feff}{}", fixture("cursor.json").replace('\n', "\r\n"));
    user.has(&file, &text);
    user.types(&["export", "--client", "cursor", "--write"]).exits_with(DONE);
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(after.starts_with("\u{feff}{\r\n") && after.contains("trunkline"), "{after}");
    assert_eq!(after.matches('\n').count(), after.matches("\r\n").count());
    user.types(&["export", "--undo"]).exits_with(DONE);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn a_file_that_gets_a_key_is_for_its_owner_only() {
    let user = User::new();
    let file = user.home(".config/zed/settings.json");
    user.has(&file, "{}\n");
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode));
    mode(0o644).unwrap();
    user.has(&user.project("zed.key"), "hunter2-key\n");
    let export = ["export", "--client", "zed", "--key-file", "zed.key", "--write"];
    user.types(&export).exits_with(DONE).prints(&["only its owner can read it"]);
    let found = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(found(), 0o600);
    user.types(&["export", "--undo"]).exits_with(DONE);
    assert_eq!(found(), 0o644);
}

#[test]
fn an_undo_reports_every_file_and_restores_all_that_it_can() {
    let user = User::new();
    for client in ["cursor", "zed"] {
        user.types(&["export", "--client", client, "--write"]).exits_with(DONE);
    }
    user.has(&user.home(CURSOR), "{ }");
    let ran = user.types(&["export", "--undo"]).exits_with(FAILURE);
    contains_all(&ran.0.stdout, &["zed/settings.json: removed"]);
    contains_all(&ran.0.stderr, &["cursor/mcp.json has changed since", ".created-by-trunkline-"]);
    for option in ["--write", "--replace", "--profile=x"] {
        user.types(&["export", "--undo", option]).exits_with(WRONG_USE);
    }
}

#[test]
fn a_file_in_the_current_folder_is_named_by_its_name_alone() {
    let user = User::new();
    user.has(&user.project("mcp.json"), "{}\n");
    let export = ["export", "--client", "cursor", "--file", "mcp.json"];
    user.types(&[&export[..], &["--write"]].concat()).exits_with(DONE);
    user.has(&user.project("mcp.json"), "{ }\n");
    let undo = [&export[..], &["--undo"]].concat();
    user.types(&undo).exits_with(FAILURE).complains_of(&["mcp.json.before-trunkline-1-"]);
}

#[test]
fn opencodes_entry_is_written_in_the_form_of_the_file() {
    let user = User::new();
    let file = user.home(".config/opencode/opencode.json");
    user.has(&file, fixture("opencode-1.json"));
    user.has(&user.home(".config/opencode/docs.token"), "t");
    user.types(&["import", "opencode", "--write"]).exits_with(DONE);
    let export = ["export", "--client", "opencode", "--replace", "--write"];
    user.types(&export).exits_with(DONE);
    let after: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let servers: Vec<_> = after["mcp"].as_object().unwrap().keys().collect();
    assert_eq!(servers, ["off", "trunkline"]);
}

#[test]
fn a_server_of_the_users_own_is_not_overwritten() {
    let user = User::new();
    let file = user.home(CURSOR);
    let own = r#"{"mcpServers": {"tickets": {"command": "tickets"}}}"#;
    user.has(&file, own);
    user.has(&user.project("gateway.toml"), "");
    let export = ["export", "--client", "cursor", "--name", "tickets", "--write"];
    let refused = user.types(&export).exits_with(WRONG_USE);
    refused.complains_of(&["Cursor has another server `tickets`", "--name NAME", "--replace"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), own);
    // A server that the gateway already has is replaced on request, and an entry for the gateway
    // itself is updated.
    user.has(&user.project("gateway.toml"), "[servers.tickets]\ncommand = \"tickets\"\n");
    user.types(&[&export[..], &["--replace"]].concat()).exits_with(DONE);
    user.types(&[&export[..], &["--url", "https://gateway.example.com/mcp"]].concat())
        .exits_with(DONE);
    assert!(std::fs::read_to_string(&file).unwrap().contains("https://gateway.example.com/mcp"));
}

#[test]
fn a_foreign_entry_that_is_called_trunkline_is_not_overwritten() {
    for foreign in [
        r#"{"command": "other"}"#,
        r#"{"url": "https://other.example.com/mcp"}"#,
        r#"{"url": "http://127.0.0.1:9/sse"}"#,
        r#"{"command": "sh", "args": ["-c", "trunkline stdio"]}"#,
    ] {
        let user = User::new();
        let text = format!(r#"{{"mcpServers": {{"trunkline": {foreign}}}}}"#);
        user.has(&user.home(CURSOR), &text);
        let refused = user.types(&["export", "--client", "cursor", "--write"]);
        refused.exits_with(WRONG_USE).complains_of(&["another server `trunkline`"]);
        assert_eq!(std::fs::read_to_string(user.home(CURSOR)).unwrap(), text);
    }
    // The gateway's own entry is updated, independent of its earlier address.
    for own in [
        r#"{"url": "http://localhost:7000/mcp/support"}"#,
        r#"{"url": "https://a.example.com/mcp", "headers": {"Authorization": "Bearer ${env:TRUNKLINE_KEY}"}}"#,
        r#"{"command": "trunkline", "args": ["stdio"]}"#,
    ] {
        let user = User::new();
        user.has(&user.home(CURSOR), format!(r#"{{"mcpServers": {{"trunkline": {own}}}}}"#));
        user.types(&["export", "--client", "cursor", "--write"]).exits_with(DONE);
    }
}

#[test]
fn a_number_that_is_a_secret_is_not_shown() {
    let user = User::new();
    user.has(
        &user.home(CURSOR),
        r#"{"mcpServers":{"a":{"command":"x","args":["--password",72681234,"--port",8080]}}}"#,
    );
    user.types(&["import", "cursor", "--write"]).exits_with(DONE);
    let shown = user.types(&["export", "--client", "cursor", "--replace"]).exits_with(DONE);
    let said = shown.said();
    assert!(!said.contains("72681234"), "{said}");
}
