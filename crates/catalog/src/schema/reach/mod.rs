//! Bounds the evaluation cost of references and compositions, before a schema is compiled.
//!
//! Thirty lines of `$ref` can make a validator visit one value a billion times, or recurse until
//! the stack overflows. Three things are rejected here: a reference that does not resolve within
//! the schema itself (nothing is ever fetched), a chain of subschemas on one value that is endless
//! or longer than [`MAX_CHAIN`], and references that multiply beyond [`MAX_WORK`].
//!
//! A schema that refers to itself through a property can multiply again at each level of the
//! arguments. The validator caches its verdicts on such references, but not the errors:
//! [`SchemaReach::checking_cost`] bounds the cost of those.

mod index;

use std::collections::{BTreeMap, HashMap, HashSet};

use jsonschema::Draft;
use serde_json::{Map, Value};

use trunkline_jsonrpc::nesting_depth;

use super::SchemaError;
use super::bounds::find_patterns;
pub(crate) use index::REFERENCE_KEYWORDS;
use index::{SchemaIndex, node_address};

/// The longest chain of subschemas on one value.
pub(super) const MAX_CHAIN: usize = 32;
/// The most visits of a schema without recursion to one value.
pub(super) const MAX_WORK: usize = 16 * 1024;
/// The most visits to a byte that are cheap: 64 KiB of arguments for a schema that visits each value
/// 16 times, some milliseconds.
const CHEAP_COST: usize = 1024 * 1024;
/// The most visits to one value that are cheap for thousands of values.
const CHEAP_WEIGHT: usize = 64;
/// The number of values of an `enum`, or names of `required`, that cost as much as a visit.
const VALUES_A_VISIT: usize = 4;
/// The bytes of a text in an `enum` or a `const` that cost as much as a value.
const TEXT_A_VALUE: usize = 64;
/// The number of `properties` to look up that cost as much as a visit.
const MEMBERS_A_VISIT: usize = 4;

/// The cost of matching each pattern of a schema, in visits to a byte.
type PatternWeights<'a> = BTreeMap<&'a str, usize>;

type SchemaNode<'a> = &'a Map<String, Value>;

/// The evaluation cost of a schema within the bounds.
#[derive(Debug)]
pub(super) struct SchemaReach {
    /// The most visits to one value, recursion aside.
    work: usize,
    /// The factor by which that can grow with each level of recursion.
    growth: usize,
    recursive: bool,
    /// The most that an error for each byte of a value can cost, recursion aside, in visits: like
    /// `work`, with the data of the schema, which errors repeat.
    size: usize,
    /// The most that checking one byte of a value can cost: like `size`, with the patterns.
    weight: usize,
}

impl SchemaReach {
    /// The most bytes of arguments that are cheap to check.
    pub(super) fn cheap_length(&self) -> usize {
        CHEAP_COST / self.weight
    }

    /// Returns true if the quick check is cheap for arguments of any length: it visits at most some
    /// thousand values.
    pub(super) fn has_cheap_glance(&self) -> bool {
        self.weight <= CHEAP_WEIGHT
    }

    /// An upper bound on the cost of naming every violation of these arguments, in visits to a
    /// byte.
    pub(super) fn checking_cost(&self, arguments: &[u8]) -> usize {
        let once = arguments.len().saturating_mul(self.size);
        if !self.recursive {
            return once;
        }
        let levels = u32::try_from(nesting_depth(arguments)).unwrap_or(u32::MAX);
        once.saturating_mul(self.growth.saturating_pow(levels))
    }
}

/// A reference that leads to nothing within its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DanglingReference {
    /// The address of the subschema that has it. Valid until the subschema is moved.
    node: usize,
    /// The keyword.
    keyword: &'static str,
}

impl DanglingReference {
    /// The reference of a subschema by this keyword.
    pub(crate) fn new(node: &Map<String, Value>, keyword: &'static str) -> Self {
        Self { node: node_address(node), keyword }
    }
}

