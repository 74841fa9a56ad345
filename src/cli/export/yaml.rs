//! Edits a table of a YAML file line by line. Supports only the style of people and Goose: block
//! style, with the table at the top level. The caller checks the result.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::edit::FileEdit;

/// Returns the edited text, or `None` if the table is not in block style.
pub(super) fn edit_yaml(text: &str, edit: &FileEdit<'_>) -> Option<String> {
    let [table] = edit.table else { return None };
    if edit.removed().any(|entry| entry.table != edit.table) {
        return None;
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let header = format!("{table}:");
    let found = lines.iter().position(|line| header_of(line) == Some(table.as_str()));
    let at = found.unwrap_or_else(|| {
        lines.push(header.clone());
        lines.len() - 1
    });
    let line = lines.get_mut(at)?;
    let rest = line.strip_prefix(&header)?.trim();
    if rest == "{}" {
        line.clone_from(&header);
    } else if !(rest.is_empty() || rest.starts_with('#')) {
        return None;
    }
    let end = table_end(&lines, at);
    let mut body: Vec<String> = lines.drain(at + 1..end).collect();
    let indent = body
        .iter()
        .find(|line| !is_filler(line))
        .map_or(2, |line| line.len() - line.trim_start().len());
    for name in edit.removed().map(|entry| entry.name.as_str()).chain([edit.name]) {
        remove_entry(&mut body, name, indent);
    }
    let filler = body.iter().rev().take_while(|line| line.trim().is_empty()).count();
    let mut entry = String::new();
    write_entry(&mut entry, edit.name, edit.value, indent)?;
    let place = body.len() - filler;
    body.splice(place..place, entry.lines().map(str::to_owned));
    let after = lines.split_off(at + 1);
    lines.extend(body);
    lines.extend(after);
    Some(lines.join("\n") + "\n")
}

/// Returns the key of a line at the top level.
fn header_of(line: &str) -> Option<&str> {
    if line.starts_with([' ', '\t', '#', '-']) {
        return None;
    }
    line.split_once(':').map(|(key, _)| key.trim_matches(['"', '\'']))
}

/// Returns the index after a table, at the next key of the top level. Comments directly above that
/// key belong to it.
fn table_end(lines: &[String], at: usize) -> usize {
    let after = lines.iter().enumerate().skip(at + 1);
    let next = after
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with([' ', '\t', '#']))
        .map(|(at, _)| at)
        .next()
        .unwrap_or(lines.len());
    let own = lines.get(at + 1..next).unwrap_or_default();
    next - own.iter().rev().take_while(|line| line.starts_with('#')).count()
}

/// Returns true for a line without content.
fn is_filler(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// Removes the entry of a name: its line, and the lines that are indented deeper. A list may be
/// indented like its key.
fn remove_entry(body: &mut Vec<String>, name: &str, indent: usize) {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let is_entry = |line: &String| {
        let key = line.trim_start().split(':').next().unwrap_or_default();
        depth(line) == indent && !is_filler(line) && key.trim_matches(['"', '\'']) == name
    };
    let Some(start) = body.iter().position(is_entry) else { return };
    let rest = body.iter().enumerate().skip(start + 1);
    let mut end = body.len();
    for (at, line) in rest {
        if !is_filler(line) && depth(line) <= indent {
            end = at;
            break;
        }
    }
    // Comments above the next entry belong to that one.
    while end > start + 1
        && body.get(end - 1).is_some_and(|line| line.trim_start().starts_with('#'))
    {
        end -= 1;
    }
    body.drain(start..end);
}

/// Writes an entry. Texts are written as JSON, which YAML includes.
fn write_entry(out: &mut String, name: &str, value: &Json, indent: usize) -> Option<()> {
    let blank = " ".repeat(indent);
    match value {
        Json::Object(fields) => {
            writeln!(out, "{blank}{name}:").ok()?;
            fields.iter().try_for_each(|(name, value)| write_entry(out, name, value, indent + 2))
        }
        value => writeln!(out, "{blank}{name}: {value}").ok(),
    }
}
