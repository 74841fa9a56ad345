//! The commands and claims in the documentation are correct.
#![allow(
    clippy::disallowed_methods,
    reason = "the crate's clock is its own: this measures from outside"
)]
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "the helpers of a test")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_readmes_commands_do_what_it_says() {
    let page = Page::open("README.md");
    let place = Place::new();
    let mut gateway = None;
    for block in page.blocks("sh") {
        match block.text.trim() {
            // The same program, built already.
            "cargo run --release -- serve" => gateway = Some(place.serve()),
            "./test.sh" => is_what_continuous_integration_runs(),
            text if text.starts_with("claude mcp add ") => assert!(text.ends_with(URL), "{text}"),
            other => panic!("README.md:{}: what does this do? {other}", block.line),
        }
    }
    let _gateway = gateway.expect("the first command starts the gateway");
    page.check_consoles(&place);
}

#[test]
fn the_operators_page_does_what_it_says() {
    let place = Place::new();
    let _gateway = place.serve();
    Page::open("docs/running.md").check_consoles(&place);
}

#[test]
fn the_bench_page_does_what_it_says() {
    let place = Place::new();
    let _gateway = place.serve();
    Page::open("docs/bench.md").check_consoles(&place);
}

#[test]
fn the_import_page_does_what_it_says() {
    let page = Page::open("docs/import.md");
    let place = Place::new();
    let cursor = place.path("home/.cursor/mcp.json");
    std::fs::create_dir_all(cursor.parent().expect("a folder")).unwrap();
    std::fs::write(cursor, &page.blocks("json").first().expect("the client's file").text).unwrap();
    page.check_consoles(&place);
}

#[test]
fn the_openapi_page_does_what_it_says() {
    Page::open("docs/openapi.md").check_consoles(&Place::new());
}

#[test]
fn the_readmes_settings_can_be_pasted() {
    let page = Page::open("README.md");
    let agents = page.blocks("json");
    assert!(agents.len() >= 2, "Claude Code's and VS Code's");
    for block in agents {
        let text = block.text;
        let _: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let by_command = text.contains("\"command\": \"trunkline\", \"args\": [\"stdio\"");
        assert!(by_command || text.contains(&format!("\"{URL}\"")), "{text}");
    }
    for block in page.blocks("toml") {
        let _: toml::Table = block.text.parse().expect("it is TOML");
    }
    for page in [page, Page::open("docs/openapi.md")] {
        for block in page.blocks("toml gateway") {
            let place = Place::new();
            std::fs::write(place.path("pasted.toml"), &block.text).unwrap();
            let done = place.run("trunkline check --config pasted.toml");
            assert!(done.status.success(), "{}:{}: {done:?}", page.name, block.line);
        }
    }
}

#[test]
fn the_settings_on_the_page_about_events_can_be_pasted() {
    let blocks = Page::open("docs/events.md").blocks("toml gateway");
    assert!(blocks.len() >= 3, "a webhook, a program and a file");
    for block in blocks {
        let place = Place::new();
        std::fs::write(place.path("pasted.toml"), &block.text).unwrap();
        let done = place.run("trunkline check --config pasted.toml");
        assert!(done.status.success(), "docs/events.md:{}: {done:?}", block.line);
    }
}

#[test]
fn every_setting_to_try_in_the_shipped_configuration_works() {
    let place = Place::new();
    place.rewrite(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with([' ', ':']) => setting.to_owned(),
        _ => line.to_owned(),
    });
    assert!(place.run("trunkline cert").status.success());
    let done = place.run("trunkline check");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn the_shipped_tls_line_serves_https_with_the_files_of_cert() {
    let place = Place::new();
    place.rewrite(|line| line.replace("#tls = ", "tls = "));
    assert!(place.run("trunkline cert").status.success());
    let _gateway = place.serve();
    let done = place.run(
        "curl -s --cacert certs/ca.pem -o /dev/null -w '%{http_code} %{ssl_verify_result}' \
         -d '{}' -H 'Content-Type: application/json' https://localhost:8080/mcp",
    );
    // An invalid request, refused as such, over a trusted connection.
    assert_eq!(String::from_utf8_lossy(&done.stdout), "400 0");
}

#[test]
fn every_link_leads_somewhere() {
    let mut missing = String::new();
    for page in pages() {
        let text = std::fs::read_to_string(root().join(&page)).unwrap();
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.parent().unwrap_or(Path::new(""));
            let target =
                if file.is_empty() { root().join(&page) } else { root().join(folder).join(file) };
            let there = target.exists()
                && (anchor.is_empty()
                    || anchors(&std::fs::read_to_string(&target).unwrap())
                        .any(|heading| heading == anchor));
            if !there {
                let _ = writeln!(missing, "{}: {link}", page.display());
            }
        }
    }
    assert!(missing.is_empty(), "these lead nowhere:\n{missing}");
}

