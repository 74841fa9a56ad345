//! What an export does to a client's file, and takes back.

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
    // Secrets around the change, or removed by it, are not shown.
    user.types(&["import", "cursor", "--write"]).exits_with(DONE);
    let shown = user.types(&["export", "--client", "cursor", "--replace"]).exits_with(DONE);
    shown.prints(&["-      \"headers\": { \"X-API-Key\": \"***\" }"]);
}

#[test]
fn a_terminal_obeys_nothing_that_a_clients_file_contains() {
    let user = User::new();
    user.has(&user.home(CURSOR), "{\n  // \u{1b}[31m\u{202e}\n}\n");
    let shown = user.types(&["export", "--client", "cursor"]).exits_with(DONE).said();
    assert!(!shown.contains(['\u{1b}', '\u{202e}']) && shown.contains("\\u{1b}[31m"), "{shown}");
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
    // Nor is one that changed after the export restored.
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
    assert_eq!(std::fs::metadata(backup).unwrap().permissions().mode() & 0o777, 0o640);
    user.types(&["export", "--client", "cursor", "--undo"]).exits_with(DONE);
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "{}\n");

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
        let ran = user.types(&["export", "--client", client]).exits_with(FAILURE);
        ran.complains_of(&["--key-file"]);
    }
    user.has(&user.project("ci.key"), "hunter2-key\n");
    let args = ["export", "--client", "claude-desktop", "--key-file", "ci.key", "--write"];
    user.types(&args).exits_with(DONE).prints(&["\"TRUNKLINE_KEY\": \"***\"", "stdio"]);
    let written = user.home(".config/Claude/claude_desktop_config.json");
    let mode = std::fs::metadata(&written).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(std::fs::read_to_string(written).unwrap().contains("hunter2-key"));
    let args = ["export", "--client", "cursor", "--profile", "tme"];
    user.types(&args).exits_with(FAILURE).complains_of(&["no profile `tme`"]);
    user.types(&["export", "--client", "ava"]).exits_with(FAILURE).complains_of(&["no config"]);
    user.types(&["export", "--client", "x"]).exits_with(FAILURE).complains_of(&["cursor"]);
}
