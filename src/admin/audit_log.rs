//! Reads the audit log from its end: the newest records first, page by page, within bounds.
//!
//! A page ends at a number of records, of their bytes, or of the bytes that were searched; the next
//! one continues at its cursor. The cursor names the file by its first record: a rotation renames or
//! copies it, and another file may have its inode later.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::config::AuditConfig;
use crate::crypto::sha256;
use crate::telemetry::audit::rotated_file;

/// The records to find. Each `None` matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AuditFilter {
    /// The id of a record.
    pub(crate) id: Option<String>,
    /// The principal, or the name of the operator.
    pub(crate) client: Option<String>,
    /// The public or the native name of the tool.
    pub(crate) tool: Option<String>,
    /// The server.
    pub(crate) server: Option<String>,
    /// The decision, or the outcome of an operation.
    pub(crate) decision: Option<String>,
    /// The event, or the operation.
    pub(crate) kind: Option<String>,
    /// The earliest time.
    pub(crate) since: Option<Timestamp>,
    /// The latest time.
    pub(crate) until: Option<Timestamp>,
    /// The number of the last record that is known already: only later ones are found.
    pub(crate) after: Option<u64>,
}

/// A page of records.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditPage {
    /// The records, the newest first, as they are in the log: numbers keep all their digits.
    #[schemars(with = "Vec<Value>")]
    pub(crate) records: Vec<Box<RawValue>>,
    /// The place of the next page; `None` at the end. A page may be short, or even empty, before the
    /// end: each searches a bounded part of the log.
    pub(crate) next: Option<String>,
    /// The number of the newest record that was searched, also if it does not match.
    pub(crate) newest: Option<u64>,
    /// The time of the oldest record that was searched, also if it does not match.
    pub(crate) oldest_at: Option<Timestamp>,
    /// The number of searched lines that are no records.
    pub(crate) unreadable_lines: usize,
}

/// A place in the log: before it is the part to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuditCursor {
    /// Digest of the file's first record.
    file: u64,
    offset: u64,
}

impl AuditCursor {
    /// Parses a cursor of a page.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (file, offset) = text.split_once('-')?;
        let file = u64::from_str_radix(file, 16).ok()?;
        Some(Self { file, offset: offset.parse().ok()? })
    }
}

/// Limits of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageLimits {
    /// Records in the page.
    pub(crate) records: usize,
    /// Bytes of these records.
    pub(crate) bytes: usize,
    /// Bytes that are searched.
    pub(crate) searched: u64,
}

impl AuditFilter {
    /// Returns true if a record matches. The number of the last known one does not count.
    pub(crate) fn matches(&self, record: &FilteredMembers) -> bool {
        let has = |wanted: &Option<String>, found: [&Option<String>; 2]| {
            wanted.is_none() || found.contains(&wanted)
        };
        let actor = record.actor.as_ref().map_or(&None, |actor| &actor.name);
        let time = record.time;
        has(&self.id, [&record.id, &None])
            && has(&self.client, [&record.principal, actor])
            && has(&self.tool, [&record.tool, &record.native_tool])
            && has(&self.server, [&record.server, &None])
            && has(&self.decision, [&record.decision, &record.outcome])
            && has(&self.kind, [&record.event, &record.operation])
            && self.since.is_none_or(|since| time.is_some_and(|time| time >= since))
            && self.until.is_none_or(|until| time.is_some_and(|time| time <= until))
    }

    /// Returns true if no earlier record can match.
    fn is_past(&self, record: &FilteredMembers) -> bool {
        self.after.is_some_and(|after| record.seq.is_some_and(|number| number <= after))
            || self.since.is_some_and(|since| record.time.is_some_and(|time| time < since))
    }
}

/// The members of a record that a filter compares. The others are not read: a number among them may
/// have any size. A member of another type than expected, as another version or another program may
/// write it, is absent, and the record is shown all the same.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FilteredMembers {
    #[serde(deserialize_with = "read_member")]
    seq: Option<u64>,
    #[serde(deserialize_with = "read_member")]
    time: Option<Timestamp>,
    #[serde(deserialize_with = "read_member")]
    id: Option<String>,
    #[serde(deserialize_with = "read_member")]
    principal: Option<String>,
    #[serde(deserialize_with = "read_member")]
    actor: Option<RecordedActor>,
    #[serde(deserialize_with = "read_member")]
    tool: Option<String>,
    #[serde(deserialize_with = "read_member")]
    native_tool: Option<String>,
    #[serde(deserialize_with = "read_member")]
    server: Option<String>,
    #[serde(deserialize_with = "read_member")]
    decision: Option<String>,
    #[serde(deserialize_with = "read_member")]
    outcome: Option<String>,
    #[serde(deserialize_with = "read_member")]
    event: Option<String>,
    #[serde(deserialize_with = "read_member")]
    operation: Option<String>,
}

