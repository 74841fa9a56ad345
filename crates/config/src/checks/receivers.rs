//! Rules between the settings of events and of the audit log: one receiver, with its own settings.

use trunkline_telemetry::audit::SyslogAddress;

use crate::faults::problem::SettingFault;
use crate::reader::{ConfigReader, ConfigTable, setting_value};
use crate::sections::gateway::audit::{ArgumentsSizeSetting, AuditConfig, SyslogSetting};

/// Events have one receiver, with its own settings only; requests to a webhook are signed.
pub(super) fn check_events(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    const OWNED_SETTINGS: [(&str, &str); 2] = [("url", "secret"), ("command", "args")];
    let Some(events) = root.find_table("events") else { return };
    let receivers = ["url", "command", "file"].map(|key| events.find_node(key));
    match receivers.iter().flatten().collect::<Vec<_>>()[..] {
        [] if events.all_nodes().is_empty() => {}
        [] => reader.report_fault(events.name_span.clone(), &events.key, SettingFault::NoReceiver),
        [_] => {}
        [_, second, ..] => second.report_fault_at_key(reader, SettingFault::ManyReceivers),
    }
    for (owner, key) in OWNED_SETTINGS {
        if let (None, Some(node)) = (events.find_node(owner), events.find_node(key)) {
            node.report_fault_at_key(reader, SettingFault::OtherReceiver { owner });
        }
    }
    if let (Some(url), None) = (events.find_node("url"), events.find_node("secret")) {
        url.report_fault_at_key(reader, SettingFault::Unsigned);
    }
}

/// An audit log has one sink, and settings of files only beside `file`.
pub(super) fn check_audit(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let Some(audit) = root.find_table("audit") else { return };
    let stdout = audit.find_node("stdout");
    let stdout = stdout
        .filter(|_| setting_value::<AuditConfig, bool>(&audit, "stdout", reader) != Some(false));
    let sinks = [audit.find_node("file"), stdout, audit.find_node("syslog")];
    match sinks.iter().flatten().collect::<Vec<_>>()[..] {
        [] if audit.all_nodes().is_empty() => {}
        [] => reader.report_fault(audit.name_span.clone(), &audit.key, SettingFault::NoAuditSink),
        [_] => {}
        [_, second, ..] => second.report_fault_at_key(reader, SettingFault::ManyAuditSinks),
    }
    check_datagrams(&audit, reader);
    for (owner, key) in AUDIT_OWNED {
        if let (None, Some(node)) = (audit.find_node(owner), audit.find_node(key)) {
            node.report_fault_at_key(reader, SettingFault::OtherAuditSetting { owner });
        }
    }
}

/// A required record is never lost, and a longer one than a datagram would be: redaction and escapes
/// at most double the arguments.
fn check_datagrams(audit: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let is_set = |key, reader: &mut ConfigReader<'_>| {
        setting_value::<AuditConfig, bool>(audit, key, reader) == Some(true)
    };
    if !is_set("required", reader) || !is_set("arguments", reader) {
        return;
    }
    let receiver = setting_value::<AuditConfig, Option<SyslogSetting>>(audit, "syslog", reader);
    let size = setting_value::<AuditConfig, ArgumentsSizeSetting>(audit, "arguments_size", reader);
    if matches!(receiver, Some(Some(SyslogAddress::Udp(_) | SyslogAddress::Unix(_))))
        && size.is_some_and(|size| size > MAX_DATAGRAM_ARGUMENT_BYTES)
        && let Some(node) = audit.find_node("arguments_size")
    {
        node.report_fault(reader, SettingFault::DatagramRecord);
    }
}

/// The most bytes of arguments in a record that fits into a datagram of 65,507 bytes.
const MAX_DATAGRAM_ARGUMENT_BYTES: usize = 24 << 10;
/// Settings of the audit log that have no effect without another one.
const AUDIT_OWNED: [(&str, &str); 7] = [
    ("file", "rotate_size"),
    ("file", "rotate_every"),
    ("file", "keep"),
    ("chain", "chain_key"),
    ("arguments", "arguments_size"),
    ("arguments", "redact_keys"),
    ("arguments", "redact_values"),
];
