//! A process in the place of the gateway: it answers commands on a private socket as a test wants.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;

use super::{Ran, file, trunkline};

/// An answer to a request.
pub(super) enum FakeAnswer {
    /// A document, with its status.
    Document(u16, Value),
    /// An event stream, which ends after these records.
    Events(Vec<Value>),
    /// These bytes, and the end of the connection.
    Bytes(Vec<u8>),
    /// An event stream with this record over and over.
    Stream(Value),
    /// An answer with this status and without an end.
    Endless(u16),
    /// None: the connection stays open.
    Silence,
}

/// The socket, and the configuration that leads commands to it.
pub(super) struct FakeGateway {
    folder: TempDir,
    config: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeGateway {
    /// Answers each request by its method and target below `/api/v1`, such as `GET /status`.
    pub(super) fn start(answer: impl Fn(&str) -> FakeAnswer + Send + Sync + 'static) -> Self {
        Self::start_with("", answer)
    }

    /// Starts the same with more tables in the configuration.
    pub(super) fn start_with(
        tables: &str,
        answer: impl Fn(&str) -> FakeAnswer + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = file(folder.path(), &format!("[admin]\nsocket = \"fake.sock\"\n{tables}"));
        let socket = UnixListener::bind(folder.path().join("fake.sock")).unwrap();
        let (requests, answer) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(answer));
        let seen = Arc::clone(&requests);
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in socket.incoming() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                let stream = stream.unwrap();
                std::thread::spawn(move || serve(stream, &*answer, &seen));
            }
        });
        Self { folder, config, requests }
    }

    /// Runs a command with the configuration of the socket.
    pub(super) fn asked(&self, args: &[&str]) -> Ran {
        let end = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let config = ["-c", self.config.as_str()];
        trunkline(&[&args[..end], &config, &args[end..]].concat())
    }

    pub(super) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Returns the requests so far: method, target, and body.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(
    stream: UnixStream,
    answer: &(impl Fn(&str) -> FakeAnswer + Send + Sync),
    seen: &Mutex<Vec<String>>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    if reader.read_line(&mut first).unwrap_or_default() == 0 {
        return;
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(found) = line.to_lowercase().strip_prefix("content-length:") {
            length = found.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let request = format!("{method} {}", target.strip_prefix("/api/v1").unwrap_or(target));
    seen.lock().unwrap().push(format!("{request} {}", String::from_utf8_lossy(&body)));
    let mut stream = stream;
    // A command that has seen enough closes the connection.
    let mut send = |bytes: &[u8]| stream.write_all(bytes).is_ok();
    match answer(&request) {
        FakeAnswer::Document(status, document) => {
            let body = document.to_string();
            let kind = "content-type: application/json\r\nconnection: close";
            let length = body.len();
            send(
                format!("HTTP/1.1 {status} X\r\n{kind}\r\ncontent-length: {length}\r\n\r\n{body}")
                    .as_bytes(),
            );
        }
        FakeAnswer::Events(records) => {
            send(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
            );
            for record in records {
                send(format!("data: {record}\n\n").as_bytes());
            }
        }
        FakeAnswer::Stream(record) => {
            send(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
            );
            while send(format!("data: {record}\n\n").as_bytes()) {}
        }
        FakeAnswer::Bytes(bytes) => drop(send(&bytes)),
        FakeAnswer::Endless(status) => {
            send(format!("HTTP/1.1 {status} X\r\nconnection: close\r\n\r\n").as_bytes());
            while send(&[b'0'; 1 << 16]) {}
        }
        FakeAnswer::Silence => drop(reader.read(&mut [0])),
    }
}
