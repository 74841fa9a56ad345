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
    /// A question that could not be tied to its call.
    Refused,
    /// A call to a server that was lost.
    Failure,
}

impl Counted {
    const ALL: [Self; 9] = [
        Self::Answer,
        Self::Question,
        Self::Line,
        Self::Progress,
        Self::Update,
        Self::Told,
        Self::Cancelled,
        Self::Refused,
        Self::Failure,
    ];

    /// Whether it is a message that a client received.
    fn is_message(self) -> bool {
        !matches!(self, Self::Cancelled | Self::Refused | Self::Failure)
    }
}

#[derive(Default)]
pub struct Counts([AtomicU64; 9]);

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
    /// Calls after which it must be sure whose a question is hold it alone.
    ways: Mutex<HashMap<(String, &'static str), Arc<RwLock<()>>>>,
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
        let (counts, ways) = (Counts::default(), Mutex::default());
        Arc::new(Self { servers, messages, counts, faults, ways })
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
