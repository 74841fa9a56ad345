//! `trunkline check`: `serve` without sockets.

pub(crate) mod denials;
pub(crate) mod pattern_habits;
pub(crate) mod report;
mod running_ends;
pub(crate) mod scan;
pub(crate) mod shell_habits;
pub(crate) mod sinks;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::definitions::openapi::{apis_of, survey_now};
use super::login::{describe_logins, describe_relayed_logins, find_shared_callbacks};
use super::running::GatewayOption;
use super::serve::settings;
use super::{
    ANY_ADMIN_HOST_WARNING, BareFile, CommonArgs, FAILURE_EXIT, LoadError, OPEN_GATEWAY_WARNING,
    PUBLIC_ADMIN_WARNING, ReadFile,
};
use crate::admin::{Expiry, key_expiries, local_issuer_expiries, wall_time};
use crate::child::{ChildSpec, probe_sandbox, sandbox_gap, sandbox_remarks};
use crate::config::{
    Config, ConfigFaults, InstancesChoice, NamingChoice, OpenApiConfig, PinsChoice, ServerConfig,
    ServerKind, forwarded_credentials,
};
use crate::policy::{BaselineError, BaselineFolder, pins_of, survey_patterns, survey_rules};
use crate::text::error_chain;
use denials::{configured_elements, describe_denials};
use pattern_habits::describe_foreign_patterns;
use report::CheckReport;
use running_ends::ask_ends;
use scan::{CheckedFile, scan_servers};
use shell_habits::{
    describe_home_paths, describe_missing_programs, describe_shell_variables, parse_written,
};
use sinks::{find_audit_faults, find_event_faults, find_untested_sinks};

/// Check a configuration without running it, and print every fault with its line and key
///
/// Exit codes: 0 if all is fine, 1 for faults and grave findings, 2 for an invalid command line or a
/// file that cannot be read, 3 if a gateway that is asked does not answer.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    file: BareFile,
    /// Also scan all definitions, including approved ones: those of the running gateway, or of the
    /// servers, which are started if none runs with the configuration
    #[arg(long)]
    scan: bool,
    #[command(flatten)]
    source: ScanSource,
    /// Also read the OpenAPI documents at URLs
    #[arg(long)]
    apis: bool,
    /// Fail only for faults that keep `serve` from starting; warn of others, such as an expired
    /// certificate
    #[arg(long)]
    start: bool,
    #[command(flatten)]
    output: CheckOutput,
}

