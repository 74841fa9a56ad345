//! Each client's configuration, read from the client's own location.

use super::*;

/// A client, its file, its fixture, the expected texts in the TOML, and its secrets.
type ClientCase =
    (&'static str, &'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const CLIENTS: &[ClientCase] = &[
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
        "claude-desktop.json",
        &[
            "[servers.filesystem]\ncommand = \"npx\"\nargs = [\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/srv/docs\"]\n",
            "env = { GITHUB_PERSONAL_ACCESS_TOKEN = \"${file:secrets/github.GITHUB_PERSONAL_ACCESS_TOKEN}\" }",
        ],
        &["github.GITHUB_PERSONAL_ACCESS_TOKEN"],
    ),
    (
        "claude-code",
        ".claude.json",
        "claude-code.json",
        &[
            "headers = { Authorization = \"Bearer ${env:DOCS_TOKEN}\" }",
            "transport = \"sse\"",
            "args = [\"mcp-server-postgres\", \"${file:secrets/db.arg-2}\"]",
            "env = { LOG_LEVEL = \"info\" }",
        ],
        &["db.arg-2"],
    ),
    (
        "cursor",
        ".cursor/mcp.json",
        "cursor.json",
        &[
            "headers = { X-API-Key = \"${file:secrets/search.X-API-Key}\" }",
            "[servers.local-tools]",
            "/home/bin/tools\"",
            "args = [\"--token\", \"${env:DOCS_TOKEN}\"]",
            "# it was called `local tools`",
            "# `envFile` has no counterpart",
        ],
        &["search.X-API-Key"],
    ),
    (
        "vscode",
        ".config/Code/User/mcp.json",
        "vscode.json",
        &[
            "[servers.github]\nurl = \"https://api.example.com/mcp\"\n",
            "#[servers.perplexity]",
            "#env = { PERPLEXITY_API_KEY = \"${env:PERPLEXITY_KEY}\" }",
            "# the value of the input `perplexity-key` is read from PERPLEXITY_KEY",
        ],
        &[],
    ),
    (
        "windsurf",
        ".codeium/windsurf/mcp_config.json",
        "windsurf.json",
        &[
            "url = \"https://remote.example.com/mcp\"",
            "tools.deny = [\"delete_all\"]",
            "# not active: it is switched off where it was found\n#[servers.off]\n#command = \"py\"",
        ],
        &[],
    ),
    (
        "codex",
        ".codex/config.toml",
        "codex.toml",
        &[
            "pass_env = [\"LOG_LEVEL\"]",
            "start_timeout = \"20s\"",
            "timeout = \"90500ms\"",
            "tools.allow = [\"read_file\", \"list_directory\"]",
            "X-Region = \"eu-west-1\", Authorization = \"Bearer ${env:DOCS_TOKEN}\"",
        ],
        &["files.API_KEY"],
    ),
    (
        "gemini",
        ".gemini/settings.json",
        "gemini.json",
        &[
            "env = { API_KEY = \"${env:DOCS_TOKEN}\" }",
            "cwd = \"/srv/python\"\ntimeout = \"15s\"",
            "# `trust` has no counterpart",
            "url = \"http://localhost:3000/mcp\"",
            "headers = { Authorization = \"Bearer ${file:secrets/web.Authorization}\" }",
            "tools.allow = [\"read\", \"list\"]\ntools.deny = [\"write\"]",
        ],
        &["web.Authorization"],
    ),
    (
        "zed",
        ".config/zed/settings.json",
        "zed.json",
        &[
            "command = \"some-command\"\nargs = [\"a\", \"b\"]\n",
            "url = \"https://zed.example.com/mcp\"",
        ],
        &["remote-mcp-server.Authorization"],
    ),
    (
        "opencode",
        ".config/opencode/opencode.json",
        "opencode.json",
        &[
            "command = \"npx\"\nargs = [\"-y\", \"@modelcontextprotocol/server-everything\"]",
            "headers = { Authorization = \"Bearer ${env:DOCS_TOKEN}\" }",
        ],
        &["everything.API_SECRET"],
    ),
    (
        "opencode",
        ".config/opencode/opencode.json",
        "opencode-1.json",
        &[
            "command = \"bun\"\nargs = [\"x\", \"my-mcp-command\"]",
            "start_timeout = \"8s\"",
            "#[servers.off]",
            "/home/.config/opencode/./docs.token}\" }",
        ],
        &["local.MY_TOKEN"],
    ),
    (
        "goose",
        ".config/goose/config.yaml",
        "goose.yaml",
        &[
            "[servers.github]\ncommand = \"npx\"",
            "transport = \"streamable\"\ntimeout = \"60s\"\ntools.allow = [\"search\"]",
            "these are parts of Goose itself, not MCP servers: developer",
        ],
        &["github.GITHUB_TOKEN"],
    ),
    (
        "cline",
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        "cline.json",
        &["timeout = \"120s\"", "# `autoApprove` has no counterpart", "transport = \"streamable\""],
        &["local-server.API_KEY"],
    ),
    (
        "lm-studio",
        ".lmstudio/mcp.json",
        "lm-studio.json",
        &["headers = { Authorization = \"Bearer ${file:secrets/hf-mcp-server.Authorization}\" }"],
        &["hf-mcp-server.Authorization"],
    ),
];

