use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use trunkline_protocol::call::HeaderFault;
use trunkline_protocol::mcp::HeaderValueError;

use super::*;

fn params(schema: &Value) -> Result<Vec<ParamHeader>, AnnotationError> {
    find_param_headers(schema.as_object().unwrap())
}

fn annotated(name: &str) -> Value {
    json!({"type": "string", "x-mcp-header": name})
}

fn sql() -> Vec<ParamHeader> {
    params(&json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "options": {"type": "object", "properties": {
            "limit": {"type": "integer", "x-mcp-header": "Limit"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        }},
    }}))
    .unwrap()
}

#[test]
fn annotations_are_found_in_the_order_of_the_schema() {
    let found: Vec<_> = sql()
        .into_iter()
        .map(|one| (one.header.to_string(), one.path.join("."), one.kind))
        .collect();
    assert_eq!(
        found,
        [
            ("mcp-param-region".into(), "region".into(), ParamKind::String),
            ("mcp-param-limit".into(), "options.limit".into(), ParamKind::Integer),
            ("mcp-param-dry-run".into(), "options.dry".into(), ParamKind::Boolean),
        ]
    );
}

#[test]
fn an_annotation_must_be_a_token() {
    for name in
        [json!(""), json!("a b"), json!("a:b"), json!("a\r\nb"), json!("é"), json!(1), json!(null)]
    {
        let schema = json!({"properties": {"a": {"type": "string", "x-mcp-header": name}}});
        let path = "/properties/a".to_owned();
        assert_eq!(params(&schema), Err(AnnotationError::Token { path }), "{name}");
    }
}

#[test]
fn two_annotations_that_differ_in_case_alone_clash() {
    let schema = json!({"properties": {
        "a": annotated("Region"),
        "b": {"properties": {"c": annotated("rEGION")}},
    }});
    assert_eq!(params(&schema), Err(AnnotationError::Repeated { name: "region".into() }));
}

#[test]
fn only_a_primitive_other_than_number_can_be_mirrored() {
    for kind in [
        json!("number"),
        json!("object"),
        json!("array"),
        json!("null"),
        json!(["string", "null"]),
        Value::Null,
    ] {
        let schema = json!({"properties": {"a": {"type": kind, "x-mcp-header": "A"}}});
        assert!(matches!(params(&schema), Err(AnnotationError::Type { .. })), "{kind}");
    }
}

#[test]
fn an_annotation_off_the_chain_of_properties_is_refused() {
    let one = annotated("A");
    for schema in [
        json!({"x-mcp-header": "A", "type": "string"}),
        json!({"properties": {"a": {"items": one}}}),
        json!({"properties": {"a": {"prefixItems": [one]}}}),
        json!({"properties": {"a": {"anyOf": [{"type": "null"}, one]}}}),
        json!({"allOf": [{"properties": {"a": one}}]}),
        json!({"if": {"properties": {"a": one}}}),
        json!({"then": {"properties": {"a": one}}}),
        json!({"not": one}),
        json!({"$defs": {"a": one}, "properties": {"a": {"$ref": "#/$defs/a"}}}),
        json!({"definitions": {"a": one}}),
        json!({"patternProperties": {"a": one}}),
        json!({"additionalProperties": one}),
        json!({"dependentSchemas": {"a": {"properties": {"b": one}}}}),
        json!({"propertyNames": one}),
    ] {
        assert!(matches!(params(&schema), Err(AnnotationError::Unreachable { .. })), "{schema}");
    }
}

#[test]
fn lookalikes_of_annotations_are_ignored() {
    for schema in [
        json!({"properties": {"x-mcp-header": {"type": "string"}}}),
        json!({"default": {"x-mcp-header": "A"}, "examples": [{"x-mcp-header": "A"}]}),
        json!({"properties": {"a": {"enum": [{"x-mcp-header": "A"}]}}}),
        json!({"$defs": {"x-mcp-header": {"type": "string"}}}),
    ] {
        assert_eq!(params(&schema), Ok(vec![]), "{schema}");
    }
}

