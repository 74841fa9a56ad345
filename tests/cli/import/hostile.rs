//! Files that no program would write. The error names the fault and its place, and quotes no value.

use super::*;

#[track_caller]
fn is_refused(user: &User, name: &str, text: impl AsRef<[u8]>, words: &[&str]) {
    let path = user.project(name);
    user.has(&path, text);
    let path = path.to_str().unwrap();
    let ran = user.types(&["import", path, "--write"]).exits_with(CONFIG_FAULT);
    ran.complains_of(&[&[path], words].concat());
    assert!(!user.project("gateway.toml").exists());
}

#[test]
fn files_that_are_too_large_too_deep_or_no_text_are_refused_with_their_place() {
    let user = User::new();
    is_refused(&user, "large.json", vec![b' '; 33 << 20], &["at most 33554432 bytes"]);
    is_refused(&user, "deep.json", "[".repeat(100_000), &[":1:", "nesting depth"]);
    let braces = "{\"a\":".repeat(100_000);
    is_refused(&user, "deeper.json", braces, &[":1:", "nesting depth"]);
    let many = format!("[{}0]", "0,".repeat(2_000_001));
    is_refused(&user, "many.json", many, &[":1:", "at most 2000000 values"]);
    is_refused(&user, "deep.yaml", "- ".repeat(100_000), &[":1:", "depth"]);
    is_refused(&user, "deep.toml", format!("a = {}", "[".repeat(100_000)), &[":1:", "recursion"]);
    is_refused(&user, "bytes.json", b"{\n\"\xff\": 1}", &[":2:", "UTF-8"]);
    is_refused(
        &user,
        "twice.json",
        "{\"mcpServers\": {\n\"a\": {},\n\"a\": {}}}",
        &[":3:", "duplicate key"],
    );
    is_refused(&user, "twice.yaml", "mcp:\n  servers: {}\nmcp: 1\n", &[":3:", "duplicate"]);
    is_refused(&user, "cut.json", "{\"mcpServers\": {\n", &["unterminated object"]);
    let word = "{\"mcpServers\": {\"a\": 1}, \"x\": hunter2}";
    is_refused(&user, "list.json", word, &[":1:", "unexpected"]);
    let kind = "{\"mcpServers\": [\"hunter2\"]}";
    is_refused(
        &user,
        ".mcp.json",
        kind,
        &["mcpServers: expected a table of servers, found a list"],
    );
}

#[test]
fn a_yaml_bomb_is_refused_before_it_expands() {
    let user = User::new();
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
    for (next, last) in "bcdefghijkl".chars().zip("abcdefghijk".chars()) {
        let aliases = vec![format!("*{last}"); 10].join(", ");
        bomb.push_str(&format!("{next}: &{next} [{aliases}]\n"));
    }
    bomb.push_str("mcp: { servers: *l }\n");
    is_refused(&user, "bomb.yaml", bomb, &["nodes"]);
}

#[test]
fn other_than_regular_files_are_refused_and_a_link_to_one_is_read() {
    let user = User::new();
    let pipe = user.project("pipe.json");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let ran = user.types(&["import", pipe.to_str().unwrap()]).exits_with(CONFIG_FAULT);
    ran.complains_of(&["found a named pipe"]);
    let link = user.home(".cursor/mcp.json");
    user.has(&user.home("dotfiles/mcp.json"), fixture("cursor.json"));
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(user.home("dotfiles/mcp.json"), link).unwrap();
    user.types(&["import", "cursor"]).exits_with(DONE).prints(&["[servers.search]"]);
}

#[test]
fn a_server_that_cannot_be_read_is_left_out_with_its_reason_and_the_others_stay() {
    let user = User::new();
    let path = user.project("x.json");
    user.has(
        &path,
        r#"{"mcpServers": {
            "none": {"env": {"A": "b"}},
            "args": {"command": "x", "args": "hunter2", "env": ["hunter2"]},
            "list": 7,
            "line": {"command": "x", "args": ["a\n[servers.evil]\ncommand = \"rm\""]},
            "na\nme\u001b[31m": {"command": "y\n\u001b[31m"},
            "reserved": {"url": "https://r.example.com/mcp", "headers": {"Host": "evil"}},
            "scheme": {"url": "file:///etc/passwd"},
            "good": {"command": "good"}
        }}"#,
    );
    let path = path.to_str().unwrap();
    let ran = user.types(&["import", path, "--write"]).exits_with(DONE);
    ran.prints(&[
        "`none` is left out: mcpServers.none.command: expected a command or a URL, found neither",
        "`args` is left out: mcpServers.args.env: expected a table of texts, found a list",
        "`list` is left out: mcpServers.list: expected an object, found a number",
        "added [servers.good]",
        "added [servers.reserved], as a comment",
        "added [servers.scheme], as a comment",
    ]);
    let gateway = user.gateway();
    assert!(!gateway.contains("\n[servers.evil]") && !gateway.contains('\u{1b}'), "{gateway}");
    user.types(&["check"]).exits_with(DONE).prints_beside_missing_programs(&["fine"]);
}

#[test]
fn thousands_of_servers_are_imported_in_seconds_and_the_gateway_reads_the_file() {
    let user = User::new();
    // Half of them have names that map to the same one.
    let servers = (0..2000).map(|number| {
        let name = format!(
            "{}{number}",
            if number % 2 == 0 { "s" } else { "a-name-of-32-characters-or-more-" }
        );
        format!("\"{name}\": {{\"command\": \"npx\", \"args\": [\"-y\", \"server-{number}\"]}}")
    });
    let servers: Vec<_> = servers.collect();
    user.has(&user.project("x.json"), format!("{{\"mcpServers\": {{{}}}}}", servers.join(",")));
    let began = std::time::Instant::now();
    user.types(&["import", "x.json", "--write"]).exits_with(DONE);
    let took = began.elapsed();
    // Without optimization, on a machine with other work.
    assert!(took < std::time::Duration::from_mins(2), "{took:?}");
    assert_eq!(user.gateway().matches("[servers.").count(), 2000);
    user.types(&["check"]).exits_with(DONE);
}

#[test]
fn a_configuration_that_the_gateway_would_not_read_is_not_written() {
    let user = User::new();
    let argument = "x".repeat(60 << 10);
    let servers = (0..80).map(|number| {
        format!("\"s{number}\": {{\"command\": \"c{number}\", \"args\": [\"{argument}\"]}}")
    });
    let servers: Vec<_> = servers.collect();
    user.has(&user.project("x.json"), format!("{{\"mcpServers\": {{{}}}}}", servers.join(",")));
    let shown = user.types(&["import", "x.json"]).exits_with(DONE);
    assert!(shown.said().contains("It cannot be written"));
    let refused = user.types(&["import", "x.json", "--write"]).exits_with(CONFIG_FAULT);
    refused.complains_of(&["nothing was written", "at most 4194304"]);
    assert!(!user.project("gateway.toml").exists());
    // A secret that is too large for a file of its own, or empty, is a fault of its server.
    let large = "hunter2-".repeat(10 << 10);
    user.has(
        &user.project("y.json"),
        format!("{{\"mcpServers\": {{\"s\": {{\"command\": \"c\", \"env\": {{\"API_KEY\": \"{large}\"}}}}}}}}"),
    );
    user.types(&["import", "y.json", "--write"]).exits_with(DONE);
    user.types(&["check"]).exits_with(DONE);
}
