//! Comparisons of values of different types, which are errors here.
//!
//! In CEL such values are unequal. A rule that denies `arguments.id == 42` would then not hold for
//! `"42"`, `[42]` or `true`, which a server may take for the same number, and one that allows
//! `arguments.branch != 'main'` would hold for `["main"]`. So `==`, `!=` and `in` become calls of
//! the functions below wherever the types are not known when the condition is read. All numbers are
//! of one type. A `null` that is written in the condition compares with any value.

use std::cmp::Ordering;
use std::collections::HashSet;

use cel::common::ast::{CallExpr, EntryExpr, Expr, operators};
use cel::common::functions::Function;
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelUInt, DYN_TYPE, Kind,
};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError, IdedExpr};

use super::check::is_null;

/// The types of two values differ, or those of some of their elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DifferentTypes;

type Comparison = Result<bool, DifferentTypes>;

/// The origin of the right side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RightSide {
    /// It is evaluated with each call.
    Evaluated,
    /// It is written in the condition: a `null` in it compares with any value.
    Written,
}

/// Adds the functions to an environment. A text cannot name them: `@` is no part of a name.
pub(super) fn add_to(env: &mut Env) {
    for (name, function) in COMPARISON_FUNCTIONS {
        // If one of them were missing, each comparison would be an error.
        let _ = env.add_overload(name, name, vec![DYN_TYPE, DYN_TYPE], function);
    }
}

/// Replaces the comparisons of these numbers in an expression by those that check types.
pub(super) fn check_types(expression: &IdedExpr, unsure: &HashSet<u64>) -> IdedExpr {
    let mut checked = expression.clone();
    replace_in(&mut checked, unsure);
    checked
}

/// The depth is bounded by the check of the condition.
fn replace_in(part: &mut IdedExpr, unsure: &HashSet<u64>) {
    match &mut part.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| replace_in(target, unsure));
            call.args.iter_mut().for_each(|argument| replace_in(argument, unsure));
            if unsure.contains(&part.id) {
                replace_call(call);
            }
        }
        Expr::Select(select) => replace_in(&mut select.operand, unsure),
        Expr::List(list) => list.elements.iter_mut().for_each(|it| replace_in(it, unsure)),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    replace_in(&mut entry.key, unsure);
                    replace_in(&mut entry.value, unsure);
                }
            }
        }
        Expr::Comprehension(one) => {
            let (range, init) = (&mut one.iter_range, &mut one.accu_init);
            let body = [&mut one.loop_cond, &mut one.loop_step, &mut one.result];
            [range, init].into_iter().chain(body).for_each(|it| replace_in(it, unsure));
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

fn replace_call(call: &mut CallExpr) {
    let [left, right] = &mut call.args[..] else { return };
    if is_null(left) || is_null(right) {
        return;
    }
    let name = match call.func_name.as_str() {
        operators::EQUALS => [EQUAL_FUNCTION, EQUAL_TO_WRITTEN],
        operators::NOT_EQUALS => [UNEQUAL_FUNCTION, UNEQUAL_TO_WRITTEN],
        operators::IN => [IN_FUNCTION, IN_WRITTEN],
        _ => return,
    };
    let is_symmetric = call.func_name != operators::IN;
    if is_symmetric && is_written(left) && !is_written(right) {
        std::mem::swap(left, right);
    }
    let [evaluated, written] = name;
    let name = if is_written(right) { written } else { evaluated };
    name.clone_into(&mut call.func_name);
}

/// Returns true if a value consists of literals alone.
fn is_written(part: &IdedExpr) -> bool {
    match &part.expr {
        Expr::Literal(_) => true,
        Expr::List(list) => list.elements.iter().all(is_written),
        Expr::Map(map) => map.entries.iter().all(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => is_written(&entry.key) && is_written(&entry.value),
            EntryExpr::StructField(_) => false,
        }),
        // A negative number.
        Expr::Call(call) if call.func_name == operators::NEGATE => {
            call.args.iter().all(|argument| matches!(argument.expr, Expr::Literal(_)))
        }
        _ => false,
    }
}