/// The references of a schema that lead to nothing within it; none if its identifiers are ambiguous.
/// `id` is the keyword that identifies a subschema.
pub(crate) fn find_dangling_references(
    schema: &Value,
    id: &'static str,
) -> HashSet<DanglingReference> {
    let Ok(index) = SchemaIndex::new(schema, id) else { return HashSet::new() };
    let dangling = index.all_nodes().flat_map(|node| {
        let keywords = index.dangling_references(node);
        keywords.map(move |keyword| DanglingReference::new(node, keyword))
    });
    dangling.collect()
}

/// Measures a schema, and rejects it if it exceeds a bound.
pub(super) fn measure_reach(
    schema: &Value,
    draft: Draft,
    patterns: &PatternWeights<'_>,
) -> Result<SchemaReach, SchemaError> {
    let id = if draft == Draft::Draft4 { "id" } else { "$id" };
    let index = SchemaIndex::new(schema, id)?;
    let mut heights = HashMap::new();
    for node in index.all_nodes() {
        chain_length(&index, node, 1, &mut heights)?;
    }
    measure_work(&index, patterns)
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
fn measure_work(
    index: &SchemaIndex<'_>,
    patterns: &PatternWeights<'_>,
) -> Result<SchemaReach, SchemaError> {
    let mut known: HashMap<usize, NodeWork> = HashMap::new();
    let mut reach = SchemaReach { work: 1, growth: 1, recursive: false, size: 1, weight: 1 };
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
                let count = add_up_work(index, node, &known, patterns)?;
                if count.work > MAX_WORK {
                    return Err(SchemaError::Work { max: MAX_WORK });
                }
                reach.work = reach.work.max(count.work);
                reach.growth = reach.growth.max(count.growth);
                reach.size = reach.size.max(count.size);
                reach.weight = reach.weight.max(count.weight);
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
    patterns: &PatternWeights<'_>,
) -> Result<NodeWork, SchemaError> {
    let of = |node: SchemaNode<'_>| known.get(&node_address(node)).copied().unwrap_or_default();
    let mut own = NodeWork { work: 1, growth: 0, size: own_size(node), weight: 0 };
    let matching = find_patterns(node).filter_map(|text| patterns.get(text));
    own.weight = matching.fold(own.size, |sum, weight| sum.saturating_add(*weight));
    let mut heaviest = NodeWork::default();
    for part in SchemaIndex::child_schemas(node).map(of) {
        own.growth = 1;
        heaviest.work = heaviest.work.max(part.work);
        heaviest.size = heaviest.size.max(part.size);
        heaviest.weight = heaviest.weight.max(part.weight);
    }
    let same = index.schemas_on_same_value(node)?.into_iter().map(of);
    Ok(same.fold(own.add(heaviest), NodeWork::add))
}

/// The cost of a subschema itself for each byte of a value, in visits, without its patterns.
fn own_size(node: SchemaNode<'_>) -> usize {
    let data = ["enum", "const", "required", "dependentRequired", "dependencies"];
    let data = data.iter().filter_map(|key| node.get(*key)).map(count_values).sum::<usize>();
    let members = node.get("properties").and_then(Value::as_object).map_or(0, Map::len);
    1 + data / VALUES_A_VISIT + members / MEMBERS_A_VISIT
}

/// The size of data in a schema: its values, and its texts by their length.
fn count_values(data: &Value) -> usize {
    let (mut count, mut open) = (0, vec![data]);
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            Value::String(text) => count += text.len() / TEXT_A_VALUE,
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
    count
}

/// The result for a subschema; all zero while it is open.
#[derive(Clone, Copy, Default)]
struct NodeWork {
    /// Visits to one value.
    work: usize,
    /// Subschemas that continue from this value to its parts.
    growth: usize,
    /// The cost of an error for each byte.
    size: usize,
    /// The cost of checking one byte.
    weight: usize,
}

impl NodeWork {
    fn add(self, other: Self) -> Self {
        Self {
            work: self.work.saturating_add(other.work),
            growth: self.growth.saturating_add(other.growth),
            size: self.size.saturating_add(other.size),
            weight: self.weight.saturating_add(other.weight),
        }
    }
}

enum WalkStep {
    /// Visit the node's targets.
    Enter,
    /// All targets are known: add them up.
    Leave,
}
