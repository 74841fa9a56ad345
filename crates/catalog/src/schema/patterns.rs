//! Measures the cost of compiling the regular expressions of a schema, before the schema is
//! compiled.
//!
//! A pattern of ten bytes may take a megabyte once it is compiled, and one of a few kilobytes
//! hundreds of megabytes during compilation. So the text of a pattern is judged first, and then it
//! is compiled alone, with ever higher limits, until one suffices. Every attempt is charged, before
//! it is made, to the schema and to the list that the schema is part of. Nothing here depends on
//! time: the same list always has the same tools.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Draft;
use serde_json::json;

use super::{PatternEngine, PatternLimits, SchemaError, build_with_engine};

/// The bytes that compiling the patterns of one server's list may still take.
#[derive(Debug)]
pub(crate) struct PatternBudget {
    left: usize,
}

impl Default for PatternBudget {
    fn default() -> Self {
        Self { left: MAX_LIST_BYTES }
    }
}

impl PatternBudget {
    /// Charges some bytes. Once a charge does not fit, every later one is refused as well: the
    /// omitted tools must not depend on the order of compilation.
    ///
    /// # Errors
    /// [`SchemaError::ListPatterns`].
    pub(crate) fn spend(&mut self, bytes: usize) -> Result<(), SchemaError> {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(SchemaError::ListPatterns { max: MAX_LIST_BYTES })
    }
}

/// The cost of a schema's patterns.
#[derive(Debug, Default)]
pub(super) struct PatternCosts<'a> {
    /// The bytes that were charged for compiling them.
    pub charged: usize,
    /// The limits within which the schema is compiled.
    pub limits: PatternLimits,
    /// The cost of matching each, in visits to a byte.
    pub matching: BTreeMap<&'a str, usize>,
}

/// Measures the patterns of a schema, each of them once.
///
/// # Errors
/// [`SchemaError::PatternBytes`] and [`SchemaError::ListPatterns`] if compiling them takes too much.
pub(super) fn measure_patterns<'a>(
    patterns: &BTreeSet<&'a str>,
    draft: Draft,
    budget: &mut PatternBudget,
) -> Result<PatternCosts<'a>, SchemaError> {
    let looking = patterns.iter().filter(|text| choose_engine(text) == PatternEngine::Backtracking);
    let mut parts = looking.map(|text| count_parts(text)).max().unwrap_or(1);
    let limits = PatternLimits::new(patterns.len(), parts);
    let mut costs = PatternCosts { charged: 0, limits, matching: BTreeMap::new() };
    for text in patterns {
        let found = measure_pattern(text, draft, limits, &mut |bytes| {
            costs.charged += bytes;
            if costs.charged > MAX_SCHEMA_BYTES {
                return Err(SchemaError::PatternBytes { max: MAX_SCHEMA_BYTES });
            }
            budget.spend(bytes)
        })?;
        if found.is_none() {
            // The backtracking engine knows more than look-around: any character may end a part.
            parts = parts.max(text.len());
        }
        costs.matching.insert(text, found.unwrap_or(BACKTRACKING_WEIGHT));
    }
    costs.limits = PatternLimits::new(patterns.len(), parts);
    Ok(costs)
}

/// Returns true if a pattern compiles within the bounds of a schema that has no other.
pub fn is_usable_pattern(text: &str) -> bool {
    let limits = PatternLimits::new(1, count_parts(text));
    let mut left = MAX_SCHEMA_BYTES;
    let mut spend = |bytes| {
        left =
            left.checked_sub(bytes).ok_or(SchemaError::PatternBytes { max: MAX_SCHEMA_BYTES })?;
        Ok(())
    };
    matches!(measure_pattern(text, Draft::Draft202012, limits, &mut spend), Ok(Some(_)))
}

/// Returns true if a pattern compiles alone into very little, at little cost.
pub(crate) fn is_small_pattern(text: &str) -> bool {
    let limits = PatternLimits { linear: SMALL_BYTES, part: SMALL_BYTES, cache: SMALL_BYTES };
    let schema = json!({ "pattern": text });
    [PatternEngine::Linear, PatternEngine::Backtracking]
        .into_iter()
        .any(|engine| build_with_engine(&schema, Draft::Draft202012, limits, engine).is_ok())
}

/// Finds the cost of matching a pattern; `None` if it does not compile alone. It may be data:
/// otherwise compiling the schema reports it.
fn measure_pattern(
    text: &str,
    draft: Draft,
    limits: PatternLimits,
    spend: &mut dyn FnMut(usize) -> Result<(), SchemaError>,
) -> Result<Option<usize>, SchemaError> {
    let engine = choose_engine(text);
    spend(text.len() * BYTES_OF_TEXT + class_bytes(text, engine))?;
    let schema = json!({ "pattern": text });
    let (most, parts, least) = match engine {
        PatternEngine::Linear => (limits.linear, 1, 0),
        PatternEngine::Backtracking => (limits.part, count_parts(text), BACKTRACKING_WEIGHT),
    };
    for (size, weight) in AUTOMATON_SIZES {
        let size = size.min(most);
        spend(parts * 2 * size + one_pass_bytes(text, size, parts))?;
        let attempt = PatternLimits { linear: size, part: size, ..limits };
        if build_with_engine(&schema, draft, attempt, engine).is_ok() {
            return Ok(Some(weight.max(least)));
        }
        if size == most {
            break;
        }
    }
    Ok(None)
}

