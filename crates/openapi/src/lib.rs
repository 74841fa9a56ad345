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
mod exchange;
mod operations;
mod values;
mod schemas;

pub use document::fault::DocumentFault;
pub use document::tree::{MAX_BYTES, TreeBudget, parse_tree};
pub use document::{ApiDescription, MANY_TOOLS, describe_api};
pub use exchange::answer::{ApiAnswer, refusal};
pub use exchange::request::ApiRequest;
pub use operations::operation::ApiOperation;
pub use schemas::references::{DocumentSet, external_files};
