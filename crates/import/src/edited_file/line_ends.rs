//! Line ends: a command edits lines that end in `\n`, independent of the file's line ends.

use super::line_diff::{LineChange, compare_lines};

/// Returns an edited text with the original line ends of its lines; new lines get the first line
/// end of the file.
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
    for change in compare_lines(&before, &after) {
        match change {
            LineChange::Removed(_) => {}
            LineChange::Kept { before, .. } => restored.extend(lines.get(before).copied()),
            LineChange::Added(at) => {
                let line = after.get(at).copied().unwrap_or_default();
                match line.strip_suffix('\n').filter(|_| windows) {
                    Some(line) => restored.extend([line, "\r\n"]),
                    None => restored.push_str(line),
                }
            }
        }
    }
    restored
}
