use futures_util::FutureExt;
use futures_util::stream;

use crate::clock;

use super::*;

fn bounds(each: usize) -> OutboxBounds {
    OutboxBounds { each, all: 10_000, held: Arc::default(), naming: RequestNaming::Never }
}

fn texts(reader: &mut OutboxReader) -> Vec<String> {
    std::iter::from_fn(|| match reader.next().now_or_never() {
        Some(Some(Sent::Event(event))) => {
            Some(String::from_utf8(event.concat()).unwrap().replace("event: message\n", ""))
        }
        _ => None,
    })
    .collect()
}

fn event(id: &str, data: &str) -> String {
    format!("id: {id}\ndata: {data}\n\n")
}

#[test]
fn queued_messages_are_read_in_order_and_resumed_after_an_id() {
    let outbox = Outbox::new(0, &bounds(1000));
    outbox.push(b"a", Merge::Never);
    outbox.push(b"b", Merge::Never);
    let mut reader = outbox.read(ReplayStart::Unsent);
    assert_eq!(texts(&mut reader), [event("0-1", "a"), event("0-2", "b")]);
    outbox.push(b"c", Merge::Never);
    let mut next = outbox.read(ReplayStart::Unsent);
    assert_eq!(reader.next().now_or_never(), Some(None), "taken over");
    assert_eq!(texts(&mut next), [event("0-3", "c")]);
    let mut again = outbox.read(ReplayStart::Behind(1));
    assert_eq!(texts(&mut again), [event("0-2", "b"), event("0-3", "c")]);
    let mut beyond = outbox.read(ReplayStart::Behind(99));
    outbox.push(b"d", Merge::Never);
    assert_eq!(texts(&mut beyond), [event("0-4", "d")]);
}

#[test]
fn equal_notices_wait_once_and_are_queued_again_after_delivery() {
    let outbox = Outbox::new(0, &bounds(1000));
    for _ in 0..3 {
        outbox.push(b"a", Merge::With("a"));
        outbox.push(b"b", Merge::With("b"));
    }
    let mut reader = outbox.read(ReplayStart::Unsent);
    assert_eq!(texts(&mut reader).len(), 2);
    outbox.push(b"a", Merge::With("a"));
    assert_eq!(texts(&mut reader), [event("0-3", "a")]);
}

#[test]
fn the_oldest_make_room_and_the_newest_stays_until_it_was_sent() {
    let outbox = Outbox::new(0, &bounds(100));
    for text in ["a", "b", "c"] {
        outbox.push(text.repeat(30).as_bytes(), Merge::Never);
    }
    outbox.push(&[b'x'; 500], Merge::Never);
    let mut reader = outbox.read(ReplayStart::Unsent);
    assert_eq!(texts(&mut reader), [event("0-4", &"x".repeat(500))]);
    assert_eq!(outbox.log().bytes, 0, "too large to be kept once it was sent");
    for _ in 0..2 * MAX_OUTBOX_MESSAGES {
        outbox.push(b"", Merge::Never);
    }
    assert!(outbox.log().kept.len() <= MAX_OUTBOX_MESSAGES);
}

#[test]
fn old_sent_messages_are_forgotten_and_queued_ones_are_not() {
    let outbox = Outbox::new(0, &bounds(1000));
    outbox.push(b"a", Merge::Never);
    texts(&mut outbox.read(ReplayStart::Unsent));
    outbox.push(b"b", Merge::Never);
    let later = clock::real_now() + Duration::from_secs(9);
    assert!(!outbox.forget(later, Duration::from_secs(5)));
    assert_eq!(texts(&mut outbox.read(ReplayStart::Behind(0))), [event("0-2", "b")]);
}

#[test]
fn a_priming_event_names_a_place_of_its_own() {
    let outbox = Outbox::new(7, &bounds(1000));
    outbox.push(b"a", Merge::Never);
    let mut reader = outbox.read(ReplayStart::Unsent);
    texts(&mut reader);
    let primed = outbox.read(ReplayStart::Unsent).priming(Duration::from_secs(1));
    assert_eq!(primed, "id: 7-1.2\nretry: 1000\ndata:\n\n");
    assert_eq!(EventId::parse("7-1.2"), Some(EventId { stream: 7, number: 1 }));
    assert_eq!(EventId::parse("7-1"), Some(EventId { stream: 7, number: 1 }));
    for text in ["", "-", "7", "7-", "a-1", "7-1x", "7--1", "99999999999999999999-1"] {
        assert_eq!(EventId::parse(text), None, "{text}");
    }
}

