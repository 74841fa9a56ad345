//! An MCP server over HTTP that answers both eras: 1 KB for every call.

use std::convert::Infallible;
use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use trunkline::call::Params;
use trunkline::jsonrpc::{self, Frame, Id, body::collect};

/// What the tool takes. Of a kind with what real tools do: bounds, a choice,
/// a list, a nested object, nothing unknown.
pub const SCHEMA: &str = r#"{"type":"object","properties":{
  "number":{"type":"integer","minimum":0},
  "path":{"type":"string","minLength":1,"maxLength":256},
  "query":{"type":"string","description":"What to look for"},
  "limit":{"type":"integer","minimum":1,"maximum":100},
  "mode":{"enum":["fast","deep"]},
  "tags":{"type":"array","items":{"type":"string"},"maxItems":16},
  "options":{"type":"object","properties":{"case":{"type":"boolean"},"context":{"type":"integer"}},"additionalProperties":false}
 },"required":["number","path","query"],"additionalProperties":false}"#;

pub fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        tokio::select! {
            () = serve(listener) => {}
            () = told_to_end() => {}
        }
    });
}

pub async fn told_to_end() {
    signal(SignalKind::terminate()).unwrap().recv().await;
}

async fn serve(listener: TcpListener) {
    while let Ok((socket, _)) = listener.accept().await {
        socket.set_nodelay(true).unwrap();
        tokio::spawn(
            http1::Builder::new().serve_connection(TokioIo::new(socket), service_fn(answer)),
        );
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() != Method::POST {
        return Ok(empty(StatusCode::METHOD_NOT_ALLOWED));
    }
    let (head, body) = request.into_parts();
    let body = collect(body, 1 << 20).await.unwrap();
    Ok(match jsonrpc::parse(&body, 64) {
        Ok(Frame::Request { id, method, params }) => {
            let params = Params::parse(params).unwrap();
            let modern = is_modern(&head.headers);
            match method.as_str() {
                "tools/call" => called(&id, &params, &head.headers),
                "tools/list" => result(&id, &list(modern)),
                "server/discover" if modern => result(&id, DISCOVERED),
                "initialize" => {
                    let mut response = result(&id, INITIALIZED);
                    response.headers_mut().insert("mcp-session-id", SESSION.parse().unwrap());
                    response
                }
                _ => json(&jsonrpc::error(Some(&id), br#"{"code":-32601,"message":"unknown"}"#)),
            }
        }
        Ok(_) => empty(StatusCode::ACCEPTED),
        Err(_) => empty(StatusCode::BAD_REQUEST),
    })
}

/// Refuses what a gateway must not have sent: another name, or a call outside
/// the session.
fn called(id: &Id, params: &Params, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let modern = is_modern(headers);
    let session = headers.get("mcp-session-id").is_some_and(|id| id == SESSION);
    let arguments = params.arguments().unwrap_or_default();
    let Some(number) = number_in(arguments).filter(|_| params.name() == Some("search")) else {
        return json(&jsonrpc::error(Some(id), br#"{"code":-32602,"message":"wrong call"}"#));
    };
    if !modern && !session {
        return empty(StatusCode::NOT_FOUND);
    }
    let mut text = String::with_capacity(1200);
    let kind = if modern { r#""resultType":"complete","# } else { "" };
    let _ = write!(text, "{{{kind}\"content\":[{{\"type\":\"text\",\"text\":\"number {number} ");
    text.push_str(FOUND);
    text.push_str(r#""}],"isError":false"#);
    if modern {
        text.push_str(
            r#","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mock","version":"1"}}"#,
        );
    }
    text.push('}');
    result(id, &text)
}

/// The digits of the argument `number`.
fn number_in(arguments: &[u8]) -> Option<&str> {
    let key = br#""number":"#;
    let at = memchr::memmem::find(arguments, key)? + key.len();
    std::str::from_utf8(arguments.get(at..at + 10)?).ok()
}

fn is_modern(headers: &HeaderMap) -> bool {
    headers.get("mcp-protocol-version").is_some_and(|version| version == "2026-07-28")
}

fn list(modern: bool) -> String {
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    let tools = json!([{ "name": "search", "description": "Finds things", "inputSchema": schema }]);
    let list = if modern {
        json!({ "resultType": "complete", "tools": tools, "ttlMs": 60_000, "cacheScope": "public" })
    } else {
        json!({ "tools": tools })
    };
    list.to_string()
}

fn result(id: &Id, raw: &str) -> Response<Full<Bytes>> {
    json(&jsonrpc::response(id, raw.as_bytes()))
}

fn json(message: &Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(message.clone()));
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

const SESSION: &str = "mock-session";
const INITIALIZED: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"mock","version":"1"}}"#;
const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":60000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mock","version":"1"}}}"#;
/// Fills a result up to 1 KB, with an escape now and then as real text has.
const FOUND: &str = concat!(
    "found it in src/listen/connection.rs, line 214:\\n    match protocol {\\n",
    "the protocol is told by the first three bytes of the connection, and kept until its end; ",
    "what comes later is judged by the same rule, so that \\\"late\\\" and \\\"early\\\" mean one thing. ",
    "a connection that carries nothing is closed when its time is up, and the time is told in the log. ",
    "found it in src/listen/socket.rs, line 118:\\n    while let Some(socket) = door.next() {\\n",
    "the door admits as many as the limit says and turns the others away with a sentence. ",
    "found it in docs/decisions/0004.md, line 12:\\n    we keep what was judged and send nothing else;\\n",
    "the cost of that is one copy of the bytes, which the first measurement showed to be small. ",
    "found it in src/listen/drain.rs, line 77:\\n    the last word is said once and nothing follows it. ",
    "these are all the places in which the words that were asked for stand side by side.",
);
