//! The check of a condition: its vocabulary, its types and its size.

use std::collections::HashSet;

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, SourceInfo, operators,
};

use super::patterns::{self, CompiledPatterns};
use super::reads::ConditionReads;
use super::vocabulary::{CONDITION_FUNCTIONS, CONDITION_VARIABLES, CelType, FunctionForm};
use crate::faults::condition::{ConditionFault, LocatedFault};
use crate::reader::wording::nearest_choice;

/// The parts of a condition, as checked.
#[derive(Default)]
pub(super) struct CheckedParts {
    pub(super) reads: ConditionReads,
    pub(super) patterns: CompiledPatterns,
    /// The numbers of the comparisons with sides that may have different types.
    pub(super) unsure: HashSet<u64>,
}

/// Checks one condition.
pub(super) struct Checker<'a> {
    source: &'a SourceInfo,
    parts: CheckedParts,
    /// The variables of the loops around a part, the innermost last.
    scope: Vec<(&'a str, CelType)>,
    nodes: usize,
    depth: usize,
    loops: usize,
}

/// Rejects a text that is nested too deeply for a parser that recurses.
pub(super) fn check_brackets(text: &str) -> Result<(), LocatedFault> {
    let (mut brackets, mut prefixes) = (0_usize, 0_usize);
    for (at, character) in text.char_indices() {
        prefixes = match character {
            '!' | '-' => prefixes + 1,
            ' ' | '\t' | '\n' | '\r' => prefixes,
            _ => 0,
        };
        match character {
            '(' | '[' | '{' => brackets += 1,
            ')' | ']' | '}' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        if brackets > MAX_OPEN || prefixes > MAX_OPEN {
            return Err(ConditionFault::TooDeep { max: MAX_OPEN }.located(at..at + 1));
        }
    }
    Ok(())
}

impl<'a> Checker<'a> {
    pub(super) fn new(source: &'a SourceInfo) -> Self {
        let parts = CheckedParts::default();
        Self { source, parts, scope: Vec::new(), nodes: 0, depth: 0, loops: 0 }
    }

    /// Checks a whole condition, which must result in a boolean.
    pub(super) fn check(&mut self, whole: &'a IdedExpr) -> Result<CheckedParts, LocatedFault> {
        self.expect(whole, CelType::Bool)?;
        Ok(std::mem::take(&mut self.parts))
    }

    /// Checks that a part has the type `expected`, if its type is known; returns the type.
    fn expect(&mut self, part: &'a IdedExpr, expected: CelType) -> Result<(), LocatedFault> {
        let found = self.infer(part)?;
        let is_any = found == CelType::Dynamic || expected == CelType::Dynamic;
        if is_any || (found != CelType::Null && found.may_equal(expected)) {
            return Ok(());
        }
        let (expected, found) = (expected.word(), found.word());
        Err(self.fault(part, ConditionFault::Type { expected, found }))
    }

    fn infer(&mut self, part: &'a IdedExpr) -> Result<CelType, LocatedFault> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(ConditionFault::TooLarge { max: MAX_NODES }.anywhere());
        }
        if self.depth >= MAX_DEPTH {
            return Err(self.fault(part, ConditionFault::TooDeep { max: MAX_DEPTH }));
        }
        self.depth += 1;
        let inferred = self.infer_kind(part);
        self.depth -= 1;
        inferred
    }

    fn infer_kind(&mut self, part: &'a IdedExpr) -> Result<CelType, LocatedFault> {
        match &part.expr {
            Expr::Literal(literal) => Ok(type_of_literal(literal)),
            Expr::Ident(name) => self.infer_variable(part, name),
            Expr::Select(select) => self.infer_select(part, select),
            Expr::Call(call) => self.infer_call(part, call),
            Expr::List(list) => {
                let mut types = Vec::with_capacity(list.elements.len());
                for element in &list.elements {
                    types.push(self.infer(element)?);
                }
                let all_texts = types.iter().all(|one| *one == CelType::Text);
                Ok(if all_texts { CelType::Texts } else { CelType::List })
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.infer(&entry.key)?;
                        self.infer(&entry.value)?;
                    }
                }
                Ok(CelType::Map)
            }
            Expr::Comprehension(comprehension) => self.infer_loop(part, comprehension),
            Expr::Struct(_) => {
                Err(self.fault(part, ConditionFault::Unsupported { what: "a message" }))
            }
            Expr::Unspecified => {
                Err(self.fault(part, ConditionFault::Unsupported { what: "an empty expression" }))
            }
        }
    }

    fn infer_variable(&mut self, part: &IdedExpr, name: &str) -> Result<CelType, LocatedFault> {
        if let Some((_, of_loop)) = self.scope.iter().rev().find(|(bound, _)| *bound == name) {
            return Ok(*of_loop);
        }
        let Some((known, found)) = CONDITION_VARIABLES.iter().find(|(known, _)| *known == name)
        else {
            let names = CONDITION_VARIABLES.map(|(known, _)| known);
            let (name, help) = (name.to_owned(), suggest(name, &names));
            return Err(self.fault(part, ConditionFault::UnknownVariable { name, help }));
        };
        self.parts.reads.add_all(known);
        Ok(*found)
    }

    fn infer_select(
        &mut self,
        part: &IdedExpr,
        select: &'a SelectExpr,
    ) -> Result<CelType, LocatedFault> {
        let found = match self.global_variable(&select.operand) {
            Some((variable, found)) => {
                self.nodes += 1;
                self.parts.reads.add_member(variable, &select.field);
                found
            }
            None => self.infer(&select.operand)?,
        };
        let member = match found {
            CelType::RecordForm(record) => {
                let known = record.members.iter().find(|(name, _)| *name == select.field);
                let Some((_, found)) = known else {
                    let names: Vec<_> = record.members.iter().map(|(name, _)| *name).collect();
                    let (name, help) = (select.field.clone(), suggest(&select.field, &names));
                    let variable = record.name;
                    let fault = ConditionFault::UnknownMember { variable, name, help };
                    return Err(self.fault(part, fault));
                };
                *found
            }
            CelType::Map | CelType::Dynamic => CelType::Dynamic,
            other => {
                let (expected, found) = (CelType::Map.word(), other.word());
                return Err(self.fault(part, ConditionFault::Type { expected, found }));
            }
        };
        Ok(if select.test { CelType::Bool } else { member })
    }

    /// The global variable that a part names; `None` if a loop's variable has the name.
    fn global_variable(&self, part: &IdedExpr) -> Option<(&'static str, CelType)> {
        let Expr::Ident(name) = &part.expr else { return None };
        let is_of_loop = self.scope.iter().any(|(bound, _)| bound == name);
        CONDITION_VARIABLES.iter().find(|(known, _)| known == name && !is_of_loop).copied()
    }

    fn infer_call(
        &mut self,
        part: &'a IdedExpr,
        call: &'a CallExpr,
    ) -> Result<CelType, LocatedFault> {
        match (call.func_name.as_str(), &call.args[..]) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [left, right]) => {
                self.expect(left, CelType::Bool)?;
                self.expect(right, CelType::Bool)?;
                Ok(CelType::Bool)
            }
            (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [one]) => {
                self.expect(one, CelType::Bool)?;
                Ok(CelType::Bool)
            }
            (operators::CONDITIONAL, [condition, yes, no]) => {
                self.expect(condition, CelType::Bool)?;
                let (yes, no) = (self.infer(yes)?, self.infer(no)?);
                Ok(if yes == no { yes } else { CelType::Dynamic })
            }
            (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => {
                self.compare(part, left, right, CelType::may_equal)
            }
            (
                operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                [left, right],
            ) => self.compare(part, left, right, have_order),
            (operators::IN, [left, right]) => {
                let is_text = self.infer(left)? == CelType::Text;
                let found = self.infer_keys(right)?;
                // The names of a variable's members are texts.
                let has_texts = found == CelType::Texts || self.global_variable(right).is_some();
                if !(is_text && has_texts) {
                    self.parts.unsure.insert(part.id);
                }
                match found {
                    CelType::Texts | CelType::List | CelType::Map | CelType::Dynamic => {
                        Ok(CelType::Bool)
                    }
                    other => {
                        let (expected, found) = (CelType::List.word(), other.word());
                        Err(self.fault(right, ConditionFault::Type { expected, found }))
                    }
                }
            }
            (operators::INDEX, [of, index]) => self.infer_index(of, index),
            (operators::NEGATE, [one]) => {
                self.expect(one, CelType::Number)?;
                Ok(CelType::Number)
            }
            (
                operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO,
                [left, right],
            ) => {
                self.expect(left, CelType::Number)?;
                self.expect(right, CelType::Number)?;
                Ok(CelType::Number)
            }
            (operators::ADD, [left, right]) => {
                let (left_type, right_type) = (self.infer(left)?, self.infer(right)?);
                if !left_type.may_equal(right_type) {
                    let (left, right) = (left_type.word(), right_type.word());
                    return Err(self.fault(part, ConditionFault::Incomparable { left, right }));
                }
                Ok(if left_type == right_type { left_type } else { CelType::Dynamic })
            }
            (name, _) => self.infer_function(part, name, call),
        }
    }

    fn infer_index(
        &mut self,
        of: &'a IdedExpr,
        index: &'a IdedExpr,
    ) -> Result<CelType, LocatedFault> {
        if let (Some((variable, CelType::Map)), Expr::Literal(LiteralValue::String(member))) =
            (self.global_variable(of), &index.expr)
        {
            self.nodes += 2;
            self.parts.reads.add_member(variable, member.inner());
            return Ok(CelType::Dynamic);
        }
        let found = self.infer(of)?;
        self.infer(index)?;
        match found {
            CelType::Texts => Ok(CelType::Text),
            CelType::List | CelType::Map | CelType::RecordForm(_) | CelType::Dynamic => {
                Ok(CelType::Dynamic)
            }
            other => {
                let (expected, found) = (CelType::Map.word(), other.word());
                Err(self.fault(of, ConditionFault::Type { expected, found }))
            }
        }
    }

    /// The type of a part, if it is a map and only its keys and their number are read.
    fn infer_keys(&mut self, part: &'a IdedExpr) -> Result<CelType, LocatedFault> {
        match self.global_variable(part) {
            Some((variable, CelType::Map)) => {
                self.nodes += 1;
                self.parts.reads.add_keys(variable);
                Ok(CelType::Map)
            }
            _ => self.infer(part),
        }
    }

    fn compare(
        &mut self,
        part: &IdedExpr,
        left: &'a IdedExpr,
        right: &'a IdedExpr,
        fits: impl Fn(CelType, CelType) -> bool,
    ) -> Result<CelType, LocatedFault> {
        let (left, right) = (self.infer(left)?, self.infer(right)?);
        if !(left == right && left.is_plain()) {
            self.parts.unsure.insert(part.id);
        }
        if fits(left, right) {
            return Ok(CelType::Bool);
        }
        let (left, right) = (left.word(), right.word());
        Err(self.fault(part, ConditionFault::Incomparable { left, right }))
    }

    fn infer_function(
        &mut self,
        part: &'a IdedExpr,
        name: &str,
        call: &'a CallExpr,
    ) -> Result<CelType, LocatedFault> {
        let of_name = || CONDITION_FUNCTIONS.iter().filter(|form| form.name == name);
        let is_method = call.target.is_some();
        let form = of_name().find(|form| form.target.is_some() == is_method);
        let Some(form) = form else {
            let names = CONDITION_FUNCTIONS.map(|form| form.name);
            let (name, help) = (name.to_owned(), suggest(name, &names));
            return Err(self.fault(part, ConditionFault::UnknownFunction { name, help }));
        };
        let FunctionForm { name, target, arguments, result } = form;
        if arguments.len() != call.args.len() {
            let fault = ConditionFault::Arity { name, expected: arguments.len() };
            return Err(self.fault(part, fault));
        }
        if *name == "size"
            && let Some(of) = call.target.as_deref().or_else(|| call.args.first())
        {
            self.infer_keys(of)?;
            return Ok(*result);
        }
        if let (Some(target), Some(expected)) = (&call.target, target) {
            self.expect(target, *expected)?;
        }
        for (argument, expected) in call.args.iter().zip(*arguments) {
            self.expect(argument, *expected)?;
        }
        if *name == "matches" {
            self.add_pattern(call.args.first())?;
        }
        Ok(*result)
    }

    fn add_pattern(&mut self, pattern: Option<&IdedExpr>) -> Result<(), LocatedFault> {
        let Some(part) = pattern else { return Ok(()) };
        let Expr::Literal(LiteralValue::String(pattern)) = &part.expr else {
            return Err(self.fault(part, ConditionFault::VariablePattern));
        };
        let compiled = patterns::compile(pattern.inner());
        let compiled = compiled.ok_or_else(|| self.fault(part, ConditionFault::InvalidPattern))?;
        self.parts.patterns.insert(pattern.inner().to_owned(), compiled);
        Ok(())
    }

    fn infer_loop(
        &mut self,
        part: &IdedExpr,
        one: &'a ComprehensionExpr,
    ) -> Result<CelType, LocatedFault> {
        let element = match self.infer_keys(&one.iter_range)? {
            CelType::Texts => CelType::Text,
            CelType::List | CelType::Map | CelType::RecordForm(_) | CelType::Dynamic => {
                CelType::Dynamic
            }
            other => {
                let (expected, found) = (CelType::List.word(), other.word());
                return Err(self.fault(&one.iter_range, ConditionFault::Type { expected, found }));
            }
        };
        if CONDITION_VARIABLES.iter().any(|(name, _)| *name == one.iter_var) {
            let name = one.iter_var.clone();
            return Err(self.fault(part, ConditionFault::Shadowed { name }));
        }
        if self.loops >= MAX_LOOPS {
            return Err(self.fault(part, ConditionFault::NestedLoops { max: MAX_LOOPS }));
        }
        let gathered = match self.infer(&one.accu_init)? {
            CelType::Texts => CelType::List,
            other => other,
        };
        self.loops += 1;
        self.scope.push((&one.iter_var, element));
        self.scope.push((&one.accu_var, gathered));
        self.infer(&one.loop_cond)?;
        self.infer(&one.loop_step)?;
        self.scope.truncate(self.scope.len() - 2);
        self.loops -= 1;
        self.scope.push((&one.accu_var, gathered));
        let result = self.infer(&one.result);
        self.scope.pop();
        result
    }

    /// A fault at a part, located at an operator or a name.
    fn fault(&self, part: &IdedExpr, fault: ConditionFault) -> LocatedFault {
        let text = &self.source.source;
        let (start, end) = self.source.offset_for(part.id).unwrap_or_default();
        fault.located(byte_at(text, start)..byte_at(text, end.max(start).saturating_add(1)))
    }
}

