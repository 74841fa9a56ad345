//! Code mode: the view and the result of a script, its limits, and in `confinement` its process.
#![cfg(all(target_os = "linux", feature = "code-mode"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod confinement;
#[path = "../support/waiting.rs"]
mod waiting;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use trunkline::child::Guardian;
use trunkline::code_mode::{
    CodePosition, RunningScript, ScriptCall, ScriptError, ScriptEvent, ScriptFault, ScriptLimits,
    ScriptOutcome, ScriptRequest, ScriptTool,
};

const TRUNKLINE: &str = env!("CARGO_BIN_EXE_trunkline");

/// Limits that a test reaches quickly, except for the time: scripts have the lowest priority, and
/// may get the processor rarely.
fn limits() -> ScriptLimits {
    ScriptLimits {
        cpu_time: Duration::from_millis(400),
        wall_time: Duration::from_hours(1),
        memory: 32 << 20,
        calls: 50,
        parallel: 4,
        printed: 10_000,
        returned: 10_000,
        arguments: 10_000,
        result: 10_000,
        ..ScriptLimits::default()
    }
}

fn script(code: &str) -> ScriptRequest {
    let tool =
        |name: &str, function: &str| ScriptTool { name: name.into(), function: function.into() };
    let tools = vec![tool("echo", "echo"), tool("tracker__find-issue", "tracker__find_issue")];
    ScriptRequest { code: code.into(), tools }
}

async fn start(code: &str, limits: ScriptLimits) -> RunningScript {
    let guardian = Guardian::when_needed(Path::new(TRUNKLINE));
    RunningScript::start(script(code), limits, &guardian).await.unwrap()
}

async fn next(running: &mut RunningScript) -> ScriptEvent {
    tokio::time::timeout(Duration::from_mins(5), running.next()).await.expect("it goes on")
}

async fn next_call(running: &mut RunningScript) -> ScriptCall {
    match next(running).await {
        ScriptEvent::Call(call) => call,
        ScriptEvent::Ended(outcome) => panic!("{outcome:?}"),
    }
}

/// Runs a script with tools that return their arguments, or fail if these have a `fail`.
async fn run_within(code: &str, limits: ScriptLimits) -> ScriptOutcome {
    let mut running = start(code, limits).await;
    loop {
        match next(&mut running).await {
            ScriptEvent::Call(call) => running.answer(call.id, echo(&call)),
            ScriptEvent::Ended(outcome) => return outcome,
        }
    }
}

async fn run(code: &str) -> ScriptOutcome {
    run_within(code, limits()).await
}

fn echo(call: &ScriptCall) -> Result<Bytes, String> {
    let arguments: Value = serde_json::from_slice(&call.arguments).unwrap();
    match arguments.get("fail").and_then(Value::as_str) {
        Some(message) => Err(message.to_owned()),
        None => Ok(call.arguments.clone()),
    }
}

fn returned(outcome: &ScriptOutcome) -> Value {
    assert_eq!(outcome.fault, None, "{outcome:?}");
    outcome
        .returned
        .as_ref()
        .map_or(json!("nothing"), |value| serde_json::from_slice(value).unwrap())
}

#[tokio::test]
async fn code_is_a_body_or_an_expression_and_its_value_is_returned_as_json() {
    for (code, expected) in [
        ("return {a: [1, 2]}", json!({"a": [1, 2]})),
        ("const x = 1; // a comment", json!("nothing")),
        ("", json!("nothing")),
        ("return null", json!(null)),
        ("return undefined", json!("nothing")),
        ("return () => 1", json!("nothing")),
        ("1 + 1;", json!(2)),
        ("await tools.echo({a: 1})", json!({"a": 1})),
        ("async () => { return 7 }", json!(7)),
        ("async function main() { return 8 }", json!(8)),
        ("(async () => { return 9 })()", json!(9)),
        ("x = 5; return x", json!(5)),
        (
            "return await Promise.all([1, 2].map(async (n) => (await tools.echo({n})).n))",
            json!([1, 2]),
        ),
        (
            "return new Date(0).toISOString() + new Date(0).getTimezoneOffset()",
            json!("1970-01-01T00:00:00.000Z0"),
        ),
        (
            "return [typeof std, typeof os, typeof require, typeof setTimeout, typeof process]",
            json!(["undefined", "undefined", "undefined", "undefined", "undefined"]),
        ),
        ("return '\\ud800'.length", json!(1)),
    ] {
        assert_eq!(returned(&run(code).await), expected, "{code}");
    }
}

