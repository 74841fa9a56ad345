//! `[clients.NAME]`: the clients that may call, and the hashes of their API keys.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use jiff::Timestamp;
use serde_json::{Value as Json, json};
use toml::de::DeValue;

use trunkline_protocol::call::ProfileName;

use super::gateway::admin::AdminRole;
use super::quota::Quota;
use super::rate::Rate;
use super::subject_name::SubjectName;
use crate::faults::help::HOW_TO_HASH;
use crate::faults::problem::SettingFault;
use crate::reader::macros::section;
use crate::reader::setting::{SectionPart, Setting, SettingRow, TextSetting};
use crate::reader::{ConfigNode, ConfigReader, ConfigTable};

section! {
    /// A client and its API keys. As soon as one client is configured, requests without a valid key
    /// (or token, or certificate, where those are configured) are rejected. `NAME` has 1 to 64
    /// characters of `a-z`, `A-Z`, `0-9`, `_`, `-`, `.` and `@`; it identifies the client in logs,
    /// metrics and traces.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ClientConfig {
        parts {
            /// The `NAME` of its table.
            name: Arc<str>,
            /// Its keys, at least one unless it has certificates.
            keys: Vec<ClientKey>,
        }
        settings {
            /// Names in client certificates that identify the client (`gateway.tls.client_ca`), each as
            /// `CN=NAME`, `subject:CN=NAME,OU=UNIT,O=COMPANY`, `dns:NAME`, `email:ADDRESS`, `uri:URI` or
            /// `ip:ADDRESS`. One of them is enough.
            certificates: Vec<CertificateName> = [],
            /// The profiles that the client may use; `default` is `/mcp` itself. By default all.
            profiles: Option<Vec<ProfileName>>,
            /// The client's request rate, instead of `gateway.client_rate`.
            rate: Option<Rate>,
            /// The number of the client's calls in each second, minute, hour or day of UTC.
            quota: Option<Quota>,
            /// The groups that the client belongs to, for the rules of `policy`.
            groups: Vec<String> = [],
            /// The scopes of the client's keys.
            scopes: Vec<String> = [],
            /// The client's rights at the [admin API](api.md). By default none.
            role: Option<AdminRole>,
        }
    }
}

section! {
    /// A key, with its expiry.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct ClientKey {
        settings {
            /// The SHA-256 of the key.
            hash: KeyHash,
            /// The time from which the key is refused: a date, which begins at midnight UTC, or a
            /// date with time and offset. By default never.
            expires: Option<Timestamp>,
        }
    }
}

/// A key as its hash alone, or as a table with its expiry.
pub(crate) struct ClientKeySetting;

impl Setting for ClientKeySetting {
    type Value = ClientKey;

    fn kind_word() -> String {
        format!("{} or a table of it", KeyHash::kind_word())
    }

    fn example_value() -> String {
        KeyHash::example_value()
    }

