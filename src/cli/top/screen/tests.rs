use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::*;
use crate::cli::top::sample::ActivitySample;
use crate::cli::top::state::KeyEffect;

fn server(name: &str, state: &str, calls: u64) -> Value {
    json!({
        "name": name, "state": state, "since": "2026-11-28T09:00:00Z", "era": "modern", "restarts": 2,
        "instance_count": 0, "in_flight": 3, "queued": 1, "tool_tokens": 12_345,
        "requests": { "calls": calls, "failed": calls / 10, "refused": 0, "buckets": [calls, 0, 0] },
        "last_error": { "at": "2026-11-28T09:59:00Z", "message": "it said \u{1b}[31mred\u{202e} words" },
        "next_retry_at": null, "cure": "start it"
    })
}

fn sample(second: u32, calls: u64) -> ActivitySample {
    let servers = [
        server("files", "ready", calls),
        server("a-server-with-a-name-of-forty-characters", "failed", 0),
    ];
    let document = json!({
        "version": "0.1.0", "now": format!("2026-11-28T10:00:{second:02}Z"),
        "started_at": "2026-11-28T07:00:00Z", "state": "ready", "memory_bytes": 45 << 20,
        "sessions": 2, "streams": 1, "connections": 4, "parked": 0, "bucket_bounds": [0.01, 0.1],
        "requests": { "calls": calls, "failed": 0, "refused": 5, "buckets": [calls, 0, 0] },
        "failures": [
            { "outcome": "refused", "reason": "unknown_tool", "count": 3 },
            { "outcome": "refused", "reason": "rate", "count": calls },
            { "outcome": "failed", "reason": "timeout", "count": 1 }
        ],
        "servers": servers
    });
    serde_json::from_value(document).unwrap()
}

fn measured() -> MeasuredActivity {
    MeasuredActivity::of(sample(2, 40), Some(&sample(0, 20)))
}

/// Draws a frame on a terminal of this size, and returns its lines.
fn drawn(width: u16, height: u16, state: &TopState, fault: Option<&str>) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let measured = measured();
    let palette = TopPalette::Colored;
    let screen = TopScreen { measured: Some(&measured), state, fault, palette };
    terminal.draw(|frame| frame.render_widget(&screen, frame.area())).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content.chunks(usize::from(width));
    lines.map(|cells| cells.iter().map(ratatui::buffer::Cell::symbol).collect()).collect()
}

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

#[test]
fn a_frame_fits_80_columns() {
    let lines = drawn(80, 24, &TopState::default(), None);
    for (line, expected) in [
        (0, "Trunkline 0.1.0  ready  up 3 h  1 of 2 servers ready  10:00:02 UTC"),
        (1, "calls 10/s  p50 ≤10ms  p95 ≤10ms  errors 0/s  refused 0/s  in flight 6  queued 2"),
        (2, "sessions 2  streams 1  connections 4  waiting 0  tokens 25k  memory 45 MiB"),
        (3, "refused:  rate 40 (10/s)  unknown_tool 3"),
        (4, ""),
        (5, "SERVER            STATE      CALLS/S     P50     P95  ERR/S FLIGHT QUEUED TOKENS"),
        (6, "files             ready           10   ≤10ms   ≤10ms    1.0      3      1    12k"),
        (7, "a-server-with-a-… failed           0       -       -      0      3      1    12k"),
        (23, "q quit  ? help  s sort: file  / filter  ↑↓ enter details"),
    ] {
        assert_eq!(lines[line].trim_end(), expected, "{lines:#?}");
    }
}

#[test]
fn a_wide_frame_has_longer_names_and_a_narrow_one_fewer_columns() {
    let wide = drawn(120, 24, &TopState::default(), None);
    assert!(wide.iter().any(|line| line.starts_with("a-server-with-a-name-of-forty-characters")));
    let narrow = drawn(40, 24, &TopState::default(), None);
    let head = narrow.iter().find(|line| line.starts_with("SERVER")).unwrap();
    assert_eq!(head.trim_end(), "SERVER        STATE      CALLS/S     P95");
    // Totals take more lines instead of being cut.
    for part in ["p95 ≤10ms", "queued 2", "memory 45 MiB", "unknown_tool 3"] {
        assert!(narrow.iter().any(|line| line.contains(part)), "{part}: {narrow:#?}");
    }
}

