//! The history of one server: its faults and its output.

use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::api::problem::ApiProblem;
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::limit_text;
use crate::upstream::{FaultEntry, ServerJournal};

use super::{server_name, unknown_server};

/// The faults of a server since the start of the gateway.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FaultsPage {
    /// Its name.
    server: String,
    /// At most fifty different faults, the last one first.
    faults: Vec<FaultStatus>,
}

/// A fault of a server.
#[derive(Serialize, JsonSchema)]
struct FaultStatus {
    /// The state that it has led to: `backoff`, `login`, `failed`, or `ready` if it stayed so.
    state: &'static str,
    /// The owner of the instance; `None` for the first instance.
    instance: Option<String>,
    /// The reason, without secrets.
    reason: String,
    /// Time of the first occurrence.
    first_at: Timestamp,
    /// Time of the last occurrence.
    last_at: Timestamp,
    /// Number of occurrences.
    count: u64,
    /// Time of the next start, at the last occurrence.
    next_retry_at: Option<Timestamp>,
}

/// The last lines that a server's processes wrote to standard error.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OutputPage {
    /// Its name.
    server: String,
    /// At most 200 lines and 64 KiB, oldest first. Secrets of the configuration are `***`.
    lines: Vec<OutputLineStatus>,
    /// Number of all lines since the start of the gateway.
    written: u64,
}

/// A line of output.
#[derive(Serialize, JsonSchema)]
struct OutputLineStatus {
    /// Time of its arrival.
    at: Timestamp,
    /// Its text, with escaped control characters.
    text: String,
}

/// Answers with the faults of a server.
pub(crate) fn list_faults(request: &EndpointRequest) -> EndpointAnswer {
    let (server, journal) = find_journal(request)?;
    let faults = journal.faults().into_iter().map(|mut fault| {
        limit_text(&mut fault.text, request.role);
        fault_status(fault)
    });
    answer(&FaultsPage { server, faults: faults.collect() })
}

/// Answers with the output of a server.
pub(crate) fn list_output(request: &EndpointRequest) -> EndpointAnswer {
    let (server, journal) = find_journal(request)?;
    let (lines, written) = journal.output().lines();
    let lines =
        lines.into_iter().map(|line| OutputLineStatus { at: time(line.at), text: line.text });
    answer(&OutputPage { server, lines: lines.collect(), written })
}

fn find_journal(request: &EndpointRequest) -> Result<(String, Arc<ServerJournal>), ApiProblem> {
    let name = server_name(request)?;
    let snapshots = &request.report.gateway.snapshots;
    let is_there = snapshots.load().config.servers.iter().any(|server| server.name == name);
    if !is_there {
        return Err(unknown_server(name.as_str()));
    }
    Ok((name.to_string(), snapshots.journal(&name)))
}

fn fault_status(fault: FaultEntry) -> FaultStatus {
    FaultStatus {
        state: fault.state,
        instance: fault.owner,
        reason: fault.text,
        first_at: time(fault.first_at),
        last_at: time(fault.last_at),
        count: fault.count,
        next_retry_at: fault.next_retry.map(time),
    }
}

fn time(at: SystemTime) -> Timestamp {
    Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH)
}
