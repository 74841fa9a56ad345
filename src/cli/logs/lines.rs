//! Lines of the log.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use super::{RecordKind, RecordText};

/// Lines of the log.
pub(super) const LINE_RECORDS: RecordKind =
    RecordKind { path: "/log", member: "lines", plural: "lines", describe };

/// The part of a line that is printed.
#[derive(Debug, Deserialize)]
struct LineRecord {
    at: jiff::Timestamp,
    level: String,
    server: Option<String>,
    client: Option<String>,
    text: String,
    fields: String,
}

/// Describes a line like the log itself.
fn describe(record: &Value) -> Option<RecordText> {
    let line = LineRecord::deserialize(record).ok()?;
    let level = line.level.to_uppercase();
    let start = format!("{} {level:>5} ", super::time_text(line.at));
    let mut body = String::new();
    for (name, value) in [("server", &line.server), ("client", &line.client)] {
        if let Some(value) = value {
            let _ = write!(body, "{name}={value} ");
        }
    }
    body.push_str(&line.text);
    if !line.fields.is_empty() {
        let _ = write!(body, " {}", line.fields);
    }
    Some(RecordText { start, body })
}
