//! Bounds the evaluation cost of references and compositions, before a schema is compiled.
//!
//! Thirty lines of `$ref` can make a validator visit one value a billion times, or recurse until
//! the stack overflows. Three things are rejected here: a reference that does not resolve within
//! the schema itself (nothing is ever fetched), a chain of subschemas on one value that is endless
//! or longer than [`MAX_CHAIN`], and references that multiply beyond [`MAX_WORK`].
//!
//! A schema that refers to itself through a property can multiply again at each level of the
//! arguments. The validator caches its verdicts on such references, but not the errors:
//! [`SchemaReach::checking_cost`] tells when those are too many.

mod index;

use std::collections::HashMap;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::SchemaError;
use crate::jsonrpc::nesting_depth;
use index::{SchemaIndex, node_address};

/// The longest chain of subschemas on one value.
pub(super) const MAX_CHAIN: usize = 32;
/// The most visits of a schema without recursion to one value.
pub(super) const MAX_WORK: usize = 16 * 1024;

type SchemaNode<'a> = &'a Map<String, Value>;

/// The evaluation cost of a schema within the bounds.
#[derive(Debug)]
pub(super) struct SchemaReach {
    /// The most visits to one value, recursion aside.
    work: usize,
    /// The factor by which that can grow with each level of recursion.
    growth: usize,
    recursive: bool,
}

impl SchemaReach {
    /// An upper bound on the cost of naming every violation of these arguments, in visits to a
    /// byte.
    pub(super) fn checking_cost(&self, arguments: &[u8]) -> usize {
        let once = arguments.len().saturating_mul(self.work);
        if !self.recursive {
            return once;
        }
        let levels = u32::try_from(nesting_depth(arguments)).unwrap_or(u32::MAX);
        once.saturating_mul(self.growth.saturating_pow(levels))
    }
}

/// Measures a schema, and rejects it if it exceeds a bound.
pub(super) fn measure_reach(schema: &Value, draft: Draft) -> Result<SchemaReach, SchemaError> {
    let id = if draft == Draft::Draft4 { "id" } else { "$id" };
    let index = SchemaIndex::new(schema, id)?;
    let mut heights = HashMap::new();
    for node in index.all_nodes() {
        chain_length(&index, node, 1, &mut heights)?;
    }
    measure_work(&index)
}

/// The length of the longest chain of subschemas on one value, starting at `node`; `depth` is the
/// length of the chain before it.
fn chain_length<'a>(
    index: &SchemaIndex<'a>,
    node: SchemaNode<'a>,
    depth: usize,
    known: &mut HashMap<usize, usize>,
) -> Result<usize, SchemaError> {
    if let Some(height) = known.get(&node_address(node)) {
        return Ok(*height);
    }
    // An endless chain exceeds every bound, so it needs no detection of its own.
    if depth > MAX_CHAIN {
        return Err(SchemaError::Chain { max: MAX_CHAIN });
    }
    let mut highest = 0;
    for next in index.schemas_on_same_value(node)? {
        highest = highest.max(chain_length(index, next, depth + 1, known)?);
    }
    let height = highest + 1;
    if height > MAX_CHAIN {
        return Err(SchemaError::Chain { max: MAX_CHAIN });
    }
    known.insert(node_address(node), height);
    Ok(height)
}

/// Bounds the visits to one value, for any arguments.
///
/// Subschemas on the same value add up. Of the subschemas on its parts (properties, items) the
/// largest counts, because each part is a different value. A reference back to a subschema that is
/// still open is recursion and counts as zero. The walk keeps its own stack, because the server
/// chooses the depth.
fn measure_work(index: &SchemaIndex<'_>) -> Result<SchemaReach, SchemaError> {
    let mut known: HashMap<usize, NodeWork> = HashMap::new();
    let mut reach = SchemaReach { work: 1, growth: 1, recursive: false };
    let mut open: Vec<(SchemaNode<'_>, WalkStep)> =
        index.all_nodes().map(|node| (node, WalkStep::Enter)).collect();
    while let Some((node, step)) = open.pop() {
        match (step, known.get(&node_address(node))) {
            (WalkStep::Enter, Some(count)) => reach.recursive |= count.work == 0,
            (WalkStep::Enter, None) => {
                known.insert(node_address(node), NodeWork::default());
                open.push((node, WalkStep::Leave));
                let next = index
                    .schemas_on_same_value(node)?
                    .into_iter()
                    .chain(SchemaIndex::child_schemas(node));
                open.extend(next.map(|node| (node, WalkStep::Enter)));
            }
            (WalkStep::Leave, _) => {
                let count = add_up_work(index, node, &known)?;
                if count.work > MAX_WORK {
                    return Err(SchemaError::Work { max: MAX_WORK });
                }
                reach.work = reach.work.max(count.work);
                reach.growth = reach.growth.max(count.growth);
                known.insert(node_address(node), count);
            }
        }
    }
    Ok(reach)
}

/// Adds up the work of a subschema's targets.
fn add_up_work<'a>(
    index: &SchemaIndex<'a>,
    node: SchemaNode<'a>,
    known: &HashMap<usize, NodeWork>,
) -> Result<NodeWork, SchemaError> {
    let of = |node: SchemaNode<'_>| known.get(&node_address(node)).copied().unwrap_or_default();
    let part = SchemaIndex::child_schemas(node).map(|part| of(part).work).max();
    let own = NodeWork { work: part.unwrap_or(0) + 1, growth: usize::from(part.is_some()) };
    let same = index.schemas_on_same_value(node)?.into_iter().map(of);
    Ok(same.fold(own, |sum, next| NodeWork {
        work: sum.work.saturating_add(next.work),
        growth: sum.growth.saturating_add(next.growth),
    }))
}

/// The result for a subschema; all zero while it is open.
#[derive(Clone, Copy, Default)]
struct NodeWork {
    /// Visits to one value.
    work: usize,
    /// Subschemas that continue from this value to its parts.
    growth: usize,
}

enum WalkStep {
    /// Visit the node's targets.
    Enter,
    /// All targets are known: add them up.
    Leave,
}