#[tokio::test]
async fn printed_values_are_kept_as_text() {
    let code = "console.log('a', 1, true, null, undefined, 5n, [1, {b: 2}], (x) => x);\n\
                console.error(new RangeError('no')); print({toJSON() { throw new Error('never') }});\n\
                const cycle = {}; cycle.cycle = cycle; console.warn(cycle, '\\ud800', '\\u0000é');\n\
                console.info(Symbol('s')); console.debug(new Map())";
    let outcome = run(code).await;
    let lines: Vec<_> = outcome.printed.lines().collect();
    assert_eq!(lines[0], "a 1 true null undefined 5n [1,{\"b\":2}] [function ]");
    assert_eq!(lines[1], "RangeError: no");
    assert_eq!(lines[2], "[object that cannot be written as JSON: Error: never]");
    assert!(lines[3].contains("circular") && lines[3].ends_with("\\ud800 \0é"), "{}", lines[3]);
    assert_eq!(lines[4..], ["[symbol]", "[]"]);
    assert!(!outcome.is_cut && outcome.fault.is_none());
}

#[tokio::test]
async fn a_fault_has_a_message_and_a_position_in_the_code() {
    for (code, expected) in [
        (
            "let x = 1;\nlet y = ;",
            "syntax error: unexpected token in expression: ';' (line 2, column 9): JavaScript is \
             expected, without types",
        ),
        ("let x = 1;\n  foo(x)", "ReferenceError: foo is not defined (line 2, column 3)"),
        ("throw new TypeError('bad')", "TypeError: bad (line 1, column 11)"),
        ("throw 'a text'", "a text"),
        ("throw {a: 1}", "{\"a\":1}"),
        ("throw undefined", "undefined"),
        ("throw new Proxy({}, {get() { throw 1 }})", "[object that cannot be written as JSON: 1]"),
        (
            "const e = new Error(); Object.defineProperty(e, 'message', {get() { throw 1 }}); throw e",
            "Error (line 1, column 15)",
        ),
        (
            "const e = new Error(); e.name = {}; Object.defineProperty(e, 'stack', {value: 7}); throw e",
            "[object Object]",
        ),
        ("await new Promise(() => {})", "the code awaits a promise that is never settled"),
        (
            "Promise.reject(new Error('lost')); return 1",
            "a promise was rejected and never awaited: Error: lost (line 1, column 20)",
        ),
        (
            "const p = Promise.reject(new Error('late')); await null; await p.catch(() => 1);\nthrow 7",
            "7",
        ),
        (
            "\n\nawait tools.echo({fail: 'the server said no'})",
            "Error: the server said no (line 3, column 13)",
        ),
        (
            "const o = {}; o.o = o; return o",
            "the returned value cannot be written as JSON: TypeError: circular reference",
        ),
        (
            "return {a: 5n}",
            "the returned value cannot be written as JSON: TypeError: BigInt are forbidden in JSON.stringify",
        ),
        (
            "return {get a() { throw new RangeError('no') }}",
            "the returned value cannot be written as JSON: RangeError: no",
        ),
    ] {
        let outcome = run(code).await;
        let fault = outcome.fault.map_or_else(String::new, |fault| fault.to_string());
        assert_eq!(fault, expected, "{code}");
    }
    let fault = run("null.x").await.fault.unwrap();
    let ScriptFault::Thrown { position, .. } = fault else { panic!("{fault}") };
    assert_eq!(position.map(|CodePosition { line, .. }| line), Some(1));
}

