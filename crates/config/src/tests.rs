//! The module as its users see it: text in, a configuration or faults out.

mod faults;
mod rules;
mod values;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value as Json;

use trunkline_core::codec::file::FileError;

use super::*;
use crate::reader::setting::{Section, SettingRow};

/// A fake environment: variables, and files by their full path.
#[derive(Default)]
struct World {
    variables: HashMap<&'static str, &'static str>,
    files: HashMap<&'static str, &'static str>,
}

impl World {
    fn new() -> Self {
        Self::default()
    }

    fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.insert(name, value);
        self
    }

    fn file(mut self, path: &'static str, text: &'static str) -> Self {
        self.files.insert(path, text);
        self
    }

    fn read(&self, text: &str) -> Result<Config, ConfigFaults> {
        self.read_bytes(text.as_bytes())
    }

    fn read_bytes(&self, bytes: &[u8]) -> Result<Config, ConfigFaults> {
        let (name, folder) = ("gateway.toml".into(), "/etc/trunkline".into());
        Config::read(&ConfigSource { name, folder, bytes: bytes.to_vec() }, self)
    }
}

impl Environment for World {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).map(OsString::from)
    }

    fn text(&self, path: &Path) -> Result<String, FileError> {
        let text = path.to_str().and_then(|path| self.files.get(path));
        let text = text.map(|text| (*text).to_owned());
        text.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
    }

    fn executable(&self) -> Option<PathBuf> {
        Some("/usr/bin/trunkline".into())
    }
}

/// The only server of a configuration with these lines in its table.
#[track_caller]
fn server(lines: &str) -> ServerConfig {
    let config = World::new().read(&format!("[servers.x]\n{lines}")).expect("a configuration");
    (*config.servers[0]).clone()
}

/// `line: key: problem; help` for every fault.
#[track_caller]
fn faults(text: &str) -> Vec<String> {
    let faults = World::new().read(text).expect_err("faults").to_string();
    faults.lines().map(|line| line.trim_start_matches("gateway.toml:").to_owned()).collect()
}

fn repository(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

/// Compares a generated page with the committed one, or updates it.
#[track_caller]
fn is_fresh(path: &str, generated: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(repository(path), generated).expect("the page is written");
    }
    let committed = std::fs::read_to_string(repository(path)).unwrap_or_default();
    assert!(committed == generated, "{path} is stale: run the tests with UPDATE_DOCS=1");
}

fn shipped() -> String {
    std::fs::read_to_string(repository("gateway.toml")).expect("the shipped configuration")
}

/// The shipped file with every optional setting enabled.
fn shipped_with_everything() -> String {
    let is_setting = |line: &&str| {
        line.starts_with('#') && !line.starts_with("# ") && !line.starts_with("#:") && *line != "#"
    };
    let lines = shipped();
    let lines: Vec<_> = lines
        .lines()
        .map(|line| if is_setting(&line) { line.trim_start_matches('#') } else { line })
        .collect();
    lines.join("\n")
}

#[test]
fn the_configuration_page_is_fresh() {
    is_fresh("docs/configuration.md", &reference());
}

#[test]
fn the_json_schema_is_fresh() {
    let schema = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
    is_fresh("docs/gateway.schema.json", &schema);
}

#[test]
fn the_shipped_configuration_starts_the_two_servers_of_the_binary() {
    let config = World::new().read(&shipped()).expect("no faults");
    let commands: Vec<_> = config
        .servers
        .iter()
        .map(|server| match &server.target {
            ServerKind::Command(command) => {
                (server.name.as_str(), &*command.program, &*command.args)
            }
            ServerKind::Http(_) | ServerKind::OpenApi(_) => {
                panic!("{} is not a child", server.name)
            }
        })
        .collect();
    let own = "/usr/bin/trunkline";
    assert_eq!(
        commands,
        [
            ("clock", own, &["example".to_owned(), "clock".into()][..]),
            ("notes", own, &["example".to_owned(), "notes".into()][..]),
        ]
    );
}

#[test]
fn every_setting_to_try_in_the_shipped_configuration_works_as_it_stands() {
    let world = World::new().variable("GITHUB_TOKEN", "t");
    let config = world.read(&shipped_with_everything()).unwrap_or_else(|faults| panic!("{faults}"));
    let names: Vec<_> = config.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["clock", "notes", "files", "git", "github"]);
}

#[test]
fn the_json_schema_and_the_reader_accept_the_same_files() {
    let schema = jsonschema::validator_for(&json_schema()).expect("a valid schema");
    let json = |text: &str| -> Json {
        serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
    };
    let all = shipped_with_everything();
    let right = ["", &shipped(), &all, "[admin]\nlisten = \"off\"", "[gateway]\npage_size = 50"];
    for text in right {
        assert!(schema.is_valid(&json(text)), "{text}");
    }
    let wrong = [
        "[gatway]",
        "[gateway]\nnaming = \"suffix\"",
        "[gateway]\ndrain = 10",
        "[gateway]\ndrain = \"10\"",
        "[gateway.tls]\ncert = \"x\"",
        "[servers.x.tools]\nalow = [\"x\"]",
        "[servers.x.tools.y]\nnam = \"x\"",
    ];
    for text in wrong {
        assert!(!schema.is_valid(&json(text)), "{text}");
        assert!(World::new().read(text).is_err(), "{text}");
    }
}