#[test]
fn every_clients_servers_are_found_printed_and_written_without_their_secrets() {
    for (client, path, name, words, secrets) in CLIENTS {
        let user = User::new();
        user.has(&user.home(path), fixture(name));
        user.has(&user.home(".config/opencode/docs.token"), "t");
        user.types(&["import"]).exits_with(DONE).prints(&[client, path, "server", "Next:"]);
        user.types(&["import", client]).exits_with(DONE).prints(words);
        assert!(!user.project("gateway.toml").exists() && user.secrets().is_empty());
        user.types(&["import", client, "--write"]).exits_with(DONE).prints(&["added [servers."]);
        let gateway = user.gateway();
        // A note about the whole file is printed and not written.
        for word in words.iter().filter(|word| !word.contains("parts of Goose")) {
            assert!(gateway.contains(word), "{client}: {word:?} in {gateway}");
        }
        let found = user.secrets();
        let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(&names, secrets, "{client}");
        for (name, mode, text) in found {
            assert!(text.contains("hunter2") && mode == 0o600, "{name}: {mode:o}");
        }
        user.types(&["check"]).exits_with(DONE).prints_beside_missing_programs(&["fine"]);
        // A second import adds nothing.
        let again = user.types(&["import", client, "--write"]).exits_with(DONE);
        again.prints(&["already", "nothing to add"]);
        assert_eq!(user.gateway(), gateway, "{client}");
    }
}

#[test]
fn an_exported_client_has_the_gateway_instead_of_its_servers_and_gets_them_back() {
    for (client, path, name, ..) in CLIENTS {
        let user = User::new();
        let file = user.home(path);
        user.has(&file, fixture(name));
        user.has(&user.home(".config/opencode/docs.token"), "t");
        user.types(&["import", client, "--write"]).exits_with(DONE);
        let imported = user.gateway();
        let export = ["export", "--client", client, "--write", "--replace"];
        user.types(&export).exits_with(DONE).prints(&["written"]);
        let after = std::fs::read_to_string(&file).unwrap();
        let gateway_entry =
            if *client == "claude-desktop" { "--connect" } else { "127.0.0.1:8080/mcp" };
        assert!(after.contains(gateway_entry), "{client}: {after}");
        // The imported servers are gone from the client, and the gateway's own entry is not
        // imported.
        let again = user.types(&["import", client]).exits_with(DONE);
        again.prints(&["is this gateway itself", "nothing to add"]);
        user.types(&["export", "--client", client, "--undo"])
            .exits_with(DONE)
            .prints(&["as it was"]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), fixture(name), "{client}");
        // Import, export, import again: the same servers.
        std::fs::remove_file(user.project("gateway.toml")).unwrap();
        std::fs::remove_dir_all(user.project("secrets")).ok();
        user.types(&["import", client, "--write"]).exits_with(DONE);
        assert_eq!(user.gateway(), imported, "{client}");
    }
}

#[test]
fn the_files_of_a_project_are_found_and_their_paths_begin_there() {
    let user = User::new();
    let server = r#"{"mcpServers": {"a": {"command": "./server", "args": ["x"]}}}"#;
    user.has(&user.project(".mcp.json"), server);
    user.types(&["import"]).exits_with(DONE).prints(&["claude-code", "1 server"]);
    let command = format!("command = {:?}", user.project("./server"));
    let cwd = format!("cwd = {:?}", user.project("").to_str().unwrap().trim_end_matches('/'));
    user.types(&["import", "claude-code"]).exits_with(DONE).prints(&[&command, &cwd]);
}

#[test]
fn standard_input_and_any_path_are_read_by_their_form() {
    let user = User::new();
    for (_, _, name, ..) in CLIENTS {
        let ran = user.pipes(&["import", "-"], fixture(name).as_bytes()).exits_with(DONE);
        ran.prints(&["[servers.", "# from standard input"]);
        let path = user.project(&format!("copy of {name}"));
        user.has(&path, fixture(name));
        let ran = user.types(&["import", path.to_str().unwrap()]).exits_with(DONE);
        ran.prints(&["[servers."]);
    }
    let ran = user.pipes(&["import", "-", "--from", "zed"], fixture("zed.json").as_bytes());
    ran.exits_with(DONE).prints(&["[servers.local-mcp-server]"]);
}

#[test]
fn without_anything_to_import_the_programs_are_named() {
    let user = User::new();
    user.types(&["import"]).exits_with(DONE).prints(&["No configuration", "claude-code", "goose"]);
    let none = user.types(&["import", "cursor"]).exits_with(FAILURE);
    none.complains_of(&["Cursor has no configuration here", ".cursor/mcp.json"]);
    user.types(&["import", "excel"]).exits_with(WRONG_USE).complains_of(&["`excel`", "cursor"]);
    let unknown = user.pipes(&["import", "-"], b"{\"a\": 1}").exits_with(CONFIG_FAULT);
    unknown.complains_of(&["no MCP servers in a known form", "--from"]);
}

