//! The audit log: one JSON record per decision, for auditors.
//!
//! The access log reports the outcome of calls to operators, and may lose lines. The audit log
//! records the permissions of each principal with the deciding check or rule, and counts lost
//! records. Callers put finished records into a bounded queue ([`queue`]) and never wait. One
//! thread ([`writer`]) numbers the records, chains them ([`chain`]) and writes them to a file
//! ([`rotation`]), standard output or syslog ([`syslog`]). A record that cannot be written is
//! retried until it can. Meanwhile the queue fills, further records are counted as lost, and a
//! record in the log itself gives their number. If the log is required, a request reserves room
//! for its record ([`RecordRoom`]) before it is served, and is refused without room.
//!
//! Unlike the rest of `telemetry`, the audit log may hold arguments, if the operator asks for them,
//! redacted ([`redaction`]). Keys, tokens and session ids are never an input, only values that
//! distinguish them.

mod arguments;
mod chain;
mod operation;
mod queue;
mod record;
mod redaction;
mod room;
mod rotation;
mod sink;
mod syslog;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;

use trunkline_core::clock;
use trunkline_core::crypto::random_bytes;

use super::SinkReport;
use super::batch_queue::QueueShare;
use super::json_text::SecondText;
use super::metrics::{AuditCounts, AuditFate};
use super::recent::{LiveItems, TooManyObserversError};

pub use arguments::{ArgumentBounds, RenderFault, ShownArguments};
pub use chain::ChainKey;
pub use operation::{AuditOperation, OperationActor, OperationOutcome, OperationRecord};
pub use queue::{MAX_LIVE_RECORD_BYTES, WrittenRecord};
pub use record::{AuditDecision, AuditKind, AuditRecord, check_of_failure, session_digest};
pub use redaction::{RedactionError, RedactionRules};
pub use room::{RecordRoom, UnrecordableError};
pub use rotation::{FileRotation, numbered as rotated_file};
pub use syslog::SyslogAddress;
pub use verify::{ChainFault, ChainReport, LogBeginning, LogVerifier};

use queue::AuditQueue;
use record::{RecordId, RecordTime};
use writer::{AuditWriter, WritableLog, WriterState};

/// Settings of the audit log.
#[derive(Debug)]
pub struct AuditSettings {
    /// Destination of the records.
    pub sink: AuditSinkSettings,
    /// Maximum bytes of pending records.
    pub queue_size: usize,
    /// Requests without room for their record are refused.
    pub required: bool,
    /// Mode of the chain.
    pub chain: ChainMode,
    /// Digest of arguments in the records.
    pub digest: ArgumentsDigest,
    /// Recording of argument values; `None` omits them.
    pub arguments: Option<ArgumentRecording>,
}

/// A digest of a call's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentsDigest {
    /// No digest.
    Off,
    /// SHA-256.
    Sha256,
    /// BLAKE2b with 256 bits.
    Blake2b,
}

/// Destination of the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditSinkSettings {
    /// A file, and the conditions for its rotation.
    File(PathBuf, FileRotation),
    /// Standard output.
    Stdout,
    /// A syslog receiver, as RFC 5424 messages.
    Syslog(SyslogAddress),
}

impl AuditSinkSettings {
    /// Returns true if both lead to the same file or receiver.
    fn is_same_place(&self, other: &Self) -> bool {
        let (Self::File(one, _), Self::File(other, _)) = (self, other) else {
            return self == other;
        };
        let identity = |path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
        one == other || identity(one).is_some_and(|one| identity(other) == Some(one))
    }
}

/// The path or address, for people.
impl fmt::Display for AuditSinkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, _) => write!(f, "{}", path.display()),
            Self::Stdout => f.write_str("standard output"),
            Self::Syslog(address) => address.fmt(f),
        }
    }
}

