//! `matches`, with patterns that were compiled when the condition was.

use std::collections::HashMap;
use std::sync::Arc;

use cel::extractors::This;
use cel::{Context, ExecutionError};
use regex::{Regex, RegexBuilder};

/// The compiled patterns of a condition.
pub(super) type CompiledPatterns = HashMap<String, Regex>;

/// Compiles a pattern; `None` if it is no regular expression, or too large. The engine takes time
/// that is linear in the text.
pub(super) fn compile(pattern: &str) -> Option<Regex> {
    let bounded = RegexBuilder::new(pattern).size_limit(MAX_SIZE).dfa_size_limit(MAX_CACHE).build();
    bounded.ok()
}

/// Adds `matches` to the functions of a condition that has patterns.
pub(super) fn add_to(root: &mut Context<'static, 'static>, patterns: CompiledPatterns) {
    if patterns.is_empty() {
        return;
    }
    let matches = move |This(text): This<Arc<String>>, pattern: Arc<String>| {
        let pattern = patterns.get(&*pattern);
        let pattern = pattern.ok_or_else(|| ExecutionError::undeclared_reference("matches"))?;
        Ok::<bool, ExecutionError>(pattern.is_match(&text))
    };
    // The standard functions have no `matches` without the crate's own engine.
    let _ = root.add_function("matches", matches);
}

/// The largest compiled pattern, in bytes.
const MAX_SIZE: usize = 256 << 10;
/// The largest cache of its automaton, in bytes.
const MAX_CACHE: usize = 1 << 20;