/// The byte of a character.
pub(super) fn byte_at(text: &str, character: u32) -> usize {
    let place = usize::try_from(character).unwrap_or(usize::MAX);
    text.char_indices().nth(place).map_or(text.len(), |(at, _)| at)
}

/// Returns true for a `null` that is written in the condition.
pub(super) fn is_null(part: &IdedExpr) -> bool {
    matches!(part.expr, Expr::Literal(LiteralValue::Null))
}

fn type_of_literal(literal: &LiteralValue) -> CelType {
    match literal {
        LiteralValue::Boolean(_) => CelType::Bool,
        LiteralValue::Bytes(_) => CelType::Bytes,
        LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => CelType::Number,
        LiteralValue::Null => CelType::Null,
        LiteralValue::String(_) => CelType::Text,
    }
}

/// Returns true if one of two values can be less than the other.
fn have_order(left: CelType, right: CelType) -> bool {
    let has_order = |one| {
        matches!(
            one,
            CelType::Bool | CelType::Number | CelType::Text | CelType::Bytes | CelType::Dynamic
        )
    };
    has_order(left) && has_order(right) && left.may_equal(right)
}

fn suggest(name: &str, known: &[&str]) -> String {
    match nearest_choice(name, known) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("expected one of: {}", known.join(", ")),
    }
}

/// The most brackets and prefixes that are open at a time.
const MAX_OPEN: usize = 64;
/// The most nodes of a condition.
const MAX_NODES: usize = 400;
/// The most levels of a condition.
const MAX_DEPTH: usize = 64;
/// The most loops within one another.
const MAX_LOOPS: usize = 2;
