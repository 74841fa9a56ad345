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
use crate::cli::running::{GatewayOption, GatewayRequest, report_unanswered};
use crate::cli::{FAILURE_EXIT, printable, report_error};
use crate::config::{Config, ConfigSource};
use crate::policy::KnownElement;

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
    let asked = ask_running_gateway(gateway, source, "/scan");
    let (report, is_same_file): (ScanReport, bool) =
        if let Some(document) = asked.map_err(|error| report_unanswered(&error))? {
            (read_document(&document)?, is_running(checked.source, gateway)?)
        } else {
            let listed = with_listed_servers(config.clone(), |it| ScanReport::of(it));
            (listed.map_err(|error| report_error(&error))?, true)
        };
    for server in &report.unlisted {
        output.add_fault(&describe_unlisted(server));
    }
    for name in unknown_servers(config, &report) {
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
    let has_failed = is_grave || !report.unlisted.is_empty() || !is_same_file;
    let (known, text) = (known_elements(&report), describe_findings(&report.findings));
    output.add_scan(report, &text);
    if has_failed { Err(FAILURE_EXIT.into_code()) } else { Ok(known) }
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
