//! `trunkline check`: `serve` without sockets.

use std::process::ExitCode;
use std::sync::Arc;

use super::openapi::{apis_of, survey_now};
use super::serve::settings;
use super::{CONFIG_FAULT, CommonArgs, OPEN, print_error, write_to_stdout};
use crate::config::{OpenApiConfig, ServerConfig};

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
    for (server, api) in apis_of(&config).filter(|(_, api)| api.document.is_local()) {
        for warning in warnings_of(server, api) {
            let warning = server.secrets.hide_in(&warning);
            print_error(&format!("warning: servers.{}: {warning}", server.name));
        }
    }
    let servers = config.servers.len();
    write_to_stdout(&format!("{}: fine, with {servers} server(s)\n", common.config.display()))
}

/// What a local document says that the configuration does not answer. Documents at URLs are for
/// `trunkline openapi`: a check works without a network.
fn warnings_of(server: &Arc<ServerConfig>, api: &OpenApiConfig) -> Vec<String> {
    let survey = match survey_now(server, api) {
        Ok(survey) => survey,
        Err(fault) => return vec![fault.chain_without(&server.secrets)],
    };
    let missing = survey
        .missing_schemes
        .iter()
        .map(|scheme| format!("the security scheme {scheme:?} has no value: set it in `auth`"));
    let left_out = survey.left_out.iter().map(|(label, reason)| format!("{label}: {reason}"));
    missing.chain(left_out).collect()
}
