//! Characters that are invisible, or that change the visible text.

use trunkline_core::text::is_invisible;

use crate::scan::{ScanFindings, ScanRule};

/// Finds hidden characters. Emoji and the scripts that need joiners have legitimate uses of some.
pub(crate) fn find_hidden(text: &str, found: &mut ScanFindings) {
    if text.is_ascii() {
        return find_escapes(text, found);
    }
    let has_right_to_left = text.chars().any(is_right_to_left);
    let (mut before, mut run, mut in_flag) = ('\0', 0_usize, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == BLACK_FLAG {
            in_flag = true;
        } else if !is_tag(c) {
            in_flag = false;
        }
        if is_tag(c) && !in_flag {
            found.add(ScanRule::TagCharacters);
        }
        if is_bidi_control(c) && !has_right_to_left || matches!(c, '\u{202d}' | '\u{202e}') {
            found.add(ScanRule::BidiControls);
        }
        run = if is_invisible(c) && !(is_tag(c) && in_flag) { run + 1 } else { 0 };
        let behind = chars.peek().copied().unwrap_or_default();
        let splits_word = is_invisible(c)
            && before.is_ascii_alphabetic()
            && behind.is_ascii_alphabetic()
            && c != SOFT_HYPHEN;
        if run >= MIN_HIDDEN_RUN || splits_word {
            found.add(ScanRule::InvisibleCharacters);
        }
        before = c;
    }
    find_escapes(text, found);
}

fn find_escapes(text: &str, found: &mut ScanFindings) {
    if text.contains(['\u{1b}', '\u{9b}', '\u{8}']) {
        found.add(ScanRule::TerminalEscapes);
    }
}

/// The tags block, which repeats ASCII.
fn is_tag(c: char) -> bool {
    matches!(c, '\u{e0000}'..='\u{e007f}')
}

fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Letters of Hebrew, Arabic and their neighbours.
fn is_right_to_left(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}')
}

/// The black flag, which begins the emoji of a region's flag: tags follow it.
const BLACK_FLAG: char = '\u{1f3f4}';
/// Marks where a long word may be divided.
const SOFT_HYPHEN: char = '\u{ad}';
/// So many invisible characters in a row are a message.
const MIN_HIDDEN_RUN: usize = 4;
