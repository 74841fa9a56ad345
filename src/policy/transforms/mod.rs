//! Transforms: what the configuration changes about the arguments of a tool's calls. Pure functions
//! over bytes; `policy` decides when they run, and the catalog has the schema that clients see.

mod arguments;

pub(super) use arguments::{complete_arguments, explain_to_client};
