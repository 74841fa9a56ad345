//! Comparison of the names that patterns match.

use crate::config::Pattern;

/// Returns true if each name that a pattern of `narrow` matches is provably matched by one of
/// `wide`. `None` matches everything.
pub(super) fn covers_patterns(wide: Option<&[Pattern]>, narrow: Option<&[Pattern]>) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        // Even `*` covers less than no condition: a client may be in no group, a tool of no server.
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => {
            narrow.iter().all(|narrow| wide.iter().any(|wide| covers_pattern(wide, narrow)))
        }
    }
}

/// The wildcards of `narrow` are compared as characters. A star of `wide` covers them with all
/// their matches; a question mark would cover a star, which can match many characters.
fn covers_pattern(wide: &Pattern, narrow: &Pattern) -> bool {
    let is_comparable = !wide.as_str().contains('?') || !narrow.as_str().contains('*');
    wide == narrow || (is_comparable && wide.matches(narrow.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_another_only_if_it_matches_all_that_the_other_matches() {
        let covers = |wide: &str, narrow: &str| {
            covers_pattern(&Pattern::new(wide).unwrap(), &Pattern::new(narrow).unwrap())
        };
        for (wide, narrow) in [
            ("*", "a*"),
            ("*", "?"),
            ("a*", "ab*"),
            ("a*", "a?c"),
            ("a?", "ab"),
            ("a?", "a?"),
            ("a?*", "a?*"),
            ("*b*", "ab*"),
        ] {
            assert!(covers(wide, narrow), "{wide} covers {narrow}");
        }
        for (wide, narrow) in [
            ("a*", "*"),
            ("a?", "a*"),
            ("ab", "a?"),
            ("ab", "a*"),
            ("a?c*", "a*c"),
            ("git__*", "git__"),
            ("a*b", "a*"),
        ] {
            let is_covered = covers(wide, narrow);
            // `git__*` matches `git__`, too.
            assert_eq!(is_covered, wide == "git__*", "{wide} and {narrow}");
        }
    }
}
