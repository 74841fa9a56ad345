//! The child's side of a script: QuickJS, and the loop that waits for answers.
//!
//! The child has one thread. It runs all code that is ready, reads one answer from standard input,
//! settles the promise of that call, and repeats this until the code has ended and no call is
//! pending.

mod calls;
mod outbox;
mod rejections;
mod timer;
mod values;

#[cfg(test)]
mod tests;

use std::io::{self, BufRead, Read, Write};
use std::mem;
use std::rc::Rc;

use rquickjs::context::EvalOptions;
use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Error, Function, Persistent, Promise, Runtime, Value};

use super::fault::ScriptFault;
use super::messages::{AnswerMessage, EndMessage, MAX_SCRIPT_LINE, WorkerMessage, longest_answer};
use super::{ScriptLimits, ScriptRequest};
use calls::ToolCalls;
use outbox::Outbox;
use rejections::UnhandledRejections;
use timer::CpuTimer;
use values::{describe_syntax_error, describe_thrown, write_returned};

/// Serves one script: reports readiness, reads the script, runs it, and reports its end.
///
/// # Errors
/// The streams fail, or the parent sends an invalid message.
pub(super) fn serve_script(
    limits: &ScriptLimits,
    mut input: impl BufRead,
    output: impl Write + 'static,
) -> io::Result<()> {
    let outbox = Rc::new(Outbox::new(output, limits.printed));
    outbox.send(&WorkerMessage::Ready)?;
    let Some(line) = read_line(&mut input, MAX_SCRIPT_LINE)? else { return Ok(()) };
    let script = serde_json::from_slice(&line)?;
    match run_script(limits, script, &mut input, &outbox)? {
        Some(end) => outbox.send(&WorkerMessage::Ended(end)),
        None => Ok(()),
    }
}

/// End of the code. `None` marks the end of the input.
enum Ending {
    /// The body and its calls have ended.
    Settled(Persistent<Promise<'static>>),
    /// The body threw this value.
    Thrown(Persistent<Value<'static>>),
    /// The code cannot be compiled; this is the error.
    NoCode(Persistent<Value<'static>>),
    NeverSettles,
    Interrupted,
    InputEnded,
}

fn run_script(
    limits: &ScriptLimits,
    script: ScriptRequest,
    input: &mut impl BufRead,
    outbox: &Rc<Outbox>,
) -> io::Result<Option<EndMessage>> {
    let runtime = Runtime::new().map_err(io::Error::other)?;
    runtime.set_max_stack_size(limits.stack.min(ScriptLimits::MAX_STACK));
    let context = Context::full(&runtime).map_err(io::Error::other)?;
    let rejections = UnhandledRejections::default();
    runtime.set_host_promise_rejection_tracker(Some(rejections.tracker()));
    runtime.set_memory_limit(limits.memory);
    let timer = Rc::new(CpuTimer::start(limits.cpu_time));
    let interrupt = Rc::clone(&timer);
    runtime.set_interrupt_handler(Some(Box::new(move || interrupt.is_over())));
    let ending = context.with(|ctx| {
        let calls = Rc::new(ToolCalls::new(limits, script.tools, outbox));
        calls.install(&ctx).map_err(|error| io::Error::other(error.to_string()))?;
        drive(&ctx, &script.code, input, &calls, &timer)
    })?;
    // Room to describe the end, even after the heap was full.
    runtime.set_memory_limit(limits.memory.saturating_add(HOST_MEMORY_RESERVE));
    let end = context.with(|ctx| conclude(&ctx, ending, limits, &timer, &rejections));
    // The functions of the host and the heap refer to each other. The process exits soon.
    mem::forget((context, runtime));
    Ok(end)
}

/// Runs the code to its end.
fn drive<'js>(
    ctx: &Ctx<'js>,
    code: &str,
    input: &mut impl BufRead,
    calls: &ToolCalls<'js>,
    timer: &CpuTimer,
) -> io::Result<Ending> {
    let Ok(body) = compile(ctx, code) else {
        return Ok(Ending::NoCode(Persistent::save(ctx, ctx.catch())));
    };
    let main = match body.call::<_, Promise>(()) {
        Ok(main) => main,
        Err(_) if timer.was_over() => return Ok(Ending::Interrupted),
        Err(_) => return Ok(Ending::Thrown(Persistent::save(ctx, ctx.catch()))),
    };
    loop {
        while !timer.was_over() && ctx.execute_pending_job() {}
        if timer.was_over() {
            return Ok(Ending::Interrupted);
        }
        match main.state() {
            PromiseState::Rejected => {
                let thrown = match main.result::<Value>() {
                    Some(Ok(value)) => value,
                    _ => ctx.catch(),
                };
                return Ok(Ending::Thrown(Persistent::save(ctx, thrown)));
            }
            PromiseState::Resolved if calls.is_idle() => {
                return Ok(Ending::Settled(Persistent::save(ctx, main)));
            }
            PromiseState::Pending if calls.is_idle() => return Ok(Ending::NeverSettles),
            _ => {}
        }
        let Some(line) = read_line(input, longest_answer(calls.limits()))? else {
            return Ok(Ending::InputEnded);
        };
        let answer: AnswerMessage = serde_json::from_slice(&line)?;
        calls.settle(ctx, answer);
    }
}

/// Compiles the code as an async function. The code is one expression, whose value is the result (a
/// function is called first), or otherwise a function body.
fn compile<'js>(ctx: &Ctx<'js>, code: &str) -> Result<Function<'js>, Error> {
    let code = without_fence(code);
    let expression = code.trim_end().trim_end_matches(';');
    let one = format!("{BEFORE_EXPRESSION}\n{expression}\n)))");
    if let Ok(function) = evaluate(ctx, one) {
        return Ok(function);
    }
    drop(ctx.catch());
    evaluate(ctx, format!("{BEFORE_BODY}\n{code}\n}})"))
}

