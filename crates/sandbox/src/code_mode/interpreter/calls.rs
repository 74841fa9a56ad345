//! Functions of a script, and the calls that they make.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use rquickjs::function::{Rest, This};
use rquickjs::{Ctx, Error, Exception, Function, IntoJs, Object, String as JsString, Value};
use serde_json::value::RawValue;

use super::outbox::Outbox;
use super::values::{describe, set_message};
use crate::code_mode::messages::{AnswerMessage, CallAnswer, CallMessage, WorkerMessage};
use crate::code_mode::{ScriptLimits, ScriptTool};

/// Tool calls of one script.
pub(super) struct ToolCalls<'js> {
    limits: ScriptLimits,
    tools: Vec<ScriptTool>,
    outbox: Rc<Outbox>,
    state: RefCell<CallState<'js>>,
}

#[derive(Default)]
struct CallState<'js> {
    /// Calls so far; equals the id of the latest one.
    count: usize,
    /// Calls that the parent has received.
    sent: HashMap<u64, Settling<'js>>,
    /// Calls that wait until fewer are pending. Their arguments are on the interpreter's heap, so
    /// that its limit bounds them.
    queued: VecDeque<QueuedCall<'js>>,
}

struct QueuedCall<'js> {
    id: u64,
    tool: usize,
    arguments: JsString<'js>,
    settling: Settling<'js>,
}

/// Functions that settle the promise of a call.
struct Settling<'js> {
    resolve: Function<'js>,
    reject: Function<'js>,
    /// Error for a rejection, created at the place of the call.
    error: Object<'js>,
}

impl<'js> ToolCalls<'js> {
    pub(super) fn new(limits: &ScriptLimits, tools: Vec<ScriptTool>, outbox: &Rc<Outbox>) -> Self {
        Self { limits: limits.clone(), tools, outbox: Rc::clone(outbox), state: RefCell::default() }
    }

    pub(super) fn limits(&self) -> &ScriptLimits {
        &self.limits
    }

    /// Returns true if no call is pending.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        state.sent.is_empty() && state.queued.is_empty()
    }

    /// Defines the global functions and objects of a script.
    pub(super) fn install(self: &Rc<Self>, ctx: &Ctx<'js>) -> Result<(), Error> {
        let (calls, printing, explaining) = (Rc::clone(self), Rc::clone(self), Rc::clone(self));
        let call = Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>, tool: usize, input: Value<'js>, error: Object<'js>| {
                calls.call(&ctx, tool, &input, error)
            },
        )?;
        let print = Function::new(ctx.clone(), move |ctx: Ctx<'js>, values: Rest<Value<'js>>| {
            printing.print(&ctx, &values.0);
        })?;
        let explain = Function::new(ctx.clone(), move |ctx: Ctx<'js>, name: Value<'js>| {
            let name = name.as_string().and_then(|name| name.to_string().ok()).unwrap_or_default();
            Exception::from_message(ctx, &explain_unknown(&explaining.tools, &name))
        })?;
        let tools = serde_json::to_string(&self.tools).map_err(|_| Error::Unknown)?;
        let tools = ctx.json_parse(tools)?;
        let prelude: Function = ctx.eval(include_str!("prelude.js"))?;
        prelude.call((This(ctx.globals()), tools, call, print.with_name("print")?, explain))
    }

    fn print(&self, ctx: &Ctx<'js>, values: &[Value<'js>]) {
        let mut line = String::new();
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                line.push(' ');
            }
            line.push_str(&describe(ctx, value));
        }
        line.push('\n');
        // Without the parent there is no reader either.
        let _ = self.outbox.print(&line);
    }

    /// Starts one call of a tool. Returns a promise, even for a call that is refused.
    fn call(
        &self,
        ctx: &Ctx<'js>,
        tool: usize,
        input: &Value<'js>,
        error: Object<'js>,
    ) -> Result<Value<'js>, Error> {
        let (promise, resolve, reject) = ctx.promise()?;
        match self.write_arguments(ctx, tool, input, &error) {
            Ok(arguments) => {
                let settling = Settling { resolve, reject, error };
                let mut state = self.state.borrow_mut();
                state.count += 1;
                let id = u64::try_from(state.count).unwrap_or(u64::MAX);
                state.queued.push_back(QueuedCall { id, tool, arguments, settling });
                drop(state);
                self.send_queued();
            }
            Err(failure) => {
                reject.call::<_, ()>((take_thrown(ctx, &failure),))?;
            }
        }
        Ok(promise.into_value())
    }

    /// Returns the arguments of a call as JSON.
    fn write_arguments(
        &self,
        ctx: &Ctx<'js>,
        tool: usize,
        input: &Value<'js>,
        error: &Object<'js>,
    ) -> Result<JsString<'js>, Error> {
        let name = self.tools.get(tool).map_or("", |tool| tool.function.as_str());
        let is_object =
            |value: &Value<'js>| value.is_object() && !value.is_array() && !value.is_function();
        let written = if input.is_undefined() {
            JsString::from_str(ctx.clone(), "{}")?
        } else {
            let written =
                is_object(input).then(|| ctx.json_stringify(input.clone())).transpose()?;
            written.flatten().ok_or_else(|| takes_object(ctx, name))?
        };
        let text = written.to_string()?;
        // `toJSON` may have turned it into another type.
        if !text.starts_with('{') {
            return Err(takes_object(ctx, name));
        }
        let limit = self.limits.arguments;
        if text.len() > limit {
            let size = text.len();
            let message = format!("{name}: arguments of {size} bytes, at most {limit} are allowed");
            return Err(Exception::throw_range(ctx, &message));
        }
        // Checked last, because the script's own code has run in between.
        let limit = self.limits.calls;
        if self.state.borrow().count >= limit {
            set_message(error, &format!("no more than {limit} tool calls are allowed"));
            return Err(ctx.throw(error.clone().into_value()));
        }
        Ok(written)
    }

    /// Sends calls while fewer than allowed are pending.
    fn send_queued(&self) {
        let mut state = self.state.borrow_mut();
        while state.sent.len() < self.limits.parallel.max(1) {
            let Some(call) = state.queued.pop_front() else { return };
            let QueuedCall { id, tool, arguments, settling } = call;
            let arguments = arguments.to_string().ok();
            let arguments = arguments.and_then(|text| RawValue::from_string(text).ok());
            let sent = arguments.is_some_and(|arguments| {
                let message = WorkerMessage::Call(CallMessage { id, tool, arguments });
                self.outbox.send(&message).is_ok()
            });
            if sent {
                state.sent.insert(id, settling);
            }
        }
    }

    /// Settles the promise of a call. Ignores an answer without a pending call.
    pub(super) fn settle(&self, ctx: &Ctx<'js>, message: AnswerMessage) {
        let Some(settling) = self.state.borrow_mut().sent.remove(&message.id) else { return };
        let Settling { resolve, reject, error } = settling;
        let settled = match message.answer {
            CallAnswer::Value(value) => match ctx.json_parse(value.get()) {
                Ok(value) => resolve.call::<_, ()>((value,)),
                Err(failure) => reject.call::<_, ()>((take_thrown(ctx, &failure),)),
            },
            CallAnswer::Error(text) => {
                set_message(&error, &text);
                reject.call::<_, ()>((error,))
            }
        };
        if settled.is_err() {
            drop(ctx.catch());
        }
        self.send_queued();
    }
}