/// Reference of each record to its predecessor.
#[derive(Debug, Clone)]
pub enum ChainMode {
    /// No reference.
    Off,
    /// The predecessor's SHA-256.
    Plain,
    /// An HMAC-SHA256, which only the owner of the key can make.
    Keyed(ChainKey),
}

/// Settings for recording the values of arguments.
#[derive(Debug)]
pub struct ArgumentRecording {
    /// Approximate bytes that are shown of one call's arguments.
    pub size: usize,
    /// Rules by which secrets are replaced.
    pub redaction: RedactionRules,
}

/// Handle for writing records. Clones share one log.
#[derive(Debug, Clone)]
pub struct AuditTrail(Arc<TrailState>);

#[derive(Debug)]
struct TrailState {
    on: AtomicBool,
    is_required: AtomicBool,
    settings: ArcSwapOption<AuditSettings>,
    /// Prefix of all ids of this run.
    run: String,
    recorded: AtomicU64,
    queue: Arc<AuditQueue>,
    writer: Arc<WriterState>,
    /// The settings that the writer has received last; `None` until its thread is started.
    given: Mutex<Option<Arc<AuditSettings>>>,
}

/// New settings whose sink is open beside the running one.
#[derive(Debug)]
pub struct PreparedAuditLog {
    settings: Arc<AuditSettings>,
    /// `None` for the destination of the running log, which the writer has open.
    log: Option<WritableLog>,
}

/// State of the log, for `/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditOverview {
    /// Path or address of the sink.
    pub sink: String,
    /// True if the log is required and there is no room for a record: requests are refused.
    pub refuses: bool,
    /// Written records.
    pub written: u64,
    /// Lost records.
    pub dropped: u64,
    /// Bytes of pending records.
    pub queued: usize,
    /// Number of the last record.
    pub last_number: u64,
    /// Hash of the last record, if records are chained.
    pub last_hash: Option<String>,
    /// Error of the last attempt to write; `None` once an attempt succeeds.
    pub fault: Option<String>,
}

impl AuditTrail {
    /// Creates a log that is off until [`AuditTrail::apply`] is called.
    pub fn new(counts: AuditCounts) -> Self {
        let run = random_bytes::<8>().unwrap_or_else(|_| clock::unix_now().as_secs().to_be_bytes());
        Self(Arc::new(TrailState {
            on: AtomicBool::new(false),
            is_required: AtomicBool::new(false),
            settings: ArcSwapOption::empty(),
            run: HEXLOWER.encode(&run),
            recorded: AtomicU64::new(0),
            queue: Arc::new(AuditQueue::new(counts)),
            writer: Arc::default(),
            given: Mutex::new(None),
        }))
    }

