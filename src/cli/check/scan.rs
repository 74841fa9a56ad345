//! `trunkline check --scan`: scans the definitions of all servers, as the running gateway lists them,
//! or listed once.

use std::process::ExitCode;

use crate::admin::{ScanFinding, ScanReport};
use crate::call::ServerName;
use crate::catalog::Kind;
use crate::cli::definitions::listed::{
    ListSource, ask_running_gateway, print_unlisted, read_document, with_listed_servers,
};
use crate::cli::running::{GatewayOption, report_unanswered};
use crate::cli::{FAILURE_EXIT, print_error, printable, report_error, write_to_stdout};
use crate::config::Config;
use crate::policy::KnownElement;

/// Scans the definitions of all servers and prints the findings. Returns the listed elements.
///
/// # Errors
/// The exit code, if a server cannot be listed, or a finding is grave.
pub(crate) fn scan_servers(
    config: &Config,
    gateway: &GatewayOption,
    source: ListSource,
) -> Result<Vec<KnownElement>, ExitCode> {
    let report: ScanReport = match ask_running_gateway(gateway, source, "/scan") {
        Ok(Some(document)) => read_document(&document)?,
        Ok(None) => with_listed_servers(config.clone(), |it| ScanReport::of(it))
            .map_err(|error| report_error(&error))?,
        Err(error) => return Err(report_unanswered(&error)),
    };
    print_unlisted(&report.unlisted);
    let unknown = unknown_servers(config, &report);
    for name in &unknown {
        print_error(&format!(
            "servers.{name}: the running gateway does not have it: reload it (trunkline reload), or \
             use --offline"
        ));
    }
    write_to_stdout(&describe_findings(&report.findings));
    let is_grave = report.findings.iter().any(|found| found.is_grave);
    if is_grave || !report.unlisted.is_empty() || !unknown.is_empty() {
        return Err(FAILURE_EXIT.into_code());
    }
    Ok(known_elements(&report))
}

/// Returns the servers of the configuration that were not scanned, because the running gateway has an
/// earlier one.
fn unknown_servers(config: &Config, report: &ScanReport) -> Vec<ServerName> {
    let names = config.servers.iter().map(|server| server.name.clone());
    names.filter(|name| report.servers.iter().all(|known| *known != *name.as_str())).collect()
}

/// Describes findings, one line for each.
pub(crate) fn describe_findings(findings: &[ScanFinding]) -> String {
    let line = |found: &ScanFinding| {
        let ScanFinding { server, kind, native, is_grave, reasons } = found;
        let grade = if *is_grave { "grave" } else { "minor" };
        printable(&format!("{server}: {kind} {native}: {grade}: {}", reasons.join(", "))) + "\n"
    };
    findings.iter().map(line).collect()
}

fn known_elements(report: &ScanReport) -> Vec<KnownElement> {
    let known = report.elements.iter().filter_map(|element| {
        let kind = Kind::ALL.into_iter().find(|kind| kind.member() == element.kind)?;
        let server = ServerName::new(&element.server).ok()?;
        Some(KnownElement { server, kind, native: element.native.clone() })
    });
    known.collect()
}
