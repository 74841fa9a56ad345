//! The complete validator of a schema, built on demand.
//!
//! A validator takes tens of kilobytes, and most calls never need it: the quick check
//! ([`super::glance`]) admits their arguments. So it is kept only for schemas that the quick check
//! cannot handle; the others build it at the first call that needs it. Before that, a validator is
//! built and dropped to check that the schema is valid, unless it is plainly valid
//! ([`super::plain`]).

use std::sync::OnceLock;

use jsonschema::{Draft, Validator};
use serde_json::Value;

use trunkline_jsonrpc::JsonError;

use super::{PatternLimits, SchemaError, build_validator, plain};

/// A schema that compiles, and its validator, which may be built at first use.
#[derive(Debug)]
pub(super) struct LazyValidator {
    /// The schema as JSON text; empty if the validator was kept.
    schema: Box<str>,
    draft: Draft,
    limits: PatternLimits,
    built: OnceLock<Result<Box<Validator>, SchemaError>>,
}

impl LazyValidator {
    /// Checks the schema, and keeps the validator if calls will need it.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema is invalid.
    pub(super) fn new(
        schema: &Value,
        draft: Draft,
        limits: PatternLimits,
        will_be_asked: bool,
    ) -> Result<Self, SchemaError> {
        let (built, schema) = if will_be_asked {
            (OnceLock::from(Ok(Box::new(build_validator(schema, draft, limits)?))), Box::default())
        } else {
            if !plain::is_plain_schema(schema, draft) {
                build_validator(schema, draft, limits)?;
            }
            (OnceLock::new(), schema.to_string().into_boxed_str())
        };
        Ok(Self { schema, draft, limits, built })
    }

    /// The validator.
    ///
    /// # Errors
    /// [`SchemaError`], which compiling the schema would have reported already.
    pub(super) fn validator(&self) -> Result<&Validator, &SchemaError> {
        let build = || {
            let schema = serde_json::from_str(&self.schema)
                .map_err(|_| SchemaError::Json(JsonError::Syntax))?;
            build_validator(&schema, self.draft, self.limits).map(Box::new)
        };
        self.built.get_or_init(build).as_ref().map(AsRef::as_ref)
    }
}
