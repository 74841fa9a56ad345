//! A tool's `inputSchema`, compiled once, and the validation of a call's arguments against it.
//!
//! The schema comes from a server and the arguments from a client, and both may be hostile. Both
//! are bounded before anything recurses into them, nothing is ever fetched, and patterns run on a
//! linear-time engine (patterns with look-around on a backtracking engine with a low limit). The
//! compiled form is here and not in `policy`, because the catalog must reject a tool with a schema
//! that does not compile; `policy` decides when to validate.

mod bounds;
mod checker;
mod coercion;
mod edited;
mod glance;
mod patterns;
mod plain;
mod reach;
mod violations;

#[cfg(test)]
mod tests;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use trunkline_jsonrpc::{JsonError, OutlineParts, parse_strict};
use trunkline_protocol::call::ArgumentsError;

use super::clip_foreign_text;
pub use bounds::{MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH};
use checker::LazyValidator;
pub use coercion::CoercedArguments;
pub use edited::ArgumentEditFault;
pub(super) use edited::{declared_arguments, edit_schema, required_arguments, schema_of_argument};
use glance::QuickCheck;
pub use patterns::is_usable_pattern;
pub(super) use patterns::{PatternBudget, is_small_pattern};
use reach::SchemaReach;
pub(super) use reach::{DanglingReference, REFERENCE_KEYWORDS, find_dangling_references};
use violations::{collect_violations, not_an_object, unchecked, unreadable};

/// The deepest nesting of a call's arguments.
pub(super) const MAX_ARGUMENT_DEPTH: usize = 64;

/// Reason why a schema cannot be used. The text follows the name of the field that has the schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema is not strict JSON.
    #[error("is not readable: {0}")]
    Json(JsonError),
    /// The schema is JSON, but not an object.
    #[error("must be a JSON object")]
    NotAnObject,
    /// The root has no `"type": "object"`, which MCP requires.
    #[error("must have \"type\": \"object\" at its root")]
    RootType,
    /// The schema has more bytes than the bound.
    #[error("has {len} bytes, at most {max} are allowed")]
    TooLarge {
        /// The length found.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// The schema has more subschemas than the bound.
    #[error("has {found} subschemas, at most {max} are allowed")]
    Subschemas {
        /// The number found.
        found: usize,
        /// The bound.
        max: usize,
    },
    /// The schema has more regular expressions than the bound.
    #[error("has {found} patterns, at most {max} are allowed")]
    Patterns {
        /// The number found.
        found: usize,
        /// The bound.
        max: usize,
    },
    /// References and compositions multiply: one value would be checked too many times.
    #[error("would check one value against more than {max} subschemas")]
    Work {
        /// The bound.
        max: usize,
    },
    /// References and compositions form too long a chain for one value.
    #[error("chains more than {max} subschemas on one value")]
    Chain {
        /// The bound.
        max: usize,
    },
    /// `$schema` names a dialect that the gateway does not support.
    #[error("is written in {dialect:?}, a dialect that is not supported")]
    UnsupportedDialect {
        /// The value of `$schema`, truncated.
        dialect: String,
    },
    /// A `$ref` points outside the schema, or to nothing within it.
    #[error("refers to {target:?}, which is not in the schema: nothing is fetched")]
    Reference {
        /// The reference, truncated.
        target: String,
    },
    /// Duplicate `$id` or anchor.
    #[error("defines {target:?} twice")]
    Redefined {
        /// The identifier, truncated.
        target: String,
    },
    /// The schema violates its own dialect.
    #[error("is not a valid schema at {path:?}: the rule {keyword:?} is broken")]
    Invalid {
        /// The JSON pointer into the schema.
        path: String,
        /// The rule of the meta-schema.
        keyword: String,
    },
    /// The patterns of this schema take too much memory when compiled.
    #[error("has patterns that take more than {max} bytes to compile")]
    PatternBytes {
        /// The bound.
        max: usize,
    },
    /// The patterns of this schema and of those before it in the list take too much memory when
    /// compiled.
    #[error(
        "has patterns, and those of the server's tools together take more than {max} \
         bytes to compile"
    )]
    ListPatterns {
        /// The bound.
        max: usize,
    },
    /// A regular expression does not compile, or is too large when compiled.
    #[error("has a pattern at {path:?} that does not compile within bounds")]
    Pattern {
        /// The JSON pointer into the schema.
        path: String,
    },
}

