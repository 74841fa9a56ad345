//! `[audit]`: the audit log.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;

use trunkline_telemetry::audit::{ChainKey, RedactionRules, SyslogAddress};

use crate::faults::FoundProblem;
use crate::faults::expression::{ExpressionFault, find_expression_fault};
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::{Setting, TextSetting};
use crate::reader::values::numbers::CountSetting;
use crate::reader::values::units::{DurationSetting, SizeSetting};
use crate::reader::{ConfigNode, ConfigReader};
use crate::source::secret::Secret;

section! {
    /// The [audit log](audit.md): one JSON record per decision, in a file (`file`), on standard output
    /// (`stdout`) or for a syslog receiver (`syslog`). Without any, there is no audit log.
    #[derive(Debug, Clone, PartialEq)]
    pub struct AuditConfig {
        settings {
            /// The file to which records are appended. Only its owner can read it. If another
            /// program moves it away, a new one begins.
            file: Option<PathBuf>,
            /// Writes records to standard output. Not with `trunkline stdio`: its client reads
            /// that output.
            stdout: bool = false,
            /// The syslog receiver: `unix:/dev/log`, `udp://HOST:PORT` or `tcp://HOST:PORT`.
            syslog: Option<SyslogAddress> as Option<SyslogSetting>,
            /// The size at which the next file begins.
            rotate_size: Option<usize> as Option<SizeSetting> = "100MiB",
            /// The age at which the next file begins.
            rotate_every: Option<Duration> as Option<DurationSetting> = "off",
            /// The number of earlier files that are kept, as `FILE.1` (the newest), `FILE.2`, and
            /// so on.
            keep: usize as CountSetting<0, 10_000> = 10,
            /// The most bytes of records that may wait to be written. Records beyond it are lost
            /// and counted. Records about requests without a known sender get half of it.
            queue_size: usize as SizeSetting = "4MiB",
            /// Refuses requests that cannot be recorded, with `audit_unavailable`: while the log cannot
            /// be written, and without room in `queue_size`, of which each call in progress takes
            /// 4 KiB, and with `arguments` twice `arguments_size` more. Without it, they are served,
            /// and lost records are counted.
            required: bool = false,
            /// Gives each record the hash of the one before, for `trunkline audit verify`.
            chain: bool = false,
            /// The key of the chain's hashes, of at least 32 bytes. Without the key, a chain that
            /// verifies cannot be forged.
            chain_key: Option<Secret> as Option<ChainKeySetting>,
            /// The digest of calls' arguments that is recorded.
            arguments_digest: DigestChoice = "blake2b",
            /// Records the values of calls' arguments, redacted, and not only their digest.
            arguments: bool = false,
            /// The approximate bytes of one call's arguments that are recorded. Longer values show
            /// their beginning and end, their size and their SHA-256.
            arguments_size: usize as ArgumentsSizeSetting = "16KiB",
            /// Regular expressions for keys of arguments, in any case. The values of matching keys
            /// are replaced, as are those of the built-in keys.
            redact_keys: Vec<String> as Vec<ExpressionSetting> = [],
            /// Regular expressions for texts. Matches are replaced, as are those of the built-in
            /// expressions.
            redact_values: Vec<String> as Vec<ExpressionSetting> = [],
        }
    }
}

choice! {
    /// A digest of arguments.
    pub enum DigestChoice {
        /// `arguments_blake2b`, as `b2sum -l 256` prints it
        "blake2b" => Blake2b,
        /// `arguments_sha256`, as `sha256sum` prints it: slower on processors without instructions
        /// for it
        "sha256" => Sha256,
        /// none: a digest reveals a short or guessable value
        "off" => Off,
    }
}

impl AuditConfig {
    /// Returns true if there is an audit log.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.file.is_some() || self.stdout || self.syslog.is_some()
    }
}

/// The address of a syslog receiver.
pub(crate) struct SyslogSetting;

