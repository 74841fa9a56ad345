use std::time::Duration;

use serde_json::Value;
use tracing::subscriber::with_default;
use tracing_subscriber::layer::SubscriberExt as _;

use super::super::human::HumanFormat;
use super::super::{
    AccessLogSwitch, Appearance, Colours, LogFormat, LogLevels, build_subscriber, line_layer,
    parse_targets, sink, tests,
};
use super::*;
use crate::json_text::needs_no_escape;
use crate::{CallOutcome, CallSubject};

/// Returns the output of `say` in the log of the subscriber that `make` builds.
fn logged<S>(format: LogFormat, make: impl FnOnce(Sink) -> S, say: impl FnOnce()) -> String
where
    S: Subscriber + Send + Sync + 'static,
{
    let kept = tests::Kept::default();
    let (sink, flusher) = sink::start_sink(kept.clone(), format, || None).unwrap();
    with_default(make(sink), say);
    drop(flusher);
    kept.text()
}

/// Returns the line of the access log.
fn ours(format: LogFormat, appearance: Appearance, record: &CallRecord<'_>) -> String {
    let levels = LogLevels { directives: "off", access: AccessLogSwitch::On };
    let make = |sink| build_subscriber(parse_targets(levels).unwrap(), format, appearance, sink).0;
    logged(format, make, || record.write_to_log())
}

fn ours_in_json(record: &CallRecord<'_>) -> String {
    ours(LogFormat::Json, Appearance::Plain, record)
}

/// Returns the line of the event in the format of `tracing-subscriber`.
fn theirs(record: &CallRecord<'_>) -> String {
    let human = HumanFormat { colours: Colours::Off, clock: Arc::new(LineClock::Utc) };
    let make = |sink| tracing_subscriber::registry().with(line_layer(LogFormat::Json, human, sink));
    logged(LogFormat::Json, make, || record.write_to_log())
}

/// Returns the line with the digits of its time set to 0.
fn timeless(line: &str) -> String {
    let from = line.find("20").unwrap();
    let (before, rest) = line.split_at(from);
    let (time, rest) = rest.split_at("2026-07-28T12:00:00.000000Z".len());
    let time: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    format!("{before}{time}{rest}")
}

fn assert_same(record: &CallRecord<'_>) {
    let (ours, theirs) = (ours_in_json(record), theirs(record));
    assert_eq!(timeless(&ours), timeless(&theirs));
    assert_eq!(ours.matches('\n').count(), 1, "{ours}");
}

fn record() -> CallRecord<'static> {
    CallRecord {
        outcome: CallOutcome::Ok,
        upstream: Some(Duration::from_micros(987)),
        trace_id: Some("0af7651916cd43dd8448eb211c80319c"),
        ..tests::record()
    }
}

#[test]
fn every_outcome_makes_the_line_that_its_event_would() {
    for outcome in [
        CallOutcome::Ok,
        CallOutcome::ToolError,
        CallOutcome::Refused { reason: "rate" },
        CallOutcome::Failed { code: -32603, label: "timeout" },
        CallOutcome::Failed { code: 0, label: "server_error" },
        CallOutcome::Failed { code: i64::MIN, label: "server_error" },
        CallOutcome::Failed { code: i64::MAX, label: "server_error" },
        CallOutcome::Cancelled,
        CallOutcome::InputRequired,
    ] {
        assert_same(&CallRecord { outcome, ..record() });
    }
}

#[test]
fn every_subject_and_every_gap_makes_the_line_that_its_event_would() {
    let bare = CallRecord {
        principal: None,
        address: None,
        public: CallSubject::Nothing,
        native: CallSubject::Nothing,
        server: None,
        upstream: None,
        trace_id: None,
        server_version: None,
        client_info: None,
        ..record()
    };
    assert_same(&bare);
    assert_same(&CallRecord { items: Some(41), limit: Some("client ci"), ..bare });
    assert_same(&CallRecord { profile: "", method: "", client_version: "", ..bare });
    for (public, native) in [
        (CallSubject::Prompt("files__greet"), CallSubject::Prompt("greet")),
        (
            CallSubject::Resource("mcp://files/file:///a?key=1"),
            CallSubject::Resource("file://me:pw@h/a"),
        ),
        (CallSubject::Tool("gone"), CallSubject::Nothing),
    ] {
        assert_same(&CallRecord { public, native, ..record() });
    }
    for address in ["0.0.0.0", "255.10.9.100", "::1", "2001:db8::1:0:0:1", "::ffff:10.0.0.1"] {
        assert_same(&CallRecord { address: Some(address.parse().unwrap()), ..record() });
    }
}

#[test]
fn every_duration_makes_the_line_that_its_event_would() {
    for nanos in [
        0,
        1,
        499,
        500,
        1000,
        1500,
        2500,
        10_000,
        120_000,
        999_499,
        999_500,
        1_000_000,
        1_010_000,
        1_100_000,
        1_001_000,
        90_000_000_500,
        86_400_000_000_000,
        3_000_000_001_234_567_890,
    ] {
        let duration = Duration::from_nanos(nanos);
        assert_same(&CallRecord { duration, upstream: Some(duration / 3), ..record() });
    }
}

