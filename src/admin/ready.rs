//! Whether clients should be sent to this gateway.
//!
//! Ready means: a configuration runs, the gateway is not draining, every eager
//! server has had its first verdict (it became ready or failed once) or
//! [`VERDICT_GRACE`] has passed, and not all servers are down. A server that is
//! down while others work is a reason that is told, not one that counts: the
//! others' tools are better than none. With all of them down the gateway can
//! do nothing that another replica could not do better. A gateway without
//! servers is ready: that is what it was asked to be. An issuer of tokens whose
//! keys are not known is a reason that is told: it would be the same elsewhere.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::status::{GatewayState, IssuerStatus, ServerStart, ServerState, ServerStatus, Status};

/// How long after the start of the process eager servers may take to their
/// first verdict before the gateway is ready without them.
pub const VERDICT_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// The answer of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// Whether clients should come.
    pub ready: bool,
    /// Why not; or, when ready, which servers are missing all the same.
    pub reasons: Vec<String>,
}

impl Readiness {
    /// Judges a status.
    pub fn of(status: &Status) -> Self {
        let stopping = match (status.state, &status.configuration) {
            (GatewayState::Draining, _) => Some("the gateway is draining"),
            (GatewayState::Starting, _) | (_, None) => Some("no configuration runs yet"),
            (GatewayState::Ready, Some(_)) => None,
        };
        if let Some(reason) = stopping {
            return Self { ready: false, reasons: vec![reason.to_owned()] };
        }
        let servers = || status.servers.iter().filter(|s| s.state != ServerState::Stopping);
        let pending = in_grace(status) && servers().any(awaits_verdict);
        let all_down = servers().next().is_some() && !servers().any(can_take_calls);
        let mut reasons: Vec<_> = servers().filter(|s| !can_take_calls(s)).map(reason).collect();
        let lacks_keys = |issuer: &&IssuerStatus| issuer.keys == 0;
        let unknown = status.issuers.iter().filter(lacks_keys);
        reasons.extend(unknown.map(|issuer| format!("issuer {}: no keys yet", issuer.name)));
        if all_down {
            reasons.insert(0, "no server can take calls".to_owned());
        }
        Self { ready: !pending && !all_down, reasons }
    }
}

fn in_grace(status: &Status) -> bool {
    status.now.duration_since(status.started_at) < VERDICT_GRACE
}

fn awaits_verdict(server: &ServerStatus) -> bool {
    server.start == ServerStart::Eager && server.first_verdict_at.is_none()
}

/// Ready, or made ready by the first call.
fn can_take_calls(server: &ServerStatus) -> bool {
    match server.state {
        ServerState::Ready => true,
        ServerState::Idle => !awaits_verdict(server),
        // Woken by a call, it makes that call wait, no more. An eager one without
        // an error was idle for want of calls; one with an error is coming back.
        ServerState::Connecting => {
            server.start == ServerStart::Lazy
                || (!awaits_verdict(server) && server.last_error.is_none())
        }
        // Clients use their own accounts, and log in as they need it.
        ServerState::Backoff | ServerState::Login | ServerState::Failed => server.own_accounts_only,
        ServerState::Stopping => false,
    }
}

/// Without the error, which may quote what a server wrote: probes are often less protected than
/// `/status`.
fn reason(server: &ServerStatus) -> String {
    let ServerStatus { name, state, since, .. } = server;
    format!("{name}: {} since {}", state.as_str(), whole_seconds(*since))
}

fn whole_seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}
