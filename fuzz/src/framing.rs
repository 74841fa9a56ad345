//! Bytes to messages: envelopes, lines, large results in pieces, events.

use std::time::Duration;

use bytes::Bytes;
use trunkline::codec::lines::{LineError, LineReader};
use trunkline::codec::sse::{SseDecoder, SseEvent, message, message_with};
use trunkline::jsonrpc::{self, Frame, Response, Scanner};

/// Any bytes are a message or are refused. A message stays the same when it is written again, and
/// in whatever pieces its bytes arrive.
pub fn frames(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let source = Bytes::copy_from_slice(rest);
    if let Ok(frame) = jsonrpc::parse(&source, DEPTH) {
        let again = write(&frame);
        let read = jsonrpc::parse(&again, DEPTH).expect("what is written is a message");
        assert_eq!(write(&read), again);
    }
    lines(rest, usize::from(*first));
    scan(&source, usize::from(*first).max(1));
}

fn write(frame: &Frame) -> Bytes {
    match frame {
        Frame::Request { id, method, params } => {
            jsonrpc::request(id, method, params.as_ref().map_or(&b"{}"[..], |params| &params[..]))
        }
        Frame::Notification { method, params } => jsonrpc::notification(method, params.as_deref()),
        Frame::Response { id: Some(id), response: Response::Result(raw) } => {
            jsonrpc::response(id, raw)
        }
        Frame::Response { id: None, response: Response::Result(raw) } => {
            // No peer writes a result without an id; its content must still be kept.
            jsonrpc::error(None, raw)
        }
        Frame::Response { id, response: Response::Error(raw) } => jsonrpc::error(id.as_ref(), raw),
    }
}

/// Lines are the bytes between line ends, none longer than the limit.
fn lines(data: &[u8], limit: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let read = runtime.block_on(async {
        let mut reader = LineReader::new(data, limit);
        let mut lines = Vec::new();
        loop {
            match reader.next().await {
                Ok(Some(line)) => lines.push(Some(line)),
                Ok(None) => return lines,
                Err(LineError::TooLong { .. }) => lines.push(None),
                Err(LineError::Io(error)) => panic!("{error}"),
            }
        }
    });
    let expected = data.split(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        (line.len() <= limit).then_some(line)
    });
    let expected: Vec<_> = expected.filter(|line| *line != Some(b"")).collect();
    let read: Vec<_> = read.iter().map(|line| line.as_deref()).collect();
    assert_eq!(read, expected);
}

/// A response in pieces equals the response in one piece.
fn scan(source: &Bytes, size: usize) {
    let mut scanner = Scanner::new(DEPTH);
    let mut result = Vec::new();
    for piece in source.chunks(size) {
        match scanner.feed(piece) {
            Ok(part) => result.extend_from_slice(&piece[part]),
            Err(_) => return,
        }
    }
    if !scanner.is_whole() || !scanner.has_result() {
        return;
    }
    // The scanner need not detect every fault of the JSON inside. If the whole is a message, the
    // scanned one must equal it.
    if let Ok(Frame::Response { id, response: Response::Result(raw) }) =
        jsonrpc::parse(source, DEPTH)
    {
        assert_eq!(raw.trim_ascii(), result.trim_ascii());
        if let Some(id) = id {
            assert_eq!(scanner.id(), Some(id.raw()));
        }
    }
}

/// Events are the same in whatever pieces they arrive, and a written event is read again unchanged.
pub fn sse(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let limit = 16 + usize::from(*first) * 8;
    let whole = events(&[rest], limit);
    let size = usize::from(*first % 7) + 1;
    let pieces: Vec<_> = rest.chunks(size).collect();
    assert_eq!(events(&pieces, limit), whole);
    written(rest);
}

/// Returns the events in these pieces, and true if the stream failed.
fn events(pieces: &[&[u8]], limit: usize) -> (Vec<SseEvent>, bool) {
    let mut decoder = SseDecoder::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        loop {
            match decoder.next_event() {
                Ok(Some(event)) => {
                    assert!(event.data.len() <= limit);
                    events.push(event);
                }
                Ok(None) => break,
                Err(_) => return (events, true),
            }
        }
    }
    (events, false)
}

fn written(data: &[u8]) {
    let text = String::from_utf8_lossy(data).replace("\r\n", "\n").replace('\r', "\n");
    for event in [
        message(text.as_bytes()),
        message_with(text.as_bytes(), Some("7-1"), Some(Duration::from_millis(9))),
    ] {
        let (events, lost) = events(&[&event], usize::MAX);
        assert!(!lost && events.len() == 1, "{events:?}");
        assert_eq!(events[0].data, text.as_bytes());
    }
}

const DEPTH: usize = 64;