/// A compiled `inputSchema`, or `outputSchema`.
#[derive(Debug)]
pub struct ArgumentSchema {
    rule: CompiledRule,
    /// The bytes that were charged for compiling its patterns.
    pattern_bytes: usize,
    /// The most bytes of arguments that take little time to check.
    cheap_length: usize,
}

#[derive(Debug)]
enum CompiledRule {
    /// Only `"type": "object"`: no value needs to be built.
    AnyObject,
    /// Any other schema.
    Schema {
        /// Tried first.
        glance: QuickCheck,
        checker: LazyValidator,
        /// Bounds the cost of naming all violations.
        reach: SchemaReach,
    },
}

impl ArgumentSchema {
    /// Compiles the raw `inputSchema` of a tool.
    ///
    /// Dialects: 2020-12 by default; 2019-09, draft-07, -06 and -04 if `$schema` names them.
    /// `format` is an annotation in all of them.
    ///
    /// # Errors
    /// [`SchemaError`] names the rule or bound that the schema violates.
    pub fn compile(schema: &[u8]) -> Result<Self, SchemaError> {
        Self::from_value(parse_schema(schema)?, &mut PatternBudget::default())
    }

    /// Compiles the raw `outputSchema` of a tool, which may describe values of any kind.
    ///
    /// # Errors
    /// As for [`ArgumentSchema::compile`].
    pub fn compile_output(schema: &[u8]) -> Result<Self, SchemaError> {
        Self::from_any(parse_schema(schema)?, &mut PatternBudget::default())
    }

    /// A schema that is not compiled: every object is valid.
    pub(super) fn unchecked() -> Self {
        Self { rule: CompiledRule::AnyObject, pattern_bytes: 0, cheap_length: MAX_CHEAP_LENGTH }
    }

    /// Compiles a schema of objects that [`parse_strict`] returned, within the budget of its list.
    pub(super) fn from_value(
        schema: Map<String, Value>,
        budget: &mut PatternBudget,
    ) -> Result<Self, SchemaError> {
        choose_draft(schema.get("$schema"))?;
        if !is_of_objects(&schema) {
            return Err(SchemaError::RootType);
        }
        Self::from_any(schema, budget)
    }

    fn from_any(
        mut schema: Map<String, Value>,
        budget: &mut PatternBudget,
    ) -> Result<Self, SchemaError> {
        let draft = choose_draft(schema.get("$schema"))?;
        if is_of_objects(&schema) && accepts_any_object(&schema) {
            return Ok(Self::unchecked());
        }
        // The draft is chosen. If `$schema` stayed, a variant with `http`/`https` or `#` would be
        // looked up as a separate schema.
        schema.shift_remove("$schema");
        let schema = Value::Object(schema);
        let census = bounds::take_census(&schema)?;
        let patterns = patterns::measure_patterns(&census.patterns, draft, budget)?;
        let reach = reach::measure_reach(&schema, draft, &patterns.matching)?;
        let glance = QuickCheck::from_schema(&schema);
        let will_be_asked = !glance.can_admit();
        let pattern_bytes = patterns.charged;
        let cheap_length = reach.cheap_length().min(MAX_CHEAP_LENGTH);
        let checker = LazyValidator::new(&schema, draft, patterns.limits, will_be_asked)?;
        let rule = CompiledRule::Schema { glance, checker, reach };
        Ok(Self { rule, pattern_bytes, cheap_length })
    }

    /// The bytes that were charged for compiling its patterns.
    pub(super) fn pattern_bytes(&self) -> usize {
        self.pattern_bytes
    }

