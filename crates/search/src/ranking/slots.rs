//! The subjects of a query as an index sees them: words, with the terms that may match each.

/// One subject of a query: a word, or a phrase.
#[derive(Debug, Default)]
pub(crate) struct Concept {
    /// Its words; a document's scores for them are added.
    pub(crate) slots: Vec<Slot>,
    /// Variants of the whole phrase.
    pub(crate) alternatives: Vec<Variant>,
    /// Its share of the query's information.
    pub(crate) weight: f32,
}

/// A word and its variants. The best variant of a document counts.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) variants: Vec<Variant>,
    /// The information of the word, in nats: the rarer, the more.
    pub(crate) information: f32,
    /// True if no variant may have more information than that.
    pub(crate) is_bounded: bool,
}

/// Terms that a document has to have, all of them.
#[derive(Debug)]
pub(crate) struct Variant {
    /// Positions in the vocabulary.
    pub(crate) terms: Vec<usize>,
    /// The value of a match, at most 1.
    pub(crate) discount: f32,
}

impl Variant {
    /// The part of the word that a document with these terms has for certain. A distant variant is
    /// little evidence for the document.
    pub(crate) fn certainty(&self) -> f32 {
        self.discount * self.discount
    }
}
