//! The secrets of one server, to be kept out of logs and status pages: servers repeat what they
//! were given, in error messages and on standard error.

use std::borrow::Cow;

use super::reader::{ConfigReader, ConfigTable};
use super::secret::Secret;
use super::setting::SectionPart;

/// What a server was given that others must not read: the values of its `env` and `headers`, and
/// everything that was substituted in its table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSecrets(Vec<Secret>);

impl ServerSecrets {
    /// The secrets among these values: their lines, and long words in these lines, because servers
    /// quote parts of them.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut parts: Vec<&str> = values
            .into_iter()
            .flat_map(str::lines)
            .flat_map(|line| {
                let words = line.split_whitespace().filter(|word| word.len() >= SHORTEST_WORD);
                std::iter::once(line.trim()).chain(words)
            })
            .filter(|part| part.len() >= SHORTEST)
            .collect();
        // Longest first, so that no remainder of a longer one is left.
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        parts.dedup();
        Self(parts.into_iter().map(|part| Secret::new(part.to_owned())).collect())
    }

    /// The text with `***` for each secret in it.
    pub fn hide_in<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut shown = Cow::Borrowed(text);
        for secret in self.0.iter().filter(|secret| text.contains(secret.expose())) {
            shown = Cow::Owned(shown.replace(secret.expose(), "***"));
        }
        shown
    }

    /// Like [`Self::hide_in`], for a text that was cut: the beginning of a secret at its end is
    /// hidden as well.
    pub fn hide_in_cut<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let shown = self.hide_in(text);
        let begun = |secret: &Secret| {
            let ends = secret.expose().char_indices().map(|(end, _)| end);
            let mut ends = ends.rev().take_while(|end| *end >= SHORTEST);
            ends.find(|end| secret.expose().get(..*end).is_some_and(|it| shown.ends_with(it)))
        };
        match self.0.iter().filter_map(begun).max() {
            Some(length) => {
                let kept = shown.get(..shown.len() - length).unwrap_or_default();
                Cow::Owned(format!("{kept}***"))
            }
            None => shown,
        }
    }
}

impl SectionPart for ServerSecrets {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let inside = |key: &str| key.strip_prefix(&table.key).is_some_and(|it| it.starts_with('.'));
        let own = reader.secrets.iter().filter(|(key, _)| inside(key));
        Some(Self::new(own.map(|(_, secret)| secret.expose())))
    }
}

/// The fewest bytes of a secret. Shorter values, such as a port or `yes`, are part of any text.
const SHORTEST: usize = 4;
/// The fewest bytes of a word that is a secret by itself; `Bearer` is none.
const SHORTEST_WORD: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_secret_is_hidden_and_short_values_are_not() {
        let secrets =
            ServerSecrets::new(["Bearer abc-1234", "one line\nsecond", "80", "abc-123456"]);
        for (text, shown) in [
            ("nothing here: 80", "nothing here: 80"),
            ("token abc-1234 is wrong", "token *** is wrong"),
            ("Bearer abc-1234", "***"),
            ("Bearer", "Bearer"),
            ("abc-123456 and abc-1234", "*** and ***"),
            ("[second]", "[***]"),
        ] {
            assert_eq!(secrets.hide_in(text), shown);
        }
    }

    #[test]
    fn a_secret_that_was_cut_is_hidden() {
        let secrets = ServerSecrets::new(["hunter2-é-hunter3"]);
        assert_eq!(secrets.hide_in_cut("key=hunter2-"), "key=***");
        assert_eq!(secrets.hide_in_cut("key=hunter2-é"), "key=***");
        assert_eq!(secrets.hide_in_cut("key=hun"), "key=hun");
        assert_eq!(secrets.hide_in_cut("hunter2-é-hunter3, and more"), "***, and more");
    }
}