#[test]
fn servers_that_a_client_does_not_start_are_comments() {
    let user = User::new();
    user.has(
        &user.home(".gemini/settings.json"),
        r#"{"mcp": {"allowed": ["a", "b"], "excluded": ["b"]},
            "mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}, "c": {"command": "c"}}}"#,
    );
    let ran = user.types(&["import", "gemini"]).exits_with(DONE);
    ran.prints(&["\n[servers.a]", "#[servers.b]", "#[servers.c]"]);
    let project = user.project("");
    let project = project.to_str().unwrap().trim_end_matches('/');
    user.has(
        &user.project(".mcp.json"),
        r#"{"mcpServers": {"d": {"command": "d"}, "e": {"command": "e"}, "f": {"command": "f"}}}"#,
    );
    let state = format!(r#"{{"projects": {{"{project}": {{"disabledMcpjsonServers": ["d"]}}}}}}"#);
    user.has(&user.home(".claude.json"), state);
    let settings = r#"{"disabledMcpjsonServers": ["e"]}"#;
    user.has(&user.project(".claude/settings.local.json"), settings);
    let ran = user.types(&["import", "claude-code"]).exits_with(DONE);
    ran.prints(&["#[servers.d]", "#[servers.e]", "\n[servers.f]"]);
    user.has(
        &user.home(".claude.json"),
        format!(
            r#"{{"mcpServers": {{"g": {{"command": "g"}}}},
                "projects": {{"{project}": {{"disabledMcpServers": ["g"]}}}}}}"#
        ),
    );
    user.types(&["import", "claude-code"]).exits_with(DONE).prints(&["#[servers.g]"]);
}

#[test]
fn an_empty_list_of_tools_allows_none() {
    let user = User::new();
    let server = r#"{"mcpServers": {"a": {"command": "a", "includeTools": []}}}"#;
    user.has(&user.home(".gemini/settings.json"), server);
    user.types(&["import", "gemini"]).exits_with(DONE).prints(&["tools.deny = [\"*\"]"]);
}

#[test]
fn variables_of_codex_and_paths_with_the_home_folder_are_understood() {
    let user = User::new();
    user.has(
        &user.home(".codex/config.toml"),
        "[mcp_servers.a]\ncommand = \"a\"\nenv_vars = [\"ONE\", { name = \"TWO\", source = \"remote\" }]\n",
    );
    user.types(&["import", "codex"]).exits_with(DONE).prints(&[
        "pass_env = [\"ONE\", \"TWO\"]",
        "the variable TWO comes from `remote`: here it is the gateway's own",
    ]);
    user.has(
        &user.home(".claude.json"),
        r#"{"mcpServers": {
            "home": {"command": "${HOME}/bin/x", "cwd": "${HOME}"},
            "other": {"command": "${TOOLS}/x"}
        }}"#,
    );
    let command = format!("command = {:?}", user.home("bin/x"));
    user.types(&["import", "claude-code"]).exits_with(DONE).prints(&[
        &command,
        "not active: `command` refers to a variable",
        "#[servers.other]\n#command = \"${TOOLS}/x\"",
    ]);
}

#[test]
fn the_settings_of_vs_code_are_not_taken_for_another_programs() {
    let user = User::new();
    let path = user.project("settings.json");
    user.has(
        &path,
        r#"{"editor.tabSize": 2, "mcp": {"inputs": [], "servers": {"a": {"command": "a", "args": ["x"]}}}}"#,
    );
    let path = path.to_str().unwrap();
    let ran = user.types(&["import", path]).exits_with(DONE);
    ran.prints(&["[servers.a]\ncommand = \"a\"\nargs = [\"x\"]"]);
    // The program named on the command line counts.
    let none = user.types(&["import", path, "--from", "zed"]).exits_with(DONE);
    none.prints(&["nothing to add"]);
}

#[test]
fn an_own_entry_is_recognised_wherever_the_gateway_is() {
    let user = User::new();
    let file = user.home(".cursor/mcp.json");
    for (entry, is_own) in [
        (r#""trunkline": {"url": "https://mcp.example.com/mcp/support"}"#, true),
        (
            r#""g": {"url": "https://x/mcp", "headers": {"Authorization": "Bearer ${env:TRUNKLINE_KEY}"}}"#,
            true,
        ),
        (
            r#""g": {"command": "/opt/trunkline", "args": ["stdio", "--connect", "https://x/mcp"]}"#,
            true,
        ),
        (r#""g": {"url": "http://localhost:8080/mcp"}"#, true),
        (r#""g": {"url": "http://localhost:8080/mcp-other"}"#, false),
        (r#""g": {"url": "http://localhost:8080/mcp/a/b"}"#, false),
        (r#""g": {"url": "http://localhost:9090/mcp"}"#, false),
        (r#""g": {"url": "https://mcp.example.com/mcp"}"#, false),
    ] {
        user.has(&file, format!("{{\"mcpServers\": {{{entry}}}}}"));
        let said = user.types(&["import", "cursor"]).exits_with(DONE).said();
        assert_eq!(said.contains("is this gateway itself"), is_own, "{entry}: {said}");
    }
}
