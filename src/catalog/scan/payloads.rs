//! Text that is encoded, so that a reviewer does not read it.

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER_PERMISSIVE};

use super::instructions::FoundOrders;
use super::{REPORTED, ScanFindings, ScanRule};

/// Finds encoded text: words that decode to sentences.
pub(super) fn find_encoded(text: &str, found: &mut ScanFindings) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_' | '=');
    for word in text.split(|c| !is_part(c)).filter(|word| word.len() >= SHORTEST) {
        let word = word.trim_end_matches('=');
        // An assignment, such as `data=…`, is not part of what is encoded.
        let word = word.rsplit('=').next().unwrap_or(word);
        let Some(decoded) = decode(word) else { continue };
        let mut orders = FoundOrders::default();
        orders.search(&decoded, 0);
        let gives_orders = orders.heaviest_passage() >= REPORTED;
        found.add(if gives_orders { ScanRule::EncodedOrders } else { ScanRule::EncodedText });
    }
}

/// The sentence that a word encodes.
fn decode(word: &str) -> Option<String> {
    let bytes = word.as_bytes();
    let readings = [
        HEXLOWER_PERMISSIVE.decode(bytes).ok(),
        BASE64_NOPAD.decode(bytes).ok(),
        BASE64URL_NOPAD.decode(bytes).ok(),
    ];
    let texts = readings.into_iter().flatten().filter_map(|bytes| String::from_utf8(bytes).ok());
    texts.into_iter().find(|text| is_sentence(text))
}

/// Whether a text has words, and nothing that is not printed.
fn is_sentence(text: &str) -> bool {
    let spaces = text.matches(' ').count();
    let has_letters = text.chars().filter(|c| c.is_alphabetic()).count() * 2 > text.len() / 2;
    spaces >= 2 && has_letters && !text.chars().any(|c| c.is_control() && !c.is_whitespace())
}

/// The fewest characters of encoded text.
const SHORTEST: usize = 24;
