//! State of one run, which clients, servers and faults share.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::history::{CallEnd, CallRecord, Delivery, Execution, History};

/// The history so far, and the progress of the run.
pub struct Run {
    started: Instant,
    history: Mutex<History>,
    messages: AtomicU64,
    is_over: AtomicBool,
    /// Events without a place in the history, such as lost sessions.
    notes: Mutex<BTreeMap<String, u64>>,
}

impl Run {
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            history: Mutex::default(),
            messages: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            notes: Mutex::default(),
        }
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the number of messages that the clients have received.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Records a message to a client, with its mark.
    pub fn deliver(&self, client: &str, mark: &str) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        let delivery = Delivery { client: client.to_owned(), mark: mark.to_owned() };
        self.history.lock().unwrap().deliveries.push(delivery);
    }

    pub fn log_execution(&self, execution: Execution) {
        self.history.lock().unwrap().executions.push(execution);
    }

    /// Records the start of a call. Returns its place in the history.
    pub fn begin_call(&self, mark: &str, session: Option<String>) -> usize {
        let calls = &mut self.history.lock().unwrap().calls;
        calls.push(CallRecord { mark: mark.to_owned(), session, rounds: 0, end: None });
        calls.len() - 1
    }

    /// Records that a request of a call is sent.
    pub fn begin_round(&self, call: usize) {
        self.history.lock().unwrap().calls[call].rounds += 1;
    }

    pub fn end_call(&self, call: usize, end: CallEnd) {
        let end = (self.now(), end);
        self.history.lock().unwrap().calls[call].end = Some(end);
    }

    /// Counts an event.
    pub fn note(&self, event: &str) {
        *self.notes.lock().unwrap().entry(event.to_owned()).or_default() += 1;
    }

    /// Returns the number of ends of calls by kind, and of noted events.
    pub fn summary(&self) -> BTreeMap<String, u64> {
        let mut counts = self.notes.lock().unwrap().clone();
        for call in &self.history.lock().unwrap().calls {
            let kind = match &call.end {
                None => "no end".to_owned(),
                Some((_, end)) => format!("{end:?}"),
            };
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }

    /// Ends the run, and returns its history.
    pub fn take_history(&self) -> History {
        std::mem::take(&mut self.history.lock().unwrap())
    }
}

/// Writes a history into a folder, one record a line.
pub fn write_history(history: &History, folder: &Path) {
    let file = std::fs::File::create(folder.join("history.log")).unwrap();
    let mut file = BufWriter::new(file);
    for call in &history.calls {
        writeln!(file, "{call:?}").unwrap();
    }
    for execution in &history.executions {
        writeln!(file, "{execution:?}").unwrap();
    }
}
