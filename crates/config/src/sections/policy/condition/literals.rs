//! The texts that are written in a condition.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, LiteralValue};

/// Gathers the string literals of an expression that was checked.
pub(super) fn gather_literals(whole: &IdedExpr) -> Vec<&str> {
    let (mut found, mut open) = (Vec::new(), vec![whole]);
    while let Some(part) = open.pop() {
        match &part.expr {
            Expr::Literal(LiteralValue::String(text)) => found.push(text.inner()),
            Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) | Expr::Unspecified => {}
            Expr::Select(select) => open.push(&select.operand),
            Expr::Call(call) => open.extend(call.target.as_deref().into_iter().chain(&call.args)),
            Expr::List(list) => open.extend(&list.elements),
            Expr::Map(map) => open.extend(map.entries.iter().flat_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                EntryExpr::StructField(field) => vec![&field.value],
            })),
            Expr::Comprehension(one) => open.extend([
                &one.iter_range,
                &one.accu_init,
                &one.loop_cond,
                &one.loop_step,
                &one.result,
            ]),
        }
    }
    found
}
