//! Text for the values of a script: printed, thrown and returned ones.

use rquickjs::{Coerced, Ctx, Error, Object, Type, Value};
use serde_json::value::RawValue;

use trunkline_core::text::clip;

use crate::code_mode::ScriptLimits;
use crate::code_mode::fault::{CodePosition, ScriptFault};

/// Formats a value like `console.log`. An error thrown by a getter or `toJSON` is part of the text.
pub(super) fn describe<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> String {
    match value.type_of() {
        Type::String => value.as_string().map(|text| text_of(ctx, text)).unwrap_or_default(),
        Type::Undefined | Type::Uninitialized => "undefined".to_owned(),
        Type::Symbol => "[symbol]".to_owned(),
        Type::Function | Type::Constructor => {
            let name = value.as_object().and_then(|function| read_text(ctx, function, "name"));
            format!("[function {}]", name.unwrap_or_default())
        }
        Type::BigInt => coerce(ctx, value).map(|digits| digits + "n").unwrap_or_default(),
        Type::Exception => describe_error(ctx, value),
        Type::Bool | Type::Int | Type::Float | Type::Null => coerce(ctx, value).unwrap_or_default(),
        _ if value.is_error() => describe_error(ctx, value),
        _ => match ctx.json_stringify(value.clone()) {
            Ok(Some(json)) => text_of(ctx, &json),
            Ok(None) => "undefined".to_owned(),
            Err(_) => {
                let thrown = ctx.catch();
                format!("[object that cannot be written as JSON: {}]", describe_error(ctx, &thrown))
            }
        },
    }
}

/// Returns a string as text. Unpaired surrogates are written as in JSON.
fn text_of<'js>(ctx: &Ctx<'js>, text: &rquickjs::String<'js>) -> String {
    text.to_string().unwrap_or_else(|_| {
        let json = ctx.json_stringify(text.clone()).ok().flatten();
        let json = json.and_then(|json| json.to_string().ok()).unwrap_or_default();
        json.trim_matches('"').to_owned()
    })
}

fn coerce<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> Option<String> {
    let text = value.get::<Coerced<rquickjs::String<'js>>>();
    forget_thrown(ctx, text).map(|text| text_of(ctx, &text.0))
}

/// Returns name and message of an error; other values as they are printed.
fn describe_error<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> String {
    let Some(error) = value.as_object().filter(|_| value.is_error()) else {
        return if value.is_object() {
            "an object was thrown".to_owned()
        } else {
            describe(ctx, value)
        };
    };
    let name = read_text(ctx, error, "name").filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "Error".to_owned());
    match read_text(ctx, error, "message").filter(|message| !message.is_empty()) {
        Some(message) => format!("{name}: {message}"),
        None => name,
    }
}

/// Reads a property as text. Drops an error that a getter throws.
fn read_text<'js>(ctx: &Ctx<'js>, object: &Object<'js>, name: &str) -> Option<String> {
    let value = forget_thrown(ctx, object.get::<_, Value>(name))?;
    if value.is_undefined() || value.is_null() { None } else { coerce(ctx, &value) }
}

fn forget_thrown<T>(ctx: &Ctx<'_>, result: Result<T, Error>) -> Option<T> {
    result.inspect_err(|_| drop(ctx.catch())).ok()
}

/// Replaces the message of an error.
pub(super) fn set_message(error: &Object<'_>, message: &str) {
    // Cannot fail: the script has no access to the error before the rejection.
    let _ = forget_thrown(error.ctx(), error.set("message", message));
}

/// Returns the fault for a thrown value that was not caught.
pub(super) fn describe_thrown<'js>(
    ctx: &Ctx<'js>,
    value: &Value<'js>,
    limits: &ScriptLimits,
) -> ScriptFault {
    let Thrown { message, position, is_memory } = Thrown::read(ctx, value);
    if is_memory {
        return ScriptFault::Memory { limit: limits.memory };
    }
    if value.is_null() {
        // The interpreter throws it when the memory does not suffice for an error.
        let limit = limits.memory;
        let message = format!(
            "null was thrown, by the code or for lack of memory (the limit is {limit} bytes)"
        );
        return ScriptFault::Thrown { message, position };
    }
    ScriptFault::Thrown { message, position }
}

/// Returns the fault for an unhandled rejection.
pub(super) fn describe_unhandled<'js>(
    ctx: &Ctx<'js>,
    value: &Value<'js>,
    limits: &ScriptLimits,
) -> ScriptFault {
    match describe_thrown(ctx, value, limits) {
        ScriptFault::Thrown { message, position } => ScriptFault::Unhandled { message, position },
        other => other,
    }
}

/// Returns the fault for code that does not compile.
pub(super) fn describe_syntax_error<'js>(
    ctx: &Ctx<'js>,
    value: &Value<'js>,
    limits: &ScriptLimits,
) -> ScriptFault {
    match describe_thrown(ctx, value, limits) {
        ScriptFault::Thrown { message, position } => {
            let message = message.strip_prefix("SyntaxError: ").unwrap_or(&message).to_owned();
            ScriptFault::Syntax { message, position }
        }
        other => other,
    }
}

/// Writes the returned value as JSON; `None` for `undefined` and for functions.
pub(super) fn write_returned<'js>(
    ctx: &Ctx<'js>,
    value: Value<'js>,
    limits: &ScriptLimits,
) -> Result<Option<Box<RawValue>>, ScriptFault> {
    let not_json = |message| ScriptFault::NotJson { message };
    let written = ctx.json_stringify(value).map_err(|_| {
        let Thrown { message, is_memory, .. } = Thrown::read(ctx, &ctx.catch());
        if is_memory { ScriptFault::Memory { limit: limits.memory } } else { not_json(message) }
    })?;
    let Some(written) = written else { return Ok(None) };
    let text = written.to_string().map_err(|error| not_json(error.to_string()))?;
    if text.len() > limits.returned {
        return Err(ScriptFault::ReturnedSize { size: text.len(), limit: limits.returned });
    }
    RawValue::from_string(text).map(Some).map_err(|error| not_json(error.to_string()))
}

struct Thrown {
    message: String,
    position: Option<CodePosition>,
    is_memory: bool,
}

impl Thrown {
    fn read<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> Self {
        let text = if value.is_error() { describe_error(ctx, value) } else { describe(ctx, value) };
        let error = value.as_object().filter(|_| value.is_error());
        let stack = error.and_then(|error| read_text(ctx, error, "stack"));
        Self {
            message: clip(&text, MAX_MESSAGE).to_owned(),
            position: stack.and_then(|stack| find_position(&stack)),
            is_memory: text == OUT_OF_MEMORY,
        }
    }
}

/// Returns the first position of a stack trace that is in the script's code.
fn find_position(stack: &str) -> Option<CodePosition> {
    let (_, place) = stack.split_once(CODE_FILE)?;
    let mut numbers = place.strip_prefix(':')?.split(|c: char| !c.is_ascii_digit());
    let (line, column) = (numbers.next()?.parse::<u32>().ok()?, numbers.next()?.parse().ok()?);
    // The first line belongs to the host.
    Some(CodePosition { line: line.saturating_sub(1).max(1), column })
}

/// File name of the code in stack traces.
pub(super) const CODE_FILE: &str = "code.js";
/// Error of a full heap.
const OUT_OF_MEMORY: &str = "InternalError: out of memory";
/// Maximum bytes of a message.
const MAX_MESSAGE: usize = 2048;