/// The form of the report.
#[derive(Debug, Args)]
struct CheckOutput {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// The source of the definitions for `--scan`.
#[derive(Debug, Args)]
struct ScanSource {
    /// Start the servers for --scan, also if a gateway runs
    #[arg(long, requires = "scan")]
    offline: bool,
}

pub(super) fn check_config(args: &CheckArgs) -> ExitCode {
    let common = &args.common.clone().or_file(args.file.clone());
    let mut report = CheckReport::new(&common.config.path, args.output.json.into());
    let file = match common.load_file() {
        Ok(file) => file,
        Err(error) => {
            report.add_load_error(&error);
            let exit = match error {
                // Faults are the findings of this command.
                LoadError::Faults(_) => FAILURE_EXIT,
                LoadError::Unreadable { .. } | LoadError::Override { .. } => error.exit(),
            };
            return report.finish(Some(exit.into_code()));
        }
    };
    let failure = examine(args, common, &file, &mut report).err();
    report.finish(failure)
}

/// Checks a file that is valid.
///
/// # Errors
/// The exit code.
fn examine(
    args: &CheckArgs,
    common: &CommonArgs,
    file: &ReadFile,
    report: &mut CheckReport,
) -> Result<(), ExitCode> {
    let ReadFile { source, config } = file;
    report.set_servers(config.servers.len());
    let checked = CheckedFile { config, source };
    check_use(args, checked, &common.config.path, report)?;
    warn_of_settings(checked, &common.config.path, report);
    note_instances(config, report);
    for (server, api) in apis_of(config).filter(|(_, api)| args.apis || api.document.is_local()) {
        for warning in warnings_of(server, api) {
            let warning = server.secrets.hide_in(&warning);
            report.warn(&format!("servers.{}: {warning}", server.name));
        }
    }
    check_baselines(common, config, report)?;
    check_sandboxes(config, report)?;
    let logins = [describe_logins(config), describe_relayed_logins(config)].concat();
    let mut known = configured_elements(common, config);
    if args.scan {
        let gateway = GatewayOption::of_config(common.config.path.clone());
        known.extend(scan_servers(checked, &gateway, args.source.offline.into(), report)?);
    }
    report.pass(describe_denials(config, known), logins);
    Ok(())
}

/// Warns of settings that are valid and have consequences that are rarely intended.
fn warn_of_settings(checked: CheckedFile<'_>, path: &Path, report: &mut CheckReport) {
    let CheckedFile { config, source } = checked;
    let text = String::from_utf8_lossy(&source.bytes);
    if is_blank(&text) {
        report.warn("the file is empty: add a server (trunkline add --help)");
    }
    for (is_so, warning) in [
        (config.is_open_to_anyone(), OPEN_GATEWAY_WARNING),
        (config.admin.is_rebindable(), ANY_ADMIN_HOST_WARNING),
        (config.admin.is_reachable_without_tls(), PUBLIC_ADMIN_WARNING),
    ] {
        if is_so {
            report.warn(warning);
        }
    }
    for server in &config.servers {
        for header in forwarded_credentials(server) {
            report.warn(&format!(
                "servers.{}: the `{header}` header of clients is forwarded to the server, unless it \
                 is for the gateway",
                server.name
            ));
        }
    }
    let mut warn_all = |remarks: Vec<String>| remarks.iter().for_each(|it| report.warn(it));
    let written = parse_written(&text);
    warn_all(texts(find_shared_callbacks(config)));
    warn_all(texts(survey_rules(config)));
    warn_all(texts(describe_home_paths(&written)));
    warn_all(texts(describe_shell_variables(&written)));
    warn_all(texts(describe_foreign_patterns(config)));
    warn_all(texts(describe_missing_programs(config, path)));
    warn_all(texts(survey_patterns(config)));
    if config.gateway.naming == NamingChoice::First && config.gateway.state_dir.folder().is_none() {
        report.warn(&format!("gateway.naming: {UNSETTLED_NAMES_WARNING}"));
    }
}

/// Names the places of child processes that differ from one at each replica.
fn note_instances(config: &Config, report: &mut CheckReport) {
    for server in config.servers.iter().filter(|it| it.instances == InstancesChoice::One) {
        let key = format!("servers.{}.instances", server.name);
        report.note(&key, "one replica runs the child, and the others send calls to it");
    }
}

fn texts(remarks: impl IntoIterator<Item: std::fmt::Display>) -> Vec<String> {
    remarks.into_iter().map(|remark| remark.to_string()).collect()
}

/// Reports faults that only appear when a setting is used: of certificates, of host names of the
/// guard, and of a required audit log. Warns of expiries, also of those that the running gateway knows,
/// and of other sinks.
///
/// # Errors
/// The exit code.
fn check_use(
    args: &CheckArgs,
    checked: CheckedFile<'_>,
    path: &Path,
    report: &mut CheckReport,
) -> Result<(), ExitCode> {
    let CheckedFile { config, source } = checked;
    let mut refuse = |faults| {
        report.add_faults(&ConfigFaults::of_late(source, faults));
        Err(FAILURE_EXIT.into_code())
    };
    let own = match settings::of(config) {
        Ok(listeners) => listeners.into_report(),
        Err(faults) => return refuse(faults),
    };
    let authorities = settings::judge_authorities(config);
    let (of_audit, of_events) =
        (find_audit_faults(&config.audit), find_event_faults(&config.events));
    // Without its audit log, a gateway that requires it serves no request.
    let (needed, useful) = if config.audit.required {
        (of_audit, of_events)
    } else {
        (Vec::new(), [of_audit, of_events].concat())
    };
    let faults = [own.faults, authorities.faults, needed].concat();
    let now = wall_time();
    let known = [own.expiries, authorities.expiries, key_expiries(config)].concat();
    let mut expiries = [known, local_issuer_expiries(config, now)].concat();
    // A start precedes the gateway that it could ask.
    if !args.start {
        let is_known = |end: &Expiry| expiries.iter().any(|expiry| expiry.name == end.name);
        let further: Vec<_> = ask_ends(path).into_iter().filter(|end| !is_known(end)).collect();
        expiries.extend(further);
    }
    let places = source.places();
    if !faults.is_empty() && !args.start {
        return refuse(faults);
    }
    let mut warn_of = |key: &str, text: &str| report.warn_at(key, places.line_of(key), text);
    for fault in faults.iter().chain(&useful) {
        warn_of(&fault.key, &fault.to_string());
    }
    for remark in &own.remarks {
        warn_of(remark.key, &remark.to_string());
    }
    for key in find_untested_sinks(config) {
        report.note(key, "not tested, as a check uses no network: `serve` reports it");
    }
    if config.cluster.is_some() {
        let key = "cluster.store";
        report.note(key, "not tested, as a check uses no network: `trunkline doctor` tests it");
    }
    let is_told = |name: &str| faults.iter().any(|fault| fault.key == name);
    for expiry in expiries.iter().filter(|expiry| !is_told(&expiry.name)) {
        if let Some(warning) = expiry.warning(now) {
            report.warn_at(&expiry.name, places.line_of(&expiry.name), &warning);
        }
    }
    Ok(())
}

/// Returns true if the text of a configuration has no settings.
fn is_blank(text: &str) -> bool {
    text.lines().all(|line| matches!(line.trim_start().as_bytes().first(), None | Some(b'#')))
}

/// Reports unusable baselines, and warns where they are missing.
fn check_baselines(
    common: &CommonArgs,
    config: &Config,
    report: &mut CheckReport,
) -> Result<(), ExitCode> {
    let Some(folder) = config.gateway.baseline_folder() else {
        // Replicas have them in their store.
        if config.cluster.is_none() {
            warn_of_lost_baselines(config, report);
        }
        return Ok(());
    };
    // A check creates nothing.
    if !folder.exists() {
        return Ok(());
    }
    let mut fail = |error: &BaselineError| {
        report.add_fault(&error_chain(error));
        FAILURE_EXIT.into_code()
    };
    let folder = BaselineFolder::open(folder, &common.config.path).map_err(|error| fail(&error))?;
    let mut checked = Ok(());
    for server in &config.servers {
        if let Err(fault) = folder.read(&server.name) {
            checked = Err(fail(&fault));
        }
    }
    checked
}

/// Reports sandboxes that this system cannot enforce.
fn check_sandboxes(config: &Config, report: &mut CheckReport) -> Result<(), ExitCode> {
    let launcher = std::env::current_exe().map_err(|error| {
        report.add_fault(&format!("the path of this program: {}", error_chain(&error)));
        FAILURE_EXIT.into_code()
    })?;
    let mut checked = Ok(());
    for server in &config.servers {
        let ServerKind::Command(command) = &server.target else { continue };
        let spec = ChildSpec::for_server(server, command);
        if let Err(fault) = probe_sandbox(&spec, &launcher) {
            let fault = server.secrets.hide_in(&fault);
            report.add_fault(&format!("servers.{}: {fault}", server.name));
            checked = Err(FAILURE_EXIT.into_code());
        }
        let remarks = sandbox_gap(server).map(str::to_owned).into_iter();
        for remark in remarks.chain(sandbox_remarks(&spec)) {
            report.warn(&format!("servers.{}: {remark}", server.name));
        }
    }
    checked
}

/// Warns of servers with changes that go unnoticed after a restart, or cannot be approved.
fn warn_of_lost_baselines(config: &Config, report: &mut CheckReport) {
    for server in &config.servers {
        let consequence = match pins_of(config, server) {
            PinsChoice::Hold => "held definitions cannot be approved",
            PinsChoice::Warn if server.definitions.trusted => {
                "a restart accepts the lists that the server has then"
            }
            PinsChoice::Warn | PinsChoice::Off => continue,
        };
        report.warn(&format!(
            "servers.{}: definitions are not stored, so {consequence}: set \
             gateway.pin_dir or gateway.state_dir",
            server.name
        ));
    }
}

/// Returns the warnings about a local document: its remarks, and the operations that are left out.
/// Documents at URLs are checked by `trunkline openapi`: a check works without a network.
fn warnings_of(server: &Arc<ServerConfig>, api: &OpenApiConfig) -> Vec<String> {
    let survey = match survey_now(server, api) {
        Ok(survey) => survey,
        Err(fault) => return vec![fault.chain_without(&server.secrets)],
    };
    let left_out = survey.left_out.iter().map(|(label, reason)| format!("{label}: {reason}"));
    survey.remarks.iter().cloned().chain(left_out).collect()
}

/// Warning about `naming = "first"` without stored lists.
const UNSETTLED_NAMES_WARNING: &str = "without `state_dir`, the first start does not know the tools of a server \
                         before it has listed them: until then a later server may have the plain name";
