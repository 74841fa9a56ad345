//! Runs against scripted servers, over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use trunkline_protocol::mcp::Era;

use super::*;

/// The behaviour of a server's calls; it handles the handshake and the tool list by itself.
type Manner = Arc<dyn Fn(usize, &Value) -> Said + Send + Sync>;

/// The reaction of a server to a call.
struct Said {
    after: Duration,
    bytes: Vec<u8>,
    /// True if it then closes the connection.
    closes: bool,
}

impl Said {
    fn bytes(head: &str, body: &str) -> Self {
        let bytes = format!("HTTP/1.1 {head}\r\n\r\n{body}").into_bytes();
        Self { after: Duration::ZERO, bytes, closes: false }
    }

    fn json(body: &Value) -> Self {
        let body = body.to_string();
        let head =
            format!("200 OK\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
        Self::bytes(&head, &body)
    }
}

fn result(request: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "content": [] } })
}

/// Starts a Modern server; returns its URL.
async fn server(manner: impl Fn(usize, &Value) -> Said + Send + Sync + 'static) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (manner, calls): (Manner, _) = (Arc::new(manner), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, Arc::clone(&manner), Arc::clone(&calls)));
        }
    });
    Url::parse(&url).unwrap()
}

async fn serve(mut socket: TcpStream, manner: Manner, calls: Arc<AtomicUsize>) {
    let mut input = Vec::new();
    while let Some(request) = read(&mut socket, &mut input).await {
        let said = match request["method"].as_str() {
            Some("server/discover") => Said::json(&json!({
                "jsonrpc": "2.0", "id": request["id"],
                "result": { "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {} },
            })),
            Some("tools/list") => Said::json(&json!({
                "jsonrpc": "2.0", "id": request["id"],
                "result": { "tools": [
                    { "name": "look", "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } },
                ] },
            })),
            _ => manner(calls.fetch_add(1, Ordering::Relaxed), &request),
        };
        tokio::time::sleep(said.after).await;
        if socket.write_all(&said.bytes).await.is_err() || said.closes {
            return;
        }
    }
}

async fn read(socket: &mut TcpStream, input: &mut Vec<u8>) -> Option<Value> {
    loop {
        if let Some(end) = memchr::memmem::find(input, b"\r\n\r\n") {
            let head = String::from_utf8(input[..end].to_vec()).unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let whole = end + 4 + length.unwrap().parse::<usize>().unwrap();
            if input.len() >= whole {
                let body = serde_json::from_slice(&input[end + 4..whole]).unwrap();
                input.drain(..whole);
                return Some(body);
            }
        }
        if socket.read_buf(input).await.ok()? == 0 {
            return None;
        }
    }
}

struct Blind;

impl RunWatcher for Blind {
    fn see(&mut self, _: &RunClock, _: u64, _: u64) {}
    fn over(&mut self) {}
}

fn load(requests: u64) -> Load {
    Load {
        era: None,
        mix: Mix::only(Op::Call),
        tool: None,
        arguments: None,
        unchecked: false,
        seed: 1,
        expect: None,
        pace: LoadPace::Closed,
        connections: 2,
        threads: 1,
        warmup: Duration::ZERO,
        duration: None,
        requests: Some(requests),
        timeout: Duration::from_secs(20),
    }
}

async fn script(url: &Url, load: &Load) -> Result<Arc<Script>, BenchFault> {
    let target = BenchTarget::new(url, &[], None).await?;
    Script::prepare(target, load).await.map(Arc::new)
}

async fn outcome(url: &Url, load: &Load) -> RunOutcome {
    let script = script(url, load).await.unwrap();
    run(&script, load, None, &Interrupt::new(), &mut Blind).await.unwrap()
}

#[tokio::test]
async fn answers_are_read_however_they_are_framed() {
    type Plain = fn(usize, &Value) -> Said;
    let manners: [(Plain, bool); 5] =
        [(plain, false), (chunked, false), (events, false), (until_close, true), (closing, true)];
    for (place, (manner, reconnects)) in manners.into_iter().enumerate() {
        let url = server(manner).await;
        let outcome = outcome(&url, &load(20)).await;
        let whole = outcome.tally.whole();
        let troubles = &outcome.tally.troubles;
        assert_eq!((whole.done, whole.failed), (20, 0), "{place}: {troubles:?}");
        assert_eq!(outcome.tally.reconnects > 0, reconnects, "{place}");
    }
}

fn plain(_: usize, request: &Value) -> Said {
    Said::json(&result(request))
}

fn chunked(_: usize, request: &Value) -> Said {
    let text = result(request).to_string();
    let (first, second) = text.split_at(20);
    let chunk = |text: &str| format!("{:x};x=y\r\n{text}\r\n", text.len());
    let chunks = format!("{}{}0\r\n\r\n", chunk(first), chunk(second));
    Said::bytes("200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked", &chunks)
}

fn events(_: usize, request: &Value) -> Said {
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/progress" });
    let events = format!(": hi\n\ndata: {note}\n\nid: 1\ndata: {}\n\n", result(request));
    let length = events.len();
    let head = format!("200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}");
    Said::bytes(&head, &events)
}

fn until_close(_: usize, request: &Value) -> Said {
    let events = format!("data: {}\n\n", result(request));
    let said = Said::bytes("200 OK\r\nContent-Type: text/event-stream", &events);
    Said { closes: true, ..said }
}

/// Closes the connection without announcing it.
fn closing(_: usize, request: &Value) -> Said {
    Said { closes: true, ..plain(0, request) }
}

#[tokio::test]
async fn wrong_answers_are_counted_by_kind() {
    let url = server(|n, request| match n {
        0 => Said::bytes("500 Oops\r\nContent-Length: 0", ""),
        1 => Said::json(&json!({ "jsonrpc": "2.0", "id": 5, "result": {} })),
        2 => Said::json(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32000, "message": "no" } })),
        3 => Said::json(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "isError": true } })),
        4 => Said { closes: true, ..Said::bytes("200 OK\r\nContent-Type: application/json\r\nContent-Length: 99", "{") },
        5 => {
            let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage" });
            Said::bytes("200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked",
                &format!("{:x}\r\ndata: {question}\n\n\r\n", question.to_string().len() + 8))
        }
        _ => Said::json(&result(request)),
    })
    .await;
    let load = Load { connections: 1, ..load(10) };
    let outcome = outcome(&url, &load).await;
    let kinds: Vec<&str> = outcome.tally.troubles.keys().map(String::as_str).collect();
    let expected = ["HTTP 500", "JSON-RPC -32000", "asks the client", "connection", "wrong id"];
    assert_eq!(kinds, expected, "{:?}", outcome.tally.troubles);
    let whole = outcome.tally.whole();
    assert_eq!((whole.done, whole.tool_errors, whole.failed), (4, 1, 5));
}

