//! Orders that are disguised in the text: in lookalike letters, escapes or encodings, or divided
//! between fields.
//!
//! Each reading of a text is read again, because disguises can be nested. The work is bounded:
//! [`MAX_DEPTH`] readings on top of each other, and [`MAX_READ_BYTES`] of them in all.

use std::collections::{HashSet, VecDeque};

use trunkline_core::text::clip;

use super::ciphers::{join_spaced, read_ciphers, read_digits, turn_upside_down};
use super::decoding::{decode_escapes, decode_words, is_sentence, strip_markup};
use super::folding::{fold_lookalikes, fold_text};
use crate::scan::orders::instructions::FoundOrders;
use crate::scan::texts::{DefinitionTexts, join_windows};
use crate::scan::{HELD_WEIGHT, MAX_SEARCHED_BYTES, REPORTED_WEIGHT, ScanFindings, ScanRule};

/// Finds disguised orders in the texts of a definition, and adds them to those in plain sight.
pub(crate) fn find_disguised(
    texts: &DefinitionTexts,
    orders: &mut FoundOrders,
    found: &mut ScanFindings,
) {
    let known: Vec<_> = orders.rules().collect();
    let (squeezed, seen) = (Vec::new(), HashSet::new());
    let mut search = DisguiseSearch { known, squeezed, orders, found, seen, read: 0 };
    for text in [Some(&texts.values), texts.titles_first.as_ref()].into_iter().flatten() {
        search.search_joined(clip(text, MAX_SEARCHED_BYTES));
    }
    search.search_keys(clip(&texts.keys, MAX_SEARCHED_BYTES));
    search.read_all([&texts.values, &texts.keys]);
}

/// A text in another form.
struct TextReading {
    /// The lines that differ from the source text, and their neighbours. The others have been
    /// searched and read.
    text: String,
    form: ReadingForm,
}

impl TextReading {
    fn new(form: ReadingForm, text: String, source: &str) -> Self {
        Self { text: find_changed_lines(text, source), form }
    }
}

/// The form in which a text was disguised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadingForm {
    /// Markup, which legitimate documents have, too.
    Markup,
    /// The words are visible, but a search does not find them.
    Disguised,
    /// Digits instead of letters, as in identifiers.
    Digits,
    /// Spaced letters.
    Apart,
    /// The text is unreadable.
    Encoded,
}

struct DisguiseSearch<'a> {
    /// The rules that are broken in plain text.
    known: Vec<ScanRule>,
    /// The rules that are broken by the letters alone.
    squeezed: Vec<ScanRule>,
    orders: &'a mut FoundOrders,
    found: &'a mut ScanFindings,
    /// The readings so far.
    seen: HashSet<String>,
    /// The bytes of all readings so far.
    read: usize,
}

