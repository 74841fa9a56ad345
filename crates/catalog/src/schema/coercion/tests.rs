use super::*;

fn coerced(schema: &str, arguments: &str) -> Option<(String, Vec<String>)> {
    let schema = ArgumentSchema::compile(schema.as_bytes()).unwrap();
    assert!(schema.check(Some(arguments.as_bytes())).is_err(), "{arguments}");
    let coerced = schema.coerce(arguments.as_bytes())?;
    assert!(schema.check(Some(&coerced.raw)).is_ok());
    Some((String::from_utf8(coerced.raw).unwrap(), coerced.paths))
}

const SCHEMA: &str = r#"{"type":"object","properties":{
    "n":{"type":"integer"},"x":{"type":"number"},"b":{"type":"boolean"},
    "l":{"type":"array","items":{"type":"integer"}},"o":{"type":"object","required":["k"]},
    "m":{"type":["integer","null"]},"any":{"anyOf":[{"type":"array"},{"type":"null"}]},
    "t":{"type":"object","properties":{"a/b~c":{"type":"array","items":{"type":"number"}}}},
    "s":{"type":"string","minLength":3},"e":{"anyOf":[{"type":"string","minLength":3},{"type":"integer"}]},
    "z":{"type":"null"}}}"#;

#[test]
fn a_string_becomes_the_value_that_the_schema_wants() {
    for (arguments, expected, paths) in [
        (r#"{ "n": "3", "s":"abc"}"#, r#"{ "n": 3, "s":"abc"}"#, &["/n"][..]),
        (r#"{"n":" -7 ","big":1.50}"#, r#"{"n":-7,"big":1.50}"#, &["/n"]),
        (r#"{"x":"1e3","b":"false"}"#, r#"{"x":1e3,"b":false}"#, &["/b", "/x"]),
        (r#"{"l":"[1, 2]"}"#, r#"{"l":[1, 2]}"#, &["/l"]),
        (r#"{"l":"[\"1\", 2]"}"#, r#"{"l":[1, 2]}"#, &["/l", "/l/0"]),
        (r#"{"l":[1,"2",3]}"#, r#"{"l":[1,2,3]}"#, &["/l/1"]),
        (r#"{"o":"{\"k\": \"\\u00e9\"}"}"#, r#"{"o":{"k": "\u00e9"}}"#, &["/o"]),
        (r#"{"l":"[1,\n2]"}"#, r#"{"l":[1, 2]}"#, &["/l"]),
        (r#"{"m":"4","any":"[]"}"#, r#"{"m":4,"any":[]}"#, &["/any", "/m"]),
        (r#"{"t":{"a\/b~c":["1"]}}"#, r#"{"t":{"a\/b~c":[1]}}"#, &["/t/a~1b~0c/0"]),
    ] {
        let (raw, found) = coerced(SCHEMA, arguments).unwrap_or_else(|| panic!("{arguments}"));
        assert_eq!(
            (raw.as_str(), found),
            (expected, paths.iter().map(ToString::to_string).collect())
        );
    }
}

#[test]
fn ambiguous_or_invalid_values_are_left_alone() {
    for arguments in [
        r#"{"n":"three"}"#,
        r#"{"n":"3.5"}"#,
        r#"{"n":"007"}"#,
        r#"{"n":"0x10"}"#,
        r#"{"n":true}"#,
        r#"{"n":["3"]}"#,
        r#"{"b":"yes"}"#,
        r#"{"b":"1"}"#,
        r#"{"b":"True"}"#,
        r#"{"l":"1,2"}"#,
        r#"{"l":"[1,\"x\"]"}"#,
        r#"{"o":"{\"k\":1,\"k\":2}"}"#,
        r#"{"o":"{}"}"#,
        r#"{"s":5}"#,
        r#"{"e":"3"}"#,
        r#"{"z":"null"}"#,
        r#"{"n":"3","b":"maybe"}"#,
        r#"{"n":"3","n":"4"}"#,
    ] {
        assert_eq!(coerced(SCHEMA, arguments), None, "{arguments}");
    }
}

#[test]
fn a_null_for_an_optional_property_is_dropped() {
    const SCHEMA: &str = r##"{"type":"object","required":["need"],
        "$defs":{"text":{"type":"string"},"kept":{"type":["string","null"]}},
        "properties":{"need":{"type":"string"},"n":{"type":"integer"},"e":{"enum":["a","b"]},
        "c":{"const":1},"r":{"$ref":"#/$defs/text"},"k":{"$ref":"#/$defs/kept"},
        "any":{"anyOf":[{"type":"array"},{"type":"object"}]},"all":{"allOf":[{"type":"boolean"}]},
        "o":{"type":"object","properties":{"a/b":{"type":"string"},"l":{"type":"array"}}}}}"##;
    for (arguments, expected, paths) in [
        (r#"{"need":"x","n":null}"#, r#"{"need":"x"}"#, &["/n"][..]),
        (r#"{ "n" : null , "need" : "x" }"#, r#"{ "need" : "x" }"#, &["/n"]),
        (r#"{"n":null,"e":null,"need":"x","c":null}"#, r#"{"need":"x"}"#, &["/c", "/e", "/n"]),
        (
            r#"{"n":null,"need":"x", "r":null,"k":null ,"all":null}"#,
            r#"{"need":"x","k":null }"#,
            &["/all", "/n", "/r"],
        ),
        (r#"{"need":"x","any":null,"n":"3"}"#, r#"{"need":"x","n":3}"#, &["/any", "/n"]),
        (r#"{"need":"x","o":{"a\/b":null}}"#, r#"{"need":"x","o":{}}"#, &["/o/a~1b"]),
        (
            r#"{"need":"x","o":"{\"l\":null,\"z\":null}"}"#,
            r#"{"need":"x","o":{"z":null}}"#,
            &["/o", "/o/l"],
        ),
    ] {
        let (raw, found) = coerced(SCHEMA, arguments).unwrap_or_else(|| panic!("{arguments}"));
        let paths = paths.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((raw.as_str(), found), (expected, paths));
    }
}

#[test]
fn a_null_is_kept_where_it_is_required_or_no_declared_property() {
    const SCHEMA: &str = r#"{"type":"object","required":["need"],"properties":{
        "need":{"type":"string"},"list":{"type":"array","items":{"type":"string"}},
        "map":{"type":"object","additionalProperties":{"type":"string"}},
        "like":{"type":"object","patternProperties":{"^like":{"type":"string"}}},
        "0":{"type":"array","items":{"type":"string"}},
        "one":{"oneOf":[{"type":["string","null"]},{"type":["array","null"]}]}}}"#;
    for arguments in [
        r#"{"need":null}"#,
        "{}",
        r#"{"need":"x","list":[null]}"#,
        r#"{"need":"x","0":[null]}"#,
        r#"{"need":"x","map":{"map":null}}"#,
        r#"{"need":"x","like":{"like":null}}"#,
        r#"{"need":"x","one":null}"#,
        r#"{"need":"x","list":[["x"]],"map":null}"#,
    ] {
        assert_eq!(coerced(SCHEMA, arguments), None, "{arguments}");
    }
}
