//! The process of a script: its confinement, its end, and its parent's distrust.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use trunkline::child::Guardian;
use trunkline::code_mode::{
    ProtocolError, RunningScript, ScriptError, ScriptEvent, ScriptFault, ScriptLimits,
};

use super::waiting::until;
use super::{TRUNKLINE, limits, next, next_call, returned, run, script, start};

/// Returns a confined process's report of an attempt, or the signal that killed it.
fn probe(what: &str, further: &[&str]) -> Result<String, i32> {
    let limits = serde_json::to_string(&limits()).unwrap();
    let mut command = Command::new("timeout");
    command.args(["--signal=ALRM", "300", TRUNKLINE, "run-code", "--limits", &limits]);
    command.args(["--probe", what]).args(further).stdin(Stdio::null());
    let output = command.output().unwrap();
    // `timeout` ends by the signal that ended the program, or with its number and 128.
    let code = output.status.code().unwrap_or_default();
    match output.status.signal().or((code > 128).then_some(code - 128)) {
        Some(signal) => Err(signal),
        None => Ok(String::from_utf8(output.stderr).unwrap()),
    }
}

#[test]
fn the_process_can_do_nothing_but_compute_and_answer() {
    let killed = |signal: i32| format!("killed by signal {signal}");
    let (by_filter, for_cpu_time) = (killed(31), killed(24));
    let mut found = Vec::new();
    for (what, further, expected) in [
        ("read-descriptor", &[][..], &*by_filter),
        ("connect", &[], &by_filter),
        ("start-thread", &[], &by_filter),
        ("run-program", &[], &by_filter),
        ("signal-parent", &[], &by_filter),
        ("read-file", &[], "Operation not permitted"),
        ("list-folder", &[], "Operation not permitted"),
        ("write-file", &[], "Operation not permitted"),
        // The other layers hold without the filter, too.
        ("read-file", &["--unfiltered"], "Permission denied"),
        ("list-folder", &["--unfiltered"], "Permission denied"),
        ("write-file", &["--unfiltered"], "Permission denied"),
        ("run-program", &["--unfiltered"], "Permission denied"),
        ("connect", &["--unfiltered"], "Permission denied"),
        ("signal-parent", &["--unfiltered"], "Operation not permitted"),
        ("use-memory", &["--unfiltered"], "memory allocation failed"),
        ("use-cpu", &["--unfiltered"], &for_cpu_time),
        ("nothing", &[], ""),
    ] {
        let said = probe(what, further).unwrap_or_else(killed);
        if !said.contains(expected) || (expected.is_empty() && !said.is_empty()) {
            found.push(format!("{what} {further:?}: {said:?} and not {expected:?}"));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn the_process_inherits_nothing_and_reads_no_code_before_it_is_confined() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    let mut running = start("await tools.echo()", limits()).await;
    next_call(&mut running).await;
    let folder = format!("/proc/{}", running.process_id().unwrap());
    let read = |file: &str| std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
    assert_eq!(read("environ"), "");
    assert_eq!(std::fs::read_link(format!("{folder}/cwd")).unwrap(), Path::new("/"));
    let group: Vec<_> = read("stat").split(' ').map(str::to_owned).collect();
    assert_eq!(group[4], running.process_id().unwrap().to_string(), "it leads a group");
    // It yields to the gateway: the priority is the 17th field after the name in parentheses.
    let priority = read("stat").rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().to_owned();
    assert_eq!(priority, "19");
    // Descriptors that are open in this process are not open in the child.
    let links = std::fs::read_dir(format!("{folder}/fd")).unwrap();
    let links: Vec<_> =
        links.map(|link| std::fs::read_link(link.unwrap().path()).unwrap()).collect();
    assert!(!links.iter().any(|link| link == secret.path()), "{links:?}");
    assert!(
        !links.iter().any(|link| link.to_string_lossy().starts_with("anon_inode")),
        "{links:?}"
    );
    let status = read("status");
    for line in ["Threads:\t1", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let bounds = read("limits");
    for (name, bound) in [
        ("Max core file size", "0"),
        ("Max processes", "0"),
        ("Max open files", "3"),
        ("Max file size", "0"),
        ("Max cpu time", "2"),
    ] {
        let line = bounds.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line[name.len()..].split_whitespace().next(), Some(bound), "{line}");
    }
}

#[tokio::test]
async fn a_dropped_script_leaves_no_process_and_one_script_disturbs_no_other() {
    let mut waiting = start("return await tools.echo({a: 1})", limits()).await;
    let call = next_call(&mut waiting).await;
    let endless = ScriptLimits { cpu_time: Duration::from_secs(50), ..limits() };
    let mut looping = start("for (;;);", endless).await;
    let early = tokio::time::timeout(Duration::from_millis(300), looping.next()).await;
    assert!(early.is_err(), "it was handed the code: {early:?}");
    let id = looping.process_id().unwrap();
    assert!(Path::new(&format!("/proc/{id}")).exists());
    drop(looping);
    // Neither the process nor its zombie remains.
    until(|| !Path::new(&format!("/proc/{id}")).exists()).await;
    assert_eq!(
        run("const a = []; for (;;) a.push(new ArrayBuffer(1e6))").await.fault,
        Some(ScriptFault::Memory { limit: 32 << 20 })
    );
    waiting.answer(call.id, Ok(call.arguments));
    let ScriptEvent::Ended(outcome) = next(&mut waiting).await else { panic!("it ends") };
    assert_eq!(returned(&outcome), json!({"a": 1}));
}

#[tokio::test]
async fn a_killed_process_leaves_its_output() {
    let mut running = start("console.log('kept'); await tools.echo()", limits()).await;
    next_call(&mut running).await;
    let id = rustix::process::Pid::from_raw(running.process_id().unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    let ScriptEvent::Ended(outcome) = next(&mut running).await else { panic!("it ends") };
    assert_eq!(outcome.printed, "kept\n");
    assert_eq!(outcome.fault, Some(ScriptFault::Signal { signal: 9 }));
    assert_eq!(running.process_id(), None);
}

/// Starts a program that prints these lines instead of running code.
async fn forge(lines: &[&str]) -> Result<RunningScript, ScriptError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let mut file = std::fs::File::create(&path).unwrap();
    writeln!(file, "#!/bin/sh\n[ \"$1\" = guardian ] && exec /bin/cat").unwrap();
    for line in lines {
        writeln!(file, "{line}").unwrap();
    }
    file.set_permissions(PermissionsExt::from_mode(0o755)).unwrap();
    drop(file);
    RunningScript::start(script("1"), limits(), &Guardian::when_needed(&path)).await
}

#[tokio::test]
async fn the_parent_does_not_trust_the_child() {
    let call =
        |id: usize| format!("echo '{{\"Call\":{{\"id\":{id},\"tool\":0,\"arguments\":{{}}}}}}'");
    let calls: Vec<_> = (0..5).map(call).collect();
    let mut found = Vec::new();
    for (lines, expected) in [
        (calls.iter().map(String::as_str).collect(), ProtocolError::Calls),
        (vec![calls[0].as_str(), calls[0].as_str()], ProtocolError::Call),
        (vec!["echo '{\"Call\":{\"id\":1,\"tool\":2,\"arguments\":{}}}'"], ProtocolError::Call),
        (
            vec!["echo '{\"Call\":{\"id\":1,\"tool\":0,\"arguments\":[]}}'"],
            ProtocolError::Malformed,
        ),
        (vec!["echo nonsense"], ProtocolError::Malformed),
        (vec!["echo '\"Ready\"'"], ProtocolError::Malformed),
        (vec!["head -c 100000 /dev/zero; echo"], ProtocolError::Length),
        (
            vec![
                "echo \"{\\\"Call\\\":{\\\"id\\\":1,\\\"tool\\\":0,\\\"arguments\\\":{\\\"a\\\":\\\"$(head -c 11000 /dev/zero | tr '\\0' x)\\\"}}}\"",
            ],
            ProtocolError::Length,
        ),
        (
            vec![
                "echo \"{\\\"Ended\\\":{\\\"returned\\\":\\\"$(head -c 11000 /dev/zero | tr '\\0' x)\\\",\\\"fault\\\":null}}\"",
            ],
            ProtocolError::Length,
        ),
        (vec!["while true; do echo '{\"Printed\":\"and so on\"}'; done"], ProtocolError::Printed),
    ] {
        let lines: Vec<_> =
            std::iter::once("echo '\"Ready\"'").chain(lines).chain(["sleep 5"]).collect();
        let mut running = forge(&lines).await.unwrap();
        let outcome = loop {
            match next(&mut running).await {
                ScriptEvent::Call(_) => {}
                ScriptEvent::Ended(outcome) => break outcome,
            }
        };
        if outcome.fault != Some(ScriptFault::Violation(expected)) || outcome.printed.len() > 10_000
        {
            found.push(format!("{lines:?}: {:?} and not {expected:?}", outcome.fault));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    // More calls than allowed in total, each answered.
    let many: Vec<_> = (0..60).map(call).collect();
    let lines: Vec<_> = std::iter::once("echo '\"Ready\"'")
        .chain(many.iter().map(String::as_str))
        .chain(["sleep 5"])
        .collect();
    let mut running = forge(&lines).await.unwrap();
    let outcome = loop {
        match next(&mut running).await {
            ScriptEvent::Call(call) => running.answer(call.id, Ok(Bytes::from_static(b"1"))),
            ScriptEvent::Ended(outcome) => break outcome,
        }
    };
    assert_eq!(
        (outcome.calls, outcome.fault),
        (50, Some(ScriptFault::Violation(ProtocolError::Calls)))
    );
}

#[tokio::test]
async fn a_process_that_cannot_be_confined_runs_nothing() {
    let refused =
        forge(&["echo 'run-code: this kernel cannot do that' >&2", "exit 126"]).await.unwrap_err();
    assert!(refused.to_string().ends_with("run-code: this kernel cannot do that"), "{refused}");
    let missing = Guardian::when_needed(Path::new("/nonexistent/program"));
    let missing = RunningScript::start(script("1"), limits(), &missing).await;
    assert!(matches!(missing, Err(ScriptError::Spawn(_))), "{missing:?}");
    // A system without Landlock: the process is in a sandbox that denies the call.
    let policy = json!({"read": ["/"], "execute": ["/"], "write": ["/"], "denied": ["landlock_create_ruleset"]});
    let limits = serde_json::to_string(&limits()).unwrap();
    let mut command = Command::new(TRUNKLINE);
    command.args([
        "sandbox",
        "--policy",
        &policy.to_string(),
        "--",
        TRUNKLINE,
        "run-code",
        "--limits",
        &limits,
    ]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout.is_empty() && said.contains("cannot restrict files"), "{said}");
}
