//! The check of a history detects each violation.

use std::time::Duration;

use super::{CallEnd, CallRecord, Delivery, Execution, History, Violation, violations};

fn call(mark: &str, end: CallEnd) -> CallRecord {
    let end_time = Duration::from_secs(2);
    let session = Some("s1".to_owned());
    CallRecord { mark: mark.into(), session, rounds: 1, end: Some((end_time, end)) }
}

fn execution(mark: &str, process: &str, seconds: u64) -> Execution {
    let at = Duration::from_secs(seconds);
    Execution { mark: mark.into(), round: 1, process: process.into(), at }
}

fn history(calls: Vec<CallRecord>, executions: Vec<Execution>) -> History {
    History { calls, executions, deliveries: Vec::new() }
}

#[test]
fn a_sound_history_has_no_violation() {
    let mut two_rounds = call("a-M#3", CallEnd::Retryable("503".into()));
    two_rounds.rounds = 2;
    let calls = vec![
        call("a-L#1", CallEnd::Answer),
        call("a-L#2", CallEnd::Error("replica_lost".into())),
        call("a-L#4", CallEnd::Broken),
        call("a-L#5", CallEnd::Retryable("503".into())),
        two_rounds,
    ];
    let executions =
        ["a-L#1", "a-L#2", "a-M#3"].map(|mark| execution(mark, "r0.1", 1)).into_iter().collect();
    let mut sound = history(calls, executions);
    sound.deliveries.push(Delivery { client: "a-L".into(), mark: "a-L#1".into() });
    assert_eq!(violations(&sound), []);
}

#[test]
fn a_message_to_a_wrong_client_is_found() {
    let mut strayed = history(Vec::new(), Vec::new());
    strayed.deliveries.push(Delivery { client: "a-L".into(), mark: "a-M#1".into() });
    let expected = Violation::WrongClient { client: "a-L".into(), mark: "a-M#1".into() };
    assert_eq!(violations(&strayed), [expected]);
}

#[test]
fn a_call_without_an_answer_or_an_error_is_found() {
    let mut endless = call("a-L#1", CallEnd::Hung);
    endless.end = None;
    let calls = vec![endless, call("a-L#2", CallEnd::Hung), call("a-L#3", CallEnd::Silent)];
    let missing = |mark: &str, end| Violation::MissingEnd { mark: mark.into(), end };
    let expected = [
        missing("a-L#1", None),
        missing("a-L#2", Some(CallEnd::Hung)),
        missing("a-L#3", Some(CallEnd::Silent)),
    ];
    assert_eq!(violations(&history(calls, Vec::new())), expected);
}

#[test]
fn a_repeated_execution_is_found_whatever_the_end_of_the_call() {
    for end in [CallEnd::Answer, CallEnd::Broken, CallEnd::Error("replica_lost".into())] {
        let twice = vec![execution("a-L#1", "r0.1", 1), execution("a-L#1", "r0.1", 1)];
        let expected = Violation::Repeated { mark: "a-L#1".into(), round: 1, times: 2 };
        assert_eq!(violations(&history(vec![call("a-L#1", end)], twice)), [expected]);
    }
}

#[test]
fn rounds_of_one_call_are_no_repetition() {
    let mut second = execution("a-M#1", "r0.1", 1);
    second.round = 2;
    let executions = vec![execution("a-M#1", "r0.1", 1), second];
    assert_eq!(violations(&history(vec![call("a-M#1", CallEnd::Answer)], executions)), []);
}

#[test]
fn an_answer_without_an_execution_is_found() {
    let calls = vec![call("a-L#1", CallEnd::Answer)];
    let expected = Violation::NeverExecuted { mark: "a-L#1".into() };
    assert_eq!(violations(&history(calls, Vec::new())), [expected]);
}

#[test]
fn an_execution_of_a_refused_call_is_found() {
    let calls = vec![call("a-L#1", CallEnd::Retryable("503".into()))];
    let expected = Violation::ExecutedThoughRefused { mark: "a-L#1".into(), error: "503".into() };
    assert_eq!(violations(&history(calls, vec![execution("a-L#1", "r0.1", 1)])), [expected]);
}

#[test]
fn two_owners_of_a_session_at_once_are_found() {
    let calls = ["a-L#1", "a-L#2", "a-L#3"].map(|mark| call(mark, CallEnd::Answer));
    let executions = |times: [u64; 3]| {
        let [first, second, third] = times;
        vec![
            execution("a-L#3", "r0.1", third),
            execution("a-L#1", "r0.1", first),
            execution("a-L#2", "r1.1", second),
        ]
    };
    let found = violations(&history(calls.to_vec(), executions([1, 2, 3])));
    assert!(
        matches!(&found[..], [Violation::TwoOwners { session, .. }] if session == "s1"),
        "{found:?}"
    );
    // Each has lost its lease in between.
    assert_eq!(violations(&history(calls.to_vec(), executions([1, 12, 23]))), []);
}

#[test]
fn a_session_that_moves_on_has_one_owner() {
    let marks = ["a-L#1", "a-L#2", "a-L#3"];
    let calls = marks.map(|mark| call(mark, CallEnd::Answer)).to_vec();
    let processes = ["r0.1", "r1.1", "r0.2"];
    let executions = marks.iter().zip(processes).zip(1..);
    let executions =
        executions.map(|((mark, process), second)| execution(mark, process, second)).collect();
    assert_eq!(violations(&history(calls, executions)), []);
}