fn values_equal(left: &dyn Val, right: &dyn Val, side: RightSide) -> Comparison {
    match (cel_type_of(left), cel_type_of(right)) {
        (Kind::List, Kind::List) => lists_equal(left, right, side),
        (Kind::Map, Kind::Map) => maps_equal(left, right, side),
        (Kind::Double, Kind::Double) => numbers_equal(left, right),
        (one, other) if one == other => Ok(left.equals(right)),
        (_, Kind::NullType) if side == RightSide::Written => Ok(false),
        _ => Err(DifferentTypes),
    }
}

/// The type of a value; that of all numbers is `Double`.
fn cel_type_of(value: &dyn Val) -> Kind {
    match value.get_type().kind() {
        Kind::Int | Kind::UInt => Kind::Double,
        other => other,
    }
}

/// Compares two numbers. From 2^53 on two integers can differ and be one number for a server that
/// reads them as 64-bit floating point: these cannot be compared.
fn numbers_equal(left: &dyn Val, right: &dyn Val) -> Comparison {
    let (left_float, right_float) = (to_float(left)?, to_float(right)?);
    match left_float.partial_cmp(&right_float) {
        None => Err(DifferentTypes),
        Some(Ordering::Less | Ordering::Greater) => Ok(false),
        Some(Ordering::Equal) if left_float.abs() < FIRST_INEXACT => Ok(true),
        Some(Ordering::Equal) => match (to_integer(left), to_integer(right)) {
            (Some(left), Some(right)) if left != right => Err(DifferentTypes),
            (Some(_), None) | (None, Some(_)) => Err(DifferentTypes),
            _ => Ok(true),
        },
    }
}

/// Below it 64-bit floating point has every integer: 2^53.
const FIRST_INEXACT: f64 = 9_007_199_254_740_992.0;

#[expect(clippy::cast_precision_loss, reason = "the nearest one is asked for")]
fn to_float(value: &dyn Val) -> Result<f64, DifferentTypes> {
    if let Some(number) = value.downcast_ref::<CelDouble>() {
        return Ok(*number.inner());
    }
    Ok(to_integer(value).ok_or(DifferentTypes)? as f64)
}

fn to_integer(value: &dyn Val) -> Option<i128> {
    let unsigned = || value.downcast_ref::<CelUInt>().map(|number| (*number.inner()).into());
    value.downcast_ref::<CelInt>().map(|number| (*number.inner()).into()).or_else(unsigned)
}

fn lists_equal(left: &dyn Val, right: &dyn Val, side: RightSide) -> Comparison {
    let lists = (left.downcast_ref::<CelList<'_>>(), right.downcast_ref::<CelList<'_>>());
    let (Some(left), Some(right)) = lists else { return Err(DifferentTypes) };
    if left.inner().len() != right.inner().len() {
        return Ok(false);
    }
    let pairs = left.inner().iter().zip(right.inner());
    all_equal(pairs.map(|(left, right)| values_equal(&**left, &**right, side)))
}

fn maps_equal(left: &dyn Val, right: &dyn Val, side: RightSide) -> Comparison {
    let maps = (left.downcast_ref::<CelMap<'_>>(), right.downcast_ref::<CelMap<'_>>());
    let (Some(left), Some(right)) = maps else { return Err(DifferentTypes) };
    if left.inner().len() != right.inner().len() {
        return Ok(false);
    }
    all_equal(left.inner().iter().map(|(key, value)| {
        let found = right.as_indexer().and_then(|right| right.get(key.inner()).ok());
        match found {
            Some(found) => values_equal(&**value, &*found, side),
            None if has_key_of_type(right, key.inner()) => Ok(false),
            None => Err(DifferentTypes),
        }
    }))
}

fn has_key_of_type(map: &CelMap<'_>, key: &dyn Val) -> bool {
    map.inner().keys().any(|one| cel_type_of(one.inner()) == cel_type_of(key))
}