#[test]
fn every_decision_is_in_the_index() {
    let folder = root().join("docs/decisions");
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut missing = String::new();
    for file in names_in(&folder).iter().filter(|file| *file != "README.md") {
        let page = std::fs::read_to_string(folder.join(file)).unwrap();
        let heading = page.lines().next().and_then(|line| line.strip_prefix("# "));
        let numbered = heading.and_then(|heading| heading.split_once(". "));
        let (number, title) = numbered.expect("a decision begins with `# NUMBER. TITLE`");
        let row = format!("| [{number}]({file}) | {title} | ");
        if index.matches(&row).count() != 1 {
            let _ = writeln!(missing, "{row}");
        }
    }
    assert!(missing.is_empty(), "add these to docs/decisions/README.md, once each:\n{missing}");
}

#[test]
fn every_test_program_is_described() {
    let page = std::fs::read_to_string(root().join("tests/README.md")).unwrap();
    let described = |name: &&String| {
        page.lines().any(|line| line.starts_with('|') && line.contains(&format!("`{name}`")))
    };
    let names = names_in(&root().join("tests"));
    let missing: Vec<_> =
        names.iter().filter(|name| *name != "README.md" && !described(name)).collect();
    assert!(missing.is_empty(), "add these to tests/README.md: {missing:?}");
}

#[test]
fn every_path_in_the_architecture_is_there() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let gone: Vec<_> = paths_in(&text).filter(|path| !root().join(path).exists()).collect();
    assert!(gone.is_empty(), "{gone:?}");
}

#[test]
fn the_path_of_a_call_is_short() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = text.split("\n## ").find(|part| part.starts_with("The path of one call\n"));
    let files: BTreeSet<_> = paths_in(section.expect("the section is there")).collect();
    assert!((20..=50).contains(&files.len()), "a call passes {} files: {files:#?}", files.len());
}

/// Returns the source files that a page names.
fn paths_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split('`').skip(1).step_by(2);
    let words = words.filter(|word| word.starts_with("src/") || word.starts_with("crates/"));
    words.map(|word| word.split("::").next().unwrap_or(word))
}

fn is_what_continuous_integration_runs() {
    let run = std::fs::read_to_string(root().join(".ci/run")).expect("it is there");
    let commands: Vec<_> = run.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(commands, [r#"exec "$(dirname "$0")/../test.sh""#]);
    let parsed = Command::new("bash").arg("-n").arg(root().join("test.sh")).status().unwrap();
    assert!(parsed.success());
}

const URL: &str = "http://127.0.0.1:8080/mcp";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages for readers.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<_> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .into_iter()
        .chain(["SECURITY.md", "certs/README.md", "fuzz/README.md", "tests/README.md"])
        .chain(["tests/agents/README.md", "tests/apis/README.md", "tests/peers/README.md"])
        .map(PathBuf::from)
        .collect();
    for folder in ["docs", "docs/decisions"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = PathBuf::from(entry.unwrap().file_name());
            if name.extension().is_some_and(|extension| extension == "md") {
                pages.push(Path::new(folder).join(name));
            }
        }
    }
    pages
}

/// Returns the names of the files and folders in a folder, sorted. Leaves out hidden ones.
fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.') && name != "__pycache__").collect()
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link)
}

/// Returns the link targets of headings.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// A page's fenced blocks.
struct Page {
    name: &'static str,
    text: String,
}

struct Block {
    line: usize,
    text: String,
}

impl Page {
    fn open(name: &'static str) -> Self {
        Self { name, text: std::fs::read_to_string(root().join(name)).expect("it is there") }
    }

    fn blocks(&self, language: &str) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<(bool, Block)> = None;
        for (index, line) in self.text.lines().enumerate() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(found), None) => {
                    let block = Block { line: index + 1, text: String::new() };
                    open = Some((found == language, block));
                }
                (Some(_), Some(_)) => {
                    if let Some((true, block)) = open.take() {
                        blocks.push(block);
                    }
                }
                (None, Some((_, block))) => block.text.extend([line, "\n"]),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.name);
        blocks
    }

    /// Runs every `$ command` of the console blocks in one shell, one after the other, and compares
    /// the output with the text below the command.
    fn check_consoles(&self, place: &Place) {
        let blocks = self.blocks("console");
        let steps: Vec<_> = blocks.iter().flat_map(Block::steps).collect();
        assert!(!steps.is_empty(), "{}: nothing to run", self.name);
        let script = steps.iter().fold(String::new(), |mut script, (command, _)| {
            let _ = writeln!(script, "{command}\nprintf '{MARK}'");
            script
        });
        let done = place.run(&script);
        let output = place.as_told(&String::from_utf8_lossy(&done.stdout));
        let outputs: Vec<_> = output.split(MARK).collect();
        for ((command, told), printed) in steps.iter().zip(&outputs) {
            assert!(
                fits(told.trim(), printed.trim()),
                "{}: {command}\nis told to print\n{told}\nbut printed\n{printed}\n{}",
                self.name,
                String::from_utf8_lossy(&done.stderr),
            );
        }
        assert_eq!(outputs.len(), steps.len() + 1, "{}: the shell stopped early", self.name);
    }
}