#[test]
fn a_tiny_terminal_is_no_fault() {
    for (width, height) in [(1, 1), (5, 2), (80, 1), (3, 40)] {
        for page in [TopPage::Servers, TopPage::Filter, TopPage::Details, TopPage::Help] {
            let state = TopState { page, selected: Some("files".into()), ..TopState::default() };
            drawn(width, height, &state, Some("gone"));
        }
    }
}

#[test]
fn details_and_faults_show_foreign_text_without_control_characters() {
    let state =
        TopState { page: TopPage::Details, selected: Some("files".into()), ..TopState::default() };
    let lines = drawn(80, 30, &state, Some("the gateway \u{1b}[2J does not answer"));
    let text = lines.join("\n");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    for part in
        ["does not answer", "red", "calls     40 since the start, 10/s", "cure      start it"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn refusals_and_faults_take_a_bounded_part_of_the_frame() {
    let mut document = sample(2, 40);
    document.servers.clear();
    let mut measured = MeasuredActivity::of(document, None);
    measured.refusals = (0..200_u64)
        .map(|number| RefusalRate { reason: format!("reason-{number}"), total: 1, rate: None })
        .collect();
    let state = TopState::default();
    let fault = "word ".repeat(1000);
    let palette = TopPalette::Plain;
    let screen =
        TopScreen { measured: Some(&measured), state: &state, fault: Some(&fault), palette };
    let text = screen.to_text(80);
    let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    assert_eq!((count("reason-"), count("word")), (MAX_REFUSAL_LINES, MAX_FAULT_LINES), "{text}");
    let text = screen.to_text(300);
    let letters: usize = text.lines().filter(|line| line.contains("word")).map(str::len).sum();
    assert!(letters <= MAX_FAULT_CHARS, "{text}");
}

#[test]
fn a_filter_has_a_bounded_length() {
    let mut state = TopState { page: TopPage::Filter, ..TopState::default() };
    for _ in 0..100 {
        state.press(key(KeyCode::Char('x')), None);
    }
    assert_eq!(state.filter.len(), 40);
}

#[test]
fn keys_order_filter_select_and_quit() {
    let measured = measured();
    let mut state = TopState::default();
    let press = |state: &mut TopState, code| state.press(key(code), Some(&measured));
    let names = |state: &TopState| -> Vec<_> {
        state.rows(&measured).iter().map(|(server, _)| server.name.clone()).collect()
    };
    assert_eq!(names(&state)[0], "files");
    press(&mut state, KeyCode::Char('/'));
    for letter in "FAILED".chars() {
        press(&mut state, KeyCode::Char(letter));
    }
    assert_eq!(
        press(&mut state, KeyCode::Char('q')),
        KeyEffect::Continue,
        "a letter of the filter"
    );
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Enter);
    assert_eq!(names(&state).len(), 1, "{state:?}");
    press(&mut state, KeyCode::Esc);
    assert_eq!((names(&state).len(), state.page), (2, TopPage::Servers));
    press(&mut state, KeyCode::Down);
    assert_eq!(state.selected.as_deref(), Some("files"));
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Down);
    assert!(state.selected.as_ref().unwrap().starts_with("a-server"), "the last one");
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.page, TopPage::Details);
    press(&mut state, KeyCode::Char('?'));
    assert_eq!(state.page, TopPage::Help);
    press(&mut state, KeyCode::Esc);
    press(&mut state, KeyCode::Char('s'));
    assert_eq!(state.order.as_str(), "calls");
    assert_eq!(names(&state)[0], "files");
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.press(interrupt, None), KeyEffect::Quit);
    assert_eq!(press(&mut state, KeyCode::Char('q')), KeyEffect::Quit);
}

#[test]
fn a_selected_server_stays_on_a_short_terminal() {
    let state = TopState { selected: Some("files".into()), ..TopState::default() };
    let last = "a-server-with-a-name-of-forty-characters";
    let low = TopState { selected: Some(last.into()), ..TopState::default() };
    // Room for one row below the totals, the empty line and the heads.
    for (state, shown) in [(&state, "files"), (&low, "a-server")] {
        let lines = drawn(80, 8, state, None);
        assert!(lines[6].starts_with(shown), "{lines:#?}");
    }
}

#[test]
fn a_printed_frame_has_every_server_and_no_keys() {
    let (measured, state) = (measured(), TopState::default());
    let screen = TopScreen {
        measured: Some(&measured),
        state: &state,
        fault: None,
        palette: TopPalette::Plain,
    };
    let text = screen.to_text(80);
    assert!(text.ends_with("12k\n") && !text.contains("q quit"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(text.lines().count(), 8, "{text}");
}
