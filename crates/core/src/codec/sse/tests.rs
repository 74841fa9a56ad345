//! The rules of the standard, one row each, and independence of chunk
//! boundaries.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn decode(chunks: &[&[u8]], limit: usize) -> Result<Vec<SseEvent>, SseError> {
    let mut decoder = SseDecoder::new(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        while let Some(event) = decoder.next_event()? {
            events.push(event);
        }
    }
    Ok(events)
}

/// Returns `type|data|id|retry` for each event.
fn shown(chunks: &[&[u8]]) -> Vec<String> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    decode(chunks, 1000)
        .unwrap()
        .iter()
        .map(|e| {
            let event = e.event.as_ref().map_or("-".into(), text);
            let id = e.id.as_ref().map_or("-".into(), text);
            let retry = e.retry.map_or("-".into(), |retry| retry.to_string());
            format!("{event}|{}|{id}|{retry}", text(&e.data))
        })
        .collect()
}

#[test]
fn fields_are_read_as_the_standard_says() {
    let cases: [(&str, &[&str]); 20] = [
        ("data: a\n\n", &["-|a|-|-"]),
        ("data:a\n\n", &["-|a|-|-"]),
        ("data:  a\n\n", &["-| a|-|-"]),
        ("event: message\ndata: a\n\n", &["message|a|-|-"]),
        ("data: a\ndata\ndata: b\n\n", &["-|a\n\nb|-|-"]),
        ("data: a\r\n\r\ndata: b\r\r", &["-|a|-|-", "-|b|-|-"]),
        ("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["-|a|-|-"]),
        (": hello\n\n:\n\ndata: a\n\n", &["-|a|-|-"]),
        ("data: a\n: between\nid: 1\n\n", &["-|a|1|-"]),
        ("id: 1\n\ndata: a\n\n", &["-||1|-", "-|a|-|-"]),
        ("id: 1\ndata:\n\n", &["-||1|-"]),
        ("data\n\n", &["-||-|-"]),
        ("retry: 250\n\n", &["-||-|250"]),
        ("retry: 2s\ndata: a\n\n", &["-|a|-|-"]),
        ("retry:\ndata: a\n\n", &["-|a|-|-"]),
        ("event: lonely\n\ndata: a\n\n", &["-|a|-|-"]),
        ("id: 1\nid: x\0\nid\ndata: a\n\n", &["-|a||-"]),
        ("other: 1\nDATA: x\ndata: a\n\n", &["-|a|-|-"]),
        ("data: a: b\n\n", &["-|a: b|-|-"]),
        ("data: unfinished\n", &[]),
    ];
    for (input, expected) in cases {
        assert_eq!(shown(&[input.as_bytes()]), expected, "{input:?}");
    }
}

#[test]
fn a_line_end_split_over_two_chunks_ends_one_line() {
    assert_eq!(shown(&[b"data: a\r", b"\n\r", b"\ndata: b\r", b"\r"]), ["-|a|-|-", "-|b|-|-"]);
}

#[test]
fn only_data_that_is_not_empty_makes_a_message() {
    for (input, expected) in [
        ("data: {}\n\n", true),
        ("event:\ndata: {}\n\n", true),
        ("event: message\ndata: {}\n\n", true),
        ("event: endpoint\ndata: /x\n\n", false),
        ("id: 1\ndata:\n\n", false),
    ] {
        let events = decode(&[input.as_bytes()], 100).unwrap();
        assert_eq!(events.first().unwrap().is_message(), expected, "{input:?}");
    }
}

#[test]
fn data_on_one_line_of_one_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"event: message\ndata: {\"a\":1}\n\n");
    let mut decoder = SseDecoder::new(100);
    decoder.push(chunk.clone());
    let event = decoder.next_event().unwrap().unwrap();
    assert!(chunk.as_ptr_range().contains(&event.data.as_ptr()));
    assert!(decoder.next_event().unwrap().is_none());
}

#[test]
fn an_event_over_the_limit_ends_the_stream_wherever_its_bytes_stand() {
    let limit = SseError::TooLarge { limit: 20 };
    let long = [b'x'; 21];
    let many = "data: 1\n".repeat(4);
    for chunks in [
        vec![long.as_slice()],
        vec![b"data: 123456789012345678\n\n".as_slice()],
        vec![many.as_bytes()],
        vec![b"data: 1234567890", b"1234567890"],
    ] {
        assert_eq!(decode(&chunks, 20), Err(limit), "{chunks:?}");
    }
    let mut decoder = SseDecoder::new(20);
    decoder.push(Bytes::from_static(&[b'x'; 21]));
    assert_eq!(decoder.next_event(), Err(limit));
    decoder.push(Bytes::from_static(b"\n\ndata: a\n\n"));
    assert_eq!(decoder.next_event(), Err(limit));
}

#[test]
fn comments_between_the_lines_add_nothing_to_an_event() {
    let comments = ": still here\n\n".repeat(100);
    let events = decode(&[b"data: a\n", comments.as_bytes(), b"data: b\n\n"], 20).unwrap();
    assert_eq!(events.len(), 2);
}

#[test]
fn encoded_events_are_decoded() {
    let written = [
        priming("7", Some(Duration::from_millis(100))),
        comment(),
        message(b"{\"a\":1}"),
        message_with(b"{\r\n\"a\":\r2\n}", Some("8"), None),
        message_with(b"{}", Some("not\nan id"), Some(Duration::from_millis(5))),
        OpenMessage::new([Bytes::from_static(b"{\n\"a\":3}")]).finish(Some("9")).concat().into(),
    ]
    .concat();
    assert_eq!(
        shown(&[&written]),
        [
            "-||7|100",
            "message|{\"a\":1}|-|-",
            "message|{\n\"a\":\n2\n}|8|-",
            "message|{}|-|5",
            "message|{\n\"a\":3}|9|-"
        ]
    );
}

proptest! {
    #[test]
    fn chunking_changes_nothing(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "data: ab", "data", "data:", "id: 1", "event: x", "retry: 10", ": c", "x",
                "\n", "\r", "\r\n", "\n\n", "\u{feff}", " ", ":", "\0",
            ]),
            0..40,
        ),
        cuts in prop::collection::vec(1usize..7, 0..120),
    ) {
        let input = parts.concat().into_bytes();
        let mut chunks = Vec::new();
        let mut rest = input.as_slice();
        for cut in cuts {
            let (chunk, after) = rest.split_at(cut.min(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        chunks.push(rest);
        prop_assert_eq!(decode(&[&input], 30), decode(&chunks, 30));
    }

    #[test]
    fn any_json_survives_the_way_there_and_back(text in "[ -~\u{e4}]{1,40}") {
        let data = serde_json::to_vec_pretty(&serde_json::json!({ "text": text })).unwrap();
        let events = decode(&[&message(&data)], 1000).unwrap();
        prop_assert_eq!(events.first().unwrap().data.as_ref(), data.as_slice());
        prop_assert!(events.first().unwrap().is_message());
    }
}
