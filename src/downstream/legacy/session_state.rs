//! The state of a session that outlives its replica, as its record contains it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::call::Client;
use crate::cluster::MAX_SESSION_STATE;
use crate::mcp::{Era, LogLevel, ProtocolVersion};

/// The client's declarations and settings in a session.
#[derive(Debug, Clone)]
pub(super) struct SessionState {
    pub(super) client: Client,
    pub(super) log: Option<LogLevel>,
    /// Resources that the client has subscribed to.
    pub(super) subscriptions: Vec<String>,
}

/// The form in a record.
#[derive(Serialize, Deserialize)]
struct StateForm<'a> {
    #[serde(rename = "v")]
    version: &'a str,
    #[serde(rename = "c", borrow)]
    capabilities: &'a RawValue,
    #[serde(rename = "i", borrow, default, skip_serializing_if = "Option::is_none")]
    info: Option<&'a RawValue>,
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    log: Option<&'a str>,
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    subscriptions: Vec<String>,
}

impl SessionState {
    /// Returns the state in the form of a record. If it is too large, the subscriptions are left out,
    /// and then the client's description of itself; `None` if its capabilities are too large.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let raw = |bytes: &Bytes| {
            let text = std::str::from_utf8(bytes).ok()?.trim().to_owned();
            RawValue::from_string(text).ok()
        };
        let capabilities = raw(&self.client.capabilities)?;
        let info = self.client.info.as_ref().and_then(raw);
        let mut form = StateForm {
            version: self.client.version.as_str(),
            capabilities: &capabilities,
            info: info.as_deref(),
            log: self.log.map(LogLevel::as_str),
            subscriptions: self.subscriptions.clone(),
        };
        let fits = |form: &StateForm<'_>| {
            serde_json::to_vec(form).ok().filter(|text| text.len() <= MAX_SESSION_STATE)
        };
        if let Some(text) = fits(&form) {
            return Some(text);
        }
        form.subscriptions = Vec::new();
        if let Some(text) = fits(&form) {
            return Some(text);
        }
        form.info = None;
        fits(&form)
    }

    /// Parses the state in a record; `None` if it is none.
    pub(super) fn decode(text: &[u8]) -> Option<Self> {
        let form: StateForm<'_> = serde_json::from_slice(text).ok()?;
        let version = ProtocolVersion::parse(form.version);
        let version = version.filter(|version| version.era() == Era::Legacy)?;
        let raw = |value: &RawValue| Bytes::copy_from_slice(value.get().as_bytes());
        let client = Client::new(version, form.info.map(raw), raw(form.capabilities));
        let log = form.log.and_then(LogLevel::parse);
        Some(Self { client, log, subscriptions: form.subscriptions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(capabilities: &str, info: &str, subscriptions: &[&str]) -> SessionState {
        let (info, capabilities) = (info.to_owned(), capabilities.to_owned());
        let version = ProtocolVersion::LATEST_LEGACY;
        SessionState {
            client: Client::new(version, Some(info.into()), capabilities.into()),
            log: Some(LogLevel::Warning),
            subscriptions: subscriptions.iter().map(|uri| (*uri).to_owned()).collect(),
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_a_usual_one_is_small() {
        let capabilities = r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}"#;
        let info = r#"{"name":"a-usual-client","title":"A usual client","version":"1.12.3"}"#;
        let uris: Vec<_> = (0..8).map(|n| format!("trunkline://s/file:///srv/{n}.md")).collect();
        let uris: Vec<_> = uris.iter().map(String::as_str).collect();
        let text = state(capabilities, info, &uris).encode().unwrap();
        assert!(text.len() < 700, "{} bytes", text.len());
        let read = SessionState::decode(&text).unwrap();
        assert_eq!(read.client.version, ProtocolVersion::LATEST_LEGACY);
        assert_eq!(read.client.capabilities, capabilities);
        assert_eq!(read.client.info.unwrap(), info);
        assert_eq!(read.log, Some(LogLevel::Warning));
        assert_eq!(read.subscriptions, uris);
        for length in 0..text.len() {
            assert!(SessionState::decode(&text[..length]).is_none(), "{length} bytes");
        }
    }

    #[test]
    fn a_state_that_is_too_large_leaves_out_the_least_important_first() {
        let long = "x".repeat(MAX_SESSION_STATE);
        let info = format!(r#"{{"name":"{long}"}}"#);
        let read = |state: SessionState| SessionState::decode(&state.encode().unwrap()).unwrap();
        let subscribed = read(state("{}", r#"{"name":"n"}"#, &["a", &long]));
        assert!(subscribed.subscriptions.is_empty() && subscribed.client.info.is_some());
        let described = read(state(r#"{"roots":{}}"#, &info, &["a"]));
        assert!(described.client.info.is_none());
        assert_eq!(described.client.capabilities, r#"{"roots":{}}"#);
        assert!(state(&info, "{}", &[]).encode().is_none());
    }

    #[test]
    fn a_state_of_another_era_or_kind_is_refused() {
        for text in ["", "[]", "{}", r#"{"v":"2026-07-28","c":{}}"#, r#"{"v":"x","c":{}}"#] {
            assert!(SessionState::decode(text.as_bytes()).is_none(), "{text}");
        }
        assert!(SessionState::decode(br#"{"v":"2025-06-18","c":{}}"#).is_some());
    }
}
