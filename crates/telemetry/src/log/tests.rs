use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use crate::{CallOutcome, CallSubject};

const INFO: LogLevels<'_> = LogLevels { directives: "info", access: AccessLogSwitch::On };

/// A writer that keeps its input.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Kept {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

/// Returns the log output of `say` with these `levels` and this `format`.
fn logged(levels: LogLevels<'_>, format: LogFormat, say: impl FnOnce()) -> String {
    let kept = Kept::default();
    let (sink, flusher) = sink::start_sink(kept.clone(), format, || None).unwrap();
    let (subscriber, _) =
        build_subscriber(parse_targets(levels).unwrap(), format, Appearance::Plain, sink);
    tracing::subscriber::with_default(subscriber, say);
    drop(flusher);
    kept.text()
}

pub(crate) fn record() -> CallRecord<'static> {
    CallRecord {
        principal: Some("ci"),
        address: Some([127, 0, 0, 1].into()),
        profile: "default",
        method: "tools/call",
        public: CallSubject::Tool("files__read"),
        native: CallSubject::Tool("read"),
        server: Some("files"),
        items: None,
        limit: None,
        outcome: CallOutcome::Failed { code: -32603, label: "timeout" },
        duration: Duration::from_micros(1500),
        upstream: None,
        trace_id: None,
        client_info: Some(br#"{"name":"agent","version":"1.0","title":"x"}"#),
        client_era: "modern",
        client_version: "2026-07-28",
        server_version: Some("2025-06-18"),
        transport: "http1",
    }
}

#[test]
fn a_call_makes_one_json_line_with_its_facts() {
    let text = logged(INFO, LogFormat::Json, || record().write_to_log());
    assert_eq!(text.lines().count(), 1, "{text}");
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (key, value) in [
        ("target", "trunkline::access".into()),
        ("principal", "ci".into()),
        ("address", "127.0.0.1".into()),
        ("tool", "files__read".into()),
        ("native_tool", "read".into()),
        ("outcome", "failed".into()),
        ("reason", "timeout".into()),
        ("code", serde_json::json!(-32603)),
        ("duration_ms", serde_json::json!(1.5)),
        ("server_version", "2025-06-18".into()),
    ] {
        assert_eq!(line[key], value, "{key} in {text}");
    }
    for absent in ["upstream_ms", "trace_id"] {
        assert!(line.get(absent).is_none(), "{absent} in {text}");
    }
}

#[test]
fn client_text_cannot_forge_a_line_or_fill_the_log() {
    let method = format!("x\nINFO forged\u{1b}[2J {}", "y".repeat(10_000));
    let call = CallRecord { method: &method, ..record() };
    for format in [LogFormat::Human, LogFormat::Json] {
        let text = logged(INFO, format, || call.write_to_log());
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\u{1b}') && text.len() < 1000, "{text}");
    }
}

#[test]
fn the_access_line_has_a_switch_of_its_own() {
    for (directives, access, lines) in [
        ("off", AccessLogSwitch::On, 1),
        ("warn", AccessLogSwitch::On, 2),
        ("trace", AccessLogSwitch::Off, 2),
        ("error", AccessLogSwitch::Off, 0),
    ] {
        let text = logged(LogLevels { directives, access }, LogFormat::Human, || {
            assert_eq!(CallRecord::is_logged(), access == AccessLogSwitch::On, "{directives}");
            record().write_to_log();
            tracing::warn!("careful");
            tracing::trace!("chatter");
        });
        assert_eq!(text.lines().count(), lines, "{directives}: {text}");
    }
}

#[test]
fn levels_change_while_the_log_runs() {
    let kept = Kept::default();
    let (sink, flusher) = sink::start_sink(kept.clone(), LogFormat::Human, || None).unwrap();
    let (subscriber, filter) =
        build_subscriber(parse_targets(INFO).unwrap(), LogFormat::Human, Appearance::Plain, sink);
    let log = LogHandle { filter, _flusher: flusher };
    let loud = LogLevels { directives: "info,trunkline=debug", access: AccessLogSwitch::Off };
    tracing::subscriber::with_default(subscriber, || {
        tracing::debug!("first");
        log.set_levels(loud).unwrap();
        tracing::debug!("second");
        assert!(log.set_levels(LogLevels { directives: "loud", ..loud }).is_err());
        tracing::debug!("third");
    });
    drop(log);
    let text = kept.text();
    assert_eq!(
        ["first", "second", "third"].map(|word| text.contains(word)),
        [false, true, true],
        "{text}"
    );
}