#[tokio::test]
async fn a_tool_has_its_names_and_takes_one_object() {
    for (code, expected) in [
        ("return tools.tracker__find_issue({q: 1})", json!({"q": 1})),
        ("return tools['tracker__find-issue']({q: 1})", json!({"q": 1})),
        ("return tools.echo()", json!({})),
        ("return Object.keys(tools)", json!(["echo", "tracker__find_issue"])),
        (
            "return ['echo' in tools, 'nope' in tools, String(typeof tools.then)]",
            json!([true, false, "undefined"]),
        ),
        ("tools.echo = 1; return typeof tools.echo", json!("function")),
        (
            "try { await tools.echo({fail: 'no'}) } catch (e) { return [e instanceof Error, e.message, e.tool] }",
            json!([true, "no", "echo"]),
        ),
    ] {
        assert_eq!(returned(&run(code).await), expected, "{code}");
    }
    for (code, expected) in [
        ("tools.echo(1)", "TypeError: echo: expected one object"),
        ("tools.echo([])", "TypeError: echo: expected one object"),
        ("tools.echo('x')", "TypeError: echo: expected one object"),
        ("tools.echo(null)", "TypeError: echo: expected one object"),
        ("tools.echo({toJSON() { return 1 }})", "TypeError: echo: expected one object"),
        ("tools.echo({a: 5n})", "TypeError: BigInt"),
        ("const o = {}; o.o = o; return tools.echo(o)", "TypeError: circular"),
        ("tools.echo({get a() { throw new RangeError('mine') }})", "RangeError: mine"),
        (
            "tools.find_issue({})",
            "Error: unknown tool \"find_issue\": did you mean tools.tracker__find_issue?",
        ),
        ("tools.qwertz({})", "Error: unknown tool \"qwertz\""),
    ] {
        let outcome = run(code).await;
        let fault = outcome.fault.map_or_else(String::new, |fault| fault.to_string());
        assert!(fault.starts_with(expected), "{code}: {fault}");
        assert_eq!(outcome.calls, 0);
    }
}

#[tokio::test]
async fn calls_wait_while_as_many_as_allowed_are_pending_and_end_at_the_limit() {
    let code = "const all = await Promise.allSettled(Array.from({length: 2000}, (_, n) => tools.echo({n})));\n\
                const good = all.filter((one) => one.status === 'fulfilled');\n\
                return [good.length, good.every((one, n) => one.value.n === n), all[1999].reason?.message]";
    let within = |calls| ScriptLimits {
        calls,
        memory: 64 << 20,
        cpu_time: Duration::from_secs(20),
        ..limits()
    };
    let outcome = run_within(code, within(2_000)).await;
    assert_eq!(returned(&outcome), json!([2_000, true, null]));
    assert_eq!(outcome.calls, 2_000);
    let outcome = run_within(code, within(100)).await;
    assert_eq!(returned(&outcome), json!([100, true, "no more than 100 tool calls are allowed"]));
    assert_eq!(outcome.calls, 100);
    // Only four arrive before the first answer; a fifth arrives after it.
    let mut running = start(
        "return (await Promise.all([1, 2, 3, 4, 5].map((n) => tools.echo({n})))).length",
        limits(),
    )
    .await;
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(next_call(&mut running).await);
    }
    let early = tokio::time::timeout(Duration::from_millis(200), running.next()).await;
    assert!(early.is_err(), "{early:?}");
    for call in calls.iter().rev() {
        running.answer(call.id, Ok(Bytes::from_static(b"{\n\"a\":\r\n1}")));
    }
    let last = next_call(&mut running).await;
    running.answer(9_999, Ok(Bytes::from_static(b"1")));
    running.answer(last.id, Ok(last.arguments));
    let ScriptEvent::Ended(outcome) = next(&mut running).await else { panic!("it ends") };
    assert_eq!(returned(&outcome), json!(5));
    assert_eq!(next(&mut running).await, ScriptEvent::Ended(outcome));
}

#[tokio::test]
async fn an_answer_that_is_no_json_or_too_large_rejects_the_call_alone() {
    let code = "const all = await Promise.allSettled([tools.echo(), tools.echo(), tools.echo()]);\n\
                return all.map((one) => one.value ?? one.reason.message)";
    let mut running = start(code, limits()).await;
    for answer in ["{\"broken\":", &"x".repeat(20_000), "\"good\""] {
        let call = next_call(&mut running).await;
        running.answer(call.id, Ok(Bytes::copy_from_slice(answer.as_bytes())));
    }
    let ScriptEvent::Ended(outcome) = next(&mut running).await else { panic!("it ends") };
    assert_eq!(
        returned(&outcome),
        json!([
            "the result of the tool is not JSON",
            "the result of the tool has 20000 bytes, at most 10000 are allowed",
            "good"
        ])
    );
}

