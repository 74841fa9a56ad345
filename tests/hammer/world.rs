//! State shared by all players and servers: the marks, the counts, and the list of faults.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::RwLock;

use super::servers::Server;

/// Returns the client in a mark: `ann/L1#7` is the seventh call of Ann's client `L1`. Modern
/// clients of one principal are one client to a server that distinguishes clients: their marks have
/// the same beginning, `ann/M`.
pub fn whose(mark: &str) -> &str {
    let client = mark.split('#').next().unwrap();
    match client.find("/M") {
        Some(at) => &client[..at + 2],
        None => client,
    }
}

/// Returns true if both marks belong to clients of one principal.
pub fn is_of_one_principal(mark: &str, other: &str) -> bool {
    mark.split('/').next() == other.split('/').next()
}

/// Counted events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counted {
    Answer,
    Question,
    Line,
    Progress,
    Update,
    /// A server's message to the client of its session.
    Told,
    /// A cancelled call.
    Cancelled,
    /// A call that waits for an answer to its question in vain.
    Abandoned,
    /// An update that did not arrive at the first attempt, from a server that was never lost.
    Late,
    /// A call of several rounds without all progress.
    Missing,
    /// A line of a cancelled call on shared pipes, which reached another client of the same
    /// principal: the server had read the cancellation, and continued (decision 26).
    Strayed,
    /// A question that could not be assigned to a call.
    Refused,
    /// A call to a lost server.
    Failure,
    /// A line on shared pipes that could be assigned.
    PipeLine,
    /// An answer to a question on shared pipes.
    PipeAnswer,
}

impl Counted {
    const ALL: [Self; 15] = [
        Self::Answer,
        Self::Question,
        Self::Line,
        Self::Progress,
        Self::Update,
        Self::Told,
        Self::Cancelled,
        Self::Abandoned,
        Self::Late,
        Self::Missing,
        Self::Strayed,
        Self::Refused,
        Self::Failure,
        Self::PipeLine,
        Self::PipeAnswer,
    ];

    /// Returns true if it is a message that a client received.
    fn is_message(self) -> bool {
        use Counted::{Answer, Line, Progress, Question, Told, Update};
        matches!(self, Answer | Question | Line | Progress | Update | Told)
    }
}

#[derive(Default)]
pub struct Counts([AtomicU64; 15]);

impl Counts {
    pub fn add(&self, what: Counted) {
        self.0[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn of(&self, what: Counted) -> u64 {
        self.0[what as usize].load(Ordering::Relaxed)
    }
}

pub struct World {
    pub servers: Vec<Server>,
    messages: u64,
    counts: Counts,
    faults: Arc<Faults>,
    /// Each client's lock for each server: a call that must be the only candidate holds it
    /// exclusively.
    ways: Mutex<HashMap<(String, &'static str), Arc<RwLock<()>>>>,
    /// Lines of children that belong to one client.
    lines: Mutex<HashMap<String, Lines>>,
}

/// Counts of the lines for one client.
#[derive(Debug, Default)]
pub struct Lines {
    /// Lines of answered calls.
    pub written: u64,
    /// Received lines.
    pub heard: u64,
    /// Maximum number of lines of cancelled or lost calls.
    pub doubtful: u64,
}

/// The faults found.
#[derive(Default)]
pub struct Faults(Mutex<Vec<String>>);

impl Faults {
    pub fn note(&self, fault: String) {
        self.0.lock().unwrap().push(fault);
    }
}

impl World {
    pub fn new((servers, faults): (Vec<Server>, Arc<Faults>), messages: u64) -> Arc<Self> {
        let (counts, ways, lines) = (Counts::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { servers, messages, counts, faults, ways, lines })
    }

    pub fn fault(&self, fault: String) {
        self.faults.note(fault);
    }

    /// Fails if there is any fault.
    #[track_caller]
    pub fn is_sound(&self) {
        let faults = self.faults.0.lock().unwrap();
        let first: Vec<_> = faults.iter().take(10).collect();
        assert!(faults.is_empty(), "{} faults, the first: {first:#?}", faults.len());
    }

    /// Returns true at the end: all messages are received, or there are too many faults.
    pub fn is_over(&self) -> bool {
        self.messages() >= self.messages || self.faults.0.lock().unwrap().len() >= 10
    }

    pub fn add(&self, what: Counted) {
        self.counts.add(what);
    }

    pub fn count(&self, what: Counted) -> u64 {
        self.counts.of(what)
    }

    pub fn counts(&self) -> Vec<(Counted, u64)> {
        Counted::ALL.into_iter().map(|what| (what, self.count(what))).collect()
    }

    /// Records lines of a child that belongs to one client.
    pub fn lines(&self, whose: &str, note: impl Fn(&mut Lines)) {
        note(self.lines.lock().unwrap().entry(whose.to_owned()).or_default());
    }

    /// Checks that each client received all lines of its own children.
    #[track_caller]
    pub fn lines_are_whole(&self) {
        for (whose, lines) in &*self.lines.lock().unwrap() {
            // A cancelled call may have been the newest one, which received the lines of others in
            // flight.
            let least = lines.written.saturating_sub(lines.doubtful);
            let whole = least..=lines.written + lines.doubtful;
            assert!(whole.contains(&lines.heard), "{whose}: {lines:?}");
        }
    }

    /// Returns the number of messages that the clients have received.
    pub fn messages(&self) -> u64 {
        let all = Counted::ALL.into_iter().filter(|what| what.is_message());
        all.map(|what| self.count(what)).sum()
    }

    /// Returns the lock of one client for a server.
    pub fn way(&self, whose: &str, server: &'static str) -> Arc<RwLock<()>> {
        let mut ways = self.ways.lock().unwrap();
        Arc::clone(ways.entry((whose.to_owned(), server)).or_default())
    }
}
