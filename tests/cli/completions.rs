//! Completions of names, by a real shell.

use std::path::Path;
use std::process::Command;

use super::clock;
use super::process::{Process, TRUNKLINE, Tag};

/// Returns the completions that bash has for the last word.
fn complete(folder: &Path, words: &[&str]) -> Vec<String> {
    let program = Path::new(TRUNKLINE).parent().unwrap().display().to_string();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    let script = "source <(trunkline completions bash)
        COMP_WORDS=(trunkline \"$@\"); COMP_CWORD=$#; COMP_LINE=\"${COMP_WORDS[*]}\"
        COMP_POINT=${#COMP_LINE}
        _trunkline_names trunkline \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-c", script, "bash"]).args(words).env("PATH", path);
    bash.env("XDG_RUNTIME_DIR", folder).env_remove("TRUNKLINE_CONFIG").current_dir(folder);
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_names_of_the_file_and_tools_of_the_running_gateway() {
    let tag = Tag::new();
    let tables = "[profiles.small]\nservers = [\"clock\"]\n[clients.ci]\n\
        key = \"0000000000000000000000000000000000000000000000000000000000000001\"\n";
    let gateway = Process::start(&format!("{}{tables}", clock(&tag)));
    gateway.ready(&["clock"]);
    let folder = gateway.folder();
    assert_eq!(complete(folder, &["call", "clock__no"]), ["clock__now"]);
    assert_eq!(complete(folder, &["why", "c"]), ["ci"]);
    assert_eq!(complete(folder, &["tools", "--profile", ""]), ["small", "default"]);
    assert_eq!(complete(folder, &["remove", "cl"]), ["clock"]);
    let config = gateway.config();
    let config = config.to_str().unwrap();
    assert_eq!(complete(folder, &["call", "-c", config, "clock__no"]), ["clock__now"]);
    // Everything else is completed by the script.
    assert_eq!(complete(folder, &["stat"]), ["status"]);
    assert!(complete(folder, &["status", "--js"]).contains(&"--json".to_owned()));
}

#[test]
fn without_a_gateway_or_a_configuration_nothing_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(complete(folder.path(), &["remove", "x"]), Vec::<String>::new());
    assert_eq!(complete(folder.path(), &["call", "x"]), Vec::<String>::new());
    std::fs::write(folder.path().join("gateway.toml"), "[servers.a]\n[servers.b]\nfault").unwrap();
    assert_eq!(complete(folder.path(), &["remove", "a"]), Vec::<String>::new());
}

#[test]
fn every_shell_with_names_has_a_script_that_asks_for_them() {
    for shell in ["bash", "zsh", "fish"] {
        super::trunkline(&["completions", shell]).exits_with(0).prints(&["trunkline complete -- "]);
    }
}
