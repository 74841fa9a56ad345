//! The software of clients: name and version in their `clientInfo`.

use std::borrow::Cow;

use serde::Deserialize;

use trunkline_core::text::clip;

use crate::MAX_CLIENT_TEXT_BYTES;

/// Reads name and version, as one text. Returns `None` if there is no name.
pub(crate) fn read_software(info: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct ClientInfo<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow, default)]
        version: Cow<'a, str>,
    }
    let ClientInfo { name, version } = serde_json::from_slice(info).ok()?;
    let name = clip(&name, MAX_CLIENT_TEXT_BYTES / 2);
    let version = clip(&version, MAX_CLIENT_TEXT_BYTES / 2);
    let text = format!("{name} {version}");
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The software of the last line. Most lines of a thread are about the same one, and a comparison
/// costs a small part of parsing.
#[derive(Debug)]
pub(super) struct KnownSoftware {
    info: Vec<u8>,
    text: Option<String>,
}

impl KnownSoftware {
    pub(super) const fn new() -> Self {
        Self { info: Vec::new(), text: None }
    }

    /// Returns name and version of a `clientInfo`.
    pub(super) fn of(&mut self, info: &[u8]) -> Option<&str> {
        if self.info != info {
            self.text = read_software(info);
            self.info.clear();
            if info.len() <= MAX_KNOWN_BYTES {
                self.info.extend_from_slice(info);
            }
        }
        self.text.as_deref()
    }
}

/// A larger `clientInfo` is parsed for each line.
const MAX_KNOWN_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_version_are_read() {
        let long = format!(r#"{{"name":"{}","version":"1"}}"#, "x".repeat(10_000));
        let cut = format!("{} 1", "x".repeat(MAX_CLIENT_TEXT_BYTES / 2));
        let mut known = KnownSoftware::new();
        for (info, expected) in [
            (r#"{"name":"agent","version":"1.0","icons":[]}"#, Some("agent 1.0")),
            (r#"{"name":"agent","version":"1.0","icons":[]}"#, Some("agent 1.0")),
            (r#"{"name":"a\"b"}"#, Some("a\"b")),
            (r#"{"version":"1.0"}"#, None),
            (r#"{"name":"","version":""}"#, None),
            (r#"{"name":1}"#, None),
            ("no JSON", None),
            (&long, Some(&*cut)),
            (r#"{"name":"agent","version":"2.0"}"#, Some("agent 2.0")),
        ] {
            assert_eq!(read_software(info.as_bytes()).as_deref(), expected, "{info}");
            assert_eq!(known.of(info.as_bytes()), expected, "{info}");
            assert!(known.info.len() <= MAX_KNOWN_BYTES);
        }
    }
}
