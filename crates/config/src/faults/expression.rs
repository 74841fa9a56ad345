//! The faults of a regular expression, and their positions.

use std::ops::Range;

use regex_syntax::{Error, Parser, ast, hir};

/// A fault of a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionFault {
    /// It cannot be parsed.
    #[error("{0}")]
    Syntax(ast::ErrorKind),
    /// It has a part that the engine does not support.
    #[error("{0}")]
    Meaning(hir::ErrorKind),
    /// It is too long, or takes too much memory.
    #[error("larger than expressions may be")]
    TooLarge,
}

/// Returns the fault of an expression, with its bytes in the text. Returns `None` if it can be
/// parsed.
pub(crate) fn find_expression_fault(text: &str) -> Option<(ExpressionFault, Range<usize>)> {
    let (fault, span) = match Parser::new().parse(text).err()? {
        Error::Parse(error) => (ExpressionFault::Syntax(error.kind().clone()), *error.span()),
        Error::Translate(error) => (ExpressionFault::Meaning(error.kind().clone()), *error.span()),
        _ => return None,
    };
    // The end of the text is shown by its last character.
    let start = span.start.offset.min(text.floor_char_boundary(text.len().saturating_sub(1)));
    let end = span.end.offset.max(text.ceil_char_boundary(start + 1)).min(text.len());
    Some((fault, start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_its_place() {
        for (text, expected, part) in [
            ("a(b", "unclosed group", "("),
            ("iban)", "unopened group", ")"),
            ("ab[c", "unclosed character class", "["),
            ("a{2,1}", "invalid repetition count range, the start must be <= the end", "{2,1}"),
            ("*", "repetition operator missing expression", "*"),
            ("é(?P<n", "unclosed capture group name", "n"),
            (r"\p{Nope}", "Unicode property not found", r"\p{Nope}"),
        ] {
            let (fault, at) = find_expression_fault(text).unwrap();
            assert_eq!((fault.to_string().as_str(), &text[at]), (expected, part), "{text}");
        }
        assert_eq!(find_expression_fault("^iban$"), None);
    }
}
