//! The scan of all definitions, regardless of the settings: for `trunkline check --scan` and
//! `trunkline try`, also of a gateway that they start themselves.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tools::{UnlistedServer, limit_reasons, unlisted_servers};
use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::definitions::shown_name;
use crate::config::{Config, PinsChoice, ScanChoice};
use crate::policy::DefinitionGuard;
use crate::snapshot::Snapshot;

/// The findings of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ScanReport {
    /// In file order of servers, then in the order of their lists.
    pub(crate) findings: Vec<ScanFinding>,
    /// Every element that was scanned.
    pub(crate) elements: Vec<ScannedElement>,
    /// Every server of the gateway.
    pub(crate) servers: Vec<String>,
    /// The servers that have listed nothing.
    pub(crate) unlisted: Vec<UnlistedServer>,
}

/// A definition with an instruction to models, or a name that looks like another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ScanFinding {
    /// The server.
    pub(crate) server: String,
    /// `tool`, `prompt` and others.
    pub(crate) kind: String,
    /// The server's own name for it.
    pub(crate) native: String,
    /// True if it would be held.
    pub(crate) is_grave: bool,
    /// The reasons, at least one.
    pub(crate) reasons: Vec<String>,
}

/// An element of a server's lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ScannedElement {
    /// The server.
    pub(crate) server: String,
    /// `tools`, `prompts`, `resources` or `resourceTemplates`.
    pub(crate) kind: String,
    /// The server's own name for it.
    pub(crate) native: String,
}

impl ScanReport {
    /// Scans every definition of a snapshot.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let listed = snapshot.servers().filter_map(|member| member.server.list());
        let lists = listed.map(|list| (list.server.clone(), vec![list])).collect();
        let config = scanned_whole((*snapshot.config).clone());
        let (screen, _) = DefinitionGuard::default().observe_lists(&config, &lists);
        let (mut findings, mut elements) = (Vec::new(), Vec::new());
        for list in snapshot.servers().filter_map(|member| member.server.list()) {
            let server = list.server.to_string();
            findings.extend(screen.findings_in(&list).into_iter().map(|found| ScanFinding {
                server: server.clone(),
                kind: found.kind.noun().to_owned(),
                native: shown_name(&found.native),
                is_grave: found.held,
                reasons: found.reasons.iter().map(ToString::to_string).collect(),
            }));
            elements.extend(list.definitions().filter_map(|one| {
                let kind = one.kind.listed()?.member().to_owned();
                Some(ScannedElement {
                    server: server.clone(),
                    kind,
                    native: one.native.to_string(),
                })
            }));
        }
        let servers = snapshot.servers().map(|member| member.config.name.to_string()).collect();
        Self { findings, elements, servers, unlisted: unlisted_servers(snapshot) }
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

/// Scans the definitions of the running gateway.
pub(crate) async fn scan_definitions(request: EndpointRequest) -> EndpointAnswer {
    let snapshot = request.report.gateway.snapshots.load_full();
    let scanned = request.report.evaluations.evaluate(move || ScanReport::of(&snapshot)).await;
    let mut scanned =
        scanned.map_err(|error| ApiProblem::new(ProblemCode::Internal, error.to_string()))?;
    limit_reasons(&mut scanned.unlisted, request.role);
    answer(&scanned)
}