    /// Validates the raw `arguments` of one call; absent arguments count as `{}`.
    ///
    /// # Errors
    /// [`ArgumentsError`], with a text that a model can act on. It names paths, rules and
    /// kinds, never values: arguments may hold secrets.
    pub fn check(&self, arguments: Option<&[u8]>) -> Result<(), ArgumentsError> {
        let raw = arguments.unwrap_or(b"{}");
        match &self.rule {
            CompiledRule::Schema { glance, .. } if glance.admits(raw) => Ok(()),
            _ => self.check_whole(raw),
        }
    }

    /// Like [`ArgumentSchema::check`], with the outline of the arguments, if it was recorded when
    /// the message was read.
    ///
    /// # Errors
    /// As for [`ArgumentSchema::check`].
    pub fn check_outlined(
        &self,
        arguments: Option<&[u8]>,
        parts: Option<OutlineParts<'_>>,
    ) -> Result<(), ArgumentsError> {
        let (Some(raw), Some(parts)) = (arguments, parts) else { return self.check(arguments) };
        if self.admits_at_sight(raw, parts) { Ok(()) } else { self.check_whole(raw) }
    }

    /// Returns true if the outline of the arguments shows that they are valid. It rarely does so
    /// for large arguments that are not.
    pub fn admits_at_sight(&self, arguments: &[u8], parts: OutlineParts<'_>) -> bool {
        match &self.rule {
            CompiledRule::AnyObject => arguments.starts_with(b"{"),
            CompiledRule::Schema { glance, reach, .. } => {
                let is_cheap = arguments.len() <= self.cheap_length || reach.has_cheap_glance();
                is_cheap && glance.admits_object(parts)
            }
        }
    }

    /// The most bytes of arguments that take little time to check, for any arguments.
    pub fn cheap_length(&self) -> usize {
        self.cheap_length
    }

    fn check_whole(&self, raw: &[u8]) -> Result<(), ArgumentsError> {
        match &self.rule {
            CompiledRule::AnyObject => {
                match serde_json::from_slice::<&serde_json::value::RawValue>(raw) {
                    Ok(value) if value.get().starts_with('{') => Ok(()),
                    Ok(value) => Err(not_an_object(value.get())),
                    Err(_) => Err(unreadable(&JsonError::Syntax)),
                }
            }
            CompiledRule::Schema { checker, reach, .. } => {
                let validator = checker.validator().map_err(unchecked)?;
                let value =
                    parse_strict(raw, MAX_ARGUMENT_DEPTH).map_err(|error| unreadable(&error))?;
                if validator.is_valid(&value) {
                    return Ok(());
                }
                Err(collect_violations(validator, &value, reach.checking_cost(raw)))
            }
        }
    }
}

/// Parses a schema within the bounds on size and depth.
pub(super) fn parse_schema(schema: &[u8]) -> Result<Map<String, Value>, SchemaError> {
    if schema.len() > MAX_SCHEMA_BYTES {
        return Err(SchemaError::TooLarge { len: schema.len(), max: MAX_SCHEMA_BYTES });
    }
    match parse_strict(schema, MAX_SCHEMA_DEPTH).map_err(SchemaError::Json)? {
        Value::Object(members) => Ok(members),
        _ => Err(SchemaError::NotAnObject),
    }
}

fn is_of_objects(schema: &Map<String, Value>) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
}

/// Returns true if every object is valid: there are only annotations and empty rules besides the
/// type.
fn accepts_any_object(schema: &Map<String, Value>) -> bool {
    schema.iter().all(|(key, value)| match key.as_str() {
        "type" | "$schema" | "$comment" | "title" | "description" | "default" | "examples" => true,
        "properties" | "$defs" | "definitions" => value.as_object().is_some_and(Map::is_empty),
        "required" => value.as_array().is_some_and(Vec::is_empty),
        "additionalProperties" => {
            value == &Value::Bool(true) || value.as_object().is_some_and(Map::is_empty)
        }
        _ => false,
    })
}

/// Returns true if `$schema` names a dialect that the gateway supports, or is absent.
pub(super) fn has_known_dialect(declared: Option<&Value>) -> bool {
    choose_draft(declared).is_ok()
}

