//! The chain of records: each record carries the hash of its predecessor.
//!
//! A line is `{"seq":7,…,"prev":"…","hash":"…"}`. Its hash covers the bytes before `,"hash":`,
//! which contain the record's number and the hash of its predecessor. A keyed chain has `hmac` in
//! place of `hash`.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use data_encoding::HEXLOWER;

use trunkline_core::crypto::sha256;

use super::ChainMode;
use crate::json_text::{push_digits, push_raw};

/// The key of a chain.
#[derive(Clone)]
pub struct ChainKey(Arc<hmac::Key>);

impl ChainKey {
    /// Creates a key from at least [`ChainKey::MIN_BYTES`] bytes; `None` from fewer.
    pub fn new(secret: &[u8]) -> Option<Self> {
        (secret.len() >= Self::MIN_BYTES)
            .then(|| Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret))))
    }

    /// Minimum bytes of a key.
    pub const MIN_BYTES: usize = 32;
}

impl fmt::Debug for ChainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChainKey(***)")
    }
}

/// The last record of a log, to which the next one refers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ChainEnd {
    /// The number of the last record; 0 before the first.
    pub(super) number: u64,
    /// Its hash; `None` for a record without one.
    pub(super) hash: Option<String>,
}

impl ChainEnd {
    /// Reads the end of the chain from a line, as far as the line contains it.
    pub(super) fn of_line(line: &[u8]) -> Option<Self> {
        let number = read_number(line)?;
        let hash = ChainedLine::parse(line).map(|line| line.hash.to_owned());
        Some(Self { number, hash })
    }

    /// Appends the next line, including its line end, and returns the new end of the chain.
    pub(super) fn append(&self, json: &[u8], mode: &ChainMode, out: &mut Vec<u8>) -> Self {
        let (number, begin) = (self.number + 1, out.len());
        let members = json.strip_prefix(b"{").and_then(|json| json.strip_suffix(b"}"));
        push_raw(out, "{\"seq\":");
        push_digits(out, number);
        push_raw(out, ",");
        out.extend_from_slice(members.unwrap_or_default());
        let mut end = Self { number, hash: None };
        if !matches!(mode, ChainMode::Off) {
            push_raw(out, PREV_MEMBER);
            push_raw(out, self.hash.as_deref().unwrap_or(GENESIS_HASH));
            push_raw(out, "\"");
            let (member, hash) = hash_line(out.get(begin..).unwrap_or_default(), mode);
            push_raw(out, member);
            push_raw(out, &hash);
            push_raw(out, "\"");
            end.hash = Some(hash);
        }
        push_raw(out, "}\n");
        end
    }
}

/// Returns the member that holds the hash, up to its value, and the hash of a line without it.
fn hash_line(line: &[u8], mode: &ChainMode) -> (&'static str, String) {
    match mode {
        ChainMode::Keyed(key) => (HMAC_MEMBER, HEXLOWER.encode(hmac::sign(&key.0, line).as_ref())),
        ChainMode::Off | ChainMode::Plain => (HASH_MEMBER, HEXLOWER.encode(&sha256(line))),
    }
}

/// The parts of a line of a chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainedLine<'a> {
    /// The bytes that the hash covers.
    covered: &'a [u8],
    /// Hash of the preceding record.
    pub(super) prev: &'a str,
    /// Hash that the line claims.
    pub(super) hash: &'a str,
    /// True if the hash is keyed.
    pub(super) is_keyed: bool,
}

impl<'a> ChainedLine<'a> {
    /// Parses a line without its line end; `None` if it has no hash.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        [(HASH_MEMBER, false), (HMAC_MEMBER, true)].into_iter().find_map(|(member, is_keyed)| {
            let (rest, hash) = split_hash(line.strip_suffix(b"\"}")?)?;
            let covered = rest.strip_suffix(member.as_bytes())?;
            let (rest, prev) = split_hash(covered.strip_suffix(b"\"")?)?;
            rest.ends_with(PREV_MEMBER.as_bytes()).then_some(Self { covered, prev, hash, is_keyed })
        })
    }

    /// Returns true if the hash matches the line.
    pub(super) fn is_genuine(&self, mode: &ChainMode) -> bool {
        match mode {
            // In constant time, though a log is no oracle.
            ChainMode::Keyed(key) => HEXLOWER
                .decode(self.hash.as_bytes())
                .is_ok_and(|hash| hmac::verify(&key.0, self.covered, &hash).is_ok()),
            _ => hash_line(self.covered, mode).1 == self.hash,
        }
    }

    /// Returns true if the line begins a chain.
    pub(super) fn is_first(&self) -> bool {
        self.prev == GENESIS_HASH
    }
}

/// Splits 64 hexadecimal digits off the end.
fn split_hash(text: &[u8]) -> Option<(&[u8], &str)> {
    let (rest, hash) = text.split_at_checked(text.len().checked_sub(GENESIS_HASH.len())?)?;
    let hash = str::from_utf8(hash).ok()?;
    hash.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some((rest, hash))
}

/// Returns the number of a record.
pub(super) fn read_number(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"seq\":")?;
    let end = digits.iter().position(|byte| *byte == b',')?;
    str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// The predecessor's hash in the first record of a chain.
const GENESIS_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const PREV_MEMBER: &str = ",\"prev\":\"";
const HASH_MEMBER: &str = ",\"hash\":\"";
const HMAC_MEMBER: &str = ",\"hmac\":\"";
