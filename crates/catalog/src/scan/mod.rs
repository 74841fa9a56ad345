//! Finds texts in a definition that may deceive a user or steer a model.
//!
//! The scan is pure, and linear in the definition, which is bounded. Each broken rule adds its
//! weight. The sum is reported from [`REPORTED_WEIGHT`] on, and is grave from [`HELD_WEIGHT`] on.
//! Rules that legitimate definitions break, too, count only together, and rules about words only
//! within one passage: the documentation of a large API has most of these words somewhere.

mod forms;
mod orders;
mod rule;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::HashMap;
use std::fmt;

use trunkline_core::text::clip;
use trunkline_jsonrpc::parse_strict;

use crate::kind::MAX_ITEM_DEPTH;

pub use forms::confusables::ConfusableNames;
pub use rule::ScanRule;

use forms::folding::fold_text;
use orders::instructions::FoundOrders;
use texts::DefinitionTexts;

/// The findings of a scan in one definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanFindings {
    rules: Vec<ScanRule>,
    /// The weight of the passage that breaks most rules about words.
    passage: u32,
}

impl ScanFindings {
    /// Scans an element of a server's list: every text in it, keys included.
    pub fn scan(name: &str, raw: &[u8]) -> Self {
        let value = parse_strict(raw, MAX_ITEM_DEPTH).ok();
        let unread;
        let texts = if let Some(value) = &value {
            DefinitionTexts::from_value(value)
        } else {
            unread = String::from_utf8_lossy(raw);
            DefinitionTexts::from_text(&unread)
        };
        let mut found = Self::default();
        if forms::confusables::mixes_alphabets(name) {
            found.add(ScanRule::MixedAlphabets);
        }
        let mut orders = found.search_each(&texts.all);
        forms::disguises::find_disguised(&texts, &mut orders, &mut found);
        found.passage = orders.heaviest_passage();
        orders.rules().for_each(|rule| found.add(rule));
        found
    }

    /// Searches texts one by one. A repeated text is searched once, and counts at each of its
    /// positions.
    fn search_each(&mut self, texts: &[&str]) -> FoundOrders {
        let mut searched: HashMap<&str, FoundOrders> = HashMap::new();
        let mut orders = FoundOrders::default();
        let (mut place, mut read) = (0, 0);
        for text in texts {
            let known = searched.entry(text).or_insert_with(|| {
                forms::characters::find_hidden(text, self);
                let clipped = clip(text, MAX_SEARCHED_BYTES - read);
                read += clipped.len();
                if clipped.len() < text.len() {
                    self.add(ScanRule::TooLong);
                }
                FoundOrders::search(&fold_text(clipped))
            });
            orders.add(known, place);
            place += text.len();
        }
        orders
    }

    /// Returns true if a rule is broken.
    fn has(&self, rule: ScanRule) -> bool {
        self.rules.contains(&rule)
    }

    /// Adds a broken rule; each counts once.
    pub fn add(&mut self, rule: ScanRule) {
        if !self.has(rule) {
            self.rules.push(rule);
        }
    }

    /// The broken rules, if they count together.
    pub fn rules(&self) -> &[ScanRule] {
        if self.weight() >= REPORTED_WEIGHT { &self.rules } else { &[] }
    }

    /// Returns true if the definition has to be held. Length alone is no reason: resources of
    /// Kubernetes take a megabyte.
    pub fn is_grave(&self) -> bool {
        let length = if self.has(ScanRule::TooLong) { ScanRule::TooLong.weight() } else { 0 };
        self.weight() - length >= HELD_WEIGHT
    }

    fn weight(&self) -> u32 {
        let others = self.rules.iter().filter(|rule| !rule.is_about_words());
        others.map(|rule| rule.weight()).sum::<u32>() + self.passage
    }
}

impl fmt::Display for ScanFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.rules().iter().map(|rule| rule.name()).collect();
        f.write_str(&names.join(", "))
    }
}

/// The most bytes of a definition's texts that are searched for orders. Hidden characters are found
/// in all of them.
const MAX_SEARCHED_BYTES: usize = 256 * 1024;
/// The weight from which findings are reported.
const REPORTED_WEIGHT: u32 = 2;
/// The weight from which a definition is held.
const HELD_WEIGHT: u32 = 4;
