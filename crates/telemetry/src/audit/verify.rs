//! Verification of a log's chain: finds altered, missing and misplaced records.

use std::io::{self, BufRead, Read as _};

use super::ChainMode;
use super::chain::{ChainEnd, ChainedLine, read_number};
use super::rotation::MAX_LINE_BYTES;

/// Fault of a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The line is not a record of a chain.
    #[error("not a record of a chain")]
    NotChained,
    /// The chain is keyed and no key was given, or a key was given for a chain without one.
    #[error("the chain is {}", if *.keyed { "keyed: give its key" } else { "not keyed" })]
    OtherKind {
        /// True if the line's hash is keyed.
        keyed: bool,
    },
    /// The hash does not match the line.
    #[error("record {number} was altered, or chained with another key")]
    Altered {
        /// The number that the record claims.
        number: u64,
    },
    /// Records are missing before this one.
    #[error("records are missing: {number} follows {before}")]
    Missing {
        /// The number of the record before.
        before: u64,
        /// The number of this record.
        number: u64,
    },
    /// The record belongs to an earlier position.
    #[error("records are out of order: {number} follows {before}")]
    Reordered {
        /// The number of the record before.
        before: u64,
        /// The number of this record.
        number: u64,
    },
    /// The record does not refer to the one before it.
    #[error("record {number} does not follow the record before it, which was replaced")]
    Unlinked {
        /// The number of this record.
        number: u64,
    },
    /// A new chain begins within the log.
    #[error("a new chain begins with record {number}")]
    Restarted {
        /// The number of this record.
        number: u64,
    },
    /// The last line is not terminated.
    #[error("the line is incomplete")]
    Torn,
    /// The log ends before the expected record.
    #[error("the log ends with record {found}, expected {expected}")]
    Truncated {
        /// The number of the last record.
        found: u64,
        /// The expected number.
        expected: u64,
    },
    /// The last record has a different hash than expected.
    #[error("record {number} has another hash than expected")]
    OtherEnd {
        /// The number of the last record.
        number: u64,
    },
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChainReport {
    /// Records read.
    pub records: u64,
    /// The number of the first record.
    pub first: Option<u64>,
    /// The number of the last record.
    pub last: u64,
    /// The hash of the last record.
    pub last_hash: Option<String>,
    /// Sum of the lost records that the log itself reports.
    pub lost: u64,
}

/// Verifies the files of a log, from the oldest to the newest.
#[derive(Debug)]
pub struct LogVerifier {
    mode: ChainMode,
    end: Option<ChainEnd>,
    report: ChainReport,
}

impl LogVerifier {
    /// Creates a verifier for a chain of this mode.
    pub fn new(mode: ChainMode) -> Self {
        Self { mode, end: None, report: ChainReport::default() }
    }

    /// Returns the report of the records so far.
    pub fn report(&self) -> &ChainReport {
        &self.report
    }

    /// Reads one file, and calls `tell` with the line number and the fault of each faulty line.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_file(
        &mut self,
        mut file: impl BufRead,
        mut tell: impl FnMut(u64, ChainFault),
    ) -> io::Result<()> {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if file.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            match line.strip_suffix(b"\n") {
                Some(line) => {
                    if let Some(fault) = self.read_line(line) {
                        tell(number, fault);
                    }
                }
                None => tell(number, ChainFault::Torn),
            }
        }
        Ok(())
    }

    /// Compares the end of the log with a record known from elsewhere.
    pub fn expect_end(&self, number: u64, hash: &str) -> Option<ChainFault> {
        let ChainReport { last, last_hash, .. } = &self.report;
        match last_hash {
            _ if *last < number => Some(ChainFault::Truncated { found: *last, expected: number }),
            Some(found) if *last == number && found != hash => {
                Some(ChainFault::OtherEnd { number })
            }
            _ => None,
        }
    }

    fn read_line(&mut self, line: &[u8]) -> Option<ChainFault> {
        let (Some(number), Some(chained)) = (read_number(line), ChainedLine::parse(line)) else {
            return Some(ChainFault::NotChained);
        };
        let fault = self.find_fault(number, &chained);
        let report = &mut self.report;
        report.records += 1;
        report.first.get_or_insert(number);
        report.last = number;
        report.last_hash = Some(chained.hash.to_owned());
        report.lost += read_loss(line);
        self.end = Some(ChainEnd { number, hash: report.last_hash.clone() });
        fault
    }

    fn find_fault(&self, number: u64, line: &ChainedLine<'_>) -> Option<ChainFault> {
        if line.is_keyed != matches!(self.mode, ChainMode::Keyed(_)) {
            return Some(ChainFault::OtherKind { keyed: line.is_keyed });
        }
        if !line.is_genuine(&self.mode) {
            return Some(ChainFault::Altered { number });
        }
        let ChainEnd { number: before, hash } = self.end.as_ref()?;
        if line.is_first() {
            return Some(ChainFault::Restarted { number });
        }
        if number <= *before {
            return Some(ChainFault::Reordered { before: *before, number });
        }
        if number > before + 1 {
            return Some(ChainFault::Missing { before: *before, number });
        }
        (hash.as_deref() != Some(line.prev)).then_some(ChainFault::Unlinked { number })
    }
}

/// The first record of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBeginning {
    /// Its number, by which files are sorted.
    pub number: Option<u64>,
    /// True if its hash is keyed; `None` if the line is not a record of a chain.
    pub is_keyed: Option<bool>,
}

impl LogBeginning {
    /// Reads the first line of a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(mut file: impl BufRead) -> io::Result<Self> {
        let mut line = Vec::new();
        file.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let is_keyed = ChainedLine::parse(line).map(|line| line.is_keyed);
        Ok(Self { number: read_number(line), is_keyed })
    }
}

/// Returns the number of lost records that a line reports.
fn read_loss(line: &[u8]) -> u64 {
    #[derive(serde::Deserialize)]
    struct Loss<'a> {
        event: &'a str,
        #[serde(default)]
        records: u64,
    }
    match serde_json::from_slice::<Loss<'_>>(line) {
        Ok(Loss { event: "lost", records }) => records,
        _ => 0,
    }
}
