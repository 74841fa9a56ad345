//! The report about a server that was tried.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::json;

use crate::admin::{ScanReport, ToolListing};
use crate::cli::check::scan::describe_findings;
use crate::cli::columns::wrap_text;
use crate::cli::{json_text, printable};
use crate::config::ServerSecrets;
use crate::mcp::Era;
use crate::snapshot::Snapshot;

/// The report about a server.
pub(super) struct TrialReport {
    /// Name, version and protocol version, if it has started.
    identity: Option<TrialIdentity>,
    /// The parts of the sandbox that are not enforced, and folders that it hides.
    sandbox: Vec<String>,
    /// The reason that it has listed nothing.
    fault: Option<String>,
    listing: ToolListing,
    scan: ScanReport,
    /// Values that no output contains.
    secrets: ServerSecrets,
}

struct TrialIdentity {
    name: String,
    version: String,
    era: Option<Era>,
    protocol_version: String,
}

impl TrialReport {
    pub(super) fn of(snapshot: &Arc<Snapshot>, sandbox: Vec<String>) -> Self {
        let view = snapshot.servers().next().map(|member| member.server.view());
        let (listing, scan) = (ToolListing::of(snapshot, None), ScanReport::of(snapshot));
        let silent = listing.unlisted.first();
        let fault =
            silent.map(|it| it.reason.clone().unwrap_or_else(|| "it does not answer".into()));
        let peer = view.as_ref().and_then(|view| view.peer.as_ref());
        let identity = peer.map(|peer| {
            let (name, version) = peer.name_and_version();
            let era = view.as_ref().and_then(|view| view.eras.first().copied());
            TrialIdentity { name, version, era, protocol_version: peer.version.to_string() }
        });
        let secrets = ServerSecrets::default();
        Self { identity, sandbox, fault, listing, scan, secrets }
    }

    /// Returns the report without the values of secrets.
    pub(super) fn hiding(self, secrets: ServerSecrets) -> Self {
        Self { secrets, ..self }
    }

    /// Returns true if the server has started and listed.
    pub(super) fn has_started(&self) -> bool {
        self.fault.is_none()
    }

    /// Returns true if it has started, and no finding is grave.
    pub(super) fn is_fine(&self) -> bool {
        self.has_started() && self.scan.findings.iter().all(|found| !found.is_grave)
    }

    /// Returns the report as a JSON document.
    pub(super) fn to_json(&self) -> String {
        let identity = self.identity.as_ref().map(|it| {
            json!({
                "name": it.name, "version": it.version, "era": it.era.map(Era::as_str),
                "protocol_version": it.protocol_version,
            })
        });
        let document = json!({
            "server": identity, "sandbox": self.sandbox, "fault": self.fault,
            "tools": self.listing, "scan": self.scan,
        });
        self.secrets.hide_in(&json_text(&document)).into_owned()
    }

    /// Describes the report for a terminal.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        if let Some(fault) = &self.fault {
            text.push_str(&wrap_text(
                "",
                &self.shown(&format!("The server does not start: {fault}")),
            ));
        } else if let Some(it) = &self.identity {
            let era = it.era.map(Era::as_str).unwrap_or_default();
            let line = format!("{} {}, {era} ({})", it.name, it.version, it.protocol_version);
            text.push_str(&wrap_text("", &self.shown(&line)));
        }
        for remark in &self.sandbox {
            text.push_str(&wrap_text("Sandbox: ", &printable(remark)));
        }
        if self.has_started() {
            self.describe_tools(&mut text);
        }
        text
    }

    /// Returns a text of the server for a terminal.
    fn shown(&self, text: &str) -> String {
        printable(&self.secrets.hide_in(text))
    }

    fn describe_tools(&self, text: &mut String) {
        let tools = self.listing.profiles.iter().flat_map(|profile| &profile.listed);
        let tokens: usize = tools.clone().map(|tool| tool.tokens).sum();
        let count = tools.clone().count();
        let _ = writeln!(text, "\n{count} tool(s), about {tokens} tokens in a model's context:");
        for tool in tools {
            text.push_str(&wrap_text(
                &format!("{:>8}  ", tool.tokens),
                &self.shown(&tool.signature),
            ));
        }
        if self.scan.findings.is_empty() {
            text.push_str("\nThe scan of its definitions has no findings.\n");
        } else {
            text.push_str("\nFindings:\n");
            text.push_str(&self.secrets.hide_in(&describe_findings(&self.scan.findings)));
        }
    }
}