#[test]
fn every_setting_has_a_sentence_that_ends() {
    fn visit(path: &str, rows: &[SettingRow]) {
        for row in rows {
            let doc = reader::setting::join_lines(row.doc);
            assert!(doc.ends_with(['.', ':']), "{path}.{}: {doc:?}", row.key);
            let inner = (row.outline)().map(|outline| outline.rows).unwrap_or_default();
            visit(&format!("{path}.{}", row.key), &inner);
        }
    }
    visit("", &Config::setting_rows());
}

#[test]
fn the_variables_that_every_child_gets_are_in_the_docs() {
    let page = reference();
    for name in sections::server::command::PASSED_ENV {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn a_source_is_read_with_its_folder_and_never_past_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, vec![b'#'; ConfigSource::MAX_LEN + 100]).unwrap();
    let fault = ConfigSource::open(&path).unwrap_err();
    assert!(matches!(fault, FileError::TooLarge { max: ConfigSource::MAX_LEN }), "{fault}");
}

#[test]
fn a_file_of_a_substitution_is_bounded_text() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        SystemEnvironment.text(&path)
    };
    assert_eq!(write("token", b"t0ken\n").unwrap(), "t0ken\n");
    let large = write("large", &vec![b'x'; 70_000]).unwrap_err();
    assert!(matches!(large, FileError::TooLarge { .. }), "{large}");
    assert!(matches!(write("binary", b"\xff").unwrap_err(), FileError::NotText));
}

/// Formats faults in both ways, because either could panic.
fn read_and_tell(bytes: &[u8]) {
    let world = World::new().variable("A", "b").file("/etc/trunkline/f", "g\n");
    if let Err(faults) = world.read_bytes(bytes) {
        assert!(!faults.list().is_empty());
        let told =
            faults.to_string() + &faults.render(Color::Never) + &faults.render(Color::Always);
        assert!(!told.is_empty());
    }
}

#[test]
fn large_and_hostile_texts_end_in_faults() {
    const LEN: usize = 256 << 10;
    let units = [
        "[",
        "[[",
        "{",
        "a={",
        "a=[",
        "\"",
        "'",
        "\"\"\"",
        "=",
        "\n",
        ".",
        "a.",
        "a=1\n",
        "#",
        "\r",
        "a",
        "1",
        "[a]\n",
        "[[a]]\n",
        "é",
        "\u{feff}",
        "servers.x.url=\"${\"\n",
        "${",
        "\\",
        ",",
    ];
    for unit in units {
        read_and_tell(unit.repeat(LEN / unit.len()).as_bytes());
    }
    // Tables nested as deeply as the length allows.
    let deep = "a.".repeat(LEN / 2);
    for text in [format!("{deep}a = 1"), format!("[{deep}a]"), format!("[[{deep}a]]")] {
        read_and_tell(text.as_bytes());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
        read_and_tell(&bytes);
    }

    #[test]
    fn any_text_is_read_without_panic(text: String) {
        read_and_tell(text.as_bytes());
    }

    #[test]
    fn any_text_that_looks_like_a_configuration_is_read_without_panic(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40),
    ) {
        read_and_tell(pieces.concat().as_bytes());
    }

    #[test]
    fn any_value_of_any_setting_is_read_without_panic(
        key in prop::sample::select(KEYS),
        value in prop_oneof![
            ".*".prop_map(|text| format!("{:?}", Json::from(text).to_string())),
            any::<i128>().prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| format!("{number:?}")),
            "[0-9]{0,25}(ms|s|m|h|d|B|KiB|GiB|/s|/min|)".prop_map(|text| format!("\"{text}\"")),
        ],
    ) {
        read_and_tell(format!("{key} = {value}").as_bytes());
    }
}

const PIECES: &[&str] = &[
    "[gateway]\n",
    "[servers.x]\n",
    "[servers.\"é\"]\n",
    "[servers.x.tools.t]\n",
    "[",
    "]",
    "{",
    "}",
    "\n",
    "\r\n",
    " = ",
    "\"",
    "'",
    "\"\"\"",
    "listen",
    "command",
    "url",
    "headers",
    "env",
    "tools",
    "name",
    "allow",
    "tls",
    "limits",
    "${env:A}",
    "${file:f}",
    "${env:",
    "$${",
    "}",
    "\"127.0.0.1:0\"",
    "30",
    "\"30s\"",
    "true",
    ",",
    ".",
    "#",
    "é",
    "\u{0}",
    "[[servers]]\n",
    "servers",
    "0.5",
    "\\u00e9",
];

const KEYS: &[&str] = &[
    "gateway.listen",
    "gateway.rate",
    "gateway.drain",
    "gateway.page_size",
    "gateway.allowed_hosts",
    "gateway.allowed_origins",
    "gateway.limits.body",
    "gateway.limits.depth",
    "gateway.tls",
    "admin.listen",
    "log.level",
    "telemetry.sample",
    "telemetry.endpoint",
    "servers.x.command",
    "servers.x.url",
    "servers.x.args",
    "servers.x.env.A",
    "servers.x.headers.A",
    "servers.x.cwd",
    "servers.x.pass_env",
    "servers.x.tools.allow",
    "servers.x.tools.t.name",
    "servers",
    "servers.x",
    "servers.x.max_restarts",
    "servers.x.forward_headers",
    "servers.x.era",
    "clients",
    "clients.x.key",
    "clients.x.keys",
    "clients.x.rate",
    "clients.x.profiles",
    "profiles",
    "profiles.x.servers",
    "profiles.x.tools",
];
