//! `trunkline check --scan`: lists all servers once, and scans their definitions.

use std::sync::Arc;

use super::denials::listed_elements;
use crate::cli::definitions::listed::{unlisted_servers, with_listed_servers};
use crate::cli::{print_error, printable, report_error, write_to_stdout};
use crate::config::{Config, PinsChoice, ScanChoice};
use crate::policy::KnownElement;
use crate::snapshot::Snapshot;
use crate::text::clip;

/// Scans the definitions of all servers and prints the findings. Returns the listed elements;
/// `None` if a server cannot be listed, or a finding is grave.
pub(crate) fn scan_servers(config: Config) -> Option<Vec<KnownElement>> {
    let look =
        |snapshot: &Arc<Snapshot>| print_findings(snapshot).then(|| listed_elements(snapshot));
    match with_listed_servers(scanned_whole(config), look) {
        Ok(listed) => listed,
        Err(error) => {
            report_error(&error);
            None
        }
    }
}

/// Returns the configuration with every server scanned and not compared.
fn scanned_whole(mut config: Config) -> Config {
    for server in &mut config.servers {
        let server = Arc::make_mut(server);
        server.definitions.pins = Some(PinsChoice::Off);
        server.definitions.scan = Some(ScanChoice::Hold);
    }
    config
}

fn print_findings(snapshot: &Snapshot) -> bool {
    let unlisted = unlisted_servers(snapshot);
    for line in &unlisted {
        print_error(line);
    }
    let mut is_fine = unlisted.is_empty();
    for member in snapshot.servers() {
        let name = &member.config.name;
        let Some(list) = member.server.list() else { continue };
        for found in snapshot.screen.findings_in(&list) {
            is_fine &= !found.held;
            let grade = if found.held { "grave" } else { "minor" };
            let reasons: Vec<_> = found.reasons.iter().map(ToString::to_string).collect();
            let native = printable(clip(found.native.as_str(), 256));
            let (kind, reasons) = (found.kind.noun(), reasons.join(", "));
            write_to_stdout(&format!("{name}: {kind} {native}: {grade}: {reasons}\n"));
        }
    }
    is_fine
}
