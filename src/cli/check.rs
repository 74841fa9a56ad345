//! `trunkline check`: `serve` without sockets.

use std::process::ExitCode;

use super::serve::settings;
use super::{CONFIG_FAULT, CommonArgs, OPEN, print_error, write_to_stdout};

pub(super) fn check_config(common: &CommonArgs) -> ExitCode {
    let config = match common.read_config() {
        Ok(config) => config,
        Err(code) => return code,
    };
    // Faults that only show when a setting is used: certificates, host names of
    // the guard.
    if let Err(faults) = settings::of(&config) {
        for fault in faults {
            print_error(&format!("{}: {fault}", common.config.display()));
        }
        return CONFIG_FAULT.into_code();
    }
    if config.is_open_to_anyone() {
        print_error(&format!("warning: {OPEN}"));
    }
    let servers = config.servers.len();
    write_to_stdout(&format!("{}: fine, with {servers} server(s)\n", common.config.display()))
}
