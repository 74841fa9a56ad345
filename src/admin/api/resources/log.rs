//! The last lines of the log, and new ones as they are written.

use async_stream::stream;
use bytes::Bytes;
use futures_util::Stream;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::api::event_stream::{
    answer_events, missed_event, record_event, too_many_observers,
};
use crate::admin::api::problem::ApiProblem;
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::limit_text;
use crate::config::AdminRole;
use crate::telemetry::log::{LogLine, LogTail};
use crate::telemetry::{LiveItem, LiveItems, Numbered};

use super::calls::{DEFAULT_LIMIT, past_limit};
use super::servers::known_server;

/// The last lines of the log. The access log is not among them: see `/calls`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LogPage {
    /// In the order of their times.
    lines: Vec<LogLineDocument>,
    /// `before` for the page of earlier lines; `null` if there are none.
    earlier: Option<u64>,
}

/// A line of the log.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LogLineDocument {
    /// Its number: later lines have larger ones.
    number: u64,
    /// Its time.
    at: Timestamp,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    level: &'static str,
    /// The module that wrote it.
    target: &'static str,
    /// The server that it is about.
    server: Option<String>,
    /// The client that it is about.
    client: Option<String>,
    /// True for a line that the server wrote to its standard error.
    is_output: bool,
    /// The sentence.
    text: String,
    /// The other fields, as `name=value`.
    fields: String,
}

/// Selects lines by the role and the parameters of a request.
struct LineFilter {
    role: AdminRole,
    server: Option<String>,
    /// Place of the least level in [`LEVEL_NAMES`].
    level: usize,
    since: Option<Timestamp>,
}

impl LineFilter {
    fn of(request: &EndpointRequest) -> Result<Self, ApiProblem> {
        let level = request.word_argument("level", &LEVEL_NAMES)?;
        Ok(Self {
            role: request.role,
            server: known_server(request)?,
            level: level.map_or(LEVEL_NAMES.len(), rank_of),
            since: request.time_argument("since")?,
        })
    }

    fn matches(&self, line: &LogLine) -> bool {
        let is_server = |name: &String| line.server.as_ref() == Some(name);
        // The output of servers may have secrets: it needs the role of `/servers/{server}/output`.
        let is_permitted = !line.is_of_server() || self.role.includes(AdminRole::Operator);
        is_permitted
            && self.server.as_ref().is_none_or(is_server)
            && rank_of(level_name(line)) <= self.level
            && self.since.is_none_or(|since| time_of(line) >= since)
    }
}

/// Lists the last lines.
pub(crate) fn list_lines(request: &EndpointRequest) -> EndpointAnswer {
    let filter = LineFilter::of(request)?;
    let before = request.count_argument("before", u64::MAX)?;
    let limit = past_limit(request, DEFAULT_LIMIT)?;
    let tail = LogTail::of_process().unwrap_or_default();
    let mut found = tail.list(before, limit + 1, |line| filter.matches(line));
    let has_more = found.len() > limit;
    found.truncate(limit);
    let earlier = found.last().filter(|_| has_more).map(|line| line.number);
    let lines = found.iter().rev().map(|line| line_document(line, filter.role)).collect();
    answer(&LogPage { lines, earlier })
}

/// Answers with new lines as they are written.
pub(crate) fn watch_lines(mut request: EndpointRequest) -> EndpointAnswer {
    // The stream ends with the role that sees the output of servers.
    if request.role.includes(AdminRole::Operator) {
        request.least = AdminRole::Operator;
    }
    let request = &request;
    let filter = LineFilter::of(request)?;
    let past = past_limit(request, 0)?;
    let tail = LogTail::of_process().unwrap_or_default();
    let observed = tail.observe(past, |line| filter.matches(line)).map_err(too_many_observers)?;
    Ok(answer_events(request, line_events(observed, filter)))
}