/// The actor of an operation.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecordedActor {
    #[serde(deserialize_with = "read_member")]
    name: Option<String>,
}

/// Reads a member of a record; `None` if it has another type.
fn read_member<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
{
    let written = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(written.get()).ok())
}

/// The records that an observer has read from the file already, among those that it observes since
/// shortly before.
#[derive(Debug)]
pub(crate) struct KnownRecords {
    /// The number of the newest; `None` once a later record was observed.
    newest: Option<u64>,
    /// The number of the last observed one.
    last: u64,
}

impl KnownRecords {
    /// Creates the records up to a number.
    pub(crate) fn until(newest: Option<u64>) -> Self {
        Self { newest, last: 0 }
    }

    /// Returns true for a record that is known. The records of another log, whose numbers begin
    /// again, are not.
    pub(crate) fn has(&mut self, record: &FilteredMembers) -> bool {
        let number = record.seq.unwrap_or(u64::MAX);
        self.newest = self.newest.filter(|newest| number <= *newest && number > self.last);
        self.last = number;
        self.newest.is_some()
    }
}

/// Reads a page. Blocks.
///
/// # Errors
/// A file of the log cannot be read.
pub(crate) fn read_page(
    files: &[PathBuf],
    filter: &AuditFilter,
    cursor: Option<AuditCursor>,
    limits: PageLimits,
) -> io::Result<AuditPage> {
    let mut page = AuditPage::default();
    let (mut bytes, mut searched, mut waits) = (0, 0, cursor);
    let mut files = LogFiles::new(files);
    while let Some(file) = files.open_next()? {
        let Some(mark) = first_record_digest(&file)? else { continue };
        let mut end = None;
        if let Some(cursor) = waits {
            if cursor.file != mark {
                continue;
            }
            (end, waits) = (Some(cursor.offset), None);
        }
        let mut lines = BackwardLines::open(file, end)?;
        loop {
            let place = lines.end;
            if page.records.len() >= limits.records
                || bytes >= limits.bytes
                || searched >= limits.searched
            {
                page.next = Some(format!("{mark:016x}-{place}"));
                return Ok(page);
            }
            let Some(line) = lines.next_line()? else { break };
            searched += place - lines.end;
            let Ok((record, text)) = read_record(&line) else {
                page.unreadable_lines += 1;
                continue;
            };
            page.oldest_at = record.time.or(page.oldest_at);
            page.newest = page.newest.or(record.seq);
            if filter.is_past(&record) {
                return Ok(page);
            }
            if filter.matches(&record) {
                bytes += line.len();
                page.records.push(text.to_owned());
            }
        }
    }
    Ok(page)
}

/// Reads a line of the log: the members that a filter compares, and the whole record as it is written.
pub(crate) fn read_record(line: &[u8]) -> serde_json::Result<(FilteredMembers, &RawValue)> {
    let record: &RawValue = serde_json::from_slice(line)?;
    Ok((serde_json::from_str(record.get())?, record))
}

/// Returns the configured file and its rotated predecessors, the newest first; `None` without a
/// file.
pub(crate) fn log_files(audit: &AuditConfig) -> Option<Vec<PathBuf>> {
    let file = audit.file.as_ref()?;
    let earlier = (1..=audit.keep).map(|number| rotated_file(file, number));
    Some([file.clone()].into_iter().chain(earlier).collect())
}

/// Opens a file of the log; `None` if there is none. A pipe or a device has no end to read from.
fn open_log(path: &Path) -> io::Result<Option<File>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => File::open(path).map(Some),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The files of a log, the newest first. Each follows the one before also if a rotation renames them
/// meanwhile.
pub(crate) struct LogFiles<'a> {
    paths: &'a [PathBuf],
    /// The place behind that of the last file.
    next: usize,
    /// The last file, with its device and inode. It is kept open: no other file gets its inode.
    last: Option<(File, (u64, u64))>,
}

impl<'a> LogFiles<'a> {
    pub(crate) fn new(paths: &'a [PathBuf]) -> Self {
        Self { paths, next: 0, last: None }
    }

