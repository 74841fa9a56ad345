//! `trunkline check --scan`: lists all servers once, and scans their definitions.

use std::sync::Arc;

use super::serve::guardian;
use super::{print_error, report_error, write_to_stdout};
use crate::config::{Config, PinsChoice, ScanChoice, StartChoice};
use crate::pipeline::own_info;
use crate::policy::DefinitionGuard;
use crate::snapshot::{Snapshot, Snapshots, StartUp};
use crate::telemetry::metrics::Metrics;
use crate::text::{clip, escape_controls, escape_invisible};
use crate::upstream::ServerContext;

/// Scans the definitions of all servers and prints what is found; false if a server cannot be listed,
/// or something grave is found.
pub(super) fn scan_servers(config: Config) -> bool {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            report_error(&error);
            return false;
        }
    };
    runtime.block_on(async {
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
        let surroundings = ServerContext::new(guardian(), metrics);
        let config = scanned_whole(config);
        let definitions = DefinitionGuard::default();
        let startup =
            StartUp { config, surroundings, info: own_info(), definitions, quotas: Arc::default() };
        let snapshots = Snapshots::start(startup);
        let servers: Vec<_> =
            snapshots.load().servers().map(|member| Arc::clone(&member.server)).collect();
        for server in servers {
            server.settled().await;
        }
        snapshots.catch_up().await;
        let is_fine = print_findings(&snapshots.load_full());
        snapshots.stop().await;
        is_fine
    })
}

/// The configuration with every server started, scanned and not compared.
fn scanned_whole(mut config: Config) -> Config {
    for server in &mut config.servers {
        let server = Arc::make_mut(server);
        server.start = StartChoice::Eager;
        server.definitions.pins = Some(PinsChoice::Off);
        server.definitions.scan = Some(ScanChoice::Hold);
    }
    config
}

fn print_findings(snapshot: &Snapshot) -> bool {
    let mut is_fine = true;
    for member in snapshot.servers() {
        let name = &member.config.name;
        let Some(list) = member.server.list() else {
            print_error(&format!("servers.{name}: it cannot be listed"));
            is_fine = false;
            continue;
        };
        for found in snapshot.screen.findings_in(&list) {
            is_fine &= !found.held;
            let grade = if found.held { "grave" } else { "minor" };
            let reasons: Vec<_> = found.reasons.iter().map(ToString::to_string).collect();
            let native = escape_invisible(&escape_controls(clip(found.native.as_str(), 256)));
            let (kind, reasons) = (found.kind.noun(), reasons.join(", "));
            write_to_stdout(&format!("{name}: {kind} {native}: {grade}: {reasons}\n"));
        }
    }
    is_fine
}