/// Encodes the lines that match, and the number of those that the observer has missed.
fn line_events(
    mut observed: LiveItems<LogLine>,
    filter: LineFilter,
) -> impl Stream<Item = Bytes> + Send {
    stream! {
        while let Some(item) = observed.next().await {
            match item {
                LiveItem::Item(line) if filter.matches(&line.item) => {
                    yield record_event(&line_document(&line, filter.role));
                }
                LiveItem::Item(_) => {}
                LiveItem::Missed(missed) => yield missed_event(missed),
            }
        }
    }
}

/// Describes a line. Viewers get neither the output of servers nor quotes of it.
fn line_document(numbered: &Numbered<LogLine>, role: AdminRole) -> LogLineDocument {
    let line = &numbered.item;
    let (mut text, mut fields) = (line.text.clone(), line.fields.clone());
    limit_text(&mut text, role);
    limit_text(&mut fields, role);
    LogLineDocument {
        number: numbered.number,
        at: time_of(line),
        level: level_name(line),
        target: line.target,
        server: line.server.clone(),
        client: line.client.clone(),
        is_output: line.is_of_server(),
        text,
        fields: fields.trim_start().to_owned(),
    }
}

fn time_of(line: &LogLine) -> Timestamp {
    Timestamp::try_from(line.at).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn level_name(line: &LogLine) -> &'static str {
    match line.level {
        tracing::Level::ERROR => "error",
        tracing::Level::WARN => "warn",
        tracing::Level::INFO => "info",
        tracing::Level::DEBUG => "debug",
        tracing::Level::TRACE => "trace",
    }
}

fn rank_of(level: &str) -> usize {
    LEVEL_NAMES.iter().position(|known| *known == level).unwrap_or(LEVEL_NAMES.len())
}

/// The levels, the most urgent first.
pub(crate) const LEVEL_NAMES: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn an_observer_that_reads_too_slowly_learns_how_many_lines_it_has_missed() {
        let tail = LogTail::default();
        let observed = tail.observe(0, |_| true).unwrap();
        let (role, level) = (AdminRole::Viewer, LEVEL_NAMES.len());
        let filter = LineFilter { role, server: None, level, since: None };
        for number in 0..1024 + 76 {
            tail.push(LogLine {
                at: SystemTime::UNIX_EPOCH,
                level: tracing::Level::INFO,
                target: "trunkline",
                server: None,
                client: None,
                text: format!("line {number}"),
                fields: String::new(),
            });
        }
        let mut events = std::pin::pin!(line_events(observed, filter));
        let first = events.next().await.unwrap();
        assert_eq!(first, "event: missed\ndata: {\"missed\":76}\n\n");
        let second = events.next().await.unwrap();
        assert!(String::from_utf8_lossy(&second).contains("\"line 76\""), "{second:?}");
    }

    #[test]
    fn lines_of_servers_need_the_role_operator() {
        let line = |target| LogLine {
            at: SystemTime::UNIX_EPOCH,
            level: tracing::Level::INFO,
            target,
            server: Some("s".to_owned()),
            client: None,
            text: "a secret".to_owned(),
            fields: String::new(),
        };
        let (own, output) = (line("trunkline::upstream"), line("trunkline::server"));
        for (role, sees_output) in
            [(AdminRole::Viewer, false), (AdminRole::Operator, true), (AdminRole::Admin, true)]
        {
            let mut quoting = line("trunkline::upstream");
            quoting.fields = " fault=it exited (1; its last line was: token 7)".to_owned();
            let numbered = Numbered { number: 1, item: quoting };
            let shown = line_document(&numbered, role).fields;
            assert_eq!(shown.contains("token 7"), sees_output, "{shown}");
            let server = Some("s".to_owned());
            let filter = LineFilter { role, server, level: LEVEL_NAMES.len(), since: None };
            assert!(filter.matches(&own), "{}", role.as_str());
            assert_eq!(filter.matches(&output), sees_output, "{}", role.as_str());
        }
    }
}
