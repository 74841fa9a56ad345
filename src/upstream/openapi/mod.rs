//! OpenAPI documents: the tools that they describe, and the requests of those tools. Performs no I/O.
//!
//! A document passes through [`tree`] (parsing), [`references`] (its files), [`document`] (the API),
//! [`operation`] with [`fields`], [`inputs`] and [`schema`] (its tools). A call passes through
//! [`request`] with [`parameters`], [`body`] and [`security`], and its response through [`answer`].
//! [`crate::upstream::transport::openapi`] reads the documents and sends the requests.

pub(super) mod answer;
mod base;
mod body;
pub(super) mod document;
mod fields;
mod inputs;
mod names;
pub(super) mod operation;
mod outputs;
mod parameters;
pub(super) mod references;
pub(super) mod request;
mod resources;
mod schema;
mod security;
mod selection;
mod tool_texts;
pub(super) mod tree;
