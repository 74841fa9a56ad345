//! `when`: a condition in CEL (Common Expression Language), compiled and checked when the
//! configuration is read.
//!
//! An accepted condition has a known vocabulary, results in a boolean as far as the types are
//! known, and has a bounded cost: its text, its loops and its patterns are bounded here, and
//! [`Condition::estimate`] bounds its cost with values of certain sizes. `policy` provides the
//! values.

mod check;
mod comparison;
mod cost;
mod evaluation;
mod literals;
mod patterns;
mod reads;
mod split;
mod terms;
mod vocabulary;

pub use cost::{ConditionCost, ValueSize};
pub use evaluation::EvaluationFault;
pub use reads::{ConditionReads, MemberReads};
pub use terms::FailingTerm;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::types::CelBool;
use cel::common::value::Val;
use cel::{Context, Env, IdedExpr, Value};

use crate::faults::FoundProblem;
use crate::faults::condition::{self, ConditionFault, LocatedFault};
use crate::faults::problem::SettingFault;
use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};
use check::Checker;
use comparison::check_types;

/// A compiled condition.
#[derive(Clone)]
pub struct Condition(Arc<CompiledCondition>);

struct CompiledCondition {
    text: Box<str>,
    /// The operands of its outermost `&&`, as written; empty for a part of a condition.
    terms: Vec<Box<str>>,
    /// As written.
    expression: IdedExpr,
    /// The same with comparisons that check types.
    checked: IdedExpr,
    /// The functions, to which each evaluation adds its variables.
    root: Arc<Context<'static, 'static>>,
    reads: Arc<ConditionReads>,
    split: Option<SplitCondition>,
}

/// The two parts of a condition `a && b`. Both hold exactly if the condition holds. If one of them
/// does not hold, the condition does not hold either, whatever the other part evaluates to.
#[derive(Clone)]
pub struct SplitCondition {
    /// The part that does not depend on a call.
    pub before_call: Condition,
    /// The part that depends on a call.
    pub of_call: Condition,
}

/// A value of a variable.
pub type ConditionValue<'v> = Box<dyn Val + 'v>;

impl Condition {
    /// The longest text of a condition, in bytes.
    pub const MAX_LEN: usize = 2048;

    /// Compiles and checks a condition.
    ///
    /// # Errors
    /// The fault, and its characters.
    fn compile(text: &str) -> Result<Self, LocatedFault> {
        if text.len() > Self::MAX_LEN {
            return Err(ConditionFault::TooLong { max: Self::MAX_LEN }.anywhere());
        }
        check::check_brackets(text)?;
        // The parser is a dependency: a panic in it must not end the gateway.
        let parsed = catch_unwind(AssertUnwindSafe(|| STANDARD_ENV.compile(text)));
        let program = match parsed {
            Ok(Ok(program)) => program,
            Ok(Err(errors)) => return Err(condition::from_parser(text, &errors)),
            Err(_) => return Err(ConditionFault::Unreadable.anywhere()),
        };
        let whole = program.expression();
        let found = Checker::new(program.source_info()).check(whole)?;
        let mut root = Context::with_env(Arc::clone(&STANDARD_ENV));
        patterns::add_to(&mut root, found.patterns);
        let root = Arc::new(root);
        let part = |expression: IdedExpr, reads: ConditionReads, split, terms| {
            let (text, root) = (text.into(), Arc::clone(&root));
            let (reads, checked) = (Arc::new(reads), check_types(&expression, &found.unsure));
            let compiled =
                CompiledCondition { text, terms, expression, checked, root, reads, split };
            Self(Arc::new(compiled))
        };
        let split = split::split_by_call(whole, program.source_info());
        let split = split.map(|[before, of_call]| SplitCondition {
            before_call: part(before.expression, before.reads, None, Vec::new()),
            of_call: part(of_call.expression, of_call.reads, None, Vec::new()),
        });
        let terms = terms::split_text(text, whole, program.source_info());
        let condition = part(whole.clone(), found.reads, split, terms);
        // The cost without any values is the same each time.
        if condition.estimate(|_| ValueSize::default()).steps > ConditionCost::MAX_STEPS {
            return Err(ConditionFault::TooCostly.anywhere());
        }
        Ok(condition)
    }

