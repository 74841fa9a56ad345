//! How far references and compositions reach, before a schema is compiled.
//!
//! Thirty lines of `$ref` can make a validator look at one value a billion
//! times, or recurse until the stack ends. Three things are refused here: a
//! reference that does not resolve within the schema itself (nothing is ever
//! fetched), a chain of subschemas on one value that is endless or longer than
//! [`MAX_CHAIN`], and references that multiply beyond [`MAX_WORK`].
//!
//! What is left unbounded: a schema that refers to itself through a property
//! multiplies once more per level of the arguments, whose depth is bounded.

mod index;

use std::collections::HashMap;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::SchemaError;
use index::{Index, address};

/// The most subschemas that may follow one another on one and the same value.
pub const MAX_CHAIN: usize = 32;
/// The most times that a schema without recursion may look at one value.
pub const MAX_WORK: usize = 16 * 1024;

type Node<'a> = &'a Map<String, Value>;

/// Refuses a schema that reaches too far. What it gives is how often one value
/// is looked at, at most, recursion aside.
pub(super) fn bound(schema: &Value, draft: Draft) -> Result<usize, SchemaError> {
    let id = if draft == Draft::Draft4 { "id" } else { "$id" };
    let index = Index::new(schema, id)?;
    let mut heights = HashMap::new();
    for node in index.nodes() {
        height(&index, node, 1, &mut heights)?;
    }
    work(&index)
}

/// The length of the longest chain of subschemas that apply to one value,
/// starting at `node`; `depth` is the chain's length down to it.
fn height<'a>(
    index: &Index<'a>,
    node: Node<'a>,
    depth: usize,
    known: &mut HashMap<usize, usize>,
) -> Result<usize, SchemaError> {
    if let Some(height) = known.get(&address(node)) {
        return Ok(*height);
    }
    // An endless chain passes every bound: it needs no mark of its own.
    if depth > MAX_CHAIN {
        return Err(SchemaError::Chain { max: MAX_CHAIN });
    }
    let mut highest = 0;
    for next in index.same_value(node)? {
        highest = highest.max(height(index, next, depth + 1, known)?);
    }
    let height = highest + 1;
    if height > MAX_CHAIN {
        return Err(SchemaError::Chain { max: MAX_CHAIN });
    }
    known.insert(address(node), height);
    Ok(height)
}

/// Bounds how often one value is looked at, whatever the arguments.
///
/// Subschemas on the same value add up. Of those on parts of it (properties,
/// items) the largest counts: each part is another value. A way back to a
/// subschema that is still open is recursion and counts as nothing. The walk
/// keeps its own stack: its depth is the server's choice.
fn work(index: &Index<'_>) -> Result<usize, SchemaError> {
    let mut known: HashMap<usize, usize> = HashMap::new();
    let mut open: Vec<(Node<'_>, Step)> = index.nodes().map(|node| (node, Step::Enter)).collect();
    while let Some((node, step)) = open.pop() {
        match step {
            Step::Enter if known.contains_key(&address(node)) => {}
            Step::Enter => {
                known.insert(address(node), 0);
                open.push((node, Step::Leave));
                let next = index.same_value(node)?.into_iter().chain(Index::parts(node));
                open.extend(next.map(|node| (node, Step::Enter)));
            }
            Step::Leave => {
                let of = |node: Node<'_>| known.get(&address(node)).copied().unwrap_or(0);
                let same = index.same_value(node)?.into_iter().map(of);
                let sum = same.fold(1, usize::saturating_add);
                let part = Index::parts(node).map(of).max().unwrap_or(0);
                let total = sum.saturating_add(part);
                if total > MAX_WORK {
                    return Err(SchemaError::Work { max: MAX_WORK });
                }
                known.insert(address(node), total);
            }
        }
    }
    Ok(known.into_values().max().unwrap_or(0))
}

enum Step {
    /// Look at what the node leads to.
    Enter,
    /// All that it leads to is known: add it up.
    Leave,
}
