//! Arguments with and without hidden content.

use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use super::*;

const QUESTION: ArgumentBounds = ArgumentBounds { usual: 2000, most: 8000 };

fn show(raw: &str) -> Result<ShownArguments, RenderFault> {
    RedactionRules::new(&[], &[]).unwrap().show_arguments(raw.as_bytes(), QUESTION)
}

fn shown(value: &Value) -> String {
    let shown = show(&value.to_string()).unwrap();
    assert!(shown.has_all, "{value}");
    let read: Result<Value, _> = serde_json::from_str(&shown.json);
    assert!(read.is_ok(), "it is JSON: {}", shown.json);
    shown.json
}

fn digest(text: &str) -> String {
    HEXLOWER.encode(&sha256(text.as_bytes()))
}

#[test]
fn short_arguments_are_shown_as_they_are() {
    for raw in [
        "{}",
        r#"{"a":1,"b":[true,false,null],"c":{"d":"e"}}"#,
        r#"{"big":123456789012345678901234567890,"small":0.10000000000000000000001,"e":1E5,"-":-0}"#,
        r#"{"text":"a\"b\\c\nd 7 -8 été 日本語","7":"8","x":[9,"10",{"11":12}]}"#,
        r#"[1,"2"]"#,
    ] {
        assert_eq!(show(raw).map(|shown| shown.json).as_deref(), Ok(raw));
    }
}

#[test]
fn unreadable_arguments_and_duplicate_keys_are_refused() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for raw in [
        r#"{"x":1e400}"#,
        r#"{"x":-1e400}"#,
        r#"{"x":[{"y":1e999}]}"#,
        r#"{"x":1,"x":2}"#,
        r#"{"x":1,"\u0078":2}"#,
        r#"{"x":[{"y":1,"y":1}]}"#,
        r#"{"x":1"#,
        r#"{"x":1} 2"#,
        &deep,
    ] {
        assert_eq!(show(raw), Err(RenderFault::Unreadable), "{raw}");
    }
    let many = format!("[{}1]", "1,".repeat(MAX_VALUES));
    assert_eq!(show(&many), Err(RenderFault::TooMany));
}

#[test]
fn a_long_value_shows_its_beginning_its_end_its_size_and_its_digest() {
    let words = (0..40_000).map(|n| format!("w{n} ")).collect::<Vec<_>>().concat();
    let text = format!("begin {words} end");
    let told = shown(&json!({ "a": text, "b": 1 }));
    for part in ["begin w0", " end\",\"b\":1}", &format!("{} bytes", text.len()), &digest(&text)] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(told.len() < 2500, "{told}");
    let list: Vec<String> = (0..5000).map(|n| format!("item{n}")).collect();
    let told = shown(&json!({ "list": list, "command": "rm" }));
    for part in ["item0", "item4999", "more, ", "SHA-256", "\"command\":\"rm\""] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let digits = "7".to_owned() + &"1234567890".repeat(30);
    let told = show(&format!(r#"{{"n":{digits},"m":{digits}0}}"#)).unwrap();
    assert!(told.json.contains("7⟨30 × 1234567890⟩") || told.json.contains(&digits), "{told:?}");
}

#[test]
fn filler_is_folded_and_hides_nothing() {
    let evil = "rm -rf /home";
    let kilo = |text: &str| text.repeat(1000);
    let mixed: String = [' ', '\u{a0}', '\u{200b}', '\n', '\u{3000}', '\u{2800}', '\t']
        .into_iter()
        .cycle()
        .take(999)
        .collect();
    for (filler, mark) in [
        (kilo(" "), "⟨1000 blanks⟩"),
        (kilo("\n"), "⟨1000 blanks⟩"),
        (kilo("x"), "⟨1000 × x⟩"),
        (kilo("ab"), "⟨1000 × ab⟩"),
        (kilo("\n.\n"), "⟨1000 × "),
        (kilo("lorem ipsum dolor sit "), "⟨1000 × lorem ipsum dolor sit ⟩"),
        (kilo("\u{200b}"), "⟨1000 blanks⟩"),
        (kilo("\u{202e}"), "⟨1000 blanks⟩"),
        (kilo("\u{301}"), "⟨1000 blanks⟩"),
        (mixed, "⟨999 blanks⟩"),
    ] {
        for value in [
            json!({ "x": format!("{filler}{evil}") }),
            json!({ "x": filler, "y": evil }),
            json!({ "x": { "a": [filler, filler] }, "y": evil }),
            json!({ filler.clone(): 1, "y": evil }),
        ] {
            let told = shown(&value);
            assert!(told.contains(evil) && told.contains(mark), "{told}");
            assert!(told.len() < 1000, "{told}");
        }
    }
}

#[test]
fn marks_cannot_be_forged_and_invisible_characters_have_names() {
    let told = shown(&json!({ "x": "⟨12 blanks⟩ a\u{200b}b\u{202e}c\u{2028}d\u{7}e\u{feff}" }));
    let expected = "⟨U+27E8⟩12 blanks⟨U+27E9⟩ a⟨U+200B⟩b⟨U+202E⟩c⟨U+2028⟩d⟨U+0007⟩e⟨U+FEFF⟩";
    assert!(told.contains(expected), "{told}");
    let told = shown(&json!({ "⟨…⟩": 1 }));
    assert!(told.contains("⟨U+27E8⟩"), "{told}");
}

#[test]
fn every_argument_shows_its_name_and_a_part_of_its_value() {
    let words = |n: usize| (0..500).map(|word| format!("{n}-{word} ")).collect::<Vec<_>>().concat();
    for count in [2, 10, 30] {
        let members = (0..count).map(|n| (format!("name{n}"), Value::from(words(n))));
        let told = shown(&Value::Object(members.collect()));
        for n in 0..count {
            assert!(told.contains(&format!("\"name{n}\":\"{n}-0 ")), "{n} of {count}: {told}");
            assert!(told.contains(&digest(&words(n))), "{n} of {count}: {told}");
        }
        assert!(told.len() < 10_000, "{count}: {}", told.len());
    }
    let many: serde_json::Map<_, _> = (0..3000).map(|n| (format!("n{n}"), json!(n))).collect();
    let told = show(&Value::Object(many).to_string()).unwrap();
    assert!(!told.has_all && told.json.contains("\"⟨…⟩\":\"⟨"), "{told:?}");
    assert!(told.json.contains("\"n0\":0") && told.json.ends_with("\"n2999\":2999}"), "{told:?}");
    let long_name = "n".repeat(4) + &(0..900).map(|n| n.to_string()).collect::<String>();
    let told = shown(&json!({ long_name.clone(): 1, "y": 2 }));
    assert!(told.contains(&digest(&long_name)) && told.contains("\"y\":2"), "{told}");
}