    /// Returns the path of the last file, as it was when the file was opened.
    pub(crate) fn last_path(&self) -> Option<&'a Path> {
        let place = self.next.checked_sub(1)?;
        self.paths.get(place).map(PathBuf::as_path)
    }

    /// Opens the next file; `None` after the last.
    ///
    /// # Errors
    /// A file cannot be opened. The files after it cannot be found either.
    pub(crate) fn open_next(&mut self) -> io::Result<Option<File>> {
        loop {
            if self.last.is_some() && !self.find_last() {
                return Ok(None);
            }
            let before = self.next;
            let Some((place, file)) = self.open_from(before)? else { return Ok(None) };
            // A rotation may have come between.
            if self.last.is_none() || self.is_last_at(before - 1) {
                let identity = identity(&file.metadata()?);
                (self.next, self.last) = (place + 1, Some((file.try_clone()?, identity)));
                return Ok(Some(file));
            }
        }
    }

    /// Finds the present place of the last file. A rotation gives it a higher one.
    fn find_last(&mut self) -> bool {
        let place = (self.next - 1..self.paths.len()).find(|place| self.is_last_at(*place));
        self.next = place.map_or(self.paths.len(), |place| place + 1);
        place.is_some()
    }

    fn is_last_at(&self, place: usize) -> bool {
        let Some((_, last)) = &self.last else { return false };
        let metadata = self.paths.get(place).and_then(|path| fs::metadata(path).ok());
        metadata.is_some_and(|metadata| identity(&metadata) == *last)
    }

    /// Opens the first file from a place on.
    fn open_from(&self, first: usize) -> io::Result<Option<(usize, File)>> {
        for (place, path) in self.paths.iter().enumerate().skip(first) {
            if let Some(file) = open_log(path)? {
                return Ok(Some((place, file)));
            }
        }
        Ok(None)
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns a digest of the beginning of a file's first record; `None` if it has no record.
fn first_record_digest(file: &File) -> io::Result<Option<u64>> {
    let mut begin = [0; MARK_BYTES];
    let mut length = 0;
    while let Some(rest) = begin.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    let begin = begin.get(..length).unwrap_or_default();
    let end = memchr::memchr(b'\n', begin).or_else(|| (length == MARK_BYTES).then_some(length));
    let record = end.and_then(|end| begin.get(..end));
    let digest = record.map(sha256);
    Ok(digest.and_then(|digest| digest.first_chunk().copied()).map(u64::from_be_bytes))
}

/// The lines of a file, the last one first.
struct BackwardLines {
    file: File,
    /// Offset of the part that is read: its bytes are in `part`.
    start: u64,
    /// Offset of the end of the next line, with its line end.
    end: u64,
    part: Vec<u8>,
}

impl BackwardLines {
    /// Starts at an offset behind a line end, by default at the end of the file. An incomplete last
    /// line is left out.
    fn open(file: File, end: Option<u64>) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let end = end.unwrap_or(length).min(length);
        let mut lines = Self { file, start: end, end, part: Vec::new() };
        lines.drop_incomplete()?;
        Ok(lines)
    }

    fn drop_incomplete(&mut self) -> io::Result<()> {
        while self.start > 0 || !self.part.is_empty() {
            if let Some(at) = memchr::memrchr(b'\n', &self.part) {
                self.part.truncate(at + 1);
                break;
            }
            if self.part.len() > MAX_LINE_BYTES {
                self.skip_part();
                break;
            }
            if !self.read_before()? {
                self.part.clear();
                break;
            }
        }
        self.end = self.start + self.part.len() as u64;
        Ok(())
    }

    /// Returns the next line without its line end. A line that is too long is empty, in one piece or
    /// in several.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let content = self.part.len().saturating_sub(1);
            let before = self.part.get(..content).unwrap_or_default();
            if let Some(at) = memchr::memrchr(b'\n', before) {
                let mut line = self.part.get(at + 1..content).unwrap_or_default().to_vec();
                if line.len() > MAX_LINE_BYTES {
                    line.clear();
                }
                self.part.truncate(at + 1);
                self.end = self.start + self.part.len() as u64;
                return Ok(Some(line));
            }
            if self.part.len() > MAX_LINE_BYTES {
                self.skip_part();
                return Ok(Some(Vec::new()));
            }
            if !self.read_before()? {
                let line = self.part.get(..content).unwrap_or_default();
                let line = (!self.part.is_empty()).then(|| line.to_vec());
                self.part.clear();
                self.end = 0;
                return Ok(line);
            }
        }
    }

    /// Leaves out the part, and ends the rest of its line before it: that is no record.
    fn skip_part(&mut self) {
        self.part = vec![b'\n'];
        self.end = self.start + 1;
    }

    /// Reads the bytes before the part. Returns false at the beginning of the file.
    fn read_before(&mut self) -> io::Result<bool> {
        let length = self.start.min(CHUNK_BYTES);
        if length == 0 {
            return Ok(false);
        }
        self.start -= length;
        let mut chunk = vec![0; usize::try_from(length).unwrap_or_default()];
        self.file.read_exact_at(&mut chunk, self.start)?;
        chunk.append(&mut self.part);
        self.part = chunk;
        Ok(true)
    }
}

/// Bytes of a file's first record by which it is known: they have its time and its id.
const MARK_BYTES: usize = 1024;
/// Bytes that are read at once.
const CHUNK_BYTES: u64 = 64 << 10;
/// Limit of the bytes of a line.
const MAX_LINE_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests;
