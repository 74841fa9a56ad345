//! The reason why a condition has no result, and the values that it fails at.

use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};
use cel::common::types::CelBool;
use cel::{Context, ExecutionError, IdedExpr, Value};

use super::vocabulary::CONDITION_VARIABLES;

/// A condition has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationFault {
    /// A variable, or a member of one, is missing.
    #[error("{value} is missing")]
    Missing {
        /// The value, as the condition names it.
        value: Box<str>,
    },
    /// A value has another type than the condition expects.
    #[error("unexpected type of {value}")]
    WrongType {
        /// The value, as the condition names it, or several.
        value: Box<str>,
    },
    /// A value cannot be read: it has a duplicate key, or a number that is too large.
    #[error("{value} cannot be read, or has a duplicate key")]
    Unreadable {
        /// The value, as the condition names it.
        value: Box<str>,
    },
    /// The evaluation takes too many steps with these values.
    #[error("its evaluation takes too long")]
    TooCostly,
    /// The result is not a boolean.
    #[error("its result is not a boolean")]
    NotBool,
    /// The evaluator fails.
    #[error("it cannot be evaluated")]
    Unknown,
}

/// Finds the part at which an evaluation has failed. Evaluates parts again, each at most once for
/// each level of it.
pub(super) fn locate_fault(whole: &IdedExpr, scope: &Context<'_, '_>) -> EvaluationFault {
    let mut part = whole;
    for _ in 0..MAX_LEVELS {
        match failing_operand(part, scope) {
            Some(operand) => part = operand,
            None => break,
        }
    }
    let value = named_values(part);
    if value.is_empty() {
        return EvaluationFault::Unknown;
    }
    match Value::resolve_val(part, scope) {
        Err(ExecutionError::NoSuchKey(_) | ExecutionError::UndeclaredReference(_)) => {
            EvaluationFault::Missing { value }
        }
        _ => EvaluationFault::WrongType { value },
    }
}

/// The operand that makes a part fail; `None` if the part itself fails.
fn failing_operand<'e>(part: &'e IdedExpr, scope: &Context<'_, '_>) -> Option<&'e IdedExpr> {
    let fails = |part: &IdedExpr| Value::resolve_val(part, scope).is_err();
    match &part.expr {
        Expr::Call(call) => match (call.func_name.as_str(), &call.args[..]) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [left, right]) => {
                Some(if evaluate_boolean(right, scope).is_none() { right } else { left })
            }
            (operators::CONDITIONAL, [condition, yes, no]) => {
                Some(match evaluate_boolean(condition, scope) {
                    None => condition,
                    Some(true) => yes,
                    Some(false) => no,
                })
            }
            _ => operands_of(call).find(|operand| fails(operand)),
        },
        Expr::Select(select) => Some(&*select.operand).filter(|operand| fails(operand)),
        Expr::List(list) => list.elements.iter().find(|element| fails(element)),
        // Its body fails, but the body's variable has no value here.
        Expr::Comprehension(one) => Some(&one.iter_range).filter(|range| fails(range)),
        _ => None,
    }
}

/// The value of a part; `None` if it cannot be evaluated, or is not a boolean.
pub(super) fn evaluate_boolean(part: &IdedExpr, scope: &Context<'_, '_>) -> Option<bool> {
    let value = Value::resolve_val(part, scope).ok()?;
    value.downcast_ref::<CelBool>().map(|value| *value.inner())
}

fn operands_of(call: &CallExpr) -> impl Iterator<Item = &IdedExpr> {
    call.target.iter().map(|target| &**target).chain(&call.args)
}

/// The members of variables that a part names: of arguments if it names any.
fn named_values(part: &IdedExpr) -> Box<str> {
    let mut names = Vec::new();
    gather_names(part, &mut names);
    if names.iter().any(|name| name.starts_with("arguments")) {
        names.retain(|name| name.starts_with("arguments"));
    }
    names.dedup();
    names.truncate(MAX_NAMES);
    names.join(", ").into()
}

fn gather_names(part: &IdedExpr, names: &mut Vec<String>) {
    if let Some(name) = named_path(part) {
        names.push(name);
        return;
    }
    match &part.expr {
        Expr::Call(call) => operands_of(call).for_each(|operand| gather_names(operand, names)),
        Expr::Select(select) => gather_names(&select.operand, names),
        Expr::List(list) => list.elements.iter().for_each(|it| gather_names(it, names)),
        Expr::Comprehension(one) => {
            gather_names(&one.iter_range, names);
            gather_names(&one.loop_step, names);
        }
        _ => {}
    }
}

/// The text of a part that names a variable, or something in one, such as `arguments.list[0]`.
fn named_path(part: &IdedExpr) -> Option<String> {
    match &part.expr {
        Expr::Ident(name) => {
            CONDITION_VARIABLES.iter().any(|(known, _)| known == name).then(|| name.clone())
        }
        Expr::Select(select) => Some(format!("{}.{}", named_path(&select.operand)?, select.field)),
        Expr::Call(call) if call.func_name == operators::INDEX => match &call.args[..] {
            [of, index] => Some(match &index.expr {
                Expr::Literal(LiteralValue::String(name)) => {
                    format!("{}.{}", named_path(of)?, name.inner())
                }
                Expr::Literal(LiteralValue::Int(place)) => {
                    format!("{}[{}]", named_path(of)?, place.inner())
                }
                _ => format!("{}[…]", named_path(of)?),
            }),
            _ => None,
        },
        _ => None,
    }
}

/// The depth of the search for a fault.
const MAX_LEVELS: usize = 32;
/// The most values that a fault names.
const MAX_NAMES: usize = 4;