#[tokio::test]
async fn time_is_bounded() {
    for code in [
        "for (;;);",
        "(function f() { Promise.resolve().then(f) })()",
        "const f = async () => { for (;;) await null }; await f()",
        "for (;;) try { for (;;); } catch {} finally { for (;;); }",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "return {toJSON() { for (;;); }}",
        "console.log({get a() { for (;;); }})",
        "tools.echo({get a() { for (;;); }}).catch(() => 1); for (;;);",
        "const e = new Error('x'); Object.defineProperty(e, 'stack', {get() { for (;;); }}); throw e",
    ] {
        let outcome = run(&format!("console.log('begun');\n{code}")).await;
        assert_eq!(
            outcome.fault,
            Some(ScriptFault::CpuTime { limit: Duration::from_millis(400) }),
            "{code}"
        );
        assert_eq!(outcome.printed.lines().next(), Some("begun"), "{code}");
    }
    // The interpreter does not interrupt this one: the kernel does.
    let native = "console.log('begun'); 'a'.repeat(4e6).indexOf('a'.repeat(2e6) + 'b')";
    let outcome = run(native).await;
    assert_eq!(outcome.fault, Some(ScriptFault::CpuTime { limit: Duration::from_millis(400) }));
    assert_eq!(outcome.printed, "begun\n");
}

#[tokio::test]
async fn a_script_that_waits_ends_with_its_time() {
    let mut wall_time = Duration::from_millis(800);
    let outcome = loop {
        let waits = ScriptLimits { wall_time, ..limits() };
        let mut running = start("console.log('begun'); await tools.echo()", waits).await;
        let is_waiting = matches!(next(&mut running).await, ScriptEvent::Call(_));
        let ScriptEvent::Ended(outcome) = next(&mut running).await else { panic!("no answer") };
        assert_eq!(outcome.fault, Some(ScriptFault::WallTime { limit: wall_time }));
        if is_waiting {
            break outcome;
        }
        // The machine is busy: the time was over before the script could make its call.
        wall_time *= 2;
    };
    assert_eq!((outcome.printed.as_str(), outcome.calls), ("begun\n", 1));
}

