//! Schemas of a document as JSON Schema, and the targets of its references.

pub(crate) mod conversion;
pub(crate) mod names;
pub(crate) mod references;
