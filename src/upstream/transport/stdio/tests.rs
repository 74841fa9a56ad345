use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::net::unix::pipe;

use super::*;
use crate::call::Failure;
use crate::captured_log::CapturedLog;
use crate::catalog::ServerOffers;
use crate::telemetry::metrics::ServerMetric;
use crate::upstream::ChangeCapabilities;

fn peer(version: ProtocolVersion) -> Peer {
    let offers = json!({ "tools": { "listChanged": true } });
    let offers = Arc::new(ServerOffers::new(&offers, None));
    let tells = ChangeCapabilities { tools: true, ..ChangeCapabilities::default() };
    Peer { version, info: Bytes::from_static(b"{}"), tells, offers, assumed: Arc::default() }
}

/// A connection to a child, with the child's ends of the two pipes.
fn child(version: ProtocolVersion) -> (StdioServer, DuplexStream, DuplexStream) {
    child_with_limit(version, 1 << 20)
}

fn settings() -> LinkSettings {
    LinkSettings {
        server: ServerName::new("s").unwrap(),
        secrets: ServerSecrets::default(),
        limit: 1 << 20,
        memory: Arc::default(),
        inbox: crate::upstream::tests::inbox(),
        first_printed: Arc::default(),
    }
}

/// The same with another limit of its lines.
fn child_with_limit(
    version: ProtocolVersion,
    limit: usize,
) -> (StdioServer, DuplexStream, DuplexStream) {
    let (input, its_input) = duplex(64);
    let (its_output, output) = duplex(64 * 1024);
    let wire = ChildLink::start(LinkSettings { limit, ..settings() }, input, output);
    let stdio = StdioServer {
        wire,
        peer: peer(version),
        levels: LogLevelControl::default(),
        _listening: JoinSet::new(),
    };
    (stdio, its_input, its_output)
}

/// The id of the next request that the child reads.
async fn next_id(lines: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> u64 {
    let mut line = String::new();
    lines.read_line(&mut line).await.unwrap();
    let request: serde_json::Value = serde_json::from_str(&line).unwrap();
    request["id"].as_u64().unwrap()
}

fn call(token: Option<&'static str>) -> Call {
    let mut call = crate::upstream::tests::call("t");
    call.context.progress_token = token.map(|token| Bytes::from_static(token.as_bytes()));
    call
}

fn target() -> CallTarget {
    crate::upstream::tests::target(&ServerName::new("s").unwrap(), "t")
}

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(1), Duration::from_secs(2))
}

async fn end(mut reply: Reply) -> Result<Answer, Failure> {
    loop {
        if let Event::Answer(answer) = reply.next().await.unwrap() {
            return answer;
        }
    }
}

#[tokio::test]
async fn an_excerpt_of_a_line_shows_no_secret_not_even_one_that_was_cut() {
    let (input, _its_input) = duplex(64);
    let (_its_output, output) = duplex(64);
    let secrets = ServerSecrets::new(["hunter2-hunter2"]);
    let wire = ChildLink::start(LinkSettings { secrets, ..settings() }, input, output);
    assert_eq!(wire.excerpt(b"key hunter2-hunter2"), "key ***");
    let long = wire.excerpt(&b"hunter2-hunter2 ".repeat(100));
    assert!(long.ends_with("***") && !long.contains("hunter2"), "{long}");
}

