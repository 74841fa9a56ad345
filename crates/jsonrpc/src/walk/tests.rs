use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

fn walked(text: &[u8]) -> Result<Vec<(String, String)>, ObjectError> {
    let mut walk = Walk::over(text, 200)?;
    let mut members = Vec::new();
    while let Some((key, value)) = walk.next()? {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        members.push((text(&key), text(value)));
    }
    Ok(members)
}

/// The members, as parsed by serde.
fn read(text: &[u8]) -> Option<Vec<(String, String)>> {
    let members = crate::Members::parse_with_duplicates(text).ok()?;
    Some(members.0.iter().map(|(key, raw)| (key.to_string(), raw.get().to_owned())).collect())
}

#[test]
fn members_come_in_their_order_as_they_stand() {
    let text = br#" { "a" : [1, {"b":"\"}"}] ,"c\u0064":-1.5e+3,"a":{ },"":"x" } "#;
    let members = walked(text).unwrap();
    let members: Vec<_> = members.iter().map(|(key, raw)| (&**key, &**raw)).collect();
    let array = r#"[1, {"b":"\"}"}]"#;
    assert_eq!(members, [("a", array), ("cd", "-1.5e+3"), ("a", "{ }"), ("", "\"x\"")]);
}

#[test]
fn non_objects_are_refused_with_the_reason() {
    for text in ["[]", "1", "\"x\"", "null", " [ {\"a\":[ ]} ] "] {
        assert_eq!(walked(text.as_bytes()), Err(ObjectError::Kind), "{text}");
    }
    for (text, at) in [
        ("", 0),
        ("{", 1),
        ("{\"a\"}", 4),
        ("{\"a\":1,}", 7),
        ("{,}", 1),
        ("{\"a\":01}", 6),
        ("{\"a\":1.}", 7),
        ("{\"a\":+1}", 5),
        ("{\"a\":tru}", 5),
        ("{\"a\":[1 2]}", 8),
        ("{\"a\":[1}", 7),
        ("{\"a\":\"\u{1}\"}", 6),
        ("{\"a\":\"\\x\"}", 7),
        ("{\"a\":\"\\u12g4\"}", 7),
        ("{\"a\":\"", 6),
        ("{} {}", 3),
        ("[1] 2", 4),
    ] {
        let Err(ObjectError::Syntax(fault)) = walked(text.as_bytes()) else { panic!("{text}") };
        assert_eq!(fault.at, at, "{text}: {fault}");
    }
    assert!(matches!(
        walked(b"{\"\xff\":1}"),
        Err(ObjectError::Syntax(JsonSyntaxError { at: 2, .. }))
    ));
}

#[test]
fn elements_come_in_their_order_as_they_stand() {
    let all = |text: &'static str| {
        let mut cursor = Cursor::over(text.as_bytes(), 3).ok()?;
        let (mut found, mut place) = (Vec::new(), MemberSlot::First);
        (cursor.peek() == Some(b'[')).then_some(())?;
        cursor.open(0).ok()?;
        while cursor.has_next(&mut place, b']', WalkError::Element).ok()? {
            cursor.peek();
            let start = cursor.at();
            cursor.value(1).ok()?;
            found.push(std::str::from_utf8(cursor.since(start)).unwrap());
        }
        cursor.ends().ok().map(|()| found)
    };
    assert_eq!(
        all(" [1 ,\"]\",[ [ ] ] , {\"a\":2}] "),
        Some(vec!["1", "\"]\"", "[ [ ] ]", "{\"a\":2}"])
    );
    assert_eq!(all("[ ]"), Some(vec![]));
    for text in ["", "{}", "[1,]", "[,]", "[1 2]", "[1]]", "[[[[]]]]"] {
        assert_eq!(all(text), None, "{text}");
    }
}

#[test]
fn depth_is_bounded_and_counts_from_the_object() {
    for levels in [1, 2, 63, 64, 65, 127, 128, 129, 130, 199] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let inner = open.repeat(levels) + "1" + &close.repeat(levels);
            let text = format!("{{\"a\":{inner},\"b\":[{{\"c\":1}}]}}");
            assert_eq!(walked(text.as_bytes()).unwrap()[0].1, inner);
            let end = |limit| {
                let mut walk = Walk::over(text.as_bytes(), limit)?;
                walk.next()
            };
            assert!(end(levels + 1).is_ok());
            assert_eq!(end(levels), Err(ObjectError::Depth(DepthError { limit: levels })));
        }
    }
}

#[test]
fn every_length_of_string_is_stepped_over() {
    for length in 0..40 {
        for end in ["", "\\n", "\\u00e9", "é", "\u{7f}"] {
            let text = format!("{{\"{0}{end}\":\"{end}{0}{end}\"}}", "x".repeat(length));
            assert_eq!(walked(text.as_bytes()).ok(), read(text.as_bytes()), "{text}");
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_read_as_serde_reads_it(
        text in r#"\{("[a\\"u0]{0,3}":?[0-9eE+.\[\]{}"truefalsn\\ -]{0,9},?){0,3}\}?"#,
    ) {
        let ours = walked(text.as_bytes()).ok();
        prop_assert_eq!(ours, read(text.as_bytes()));
    }

    #[test]
    fn any_bytes_are_read_as_serde_reads_them(bytes: Vec<u8>, value: Vec<u8>) {
        prop_assert_eq!(walked(&bytes).ok(), read(&bytes));
        let text = [b"{\"a\":\"", &value[..], b"\"}"].concat();
        prop_assert_eq!(walked(&text).ok(), read(&text));
    }
}

#[test]
fn raw_values_agree_with_serde() {
    for text in ["1e5", "-0", "0.10", "[ ]", "{\"a\": null }", "\"\\ud800\""] {
        let object = format!("{{\"k\": {text} }}");
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        assert_eq!(walked(object.as_bytes()).unwrap()[0].1, raw.get());
    }
}
