//! Input from servers, from its bytes to the gateway's types: events over HTTP, lines of a child,
//! and the messages, answers, notifications, questions and lists in them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use trunkline::call::{Abilities, Answer, Notice, Question, ResultType};
use trunkline::catalog::{ArgumentSchema, CatalogItem, HeaderRules, Kind, Tool};
use trunkline::codec::lines::{LineError, LineReader};
use trunkline::codec::sse::SseDecoder;
use trunkline::era::{lift, lower};
use trunkline::jsonrpc::{self, Frame, Members};
use trunkline::mcp::notification;

/// A stream of events yields the same messages in whatever pieces it arrives.
pub fn server_events(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let whole = events(&[rest]);
    let pieces: Vec<_> = rest.chunks(usize::from(*first % 31) + 1).collect();
    assert_eq!(events(&pieces), whole);
    whole.iter().for_each(message);
}

fn events(pieces: &[&[u8]]) -> Vec<Bytes> {
    let mut decoder = SseDecoder::new(LIMIT);
    let mut messages = Vec::new();
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        while let Ok(Some(event)) = decoder.next_event() {
            messages.extend(event.is_message().then_some(event.data));
        }
    }
    messages
}

/// A child's output yields the same lines in whatever pieces it arrives, and continues after an
/// oversized line.
pub fn stdio_lines(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let whole = lines(rest, rest.len().max(1));
    assert_eq!(lines(rest, usize::from(*first % 31) + 1), whole);
    whole.iter().flatten().for_each(message);
}

/// Returns the lines, and `None` for each oversized one.
fn lines(data: &[u8], size: usize) -> Vec<Option<Bytes>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut reader = LineReader::new(Pieces { data, size }, LIMIT);
        let mut lines = Vec::new();
        loop {
            match reader.next().await {
                Ok(Some(line)) => lines.push(Some(line)),
                Ok(None) => return lines,
                Err(LineError::TooLong { .. }) => lines.push(None),
                Err(LineError::Io(error)) => panic!("{error}"),
            }
        }
    })
}

/// Reads this many bytes at a time.
struct Pieces<'a> {
    data: &'a [u8],
    size: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let size = self.size.min(buffer.remaining()).min(self.data.len());
        let (now, later) = self.data.split_at(size);
        buffer.put_slice(now);
        self.data = later;
        Poll::Ready(Ok(()))
    }
}

/// Checks that one message of a server causes no panic, and that the parsed values match it.
fn message(data: &Bytes) {
    match jsonrpc::parse(data, DEPTH) {
        Ok(Frame::Response { response, .. }) => {
            if let Ok(Answer::Result(body)) = Answer::parse(response) {
                assert!(*body.kind() != ResultType::Complete || !body.raw().is_empty());
                lists(body.raw());
            }
        }
        Ok(Frame::Notification { method, params }) => {
            let progress = method == notification::PROGRESS;
            if let Some(params) = params.filter(|_| progress) {
                let _ = Notice::progress(method, params);
            }
        }
        Ok(Frame::Request { method, params, .. }) => {
            let asked = Question { method, params: params.map(Bytes::from) };
            let _ = lift::question(&asked);
        }
        Err(_) => {}
    }
    let _ = lower::read_error(data);
    let _ = Abilities::parse(data);
}

/// Checks that the elements of a list are unchanged or omitted.
fn lists(result: &[u8]) {
    let Ok(members) = Members::parse_with_duplicates(result) else { return };
    let keys = ["prompts", "resources", "resourceTemplates"];
    for (key, kind) in keys.into_iter().zip([Kind::Prompts, Kind::Resources, Kind::Templates]) {
        for raw in elements(&members, key) {
            if let Ok(item) = CatalogItem::parse(kind, raw.get().as_bytes()) {
                assert_eq!(&item.raw()[..], raw.get().as_bytes());
            }
        }
    }
    for raw in elements(&members, "tools") {
        for rules in [HeaderRules::Enforce, HeaderRules::Ignore] {
            let _ = Tool::parse(raw.get().as_bytes(), rules);
        }
        let Ok(tool) = Members::parse_with_duplicates(raw.get().as_bytes()) else { continue };
        let Some(schema) = tool.find("inputSchema") else { continue };
        let Ok(schema) = ArgumentSchema::compile(schema.get().as_bytes()) else { continue };
        for arguments in [None, Some(raw.get().as_bytes()), Some(&b"{\"a\":1}"[..])] {
            let _ = schema.check(arguments);
        }
    }
}

fn elements<'a>(members: &Members<'a>, key: &str) -> Vec<&'a serde_json::value::RawValue> {
    let list = members.find(key).map(|list| serde_json::from_str(list.get()));
    list.and_then(Result::ok).unwrap_or_default()
}

const LIMIT: usize = 4096;
const DEPTH: usize = 64;
