//! `[clients.NAME]`: who may call, and by which keys.

use std::fmt;
use std::sync::Arc;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde_json::{Value as Json, json};

use crate::call::ProfileName;

use super::macros::section;
use super::problem::Problem;
use super::rate::Rate;
use super::reader::{Node, Reader, Table};
use super::setting::{Part, Row, Setting};

section! {
    /// A client with keys of its own. As soon as there is one, whoever shows no key of a client is
    /// refused. `NAME` is 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `_`, `-`, `.` and `@`; logs,
    /// metrics and traces call the client by it.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Client {
        parts {
            /// The `NAME` of its table.
            name: Arc<str>,
            /// The hashes of its keys, at least one.
            keys: Vec<KeyHash>,
        }
        settings {
            /// The profiles that it may use, by name: `default` is `/mcp` itself. All of them
            /// without it.
            profiles: Option<Vec<ProfileName>>,
            /// How many requests it may send, instead of `gateway.client_rate`.
            rate: Option<Rate>,
        }
    }
}

/// The SHA-256 of a client's key: all that the gateway ever holds of it.
///
/// Written as 64 hexadecimal digits, with or without `sha256:` before them, and
/// with whatever `sha256sum` puts behind them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Takes a digest.
    pub fn new(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn from_text(text: &str) -> Option<Self> {
        let word = text.split_ascii_whitespace().next()?;
        let digits = word.strip_prefix("sha256:").unwrap_or(word);
        let digest = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?;
        digest.try_into().ok().map(Self)
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", HEXLOWER.encode_display(&self.0))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, ..] = self.0;
        write!(f, "sha256:{first:02x}{second:02x}…")
    }
}

impl Setting for KeyHash {
    type Value = Self;

    fn word() -> String {
        "SHA-256, with substitution".into()
    }

    fn example() -> String {
        "\"sha256:…\"".into()
    }

    fn right() -> String {
        HOW_TO_HASH.into()
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        // Somebody may have written the key itself.
        reader.hidden.push(node.span.clone());
        let text = node.filled::<Self>(reader)?;
        let hash = Self::from_text(&text);
        if hash.is_none() {
            node.fault(reader, Problem::KeyHash);
        }
        hash
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// `key`, `keys` or both.
impl Part for Vec<KeyHash> {
    fn rows() -> Vec<Row> {
        const KEY: &[&str] = &[
            "The SHA-256 of its key in hexadecimal: `trunkline key` makes both. The key itself",
            "belongs to the client alone.",
        ];
        const KEYS: &[&str] =
            &["More of them, all good at the same time, so that one can take another's place."];
        vec![
            Row::of::<Option<KeyHash>>("key", KEY, None),
            Row::of::<Vec<KeyHash>>("keys", KEYS, Some("[]")),
        ]
    }

    fn read(table: &Table<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let one = table.setting::<Option<KeyHash>>("key", None, reader);
        let more = table.setting::<Self>("keys", Some("[]"), reader);
        let keys: Self = one?.into_iter().chain(more?).collect();
        if keys.is_empty() {
            reader.fault(table.name_span.clone(), &table.key, Problem::NoKey);
            return None;
        }
        Some(keys)
    }
}

/// A client's name is its table's.
impl Part for Arc<str> {
    fn read(table: &Table<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
        let plain = (1..=64).contains(&table.name.len()) && table.name.chars().all(allowed);
        // Logs call those without a key so.
        if !plain || table.name == "anonymous" {
            reader.fault(table.name_span.clone(), &table.key, Problem::ClientName);
            return None;
        }
        Some(table.name.into())
    }
}

/// What a fault says where a key stands instead of its hash.
pub(super) const HOW_TO_HASH: &str =
    "`trunkline key` makes a key and its hash; `trunkline key --hash` hashes one that you have";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_written_by_this_program_and_by_others() {
        let digits = "0123456789abcdef".repeat(4);
        let hash = KeyHash::from_text(&digits).unwrap();
        assert_eq!(hash.to_string(), format!("sha256:{digits}"));
        for text in [
            hash.to_string(),
            digits.to_uppercase(),
            format!("{digits}  -"),
            format!(" {digits}  ci.key\n"),
        ] {
            assert_eq!(KeyHash::from_text(&text), Some(hash), "{text}");
        }
        let long = format!("{digits}0");
        let sign = format!("+{}", &digits[1..]);
        for text in ["", "tlk_key", "sha256:", &digits[1..], &long, &sign, &"é".repeat(32)] {
            assert_eq!(KeyHash::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_hash_is_not_shown_whole_in_debug() {
        assert_eq!(format!("{:?}", KeyHash::new([0xab; 32])), "sha256:abab…");
    }
}