#[tokio::test]
async fn text_before_a_valid_message_does_not_explain_a_later_exit() {
    let note = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n";
    for (output, expected) in [
        ("{\"level\":\"info\"}\n".to_owned(), Some("{\"level\":\"info\"}")),
        (format!("{{\"level\":\"info\"}}\n{note}"), None),
        (format!("ready\n{note}"), None),
        (format!("ready\n[{note}]\n").replace("}\n]", "}]"), None),
        (format!("ready\n{note}fatal\n"), Some("fatal")),
    ] {
        let (input, _its_input) = duplex(64);
        let (mut its_output, read) = duplex(1024);
        let wire = ChildLink::start(settings(), input, read);
        its_output.write_all(output.as_bytes()).await.unwrap();
        drop(its_output);
        let fault = UpstreamError::from(wire.closed().await);
        let UpstreamError::Exited(exit) = wire.complete_exit(fault).await else { panic!() };
        let line = exit.first_line.map(|line| line.replace('\\', ""));
        assert_eq!(line.as_deref(), expected, "{output}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_reads_nothing_costs_each_call_its_time_and_no_more() {
    let (stdio, _its_input, _its_output) = child(ProtocolVersion::LATEST_LEGACY);
    let (target, one) = (target(), call(None));
    // More than the pipe and the queue can hold.
    let calls = (0..4000).map(|_| async {
        match stdio.call(&one, &target, deadline()).await {
            Ok(reply) => {
                end(reply).await.is_err_and(|f| matches!(f, Failure::ServerTimeout { .. }))
            }
            Err(fault) => matches!(fault, UpstreamError::Timeout { .. }),
        }
    });
    assert!(join_all(calls).await.into_iter().all(|timed_out| timed_out));
    assert_eq!(stdio.wire.in_flight(), 0, "nothing is kept of a call that is over");
    stdio.close();
}

#[tokio::test]
async fn a_child_that_asks_without_reading_is_heard_all_the_same() {
    let (stdio, its_input, mut its_output) = child(ProtocolVersion::LATEST_LEGACY);
    let (target, one) = (target(), call(None));
    let reply = stdio.call(&one, &target, deadline()).await.unwrap();
    let mut its_input = BufReader::new(its_input);
    let asked = next_id(&mut its_input).await;
    let feed = tokio::spawn(async move {
        for id in 0..1000 {
            let ask = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
            its_output.write_all(ask.as_bytes()).await.unwrap();
        }
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{asked},\"result\":{{}}}}\n");
        its_output.write_all(answer.as_bytes()).await.unwrap();
        its_output
    });
    assert!(end(reply).await.is_ok());
    drop(feed.await.unwrap());
}

#[tokio::test]
async fn a_large_line_is_parsed_away_from_the_serving_thread() {
    let (stdio, its_input, mut its_output) =
        child_with_limit(ProtocolVersion::LATEST_LEGACY, 64 << 20);
    let (target, one) = (target(), call(None));
    let patient = Deadline::new(Duration::from_mins(1), Duration::from_mins(2));
    let reply = stdio.call(&one, &target, patient).await.unwrap();
    let asked = next_id(&mut BufReader::new(its_input)).await;
    let text = "\\n\\u00e4".repeat(4 << 20);
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{asked},\"result\":{{\"a\":\"{text}\"}}}}\n");
    let feed = tokio::spawn(async move {
        its_output.write_all(line.as_bytes()).await.unwrap();
        its_output
    });
    let is_over = AtomicBool::new(false);
    let measure = async {
        let mut longest = Duration::ZERO;
        while !is_over.load(Ordering::Relaxed) {
            let before = crate::clock::thread_cpu_time();
            tokio::task::yield_now().await;
            longest = longest.max(crate::clock::thread_cpu_time().saturating_sub(before));
        }
        longest
    };
    let answer = async {
        let answer = end(reply).await;
        is_over.store(true, Ordering::Relaxed);
        answer
    };
    let (answered, longest) = tokio::join!(answer, measure);
    assert!(answered.is_ok());
    // The processor time of this thread: other work on the machine does not count.
    assert!(longest < Duration::from_millis(20), "{longest:?}");
    drop(feed.await.unwrap());
}

#[tokio::test]
async fn endless_progress_does_not_outlast_the_cap() {
    let (stdio, its_input, mut its_output) = child(ProtocolVersion::LATEST_LEGACY);
    let (target, one) = (target(), call(Some("7")));
    let short = Deadline::new(Duration::from_millis(20), Duration::from_millis(60));
    let reply = stdio.call(&one, &target, short).await.unwrap();
    let mut its_input = BufReader::new(its_input);
    let asked = next_id(&mut its_input).await;
    let flood = tokio::spawn(async move {
        let notice = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\
             \"params\":{{\"progressToken\":{asked},\"progress\":1}}}}\n"
        );
        while its_output.write_all(notice.repeat(100).as_bytes()).await.is_ok() {}
    });
    let answer = timeout(Duration::from_secs(20), end(reply)).await.expect("it ends");
    assert!(matches!(answer, Err(Failure::ServerTimeout { .. })));
    flood.abort();
}

#[tokio::test]
async fn an_answer_too_long_to_read_ends_the_only_call_also_while_changes_are_listened_for() {
    let (stdio, mut its_input, mut its_output) = child(ProtocolVersion::LATEST_MODERN);
    tokio::spawn(async move { tokio::io::copy(&mut its_input, &mut tokio::io::sink()).await });
    let _listening = change_stream::start(&stdio.wire, &stdio.peer);
    let (target, one) = (target(), call(None));
    let reply = stdio.call(&one, &target, deadline()).await.unwrap();
    let drip = tokio::spawn(async move {
        // Its id is at neither of its ends.
        let line = format!("{{\"jsonrpc\":\"2.0\",\"result\":\"{}\"}}\n", "x".repeat(2 << 20));
        its_output.write_all(line.as_bytes()).await.unwrap();
        its_output
    });
    assert!(matches!(end(reply).await, Err(Failure::BadAnswer { .. })));
    drop(drip.await.unwrap());
}

