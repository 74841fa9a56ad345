//! Orders for a model, in the words of several languages.

pub(crate) mod english;
pub(crate) mod instructions;
pub(crate) mod languages;
pub(crate) mod latin_words;
pub(crate) mod script_words;
