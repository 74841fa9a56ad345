//! Repair: rewrites listed entries in a form that every client of their revision accepts.
//!
//! SDKs reject a whole list for one malformed member of one entry, and model APIs a whole request
//! for one schema that is not valid 2020-12. So an entry is repaired once, when its list is
//! received: `null` as an optional member counts as absent, a malformed optional member is dropped,
//! and keywords of other dialects of JSON Schema are translated ([`dialect`]). An entry with a
//! malformed required member is left out as a whole; [`crate::elements::item`] decides that. An entry without
//! a flaw keeps its bytes.
//!
//! Pins, scans and rules read the server's own bytes, never the repaired ones.

mod date_time;
mod dialect;
mod keywords;
mod legacy;
mod members;
mod references;
mod translations;

#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;

use trunkline_protocol::mcp::Era;

use super::clip_foreign_text;
use crate::kind::Kind;

pub(super) use legacy::{LegacyForm, legacy_form, legacy_tool};

/// An entry as lists show it.
#[derive(Debug)]
pub(super) struct RepairedEntry {
    /// The object; the server's own bytes if they have no flaw.
    pub(super) shown: Bytes,
    /// The repairs in one sentence; `None` if none of them loses or changes anything.
    pub(super) note: Option<Box<str>>,
}

/// Repairs an entry that a server of this era listed. Anything but an object is unchanged.
pub(super) fn repair_entry(kind: Kind, raw: &Bytes, source: Era) -> RepairedEntry {
    let mut repairs = Repairs::new(source);
    let shown = members::repair_object(raw, members::entry_members(kind), &mut repairs);
    let shown = shown.map_or_else(|| raw.clone(), Bytes::from);
    RepairedEntry { shown, note: repairs.into_note() }
}

/// The repairs of one entry.
#[derive(Debug)]
struct Repairs {
    /// The era of the server.
    source: Era,
    /// The position within the entry, as a JSON pointer.
    place: String,
    noted: Vec<String>,
    /// The number of all repairs, noted or not.
    count: usize,
}

/// The kind of one repair.
#[derive(Debug, Clone, Copy)]
enum RepairKind {
    /// The value is not valid there.
    Dropped,
    /// The value is written in another dialect of JSON Schema.
    Translated,
}

impl fmt::Display for RepairKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dropped => "dropped",
            Self::Translated => "translated",
        })
    }
}

impl Repairs {
    fn new(source: Era) -> Self {
        Self { source, place: String::new(), noted: Vec::new(), count: 0 }
    }

    /// Runs `act` within a member of the current position.
    fn within<T>(&mut self, name: &str, act: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.place.len();
        self.place.push('/');
        self.place.push_str(name);
        let done = act(self);
        self.place.truncate(length);
        done
    }

    /// Notes a repair of a member of the current position.
    fn note(&mut self, kind: RepairKind, name: &str) {
        self.count += 1;
        if self.noted.len() < MAX_NOTES {
            let place = format!("{}/{name}", self.place);
            self.noted.push(format!("{} {kind}", clip_foreign_text(&place)));
        }
    }

    fn into_note(self) -> Option<Box<str>> {
        if self.noted.is_empty() {
            return None;
        }
        let more = self.count - self.noted.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!("it was repaired: {}{more}", self.noted.join(", ")).into())
    }
}

/// The most repairs of an entry that are named.
const MAX_NOTES: usize = 8;
