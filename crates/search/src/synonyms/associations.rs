//! Words that make a domain's term likely: a query about money that was charged twice needs a tool
//! for refunds, whatever a dictionary has for these words.
//!
//! Language models wrote the lists, by domain, without access to the tools or the queries that
//! search is measured with. A single word is little evidence; several that lead to the same tool
//! are much.

use std::collections::hash_map::Entry;
use std::sync::{Arc, LazyLock};

use foldhash::{HashMap, HashMapExt};

use super::thesaurus::read_member;
use crate::words::stems::stem_english;

/// The terms of domains that everyday words lead to.
#[derive(Default)]
pub(crate) struct Associations {
    /// The terms of domains: the stems of each. An element has to have all of them.
    goals: Vec<Box<[Arc<str>]>>,
    /// By the stem of an everyday word: positions in `goals`.
    leads: HashMap<Box<str>, Vec<u16>>,
}

impl Associations {
    /// The built-in lists.
    pub(crate) fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<Associations> =
            LazyLock::new(|| Associations::read(&ASSOCIATION_LISTS));
        &BUILT_IN
    }

    /// Reads lists with lines of the form `term of a domain: everyday words`.
    fn read(lists: &[&'static str]) -> Self {
        let mut read = Self::default();
        let mut stems: HashMap<&str, Box<str>> = HashMap::new();
        let mut places: HashMap<&str, u16> = HashMap::new();
        let lines =
            lists.iter().flat_map(|list| list.lines()).filter(|line| !line.starts_with('#'));
        for (goal, words) in lines.filter_map(|line| line.split_once(": ")) {
            let place = match places.entry(goal) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(unknown) => {
                    let Ok(place) = u16::try_from(read.goals.len()) else { break };
                    read.goals.push(read_member(goal).terms);
                    *unknown.insert(place)
                }
            };
            for word in words.split(' ') {
                let stem = stems.entry(word).or_insert_with(|| stem_english(word).into());
                let lead = read.leads.entry(stem.clone()).or_default();
                if !lead.contains(&place) {
                    lead.push(place);
                }
            }
        }
        read
    }

    /// The terms of domains that a stem makes likely, each as stems that belong together.
    pub(crate) fn find(&self, stem: &str) -> impl Iterator<Item = &[Arc<str>]> {
        let goals = self.leads.get(stem).map_or(&[][..], Vec::as_slice).iter();
        goals.filter_map(|place| self.goals.get(usize::from(*place)).map(|goal| &**goal))
    }

    /// Returns true if a stem leads to a term.
    pub(crate) fn knows(&self, stem: &str) -> bool {
        self.leads.contains_key(stem)
    }
}

const ASSOCIATION_LISTS: [&str; 12] = [
    include_str!("associations/home.txt"),
    include_str!("associations/leisure.txt"),
    include_str!("associations/money.txt"),
    include_str!("associations/commerce.txt"),
    include_str!("associations/documents.txt"),
    include_str!("associations/office.txt"),
    include_str!("associations/repositories.txt"),
    include_str!("associations/development.txt"),
    include_str!("associations/clouds.txt"),
    include_str!("associations/operations.txt"),
    include_str!("associations/media.txt"),
    include_str!("associations/utilities.txt"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyday_words_lead_to_words_of_trades() {
        let lists = "# Money\nrefund: money returned twice\nbank account: money\nrefund: returns";
        let associations = Associations::read(&[lists]);
        let goals = |word: &str| -> Vec<String> {
            associations.find(&stem_english(word)).map(|goal| goal.join(" ")).collect()
        };
        assert_eq!(goals("money"), ["refund", "bank account"]);
        assert_eq!(goals("returned"), ["refund"], "once, however often it is said");
        assert!(goals("refund").is_empty(), "one way only");
        assert!(associations.knows("twice") && !associations.knows("refund"));
    }

    #[test]
    fn every_line_of_the_built_in_lists_is_read() {
        let lines = ASSOCIATION_LISTS.iter().flat_map(|list| list.lines());
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (goal, words) = line.split_once(": ").unwrap();
            assert!(!read_member(goal).terms.is_empty(), "{line}");
            let is_word = |word: &str| {
                word.chars().all(|letter| letter.is_lowercase() || letter.is_ascii_digit())
            };
            assert!(words.split(' ').all(|word| !word.is_empty() && is_word(word)), "{line}");
        }
        let built_in = Associations::built_in();
        assert!(built_in.goals.len() > 2000 && built_in.leads.len() > 4000);
    }
}
