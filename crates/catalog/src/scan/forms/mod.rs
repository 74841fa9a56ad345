//! Forms that hide a text: encodings, ciphers, lookalike and invisible characters.

pub(crate) mod characters;
pub(crate) mod ciphers;
pub(crate) mod confusables;
pub(crate) mod decoding;
pub(crate) mod disguises;
pub(crate) mod folding;
