//! Estimates of the tokens that texts take up in a model's context.

use tiktoken_rs::{CoreBPE, o200k_base};

/// Counts tokens as one family of models does (`o200k_base`); others differ by some per cent.
///
/// Its vocabulary takes up some 60 MB, so counters are dropped after use.
pub(crate) struct TokenCounter {
    vocabulary: Option<CoreBPE>,
}

impl TokenCounter {
    /// Loads the vocabulary, which takes some tenths of a second.
    pub(crate) fn load() -> Self {
        Self { vocabulary: o200k_base().ok() }
    }

    /// The usual number of tokens of a text of this many bytes.
    pub(crate) fn usual_count(bytes: usize) -> usize {
        bytes.div_ceil(BYTES_PER_TOKEN)
    }

    /// The usual number of bytes of this many tokens.
    pub(crate) fn usual_size(tokens: usize) -> usize {
        tokens.saturating_mul(BYTES_PER_TOKEN)
    }

    /// The number of tokens, by estimate.
    pub(crate) fn count(&self, text: &str) -> usize {
        match &self.vocabulary {
            Some(vocabulary) => vocabulary.encode_ordinary(text).len(),
            None => Self::usual_count(text.len()),
        }
    }
}

/// Average length of a token in a tool's definition, in bytes.
const BYTES_PER_TOKEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_about_a_token_each() {
        let counter = TokenCounter::load();
        assert!(counter.vocabulary.is_some());
        assert_eq!(counter.count(""), 0);
        assert_eq!(counter.count("Find an issue in our tracker."), 7);
    }
}
