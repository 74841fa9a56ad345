//! OpenAPI documents: the tools that they describe, and the requests of those tools.
//!
//! A document passes through [`parse_tree`], a [`DocumentSet`] with its files, and [`describe_api`],
//! which makes tools and resources of its operations ([`ApiDescription`]). A call passes through
//! [`ApiOperation::request`], and its response through [`ApiAnswer`].
//!
//! Performs no I/O: the gateway reads the documents and sends the requests. The document decides the form
//! of requests, and no argument leaves its position in them. Modules are listed in the order of use.

#![warn(unreachable_pub)]

mod document;
mod resources;
mod answer;
mod request;
mod base;
mod tool_texts;
mod fields;
mod operation;
mod outputs;
mod selection;
mod reader;
mod security;
mod inputs;
mod body;
mod arguments;
mod parameters;
mod schema;
mod names;
mod references;
mod fault;
mod tree;
mod text_limits;

pub use answer::{ApiAnswer, refusal};
pub use document::{ApiDescription, MANY_TOOLS, describe_api};
pub use fault::DocumentFault;
pub use operation::ApiOperation;
pub use references::{DocumentSet, external_files};
pub use request::ApiRequest;
pub use tree::{MAX_BYTES, TreeBudget, parse_tree};
