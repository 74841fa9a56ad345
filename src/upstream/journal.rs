//! Memory of the servers for operators: their faults and their output. It outlives restarts, reloads
//! and the time in which a server is disabled, and ends with the server's table in the configuration.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::call::ServerName;
use crate::child::OutputLog;
use crate::clock;
use crate::config::Config;
use crate::text::clip;

/// The journals of all servers.
#[derive(Debug, Default)]
pub struct Journals(Mutex<HashMap<ServerName, Arc<ServerJournal>>>);

/// The journal of one server.
#[derive(Debug, Default)]
pub struct ServerJournal {
    /// Oldest first, by the last occurrence.
    faults: Mutex<VecDeque<FaultEntry>>,
    output: OutputLog,
}

/// A fault of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultEntry {
    /// The state that it has led to.
    pub state: &'static str,
    /// The owner of the instance; `None` for the main one.
    pub owner: Option<String>,
    /// The reason, without secrets.
    pub text: String,
    /// Time of the next start, at the last occurrence.
    pub next_retry: Option<SystemTime>,
    /// Time of the first occurrence.
    pub first_at: SystemTime,
    /// Time of the last occurrence.
    pub last_at: SystemTime,
    /// Number of occurrences.
    pub count: u64,
}

/// A fault that has just occurred.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewFault<'a> {
    /// The state that it leads to.
    pub(crate) state: &'static str,
    /// The owner of the instance; `None` for the main one.
    pub(crate) owner: Option<&'a str>,
    /// The reason, without secrets.
    pub(crate) text: &'a str,
    /// Time of the next start.
    pub(crate) next_retry: Option<SystemTime>,
}

impl Journals {
    /// Returns the journal of a server, and begins it if there is none.
    pub fn of(&self, server: &ServerName) -> Arc<ServerJournal> {
        Arc::clone(self.0.lock().entry(server.clone()).or_default())
    }

    /// Forgets the servers that a configuration does not have.
    pub(crate) fn keep_configured(&self, config: &Config) {
        let is_there = |name: &ServerName| config.servers.iter().any(|it| it.name == *name);
        self.0.lock().retain(|name, _| is_there(name));
    }
}

impl ServerJournal {
    /// Notes a fault. A fault that occurred before is counted.
    pub(crate) fn note_fault(&self, fault: NewFault<'_>) {
        let NewFault { state, owner, text, next_retry } = fault;
        let (text, owner) =
            (clip(text, MAX_FAULT_BYTES), owner.map(|it| clip(it, MAX_FAULT_BYTES)));
        let now = clock::wall_now();
        let mut faults = self.faults.lock();
        let is_same = |entry: &FaultEntry| {
            entry.text == text && entry.state == state && entry.owner.as_deref() == owner
        };
        let known = faults.iter().position(is_same).and_then(|place| faults.remove(place));
        let (first_at, count) = known.map_or((now, 0), |entry| (entry.first_at, entry.count));
        if faults.len() >= MAX_FAULT_ENTRIES {
            faults.pop_front();
        }
        let (text, owner) = (text.to_owned(), owner.map(str::to_owned));
        let count = count + 1;
        faults.push_back(FaultEntry {
            state,
            owner,
            text,
            next_retry,
            first_at,
            last_at: now,
            count,
        });
    }

    /// Returns the faults, the last one first.
    pub fn faults(&self) -> Vec<FaultEntry> {
        self.faults.lock().iter().rev().cloned().collect()
    }

    /// Returns the output of the server's children.
    pub fn output(&self) -> &OutputLog {
        &self.output
    }
}

/// Limit of the different faults of a server.
const MAX_FAULT_ENTRIES: usize = 50;
/// Limit of the bytes of a text.
const MAX_FAULT_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_faults_are_counted_and_the_oldest_forgotten() {
        let journal = ServerJournal::default();
        let note = |text: &str| {
            let fault = NewFault { state: "backoff", owner: None, text, next_retry: None };
            journal.note_fault(fault);
        };
        for text in ["refused", "timed out", "refused"] {
            note(text);
        }
        let told = |entry: &FaultEntry| (entry.text.clone(), entry.count);
        let all: Vec<_> = journal.faults().iter().map(told).collect();
        assert_eq!(all, [("refused".to_owned(), 2), ("timed out".to_owned(), 1)]);
        for number in 0..1000 {
            note(&format!("{number} {}", "x".repeat(2 * MAX_FAULT_BYTES)));
        }
        let all = journal.faults();
        assert_eq!(all.len(), MAX_FAULT_ENTRIES);
        assert!(all[0].text.starts_with("999 ") && all[0].text.len() == MAX_FAULT_BYTES);
    }

    #[test]
    fn journals_of_removed_servers_are_forgotten() {
        let (journals, name) = (Journals::default(), ServerName::new("s").unwrap());
        let first = journals.of(&name);
        assert!(Arc::ptr_eq(&first, &journals.of(&name)));
        journals.keep_configured(&crate::upstream::tests::config(&[]));
        assert!(!Arc::ptr_eq(&first, &journals.of(&name)));
    }
}
