//! A server that is a child process ends on time, in the right way, and without remains.

#![allow(
    clippy::disallowed_methods,
    reason = "the crate's clock is its own: this measures from outside"
)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use trunkline::call::ServerName;
use trunkline::child::{Child, ChildSpec, Guardian, SpawnError};
use trunkline::codec::lines::{LineError, LineReader};

#[path = "support/waiting.rs"]
mod waiting;

use waiting::until;

const TRUNKLINE: &str = env!("CARGO_BIN_EXE_trunkline");

fn shell(script: &str) -> ChildSpec {
    ChildSpec {
        args: vec!["-c".into(), script.into()],
        stop_timeout: Duration::from_millis(300),
        ..ChildSpec::new("sh")
    }
}

fn spawn(spec: &ChildSpec) -> (Child, ChildStdin, ChildStdout) {
    Child::spawn(&ServerName::new("test").unwrap(), spec, &Guardian::none()).unwrap()
}

/// Reads the process ids that a script prints, one a line.
async fn ids<const N: usize>(stdout: ChildStdout) -> [i32; N] {
    let mut lines = tokio::io::BufReader::new(stdout).lines();
    let mut ids = [0; N];
    for id in &mut ids {
        *id = lines.next_line().await.unwrap().unwrap().parse().unwrap();
    }
    ids
}

/// Returns true if a process is running; a zombie that has not been reaped does not count.
fn runs(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

async fn ends(id: i32) {
    let ended = tokio::time::timeout(Duration::from_secs(10), until(|| !runs(id))).await;
    assert!(ended.is_ok(), "process {id} is still running");
}

fn kill(id: i32, signal: Signal) {
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn a_server_that_obeys_the_end_of_its_input_is_not_signalled() {
    let (child, stdin, _stdout) = spawn(&shell("trap 'exit 9' TERM; cat; exit 4"));
    drop(stdin);
    assert_eq!(child.stop().await.code(), Some(4));
}

#[tokio::test]
async fn a_server_that_ignores_the_end_of_its_input_is_terminated() {
    let spec = shell("trap 'exit 5' TERM; echo $$; while :; do sleep 0.05; done");
    let (child, stdin, stdout) = spawn(&spec);
    let [id] = ids(stdout).await;
    drop(stdin);
    assert_eq!(child.stop().await.code(), Some(5));
    assert!(!runs(id));
}

#[tokio::test]
async fn a_server_that_ignores_everything_is_killed() {
    let spec = shell("trap '' TERM INT HUP; echo $$; while :; do sleep 0.05; done");
    let (child, stdin, stdout) = spawn(&spec);
    let [id] = ids(stdout).await;
    drop(stdin);
    assert_eq!(child.stop().await.signal(), Some(9));
    assert!(!runs(id));
}

#[tokio::test]
async fn stopping_ends_processes_started_by_the_server_too() {
    let (child, _stdin, stdout) = spawn(&shell("sleep 1000 & echo $!; sleep 1000 & echo $!; wait"));
    let started: [i32; 2] = ids(stdout).await;
    child.stop().await;
    for id in started {
        ends(id).await;
    }
}

#[tokio::test]
async fn a_server_that_goes_by_itself_leaves_nothing_behind() {
    let (mut child, _stdin, stdout) =
        spawn(&shell("trap '' TERM; sleep 1000 & echo $!; echo bye >&2; exit 3"));
    let [id] = ids(stdout).await;
    assert_eq!(child.exited().await.code(), Some(3));
    assert_eq!(child.exited().await.code(), Some(3), "asked again");
    assert_eq!(child.last_words(), ["bye"]);
    ends(id).await;
}

#[tokio::test]
async fn waiting_for_the_end_can_be_given_up_and_taken_up_again() {
    let (mut child, stdin, _stdout) = spawn(&shell("cat; exit 6"));
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(5), child.exited()).await.is_err());
    }
    drop(stdin);
    assert_eq!(child.exited().await.code(), Some(6));
}

#[tokio::test]
async fn dropping_a_child_kills_its_group() {
    let (child, stdin, stdout) = spawn(&shell("trap '' TERM; sleep 1000 & echo $!; echo $$; wait"));
    let started: [i32; 2] = ids(stdout).await;
    drop(child);
    for id in started {
        ends(id).await;
    }
    drop(stdin);
}