/// The most bytes of the one-pass automata of a pattern: each of its parts that has groups or word
/// boundaries has one, beside the automaton of `size` bytes and another that runs backwards.
fn one_pass_bytes(text: &str, size: usize, parts: usize) -> usize {
    let bytes = text.as_bytes();
    let needs_one = |three: &&[u8]| match three {
        [b'(', b'?', next] => matches!(next, b'P' | b'<'),
        [b'(', ..] | [b'\\', b'b' | b'B', _] => true,
        _ => false,
    };
    let needed = bytes.windows(3).filter(needs_one).count();
    let ends_in_boundary = text.ends_with("\\b") || text.ends_with("\\B");
    (needed + usize::from(ends_in_boundary)).min(parts) * (size * ONE_PASS).min(MAX_ONE_PASS_BYTES)
}

/// The bytes that reading the character classes of a pattern may take: some have a thousand ranges,
/// and case-insensitive ones are compared with every letter that has a case.
fn class_bytes(text: &str, engine: PatternEngine) -> usize {
    let bytes = text.as_bytes();
    let has_flags = bytes.windows(3).any(|three| {
        three.starts_with(b"(?") && three.last().is_some_and(|c| *c == b'-' || is_flag(*c))
    });
    if has_flags {
        let classes = bytes.iter().filter(|byte| matches!(byte, b'[' | b'\\' | b'.')).count();
        return classes * BYTES_OF_FOLDED_CLASS;
    }
    let large = |two: &&[u8]| match two {
        [b'\\', b'p' | b'P'] => true,
        // These have the ranges of Unicode, unless they are translated.
        [b'\\', _] => engine == PatternEngine::Backtracking,
        _ => false,
    };
    bytes.windows(2).filter(large).count() * BYTES_OF_CLASS
}

fn is_flag(byte: u8) -> bool {
    byte.is_ascii_alphabetic() && byte != b'P'
}

/// The engine for a pattern: look-around and back-references need the backtracking one.
fn choose_engine(text: &str) -> PatternEngine {
    let bytes = text.as_bytes();
    let looks = |three: &[u8]| matches!(three, [b'(', b'?', b'=' | b'!' | b'<' | b'>']);
    if bytes.windows(3).any(looks) || count_references(text) > 0 {
        PatternEngine::Backtracking
    } else {
        PatternEngine::Linear
    }
}

fn count_references(text: &str) -> usize {
    let refers = |two: &&[u8]| matches!(two, [b'\\', b'1'..=b'9' | b'k']);
    text.as_bytes().windows(2).filter(refers).count()
}

/// The most parts of a pattern with look-around that are compiled separately, each within the
/// limit.
fn count_parts(text: &str) -> usize {
    let count = |wanted: u8| text.bytes().filter(|byte| *byte == wanted).count();
    1 + 2 * count(b'(') + count(b'|') + count_references(text)
}

/// The limits of automata that are tried, and the cost of matching a pattern that fits, in visits
/// to a byte: at worst, every state is visited for every byte of a text.
const AUTOMATON_SIZES: [(usize, usize); 4] =
    [(4 * 1024, 16), (32 * 1024, 512), (256 * 1024, 4 * 1024), (1024 * 1024, 16 * 1024)];
/// The least cost of matching a pattern with look-around.
const BACKTRACKING_WEIGHT: usize = 1024;
/// The most bytes that compiling the patterns of one list may take.
pub(super) const MAX_LIST_BYTES: usize = 256 * 1024 * 1024;
/// The most bytes that compiling the patterns of one schema may take.
pub(super) const MAX_SCHEMA_BYTES: usize = 16 * 1024 * 1024;
/// The greatest ratio of a pattern's one-pass automaton to its automaton.
const ONE_PASS: usize = 24;
/// The most bytes of a one-pass automaton, which is the engine's own limit.
const MAX_ONE_PASS_BYTES: usize = 1024 * 1024;
/// The cost of one byte of a pattern's text, in bytes.
const BYTES_OF_TEXT: usize = 64;
/// The cost of a Unicode class, in bytes.
const BYTES_OF_CLASS: usize = 16 * 1024;
/// The cost of a case-insensitive class each time it is read, in bytes.
const BYTES_OF_FOLDED_CLASS: usize = 192 * 1024;
/// The most bytes of a pattern that compiles into very little.
const SMALL_BYTES: usize = 64 * 1024;
