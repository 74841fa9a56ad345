//! Findings: everything that needs an operator, each with its cure. `trunkline status`, the API and
//! `/status` show the same list.

use std::borrow::Cow;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::expiries::describe_end;
use super::status::{
    AuditStatus, DisabledStatus, EmbeddingsStatus, ExpiryStatus, InstanceStatus, IssuerStatus,
    ReloadStatus, ServerState, ServerStatus, SinkStatus, Status,
};
use super::{ClusterStatus, ExpiryState};
use crate::config::AdminRole;
use crate::telemetry::metrics::ReloadOutcome;
use crate::upstream::hide_output;

/// Something that needs an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Its weight.
    pub level: FindingLevel,
    /// The setting or the part of the gateway, such as `servers.github`.
    pub subject: String,
    /// The facts, without secrets.
    pub text: String,
    /// The action that ends it.
    pub cure: String,
}

/// Weights of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// Something does not work.
    Error,
    /// Something works, and may not work later.
    Warning,
}

impl Finding {
    fn new(level: FindingLevel, subject: &str, text: &str, cure: &str) -> Self {
        let (subject, text, cure) = (subject.to_owned(), text.to_owned(), cure.to_owned());
        Self { level, subject, text, cure }
    }

    fn error(subject: &str, text: &str, cure: &str) -> Self {
        Self::new(FindingLevel::Error, subject, text, cure)
    }

    fn warning(subject: &str, text: &str, cure: &str) -> Self {
        Self::new(FindingLevel::Warning, subject, text, cure)
    }
}

/// Returns the findings in a status, errors first.
pub(super) fn find_findings(status: &Status) -> Vec<Finding> {
    let now = status.now;
    let reload = status.configuration.as_ref().and_then(|it| it.last_reload.as_ref());
    let mut found: Vec<Finding> = reload.and_then(reload_finding).into_iter().collect();
    found.extend(status.servers.iter().filter_map(|server| server_finding(server, now)));
    found.extend(status.servers.iter().filter_map(instance_finding));
    found.extend(status.servers.iter().flat_map(guard_findings));
    found.extend(status.expiries.iter().filter_map(|expiry| expiry_finding(expiry, now)));
    found.extend(status.issuers.iter().filter_map(issuer_finding));
    found.extend(status.cluster.iter().flat_map(cluster_findings));
    found.extend(status.audit.as_ref().and_then(audit_finding));
    found.extend(status.sinks.iter().filter_map(event_finding));
    found.extend(status.embeddings.as_ref().and_then(embedding_finding));
    found.sort_by_key(|finding| finding.level == FindingLevel::Warning);
    found
}

/// Returns the status for an operator with this role. Login links are left out for viewers: the first
/// browser that opens one logs the gateway in with an account of its user. So are quotes of a server's
/// output.
pub(super) fn limit_status(mut status: Status, role: AdminRole) -> Status {
    if !role.includes(AdminRole::Operator) {
        for server in &mut status.servers {
            server.login = None;
            let instances = server.instances.iter_mut().map(|instance| &mut instance.last_error);
            for error in instances.chain([&mut server.last_error]).flatten() {
                limit_text(&mut error.message, role);
            }
            for warning in &mut server.warnings {
                limit_text(warning, role);
            }
        }
        status.findings = find_findings(&status);
    }
    status
}

/// Removes quotes of a server's output from a text, for an operator with less than the role to read
/// output.
pub(super) fn limit_text(text: &mut String, role: AdminRole) {
    if !role.includes(AdminRole::Operator)
        && let Cow::Owned(limited) = hide_output(text)
    {
        *text = limited;
    }
}

