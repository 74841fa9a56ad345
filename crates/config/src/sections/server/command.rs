//! The settings of child processes.

use std::fmt;
use std::path::PathBuf;

use super::process::{ProgramSetting, VariableSetting};
use super::sandbox::{SandboxConfig, SandboxSetting};
use crate::reader::macros::section;
use crate::reader::values::substitute::SubstitutedText;
use crate::source::secret::Secret;

section! {
    /// A child process that speaks MCP on its standard input and output.
    #[derive(Clone, PartialEq)]
    pub struct CommandConfig {
        settings {
            /// The program: a name looked up in `PATH`, or a path. `trunkline` is the running
            /// gateway's own program.
            "command" => program: String as ProgramSetting,
            /// Its arguments. Other users of the machine can see them: put secrets into `env`.
            args: Vec<String> as Vec<SubstitutedText> = [],
            /// Environment variables.
            env: Vec<(String, Secret)> = {},
            /// Environment variables passed on from the gateway's own environment, by name or as
            /// `NAME_*`. `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, `LANG`,
            /// `LC_*` and `XDG_*` are always passed; all others are not.
            pass_env: Vec<String> as Vec<VariableSetting> = [],
            /// The working directory. By default the gateway's own.
            cwd: Option<PathBuf>,
            /// The permissions of the process. By default those of the gateway's own user.
            sandbox: Option<SandboxConfig> as SandboxSetting,
        }
    }
}

/// The variables of the gateway's own environment that every child process
/// gets: enough to run, and no credentials.
pub(crate) const PASSED_ENV: [&str; 11] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_*", "XDG_*"];

/// Returns true if a child process with this `pass_env` inherits a variable of the gateway's own
/// environment.
pub fn child_inherits(pass_env: &[String], variable: &str) -> bool {
    let names = |name: &str| match name.strip_suffix('*') {
        Some(stem) => variable.starts_with(stem),
        None => variable == name,
    };
    PASSED_ENV.into_iter().any(names) || pass_env.iter().any(|name| names(name))
}

// Arguments and URLs may contain substituted secrets, but are plain strings for the other modules.
// Hence Debug omits them.
impl fmt::Debug for CommandConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("args", &format_args!("[{} arguments]", self.args.len()))
            .field("env", &self.env)
            .field("pass_env", &self.pass_env)
            .field("cwd", &self.cwd)
            .field("sandbox", &self.sandbox)
            .finish()
    }
}