impl Block {
    fn steps(&self) -> Vec<(String, String)> {
        let mut steps: Vec<(String, String)> = Vec::new();
        for line in self.text.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push((command.to_owned(), String::new())),
                (None, Some((_, told))) => told.extend([line, "\n"]),
                (None, None) => panic!("line {}: a block begins with `$ `", self.line),
            }
        }
        steps
    }
}

/// Separator between the outputs of two commands.
const MARK: &str = "=-=-=";

/// Returns true if the output matches a text, with `…` for any characters.
fn fits(told: &str, printed: &str) -> bool {
    let mut rest = printed;
    let mut pieces = told.split('…').peekable();
    let first = pieces.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else { return false };
    rest = after;
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

#[test]
fn omitted_parts_match_anything_and_nothing_else_does() {
    assert!(fits("a…c", "abc") && fits("…", "x") && fits("ab", "ab") && fits("…b…", "abc"));
    assert!(!fits("a…c", "abd") && !fits("ab", "abc") && !fits("…x…", "abc") && !fits("b…", "ab"));
}

/// A folder with the shipped configuration, on ports of its own.
struct Place {
    folder: tempfile::TempDir,
    clients: u16,
    operators: u16,
}

impl Place {
    fn new() -> Self {
        let (one, other) = (free_port(), free_port());
        let (clients, operators) =
            (one.local_addr().unwrap().port(), other.local_addr().unwrap().port());
        let place = Self { folder: tempfile::tempdir().unwrap(), clients, operators };
        let shipped = std::fs::read_to_string(root().join("gateway.toml")).unwrap();
        let admin = format!("\n[admin]\nlisten = \"127.0.0.1:{operators}\"\n");
        std::fs::write(place.path("gateway.toml"), place.as_here(&shipped) + &admin).unwrap();
        std::fs::create_dir(place.path("bin")).unwrap();
        std::fs::create_dir(place.path("home")).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_trunkline"));
        std::os::unix::fs::symlink(program, place.path("bin/trunkline")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn rewrite(&self, line: impl Fn(&str) -> String) {
        let path = self.path("gateway.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().map(line).collect();
        std::fs::write(path, lines.join("\n") + "\n").unwrap();
    }

    /// Replaces the pages' ports by the ports of this test.
    fn as_here(&self, text: &str) -> String {
        text.replace(":8080", &format!(":{}", self.clients))
            .replace(":8081", &format!(":{}", self.operators))
    }

    fn as_told(&self, text: &str) -> String {
        text.replace(&format!(":{}", self.clients), ":8080")
            .replace(&format!(":{}", self.operators), ":8081")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(self.folder.path())
            .env("HOME", self.path("home"))
            .env_remove("XDG_CONFIG_HOME")
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .envs([
                ("GITHUB_TOKEN", "t"),
                ("TRACKER_TOKEN", "t"),
                ("NO_PROXY", "127.0.0.1,localhost"),
            ])
            .stdin(Stdio::null());
        command
    }

    fn run(&self, script: &str) -> Output {
        self.command("bash").arg("-c").arg(self.as_here(script)).output().unwrap()
    }

    /// Starts the gateway and waits until it reports that it is ready.
    fn serve(&self) -> Running {
        let log = std::fs::File::create(self.path("log")).unwrap();
        let program = self.path("bin/trunkline");
        let child =
            self.command(&program.to_string_lossy()).arg("serve").stderr(log).spawn().unwrap();
        let mut running = Running(child);
        let patience = Instant::now() + Duration::from_mins(1);
        while !is_ready(self.operators) {
            let log = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(running.0.try_wait().unwrap().is_none(), "it ended: {}", log());
            assert!(Instant::now() < patience, "it is not ready: {}", log());
            std::thread::park_timeout(Duration::from_millis(20));
        }
        running
    }
}

/// A gateway that is stopped like by an operator, on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn free_port() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a free port")
}

fn is_ready(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let request =
        format!("GET /readyz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n");
    let mut answer = String::new();
    let asked = stream.write_all(request.as_bytes());
    asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok()
        && answer.starts_with("HTTP/1.1 200")
}