    fn correction() -> String {
        KeyHash::correction()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<ClientKey> {
        match node.value {
            DeValue::Table(_) => ClientKey::read_value(node, reader),
            _ => KeyHash::read_value(node, reader).map(ClientKey::lasting),
        }
    }

    fn json_schema() -> Json {
        json!({ "anyOf": [KeyHash::json_schema(), ClientKey::json_schema()] })
    }
}

impl ClientKey {
    /// A key that does not expire.
    pub fn lasting(hash: KeyHash) -> Self {
        Self { hash, expires: None }
    }
}

/// The SHA-256 of a client's key; the gateway never stores the key itself.
///
/// Written as 64 hexadecimal digits, optionally after `sha256:` and followed by
/// the rest of a line of `sha256sum`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Wraps a digest.
    pub fn new(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The bytes of the digest.
    #[inline]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first eight hexadecimal digits, which distinguish keys in messages.
    pub fn abbreviation(&self) -> String {
        let [first, second, third, fourth, ..] = self.0;
        HEXLOWER.encode(&[first, second, third, fourth])
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

    fn kind_word() -> String {
        "SHA-256, with substitution".into()
    }

    fn example_value() -> String {
        "\"sha256:…\"".into()
    }

    fn correction() -> String {
        HOW_TO_HASH.into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        // The value may be the key itself, by mistake.
        reader.hidden.push(node.span.clone());
        let text = node.substitute_text::<Self>(reader)?;
        let hash = Self::from_text(&text);
        if hash.is_none() {
            node.report_fault(reader, SettingFault::KeyHash);
        }
        hash
    }

    fn json_schema() -> Json {
        json!({ "type": "string" })
    }
}

/// A name in a client certificate (RFC 5280, sections 4.1.2.6 and 4.2.1.6).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CertificateName {
    /// The common name of the subject.
    Common(String),
    /// The whole subject.
    Subject(SubjectName),
    /// A DNS name, in lower case.
    Dns(String),
    /// An e-mail address.
    Email(String),
    /// A URI, such as a SPIFFE id.
    Uri(String),
    /// An IP address.
    Ip(IpAddr),
}

impl TextSetting for CertificateName {
    type Value = Self;
    const WORD: &'static str = "name in a certificate";
    const RULE: &'static str = "`CN=`, `subject:`, `dns:`, `email:`, `uri:` or `ip:` and a name";
    const EXAMPLE: &'static str = "\"dns:ci.example.com\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        let Some((kind, name)) = text.split_once(['=', ':']) else { return Ok(None) };
        let written = || name.to_owned();
        let is_empty = name.trim().is_empty();
        let found = match text.get(..=kind.len()).filter(|_| !is_empty) {
            Some("CN=") => Self::Common(written()),
            Some("subject:") => match SubjectName::parse(name) {
                Some(subject) => Self::Subject(subject),
                None => return Ok(None),
            },
            Some("dns:") => Self::Dns(name.to_ascii_lowercase()),
            Some("email:") => Self::Email(written()),
            Some("uri:") => Self::Uri(written()),
            Some("ip:") => match name.parse() {
                Ok(address) => Self::Ip(address),
                Err(_) => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(found))
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Common(name) => write!(f, "CN={name}"),
            Self::Subject(name) => write!(f, "subject:{name}"),
            Self::Dns(name) => write!(f, "dns:{name}"),
            Self::Email(name) => write!(f, "email:{name}"),
            Self::Uri(name) => write!(f, "uri:{name}"),
            Self::Ip(address) => write!(f, "ip:{address}"),
        }
    }
}

/// `key`, `keys` or both.
impl SectionPart for Vec<ClientKey> {
    fn part_rows() -> Vec<SettingRow> {
        const KEY_DOC: &[&str] = &[
            "The SHA-256 of the client's key in hexadecimal; `trunkline key` creates both. Only the",
            "client has the key itself.",
        ];
        const KEYS_DOC: &[&str] = &[
            "Several hashes, all valid at the same time, so that keys can be rotated. A key that ends by",
            "itself is a table: `{ hash = \"sha256:…\", expires = 2027-01-31 }`.",
        ];
        vec![
            SettingRow::for_setting::<Option<KeyHash>>("key", KEY_DOC, None),
            SettingRow::for_setting::<Vec<ClientKeySetting>>("keys", KEYS_DOC, Some("[]")),
        ]
    }

    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let one = table.read_setting::<Option<KeyHash>>("key", None, reader);
        let more = table.read_setting::<Vec<ClientKeySetting>>("keys", Some("[]"), reader);
        let keys: Self = one?.map(ClientKey::lasting).into_iter().chain(more?).collect();
        if keys.is_empty() && table.find_node("certificates").is_none() {
            reader.report_fault(table.name_span.clone(), &table.key, SettingFault::NoKey);
            return None;
        }
        Some(keys)
    }
}

/// A client's name is the key of its table.
impl SectionPart for Arc<str> {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
        let plain = (1..=64).contains(&table.name.len()) && table.name.chars().all(allowed);
        // The name that logs use for clients without a key.
        if !plain || table.name == "anonymous" {
            reader.report_fault(table.name_span.clone(), &table.key, SettingFault::ClientName);
            return None;
        }
        Some(table.name.into())
    }
}

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
