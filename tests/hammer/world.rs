//! What all players and servers share: the marks, the counts, and the list of
//! what went wrong.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::RwLock;

use super::servers::Server;

/// Whose a call is, in a text: `ann/L1#7` is the seventh call of Ann's client
/// `L1`. Modern clients of one principal are one client to a server that tells
/// clients apart: their marks begin alike, with `ann/M`.
pub fn whose(mark: &str) -> &str {
    let client = mark.split('#').next().unwrap();
    match client.find("/M") {
        Some(at) => &client[..at + 2],
        None => client,
    }
}

/// Whether both marks are of clients of one principal.
pub fn is_of_one_principal(mark: &str, other: &str) -> bool {
    mark.split('/').next() == other.split('/').next()
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counted {
    Answer,
    Question,
    Line,
    Progress,
    Update,
    /// What a server tells the client whose own session it is.
    Told,
    /// A call that was given up.
    Cancelled,
    /// A call that waits for an answer to its question, in vain.
    Abandoned,
    /// News that did not come the first time, from a server that was never lost.
    Late,
    /// A call of several rounds that lacks progress.
    Missing,
    /// A line of a cancelled call on pipes that all share, which reached another client of the same
    /// principal: the server had read the cancellation, and went on (decision 26).
    Strayed,
    /// A question that could not be tied to its call.
    Refused,
    /// A call to a server that was lost.
    Failure,
    /// A line on pipes that all share: one that could be tied.
    PipeLine,
    /// An answer to a question on such pipes.
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

    /// Whether it is a message that a client received.
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
    /// Each client's way to each server: a call that alone may be meant has it alone.
    ways: Mutex<HashMap<(String, &'static str), Arc<RwLock<()>>>>,
    /// The lines of the children that are one client's own.
    lines: Mutex<HashMap<String, Lines>>,
}

/// What became of the lines that are for one client.
#[derive(Debug, Default)]
pub struct Lines {
    /// Those of calls that were answered.
    pub written: u64,
    /// Those that came.
    pub heard: u64,
    /// Those of calls that were given up or lost, at the most.
    pub doubtful: u64,
}

/// What went wrong.
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

    /// Fails where anything went wrong.
    #[track_caller]
    pub fn is_sound(&self) {
        let faults = self.faults.0.lock().unwrap();
        let first: Vec<_> = faults.iter().take(10).collect();
        assert!(faults.is_empty(), "{} faults, the first: {first:#?}", faults.len());
    }

    /// Whether there is nothing left to do: all is received, or too much is wrong.
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

    /// Notes lines of a child that is one client's own.
    pub fn lines(&self, whose: &str, note: impl Fn(&mut Lines)) {
        note(self.lines.lock().unwrap().entry(whose.to_owned()).or_default());
    }

    /// Whether each client heard all that its own children wrote.
    #[track_caller]
    pub fn lines_are_whole(&self) {
        for (whose, lines) in &*self.lines.lock().unwrap() {
            // What is given up may have been the newest call, to which those of
            // others beside it went.
            let least = lines.written.saturating_sub(lines.doubtful);
            let whole = least..=lines.written + lines.doubtful;
            assert!(whole.contains(&lines.heard), "{whose}: {lines:?}");
        }
    }

    /// How many messages the clients have received.
    pub fn messages(&self) -> u64 {
        let all = Counted::ALL.into_iter().filter(|what| what.is_message());
        all.map(|what| self.count(what)).sum()
    }

    /// The way of one client to a server.
    pub fn way(&self, whose: &str, server: &'static str) -> Arc<RwLock<()>> {
        let mut ways = self.ways.lock().unwrap();
        Arc::clone(ways.entry((whose.to_owned(), server)).or_default())
    }
}
