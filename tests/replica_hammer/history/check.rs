//! The check of a history.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::{CallEnd, CallRecord, Execution, History, client_of};

/// A violated guarantee, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A client received a message that was not meant for it.
    WrongClient { client: String, mark: String },
    /// A call ended without an answer or an error.
    MissingEnd { mark: String, end: Option<CallEnd> },
    /// A server executed one request several times.
    Repeated { mark: String, round: u32, times: usize },
    /// A client has the result of a call that no server has executed.
    NeverExecuted { mark: String },
    /// A server executed a request that was refused with the advice to try again.
    ExecutedThoughRefused { mark: String, error: String },
    /// Two processes served one session alternately.
    TwoOwners { session: String, evidence: [String; 3] },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Returns all violations in a history.
pub fn violations(history: &History) -> Vec<Violation> {
    let mut executed: HashMap<(&str, u32), usize> = HashMap::new();
    for execution in &history.executions {
        *executed.entry((&execution.mark, execution.round)).or_default() += 1;
    }
    let mut found = wrong_clients(history);
    found.extend(repeated(&executed));
    for call in &history.calls {
        let times = |round| executed.get(&(call.mark.as_str(), round)).copied().unwrap_or(0);
        found.extend(faulty_end(call, times));
    }
    found.extend(two_owners(history));
    found
}

fn wrong_clients(history: &History) -> Vec<Violation> {
    let strayed = history.deliveries.iter().filter(|it| client_of(&it.mark) != it.client);
    strayed
        .map(|it| Violation::WrongClient { client: it.client.clone(), mark: it.mark.clone() })
        .collect()
}

fn repeated(executed: &HashMap<(&str, u32), usize>) -> Vec<Violation> {
    let repeated = executed.iter().filter(|(_, times)| **times > 1);
    repeated
        .map(|(key, times)| Violation::Repeated {
            mark: key.0.to_owned(),
            round: key.1,
            times: *times,
        })
        .collect()
}

fn faulty_end(call: &CallRecord, times: impl Fn(u32) -> usize) -> Option<Violation> {
    let mark = call.mark.clone();
    match call.end.as_ref().map(|(_, end)| end) {
        None => Some(Violation::MissingEnd { mark, end: None }),
        Some(end @ (CallEnd::Silent | CallEnd::Hung)) => {
            Some(Violation::MissingEnd { mark, end: Some(end.clone()) })
        }
        Some(CallEnd::Answer) if times(1) == 0 => Some(Violation::NeverExecuted { mark }),
        Some(CallEnd::Retryable(error)) if times(call.rounds) > 0 => {
            Some(Violation::ExecutedThoughRefused { mark, error: error.clone() })
        }
        Some(_) => None,
    }
}

/// Finds sessions that return to an earlier process faster than a lease can be lost: the process in
/// between had a lease when it took over, and the earlier one served the session nevertheless.
fn two_owners(history: &History) -> Vec<Violation> {
    let sessions: HashMap<&str, &str> = history
        .calls
        .iter()
        .filter_map(|call| Some((call.mark.as_str(), call.session.as_deref()?)))
        .collect();
    let mut served: HashMap<&str, Vec<&Execution>> = HashMap::new();
    for execution in &history.executions {
        if let Some(session) = sessions.get(execution.mark.as_str()) {
            served.entry(session).or_default().push(execution);
        }
    }
    let mut found = Vec::new();
    for (session, mut executions) in served {
        executions.sort_by_key(|execution| execution.at);
        if let Some(evidence) = alternation(&executions) {
            let evidence = evidence.map(|it| format!("{} at {} {:?}", it.mark, it.process, it.at));
            found.push(Violation::TwoOwners { session: session.to_owned(), evidence });
        }
    }
    found
}

/// Returns executions of a process, another one, and the first one again, within the least time of a
/// lease.
fn alternation<'a>(executions: &[&'a Execution]) -> Option<[&'a Execution; 3]> {
    let changes: Vec<_> =
        executions.windows(2).filter(|two| two[0].process != two[1].process).collect();
    changes.windows(2).find_map(|two| {
        let (before, between, after) = (two[0][0], two[0][1], two[1][1]);
        let is_soon = after.at - before.at < LEAST_LEASE;
        (before.process == after.process && is_soon).then_some([before, between, after])
    })
}

/// The least time that the lease of a living replica is valid: it is written for 10 seconds, every 3.
const LEAST_LEASE: Duration = Duration::from_secs(6);
