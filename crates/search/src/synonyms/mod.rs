//! Relations between words: synonyms, associations, and translations to English.

pub(crate) mod associations;
pub(crate) mod languages;
pub(crate) mod thesaurus;