#[tokio::test]
async fn a_server_sees_no_variable_that_it_was_not_given() {
    let mut spec = shell("env | grep ^CARGO_ | head -n 3 >&2; echo $GIVEN >&2");
    spec.env = vec![("GIVEN".into(), "a present".into())];
    let (mut child, _stdin, _stdout) = spawn(&spec);
    child.exited().await;
    // Cargo sets many variables for a test, and none of them was passed on.
    assert_eq!(child.last_words(), ["a present"]);
}

#[tokio::test]
async fn a_failed_start_names_the_missing_part() {
    let server = ServerName::new("test").unwrap();
    let fails = |spec: &ChildSpec| Child::spawn(&server, spec, &Guardian::none()).unwrap_err();
    let missing = ChildSpec::new("no-such-program-here");
    assert!(matches!(fails(&missing), SpawnError::NotFound { .. }));
    assert!(matches!(fails(&ChildSpec::new("/")), SpawnError::Denied { .. }));
    let nowhere = ChildSpec { cwd: Some("/no/such/folder".into()), ..ChildSpec::new("sh") };
    assert!(matches!(fails(&nowhere), SpawnError::Cwd { .. }));
}

/// Returns `tests/fixtures/hostile.py` with these arguments.
fn hostile(arguments: &str) -> ChildSpec {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hostile.py");
    let arguments = arguments.split_whitespace().map(String::from);
    ChildSpec {
        args: std::iter::once(script.into()).chain(arguments).collect(),
        stop_timeout: Duration::from_millis(300),
        ..ChildSpec::new("python3")
    }
}

async fn call(stdin: &mut ChildStdin, id: u32, tool: &str) {
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#
    );
    stdin.write_all(format!("{call}\n").as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_line_of_a_hundred_megabytes_costs_that_line_alone() {
    for (id_at, at_the_head) in [("front", true), ("back", false)] {
        let (child, mut stdin, stdout) = spawn(&hostile(&format!("--mode huge --id-at {id_at}")));
        let mut lines = LineReader::new(stdout, 1 << 20);
        call(&mut stdin, 7, "bad").await;
        let Err(LineError::TooLong { limit, ends }) = lines.next().await else {
            panic!("a line over the limit came through");
        };
        assert_eq!(limit, 1 << 20);
        let names_call = |end: &[u8]| String::from_utf8_lossy(end).contains(r#""id":7"#);
        assert_eq!((names_call(&ends.head), names_call(&ends.tail)), (at_the_head, !at_the_head));
        call(&mut stdin, 8, "good").await;
        let answer = lines.next().await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&answer).contains("good"));
        drop(stdin);
        assert!(child.stop().await.success());
    }
}

#[tokio::test]
async fn a_server_deaf_to_all_requests_to_leave_is_killed() {
    let (child, mut stdin, stdout) = spawn(&hostile("--mode deaf"));
    call(&mut stdin, 1, "good").await;
    assert!(LineReader::new(stdout, 1000).next().await.unwrap().is_some());
    drop(stdin);
    assert_eq!(child.stop().await.signal(), Some(9));
}

#[tokio::test]
async fn a_flood_on_standard_error_holds_no_answer_up() {
    let (child, mut stdin, stdout) = spawn(&hostile("--mode stderr"));
    call(&mut stdin, 1, "bad").await;
    assert!(LineReader::new(stdout, 1000).next().await.unwrap().is_some());
    drop(stdin);
    assert!(child.stop().await.success());
}

#[tokio::test]
async fn the_guardian_ends_registered_processes_and_no_others() {
    let (mut kept, _in_kept, _out_kept) = spawn(&ChildSpec::new("cat"));
    let (mut told, _in_told, _out_told) = spawn(&ChildSpec::new("cat"));
    let (mut deaf, _in_deaf, stdout) = spawn(&shell("trap '' TERM; echo $$; cat; cat"));
    let [_ready] = ids(stdout).await;
    let mut guardian =
        Command::new(TRUNKLINE).arg("guardian").stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = guardian.stdin.take().unwrap();
    let ids = (kept.id(), told.id(), deaf.id());
    write!(pipe, "+{}\n+{}\nnonsense\n+{}\n-{}\n", ids.0, ids.1, ids.2, ids.0).unwrap();
    drop(pipe);
    assert_eq!(told.exited().await.signal(), Some(15));
    assert_eq!(deaf.exited().await.signal(), Some(9));
    assert!(guardian.wait().unwrap().success());
    let waited = tokio::time::timeout(Duration::from_millis(50), kept.exited()).await;
    assert!(waited.is_err(), "the unregistered group was ended too");
}

