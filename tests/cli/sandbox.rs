//! Warnings for operators about sandboxes that the kernel does not enforce completely.
#![cfg(target_os = "linux")]

use std::process::Command;

use super::clock;
use super::process::{Process, TRUNKLINE, Tag, text};

const OLD_KERNEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/old_kernel.py");

#[test]
fn a_gateway_on_an_older_kernel_reports_gaps_of_a_sandbox_in_log_and_status() {
    let gap = "cannot block signals";
    for (abi, scopes, is_told) in
        [("5", "", true), ("5", "scopes = false", false), ("6", "", false)]
    {
        let (tag, folder) = (Tag::new(), tempfile::tempdir().unwrap());
        let servers = clock(&tag) + "[servers.clock.sandbox]\n" + scopes + "\n";
        let config = folder.path().join("gateway.toml");
        std::fs::write(&config, text(&servers)).unwrap();
        let mut command = Command::new("python3");
        command.args([OLD_KERNEL, abi, TRUNKLINE, "serve", "--config"]).arg(&config);
        let gateway = Process::start_command(folder, command);
        gateway.ready(&["clock"]);
        let warnings = gateway.server("clock")["warnings"].to_string();
        assert_eq!(warnings.contains(gap), is_told, "{abi} {scopes}: {warnings}");
        assert_eq!(gateway.log().contains(gap), is_told, "{abi} {scopes}: {}", gateway.log());
    }
}