impl TextSetting for SyslogSetting {
    type Value = SyslogAddress;
    const WORD: &'static str = "syslog receiver";
    const RULE: &'static str = "`unix:PATH`, `udp://HOST:PORT` or `tcp://HOST:PORT`";
    const EXAMPLE: &'static str = "\"unix:/dev/log\"";

    fn parse_text(
        text: &str,
        reader: &ConfigReader<'_>,
    ) -> Result<Option<SyslogAddress>, SettingFault> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Some(SyslogAddress::Unix(reader.resolve_path(path))));
        }
        let host = |scheme| text.strip_prefix(scheme).filter(|host| has_host_and_port(host));
        let udp = host("udp://").map(|host| SyslogAddress::Udp(host.to_owned()));
        Ok(udp.or_else(|| host("tcp://").map(|host| SyslogAddress::Tcp(host.to_owned()))))
    }
}

fn has_host_and_port(text: &str) -> bool {
    text.parse::<http::uri::Authority>()
        .is_ok_and(|it| it.port_u16().is_some() && !it.host().is_empty() && !text.contains('@'))
}

/// The key of a chain.
pub(crate) struct ChainKeySetting;

impl Setting for ChainKeySetting {
    type Value = Secret;

    fn kind_word() -> String {
        <Secret as Setting>::kind_word()
    }

    fn example_value() -> String {
        "\"${file:/run/secrets/audit.key}\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Secret> {
        let secret = <Secret as Setting>::read_value(node, reader)?;
        if ChainKey::new(secret.expose().as_bytes()).is_none() {
            node.report_fault(reader, SettingFault::ShortChainKey);
            return None;
        }
        Some(secret)
    }

    fn json_schema() -> Json {
        <Secret as Setting>::json_schema()
    }
}

/// A size of arguments that a record can hold.
pub(crate) struct ArgumentsSizeSetting;

impl TextSetting for ArgumentsSizeSetting {
    type Value = usize;
    const WORD: &'static str = <SizeSetting as TextSetting>::WORD;
    const EXAMPLE: &'static str = "\"16KiB\"";
    const RULE: &'static str = <SizeSetting as TextSetting>::RULE;

    fn parse_text(text: &str, reader: &ConfigReader<'_>) -> Result<Option<usize>, SettingFault> {
        match SizeSetting::parse_text(text, reader)? {
            Some(size) if size > MAX_ARGUMENT_BYTES => {
                Err(SettingFault::Range { min: "1B".into(), max: "256KiB".into() })
            }
            size => Ok(size),
        }
    }

    fn schema_pattern() -> Option<&'static str> {
        <SizeSetting as TextSetting>::schema_pattern()
    }
}

/// A regular expression.
pub(crate) struct ExpressionSetting;

impl Setting for ExpressionSetting {
    type Value = String;

    fn kind_word() -> String {
        "regular expression".into()
    }

    fn example_value() -> String {
        "'^iban$'".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<String> {
        let text = node.expect_plain_string::<Self>(reader)?;
        if let Some((fault, at)) = find_expression_fault(text) {
            let place = text.get(..at.start).map_or(0, |before| before.chars().count()) + 1;
            let problem = SettingFault::Expression { fault, place };
            let span = node.span_within(text, at);
            let (shown, key) = (node.span.clone(), node.key.clone());
            reader.found.push(FoundProblem { span, shown, key, problem });
            return None;
        }
        let own = [text.to_owned()];
        if text.len() > MAX_EXPRESSION_BYTES || RedactionRules::new(&own, &own).is_err() {
            let fault = ExpressionFault::TooLarge;
            node.report_fault(reader, SettingFault::Expression { fault, place: 1 });
            return None;
        }
        Some(text.to_owned())
    }

    fn json_schema() -> serde_json::Value {
        serde_json::json!({ "type": "string" })
    }
}

/// The most bytes of arguments in a record.
const MAX_ARGUMENT_BYTES: usize = 256 << 10;
/// The most bytes of an expression.
const MAX_EXPRESSION_BYTES: usize = 1024;