#[tokio::test]
async fn a_child_is_read_where_it_is_called_from_and_lost_when_that_ends() {
    let (input, its_input) = duplex(64 * 1024);
    let (mut its_output, output) = pipe::pipe().unwrap();
    let wire = ChildLink::start(settings(), input, ChildOutput::of(output));
    let peer = peer(ProtocolVersion::LATEST_LEGACY);
    let stdio =
        StdioServer { wire, peer, levels: LogLevelControl::default(), _listening: JoinSet::new() };
    tokio::spawn(async move {
        let mut its_input = BufReader::new(its_input);
        loop {
            let id = next_id(&mut its_input).await;
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n");
            its_output.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let stdio = Arc::new(stdio);
    let elsewhere =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for _ in 0..3 {
        let stdio = Arc::clone(&stdio);
        let called = elsewhere.spawn(async move {
            let reply = stdio.call(&call(None), &target(), deadline()).await.unwrap();
            end(reply).await.is_ok()
        });
        assert!(called.await.unwrap());
    }
    while stdio.wire.place.at() != Some(elsewhere.handle().id()) {
        tokio::task::yield_now().await;
    }
    elsewhere.shutdown_background();
    assert!(matches!(stdio.closed().await, UpstreamError::Exited(_)));
}

#[tokio::test]
async fn lines_that_a_child_prints_cause_one_warning_and_are_counted() {
    let log = CapturedLog::start();
    let metrics = crate::telemetry::metrics::Metrics::new("0").server("s");
    // Over all connections to the server.
    for _ in 0..2 {
        let (stdio, _input, _output) = child(ProtocolVersion::LATEST_LEGACY);
        stdio.wire.inbox.count_in(&metrics);
        for line in ["listening on port 8080", "[INFO] ready", "{\"half\": "] {
            stdio.wire.take(&Bytes::from_static(line.as_bytes()));
        }
    }
    let logged = log.text();
    assert_eq!(metrics.level(ServerMetric::StdoutLines).value(), 4);
    assert_eq!(logged.matches("prints text to standard output").count(), 1, "{logged}");
    assert!(logged.contains("listening on port 8080") && !logged.contains("[INFO] ready"));
    assert_eq!(logged.matches("half").count(), 2, "a broken message is not a printed line");
}

/// A child with the capability `logging`, and a call that requests lines of level `info`.
fn logging_child() -> (StdioServer, DuplexStream, DuplexStream, Call) {
    let (mut stdio, its_input, its_output) = child(ProtocolVersion::LATEST_LEGACY);
    stdio.peer.offers = Arc::new(ServerOffers::new(&json!({ "tools": {}, "logging": {} }), None));
    let mut call = call(None);
    call.context.log = Some(LogLevel::Info);
    (stdio, its_input, its_output, call)
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_response_to_its_log_level() {
    let (stdio, its_input, mut its_output, call) = logging_child();
    let mut its_input = BufReader::new(its_input).lines();
    let child = tokio::spawn(async move {
        let setting = its_input.next_line().await.unwrap().unwrap();
        assert!(setting.contains("logging/setLevel"), "{setting}");
        let early = timeout(Duration::from_millis(500), its_input.next_line()).await;
        assert!(early.is_err(), "{early:?}");
        let id = &serde_json::from_str::<serde_json::Value>(&setting).unwrap()["id"];
        let response = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n");
        its_output.write_all(response.as_bytes()).await.unwrap();
        (its_input.next_line().await.unwrap().unwrap(), its_output)
    });
    stdio.call(&call, &target(), deadline()).await.unwrap();
    let (sent, _its_output) = child.await.unwrap();
    assert!(sent.contains("tools/call"), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn a_log_level_without_a_response_delays_one_call() {
    let (stdio, _its_input, _its_output, call) = logging_child();
    let begun = crate::clock::now();
    for _ in 0..2 {
        let patient = Deadline::new(Duration::from_mins(1), Duration::from_mins(1));
        stdio.call(&call, &target(), patient).await.unwrap();
    }
    assert_eq!(begun.elapsed().as_secs(), LEVEL_PATIENCE.as_secs());
}
