//! Shell completions: scripts with all commands and options, which ask for names of servers, profiles,
//! clients and tools.
//!
//! The scripts call a hidden command for each completion. It reads the configuration file as text, and
//! asks the running gateway for tools; it starts nothing, and prints nothing if there is neither.

mod names;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::Cli;
pub(super) use names::print_names;

/// The completion script of a shell.
pub(super) fn completion_script(shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "trunkline", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let names = match shell {
        Shell::Bash => BASH_NAMES,
        Shell::Zsh => ZSH_NAMES,
        Shell::Fish => FISH_NAMES,
        _ => "",
    };
    script + names
}

/// Names before everything else that bash completes.
const BASH_NAMES: &str = r#"
_trunkline_names() {
    local names
    names=$(trunkline complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ -n "$names" ]]; then
        COMPREPLY=( $(compgen -W "$names" -- "${COMP_WORDS[COMP_CWORD]}") )
    else
        _trunkline trunkline "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
    fi
}
complete -F _trunkline_names -o bashdefault -o default trunkline
"#;

/// Names before everything else that zsh completes.
const ZSH_NAMES: &str = r#"
_trunkline_names() {
    local -a names
    names=("${(@f)$(trunkline complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${names[1]}" ]]; then
        compadd -a names
    else
        _trunkline "$@"
    fi
}
compdef _trunkline_names trunkline
"#;

/// Names besides everything else that fish completes.
const FISH_NAMES: &str = r#"
complete -c trunkline -a "(trunkline complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)"
"#;
