use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::*;
use crate::code_mode::ScriptTool;

/// Output of the child.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the messages of an unconfined child that reads this script and these answers.
fn interpret(code: &str, answers: &[Json]) -> Vec<Json> {
    let limits = ScriptLimits { cpu_time: Duration::from_millis(200), ..ScriptLimits::default() };
    let tools = vec![ScriptTool { name: "a-b".into(), function: "a_b".into() }];
    let script = serde_json::to_value(ScriptRequest { code: code.into(), tools }).unwrap();
    let lines = std::iter::once(&script).chain(answers).map(|line| format!("{line}\n"));
    let input: String = lines.collect();
    let written = Written::default();
    let output = written.clone();
    let (ended, end) = mpsc::sync_channel(1);
    // The stack size of a main thread.
    let child = std::thread::Builder::new().stack_size(8 << 20);
    child
        .spawn(move || ended.send(serve_script(&limits, input.as_bytes(), output).is_ok()))
        .unwrap();
    assert_eq!(end.recv_timeout(Duration::from_mins(1)), Ok(true), "{code}");
    let text = String::from_utf8(written.0.lock().clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_interpreter_ends_code_that_takes_too_long() {
    for code in [
        "for (;;);",
        "(function f() { Promise.resolve().then(f) })()",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "return {toJSON() { for (;;); }}",
    ] {
        let messages = interpret(code, &[]);
        let fault = &messages.last().unwrap()["Ended"]["fault"]["CpuTime"];
        assert_eq!(fault["limit"]["nanos"], 200_000_000, "{code}: {messages:?}");
    }
}

#[test]
fn messages_are_those_of_the_protocol() {
    let code = "print('x'); const a = await tools.a_b({n: 1}); return a";
    let answer = json!({"id": 1, "answer": {"Value": [1, 2]}});
    let other = json!({"id": 7, "answer": {"Error": "not pending"}});
    assert_eq!(
        interpret(code, &[other, answer]),
        [
            json!("Ready"),
            json!({"Printed": "x\n"}),
            json!({"Call": {"id": 1, "tool": 0, "arguments": {"n": 1}}}),
            json!({"Ended": {"returned": [1, 2], "fault": null}}),
        ]
    );
    // Without its parent a child ends without a message.
    assert_eq!(interpret(code, &[]).len(), 3);
}

#[test]
fn a_line_is_read_to_its_end_or_not_at_all() {
    for (text, expected) in [
        ("abc\nd", Some(Some("abc"))),
        ("\n", Some(Some(""))),
        ("abc", Some(None)),
        ("", Some(None)),
        ("abcdefg\n", Some(Some("abcdefg"))),
        ("abcdefgh\n", None),
    ] {
        let line = read_line(&mut text.as_bytes(), 8).ok();
        let line = line.map(|line| line.map(|line| String::from_utf8(line).unwrap()));
        assert_eq!(line, expected.map(|line| line.map(str::to_owned)), "{text:?}");
    }
}
