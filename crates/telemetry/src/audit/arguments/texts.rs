//! Texts in arguments: filler is folded, invisible characters are named, and long texts are cut in
//! the middle.

use std::fmt::Write as _;

use trunkline_core::text::is_invisible;

use super::describe_bytes;

/// Renders the text in about `most` bytes.
pub(super) fn show_text(text: &str, most: usize) -> String {
    let whole = (text.len() <= MAX_FOLDED_BYTES).then(|| FoldedText::fold_text(text));
    if let Some(whole) = &whole
        && whole.text.len() <= most
    {
        return whole.text.clone();
    }
    let mark = format!("⟨… {}⟩", describe_bytes(text.as_bytes()));
    let room = most.saturating_sub(mark.len()).max(MIN_SHOWN_BYTES);
    if let Some(whole) = whole {
        return whole.copy_start(room / 2) + &mark + &whole.copy_end(room / 2);
    }
    let head = text.get(..text.floor_char_boundary(MAX_FOLDED_BYTES / 2)).unwrap_or_default();
    let tail = text.len().saturating_sub(MAX_FOLDED_BYTES / 2);
    let tail = text.get(text.ceil_char_boundary(tail)..).unwrap_or_default();
    let (head, tail) = (FoldedText::fold_text(head), FoldedText::fold_text(tail));
    head.copy_start(room / 2) + &mark + &tail.copy_end(room / 2)
}

/// Returns the length of the full text, or a greater length if it cannot be shown in full.
pub(super) fn shown_len(text: &str) -> usize {
    if text.len() <= MAX_FOLDED_BYTES { FoldedText::fold_text(text).text.len() } else { text.len() }
}

/// A text with folded filler.
struct FoldedText {
    text: String,
    /// Byte offsets at which the text may be cut.
    cuts: Vec<usize>,
}

impl FoldedText {
    fn fold_text(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut folded = Self { text: String::with_capacity(text.len()), cuts: vec![0] };
        let mut rest = &chars[..];
        while let Some(first) = rest.first() {
            let blanks = rest.iter().take_while(|c| leaves_no_mark(**c)).count();
            let taken = if blanks >= MIN_FILLER_BLANKS {
                let _ = write!(folded.text, "⟨{blanks} blanks⟩");
                blanks
            } else if let Some((unit, times)) = find_repetition(rest) {
                let _ = write!(folded.text, "⟨{times} × ");
                for c in unit {
                    folded.push_visible(*c);
                }
                folded.text.push('⟩');
                unit.len() * times
            } else {
                folded.push_visible(*first);
                1
            };
            folded.cuts.push(folded.text.len());
            rest = rest.get(taken..).unwrap_or_default();
        }
        folded
    }

    fn push_visible(&mut self, c: char) {
        let is_plain_space = matches!(c, ' ' | '\n' | '\r' | '\t');
        if !is_plain_space && (is_invisible(c) || c.is_control() || breaks_marks(c)) {
            let _ = write!(self.text, "⟨U+{:04X}⟩", u32::from(c));
        } else {
            self.text.push(c);
        }
    }

    fn copy_start(&self, most: usize) -> String {
        let cut = self.cuts.iter().rev().find(|cut| **cut <= most).copied().unwrap_or(0);
        self.text.get(..cut).unwrap_or_default().to_owned()
    }

    fn copy_end(&self, most: usize) -> String {
        let first = self.text.len().saturating_sub(most);
        let cut = self.cuts.iter().find(|cut| **cut >= first).copied();
        self.text.get(cut.unwrap_or(self.text.len())..).unwrap_or_default().to_owned()
    }
}

/// Returns the characters that a text repeats at its beginning, and the number of repetitions.
fn find_repetition(chars: &[char]) -> Option<(&[char], usize)> {
    (1..=MAX_REPEATED_UNIT_CHARS).find_map(|len| {
        let unit = chars.get(..len)?;
        if chars.get(len) != chars.first() {
            return None;
        }
        let times = chars.chunks_exact(len).take_while(|chunk| *chunk == unit).count();
        (times >= MIN_FILLER_REPEATS && times * len >= MIN_FILLER_CHARS).then_some((unit, times))
    })
}

/// Returns true for a character that is not visible by itself, or can be piled up on another.
fn leaves_no_mark(c: char) -> bool {
    c.is_whitespace()
        || is_invisible(c)
        || c.is_control()
        || matches!(c, '\u{2800}' | '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}'
            | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// Returns true for the brackets of marks, for separators that break a line, and for a blank symbol.
fn breaks_marks(c: char) -> bool {
    matches!(c, '⟨' | '⟩' | '\u{2028}' | '\u{2029}' | '\u{2800}')
}

/// Texts up to this length are folded in full; of longer ones only the beginning and the end.
const MAX_FOLDED_BYTES: usize = 64 << 10;
/// Minimum bytes that are shown of a cut text.
const MIN_SHOWN_BYTES: usize = 48;
/// This many blanks in a row are filler.
const MIN_FILLER_BLANKS: usize = 8;
/// Maximum characters of a repeated unit.
const MAX_REPEATED_UNIT_CHARS: usize = 32;
/// Minimum repetitions, and minimum characters, with which a repeated text is filler.
const MIN_FILLER_REPEATS: usize = 4;
const MIN_FILLER_CHARS: usize = 32;
