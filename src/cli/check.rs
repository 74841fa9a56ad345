//! `trunkline check`: `serve` without sockets.

use std::process::ExitCode;

use super::serve::settings;
use super::{CONFIG_FAULT, Common, OPEN, complain, print};

pub(super) fn run(common: &Common) -> ExitCode {
    let config = match common.read() {
        Ok(config) => config,
        Err(code) => return code,
    };
    // What only shows when it is used: certificates, host names of the guard.
    if let Err(faults) = settings::of(&config) {
        for fault in faults {
            complain(&format!("{}: {fault}", common.config.display()));
        }
        return CONFIG_FAULT.into_code();
    }
    if config.is_open_to_anyone() {
        complain(&format!("warning: {OPEN}"));
    }
    let servers = config.servers.len();
    print(&format!("{}: fine, with {servers} server(s)\n", common.config.display()))
}
