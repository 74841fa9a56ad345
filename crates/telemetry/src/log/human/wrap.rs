//! Wraps lines at the width of a terminal. The thread that writes them does it, not the callers.

use std::io::stderr;

/// Returns the width of the terminal on standard error, if it is one.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Appends lines, wrapped at spaces. Continuations are indented below the sentence. A word that is
/// longer than the rest of the width stays whole, so that a URL can be copied.
pub(crate) fn push_wrapped(out: &mut Vec<u8>, lines: &[u8], width: usize) {
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        push_wrapped_line(out, line, width);
    }
}

fn push_wrapped_line(out: &mut Vec<u8>, line: &[u8], width: usize) {
    if width < MIN_WRAPPED_WIDTH {
        out.extend_from_slice(line);
        return;
    }
    let mut column = 0;
    for (index, word) in line.split(|byte| *byte == b' ').enumerate() {
        let length = count_columns(word);
        let is_first = index == 0;
        if !is_first && column > HANGING_INDENT && column + 1 + length > width {
            out.push(b'\n');
            out.extend_from_slice(&[b' '; HANGING_INDENT]);
            column = HANGING_INDENT;
        } else if !is_first {
            out.push(b' ');
            column += 1;
        }
        out.extend_from_slice(word);
        column += length;
    }
}

/// Returns the number of characters that a terminal shows, without control sequences (`ESC [ … m`).
fn count_columns(word: &[u8]) -> usize {
    let (mut columns, mut is_sequence) = (0, false);
    for byte in word {
        match byte {
            0x1b => is_sequence = true,
            b'm' if is_sequence => is_sequence = false,
            _ if is_sequence => {}
            // Continuations of UTF-8, and the end of the line.
            0x80..=0xbf | b'\n' => {}
            _ => columns += 1,
        }
    }
    columns
}

/// Columns before the sentence: `14:02:11  WARN `.
const HANGING_INDENT: usize = 15;
/// Narrower terminals wrap lines themselves.
const MIN_WRAPPED_WIDTH: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(line: &str, width: usize) -> String {
        let mut out = Vec::new();
        push_wrapped(&mut out, line.as_bytes(), width);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_long_line_is_wrapped_at_spaces_below_its_sentence() {
        let line = "14:02:11  WARN server=files the connection to the server has failed again\n";
        let expected = "14:02:11  WARN server=files the\n               \
                        connection to the server\n               has failed again\n";
        assert_eq!(wrapped(line, 40), expected);
        assert_eq!(wrapped(line, 80), line);
        assert_eq!(wrapped(line, 39), line, "too narrow");
        for width in 40..80 {
            for line in wrapped(line, width).lines() {
                assert!(line.len() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn colours_and_letters_of_several_bytes_take_no_extra_width() {
        let line =
            format!("\u{1b}[2m14:02:11\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m {}\n", "ü".repeat(25));
        assert_eq!(wrapped(&line, 40), line);
    }

    #[test]
    fn a_long_word_stays_whole() {
        let line = format!("14:02:11  WARN {} next\n", "x".repeat(100));
        let expected = format!("14:02:11  WARN {}\n               next\n", "x".repeat(100));
        assert_eq!(wrapped(&line, 80), expected);
    }

    #[test]
    fn each_line_of_several_is_wrapped_by_itself() {
        assert_eq!(wrapped("2026-07-28\n14:02:11  INFO a\n", 80), "2026-07-28\n14:02:11  INFO a\n");
    }
}
