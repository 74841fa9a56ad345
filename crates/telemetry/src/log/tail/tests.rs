use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

fn tailed(say: impl FnOnce()) -> Vec<LogLine> {
    let layer = LogTailLayer::default();
    let tail = Arc::clone(&layer.tail);
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || {
        say();
        assert!(LogTail::of_process().is_some());
    });
    tail.list(None, 10_000, |_| true).iter().map(|line| line.item.clone()).collect()
}

#[test]
fn a_line_has_its_level_subject_sentence_and_fields() {
    let lines = tailed(|| {
        tracing::warn!(server = %"files", owner = "everyone", "the connection failed");
        tracing::info!(client = "ci\u{1b}", "a\u{1b}[2J\nb");
    });
    assert_eq!(lines.len(), 2);
    let (newer, older) = (&lines[0], &lines[1]);
    assert_eq!((older.level, older.server.as_deref()), (Level::WARN, Some("files")));
    assert_eq!((&*older.text, &*older.fields), ("the connection failed", " owner=everyone"));
    assert_eq!(newer.client.as_deref(), Some("ci\\u{1b}"));
    assert_eq!(newer.text, "a\\u{1b}[2J\\u{a}b");
}

#[test]
fn lines_of_libraries_below_info_are_left_out() {
    let lines = tailed(|| {
        tracing::debug!(target: "h2::codec::framed_write", "a frame of the live lines");
        tracing::trace!(target: "hyper::proto", "a read");
        tracing::info!(target: "h2::client", "a remark");
        tracing::debug!(target: "trunkline::upstream", "an own line");
    });
    let texts: Vec<_> = lines.iter().map(|line| &*line.text).collect();
    assert_eq!(texts, ["an own line", "a remark"]);
}

#[test]
fn a_noisy_server_displaces_only_lines_of_servers_within_bounds() {
    let text = "x".repeat(100_000);
    let lines = tailed(|| {
        tracing::warn!("of the gateway");
        for _ in 0..2000 {
            tracing::info!(target: "trunkline::server", server = %"noisy", "{text}");
        }
    });
    let own: Vec<_> = lines.iter().filter(|line| !line.is_of_server()).collect();
    assert_eq!(own.len(), 1);
    let bytes: usize = lines.iter().map(LogLine::bytes).sum();
    assert!(lines.len() > 10 && bytes < 300 << 10, "{} lines, {bytes} bytes", lines.len());
}

#[test]
fn each_part_of_a_line_is_bounded() {
    let long = "x\u{1b}".repeat(100_000);
    let lines = tailed(|| {
        tracing::warn!(server = %long, client = long.as_str(), owner = %long, "{long}");
        tracing::warn!(server = ?long, principal = %long, "short");
    });
    for line in &lines {
        let of = |name: &Option<String>| name.as_ref().map_or(0, String::len);
        assert!(line.text.len() <= MAX_TEXT_BYTES && line.fields.len() <= MAX_TEXT_BYTES);
        // A control is escaped with up to six bytes.
        for name in [&line.server, &line.client] {
            assert!((MAX_NAME_BYTES..=6 * MAX_NAME_BYTES).contains(&of(name)), "{}", of(name));
            assert!(!name.as_ref().unwrap().contains('\u{1b}'));
        }
    }
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_thousand_lines_of_servers_and_a_thousand_others_stay() {
    let lines = tailed(|| {
        for number in 0..1500 {
            tracing::info!(target: "trunkline::server", "{number}");
            tracing::info!("{number}");
        }
    });
    let of_servers = lines.iter().filter(|line| line.is_of_server());
    assert_eq!((of_servers.count(), lines.len()), (1000, 2000));
    assert_eq!((&*lines[0].text, &*lines[1999].text), ("1499", "500"));
}
