//! What `import --write`, `add` and `remove` do to a configuration that a person wrote.

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
    user.types(&["add", "x", "ftp://x/"]).exits_with(FAILURE).complains_of(&["nothing was added"]);
    let dry = user.types(&["add", "more", "--dry-run", "--", "npx"]).exits_with(DONE);
    dry.prints(&["[servers.more]\ncommand = \"npx\"\n"]);
    assert!(!user.gateway().contains("more"));
}

#[test]
fn a_running_gateway_takes_up_what_add_and_remove_write() {
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
    let add = user.types(&["add", "a", "https://a.example.com/mcp"]).exits_with(FAILURE);
    add.complains_of(&["nothing was written", "gateway.limts"]);
    assert_eq!(user.gateway(), faulty);
    let profile = "[servers.a]\ncommand = \"a\"\n\n[profiles.p]\nservers = [\"a\"]\n";
    user.has(&user.project("gateway.toml"), profile);
    let remove = user.types(&["remove", "a"]).exits_with(FAILURE);
    remove.complains_of(&["nothing was written", "profiles.p.servers"]);
    user.types(&["remove", "b"]).exits_with(FAILURE).complains_of(&["no [servers.b]"]);
    assert_eq!(user.gateway(), profile);
}