fn reload_finding(reload: &ReloadStatus) -> Option<Finding> {
    let (text, cure) = match reload.outcome {
        ReloadOutcome::Applied | ReloadOutcome::Unchanged => return None,
        ReloadOutcome::Rejected => {
            let faults = reload.faults.join("; ");
            let text = format!("the new configuration has faults and is not in effect: {faults}");
            (text, "correct the file (trunkline check)".to_owned())
        }
        ReloadOutcome::Refused => {
            let losses = reload.losses.join("; ");
            let text = format!("the new configuration weakens protection and waits: {losses}");
            let accept = reload.accept.as_deref().unwrap_or("a restart");
            (text, format!("take it back, or accept it with {accept}"))
        }
    };
    Some(Finding::error("configuration", &text, &cure))
}

/// Describes a store that cannot be used, and replicas with another configuration.
fn cluster_findings(cluster: &ClusterStatus) -> Vec<Finding> {
    let store = cluster.store_error.as_ref().map(|error| {
        let text = format!("the store cannot be used, and new replicas are not seen: {error}");
        Finding::error("cluster.store", &text, "start the store, or correct its URL or network")
    });
    let degraded = cluster.degraded.then(|| {
        let text = "the store cannot be used for rates: each replica counts them for itself, or refuses \
                    calls that need one, as cluster.degrade says; quotas last as far as they are leased";
        Finding::error("cluster.degraded", text, "see the log of the store; it is tried every second")
    });
    let other = cluster.replicas.iter().filter(|replica| !replica.same_configuration);
    let other = other.map(|replica| {
        let text = format!("the replica {} has another configuration", replica.address);
        Finding::warning("cluster", &text, "finish the rollout, or reload the older one")
    });
    let skewed = cluster.skewed.iter().map(|replica| {
        let side = if replica.ahead > 0 { "ahead of" } else { "behind" };
        let (address, seconds) = (&replica.address, replica.ahead.unsigned_abs());
        let text = format!(
            "the clock of the replica {address} is {seconds} s {side} this one: its sessions are not \
             found here"
        );
        Finding::error("cluster", &text, "synchronize the clocks (NTP)")
    });
    store.into_iter().chain(degraded).chain(other).chain(skewed).collect()
}

/// Describes a server that takes no calls.
fn server_finding(server: &ServerStatus, now: Timestamp) -> Option<Finding> {
    let error = server.last_error.as_ref().map_or("it does not run", |error| &error.message);
    let cure = match server.state {
        ServerState::Backoff => match server.next_retry_at {
            Some(at) => {
                format!("it is tried again in {} s", at.duration_since(now).as_secs().max(0))
            }
            None => "it is tried again".to_owned(),
        },
        ServerState::Login if server.own_accounts_only => return None,
        ServerState::Login => {
            let link = server.login.as_deref();
            let login = format!("trunkline login {}", server.name);
            link.map_or(login.clone(), |link| format!("{login}, or open {link}"))
        }
        ServerState::Failed => server.cure.clone().unwrap_or_default(),
        ServerState::Idle
        | ServerState::Connecting
        | ServerState::Ready
        | ServerState::Stopping => return None,
        ServerState::Disabled => {
            return server.disabled.as_ref().map(|it| disabled_finding(server, it));
        }
    };
    let subject = format!("servers.{}", server.name);
    let text = if server.state == ServerState::Login { "it requires a login" } else { error };
    Some(Finding::error(&subject, text, &cure))
}

/// Describes a server that an operator has disabled.
fn disabled_finding(server: &ServerStatus, disabled: &DisabledStatus) -> Finding {
    let DisabledStatus { by, at, survives_restart } = disabled;
    let until = if *survives_restart {
        ""
    } else {
        ", until the gateway restarts: gateway.state_dir is not set, or cannot be written"
    };
    let text = format!("it is disabled by {by} since {at:.0}{until}");
    let cure = format!("trunkline enable {}", server.name);
    Finding::warning(&format!("servers.{}", server.name), &text, &cure)
}

