use super::*;

/// Asserts that the page's tags are closed, that it loads nothing, and that it
/// has its curves.
#[track_caller]
pub(crate) fn holds_together(page: &str) {
    let mut open = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page");
    // The style sheet is not markup.
    while let Some((_, from)) = rest.split_once('<') {
        let (tag, after) = from.split_once('>').expect("a tag ends");
        rest = after;
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect();
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "{}", &rest[..rest.len().min(80)]);
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
    }
    assert!(open.is_empty(), "{open:?}");
    for word in ["http-equiv", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(word), "{word}");
    }
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(!page.contains("NaN") && !page.contains("inf"), "a curve left its picture");
}

#[test]
fn numbers_are_written_for_people() {
    assert_eq!(grouped(1_234_567), "1,234,567");
    assert_eq!(grouped(123), "123");
    assert_eq!(time(12.34), "12.3 µs");
    assert_eq!(time(12_340.0), "12.34 ms");
    assert_eq!(time(2_500_000.0), "2.50 s");
    assert_eq!(rate(99.96), "100.0");
    assert_eq!(rate(12_345.6), "12,346");
}

#[test]
fn axes_end_at_ticks_and_hold_all_between() {
    let axis = svg::Axis::log(37.0, 4200.0, |it| it.to_string());
    assert_eq!((axis.low, axis.high), (20.0, 5000.0));
    assert!(axis.ticks.len() >= 3);
    let axis = svg::Axis::linear(93.0, |it| it.to_string());
    assert_eq!((axis.low, axis.high, axis.ticks.len()), (0.0, 100.0, 6));
    for (low, high) in [(0.0, 0.0), (1.0, 1.0), (1e-9, 1e9)] {
        let axis = svg::Axis::log(low, high, |it| it.to_string());
        assert!(axis.low < axis.high && axis.high.is_finite());
    }
}

#[test]
fn texts_of_servers_cannot_become_markup() {
    assert_eq!(svg::escape("<a href='x'>&\"\n"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot; ");
}