#[tokio::test]
async fn an_unusable_connection_is_reported_with_the_reason() {
    const JSON: &str = "200 OK\r\nContent-Type: application/json\r\n";
    let cut = |bytes: &[u8]| Said { bytes: bytes.into(), closes: true, after: Duration::ZERO };
    let said: [(Said, &str); 6] = [
        (cut(b""), "closed the connection without an answer"),
        (cut(b"HTTP/1.1 200 O"), "closed the connection"),
        (cut(b"SSH-2.0-x\r\n\r\n"), "not HTTP/1.1"),
        (Said::bytes(&format!("{JSON}x: {}", "y".repeat(65 << 10)), ""), "larger than 65536 bytes"),
        (
            Said::bytes(&format!("{JSON}Transfer-Encoding: chunked"), "z\r\n"),
            "chunks are malformed",
        ),
        (Said { closes: true, ..Said::bytes(&format!("{JSON}Content-Length: 9"), "{") }, "closed"),
    ];
    for (said, expected) in said {
        let said = Arc::new(said);
        let url = server(move |_, _| {
            let Said { after, bytes, closes } = &*said;
            Said { after: *after, bytes: bytes.clone(), closes: *closes }
        })
        .await;
        // A single call: nothing was answered on this connection, so no other is opened in its
        // place.
        let outcome = outcome(&url, &Load { connections: 1, ..load(1) }).await;
        let (count, text) = &outcome.tally.troubles["connection"];
        assert_eq!(*count, 1);
        assert!(text.contains(expected), "{text:?} instead of {expected:?}");
    }
}

#[tokio::test]
async fn an_answer_cut_short_is_a_failure_and_a_closed_connection_is_not() {
    // The second of every three calls: no bytes at all, or a partial head.
    for (cut, failed) in [(&b""[..], 0), (b"HTTP/1.1 200 O", 1)] {
        let url = server(move |n, request| match n {
            1 => Said { bytes: cut.into(), closes: true, after: Duration::ZERO },
            _ => Said::json(&result(request)),
        })
        .await;
        let outcome = outcome(&url, &Load { connections: 1, ..load(3) }).await;
        assert_eq!(outcome.tally.whole().failed, failed, "{:?}", outcome.tally.troubles);
        assert_eq!(outcome.tally.reconnects, 1);
    }
}

