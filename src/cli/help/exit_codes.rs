//! The exit codes of all commands. Every error of a command is one of these kinds, and each kind has its
//! code here only.

use std::process::ExitCode;

/// A failing exit of a command; unlike `ExitCode` it can be a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureExit {
    /// The command has findings, or has failed while running.
    Findings,
    /// The command line is not valid.
    WrongUse,
    /// A file that the command needs cannot be read or is not valid.
    UnusableFile,
    /// No gateway answers.
    Unreachable,
}

impl FailureExit {
    /// Returns the number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Findings => 1,
            Self::WrongUse | Self::UnusableFile => 2,
            Self::Unreachable => 3,
        }
    }

    /// Returns the exit code.
    pub(crate) fn into_code(self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// All kinds, by their codes.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 4] =
        [Self::Findings, Self::WrongUse, Self::UnusableFile, Self::Unreachable];

    /// Describes the kind for the page of commands.
    #[cfg(test)]
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Findings => {
                "findings: a failed call, a refusal of the gateway, such as of an unknown server, a fault \
                 that `check` or `plan` finds, or one that needs an operator; or a failure while running"
            }
            Self::WrongUse => "the command line is not valid, or does not fit the configuration",
            Self::UnusableFile => {
                "the configuration, or another file that the command needs, cannot be read or is not valid"
            }
            Self::Unreachable => "no gateway answers",
        }
    }
}