/// The draft that `$schema` declares.
fn choose_draft(declared: Option<&Value>) -> Result<Draft, SchemaError> {
    let Some(declared) = declared else { return Ok(Draft::Draft202012) };
    let uri = declared.as_str().unwrap_or_default().trim_end_matches('#');
    let bare = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://")).unwrap_or(uri);
    match bare {
        "json-schema.org/draft/2020-12/schema" => Ok(Draft::Draft202012),
        "json-schema.org/draft/2019-09/schema" => Ok(Draft::Draft201909),
        "json-schema.org/draft-07/schema" => Ok(Draft::Draft7),
        "json-schema.org/draft-06/schema" => Ok(Draft::Draft6),
        "json-schema.org/draft-04/schema" => Ok(Draft::Draft4),
        _ => Err(SchemaError::UnsupportedDialect {
            dialect: clip_foreign_text(&declared.to_string()),
        }),
    }
}

/// The most bytes of each part of a compiled pattern.
#[derive(Debug, Clone, Copy, Default)]
struct PatternLimits {
    /// For a pattern on the linear-time engine.
    linear: usize,
    /// For each part that the backtracking engine passes to the linear one.
    part: usize,
    /// For the cache of a running match.
    cache: usize,
}

impl PatternLimits {
    /// The limits for this many patterns; those with look-around have at most `parts` parts.
    fn new(patterns: usize, parts: usize) -> Self {
        Self {
            linear: MAX_PATTERN_BYTES,
            part: (PATTERN_BYTES / parts.max(1)).min(MAX_PATTERN_BYTES),
            cache: (PATTERN_BYTES / patterns.max(1)).min(MAX_PATTERN_BYTES),
        }
    }
}

/// The engine that matches patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternEngine {
    /// In linear time.
    Linear,
    /// With look-around and back-references, and a limit of steps. It still passes each plain part
    /// to the linear one.
    Backtracking,
}

/// Builds the validator on the linear-time engine. A pattern that it cannot express (look-around,
/// back-reference) moves the whole schema to the backtracking engine.
fn build_validator(
    schema: &Value,
    draft: Draft,
    limits: PatternLimits,
) -> Result<Validator, SchemaError> {
    match build_with_engine(schema, draft, limits, PatternEngine::Linear) {
        Err(SchemaError::Pattern { .. }) => {
            build_with_engine(schema, draft, limits, PatternEngine::Backtracking)
        }
        built => built,
    }
}

fn build_with_engine(
    schema: &Value,
    draft: Draft,
    limits: PatternLimits,
    engine: PatternEngine,
) -> Result<Validator, SchemaError> {
    let options = jsonschema::options().with_draft(draft).offline().should_validate_formats(false);
    let cache = limits.cache;
    let built = match engine {
        PatternEngine::Linear => {
            let linear = PatternOptions::regex().size_limit(limits.linear).dfa_size_limit(cache);
            options.with_pattern_options(linear).build(schema)
        }
        PatternEngine::Backtracking => {
            let backtracking = PatternOptions::fancy_regex()
                .backtrack_limit(BACKTRACK_LIMIT)
                .size_limit(limits.part)
                .dfa_size_limit(cache);
            options.with_pattern_options(backtracking).build(schema)
        }
    };
    built.map_err(|error| schema_error(&error))
}

fn is_pattern_error(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::Format { format } if format == "regex")
}

fn schema_error(error: &ValidationError<'_>) -> SchemaError {
    let path = clip_foreign_text(error.instance_path().as_str());
    match error.kind() {
        ValidationErrorKind::Referencing(cause) => {
            SchemaError::Reference { target: clip_foreign_text(&cause.to_string()) }
        }
        _ if is_pattern_error(error) => SchemaError::Pattern { path },
        kind => SchemaError::Invalid { path, keyword: clip_foreign_text(kind.keyword()) },
    }
}

/// The most bytes of arguments that take little time to check, for any schema.
const MAX_CHEAP_LENGTH: usize = 64 * 1024;
/// The most bytes of all parts of a pattern with look-around, and of the caches of all running
/// matches of a schema.
const PATTERN_BYTES: usize = 4 * 1024 * 1024;
/// The most bytes of the automaton of one compiled pattern.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;
/// The most backtracking steps of a pattern with look-around on one text.
const BACKTRACK_LIMIT: usize = 10_000;
