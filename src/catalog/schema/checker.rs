//! The whole check of a schema's rules, built when it is needed.
//!
//! A validator takes tens of kilobytes, and most calls never ask it: their
//! arguments are plainly admitted by a glance. So it is kept only where no
//! glance can stand in for it, and the others are built by the first call that
//! has to ask. Before that one is built to see that the schema is one, unless
//! that is plain.

use std::sync::OnceLock;

use jsonschema::{Draft, Validator};
use serde_json::Value;

use super::{SchemaError, build_validator, plain};

/// A schema that compiles, and its validator from when it is first asked.
#[derive(Debug)]
pub(super) struct LazyValidator {
    /// The schema as JSON text; empty where the validator was kept.
    schema: Box<str>,
    draft: Draft,
    patterns: usize,
    built: OnceLock<Result<Box<Validator>, SchemaError>>,
}

impl LazyValidator {
    /// Builds the validator, and keeps it if calls will ask it.
    ///
    /// # Errors
    /// [`SchemaError`] where the schema is none.
    pub(super) fn new(
        schema: &Value,
        draft: Draft,
        patterns: usize,
        will_be_asked: bool,
    ) -> Result<Self, SchemaError> {
        let (built, schema) = if will_be_asked {
            (
                OnceLock::from(Ok(Box::new(build_validator(schema, draft, patterns)?))),
                Box::default(),
            )
        } else {
            if !plain::is_plain_schema(schema, draft) {
                build_validator(schema, draft, patterns)?;
            }
            (OnceLock::new(), schema.to_string().into_boxed_str())
        };
        Ok(Self { schema, draft, patterns, built })
    }

    /// The validator.
    ///
    /// # Errors
    /// [`SchemaError`], which would have shown when the schema was compiled.
    pub(super) fn validator(&self) -> Result<&Validator, &SchemaError> {
        let build = || {
            let schema = serde_json::from_str(&self.schema)
                .map_err(|_| SchemaError::Json(super::JsonError::Syntax))?;
            build_validator(&schema, self.draft, self.patterns).map(Box::new)
        };
        self.built.get_or_init(build).as_ref().map(AsRef::as_ref)
    }
}