#[tokio::test]
async fn a_guardian_outlives_signals_and_is_replaced_when_killed() {
    let guardian = Guardian::start(Path::new(TRUNKLINE));
    let first = i32::try_from(guardian.id().unwrap()).unwrap();
    let server = ServerName::new("test").unwrap();
    let (mut one, _stdin_one, _stdout_one) =
        Child::spawn(&server, &ChildSpec::new("cat"), &guardian).unwrap();
    listens_for_signals(first).await;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        kill(first, signal);
    }
    // The signals have been delivered.
    until(|| signal_mask(first, "ShdPnd:").is_none_or(|pending| pending == 0)).await;
    // The guardian still reads changes.
    let (three, _stdin_three, _stdout_three) =
        Child::spawn(&server, &ChildSpec::new("cat"), &guardian).unwrap();
    drop(three);
    assert_eq!(guardian.id(), u32::try_from(first).ok());
    assert!(runs(first), "the guardian obeyed a signal");

    kill(first, Signal::KILL);
    ends(first).await;
    let (two, _stdin_two, _stdout_two) =
        Child::spawn(&server, &ChildSpec::new("cat"), &guardian).unwrap();
    let second = i32::try_from(guardian.id().unwrap()).unwrap();
    assert_ne!(first, second);
    assert!(runs(second));
    drop(two);
    assert!(tokio::time::timeout(Duration::from_millis(50), one.exited()).await.is_err());
}

#[tokio::test]
async fn a_guardian_that_is_not_needed_does_not_run_until_there_is_a_child() {
    let guardian = Guardian::when_needed(Path::new(TRUNKLINE));
    assert_eq!(guardian.id(), None);
    let server = ServerName::new("test").unwrap();
    let (child, _stdin, _stdout) =
        Child::spawn(&server, &ChildSpec::new("cat"), &guardian).unwrap();
    let guards = i32::try_from(guardian.id().unwrap()).unwrap();
    assert!(runs(guards));
    drop((child, guardian));
    ends(guards).await;
}

/// Waits until process `id` catches SIGTERM.
async fn listens_for_signals(id: i32) {
    let is_caught = |mask: u64, number: i32| mask & (1 << (number - 1)) != 0;
    let are_caught = |mask| is_caught(mask, Signal::QUIT.as_raw()) && is_caught(mask, 15);
    until(|| signal_mask(id, "SigCgt:").is_some_and(are_caught)).await;
}

/// Returns a set of signals of a process, as the kernel names it.
fn signal_mask(id: i32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[tokio::test]
async fn a_gateway_that_is_killed_leaves_no_orphan() {
    let mut gateway = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stands_in_for_a_gateway", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ids = Vec::new();
    for line in BufReader::new(gateway.stdout.take().unwrap()).lines() {
        if let Some(id) = line.unwrap().strip_prefix("orphan-to-be ") {
            ids.push(id.parse().unwrap());
        }
        if ids.len() == 4 {
            break;
        }
    }
    assert!(ids.iter().all(|id| runs(*id)), "{ids:?}");
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    for id in ids {
        ends(id).await;
    }
}

/// Not a test: the process that the test above runs and kills. It holds two children, one of which
/// ignores all signals but `SIGKILL`, each with a child of its own, and never ends.
#[tokio::test]
#[ignore = "runs for ever: a_gateway_that_is_killed_leaves_no_orphan runs it"]
async fn stands_in_for_a_gateway() {
    let guardian = Guardian::start(Path::new(TRUNKLINE));
    let server = ServerName::new("test").unwrap();
    let mut held = Vec::new();
    for script in ["sleep 1000", "trap '' TERM; sleep 1000"] {
        let spec = shell(&format!("{script} & echo $!; echo $$; wait; sleep 1000"));
        let (child, stdin, stdout) = Child::spawn(&server, &spec, &guardian).unwrap();
        let started: [i32; 2] = ids(stdout).await;
        for id in started {
            println!("\norphan-to-be {id}");
        }
        held.push((child, stdin));
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
}