    /// The text as written.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The variables that it reads.
    #[inline]
    pub fn reads(&self) -> &Arc<ConditionReads> {
        &self.0.reads
    }

    /// The texts that are written in it.
    #[inline]
    pub fn literals(&self) -> Vec<&str> {
        literals::gather_literals(&self.0.expression)
    }

    /// Its part that a call does not change, and the rest; `None` if one of them is missing.
    #[inline]
    pub fn split(&self) -> Option<&SplitCondition> {
        self.0.split.as_ref()
    }

    /// An upper bound of the cost of an evaluation, with variables of these sizes.
    #[inline]
    pub fn estimate(&self, size_of: impl Fn(&str) -> ValueSize) -> ConditionCost {
        cost::estimate(&self.0.expression, &size_of)
    }

    /// Evaluates it with these variables. A missing variable is unknown: it matters only if the
    /// others do not decide.
    ///
    /// # Errors
    /// [`EvaluationFault`].
    pub fn evaluate<'v>(
        &'v self,
        variables: impl IntoIterator<Item = (&'static str, ConditionValue<'v>)>,
    ) -> Result<bool, EvaluationFault> {
        let scope = self.scope_with(variables);
        let evaluated = catch_unwind(AssertUnwindSafe(|| {
            let value = Value::resolve_val(&self.0.checked, &scope);
            let value = value.map(|value| value.downcast_ref::<CelBool>().map(|it| *it.inner()));
            match value {
                Ok(Some(value)) => Ok(value),
                Ok(None) => Err(EvaluationFault::NotBool),
                Err(_) => Err(evaluation::locate_fault(&self.0.checked, &scope)),
            }
        }));
        evaluated.unwrap_or(Err(EvaluationFault::Unknown))
    }

    /// Returns the first operand of the outermost `&&` that does not hold with these variables;
    /// `None` if all of them hold.
    pub fn find_failing_term<'v>(
        &'v self,
        variables: impl IntoIterator<Item = (&'static str, ConditionValue<'v>)>,
    ) -> Option<FailingTerm> {
        let scope = self.scope_with(variables);
        let find = || terms::find_failing(&self.0.checked, &self.0.terms, &scope);
        catch_unwind(AssertUnwindSafe(find)).unwrap_or(None)
    }

    #[inline]
    fn scope_with<'v>(
        &'v self,
        variables: impl IntoIterator<Item = (&'static str, ConditionValue<'v>)>,
    ) -> Context<'v, 'v> {
        let root: &Context<'_, 'v> = &self.0.root;
        let mut scope = root.new_inner_scope();
        for (name, value) in variables {
            scope.add_variable_as_val(name, value);
        }
        scope
    }
}

/// The standard functions and macros, without optional values.
static STANDARD_ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib().with_optional_support(false);
    comparison::add_to(&mut env);
    Arc::new(env)
});

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl Setting for Condition {
    type Value = Self;

    fn kind_word() -> String {
        "condition in CEL".into()
    }

    fn example_value() -> String {
        "\"arguments.repo == 'acme/app'\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.expect_plain_string::<Self>(reader)?;
        match Self::compile(text) {
            Ok(condition) => Some(condition),
            Err(LocatedFault { fault, at }) => {
                let span = node.span_within(text, at.clone());
                let place = text.get(..at.start).map_or(0, |before| before.chars().count()) + 1;
                let problem = SettingFault::Condition { fault, place };
                let (shown, key) = (node.span.clone(), node.key.clone());
                reader.found.push(FoundProblem { span, shown, key, problem });
                None
            }
        }
    }

    fn json_schema() -> serde_json::Value {
        serde_json::json!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests;
