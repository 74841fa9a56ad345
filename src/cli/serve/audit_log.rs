//! Translates `[audit]` into the settings of the audit log, and starts and ends it.

use std::io;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::cli::check::sinks::find_audit_faults;
use crate::codec::file::FileReader;
use crate::config::{AuditConfig, Config, DigestChoice, LateFault};
use crate::telemetry::audit::{
    ArgumentRecording, ArgumentsDigest, AuditOperation, AuditSettings, AuditSinkSettings,
    AuditTrail, ChainKey, ChainMode, FileRotation, OperationActor, OperationOutcome,
    OperationRecord, RedactionRules,
};
use crate::telemetry::metrics::{Metrics, ReloadOutcome};
use crate::text::error_chain;

use super::Doors;

/// Starts the audit log of a configuration. Waits a moment for the sink of a required log: requests
/// are refused until it is open. A sink that cannot be opened is reported, and tried again.
pub(super) async fn start_audit(config: &Config, metrics: &Metrics) -> io::Result<AuditTrail> {
    let trail = AuditTrail::new(metrics.audit_counts().clone());
    trail.apply(audit_settings(&config.audit))?;
    if config.audit.required {
        let trail = trail.clone();
        let _ = spawn_blocking(move || trail.await_sink(SINK_TIMEOUT)).await;
    }
    Ok(trail)
}

/// Puts the settings of a reload in force. The running log serves until the sink of a required one is
/// open, and stays if that cannot be opened: with it, the gateway would refuse everything.
///
/// # Errors
/// The fault of the setting.
pub(super) async fn replace_audit(
    trail: &AuditTrail,
    config: &AuditConfig,
) -> Result<(), LateFault> {
    let replaced = match audit_settings(config) {
        Some(settings) if settings.required => switch_audit(trail, settings).await,
        settings => trail.apply(settings).map_err(|error| error.to_string()),
    };
    let Err(fault) = replaced else { return Ok(()) };
    let (key, place) = match (&config.file, &config.syslog) {
        (Some(path), _) => ("audit.file", path.display().to_string()),
        (None, Some(address)) => ("audit.syslog", address.to_string()),
        (None, None) => ("audit.stdout", "standard output".to_owned()),
    };
    let text = format!("{place} cannot be written: {fault}");
    let help = "mend its receiver, or set `required = false`".to_owned();
    Err(LateFault { key: key.to_owned(), text, help })
}

/// Opens the sink of a required log, and lets it take over.
async fn switch_audit(trail: &AuditTrail, settings: AuditSettings) -> Result<(), String> {
    let (trail, switcher) = (trail.clone(), trail.clone());
    let preparing = spawn_blocking(move || trail.prepare(settings));
    let tried = timeout(SINK_TIMEOUT, preparing).await;
    let tried = tried.map_err(|_| format!("it does not answer within {SINK_TIMEOUT:?}"))?;
    let prepared = tried.map_err(|error| error.to_string())?;
    let prepared = prepared.map_err(|error| error_chain(&error))?;
    let switching = spawn_blocking(move || switcher.switch(prepared, SINK_TIMEOUT));
    switching.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// Returns the faults of a new required log that cannot be opened: with it, the gateway would refuse
/// everything.
pub(super) async fn find_required_faults(
    reader: &FileReader,
    config: &Config,
    running: &Config,
) -> Vec<LateFault> {
    if !config.audit.required || config.audit == running.audit {
        return Vec::new();
    }
    let audit = config.audit.clone();
    // A file system that hangs is found by the writer of the log.
    reader.run(move || find_audit_faults(&audit)).await.unwrap_or_default()
}

/// Records a reload.
pub(super) fn record_reload(
    trail: &AuditTrail,
    reload: AuditOperation<'_>,
    actor: OperationActor<'_>,
    outcome: ReloadOutcome,
) {
    let (outcome, reason) = match outcome {
        ReloadOutcome::Applied => (OperationOutcome::Ok, None),
        ReloadOutcome::Unchanged => (OperationOutcome::Ok, Some("unchanged")),
        ReloadOutcome::Rejected => (OperationOutcome::Failed, Some("faults")),
        ReloadOutcome::Refused => (OperationOutcome::Refused, Some("weakens_protection")),
    };
    let record = OperationRecord { operation: reload, actor, address: None, outcome, reason };
    trail.record_operation(&record);
}

/// Writes the last records.
pub(super) async fn finish_audit(trail: &AuditTrail) {
    let trail = trail.clone();
    // If the runtime ends, so does the process.
    let _ = spawn_blocking(move || trail.finish(LAST_RECORDS_TIMEOUT)).await;
}

/// Checks that no record goes to standard output if a client on standard streams reads it.
///
/// # Errors
/// The fault, in a sentence.
pub(super) fn check_standard_output(config: &Config, doors: Doors) -> Result<(), String> {
    if config.audit.stdout && doors.clients.is_none() {
        return Err("audit.stdout: the client reads standard output: use `file` or `syslog`".into());
    }
    Ok(())
}

/// Builds the settings of the log; `None` without a sink.
pub(crate) fn audit_settings(config: &AuditConfig) -> Option<AuditSettings> {
    Some(AuditSettings {
        sink: sink_settings(config)?,
        queue_size: config.queue_size,
        required: config.required,
        chain: chain_mode(config),
        digest: match config.arguments_digest {
            DigestChoice::Off => ArgumentsDigest::Off,
            DigestChoice::Sha256 => ArgumentsDigest::Sha256,
            DigestChoice::Blake2b => ArgumentsDigest::Blake2b,
        },
        arguments: argument_recording(config),
    })
}

fn sink_settings(config: &AuditConfig) -> Option<AuditSinkSettings> {
    let rotation = FileRotation {
        size: config.rotate_size.map(|size| size as u64),
        age: config.rotate_every,
        keep: config.keep,
    };
    match (&config.file, &config.syslog) {
        (Some(path), _) => Some(AuditSinkSettings::File(path.clone(), rotation)),
        (None, Some(address)) => Some(AuditSinkSettings::Syslog(address.clone())),
        (None, None) => config.stdout.then_some(AuditSinkSettings::Stdout),
    }
}

fn chain_mode(config: &AuditConfig) -> ChainMode {
    let key = config.chain_key.as_ref();
    // The configuration has checked the key.
    let key = key.and_then(|key| ChainKey::new(key.expose().as_bytes()));
    match key {
        _ if !config.chain => ChainMode::Off,
        Some(key) => ChainMode::Keyed(key),
        None => ChainMode::Plain,
    }
}

fn argument_recording(config: &AuditConfig) -> Option<ArgumentRecording> {
    // The configuration has checked the expressions. If they are too large in combination, values
    // are not recorded.
    let redaction = RedactionRules::new(&config.redact_keys, &config.redact_values);
    let redaction = redaction.inspect_err(|error| tracing::error!(%error, "audit: no values"));
    let redaction = redaction.ok().filter(|_| config.arguments)?;
    Some(ArgumentRecording { size: config.arguments_size, redaction })
}

/// Time limit for opening the sink of a required log before the gateway starts without it, or keeps
/// the running one.
const SINK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for writing the last records.
const LAST_RECORDS_TIMEOUT: Duration = Duration::from_secs(2);
