//! The exit codes of all commands, for the page of commands.

use crate::cli::FailureExit;

/// A failing exit code, and its meaning.
pub(crate) struct ExitMeaning {
    pub(crate) exit: FailureExit,
    pub(crate) meaning: &'static str,
}

impl ExitMeaning {
    const fn new(exit: FailureExit, meaning: &'static str) -> Self {
        Self { exit, meaning }
    }
}

/// Every failing exit code. Constants of the same number have one meaning each.
pub(crate) const EXIT_MEANINGS: &[ExitMeaning] = &[
    ExitMeaning::new(
        crate::cli::FAILURE_EXIT,
        "findings: a failed call, a refusal, a fault that needs an operator; or a failure while running",
    ),
    ExitMeaning::new(crate::cli::WRONG_USE, "the command line is not valid"),
    ExitMeaning::new(
        crate::cli::CONFIG_FAULT,
        "the configuration, or another input file, cannot be read or is not valid",
    ),
    ExitMeaning::new(crate::cli::UNREACHABLE_EXIT, "no gateway answers"),
];
