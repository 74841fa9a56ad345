//! `trunkline check --scan`: scans the definitions of all servers, as the running gateway lists them,
//! or listed once.

use std::process::ExitCode;

use serde_json::Value;

use crate::admin::{ScanFinding, ScanReport};
use crate::call::ServerName;
use crate::catalog::Kind;
use crate::cli::definitions::listed::{
    ListSource, ask_running_gateway, describe_unlisted, read_document, with_listed_servers,
};
use crate::cli::running::{GatewayOption, GatewayRequest, RunningGatewayError};
use crate::cli::{FAILURE_EXIT, printable};
use crate::config::{Config, ConfigSource};
use crate::policy::KnownElement;
use crate::text::error_chain;

use super::report::CheckReport;

/// A configuration that is checked.
#[derive(Clone, Copy)]
pub(crate) struct CheckedFile<'a> {
    pub(crate) config: &'a Config,
    pub(crate) source: &'a ConfigSource,
}

/// Scans the definitions of all servers and reports the findings. Returns the listed elements.
///
/// # Errors
/// The exit code, if a server cannot be listed, or a finding is grave.
pub(crate) fn scan_servers(
    checked: CheckedFile<'_>,
    gateway: &GatewayOption,
    source: ListSource,
    output: &mut CheckReport,
) -> Result<Vec<KnownElement>, ExitCode> {
    let config = checked.config;
    let asked = ask_for_scan(checked.source, gateway, source);
    let asked = asked.map_err(|error| output.add_unanswered(&error))?;
    let (report, is_same_file) = match asked {
        Some(answer) => answer,
        None => match with_listed_servers(config.clone(), |it| ScanReport::of(it)) {
            Ok(report) => (report, true),
            Err(error) => {
                output.add_fault(&error_chain(&error));
                return Err(FAILURE_EXIT.into_code());
            }
        },
    };
    for server in &report.unlisted {
        output.add_fault(&describe_unlisted(server));
    }
    let unknown = unknown_servers(config, &report);
    for name in &unknown {
        output.add_fault(&format!("servers.{name}: the running gateway does not have it"));
    }
    if !is_same_file {
        output.add_fault(&format!(
            "{}: the running gateway has another version of the file: reload it (trunkline reload), \
             or use --offline",
            checked.source.name
        ));
    }
    let is_grave = report.findings.iter().any(|found| found.is_grave);
    let is_complete = report.unlisted.is_empty() && unknown.is_empty() && is_same_file;
    let known = known_elements(&report);
    output.add_scan(report);
    if is_grave || !is_complete { Err(FAILURE_EXIT.into_code()) } else { Ok(known) }
}

/// Asks the running gateway for its scan, and returns true if it has this version of the file. `None`
/// if the servers are to be started.
fn ask_for_scan(
    file: &ConfigSource,
    gateway: &GatewayOption,
    source: ListSource,
) -> Result<Option<(ScanReport, bool)>, RunningGatewayError> {
    let Some(document) = ask_running_gateway(gateway, source, "/scan")? else { return Ok(None) };
    Ok(Some((read_document(&document)?, is_running(file, gateway)?)))
}

/// Returns true if the running gateway has this version of the file.
fn is_running(source: &ConfigSource, gateway: &GatewayOption) -> Result<bool, RunningGatewayError> {
    let status = gateway.request(&GatewayRequest::get("/status"))?;
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
    findings.iter().map(|found| printable(&describe_finding(found)) + "\n").collect()
}

/// Describes a finding, in the words of its server.
pub(crate) fn describe_finding(found: &ScanFinding) -> String {
    let ScanFinding { server, kind, native, is_grave, reasons } = found;
    let grade = if *is_grave { "grave" } else { "minor" };
    format!("{server}: {kind} {native}: {grade}: {}", reasons.join(", "))
}

fn known_elements(report: &ScanReport) -> Vec<KnownElement> {
    let known = report.elements.iter().filter_map(|element| {
        let kind = Kind::ALL.into_iter().find(|kind| kind.member() == element.kind)?;
        let server = ServerName::new(&element.server).ok()?;
        Some(KnownElement { server, kind, native: element.native.clone() })
    });
    known.collect()
}