#[tokio::test]
async fn a_server_that_stalls_once_is_late_for_all_who_were_due() {
    const STALL: Duration = Duration::from_millis(400);
    let url = server(|n, request| {
        let after = if n == 20 { STALL } else { Duration::ZERO };
        Said { after, ..Said::json(&result(request)) }
    })
    .await;
    let pace = LoadPace::Open { per_second: 200.0 };
    let load = Load { connections: 1, pace, ..load(200) };
    let outcome = outcome(&url, &load).await;
    let whole = outcome.tally.whole();
    let late = |all: &hdrhistogram::Histogram<u64>| all.len() - all.count_between(0, 100_000_000);
    assert_eq!(whole.done, 200);
    // Sixty calls were due while it stalled and waited for at least 100 ms; one of them was sent
    // then.
    let (due, sent) = (late(&whole.latency), late(&whole.service));
    assert!(due >= 50, "{due}");
    assert!(sent < due, "{sent} of {due}");
    assert!(whole.latency.value_at_quantile(0.99) >= 300_000_000);
}

#[tokio::test]
async fn an_open_loop_that_cannot_keep_up_says_so() {
    let url = server(|_, request| Said {
        after: Duration::from_millis(100),
        ..Said::json(&result(request))
    })
    .await;
    let load = Load {
        connections: 1,
        pace: LoadPace::Open { per_second: 100.0 },
        requests: None,
        duration: Some(Duration::from_millis(500)),
        ..load(0)
    };
    let outcome = outcome(&url, &load).await;
    assert!(outcome.unsent >= 40, "{}", outcome.unsent);
}

#[tokio::test]
async fn an_interrupted_run_reports_its_figures_so_far() {
    let url = server(|_, request| Said::json(&result(request))).await;
    let load = Load { requests: None, duration: Some(Duration::from_mins(10)), ..load(0) };
    let script = script(&url, &load).await.unwrap();
    let interrupt = Interrupt::new();
    let asks = interrupt.clone();
    let watch = &mut AskAfter(asks, 10);
    let outcome = run(&script, &load, None, &interrupt, watch).await.unwrap();
    assert!(outcome.interrupted && outcome.tally.whole().done >= 10);
}

/// Requests the end once enough operations are done.
struct AskAfter(Interrupt, u64);

impl RunWatcher for AskAfter {
    fn see(&mut self, _: &RunClock, done: u64, _: u64) {
        if done >= self.1 {
            self.0.ask();
        }
    }
    fn over(&mut self) {}
}

#[tokio::test]
async fn two_take_turns_round_by_round() {
    let url = server(|_, request| Said::json(&result(request))).await;
    let load = load(5);
    let contender = async |name: &str| Contender {
        name: name.into(),
        script: script(&url, &load).await.unwrap(),
        meter: None,
    };
    let contenders = vec![contender("A").await, contender("B").await];
    let rules = ContestRules { rounds: 3, base: 0, direct: None };
    let contest =
        Contest::hold(contenders, &load, rules, &Interrupt::new(), &mut Blind).await.unwrap();
    assert_eq!(contest.rounds.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
    assert_eq!(contest.together(1).unwrap().whole().done, 15);
    let ratio = contest.ratio(1, |leg| Some(leg.per_second())).unwrap();
    assert!(ratio.least <= ratio.median && ratio.median <= ratio.most && ratio.least > 0.0);
    // The reports are consistent, too.
    let setting = report::BenchSetting {
        at: "2026-11-27T12:00:00Z".into(),
        command: "trunkline bench".into(),
        machine: report::BenchMachine::observe(),
    };
    let report = report::BenchReport { contest: &contest, load: &load, setting: &setting };
    let json = report.json();
    assert_eq!(json["targets"][1]["rounds"].as_array().unwrap().len(), 3);
    assert_eq!(json["ratios"][0]["name"], "B");
    assert!(report.table().contains("times A"));
    report::tests::holds_together(&report.html());
}

#[tokio::test]
async fn other_servers_are_named_for_what_they_are() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut input = Vec::new();
            while read(&mut socket, &mut input).await.is_some() {
                let page = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\n<p>no";
                socket.write_all(page.as_bytes()).await.unwrap();
            }
        }
    });
    let Err(fault) = script(&url, &load(1)).await else { panic!() };
    let text = fault.to_string();
    assert!(text.contains("not an MCP endpoint") && text.contains("404"), "{text}");

    let modern = server(|_, request| Said::json(&result(request))).await;
    let legacy = Load { era: Some(Era::Legacy), ..load(1) };
    // It answers `initialize` with something else.
    let Err(fault) = script(&modern, &legacy).await else { panic!() };
    assert!(matches!(fault, BenchFault::Era { .. }), "{fault}");
}
