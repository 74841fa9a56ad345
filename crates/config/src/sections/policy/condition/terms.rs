//! The operands of the outermost `&&` of a condition, and the one that does not hold.

use cel::common::ast::{Expr, SourceInfo, operators};
use cel::{Context, IdedExpr};

use super::check::byte_at;
use super::evaluation::{self, EvaluationFault};

/// An operand of a condition that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingTerm {
    /// The operand as written.
    pub text: Box<str>,
    /// The reason why it cannot be evaluated, if it cannot.
    pub fault: Option<EvaluationFault>,
}

/// Returns the texts of the operands of the outermost `&&`, in their order: the whole text if there
/// is no such operator.
pub(super) fn split_text(text: &str, whole: &IdedExpr, source: &SourceInfo) -> Vec<Box<str>> {
    let mut operators = Vec::new();
    gather_operators(whole, source, &mut operators);
    let mut terms = Vec::new();
    let mut start = 0;
    for at in operators {
        // The parser counts characters in some places, and bytes in others.
        let places = [byte_at(text, at), usize::try_from(at).unwrap_or(usize::MAX)];
        let is_operator =
            |at: &usize| text.get(*at..).is_some_and(|rest| rest.starts_with(AND_OPERATOR));
        let Some(at) = places.into_iter().find(is_operator) else {
            return vec![text.trim().into()];
        };
        terms.push(trim_term(text.get(start..at).unwrap_or_default()));
        start = at + AND_OPERATOR.len();
    }
    terms.push(trim_term(text.get(start..).unwrap_or_default()));
    terms
}

/// Adds the places of the operators between the operands, in their order.
fn gather_operators(part: &IdedExpr, source: &SourceInfo, places: &mut Vec<u32>) {
    if let Expr::Call(call) = &part.expr
        && call.func_name == operators::LOGICAL_AND
        && let [left, right] = &call.args[..]
    {
        gather_operators(left, source, places);
        places.push(source.offset_for(part.id).unwrap_or_default().0);
        gather_operators(right, source, places);
    }
}

/// Removes the brackets around a conjunction that this term begins or ends.
fn trim_term(term: &str) -> Box<str> {
    let mut term = term.trim();
    let count = |term: &str, bracket: char| term.matches(bracket).count();
    while count(term, '(') > count(term, ')') && term.starts_with('(') {
        term = term.get(1..).unwrap_or_default().trim_start();
    }
    while count(term, ')') > count(term, '(') && term.ends_with(')') {
        term = term.get(..term.len() - 1).unwrap_or_default().trim_end();
    }
    term.into()
}

/// Returns the first operand that is false or, if none is, the first that cannot be evaluated.
pub(super) fn find_failing(
    checked: &IdedExpr,
    texts: &[Box<str>],
    scope: &Context<'_, '_>,
) -> Option<FailingTerm> {
    let mut operands = Vec::new();
    super::split::gather_operands(checked, &mut operands);
    let of = |place: usize, fault| {
        // Without the places of the operators, there is only the whole text.
        let place = if texts.len() == operands.len() { place } else { 0 };
        let text = texts.get(place).cloned().unwrap_or_default();
        Some(FailingTerm { text, fault })
    };
    let outcomes: Vec<_> =
        operands.iter().map(|operand| evaluation::evaluate_boolean(operand, scope)).collect();
    if let Some(place) = outcomes.iter().position(|outcome| *outcome == Some(false)) {
        return of(place, None);
    }
    let place = outcomes.iter().position(Option::is_none)?;
    let fault = operands.get(place).map(|operand| evaluation::locate_fault(operand, scope));
    of(place, fault)
}

/// The operator between the terms.
const AND_OPERATOR: &str = "&&";
