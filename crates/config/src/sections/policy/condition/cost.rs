//! An upper bound of the cost of evaluating a condition.
//!
//! Steps count the nodes that are evaluated and the bytes that are copied or compared. Within a
//! loop, the cost of the body is a polynomial of the size of the loop's variable, without negative
//! coefficients. So `n` elements with a total size of `s` cost at most as much as `n` empty
//! elements and one of size `s`.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, LiteralValue};

/// The size of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueSize {
    /// Not less than the bytes of its texts, and one for each value in it.
    pub bytes: u64,
    /// Not less than the number of elements of all lists and maps in it.
    pub elements: u64,
}

/// The greatest cost of an evaluation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConditionCost {
    /// The steps.
    pub steps: u64,
    /// The size of the result.
    pub size: ValueSize,
}

impl ValueSize {
    /// The size of a number or a boolean.
    const SMALL: Self = Self { bytes: 1, elements: 0 };

    fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            elements: self.elements.saturating_add(other.elements),
        }
    }

    fn times(self, count: u64) -> Self {
        Self {
            bytes: self.bytes.saturating_mul(count),
            elements: self.elements.saturating_mul(count),
        }
    }
}

impl ConditionCost {
    /// The most steps of one evaluation: a costlier condition is not evaluated.
    pub const MAX_STEPS: u64 = 2_000_000;
    /// The most steps on a thread that serves clients.
    pub const CHEAP: u64 = 20_000;

    fn plus(self, other: Self) -> Self {
        let steps = self.steps.saturating_add(other.steps);
        Self { steps, size: self.size.plus(other.size) }
    }

    /// As an element of a list or a map, which has a size even if it is empty.
    fn as_part(self) -> Self {
        Self { size: self.size.plus(ValueSize { bytes: 1, elements: 1 }), ..self }
    }

    /// One more step, and as many as the result has bytes, which are copied.
    fn copied(self) -> Self {
        let steps = self.steps.saturating_add(self.size.bytes).saturating_add(1);
        Self { steps, size: self.size }
    }

    fn times(self, count: u64) -> Self {
        Self { steps: self.steps.saturating_mul(count), size: self.size.times(count) }
    }
}

/// The sizes of the loops' variables, the innermost last.
type LoopSizes<'a> = Vec<(&'a str, ValueSize)>;

pub(super) fn estimate(
    expression: &IdedExpr,
    size_of: &dyn Fn(&str) -> ValueSize,
) -> ConditionCost {
    Estimator { size_of, loops: Vec::new() }.cost(expression)
}

struct Estimator<'a> {
    size_of: &'a dyn Fn(&str) -> ValueSize,
    loops: LoopSizes<'a>,
}

impl<'a> Estimator<'a> {
    fn cost(&mut self, expression: &'a IdedExpr) -> ConditionCost {
        match &expression.expr {
            Expr::Unspecified | Expr::Struct(_) => {
                ConditionCost { steps: 1, size: ValueSize::SMALL }
            }
            Expr::Literal(literal) => ConditionCost { steps: 1, size: literal_size(literal) },
            Expr::Ident(name) => ConditionCost { steps: 1, size: self.variable_size(name) },
            Expr::Select(select) => {
                let operand = self.cost(&select.operand);
                // A presence test is a boolean.
                let size = if select.test { ValueSize::SMALL } else { operand.size };
                ConditionCost { steps: operand.steps.saturating_add(1), size }
            }
            Expr::List(list) => {
                let all = list.elements.iter().map(|element| self.cost(element).as_part());
                all.fold(ConditionCost::default(), ConditionCost::plus).copied()
            }
            Expr::Map(map) => {
                let mut all = ConditionCost::default();
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    let (key, value) = (self.cost(&entry.key), self.cost(&entry.value));
                    all = all.plus(key.as_part()).plus(value.as_part());
                }
                all.copied()
            }
            Expr::Call(call) => {
                let parts = call.target.iter().map(|target| &**target).chain(&call.args);
                let parts: Vec<_> = parts.map(|part| self.cost(part)).collect();
                let sum = parts.iter().copied().fold(ConditionCost::default(), ConditionCost::plus);
                // Patterns take longer for each character.
                let weight = if call.func_name == "matches" { PATTERN_WEIGHT } else { 1 };
                let worked = sum.size.bytes.saturating_mul(weight).saturating_add(1);
                let size = if is_small(&call.func_name) { ValueSize::SMALL } else { sum.size };
                ConditionCost { steps: sum.steps.saturating_add(worked), size }
            }
            Expr::Comprehension(one) => {
                let range = self.cost(&one.iter_range);
                let init = self.cost(&one.accu_init);
                let mut body = |size: ValueSize| {
                    self.loops.push((&one.iter_var, size));
                    self.loops.push((&one.accu_var, ValueSize::default()));
                    let cost = self.cost(&one.loop_cond);
                    let step = self.cost(&one.loop_step);
                    self.loops.truncate(self.loops.len() - 2);
                    // Binding the variable copies it.
                    let steps = cost.steps.saturating_add(step.steps).saturating_add(size.bytes);
                    ConditionCost { steps: steps.saturating_add(LOOP_STEPS), size: step.size }
                };
                let (empty, whole) = (body(ValueSize::default()), body(range.size));
                let all = empty.times(range.size.elements).plus(whole);
                self.loops.push((&one.accu_var, init.size.plus(all.size)));
                let result = self.cost(&one.result);
                self.loops.pop();
                let steps = [range.steps, init.steps, all.steps].into_iter();
                let steps = steps.fold(result.steps, u64::saturating_add);
                ConditionCost { steps, size: result.size }
            }
        }
    }

    fn variable_size(&self, name: &str) -> ValueSize {
        let bound = self.loops.iter().rev().find(|(bound, _)| *bound == name);
        bound.map_or_else(|| (self.size_of)(name), |(_, size)| *size)
    }
}

/// Returns true if a function's result has a fixed size, for any arguments.
fn is_small(function: &str) -> bool {
    const COSTLY_FUNCTIONS: [&str; 6] = ["_+_", "_?_:_", "_[_]", "string", "bytes", "dyn"];
    !COSTLY_FUNCTIONS.contains(&function)
}

fn literal_size(literal: &LiteralValue) -> ValueSize {
    let bytes = match literal {
        LiteralValue::String(text) => text.inner().len(),
        LiteralValue::Bytes(bytes) => bytes.inner().len(),
        _ => return ValueSize::SMALL,
    };
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    ValueSize::SMALL.plus(ValueSize { bytes, elements: 0 })
}

/// The cost of an iteration besides its body.
const LOOP_STEPS: u64 = 2;
/// The steps of a pattern for each byte of a text.
const PATTERN_WEIGHT: u64 = 8;
