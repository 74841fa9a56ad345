//! Removes an entry of a TOML file by its lines, so that all other lines stay unchanged.

use std::ops::Range;

use toml_edit::{Document, Item, Table};

/// Returns the text without the lines of an entry; `None` if this would not remove exactly the
/// entry. `table` are the keys that lead to the entry's table.
pub fn remove_entry_text(text: &str, table: &[&str], name: &str) -> Option<String> {
    let document = Document::parse(text).ok()?;
    let mut entries = document.as_table();
    for key in table {
        entries = entries.get(key)?.as_table()?;
    }
    let (key, item) = entries.get_key_value(name)?;
    let mut ranges = Vec::new();
    collect_ranges(key.span(), item, &mut ranges);
    let edited = remove_lines(text, &ranges);
    let mut intended: toml::Table = text.parse().ok()?;
    let mut found: toml::Table = edited.parse().ok()?;
    let mut entries = &mut intended;
    for key in table {
        entries = entries.get_mut(*key)?.as_table_mut()?;
    }
    entries.remove(name);
    remove_empty_table(&mut intended, table);
    remove_empty_table(&mut found, table);
    (intended == found).then_some(edited)
}

/// Removes a table if it is empty, and then its empty parents: a table that exists only through its
/// entries is removed with the last of them.
fn remove_empty_table(root: &mut toml::Table, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    let Some(inner) = root.get_mut(*first).and_then(toml::Value::as_table_mut) else { return };
    remove_empty_table(inner, rest);
    if inner.is_empty() {
        root.remove(*first);
    }
}

/// Collects the ranges of an entry: its headers, and its settings.
fn collect_ranges(key: Option<Range<usize>>, item: &Item, ranges: &mut Vec<Range<usize>>) {
    let start = key.map(|key| key.start);
    match item {
        Item::None => {}
        Item::Value(value) => {
            ranges.extend(value.span().map(|span| start.unwrap_or(span.start)..span.end));
        }
        Item::Table(table) => collect_table_ranges(table, ranges),
        Item::ArrayOfTables(tables) => {
            tables.iter().for_each(|table| collect_table_ranges(table, ranges));
        }
    }
}

fn collect_table_ranges(table: &Table, ranges: &mut Vec<Range<usize>>) {
    ranges.extend(table.span());
    for (name, _) in table {
        if let Some((key, item)) = table.get_key_value(name) {
            collect_ranges(key.span(), item, ranges);
        }
    }
}

/// Returns the text without the lines of some ranges, the comments directly above them, and the
/// blank lines that would remain.
fn remove_lines(text: &str, ranges: &[Range<usize>]) -> String {
    let mut start = 0;
    let lines = text.split_inclusive('\n').map(|line| {
        let span = start..start + line.len();
        start = span.end;
        let is_removed =
            ranges.iter().any(|range| range.start < span.end && span.start < range.end);
        (line, is_removed)
    });
    let mut lines: Vec<_> = lines.collect();
    let mut is_above = false;
    for (line, is_removed) in lines.iter_mut().rev() {
        *is_removed |= is_above && line.trim_start().starts_with('#');
        is_above = *is_removed;
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut is_gap = false;
    for (line, is_removed) in lines {
        let is_spare = line.trim().is_empty()
            && is_gap
            && kept.last().is_none_or(|last| last.trim().is_empty());
        if is_removed || is_spare {
            is_gap = true;
        } else {
            kept.push(line);
            is_gap = false;
        }
    }
    while is_gap && kept.last().is_some_and(|line| line.trim().is_empty()) {
        kept.pop();
    }
    kept.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_entry_takes_only_the_comments_directly_above_it() {
        for (before, after) in [
            (
                "# the file\n\n# a's\n[servers.a]\ncommand = \"a\" # a's\n\n# a's\n[servers.a.tools.t]\nname = \"u\"\n\n# log\n[log]\n",
                "# the file\n\n# log\n[log]\n",
            ),
            (
                "[servers.b]\ncommand = \"b\"\n\n#[servers.off]\n#command = \"o\"\n\n[servers.a]\ncommand = \"a\"\n# kept\n\n#[servers.later]\n",
                "[servers.b]\ncommand = \"b\"\n\n#[servers.off]\n#command = \"o\"\n\n# kept\n\n#[servers.later]\n",
            ),
            (
                "[servers]\n# b's\nb = { command = \"b\" }\na = { command = \"a\" }\n",
                "[servers]\n# b's\nb = { command = \"b\" }\n",
            ),
            (
                "servers.a.command = \"a\"\nservers.b.command = \"b\"\n",
                "servers.b.command = \"b\"\n",
            ),
            (
                "[servers.a]\ncommand = \"a\"\n\n[log]\n\n[servers.a.env]\nA = \"\"\"\n# text\n\"\"\"\n",
                "[log]\n",
            ),
        ] {
            assert_eq!(remove_entry_text(before, &["servers"], "a").unwrap(), after);
        }
    }
}
