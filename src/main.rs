//! The `trunkline` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("guardian") => trunkline::link::child::run_guardian(std::io::stdin().lock()),
        Some("example") => trunkline::cli::example::run(arguments),
        _ => ExitCode::FAILURE,
    }
}
