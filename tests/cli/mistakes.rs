//! The texts of common mistakes in a configuration, compared as a whole.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use super::process::TRUNKLINE;

#[test]
fn each_common_mistake_has_its_text() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/mistakes.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut checked = String::new();
    let (introduction, sections) = page.split_once("\n## ").unwrap();
    checked.push_str(introduction);
    let mut count = 0;
    for section in sections.split("\n## ") {
        let (title, rest) = section.split_once("\n\n```toml\n").unwrap();
        let (configuration, _) = rest.split_once("```\n").unwrap();
        let output = check(configuration);
        write!(checked, "\n## {title}\n\n```toml\n{configuration}```\n\n```text\n{output}```\n")
            .unwrap();
        count += 1;
    }
    assert!(count >= 30, "{count}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &checked).unwrap();
    }
    assert_same_lines(&std::fs::read_to_string(path).unwrap(), &checked);
}

/// The output of `trunkline check` for a configuration, and its exit code.
fn check(configuration: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), configuration).unwrap();
    let ran = Command::new(TRUNKLINE)
        .args(["check", "--config", "gateway.toml"])
        .current_dir(folder.path())
        .env_remove("TRUNKLINE_CONFIG")
        .env_remove("TRUNKLINE_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = ran.status.code().unwrap();
    format!("{}{}exit {code}\n", text(ran.stderr), text(ran.stdout))
}

#[track_caller]
fn assert_same_lines(page: &str, checked: &str) {
    if let Some((expected, found)) =
        page.lines().zip(checked.lines()).find(|(expected, found)| expected != found)
    {
        panic!(
            "expected {expected:?}, found {found:?}: run the test with UPDATE_DOCS=1 and review"
        );
    }
    assert_eq!(page.lines().count(), checked.lines().count());
}