/// Joins the comparisons of parts, as `&&` does: a part that is unequal decides.
fn all_equal(parts: impl Iterator<Item = Comparison>) -> Comparison {
    let mut all = Ok(true);
    for part in parts {
        match part {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(DifferentTypes) => all = Err(DifferentTypes),
        }
    }
    all
}

/// Looks for a value in a list, or among the keys of a map.
fn find_value(container: &dyn Val, value: &dyn Val, side: RightSide) -> Comparison {
    let mut search = Search { value, side, fits: false, fails: false, differs: false };
    if let Some(list) = container.downcast_ref::<CelList<'_>>() {
        return search.find_among(list.inner().iter().map(|element| &**element));
    }
    let map = container.downcast_ref::<CelMap<'_>>().ok_or(DifferentTypes)?;
    search.find_among(map.inner().keys().map(CelMapKey::inner))
}

/// A value that is compared with others until one is equal.
struct Search<'a> {
    value: &'a dyn Val,
    side: RightSide,
    /// One has the type of the value.
    fits: bool,
    /// One has its type, but other types within it.
    fails: bool,
    /// One has another type.
    differs: bool,
}

impl Search<'_> {
    /// A list that is written in the condition may mix types, as in `id in [42, '42']`: it is enough
    /// that one has the type of the value.
    fn find_among<'a>(&mut self, elements: impl Iterator<Item = &'a (dyn Val + 'a)>) -> Comparison {
        for element in elements {
            let has_type = cel_type_of(self.value) == cel_type_of(element);
            match values_equal(self.value, element, self.side) {
                Ok(true) => return Ok(true),
                Ok(false) => self.fits |= has_type,
                Err(DifferentTypes) if has_type => self.fails = true,
                Err(DifferentTypes) => self.differs = true,
            }
        }
        let may_differ = self.fits && self.side == RightSide::Written;
        if self.fails || (self.differs && !may_differ) {
            return Err(DifferentTypes);
        }
        Ok(false)
    }
}

/// Compares the two arguments of a call.
fn compare_operands<'b, 'v>(
    arguments: &[CowVal<'b, 'v>],
    compare: impl FnOnce(&dyn Val, &dyn Val) -> Comparison,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [left, right] = arguments else {
        return Err(ExecutionError::invalid_argument_count(2, arguments.len()));
    };
    match compare(left.as_ref(), right.as_ref()) {
        Ok(true) => Ok(CowVal::Borrowed(&CelBool::TRUE)),
        Ok(false) => Ok(CowVal::Borrowed(&CelBool::FALSE)),
        Err(DifferentTypes) => {
            let types = [left, right].map(|one| one.get_type().name().to_owned());
            Err(ExecutionError::no_such_overload("compare", types.into()))
        }
    }
}

const EQUAL_FUNCTION: &str = "@typed_equal";
const EQUAL_TO_WRITTEN: &str = "@typed_equal_to_written";
const UNEQUAL_FUNCTION: &str = "@typed_unequal";
const UNEQUAL_TO_WRITTEN: &str = "@typed_unequal_to_written";
const IN_FUNCTION: &str = "@typed_in";
const IN_WRITTEN: &str = "@typed_in_written";

const COMPARISON_FUNCTIONS: [(&str, Function); 6] = [
    (EQUAL_FUNCTION, |both| {
        compare_operands(&both, |left, right| values_equal(left, right, RightSide::Evaluated))
    }),
    (EQUAL_TO_WRITTEN, |both| {
        compare_operands(&both, |left, right| values_equal(left, right, RightSide::Written))
    }),
    (UNEQUAL_FUNCTION, |both| {
        compare_operands(&both, |left, right| {
            values_equal(left, right, RightSide::Evaluated).map(|is| !is)
        })
    }),
    (UNEQUAL_TO_WRITTEN, |both| {
        compare_operands(&both, |left, right| {
            values_equal(left, right, RightSide::Written).map(|is| !is)
        })
    }),
    (IN_FUNCTION, |both| {
        compare_operands(&both, |value, all| find_value(all, value, RightSide::Evaluated))
    }),
    (IN_WRITTEN, |both| {
        compare_operands(&both, |value, all| find_value(all, value, RightSide::Written))
    }),
];