#[test]
fn hostile_text_makes_the_line_that_its_event_would() {
    let mut texts: Vec<String> = [
        "a\"b",
        "back\\slash",
        "x\nINFO forged",
        "x\r\n{\"level\":\"INFO\"}",
        "\u{1b}[2J\u{7}\u{8}\u{c}\0\t",
        "ünï—code 🦀 e\u{301} \u{200b}",
        "'single' `ticks` <b>&amp;</b> ~",
    ]
    .map(str::to_owned)
    .into();
    // An unusual character at each position of a word, and in the remainder.
    for at in 0..20 {
        for odd in ["\"", "\\", "\u{1f}", "\u{1}", "é", " ", "~", "!", "#", "[", "]"] {
            texts.push(format!("{}{odd}{}", "x".repeat(at), "y".repeat(20 - at)));
        }
    }
    texts.push("x".repeat(100_000));
    texts.push("\"\n".repeat(100_000));
    texts.push("é\u{1b}".repeat(100_000));
    for text in &texts {
        let info = serde_json::json!({ "name": text, "version": text }).to_string();
        let call = CallRecord {
            method: text,
            public: CallSubject::Tool(text),
            native: CallSubject::Resource(text),
            client_version: text,
            limit: Some(text),
            client_info: Some(info.as_bytes()),
            principal: text.get(..64).or(Some(text)),
            ..record()
        };
        assert_same(&call);
    }
}

#[test]
fn json_escapes_terminal_controls_and_line_separators() {
    for at in 0..10 {
        for odd in ['\u{7f}', '\u{80}', '\u{85}', '\u{9b}', '\u{9f}', '\u{2028}', '\u{2029}'] {
            let method = format!("{}{odd}{}", "x".repeat(at), "y".repeat(10 - at));
            let call = CallRecord { method: &method, ..record() };
            let line = ours_in_json(&call);
            let value = |line: &str| {
                let mut value: Value = serde_json::from_str(line).unwrap();
                value["timestamp"] = Value::Null;
                value
            };
            assert_eq!(value(&line), value(&theirs(&call)));
            assert!(!line.contains(odd), "{line}");
        }
    }
}

#[test]
fn a_byte_is_plain_where_both_formats_leave_it_alone() {
    for byte in 0..128_u8 {
        let c = char::from(byte);
        for at in 0..9 {
            let text = format!("{}{c}{}", "x".repeat(at), "y".repeat(9 - at));
            let alone = format!("\"{text}\"");
            let plain =
                format!("{text:?}") == alone && serde_json::to_string(&text).unwrap() == alone;
            assert_eq!(needs_no_escape(&text), plain, "{text:?}");
        }
    }
}

#[test]
fn the_date_follows_the_clock() {
    let mut text = SecondText::new();
    for (second, date) in [
        (0, "1970-01-01T00:00:00"),
        (0, "1970-01-01T00:00:00"),
        (951_782_399, "2000-02-28T23:59:59"),
        (951_782_400, "2000-02-29T00:00:00"),
        (1_785_240_000, "2026-07-28T12:00:00"),
        (59, "1970-01-01T00:00:59"),
        (u64::MAX, "9999-12-30T22:00:00"),
    ] {
        assert_eq!(text.of(Duration::from_secs(second)), date, "{second}");
    }
}

#[test]
fn the_fraction_has_six_digits() {
    let mut out = Vec::new();
    for micros in [0, 1, 12_345, 999_999] {
        AccessLogLine { out: &mut out }.write_padded("000000", micros);
    }
    assert_eq!(String::from_utf8(out).unwrap(), "000000000001012345999999");
}

#[test]
fn people_get_a_sentence_and_the_fields_that_explain_the_call() {
    let line = |record: &CallRecord<'_>| {
        let line = ours(LogFormat::Human, Appearance::Plain, record);
        timeless_second(&line)
    };
    assert_eq!(
        line(&record()),
        "0000-00-00T00:00:00Z  INFO client=ci tools/call files__read: ok in 1.5 ms server=files \
         upstream_ms=0.987 address=127.0.0.1 software=\"agent 1.0\" era=modern \
         trace_id=0af7651916cd43dd8448eb211c80319c\n"
    );
    let refused = CallRecord {
        outcome: CallOutcome::Refused { reason: "rate" },
        limit: Some("servers.files.rate"),
        profile: "support",
        upstream: None,
        trace_id: None,
        client_info: None,
        address: None,
        ..record()
    };
    assert_eq!(
        line(&refused),
        "0000-00-00T00:00:00Z  INFO client=ci tools/call files__read: refused (rate) in 1.5 ms \
         limit=servers.files.rate server=files profile=support era=modern\n"
    );
    let list = CallRecord {
        method: "tools/list",
        public: CallSubject::Nothing,
        server: None,
        outcome: CallOutcome::Ok,
        items: Some(41),
        limit: None,
        profile: "default",
        ..refused
    };
    let expected =
        "0000-00-00T00:00:00Z  INFO client=ci tools/list: ok, 41 items in 1.5 ms era=modern\n";
    assert_eq!(line(&list), expected);
    let unread = CallRecord { method: "", profile: "", client_era: "", items: None, ..refused };
    assert_eq!(
        line(&CallRecord { public: CallSubject::Nothing, server: None, ..unread }),
        "0000-00-00T00:00:00Z  INFO client=ci request: refused (rate) in 1.5 ms \
         limit=servers.files.rate\n"
    );
}

#[test]
fn a_terminal_gets_colours_unless_they_are_off() {
    for (colours, expected) in [(Colours::On, true), (Colours::Off, false)] {
        let line = ours(LogFormat::Human, Appearance::Terminal(colours), &record());
        assert_eq!(line.contains("\u{1b}[32m INFO\u{1b}[0m"), expected, "{line}");
        assert_eq!(line.contains('\u{1b}'), expected, "{line}");
        // The date is a line of its own.
        assert_eq!(line.lines().count(), 2, "{line}");
    }
}

/// Returns the line with the digits of its time set to 0.
fn timeless_second(line: &str) -> String {
    let (time, rest) = line.split_at("2026-07-28T12:00:00Z".len());
    let time: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    format!("{time}{rest}")
}