#[tokio::test]
async fn memory_and_stack_are_bounded() {
    let mut found = Vec::new();
    let patient = ScriptLimits { cpu_time: Duration::from_secs(20), ..limits() };
    for code in [
        "const a = []; for (;;) a.push('x'.repeat(1000) + a.length)",
        "const a = []; for (let s = 'x'; ; a.push(s)) s = s.length > 1e6 ? s + '' + a.length : s + s",
        "const a = []; for (;;) a.push(new ArrayBuffer(1e6))",
        // More than the interpreter's limit, less than the process's.
        "new ArrayBuffer(36e6)",
        "new SharedArrayBuffer(1e9)",
        "new Array(1e9).fill(1)",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, {i})",
        "const all = []; for (let n = 0; n < 50; n++) all.push(tools.echo({s: 'x'.repeat(9000), n}).then(() => {})); await Promise.all(all); 'x'.repeat(1 << 29)",
    ] {
        let outcome = run_within(&format!("console.log('begun');\n{code}"), patient.clone()).await;
        let fault = outcome.fault.clone().map(|fault| fault.to_string()).unwrap_or_default();
        let is_memory = outcome.fault == Some(ScriptFault::Memory { limit: 32 << 20 });
        // An error that cannot be made for lack of memory is `null`.
        let is_memory = is_memory || fault.contains("for lack of memory");
        if outcome.printed != "begun\n" || !(is_memory || fault.contains("too long")) {
            found.push(format!("{code}: {fault}"));
        }
    }
    for code in [
        "const f = () => f() + 1; f()",
        "const f = (n) => [1].map(f); f()",
        "const o = {get a() { return this.a }}; o.a",
        "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; JSON.stringify(a)",
        "JSON.parse('['.repeat(1e5))",
        "new RegExp('(?:'.repeat(1e5))",
        "eval('('.repeat(1e5))",
    ] {
        let outcome = run(code).await;
        let fault = outcome.fault.map(|fault| fault.to_string()).unwrap_or_default();
        if !fault.contains("call stack") && !fault.contains("stack overflow") {
            found.push(format!("{code}: {fault}"));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    let code = "const f = () => { try { return f() } catch { return 7 } }; return f()";
    assert_eq!(returned(&run(code).await), json!(7), "it can be caught");
}

#[tokio::test]
async fn printed_returned_and_sent_data_are_bounded() {
    let outcome = run("for (let i = 0; i < 1e4; i++) console.log('é'.repeat(100)); return 1").await;
    assert_eq!(returned(&outcome), json!(1));
    assert!(outcome.is_cut && outcome.printed.len() <= 10_000 && outcome.printed.len() > 9_990);
    let outcome = run("console.log('\\u0001'.repeat(5e6)); return 1").await;
    assert!(outcome.is_cut && outcome.printed.len() == 10_000, "{}", outcome.printed.len());
    let outcome = run("console.log('kept'); return 'x'.repeat(10_000)").await;
    assert_eq!(outcome.fault, Some(ScriptFault::ReturnedSize { size: 10_002, limit: 10_000 }));
    assert_eq!((outcome.printed.as_str(), outcome.returned), ("kept\n", None));
    let code = "try { await tools.echo({a: 'x'.repeat(10_000)}) } catch (e) { return e.name + ': ' + e.message }";
    let outcome = run(code).await;
    let expected = "RangeError: echo: arguments of 10008 bytes, at most 10000 are allowed";
    assert_eq!((returned(&outcome), outcome.calls), (json!(expected), 0));
    let outcome = run("throw new Error('x'.repeat(1e6))").await;
    let ScriptFault::Thrown { message, .. } = outcome.fault.unwrap() else { panic!("thrown") };
    assert_eq!(message.len(), 2048);
    let guardian = Guardian::when_needed(Path::new(TRUNKLINE));
    let long = ScriptRequest { code: " ".repeat(300 << 10), tools: Vec::new() };
    let refused = RunningScript::start(long, limits(), &guardian).await;
    assert!(matches!(refused, Err(ScriptError::TooLong { size: 307_200, limit: 262_144 })));
}

#[tokio::test]
async fn a_script_that_changes_the_language_disturbs_only_itself() {
    for trick in [
        "Object.prototype.toJSON = () => 'forged'",
        "Array.prototype.then = Promise.prototype.then = Object.prototype.then = (f) => f('forged')",
        "Promise.resolve = Promise.all = Promise.prototype.catch = null; Promise = null",
        "Object.defineProperty = Object.create = Object.freeze = JSON.stringify = JSON.parse = null; JSON = null",
        "Error = TypeError = null; Object.prototype.message = 7",
        "Object.defineProperty(Error.prototype, 'message', {set() { throw 1 }, get() { throw 2 }})",
        "Error.prepareStackTrace = () => { throw 3 }",
        "Error.stackTraceLimit = {valueOf() { throw 4 }}",
        "Object.prototype[Symbol.toPrimitive] = () => { throw 5 }",
        "Object.prototype.get = Object.prototype.has = Object.prototype.value = () => { throw 6 }",
        "String.prototype.toString = Symbol.prototype.toString = null",
        "Array.prototype[Symbol.iterator] = null; Object.prototype.__proto__ = null",
        "Object.setPrototypeOf(Function.prototype, null)",
        "globalThis.console = globalThis.tools = globalThis.print = 7",
        "Object.defineProperty(Object.prototype, 'tool', {set() { throw 7 }})",
        "Object.freeze(Object.prototype); Object.freeze(Error.prototype); Object.freeze(Promise.prototype)",
    ] {
        let code = format!(
            "{trick};\nconsole.log('printed');\nlet e; const is = globalThis.tools !== 7 && 'echo' in tools; try {{ await tools.echo({{fail: 'no'}}) }} catch (x) {{ e = x }}\n\
             console.log(e.message);\nconst one = tools.echo({{a: 1}}); await one;\nreturn 'done'"
        );
        let outcome = run(&code).await;
        assert!(outcome.printed.starts_with("printed\n"), "{trick}: {outcome:?}");
        let is_own = matches!(
            outcome.fault,
            None | Some(ScriptFault::Thrown { .. } | ScriptFault::NeverSettles)
        );
        assert!(is_own, "{trick}: {outcome:?}");
        if !trick.contains("then") && !trick.contains("toJSON") {
            assert_eq!(outcome.printed, "printed\nno\n", "{trick}: {outcome:?}");
            assert!(outcome.calls == 2 && outcome.fault.is_none(), "{trick}: {outcome:?}");
        }
    }
    let forged = "print('\\n{\"Ended\":{\"fault\":null}}\\n'); return 1";
    let outcome = run(forged).await;
    assert_eq!(outcome.printed, "\n{\"Ended\":{\"fault\":null}}\n\n");
    assert_eq!(returned(&outcome), json!(1));
}
