//! Arguments generated from a tool's `inputSchema`, identical for the same seed.
//!
//! The generator follows the direct rules of a schema: types, bounds, choices, references and
//! patterns. Rules that only exclude values (`not`, `if`, `oneOf`) are left to chance: every
//! generated value is validated against the compiled schema, and generated again until it is valid.

mod merge;
mod object;
mod text;

use fastrand::Rng;
use serde_json::{Map, Value, json};

use trunkline_catalog::{ArgumentSchema, SchemaError};

/// Error of generating arguments.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GenerateError {
    /// The schema is invalid.
    #[error("inputSchema {0}")]
    Schema(SchemaError),
    /// No attempt was valid.
    #[error("nothing that fits its inputSchema was found in {MAX_TRIES} tries")]
    Unlucky,
}

/// Generates arguments for one tool.
pub(crate) struct Generator {
    schema: Value,
    compiled: ArgumentSchema,
}

impl Generator {
    /// Compiles the schema.
    ///
    /// # Errors
    /// [`GenerateError::Schema`].
    pub(crate) fn new(schema: &Value) -> Result<Self, GenerateError> {
        let schema = if schema.is_null() { json!({ "type": "object" }) } else { schema.clone() };
        let compiled = ArgumentSchema::compile(schema.to_string().as_bytes())
            .map_err(GenerateError::Schema)?;
        Ok(Self { schema, compiled })
    }

    /// The next arguments, as raw JSON.
    ///
    /// # Errors
    /// [`GenerateError::Unlucky`].
    pub(crate) fn arguments(&self, rng: &mut Rng) -> Result<String, GenerateError> {
        for _ in 0..MAX_TRIES {
            let mut maker = ArgumentMaker { root: &self.schema, rng, fuel: GENERATION_FUEL };
            let text = maker.make(&self.schema, 0).to_string();
            if self.compiled.check(Some(text.as_bytes())).is_ok() {
                return Ok(text);
            }
        }
        Err(GenerateError::Unlucky)
    }
}

/// Generates one value.
struct ArgumentMaker<'a> {
    root: &'a Value,
    rng: &'a mut Rng,
    /// Number of schemas that may still be visited: references may be recursive.
    fuel: usize,
}

impl ArgumentMaker<'_> {
    fn make(&mut self, schema: &Value, depth: usize) -> Value {
        let schema = match schema {
            Value::Object(schema) => schema,
            Value::Bool(false) => return Value::Null,
            _ => return json!(self.rng.u8(..)),
        };
        let schema = self.flat(schema);
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        for (choices, of) in [("enum", 1), ("examples", 2)] {
            let choices = schema.get(choices).and_then(Value::as_array);
            if let Some(choices) = choices.filter(|all| !all.is_empty() && self.one_in(of))
                && let Some(value) = choices.get(self.rng.usize(..choices.len()))
            {
                return value.clone();
            }
        }
        if let Some(value) = schema.get("default").filter(|value| !value.is_null())
            && self.one_in(4)
        {
            return value.clone();
        }
        match self.kind(&schema) {
            "object" => self.object(&schema, depth),
            "array" => self.array(&schema, depth),
            "string" => Value::String(text::make(&schema, self.rng)),
            "integer" => integer(&schema, self.rng),
            "number" => number(&schema, self.rng),
            "boolean" => Value::Bool(self.rng.bool()),
            _ => Value::Null,
        }
    }

    /// The type to generate: one of the allowed types, or the type that the other rules imply.
    fn kind<'s>(&mut self, schema: &'s Map<String, Value>) -> &'s str {
        match schema.get("type") {
            Some(Value::String(kind)) => return kind,
            Some(Value::Array(kinds)) if !kinds.is_empty() => {
                let kind = kinds.get(self.rng.usize(..kinds.len()));
                return kind.and_then(Value::as_str).unwrap_or("null");
            }
            _ => {}
        }
        let speaks = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
        match () {
            () if speaks(&["properties", "required", "additionalProperties", "minProperties"]) => {
                "object"
            }
            () if speaks(&["items", "prefixItems", "minItems", "contains"]) => "array",
            () if speaks(&["minimum", "maximum", "multipleOf", "exclusiveMinimum"]) => "number",
            () => "string",
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n.max(1)) == 0
    }

    /// Consumes fuel. Returns true if there is enough for one more schema.
    fn burn(&mut self) -> bool {
        self.fuel = self.fuel.saturating_sub(1);
        self.fuel > 0
    }
}

/// The lowest and the highest value allowed; exclusive bounds move inside by `step`.
fn bounds(schema: &Map<String, Value>, step: f64) -> (f64, f64) {
    let read = |key: &str| schema.get(key).and_then(Value::as_f64);
    let exclusive = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let mut low = read("minimum");
    let mut high = read("maximum");
    // In Draft 4 the keyword is a boolean beside the bound.
    if exclusive("exclusiveMinimum") {
        low = low.map(|low| low + step);
    }
    if exclusive("exclusiveMaximum") {
        high = high.map(|high| high - step);
    }
    let tighter = |a: Option<f64>, b: Option<f64>, pick: fn(f64, f64) -> f64| match (a, b) {
        (Some(a), Some(b)) => Some(pick(a, b)),
        (a, b) => a.or(b),
    };
    low = tighter(low, read("exclusiveMinimum").map(|low| low + step), f64::max);
    high = tighter(high, read("exclusiveMaximum").map(|high| high - step), f64::min);
    match (low, high) {
        (Some(low), Some(high)) => (low, high.max(low)),
        (Some(low), None) => (low, low.max(0.0) + UNBOUNDED_RANGE),
        (None, Some(high)) => (high.min(0.0) - UNBOUNDED_RANGE, high),
        (None, None) => (0.0, UNBOUNDED_RANGE),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "clamped first")]
fn integer(schema: &Map<String, Value>, rng: &mut Rng) -> Value {
    let whole = |value: f64| value.clamp(-MAX_EXACT_INTEGER, MAX_EXACT_INTEGER) as i64;
    let (low, high) = bounds(schema, 1.0);
    let step = schema.get("multipleOf").and_then(Value::as_f64).filter(|step| *step >= 1.0);
    let step = whole(step.unwrap_or(1.0).ceil()).max(1);
    let (low, high) = (whole(low.ceil()), whole(high.floor()));
    let first = low.div_euclid(step) + i64::from(low.rem_euclid(step) != 0);
    let last = high.div_euclid(step).max(first);
    json!(rng.i64(first..=last).saturating_mul(step))
}

fn number(schema: &Map<String, Value>, rng: &mut Rng) -> Value {
    let (low, high) = bounds(schema, 1e-3);
    if let Some(step) = schema.get("multipleOf").and_then(Value::as_f64).filter(|step| *step > 0.0)
    {
        let (first, last) = ((low / step).ceil(), (high / step).floor());
        let picked = (first + rng.f64() * (last - first)).round() * step;
        // A step such as 0.01 has no exact float: the nearest one suffices.
        let rounded = (picked * 1e6).round() / 1e6;
        return json!(rounded);
    }
    let picked = low + rng.f64() * (high - low);
    let rounded = (picked * 1e3).round() / 1e3;
    json!(rounded.clamp(low, high))
}

/// The width of the range if a schema sets no bound.
const UNBOUNDED_RANGE: f64 = 1000.0;
/// The largest integer that every JSON reader represents exactly.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_991.0;
const MAX_TRIES: usize = 200;
const GENERATION_FUEL: usize = 5000;

#[cfg(test)]
mod tests;