#[test]
fn arguments_become_headers() {
    for (arguments, expected) in [
        (r#"{"region":"us-west1","options":{"limit":42,"dry":true}}"#, "us-west1 42 true"),
        (
            r#"{"region":"Zürich","options":{"limit":-7,"dry":false}}"#,
            "=?base64?WsO8cmljaA==?= -7 false",
        ),
        (r#"{"region":null,"options":{"limit":42.0}}"#, "42"),
        (r#"{"region":["us"],"options":{"limit":1.5,"dry":{}}}"#, ""),
        (r#"{"options":{"limit":9223372036854775808}}"#, ""),
        (r#"{"options":[1]}"#, ""),
        ("{}", ""),
        ("not JSON", ""),
    ] {
        let headers = headers_for(&sql(), Some(arguments.as_bytes()));
        let values: Vec<_> = headers.iter().map(|(_, value)| value.to_str().unwrap()).collect();
        assert_eq!(values.join(" "), expected, "{arguments}");
    }
    assert!(headers_for(&sql(), None).is_empty());
}

#[test]
fn headers_must_match_the_body() {
    let name = HeaderName::from_static;
    let (region, limit) = (name("mcp-param-region"), name("mcp-param-limit"));
    let of = |one: &HeaderName| one.clone();
    for (headers, arguments, expected) in [
        (&[][..], "{}", Ok(())),
        (&[], r#"{"region":null}"#, Ok(())),
        (&[(&region, "us")], r#"{"region":"us"}"#, Ok(())),
        (&[(&region, "=?base64?dXM=?=")], r#"{"region":"us"}"#, Ok(())),
        (&[(&limit, "42")], r#"{"options":{"limit":42.0}}"#, Ok(())),
        (&[(&limit, "42.0")], r#"{"options":{"limit":42}}"#, Ok(())),
        (&[], r#"{"region":"us"}"#, Err(HeaderFault::ParamMissing { name: of(&region) })),
        (&[(&region, "us")], "{}", Err(HeaderFault::ParamUnexpected { name: of(&region) })),
        (
            &[(&region, "us")],
            r#"{"region":null}"#,
            Err(HeaderFault::ParamUnexpected { name: of(&region) }),
        ),
        (
            &[(&region, "US")],
            r#"{"region":"us"}"#,
            Err(HeaderFault::ParamMismatch { name: of(&region) }),
        ),
        (
            &[(&region, "1")],
            r#"{"region":1.5}"#,
            Err(HeaderFault::ParamMismatch { name: of(&region) }),
        ),
        (
            &[(&limit, "4.2e1")],
            r#"{"options":{"limit":42}}"#,
            Err(HeaderFault::ParamMismatch { name: of(&limit) }),
        ),
        (
            &[(&limit, "9007199254740993")],
            r#"{"options":{"limit":9007199254740992}}"#,
            Err(HeaderFault::ParamMismatch { name: of(&limit) }),
        ),
        (
            &[(&region, "=?base64?dXM?=")],
            r#"{"region":"us"}"#,
            Err(HeaderFault::Encoding { name: of(&region), fault: HeaderValueError::Base64 }),
        ),
        (
            &[(&region, "us"), (&region, "us")],
            r#"{"region":"us"}"#,
            Err(HeaderFault::Duplicate { name: of(&region) }),
        ),
    ] {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        assert_eq!(
            verify_headers(&sql(), &map, Some(arguments.as_bytes())),
            expected,
            "{headers:?}"
        );
    }
}

#[test]
fn arguments_that_say_two_things_match_no_header() {
    let mut headers = HeaderMap::new();
    headers.insert("mcp-param-region", HeaderValue::from_static("us"));
    let twice = br#"{"region":"us","region":"eu"}"#;
    let verified = verify_headers(&sql(), &headers, Some(twice));
    assert!(matches!(verified, Err(HeaderFault::Arguments(_))));
}

#[test]
fn headers_that_the_gateway_sends_pass_its_own_check() {
    for text in ["us", "", " a ", "=?base64?x?=", "日本", "a\u{0}b", "true", "42"] {
        let arguments = json!({"region": text, "options": {"limit": 7, "dry": false}}).to_string();
        let map: HeaderMap = headers_for(&sql(), Some(arguments.as_bytes())).into_iter().collect();
        assert_eq!(verify_headers(&sql(), &map, Some(arguments.as_bytes())), Ok(()), "{text:?}");
    }
}
