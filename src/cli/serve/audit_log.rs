//! Translates `[audit]` into the settings of the audit log, and starts and ends it.

use std::io;
use std::time::Duration;

use crate::config::{AuditConfig, Config, DigestChoice};
use crate::telemetry::audit::{
    ArgumentRecording, ArgumentsDigest, AuditSettings, AuditSinkSettings, AuditTrail, ChainKey,
    ChainMode, FileRotation, RedactionRules,
};
use crate::telemetry::metrics::Metrics;

use super::Doors;

/// Starts the audit log of a configuration.
pub(super) fn start_audit(config: &Config, metrics: &Metrics) -> io::Result<AuditTrail> {
    let trail = AuditTrail::new(metrics.audit_counts().clone());
    trail.apply(audit_settings(&config.audit))?;
    Ok(trail)
}

/// Writes the last records.
pub(super) async fn finish_audit(trail: &AuditTrail) {
    let trail = trail.clone();
    // If the runtime ends, so does the process.
    let _ = tokio::task::spawn_blocking(move || trail.finish(LAST_RECORDS_TIMEOUT)).await;
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
pub(super) fn audit_settings(config: &AuditConfig) -> Option<AuditSettings> {
    Some(AuditSettings {
        sink: sink_settings(config)?,
        queue_size: config.queue_size,
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

/// Time limit for writing the last records.
const LAST_RECORDS_TIMEOUT: Duration = Duration::from_secs(2);