#[test]
fn a_misspelt_level_is_refused_by_name() {
    for good in ["", "info", "INFO", "warn,hyper=off", " debug , a::b = trace "] {
        assert_eq!(check_directives(good), Ok(()), "{good:?}");
    }
    for (directives, wrong) in
        [("inof", "inof"), ("info,hyper=loud", "hyper=loud"), ("=info", "=info"), ("3", "3")]
    {
        let error = LogError::Directive { directive: wrong.to_owned() };
        assert_eq!(check_directives(directives), Err(error), "{directives:?}");
    }
}

/// A writer that blocks until its sender is dropped.
struct Stuck {
    reached: SyncSender<()>,
    released: Receiver<()>,
    kept: Kept,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.reached.try_send(());
        let _ = self.released.recv();
        self.kept.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_unread_descriptor_costs_lines_and_does_not_block_the_caller() {
    let kept = Kept::default();
    let (reached, stuck) = sync_channel(1);
    let (release, released) = sync_channel(0);
    let out = Stuck { reached, released, kept: kept.clone() };
    let (sink, flusher) = sink::start_sink(out, LogFormat::Json, || None).unwrap();
    let line = [b"\"", "x".repeat(1021).as_bytes(), b"\"\n"].concat();
    (&sink).write_all(&line).unwrap();
    stuck.recv().unwrap();
    for _ in 0..1030 {
        (&sink).write_all(&line).unwrap();
    }
    drop(release);
    drop(flusher);
    let text = kept.text();
    let (last, lines) =
        text.lines().collect::<Vec<_>>().split_last().map(|(l, r)| (*l, r.len())).unwrap();
    assert_eq!(lines, 1 + 1024);
    assert!(last.contains("\"lost\":6,"), "{last}");
    assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}

#[test]
fn a_line_for_people_has_time_level_subject_sentence_and_fields() {
    let debug = LogLevels { directives: "debug", access: AccessLogSwitch::Off };
    let text = logged(debug, LogFormat::Human, || {
        tracing::warn!(owner = "everyone", count = 3, server = "files", "the connection failed");
        tracing::info!(client = %"ci", empty = "", text = "two words", list = ?["a"], "begun");
        tracing::error!("a\nforged line \u{1b}[2J\u{202e}");
        tracing::info!(server = "a\nb \u{1b}[2J", "x");
        tracing::debug!(target: "a::b", server = "files", "details");
    });
    let lines: Vec<_> =
        text.lines().map(|line| line.split_at("2026-07-28T12:00:00Z".len())).collect();
    let expected = [
        "  WARN server=files the connection failed owner=everyone count=3",
        "  INFO client=ci begun empty=\"\" text=\"two words\" list=\"[\\\"a\\\"]\"",
        " ERROR a\\u{a}forged line \\u{1b}[2J\\u{202e}",
        "  INFO server=\"a\\nb \\u{1b}[2J\" x",
        " DEBUG a::b server=files details",
    ];
    assert_eq!(lines.iter().map(|(_, line)| *line).collect::<Vec<_>>(), expected);
    for (time, _) in lines {
        assert!(time.starts_with("20") && time.ends_with('Z') && time.contains('T'), "{time}");
    }
}

#[test]
fn a_terminal_of_80_columns_shows_whole_words_below_the_sentence() {
    let kept = Kept::default();
    let (sink, flusher) = sink::start_sink(kept.clone(), LogFormat::Human, || Some(80)).unwrap();
    let (subscriber, _) = build_subscriber(
        parse_targets(INFO).unwrap(),
        LogFormat::Human,
        Appearance::Terminal(Colours::Off),
        sink,
    );
    tracing::subscriber::with_default(subscriber, || {
        tracing::warn!(server = "files", "{}", "word ".repeat(40).trim());
        record().write_to_log();
    });
    drop(flusher);
    let text = kept.text();
    let (date, lines) = text.split_once('\n').unwrap();
    assert_eq!(date.len(), "2026-07-28".len(), "{text}");
    assert!(lines.lines().count() >= 5, "{text}");
    assert!(lines.lines().all(|line| line.len() <= 80), "{text}");
    let begins = lines.lines().filter(|line| !line.starts_with("               "));
    assert_eq!(begins.count(), 2, "{text}");
}
