//! Completions of names, by a real shell.

use std::path::Path;
use std::process::Command;

use super::clock;
use super::process::{Process, TRUNKLINE, Tag, eventually};

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

/// Starts a gateway with a server, a profile and a client.
fn named_gateway(tag: &Tag) -> Process {
    let tables = "[profiles.small]\nservers = [\"clock\"]\n[clients.ci]\n\
        key = \"0000000000000000000000000000000000000000000000000000000000000001\"\n";
    let gateway = Process::start(&format!("{}{tables}", clock(tag)));
    gateway.ready(&["clock"]);
    gateway
}

#[test]
fn bash_completes_names_of_the_file_and_tools_of_the_running_gateway() {
    let tag = Tag::new();
    let gateway = named_gateway(&tag);
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

/// Lines and their completion, which is the only one.
const LINES: [(&str, &str); 11] = [
    ("trunkline call clock__no", "trunkline call clock__now"),
    ("trunkline call -c gateway.toml clock__no", "trunkline call -c gateway.toml clock__now"),
    ("trunkline why c", "trunkline why ci"),
    ("trunkline why ci clock__no", "trunkline why ci clock__now"),
    ("trunkline restart ", "trunkline restart clock"),
    ("trunkline tools --profile sm", "trunkline tools --profile small"),
    ("trunkline tools --profile=sm", "trunkline tools --profile=small"),
    ("trunkline stat", "trunkline status"),
    ("trunkline audit sh", "trunkline audit show"),
    ("trunkline status --js", "trunkline status --json"),
    ("trunkline check gatew", "trunkline check gateway.toml"),
];

/// Runs a shell that must be installed, with the program in its path.
fn run_shell(folder: &Path, shell: &str, args: &[&str]) -> String {
    let program = Path::new(TRUNKLINE).parent().unwrap().display().to_string();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new(shell);
    command.args(args).env("PATH", path).env("XDG_RUNTIME_DIR", folder).env("HOME", folder);
    command.env("TERM", "dumb").env_remove("TRUNKLINE_CONFIG").current_dir(folder);
    let output = command.output().unwrap_or_else(|error| {
        panic!("{shell} is needed ({error}): sudo apt-get install {shell}")
    });
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Completes each line like a user who presses the tab key, and prints it between marks.
const ZSH_KEYS: &str = r#"
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PROMPT= RPROMPT=; unsetopt zle_bracketed_paste auto_list auto_menu beep list_beep'
zpty -w shell "autoload -Uz compinit; $1"
zpty -w shell 'show() { print -r -- "<<$BUFFER>>"; BUFFER= }; zle -N show'
zpty -w shell 'bindkey "^X" show; bindkey "^I" complete-word; print READY$((1+1))'
zpty -r shell output '*READY2*'
shift
for line in "$@"; do
    zpty -n -w shell "$line"$'\t\x18'
    zpty -r shell output '*<<*>>*'
    print -r -- "${${output##*<<}%%>>*}"
done
zpty -d shell
"#;

#[test]
fn zsh_completes_names_and_everything_else() {
    let tag = Tag::new();
    let gateway = named_gateway(&tag);
    let folder = gateway.folder();
    let functions = folder.join("functions");
    std::fs::create_dir(&functions).unwrap();
    let script = super::trunkline(&["completions", "zsh"]).exits_with(0).said();
    std::fs::write(functions.join("_trunkline"), script).unwrap();
    let lines = LINES.map(|(line, _)| line);
    // As the page of commands says, and as a package installs it.
    for start in [
        "compinit -u -D; source <(trunkline completions zsh)",
        "fpath=($PWD/functions $fpath); compinit -u -D",
    ] {
        let args = [&["-f", "-c", ZSH_KEYS, "zsh", start], &lines[..]].concat();
        // A busy machine may take longer for a name than a user waits.
        eventually(&format!("zsh has all completions after {start:?}"), || {
            let said = run_shell(folder, "zsh", &args);
            // A completed word has a space after it.
            let said: Vec<_> = said.lines().map(str::trim_end).collect();
            said == LINES.map(|(_, completed)| completed)
        });
    }
}

#[test]
fn fish_completes_names_and_everything_else() {
    let tag = Tag::new();
    let gateway = named_gateway(&tag);
    let folder = gateway.folder();
    for (line, completed) in LINES {
        let script = format!("trunkline completions fish | source; complete -C '{line}'");
        let start = line.rsplit_once(' ').unwrap().0;
        eventually(&format!("fish completes {line:?}"), || {
            let said = run_shell(folder, "fish", &["--no-config", "-c", &script]);
            let words = said.lines().map(|line| line.split('\t').next().unwrap_or_default());
            let lines: Vec<_> = words.map(|word| format!("{start} {word}")).collect();
            lines == [completed]
        });
    }
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
