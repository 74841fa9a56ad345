//! `[interceptors.NAME]`: services that check or change calls and results.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use url::Url;

use super::gateway::events::WebhookUrl;
use super::named_tables::PluralName;
use super::server::breaker::BreakerConfig;
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::{SectionPart, TextSetting};
use crate::reader::values::pattern::Pattern;
use crate::reader::values::units::{DurationSetting, SizeSetting};
use crate::reader::{ConfigReader, ConfigTable};
use crate::source::secret::Secret;

section! {
    /// An interceptor: an HTTP service that validates or changes calls and results, by the method
    /// `interceptor/invoke` of [SEP-2624](interceptors.md). Servers and profiles name the
    /// interceptors of their calls. `NAME` has 1 to 32 characters of `a-z`, `A-Z`, `0-9`, `_` and
    /// `-`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct InterceptorConfig {
        parts {
            /// The `NAME` of its table.
            name: InterceptorName,
        }
        settings {
            /// Its endpoint: `https`, or `http` on this machine.
            url: Url as WebhookUrl,
            /// Headers for each request to it. Clients' credentials are never sent.
            headers: Vec<(HeaderName, Secret)> = {},
            /// The effect of its answers.
            mode: InterceptorMode = "enforce",
            /// Action for a call if the answer is late or invalid.
            fail: InterceptorFailure = "closed",
            /// The time limit of its answer.
            timeout: Duration as DurationSetting = "2s",
            /// The messages that it sees.
            on: Vec<InterceptedPhase> = ["request", "result"],
            /// The methods of the calls that it sees, with `*` and `?`. An interceptor of the
            /// results of `tools/call` sees those of tasks, too.
            methods: Vec<Pattern> = ["*"],
            /// The largest message that is sent to it, and the largest answer.
            max_size: usize as SizeSetting = "1MiB",
            /// The circuit breaker: after failures, it is not called for a while.
            breaker: Option<BreakerConfig> = {},
        }
    }
}

choice! {
    /// The effect of an interceptor's answers.
    pub enum InterceptorMode {
        /// they decide
        "enforce" => Enforce,
        /// they are only logged
        "audit" => Audit,
    }
}

choice! {
    /// Action for a call without a valid answer of an interceptor.
    pub enum InterceptorFailure {
        /// the call goes on as if it had no objection
        "open" => Open,
        /// the call fails
        "closed" => Closed,
    }
}

choice! {
    /// The messages of a call that an interceptor sees.
    pub enum InterceptedPhase {
        /// the request to the server
        "request" => Request,
        /// the server's answer: a result, an error, a question, the state of a task
        "result" => Result,
        /// progress, log lines and other notifications. Without it, an interceptor of results that
        /// fails closed withholds their texts
        "notification" => Notification,
    }
}

/// The name of an interceptor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InterceptorName(Arc<str>);

impl InterceptorName {
    /// The name as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn from_text(text: &str) -> Result<Self, SettingFault> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let is_valid = (1..=32).contains(&text.len()) && text.chars().all(allowed);
        if is_valid { Ok(Self(text.into())) } else { Err(SettingFault::InterceptorName) }
    }
}

impl fmt::Display for InterceptorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An interceptor's name is the key of its table.
impl SectionPart for InterceptorName {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Self::from_text(table.name)
            .map_err(|problem| reader.report_fault(table.name_span.clone(), &table.key, problem))
            .ok()
    }
}

impl TextSetting for InterceptorName {
    type Value = Self;
    const WORD: &'static str = "interceptor's name";
    const EXAMPLE: &'static str = "\"pii\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        Self::from_text(text).map(Some)
    }
}

impl PluralName for InterceptorConfig {
    const PLURAL: &'static str = "interceptors";
}
