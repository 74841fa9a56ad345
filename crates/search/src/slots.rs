//! The subjects of a query as an index sees them: words, with the terms that may match each.

/// One subject of a query: a word, or a phrase.
#[derive(Debug, Default)]
pub(super) struct Concept {
    /// Its words; a document's scores for them are added.
    pub(super) slots: Vec<Slot>,
    /// Variants of the whole phrase.
    pub(super) alternatives: Vec<Variant>,
    /// Its share of the query's information.
    pub(super) weight: f32,
}

/// A word and its variants. The best variant of a document counts.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) variants: Vec<Variant>,
    /// The information of the word, in nats: the rarer, the more.
    pub(super) information: f32,
    /// True if no variant may have more information than that.
    pub(super) is_bounded: bool,
}

/// Terms that a document has to have, all of them.
#[derive(Debug)]
pub(super) struct Variant {
    /// Positions in the vocabulary.
    pub(super) terms: Vec<usize>,
    /// The value of a match, at most 1.
    pub(super) discount: f32,
}

impl Variant {
    /// The part of the word that a document with these terms has for certain. A distant variant is
    /// little evidence for the document.
    pub(super) fn certainty(&self) -> f32 {
        self.discount * self.discount
    }
}