/// Returns the code inside a Markdown fence, which models often write around code.
fn without_fence(code: &str) -> &str {
    let inner = code.trim().strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.and_then(|inner| inner.split_once('\n')).map_or(code, |(_, code)| code)
}

fn evaluate<'js>(ctx: &Ctx<'js>, source: String) -> Result<Function<'js>, Error> {
    let mut options = EvalOptions::default();
    // Models omit declarations.
    options.strict = false;
    options.filename = Some(values::CODE_FILE.to_owned());
    ctx.eval_with_options(source, options)
}

fn conclude(
    ctx: &Ctx<'_>,
    ending: Ending,
    limits: &ScriptLimits,
    timer: &CpuTimer,
    rejections: &UnhandledRejections,
) -> Option<EndMessage> {
    let cpu_time = ScriptFault::CpuTime { limit: limits.cpu_time };
    let restored = |value: Persistent<Value<'static>>| value.restore(ctx).ok();
    let fault_of = |value: Persistent<Value<'static>>| {
        restored(value).map(|value| describe_thrown(ctx, &value, limits))
    };
    let mut end = EndMessage::default();
    match ending {
        Ending::InputEnded => return None,
        Ending::Interrupted => end.fault = Some(cpu_time.clone()),
        Ending::NeverSettles => {
            let unhandled = rejections.describe_first(ctx, limits);
            end.fault = Some(unhandled.unwrap_or(ScriptFault::NeverSettles));
        }
        Ending::NoCode(error) => {
            end.fault = restored(error).map(|error| describe_syntax_error(ctx, &error, limits));
        }
        Ending::Thrown(value) => end.fault = fault_of(value),
        Ending::Settled(main) => {
            let value = main.restore(ctx).ok().and_then(|main| main.result::<Value>()?.ok());
            match value.map_or(Ok(None), |value| write_returned(ctx, value, limits)) {
                Ok(returned) => end.returned = returned,
                Err(fault) => end.fault = Some(fault),
            }
            end.fault = end.fault.or_else(|| rejections.describe_first(ctx, limits));
        }
    }
    // A getter or `toJSON` may have run for too long.
    if timer.was_over() {
        end.fault = Some(cpu_time);
    }
    Some(end)
}

/// Reads a line without its terminator; `None` at the end of the input.
fn read_line(input: &mut impl BufRead, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.by_ref().take(limit).read_until(b'\n', &mut line)?;
    if line.pop() == Some(b'\n') {
        return Ok(Some(line));
    }
    if line.len().saturating_add(1) >= usize::try_from(limit).unwrap_or(usize::MAX) {
        return Err(io::Error::other(format!("a line is longer than {limit} bytes")));
    }
    Ok(None)
}

/// Text before the code, on a line of its own.
const BEFORE_BODY: &str = "(async () => {";
const BEFORE_EXPRESSION: &str =
    "(async () => ((result) => typeof result === \"function\" ? result(tools) : result)((";
/// Bytes of memory beyond the limit, for the host.
const HOST_MEMORY_RESERVE: usize = 4 << 20;
