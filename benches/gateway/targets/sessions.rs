//! Legacy sessions and their streams, opened with minimal clients, which use as little memory on
//! this side as possible.

use std::cell::Cell;
use std::fmt::Write as _;
use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::Url;

/// A connection for consecutive requests.
pub struct Line {
    host: String,
    path: String,
    stream: TcpStream,
}

impl Line {
    pub async fn open(url: &Url) -> Self {
        let host = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
        let stream = TcpStream::connect(&host).await.expect("a connection");
        stream.set_nodelay(true).unwrap();
        Self { host, path: url.path().to_owned(), stream }
    }

    /// Opens a session, and returns its id.
    pub async fn session(&mut self) -> String {
        let head = self.post(None, INITIALIZE).await;
        let session = header(&head, "mcp-session-id").expect("a session").to_owned();
        self.post(Some(&session), INITIALIZED).await;
        session
    }

    /// Makes this the GET stream of a session, and counts its keep-alive
    /// comments until it ends.
    pub async fn listen(mut self, session: &str, seen: Rc<Stream>) {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n{VERSION}\
             Mcp-Session-Id: {session}\r\n\r\n",
            self.path, self.host
        );
        self.stream.write_all(request.as_bytes()).await.expect("a request");
        let mut buffer = [0; 512];
        while let Ok(read @ 1..) = self.stream.read(&mut buffer).await {
            let text = buffer.get(..read).unwrap_or_default();
            if !seen.open.replace(true) {
                assert!(text.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(text));
            }
            // A comment is a line that begins with a colon.
            let comments = text.windows(2).filter(|pair| pair == b"\n:").count();
            seen.comments.set(seen.comments.get() + comments);
        }
        seen.ended.set(true);
    }

    /// Returns the head of the response; the body is read and discarded.
    async fn post(&mut self, session: Option<&str>, body: &str) -> String {
        let mut request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            self.path,
            self.host,
            body.len()
        );
        if let Some(session) = session {
            write!(request, "{VERSION}Mcp-Session-Id: {session}\r\n").unwrap();
        }
        request += "\r\n";
        request += body;
        self.stream.write_all(request.as_bytes()).await.expect("a request");
        let mut answer = Vec::new();
        loop {
            let read = self.stream.read_buf(&mut answer).await.expect("an answer");
            assert!(read > 0, "the connection was closed");
            let Some(end) = memchr::memmem::find(&answer, b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&answer[..end]).into_owned();
            assert!(head.starts_with("HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
            let length = header(&head, "content-length").and_then(|it| it.parse::<usize>().ok());
            if answer.len() >= end + 4 + length.unwrap_or(0) {
                return head;
            }
        }
    }
}

/// The observations of a stream.
#[derive(Default)]
pub struct Stream {
    pub open: Cell<bool>,
    pub ended: Cell<bool>,
    pub comments: Cell<usize>,
}

/// Opens `count` sessions over one connection.
pub async fn sessions(url: &Url, count: usize) -> Vec<String> {
    let mut line = Line::open(url).await;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(line.session().await);
    }
    all
}

/// Opens a stream for each session; returns when all are open.
pub async fn streams(url: &Url, sessions: &[String]) -> Vec<Rc<Stream>> {
    let mut all = Vec::with_capacity(sessions.len());
    for session in sessions {
        let seen = Rc::new(Stream::default());
        let (line, session) = (Line::open(url).await, session.clone());
        let theirs = Rc::clone(&seen);
        tokio::task::spawn_local(async move { line.listen(&session, theirs).await });
        // A few at a time, because the gateway's backlog is not under measurement.
        while !seen.open.get() && all.len() % 64 == 63 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        all.push(seen);
    }
    for _ in 0..2000 {
        if all.iter().all(|seen| seen.open.get()) {
            return all;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let open = all.iter().filter(|seen| seen.open.get()).count();
    panic!("only {open} of {} streams could be opened", all.len());
}

/// Raises the limit of open files for this process and its children to the
/// maximum; returns it.
pub fn raise_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (other, value) = line.split_once(':')?;
        other.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

const VERSION: &str = "MCP-Protocol-Version: 2025-11-25\r\n";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