/// Describes the instances for some clients that do not run, beside the first one.
fn instance_finding(server: &ServerStatus) -> Option<Finding> {
    if server.state == ServerState::Disabled {
        return None;
    }
    let is_down =
        |it: &&InstanceStatus| matches!(it.state, ServerState::Backoff | ServerState::Failed);
    let down: Vec<_> = server.instances.iter().skip(1).filter(is_down).collect();
    let first = down.first()?;
    let error = first.last_error.as_ref().map_or("it does not run", |error| &error.message);
    let text = match down.len() {
        1 => format!("an instance does not run ({}): {error}", first.reason),
        count => format!("{count} instances do not run, first one: {}: {error}", first.reason),
    };
    let cure = if first.state == ServerState::Failed {
        format!("mend the reason, then trunkline restart {}", server.name)
    } else {
        "it is tried again".to_owned()
    };
    Some(Finding::warning(&format!("servers.{}", server.name), &text, &cure))
}

/// Describes the protections of a server that hold something back.
fn guard_findings(server: &ServerStatus) -> Vec<Finding> {
    let subject = format!("servers.{}", server.name);
    let mut found = Vec::new();
    if let Some(breaker) = server.breaker.as_ref().filter(|breaker| breaker.state == "open") {
        let until = breaker.until.map(|until| format!(" until {until:.0}")).unwrap_or_default();
        let text = format!("its circuit breaker refuses calls{until}");
        found.push(Finding::warning(&subject, &text, "see its last error; it is tried again then"));
    }
    if let Some(fault) = &server.definitions.fault {
        let cure = "restore the file of accepted definitions";
        found.push(Finding::error(&subject, fault, cure));
    }
    let undecided = server.definitions.held - server.definitions.rejected;
    if undecided > 0 {
        let text = format!("{undecided} of its definitions are held");
        let cure = "trunkline pin diff, then trunkline pin approve or reject";
        found.push(Finding::warning(&subject, &text, cure));
    }
    found
}

fn expiry_finding(expiry: &ExpiryStatus, now: Timestamp) -> Option<Finding> {
    let level = match expiry.state {
        ExpiryState::Valid => return None,
        ExpiryState::Soon => FindingLevel::Warning,
        ExpiryState::Expired => FindingLevel::Error,
    };
    let text = format!("{} {}", expiry.subject, describe_end(expiry.expires_at, now));
    Some(Finding::new(level, &expiry.name, &text, expiry.cure))
}

fn issuer_finding(issuer: &IssuerStatus) -> Option<Finding> {
    let subject = format!("issuers.{}", issuer.name);
    let cure = "correct the issuer's settings, or wait for it; it is asked again";
    if let Some(error) = &issuer.error {
        let level = if issuer.keys == 0 { FindingLevel::Error } else { FindingLevel::Warning };
        return Some(Finding::new(level, &subject, error, cure));
    }
    issuer.login_error.as_ref().map(|error| Finding::error(&subject, error, cure))
}

fn audit_finding(audit: &AuditStatus) -> Option<Finding> {
    let error = audit.error.as_ref()?;
    let effect = if audit.refuses_requests { ", and requests are refused" } else { "" };
    let text = format!("records cannot be written ({} are lost){effect}: {error}", audit.dropped);
    Some(Finding::error("audit", &text, "make the place of the records writable"))
}

/// Describes a destination of events that takes none; the audit log has a finding of its own.
fn event_finding(sink: &SinkStatus) -> Option<Finding> {
    let error = sink.error.as_ref().filter(|_| sink.name != "audit")?;
    let text = format!("{} cannot be written: {error}", sink.place);
    Some(Finding::warning(sink.name, &text, "correct the place of the events; it is tried again"))
}

/// Describes a service of vectors that does not answer.
fn embedding_finding(embeddings: &EmbeddingsStatus) -> Option<Finding> {
    let error = embeddings.error.as_ref()?;
    let text = format!("no vectors can be made, and search uses words alone: {error}");
    let cure = "correct the settings of the service, or wait for it; it is asked again";
    Some(Finding::warning("search.embeddings", &text, cure))
}
