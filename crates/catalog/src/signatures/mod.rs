//! Tools in fewer words than their schemas: one line, or a declaration in TypeScript.

pub(crate) mod code_api;
pub(crate) mod declaration;
pub(crate) mod schema_shape;
pub(crate) mod signature;
