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
    match shell {
        Shell::Bash => generated(shell, "trunkline") + BASH_NAMES,
        Shell::Zsh => {
            let script = generated(shell, "trunkline");
            // Its last lines register the function without names.
            let end = script.find(ZSH_END).unwrap_or(script.len());
            script.split_at(end).0.to_owned() + ZSH_NAMES
        }
        // Options of the generated commands would hide the names.
        Shell::Fish => generated(shell, FISH_COMMANDS) + FISH_NAMES,
        other => generated(other, "trunkline"),
    }
}

/// Returns the script for a program with all commands and options.
fn generated(shell: Shell, program: &str) -> String {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), program, &mut script);
    String::from_utf8_lossy(&script).into_owned()
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

/// The beginning of the end of the generated script for zsh.
const ZSH_END: &str = "if [ \"$funcstack[1]\" = \"_trunkline\" ]; then";

/// Names before everything else that zsh completes. The script is read by `source`, or as the function
/// `_trunkline` of a folder in `fpath`, with the first completion.
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
if [ "$funcstack[1]" = "_trunkline" ]; then
    _trunkline_names "$@"
fi
"#;

/// The program whose completions fish has for everything but names.
const FISH_COMMANDS: &str = "__trunkline_commands";

/// Names before everything else that fish completes.
const FISH_NAMES: &str = r#"
function __trunkline_complete
    set -l words (commandline -opc)[2..-1]
    set -l word (commandline -ct)
    set -l names (trunkline complete -- $words "$word" 2>/dev/null)
    if set -q names[1]
        printf '%s\n' $names
    else
        complete -C "__trunkline_commands "(string join ' ' -- (string escape -- $words) "$word")
    end
end
complete -c trunkline -f -a '(__trunkline_complete)'
"#;
