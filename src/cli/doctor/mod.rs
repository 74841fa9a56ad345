//! `trunkline doctor`: checks the surroundings of a gateway, each finding with its cure.
//!
//! It works without a running gateway and starts no server. `check` judges the configuration alone;
//! this also looks at the machine, and sends requests without effect to the servers, their OAuth
//! providers and the issuers of the configuration.

mod files;
mod machine;
mod network;
mod providers;
mod report;
mod server_addresses;

use std::process::ExitCode;

use clap::Args;

use super::{BareFile, CommonArgs, ConfigOption, FAILURE_EXIT, write_to_stdout};
use crate::config::{Config, ConfigSource, SystemEnvironment};
use report::{CheckArea, DoctorReport};

/// Check the surroundings of the gateway: programs, ports, certificates, providers and others
///
/// Each finding has its cure. Sends one request to each URL of a server, reads the metadata of OAuth
/// providers and the keys of issuers, and asks no other address. Starts no server.
///
/// Exit codes: 0 if all is fine, 1 for findings, 2 for an invalid command line.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    config: ConfigOption,
    #[command(flatten)]
    file: BareFile,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Send no requests
    #[arg(long)]
    offline: bool,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  trunkline doctor                 # check everything about gateway.toml
  trunkline doctor --offline       # without requests to servers and issuers
  trunkline doctor --json | jq '.checks[] | select(.verdict == \"finding\")'";

pub(super) fn run(args: &DoctorArgs) -> ExitCode {
    let config = args.config.clone().or_file(args.file.clone());
    let report = examine(&CommonArgs::with_config(config.path), args.offline.into());
    let text = if args.json { report.to_json() } else { report.to_text() };
    write_to_stdout(&text);
    if report.has_findings() { FAILURE_EXIT.into_code() } else { ExitCode::SUCCESS }
}

/// Permission to send requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkUse {
    Allowed,
    Forbidden,
}

impl From<bool> for NetworkUse {
    fn from(is_offline: bool) -> Self {
        if is_offline { Self::Forbidden } else { Self::Allowed }
    }
}

/// Makes all checks. Without a valid configuration, only those of the machine.
fn examine(common: &CommonArgs, network: NetworkUse) -> DoctorReport {
    let mut report = DoctorReport::default();
    let file = read_config(common, &mut report);
    let config = file.as_ref().map(|(_, config)| config);
    machine::check_descriptors(config, &mut report);
    machine::check_clock(&mut report);
    if let Some((source, config)) = &file {
        report.set_places(source.places());
        machine::check_sandboxes(config, &mut report);
        files::check_runtimes(config, &common.config.path, &mut report);
        files::check_certificates(config, &mut report);
        files::check_client_files(&common.config.path, &mut report);
        network::check(config, network, &mut report);
    }
    report
}

fn read_config(common: &CommonArgs, report: &mut DoctorReport) -> Option<(ConfigSource, Config)> {
    let path = &common.config.path;
    let area = CheckArea::Configuration;
    let source = match ConfigSource::open(path) {
        Ok(source) => source,
        Err(error) => {
            let text = format!("cannot read {}: {error}", path.display());
            report.find(area, text, "name the file: trunkline doctor FILE");
            return None;
        }
    };
    match Config::read(&source, &SystemEnvironment) {
        Ok(config) => {
            let servers = config.servers.len();
            report.pass(area, format!("{}: valid, with {servers} server(s)", path.display()));
            Some((source, config))
        }
        Err(faults) => {
            let text = format!("{}: {} fault(s)", path.display(), faults.list().len());
            report.find(area, text, "see trunkline check");
            None
        }
    }
}
