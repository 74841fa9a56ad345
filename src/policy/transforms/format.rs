//! Compact forms of texts that are JSON.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::config::FormatChoice;
use crate::jsonrpc::Members;

/// Returns the text in a shorter form; `None` if it is not JSON, or has none.
pub(super) fn shorten_text(text: &str, format: FormatChoice) -> Option<String> {
    let text = text.trim();
    if format == FormatChoice::Json || !text.starts_with(['{', '[']) {
        return None;
    }
    serde_json::from_str::<&RawValue>(text).ok()?;
    let compact = without_whitespace(text);
    let table = (format == FormatChoice::Csv).then(|| write_table(text)).flatten();
    let shortest = table.filter(|table| table.len() < compact.len()).unwrap_or(compact);
    (shortest.len() < text.len()).then_some(shortest)
}

/// Returns JSON without whitespace between its tokens. All else stays as it is, numbers included.
fn without_whitespace(json: &str) -> String {
    let (mut inside, mut escaped) = (false, false);
    json.chars()
        .filter(|c| {
            let is_kept = inside || !matches!(c, ' ' | '\t' | '\n' | '\r');
            match c {
                '"' if !escaped => inside = !inside,
                _ => {}
            }
            escaped = inside && *c == '\\' && !escaped;
            is_kept
        })
        .collect()
}

/// Writes an array of flat objects as CSV (RFC 4180), with a header line; `None` for anything else.
fn write_table(json: &str) -> Option<String> {
    let rows: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    let rows = rows.iter().map(|row| Members::parse(row.get().as_bytes()).ok());
    let rows: Vec<Members<'_>> = rows.collect::<Option<_>>()?;
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.0) {
        if !names.contains(&&**name) {
            names.push(name);
        }
        if names.len() > MAX_COLUMNS {
            return None;
        }
    }
    if names.is_empty() {
        return None;
    }
    let mut table = names.iter().map(|name| cell(name)).collect::<Vec<_>>().join(",");
    for row in &rows {
        let cells = names.iter().map(|name| row.find(name).map_or(Some(Cow::Borrowed("")), scalar));
        let cells: Vec<_> = cells.collect::<Option<_>>()?;
        table.push('\n');
        table.push_str(&cells.join(","));
    }
    Some(table)
}

/// Returns a value as a cell; `None` for an object or an array.
fn scalar(value: &RawValue) -> Option<Cow<'_, str>> {
    match value.get().as_bytes().first()? {
        b'{' | b'[' => None,
        b'n' => Some("".into()),
        b'"' => {
            let text: String = serde_json::from_str(value.get()).ok()?;
            Some(cell(&text).into_owned().into())
        }
        _ => Some(value.get().into()),
    }
}

fn cell(text: &str) -> Cow<'_, str> {
    let is_plain =
        !text.contains(['"', ',', '\n', '\r']) && text.trim() == text && !text.is_empty();
    if is_plain { text.into() } else { format!("\"{}\"", text.replace('"', "\"\"")).into() }
}

/// Limit of a table's columns.
const MAX_COLUMNS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written_in_its_shortest_form() {
        use FormatChoice::{Compact, Csv, Json};
        for (format, text, expected) in [
            (Compact, "{ \"a b\": [1,  2.50] }", Some(r#"{"a b":[1,2.50]}"#)),
            (Compact, r#"{"a\" ":" \\" , "b" : 1}"#, Some(r#"{"a\" ":" \\","b":1}"#)),
            (Compact, r#"{"a":1}"#, None),
            (Compact, "not { json", None),
            (Json, "{ }", None),
            (
                Csv,
                r#"[{"a":1,"b":"x"},{"b":"y, z","c":null},{"a":1e400}]"#,
                Some("a,b,c\n1,x,\n,\"y, z\",\n1e400,,"),
            ),
            (
                Csv,
                r#"[{"a":"say \"x\"","b":""},{"a":" ","b":true}]"#,
                Some("a,b\n\"say \"\"x\"\"\",\"\"\n\" \",true"),
            ),
            (Csv, r#"[ {"a":[1]} ]"#, Some(r#"[{"a":[1]}]"#)),
            (Csv, "[ 1 ]", Some("[1]")),
            (Csv, "[{}]", None),
            (Csv, r#"[{"a":1}]"#, Some("a\n1")),
        ] {
            assert_eq!(shorten_text(text, format).as_deref(), expected, "{text}");
        }
    }
}
