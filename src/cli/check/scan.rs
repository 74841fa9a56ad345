//! `trunkline check --scan`: scans the definitions of all servers, as the running gateway lists them,
//! or listed once.

use std::process::ExitCode;

use serde_json::Value;

use crate::admin::{ScanFinding, ScanReport};
use crate::call::ServerName;
use crate::catalog::Kind;
use crate::cli::definitions::listed::{
    ListSource, ask_running_gateway, print_unlisted, read_document, with_listed_servers,
};
use crate::cli::running::{GatewayOption, GatewayRequest, report_unanswered};
use crate::cli::{FAILURE_EXIT, print_error, printable, report_error, write_to_stdout};
use crate::config::{Config, ConfigSource};
use crate::policy::KnownElement;

/// A configuration that is checked.
#[derive(Clone, Copy)]
pub(crate) struct CheckedFile<'a> {
    pub(crate) config: &'a Config,
    pub(crate) source: &'a ConfigSource,
}

/// Scans the definitions of all servers and prints the findings. Returns the listed elements.
///
/// # Errors
/// The exit code, if a server cannot be listed, or a finding is grave.
pub(crate) fn scan_servers(
    checked: CheckedFile<'_>,
    gateway: &GatewayOption,
    source: ListSource,
) -> Result<Vec<KnownElement>, ExitCode> {
    let config = checked.config;
    let asked = ask_running_gateway(gateway, source, "/scan");
    let (report, is_same_file) =
        if let Some(document) = asked.map_err(|error| report_unanswered(&error))? {
            (read_document(&document)?, is_running(checked.source, gateway)?)
        } else {
            let listed = with_listed_servers(config.clone(), |it| ScanReport::of(it));
            (listed.map_err(|error| report_error(&error))?, true)
        };
    print_unlisted(&report.unlisted);
    for name in unknown_servers(config, &report) {
        print_error(&format!("servers.{name}: the running gateway does not have it"));
    }
    if !is_same_file {
        print_error(&format!(
            "{}: the running gateway has another version of the file: reload it (trunkline reload), \
             or use --offline",
            checked.source.name
        ));
    }
    write_to_stdout(&describe_findings(&report.findings));
    let is_grave = report.findings.iter().any(|found| found.is_grave);
    if is_grave || !report.unlisted.is_empty() || !is_same_file {
        return Err(FAILURE_EXIT.into_code());
    }
    Ok(known_elements(&report))
}

/// Returns true if the running gateway has this version of the file.
fn is_running(source: &ConfigSource, gateway: &GatewayOption) -> Result<bool, ExitCode> {
    let asked = gateway.request(&GatewayRequest::get("/status"));
    let status = asked.map_err(|error| report_unanswered(&error))?;
    let digest = status.pointer("/configuration/digest").and_then(Value::as_str);
    Ok(digest == Some(source.digest().as_str()))
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