    /// Returns true if the log is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.on.load(Relaxed)
    }

    /// Writes a record. Never waits.
    pub fn record(&self, record: &AuditRecord<'_>) {
        self.record_in(None, record);
    }

    /// Writes a record into the room that was reserved for it. Never waits.
    pub fn record_in(&self, room: Option<RecordRoom>, record: &AuditRecord<'_>) {
        let share = if record.is_of_stranger() { QueueShare::Half } else { QueueShare::Whole };
        self.push(record.id, room, share, |id, time, settings, json| {
            record.write_json(id, time, settings, json);
        });
    }

    /// Writes the record of an operation. Never waits.
    pub fn record_operation(&self, record: &OperationRecord<'_>) {
        self.record_operation_in(None, record);
    }

    /// Writes the record of an operation into the room that was reserved for it. Never waits.
    pub fn record_operation_in(&self, room: Option<RecordRoom>, record: &OperationRecord<'_>) {
        self.push(None, room, record.share(), |id, time, _, json| {
            record.write_json(id, time, json);
        });
    }

    fn push(
        &self,
        known: Option<&str>,
        room: Option<RecordRoom>,
        share: QueueShare,
        write: impl FnOnce(RecordId<'_>, RecordTime<'_>, &AuditSettings, &mut Vec<u8>),
    ) {
        if !self.is_on() {
            return;
        }
        let settings = self.0.settings.load();
        let Some(settings) = settings.as_deref() else { return };
        let id = match known {
            Some(id) => RecordId::Known(id),
            None => RecordId::New(&self.0.run, self.0.recorded.fetch_add(1, Relaxed)),
        };
        let now = clock::unix_now();
        // A call may end while its thread ends.
        let mut scratch = RECORD_SCRATCH.try_with(Cell::take).unwrap_or_default();
        let time = RecordTime { second: scratch.second.of(now), micros: now.subsec_micros() };
        write(id, time, settings, &mut scratch.json);
        self.0.queue.push(&scratch.json, room.map_or(share, RecordRoom::into_share));
        scratch.json.clear();
        scratch.json.shrink_to(KEPT_SCRATCH);
        let _ = RECORD_SCRATCH.try_with(|kept| kept.set(scratch));
    }

    /// Reserves room for the record of a request, if the log is required. Returns `None` if it is
    /// not: the record may be lost.
    ///
    /// # Errors
    /// [`UnrecordableError`] while records cannot be written, or without room for another one.
    #[inline]
    pub fn reserve_room(&self) -> Result<Option<RecordRoom>, UnrecordableError> {
        if self.0.is_required.load(Relaxed) { self.reserve_required() } else { Ok(None) }
    }

    fn reserve_required(&self) -> Result<Option<RecordRoom>, UnrecordableError> {
        let settings = self.0.settings.load();
        let Some(settings) = settings.as_deref() else { return Ok(None) };
        if !self.0.writer.is_writable() {
            return Err(UnrecordableError);
        }
        RecordRoom::reserve(&self.0.queue, settings).map(Some).ok_or(UnrecordableError)
    }

    /// Returns the id of a record that is written later.
    pub fn next_id(&self) -> String {
        let number = self.0.recorded.fetch_add(1, Relaxed);
        format!("{}-{number}", self.0.run)
    }

    /// Puts settings in force. Pending records go to the new destination, in order. `None` turns
    /// the log off once the pending records are written.
    ///
    /// # Errors
    /// The thread that writes cannot be started.
    pub fn apply(&self, settings: Option<AuditSettings>) -> std::io::Result<()> {
        let settings = settings.map(Arc::new);
        if let Some(settings) = &settings {
            self.give(settings, None)?;
        }
        self.put_in_force(settings);
        Ok(())
    }

    fn put_in_force(&self, settings: Option<Arc<AuditSettings>>) {
        let is_required = settings.as_ref().is_some_and(|settings| settings.required);
        self.0.is_required.store(is_required, Relaxed);
        self.0.on.store(settings.is_some(), Relaxed);
        self.0.settings.store(settings);
    }

    /// Gives the writer new settings, and starts its thread first if needed.
    fn give(&self, settings: &Arc<AuditSettings>, log: Option<WritableLog>) -> std::io::Result<()> {
        let mut given = self.0.given.lock();
        if given.is_none() {
            let writer = AuditWriter::new(Arc::clone(&self.0.queue), Arc::clone(&self.0.writer));
            thread::Builder::new()
                .name("audit".to_owned())
                .spawn(move || writer.write_records())?;
        }
        *given = Some(Arc::clone(settings));
        let number = self.0.writer.expect_attempt();
        self.0.queue.configure(number, settings, log);
        Ok(())
    }

    /// Opens the sink of new settings. The running log goes on meanwhile. Blocks.
    ///
    /// # Errors
    /// The sink cannot be opened.
    pub fn prepare(&self, settings: AuditSettings) -> std::io::Result<PreparedAuditLog> {
        let settings = Arc::new(settings);
        let given = self.0.given.lock().clone();
        // The writer has locked its file. It keeps it, or opens it again.
        let is_open = given.is_some_and(|given| given.sink.is_same_place(&settings.sink));
        let log = if is_open {
            None
        } else {
            Some(WritableLog::open(Arc::clone(&settings), &self.0.queue)?)
        };
        Ok(PreparedAuditLog { settings, log })
    }

    /// Puts prepared settings in force once their sink has taken over, within this time. The running
    /// settings are in force until then. Blocks.
    ///
    /// # Errors
    /// The reason that the sink does not take over: the running settings stay in force.
    pub fn switch(&self, prepared: PreparedAuditLog, within: Duration) -> Result<(), String> {
        let PreparedAuditLog { settings, log } = prepared;
        let before = self.0.given.lock().clone();
        self.give(&settings, log).map_err(|error| error.to_string())?;
        if let Some(fault) = self.await_attempt(within) {
            if let Some(before) = before {
                self.give(&before, None).map_err(|error| error.to_string())?;
            }
            return Err(fault);
        }
        self.put_in_force(Some(settings));
        Ok(())
    }

    /// Waits until the sink of new settings was tried, for this time at most. Blocks. Returns the
    /// reason that records cannot be written to it.
    pub fn await_sink(&self, within: Duration) -> Option<String> {
        if self.is_on() { self.await_attempt(within) } else { None }
    }

    fn await_attempt(&self, within: Duration) -> Option<String> {
        if self.0.writer.await_attempt(within) {
            return self.0.writer.snapshot().fault;
        }
        Some(format!("it does not answer within {within:?}"))
    }

    /// Observes the records as they are written.
    ///
    /// # Errors
    /// [`TooManyObserversError`].
    pub fn observe(&self) -> Result<LiveItems<WrittenRecord>, TooManyObserversError> {
        self.0.queue.written.observe(0, |_| true)
    }

    /// Requests that the file is opened again, because another program has moved it.
    pub fn reopen(&self) {
        self.0.queue.request_reopening();
    }

    /// Returns the state of the sink; `None` if the log is off.
    pub fn sink(&self) -> Option<SinkReport> {
        let overview = self.overview()?;
        Some(SinkReport { sink: "audit", place: overview.sink, fault: overview.fault })
    }

    /// Returns the state of the log; `None` if it is off.
    pub fn overview(&self) -> Option<AuditOverview> {
        self.is_on().then(|| {
            let written = self.0.writer.snapshot();
            let settings = self.0.settings.load();
            let sink = settings.as_ref().map(|settings| settings.sink.to_string());
            AuditOverview {
                sink: sink.unwrap_or_default(),
                refuses: self.reserve_room().is_err(),
                written: self.0.queue.counts().of(AuditFate::Written),
                dropped: self.0.queue.counts().of(AuditFate::Dropped),
                queued: self.0.queue.records.bytes(),
                last_number: written.number,
                last_hash: written.hash,
                fault: written.fault,
            }
        })
    }

    /// Writes pending records within this time, and ends the thread. Blocks. The remaining records
    /// are counted as lost and reported in the gateway's log.
    pub fn finish(&self, within: Duration) {
        self.0.on.store(false, Relaxed);
        if self.0.given.lock().is_some() {
            let lost = self.0.queue.close(within);
            if lost > 0 {
                tracing::error!(
                    target: "trunkline::telemetry::audit",
                    records = lost,
                    "audit records were lost: they could not be written"
                );
            }
        }
    }
}

thread_local! {
    static RECORD_SCRATCH: Cell<RecordScratch> = const { Cell::new(RecordScratch::new()) };
}

/// Memory that a thread keeps between two records.
struct RecordScratch {
    json: Vec<u8>,
    second: SecondText,
}

impl RecordScratch {
    const fn new() -> Self {
        Self { json: Vec::new(), second: SecondText::new() }
    }
}

impl Default for RecordScratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Maximum bytes that a thread keeps for the next record.
const KEPT_SCRATCH: usize = 16 << 10;
