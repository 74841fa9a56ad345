//! `[events]`: lifecycle events for the operator's own programs.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;
use url::Url;

use trunkline_telemetry::events::{EventType, SigningKey};

use super::network::is_safe_url;
use crate::faults::problem::SettingFault;
use crate::faults::url::UrlFault;
use crate::reader::macros::section;
use crate::reader::setting::{Setting, TextSetting};
use crate::reader::values::pattern::Pattern;
use crate::reader::values::substitute::SubstitutedText;
use crate::reader::values::units::{DurationSetting, SizeSetting};
use crate::reader::{ConfigNode, ConfigReader};
use crate::sections::server::process::ProgramSetting;
use crate::source::secret::Secret;

section! {
    /// Lifecycle events, as [CloudEvents](events.md), for one receiver: a webhook (`url`), a program
    /// (`command`) or a file (`file`). Without any, there are no events.
    #[derive(Debug, Clone, PartialEq)]
    pub struct EventsConfig {
        settings {
            /// The webhook: `https`, or `http` on this machine. Each event is one signed request.
            url: Option<Url> as Option<WebhookUrl>,
            /// The key that signs the requests, by the scheme of Standard Webhooks: `whsec_` and 24
            /// to 64 bytes in Base64. Required with `url`.
            secret: Option<Secret> as Option<SigningSecret>,
            /// The program: a name looked up in `PATH`, or a path. It reads one event per line from
            /// its standard input.
            command: Option<String> as Option<ProgramSetting>,
            /// Its arguments. Other users of the machine can see them.
            args: Vec<String> as Vec<SubstitutedText> = [],
            /// The file to which events are appended, one per line.
            file: Option<PathBuf>,
            /// The types that are sent, with `*` and `?`. By default all but `call.*`.
            types: Vec<Pattern> as Vec<EventTypePattern> = ["server.*", "breaker.*", "list.*", "client.*", "config.*"],
            /// The `source` of the events, which distinguishes gateways.
            source: String as EventSourceSetting = "trunkline",
            /// The most bytes of events that may wait for the receiver. Beyond it, the oldest
            /// events of calls are dropped, and then the oldest of all.
            queue_size: usize as SizeSetting = "1MiB",
            /// The folder in which waiting events are kept as well, so that they are sent after a
            /// restart; it has at most twice `queue_size`. No other user may be able to write to
            /// it, and it belongs to one gateway. Read at the start.
            queue_dir: Option<PathBuf>,
            /// The age at which an event that the receiver does not accept is dropped.
            retry_for: Duration as DurationSetting = "1d",
            /// The time limit of one attempt.
            timeout: Duration as DurationSetting = "10s",
        }
    }
}

impl EventsConfig {
    /// The types that are sent.
    pub fn chosen_types(&self) -> impl Iterator<Item = EventType> {
        EventType::ALL
            .into_iter()
            .filter(|one| self.types.iter().any(|pattern| pattern.matches(one.name())))
    }
}

/// The URL of a webhook: events name clients and tools, so they leave the machine only encrypted.
pub(crate) struct WebhookUrl;

impl Setting for WebhookUrl {
    type Value = Url;

    fn kind_word() -> String {
        <Url as Setting>::kind_word()
    }

    fn example_value() -> String {
        "\"https://hooks.example.com/trunkline\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Url> {
        // Many receivers are identified by a secret in the URL.
        reader.hidden.push(node.span.clone());
        let url = <Url as Setting>::read_value(node, reader)?;
        if is_safe_url(&url) {
            return Some(url);
        }
        node.report_fault(reader, UrlFault::Unencrypted.into());
        None
    }

    fn json_schema() -> Json {
        <Url as Setting>::json_schema()
    }
}

/// The key of a webhook.
pub(crate) struct SigningSecret;

impl Setting for SigningSecret {
    type Value = Secret;

    fn kind_word() -> String {
        <Secret as Setting>::kind_word()
    }

    fn example_value() -> String {
        "\"${env:WEBHOOK_SECRET}\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Secret> {
        let secret = <Secret as Setting>::read_value(node, reader)?;
        if SigningKey::parse(secret.expose()).is_err() {
            node.report_fault(reader, SettingFault::SigningSecret);
            return None;
        }
        Some(secret)
    }

    fn json_schema() -> Json {
        <Secret as Setting>::json_schema()
    }
}

/// A pattern that matches the name of at least one event type.
pub(crate) struct EventTypePattern;

impl TextSetting for EventTypePattern {
    type Value = Pattern;
    const WORD: &'static str = "pattern";
    const RULE: &'static str = <Pattern as TextSetting>::RULE;
    const EXAMPLE: &'static str = "\"server.*\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Pattern>, SettingFault> {
        let Some(pattern) = Pattern::new(text) else { return Ok(None) };
        if EventType::ALL.iter().any(|one| pattern.matches(one.name())) {
            return Ok(Some(pattern));
        }
        Err(SettingFault::NoEventType)
    }
}

/// The `source` of events: a short URI reference.
pub(crate) struct EventSourceSetting;

impl TextSetting for EventSourceSetting {
    type Value = String;
    const WORD: &'static str = "URI reference";
    const RULE: &'static str = "1 to 128 visible ASCII characters";
    const EXAMPLE: &'static str = "\"https://mcp.example.com\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        let is_valid = (1..=128).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte));
        Ok(is_valid.then(|| text.to_owned()))
    }
}