impl DisguiseSearch<'_> {
    /// Searches joined values for orders that two of them form together.
    fn search_joined(&mut self, text: &str) {
        let folded = fold_text(text);
        let split = FoundOrders::search(&folded).without(&self.known);
        self.known.extend(split.rules());
        self.orders.add(&split, 0);
        self.add_squeezed(&folded);
    }

    fn add_squeezed(&mut self, folded: &str) {
        let squeezed = FoundOrders::search_squeezed(folded).without(&self.known);
        self.squeezed.extend(squeezed.rules());
        self.orders.add(&squeezed, 0);
    }

    /// Searches names of parameters, which have no spaces between words.
    fn search_keys(&mut self, keys: &str) {
        self.add_squeezed(&fold_text(keys));
    }

    /// Searches every reading of these texts.
    fn read_all(&mut self, texts: [&String; 2]) {
        let texts = texts.into_iter().map(|text| (clip(text, MAX_SEARCHED_BYTES).to_owned(), 0));
        let mut waiting: VecDeque<_> = texts.collect();
        while let Some((text, depth)) = waiting.pop_front() {
            for reading in read_forms(&text) {
                if self.seen.contains(&reading.text) {
                    continue;
                }
                self.read += reading.text.len().max(MIN_READ_BYTES);
                if self.read > MAX_READ_BYTES {
                    self.found.add(ScanRule::TooLong);
                    return;
                }
                self.search_reading(&reading);
                self.seen.insert(reading.text.clone());
                if depth + 1 < MAX_DEPTH {
                    waiting.push_back((reading.text, depth + 1));
                }
            }
        }
    }

    fn search_reading(&mut self, reading: &TextReading) {
        let folded = fold_text(&reading.text);
        let mut orders = FoundOrders::search(&folded);
        orders.add(&FoundOrders::search_squeezed(&folded), 0);
        if reading.form == ReadingForm::Encoded {
            if orders.heaviest_passage() >= REPORTED_WEIGHT {
                self.found.add(ScanRule::EncodedOrders);
            } else if is_sentence(&reading.text) {
                self.found.add(ScanRule::EncodedText);
            }
            return;
        }
        let mut orders = orders.without(&self.known);
        if reading.form != ReadingForm::Apart {
            orders = orders.without(&self.squeezed);
        }
        if reading.form == ReadingForm::Digits {
            // `CC0` reads as an abbreviation of hidden copies, and versions read as hosts.
            orders = orders.without(&[ScanRule::Redirection]);
        }
        // Legitimate documents of markup and of shells have these, with escapes.
        let is_telling = |rule| !matches!(rule, ScanRule::PromptMarkup | ScanRule::ShellCommand);
        let disguised =
            orders.rules().any(|rule| rule.weight() >= REPORTED_WEIGHT && is_telling(rule));
        if reading.form != ReadingForm::Markup && disguised {
            self.found.add(ScanRule::DisguisedOrders);
        }
        // Identifiers and names of places, read in another way, break a rule by chance: it is
        // reported, and does not add to the weight of other words.
        let is_certain = orders.rules().any(|rule| rule.weight() >= HELD_WEIGHT);
        if reading.form == ReadingForm::Markup || is_certain {
            self.orders.add(&orders, 0);
        }
        if reading.form == ReadingForm::Markup {
            // Other readings of the same words are no disguise.
            self.known.extend(orders.rules());
        }
    }
}

/// Returns the possible forms of a text before it was disguised.
fn read_forms(text: &str) -> Vec<TextReading> {
    let folded = fold_text(text);
    let mut readings = Vec::new();
    let mut add = |form: ReadingForm, source: &str, texts: Vec<String>| {
        readings.extend(texts.into_iter().map(|text| TextReading::new(form, text, source)));
    };
    add(ReadingForm::Markup, text, strip_markup(text).into_iter().collect());
    add(ReadingForm::Disguised, text, decode_escapes(text).into_iter().collect());
    add(ReadingForm::Disguised, &folded, fold_lookalikes(text).into_iter().collect());
    add(ReadingForm::Apart, &folded, join_spaced(&folded).into_iter().collect());
    add(ReadingForm::Digits, &folded, read_digits(&folded));
    add(ReadingForm::Encoded, text, turn_upside_down(text).into_iter().collect());
    add(ReadingForm::Encoded, &folded, read_ciphers(&folded));
    add(ReadingForm::Encoded, text, decode_words(text));
    readings
}

/// Returns the lines of a reading that differ from those of its source, with the neighbours that
/// may complete an order; the whole reading if its lines are others.
fn find_changed_lines(reading: String, source: &str) -> String {
    let lines: Vec<_> = reading.split('\n').collect();
    let before: Vec<_> = source.split('\n').collect();
    if lines.len() != before.len() {
        return reading;
    }
    let differs = |start, window: &[&str]| {
        before.get(start..).is_some_and(|before| !before.starts_with(window))
    };
    join_windows(&lines, differs)
}

/// The most readings on top of each other.
const MAX_DEPTH: usize = 3;
/// The most bytes of all readings of one definition.
const MAX_READ_BYTES: usize = 512 * 1024;
/// The bytes that a short reading counts as, so that many of them are bounded, too.
const MIN_READ_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::texts::MAX_SPLIT;

    #[test]
    fn changed_lines_are_searched_with_their_neighbours() {
        let lines: Vec<_> = (0..20).map(|number| format!("line {number}")).collect();
        let source = lines.join("\n");
        let changed = find_changed_lines(source.replace("line 10", "other"), &source);
        let near: Vec<_> = changed.lines().collect();
        assert_eq!((near.len(), near[3]), (2 * MAX_SPLIT - 1, "other"), "{near:?}");
        assert_eq!((near[0], near[6]), ("line 7", "line 13"));
        assert_eq!(find_changed_lines(source.clone(), &source), "");
        let shorter = source.replace("9\n", "9 ");
        assert_eq!(find_changed_lines(shorter.clone(), &source), shorter);
    }
}
