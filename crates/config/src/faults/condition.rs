//! The faults of a condition, and their positions.

use std::ops::Range;

use cel::ParseErrors;

use trunkline_core::text::clip;

/// A fault of a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionFault {
    /// It is not CEL.
    #[error("{message}")]
    Syntax {
        /// The parser's message.
        message: String,
    },
    /// The parser panics on it.
    #[error("it cannot be parsed")]
    Unreadable,
    /// An unknown variable.
    #[error("unknown variable `{name}`")]
    UnknownVariable {
        /// The name.
        name: String,
        /// The most similar variable, or all of them.
        help: String,
    },
    /// A member that a variable does not have.
    #[error("`{variable}` has no member `{name}`")]
    UnknownMember {
        /// The variable.
        variable: &'static str,
        /// The name.
        name: String,
        /// The most similar member, or all of them.
        help: String,
    },
    /// An unknown function.
    #[error("unknown function `{name}`")]
    UnknownFunction {
        /// The name.
        name: String,
        /// The most similar function, or all of them.
        help: String,
    },
    /// A function with another number of arguments.
    #[error("`{name}` takes {expected} argument(s)")]
    Arity {
        /// The function.
        name: &'static str,
        /// The expected number.
        expected: usize,
    },
    /// A value of the wrong type.
    #[error("expected {expected}, found {found}")]
    Type {
        /// The expected type.
        expected: &'static str,
        /// The type found.
        found: &'static str,
    },
    /// A comparison of values that are never equal, or have no order.
    #[error("{left} and {right} cannot be compared")]
    Incomparable {
        /// The type on the left.
        left: &'static str,
        /// The type on the right.
        right: &'static str,
    },
    /// A loop with a variable that has the name of another.
    #[error("`{name}` is already the name of a variable")]
    Shadowed {
        /// The name.
        name: String,
    },
    /// A pattern that is not written as a text.
    #[error("the pattern of `matches` has to be a text in quotes")]
    VariablePattern,
    /// A pattern that is no regular expression, or too large.
    #[error("not a regular expression of reasonable size")]
    InvalidPattern,
    /// A part of CEL that conditions do not have.
    #[error("{what} cannot be used here")]
    Unsupported {
        /// The part.
        what: &'static str,
    },
    /// The text is too long.
    #[error("longer than {max} bytes")]
    TooLong {
        /// The bound.
        max: usize,
    },
    /// It has too many parts.
    #[error("more than {max} operators, values and calls")]
    TooLarge {
        /// The bound.
        max: usize,
    },
    /// It is nested too deeply.
    #[error("nested more than {max} levels deep")]
    TooDeep {
        /// The bound.
        max: usize,
    },
    /// Loops within loops.
    #[error("more than {max} loops within one another")]
    NestedLoops {
        /// The bound.
        max: usize,
    },
    /// Its constants alone cost too much.
    #[error("its evaluation takes too long for any call")]
    TooCostly,
}

/// A fault, and its bytes in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocatedFault {
    pub(crate) fault: ConditionFault,
    pub(crate) at: Range<usize>,
}

impl ConditionFault {
    /// The fault of a whole text.
    pub(crate) fn anywhere(self) -> LocatedFault {
        LocatedFault { fault: self, at: 0..0 }
    }

    /// The fault at these bytes.
    pub(crate) fn located(self, at: Range<usize>) -> LocatedFault {
        LocatedFault { fault: self, at }
    }

    /// Returns the correction.
    pub fn help_text(&self) -> String {
        match self {
            Self::UnknownVariable { help, .. }
            | Self::UnknownMember { help, .. }
            | Self::UnknownFunction { help, .. } => help.clone(),
            Self::Type { expected: "bool", .. } => {
                "a condition is a comparison, such as tool.server == 'git'".into()
            }
            Self::VariablePattern => "use startsWith, endsWith or contains for values".into(),
            Self::Shadowed { .. } => "choose another name for the loop's variable".into(),
            Self::NestedLoops { .. } | Self::TooLarge { .. } | Self::TooDeep { .. } => {
                "divide it into several rules".into()
            }
            _ => "see docs/policy.md".into(),
        }
    }
}

/// The first of a parser's errors.
pub(crate) fn from_parser(text: &str, errors: &ParseErrors) -> LocatedFault {
    let Some(first) = errors.errors.first() else { return ConditionFault::Unreadable.anywhere() };
    let message = first.msg.lines().next().unwrap_or_default();
    let message = explain_grammar(message.trim_start_matches("Syntax error: "));
    let (line, column) = first.pos;
    let line = usize::try_from(line).unwrap_or(1).saturating_sub(1);
    let before: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let column = usize::try_from(column).unwrap_or(1).saturating_sub(1);
    let rest = text.get(before..).unwrap_or_default();
    let start = before + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at);
    // The end of the text is shown by its last character.
    let start = start.min(text.floor_char_boundary(text.len().saturating_sub(1)));
    let end = text.len().min(text.ceil_char_boundary(start + 1));
    ConditionFault::Syntax { message }.located(start..end)
}

/// The message of the parser without the tokens of its grammar.
fn explain_grammar(message: &str) -> String {
    let quoted = message.split('\'').nth(1).unwrap_or_default();
    let token = match quoted {
        "<EOF>" => "the end of the condition".to_owned(),
        token => format!("`{}`", clip(token.trim(), 40)),
    };
    let starts = |beginning: &str| message.starts_with(beginning);
    if starts("mismatched input") && quoted == "<EOF>" {
        "a value is missing at the end".to_owned()
    } else if starts("missing") {
        let before = message.split('\'').nth(3).unwrap_or_default();
        match before {
            "<EOF>" => format!("{token} is missing at the end"),
            before => format!("{token} is missing before `{}`", clip(before, 40)),
        }
    } else if starts("token recognition error") && token == "`=`" {
        "`=` is no operator: `==` compares".to_owned()
    } else if ["mismatched input", "extraneous input", "no viable alternative", "token recognition"]
        .into_iter()
        .any(starts)
    {
        format!("unexpected {token}")
    } else {
        clip(message, 160).to_owned()
    }
}
