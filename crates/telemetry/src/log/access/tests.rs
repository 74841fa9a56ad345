use std::time::Duration;

use serde_json::Value;
use tracing::subscriber::with_default;
use tracing_subscriber::layer::SubscriberExt as _;

use super::super::{
    AccessLogSwitch, Colours, LogFormat, LogLevels, build_subscriber, line_layer, parse_targets,
    sink, tests,
};
use super::*;
use crate::{CallOutcome, CallSubject};

const LOOKS: [(LogFormat, Colours); 3] = [
    (LogFormat::Human, Colours::Off),
    (LogFormat::Human, Colours::On),
    (LogFormat::Json, Colours::Off),
];

/// Returns the output of `say` in the log of the subscriber that `make` builds.
fn logged<S>(format: LogFormat, make: impl FnOnce(Sink) -> S, say: impl FnOnce()) -> String
where
    S: Subscriber + Send + Sync + 'static,
{
    let kept = tests::Kept::default();
    let (sink, flusher) = sink::start_sink(kept.clone(), format).unwrap();
    with_default(make(sink), say);
    drop(flusher);
    kept.text()
}

/// Returns the line of the access log.
fn ours(look: (LogFormat, Colours), record: &CallRecord<'_>) -> String {
    let (format, colours) = look;
    let levels = LogLevels { directives: "off", access: AccessLogSwitch::On };
    let make = |sink| build_subscriber(parse_targets(levels).unwrap(), format, colours, sink).0;
    logged(format, make, || record.write_to_log())
}

/// Returns the line of the event in the format of `tracing-subscriber`.
fn theirs(look: (LogFormat, Colours), record: &CallRecord<'_>) -> String {
    let (format, colours) = look;
    let make = |sink| tracing_subscriber::registry().with(line_layer(format, colours, sink));
    logged(format, make, || record.write_to_log())
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
    for look in LOOKS {
        let (ours, theirs) = (ours(look, record), theirs(look, record));
        assert_eq!(timeless(&ours), timeless(&theirs), "{look:?}");
        assert_eq!(ours.matches('\n').count(), 1, "{look:?}: {ours}");
    }
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
        ..record()
    };
    assert_same(&bare);
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
        let call = CallRecord {
            method: text,
            public: CallSubject::Tool(text),
            native: CallSubject::Resource(text),
            client_version: text,
            principal: text.get(..64).or(Some(text)),
            ..record()
        };
        assert_same(&call);
    }
}

#[test]
fn json_escapes_terminal_controls_and_line_separators() {
    let json = (LogFormat::Json, Colours::Off);
    for at in 0..10 {
        for odd in ['\u{7f}', '\u{80}', '\u{85}', '\u{9b}', '\u{9f}', '\u{2028}', '\u{2029}'] {
            let method = format!("{}{odd}{}", "x".repeat(at), "y".repeat(10 - at));
            let call = CallRecord { method: &method, ..record() };
            let line = ours(json, &call);
            let value = |line: &str| {
                let mut value: Value = serde_json::from_str(line).unwrap();
                value["timestamp"] = Value::Null;
                value
            };
            assert_eq!(value(&line), value(&theirs(json, &call)));
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
        AccessLogLine { out: &mut out, style: AccessLogFormat::Plain }
            .write_padded("000000", micros);
    }
    assert_eq!(String::from_utf8(out).unwrap(), "000000000001012345999999");
}
