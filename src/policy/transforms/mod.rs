//! Transforms: configured changes of a tool's arguments and results. Pure functions over bytes:
//! `policy` and `pipeline` decide when they run, and the catalog has the schema that clients see.

mod arguments;
mod clean;
mod contents;
mod cut;
mod format;
mod message;
mod result;
mod size;

pub(super) use arguments::{complete_arguments, explain_to_client};
pub use message::{text_of, value_text};
pub use result::{shape_result, shape_task};
pub use size::{KeepWhole, KeptResource, WholeText};

/// Limit of the nesting of a result that is changed.
const MAX_RESULT_DEPTH: usize = 64;