#[tokio::test]
async fn a_source_goes_on_when_its_reader_goes_away_and_is_taken_over() {
    let (sender, receiver) = tokio::sync::mpsc::channel::<&str>(4);
    let source = stream::unfold(receiver, |mut receiver| async {
        let text = receiver.recv().await?;
        Some((Piece::Message(Bytes::from_static(text.as_bytes())), receiver))
    });
    let outbox = Outbox::fed(1, &bounds(1000), Box::pin(source), Id::number(1));
    let mut reader = outbox.read(ReplayStart::Unsent);
    sender.send("a").await.unwrap();
    assert_eq!(reader.next().await, Some(Sent::Event(vec![event_of("1-1", "a")])));
    drop(reader);
    sender.send("b").await.unwrap();
    while outbox.log().newest < 2 {
        tokio::task::yield_now().await;
    }
    let mut resumed = outbox.read(ReplayStart::Behind(0));
    assert_eq!(resumed.next().await, Some(Sent::Event(vec![event_of("1-1", "a")])));
    assert_eq!(resumed.next().await, Some(Sent::Event(vec![event_of("1-2", "b")])));
    let mut other = outbox.read(ReplayStart::Behind(2));
    assert_eq!(resumed.next().await, None);
    drop(resumed);
    sender.send("c").await.unwrap();
    assert_eq!(other.next().await, Some(Sent::Event(vec![event_of("1-3", "c")])));
    drop(sender);
    assert_eq!(other.next().await, None);
    assert!(outbox.left_over().is_some());
    assert!(outbox.forget(clock::real_now(), Duration::ZERO));
}

fn event_of(id: &str, data: &str) -> Bytes {
    format!("event: message\n{}", event(id, data)).into()
}

#[test]
fn the_total_of_all_streams_is_bounded_too() {
    let bounds =
        OutboxBounds { each: 1000, all: 200, held: Arc::default(), naming: RequestNaming::Never };
    let held = || bounds.held.load(Ordering::Relaxed);
    let streams: Vec<_> = (0..9).map(|stream| Outbox::new(stream, &bounds)).collect();
    for outbox in &streams {
        outbox.push(&[b'x'; 100], Merge::Never);
    }
    assert!(held() > 900, "what waits is kept");
    for outbox in &streams {
        assert_eq!(texts(&mut outbox.read(ReplayStart::Unsent)).len(), 1);
    }
    assert!((100..=200).contains(&held()), "{}", held());
    drop(streams);
    assert_eq!(held(), 0);
}

#[tokio::test]
async fn unread_answers_are_replaced_when_all_streams_keep_too_much() {
    let bounds = OutboxBounds { all: 1000, ..bounds(100) };
    let mut outboxes = Vec::new();
    for stream in 1..=8 {
        let answer = Piece::Message(Bytes::from(vec![b'x'; 300]));
        let source = Box::pin(stream::iter([answer]));
        let outbox = Outbox::fed(stream, &bounds, source, Id::number(stream));
        drop(outbox.read(ReplayStart::Unsent));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(outbox.left_over().is_some(), "it is over");
        outboxes.push(outbox);
    }
    let said: Vec<_> = outboxes.iter().map(|it| texts(&mut it.read(ReplayStart::Unsent))).collect();
    let kept = said.iter().filter(|texts| texts[0].contains("xxx")).count();
    assert_eq!(kept, 3, "{said:?}");
    assert!(said[7][0].contains("\"id\":8,\"error\""), "{said:?}");
}

#[tokio::test]
async fn the_events_of_a_recorded_session_name_the_request_of_their_stream() {
    let message = |text: &'static str| Piece::Message(Bytes::from_static(text.as_bytes()));
    let long = format!("\"{}\"", "x".repeat(MAX_NAMED_REQUEST));
    for (raw, is_named) in [("7", true), (r#""a-b.r-c""#, true), (long.as_str(), false)] {
        let source = Bytes::copy_from_slice(raw.as_bytes());
        let id = Id::read(&source, serde_json::from_slice(&source).unwrap()).unwrap();
        let bounds = OutboxBounds { naming: RequestNaming::Short, ..bounds(1000) };
        let events = futures_util::stream::iter([message("{}")]);
        let outbox = Outbox::fed(5, &bounds, Box::pin(events), id.clone());
        let mut reader = outbox.read(ReplayStart::Unsent);
        let priming = reader.priming(Duration::from_secs(1));
        let Some(Sent::Event(event)) = reader.next().await else { panic!("{raw}") };
        for event in [priming.to_vec(), event.concat()] {
            let text = String::from_utf8(event).unwrap();
            let event_id = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
            assert_eq!(EventId::parse(event_id).unwrap().stream, 5, "{event_id}");
            assert_eq!(named_request(event_id), is_named.then(|| id.clone()), "{event_id}");
        }
    }
    for event in ["0-1", "0-1.2", "0-1.r", "0-1.r!", "0-1.re30"] {
        assert_eq!(named_request(event), None, "{event}");
    }
}