/// Returns the thrown value, or an error of the host as a value.
fn take_thrown<'js>(ctx: &Ctx<'js>, failure: &Error) -> Value<'js> {
    if failure.is_exception() {
        return ctx.catch();
    }
    let error = Exception::from_message(ctx.clone(), &failure.to_string());
    let error = error.and_then(|error| error.into_object().into_js(ctx));
    error.unwrap_or_else(|_| ctx.catch())
}

fn takes_object(ctx: &Ctx<'_>, name: &str) -> Error {
    Exception::throw_type(
        ctx,
        &format!("{name}: expected one object with the arguments of the tool"),
    )
}

/// Returns the message for an unknown tool, with the names of similar tools.
fn explain_unknown(tools: &[ScriptTool], name: &str) -> String {
    let name = trunkline_core::text::clip(name, MAX_NAME);
    let mut near: Vec<_> = tools
        .iter()
        .map(|tool| (nearness(tool, name), &tool.function))
        .filter(|(nearness, _)| *nearness >= SIMILAR_NAME_SHARE)
        .collect();
    near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let near: Vec<_> =
        near.iter().take(MAX_NEAR).map(|(_, name)| format!("tools.{name}")).collect();
    match near.as_slice() {
        [] => format!("unknown tool {name:?}"),
        near => format!("unknown tool {name:?}: did you mean {}?", near.join(" or ")),
    }
}

fn nearness(tool: &ScriptTool, name: &str) -> f64 {
    // A model often omits the server before a tool's name, or changes its case.
    let one = |known: &str| {
        let (known, name) = (known.to_lowercase(), name.to_lowercase());
        if known.ends_with(&name) && name.len() > 2 {
            1.0
        } else {
            strsim::jaro_winkler(&known, &name)
        }
    };
    one(&tool.function).max(one(&tool.name))
}

const SIMILAR_NAME_SHARE: f64 = 0.85;
const MAX_NEAR: usize = 3;
/// Maximum bytes of an unknown name in a message.
const MAX_NAME: usize = 100;
