use super::*;

fn parameter(place: ParameterPlace, style: ParameterStyle, explode: bool) -> ApiParameter {
    ApiParameter {
        argument: "color".into(),
        name: "color".into(),
        place,
        style,
        explode,
        allow_reserved: false,
        required: true,
    }
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

const EMPTY: &str = r#""""#;
const STRING: &str = r#""blue""#;
const ARRAY: &str = r#"["blue","black","brown"]"#;
const OBJECT: &str = r#"{"R":100,"G":200,"B":150}"#;

/// "Style Examples" of OpenAPI 3.1, row by row: empty, string, array, object. `None` if the table
/// gives no example, or if a path cannot have the value.
#[test]
#[expect(clippy::too_many_lines, reason = "the table of the specification, cell by cell")]
fn every_style_is_written_as_the_table_of_the_specification_says() {
    use ParameterPlace::{Path, Query};
    use ParameterStyle::{DeepObject, Form, Label, Matrix, PipeDelimited, Simple, SpaceDelimited};
    type Row = (ParameterPlace, ParameterStyle, bool, [Option<&'static str>; 4]);
    let table: [Row; 13] = [
        (
            Path,
            Matrix,
            false,
            [
                None,
                Some(";color=blue"),
                Some(";color=blue,black,brown"),
                Some(";color=R,100,G,200,B,150"),
            ],
        ),
        (
            Path,
            Matrix,
            true,
            [
                None,
                Some(";color=blue"),
                Some(";color=blue;color=black;color=brown"),
                Some(";R=100;G=200;B=150"),
            ],
        ),
        (
            Path,
            Label,
            false,
            [None, Some(".blue"), Some(".blue,black,brown"), Some(".R,100,G,200,B,150")],
        ),
        (
            Path,
            Label,
            true,
            [None, Some(".blue"), Some(".blue.black.brown"), Some(".R=100.G=200.B=150")],
        ),
        (
            Query,
            Form,
            false,
            [
                Some("color="),
                Some("color=blue"),
                Some("color=blue,black,brown"),
                Some("color=R,100,G,200,B,150"),
            ],
        ),
        (
            Query,
            Form,
            true,
            [
                Some("color="),
                Some("color=blue"),
                Some("color=blue&color=black&color=brown"),
                Some("R=100&G=200&B=150"),
            ],
        ),
        (
            Path,
            Simple,
            false,
            [None, Some("blue"), Some("blue,black,brown"), Some("R,100,G,200,B,150")],
        ),
        (
            Path,
            Simple,
            true,
            [None, Some("blue"), Some("blue,black,brown"), Some("R=100,G=200,B=150")],
        ),
        (
            Query,
            SpaceDelimited,
            false,
            [
                None,
                None,
                Some("color=blue%20black%20brown"),
                Some("color=R%20100%20G%20200%20B%20150"),
            ],
        ),
        (
            Query,
            SpaceDelimited,
            true,
            [None, None, Some("color=blue&color=black&color=brown"), None],
        ),
        (
            Query,
            PipeDelimited,
            false,
            [
                None,
                None,
                Some("color=blue%7Cblack%7Cbrown"),
                Some("color=R%7C100%7CG%7C200%7CB%7C150"),
            ],
        ),
        (
            Query,
            PipeDelimited,
            true,
            [None, None, Some("color=blue&color=black&color=brown"), None],
        ),
        (
            Query,
            DeepObject,
            true,
            [None, None, None, Some("color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150")],
        ),
    ];
    for (place, style, explode, cells) in table {
        let parameter = parameter(place.clone(), style, explode);
        for (value, expected) in [EMPTY, STRING, ARRAY, OBJECT].into_iter().zip(cells) {
            let Some(expected) = expected else { continue };
            let written = match place {
                Path => parameter.write_path(&raw(value)).unwrap(),
                _ => pairs(&parameter, &raw(value)),
            };
            assert_eq!(written, expected, "{style:?}, explode {explode}: {value}");
        }
    }
}

#[test]
fn headers_and_cookies_have_the_same_styles() {
    let header = ParameterPlace::Header(HeaderName::from_static("x-color"));
    for (explode, value, expected) in [
        (false, ARRAY, "blue,black,brown"),
        (false, OBJECT, "R,100,G,200,B,150"),
        (true, OBJECT, "R=100,G=200,B=150"),
        (false, r#""a b/c""#, "a b/c"),
    ] {
        let parameter = parameter(header.clone(), ParameterStyle::Simple, explode);
        assert_eq!(parameter.write_header(&raw(value)).unwrap(), expected);
    }
    let cookie = parameter(ParameterPlace::Cookie, ParameterStyle::Form, true);
    assert_eq!(
        pairs(&cookie, &raw(r#""a; admin=1\r\nX: y""#)),
        "color=a%3B%20admin%3D1%0D%0AX%3A%20y"
    );
}

#[test]
fn a_value_never_leaves_its_place() {
    let path = parameter(ParameterPlace::Path, ParameterStyle::Simple, false);
    for (value, written) in [
        (r#""a/b?c#d%2e""#, "a%2Fb%3Fc%23d%252e"),
        (r#""a b;c=d,e""#, "a%20b%3Bc%3Dd%2Ce"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("true", "true"),
        (r#""..x""#, "..x"),
    ] {
        assert_eq!(path.write_path(&raw(value)).unwrap(), written);
    }
    for value in [r#""..""#, r#"".""#, r#""a/../b""#, r#""..\\b""#, r#"["..","x"]"#, r#"{"..":1}"#]
    {
        let refused = path.write_path(&raw(value));
        assert!(matches!(refused, Err(ArgumentFault::Climbing { .. })), "{value}: {refused:?}");
    }
    for value in [r#""""#, "[]", "{}", r#"[""]"#] {
        let refused = path.write_path(&raw(value));
        assert!(matches!(refused, Err(ArgumentFault::Empty { .. })), "{value}: {refused:?}");
    }
    let header = ParameterPlace::Header(HeaderName::from_static("x-color"));
    let header = parameter(header, ParameterStyle::Simple, false);
    for value in [r#""a\r\nX: y""#, r#""a\nb""#, r#""a\u0000b""#, r#"["a","b\n"]"#] {
        let refused = header.write_header(&raw(value));
        assert!(matches!(refused, Err(ArgumentFault::Header { .. })), "{value}: {refused:?}");
    }
    let reserved = ApiParameter {
        allow_reserved: true,
        ..parameter(ParameterPlace::Query, ParameterStyle::Form, true)
    };
    let written = pairs(&reserved, &raw(r#""a/b:c?d&e#f+g%20;h=i""#));
    assert_eq!(written, "color=a/b:c?d%26e%23f%2Bg%2520%3Bh=i");
}

#[test]
fn nested_values_are_written_in_brackets_or_as_json() {
    let nested = raw(r#"{"a":{"b":[1,2]},"c":"x&y"}"#);
    let deep = parameter(ParameterPlace::Query, ParameterStyle::DeepObject, true);
    let expected = "color%5Ba%5D%5Bb%5D=1&color%5Ba%5D%5Bb%5D=2&color%5Bc%5D=x%26y";
    assert_eq!(pairs(&deep, &nested), expected);
    let json = parameter(ParameterPlace::Query, ParameterStyle::Json, false);
    assert_eq!(pairs(&json, &raw(r#"{"a":1}"#)), "color=%7B%22a%22%3A1%7D");
}

#[test]
fn a_short_argument_with_a_long_form_is_refused_before_it_is_built() {
    let key = "k".repeat(1000);
    let values = vec!["1"; 100].join(",");
    let empty = (0..100).map(|at| format!("\"{at}\":{{}}")).collect::<Vec<_>>().join(",");
    for (style, value) in [
        (ParameterStyle::DeepObject, format!("{{\"{key}\":[{values}]}}")),
        (ParameterStyle::DeepObject, format!("{{\"{key}\":{{{empty}}}}}")),
        (ParameterStyle::Form, format!("[{}]", vec!["\"0123456789\""; 10_000].join(","))),
    ] {
        let parameter = parameter(ParameterPlace::Query, style, true);
        let written = |room| parameter.write_pairs(&raw(&value), &mut EncodedPairs::within(room));
        assert_eq!(written(1 << 20), Ok(()), "{style:?}");
        assert_eq!(written(1 << 16), Err(ArgumentFault::TooLong), "{style:?}");
    }
}

#[test]
fn a_credential_replaces_arguments_of_its_name() {
    let filter = parameter(ParameterPlace::Query, ParameterStyle::Form, true);
    let mut query = EncodedPairs::within(1000);
    filter.write_pairs(&raw(r#"{"key":"mine","a":"b"}"#), &mut query).unwrap();
    query.set("key", "secret");
    assert_eq!(query.join("&"), "a=b&key=secret");
}

fn pairs(parameter: &ApiParameter, value: &RawValue) -> String {
    let mut pairs = EncodedPairs::within(1000);
    parameter.write_pairs(value, &mut pairs).unwrap();
    pairs.join("&")
}
