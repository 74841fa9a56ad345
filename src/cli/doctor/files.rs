//! Programs, certificates and the configurations of clients.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use trunkline_import::{ConfigFile, KNOWN_CLIENTS, UserFolders, find_replaceable_entries};

use super::report::{CheckArea, DoctorReport};
use crate::admin::{key_expiries, wall_time};
use crate::cli::check::shell_habits::describe_missing_programs;
use crate::cli::edited::gateway_file::open_gateway_file;
use crate::cli::serve::settings;
use crate::clock;
use crate::config::{Config, ServerKind};
use crate::text::clip;

/// Checks that the programs of servers exist, and that the usual runtimes among them start.
pub(super) fn check_runtimes(config: &Config, path: &Path, report: &mut DoctorReport) {
    let area = CheckArea::Runtimes;
    let missing = describe_missing_programs(config, path);
    let is_complete = missing.is_empty();
    for remark in missing {
        let (setting, text) = remark.split_once(": ").unwrap_or(("servers", &remark));
        report.find_at(area, setting, text.to_owned(), "install it, or correct `command`");
    }
    let programs = config.servers.iter().filter_map(|server| match &server.target {
        ServerKind::Command(command) => Some(command.program.as_str()),
        ServerKind::Http(_) | ServerKind::OpenApi(_) => None,
    });
    let programs: BTreeSet<&str> = programs.collect();
    for program in KNOWN_RUNTIMES.iter().filter(|known| programs.contains(**known)) {
        match ask_version(program) {
            Some(Ok(version)) => report.pass(area, format!("{program} {version}")),
            Some(Err(fault)) => {
                let text = format!("{program} --version: {fault}");
                report.find(area, text, "install it again");
            }
            // It is reported as missing.
            None => {}
        }
    }
    if is_complete && !programs.is_empty() {
        report.pass(area, format!("{} program(s) of servers exist", programs.len()));
    }
}

#[expect(clippy::disallowed_methods, reason = "the command has no runtime here")]
fn pause() {
    std::thread::sleep(POLL_INTERVAL);
}

/// Runs `PROGRAM --version` within [`VERSION_TIME`]; `None` if there is no such program.
fn ask_version(program: &str) -> Option<Result<String, String>> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(error.to_string())),
    };
    let end = clock::now() + VERSION_TIME;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(Some(status)) => return Some(Err(status.to_string())),
            Ok(None) if clock::now() < end => pause(),
            Ok(None) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Some(Err(format!("no answer within {} s", VERSION_TIME.as_secs())));
            }
            Err(error) => return Some(Err(error.to_string())),
        }
    }
    let printed = child.wait_with_output().map(|output| output.stdout).unwrap_or_default();
    let printed = String::from_utf8_lossy(&printed);
    let line = printed.lines().next().unwrap_or_default();
    Some(Ok(clip(line.trim(), 80).to_owned()))
}

/// Checks certificates, CA certificates and keys with an end.
pub(super) fn check_certificates(config: &Config, report: &mut DoctorReport) {
    let area = CheckArea::Certificates;
    let own = match settings::of(config) {
        Ok(listeners) => listeners.into_report(),
        Err(faults) => {
            for fault in faults {
                report.find_at(area, &fault.key, fault.text.clone(), &fault.help);
            }
            return;
        }
    };
    let authorities = settings::judge_authorities(config);
    let faults = [own.faults, authorities.faults].concat();
    let expiries = [own.expiries, authorities.expiries, key_expiries(config)].concat();
    let now = wall_time();
    let mut found = faults.len();
    for fault in &faults {
        report.find_at(area, &fault.key, fault.text.clone(), &fault.help);
    }
    for expiry in expiries.iter().filter(|it| !faults.iter().any(|fault| fault.key == it.name)) {
        if let Some(warning) = expiry.warning(now) {
            found += 1;
            let text = warning.strip_prefix(&format!("{}: ", expiry.name)).unwrap_or(&warning);
            report.find_at(area, &expiry.name, text.to_owned(), expiry.kind.cure());
        }
    }
    if found == 0 {
        report.pass(area, format!("{} certificate(s) and key(s) with an end", expiries.len()));
    }
}

/// Checks the configurations of clients on this machine: that they can be read, and that they do
/// not start servers that the gateway has.
pub(super) fn check_client_files(path: &Path, report: &mut DoctorReport) {
    let area = CheckArea::Clients;
    let folders = UserFolders::from_environment();
    let gateway = match open_gateway_file(path) {
        Ok(gateway) => gateway,
        Err(error) => return report.skip(area, &error.to_string()),
    };
    let mut found = false;
    for client in KNOWN_CLIENTS.iter().filter(|client| client.takes_exports()) {
        for place in client.existing_files(&folders) {
            found = true;
            let shown = place.display().to_string();
            let file = ConfigFile::of_client(client, place);
            match find_replaceable_entries(&file, &gateway, &folders, None) {
                Ok(own) if own.entries.is_empty() => {
                    report.pass(area, format!("{}: {shown}", client.title));
                }
                Ok(own) => {
                    let names = own.entries.iter().map(|entry| entry.name.as_str());
                    let names = names.collect::<Vec<_>>().join(", ");
                    let text = format!(
                        "{}: {shown} starts servers itself that the gateway has: {names}",
                        client.title
                    );
                    let id = client.id;
                    let cure = format!("trunkline export --client {id} --write --replace");
                    report.find(area, text, &cure);
                }
                Err(error) => {
                    let text = format!("{}: {error}", client.title);
                    report.find(area, text, "correct the file");
                }
            }
        }
    }
    if !found {
        report.skip(area, "no known client has a configuration here");
    }
}

/// Programs with an option `--version` that start servers.
const KNOWN_RUNTIMES: [&str; 9] =
    ["npx", "node", "uvx", "uv", "python3", "docker", "deno", "bun", "bunx"];
/// Time limit of a runtime's answer.
const VERSION_TIME: Duration = Duration::from_secs(10);
/// Interval between two looks at a runtime that was started.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
