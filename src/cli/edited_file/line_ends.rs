//! Line ends: a command edits lines that end in `\n`, whatever the file has.

use similar::{ChangeTag, TextDiff};

/// An edited text with the line ends that its lines had before; new lines get the first one of the
/// file.
pub(super) fn restore_line_ends(original: &str, edited: &str) -> String {
    if !original.contains("\r\n") {
        return edited.to_owned();
    }
    let lines: Vec<&str> = original.split_inclusive('\n').collect();
    let plain = original.replace("\r\n", "\n");
    let before: Vec<&str> = plain.split_inclusive('\n').collect();
    let after: Vec<&str> = edited.split_inclusive('\n').collect();
    let windows = lines.first().is_some_and(|line| line.ends_with("\r\n"));
    let mut restored = String::new();
    for change in TextDiff::from_slices(&before, &after).iter_all_changes() {
        let line = change.value();
        match (change.tag(), change.old_index()) {
            (ChangeTag::Delete, _) => {}
            (ChangeTag::Equal, Some(at)) => restored.push_str(lines.get(at).unwrap_or(&line)),
            _ => match line.strip_suffix('\n').filter(|_| windows) {
                Some(line) => restored.extend([line, "\r\n"]),
                None => restored.push_str(line),
            },
        }
    }
    restored
}
