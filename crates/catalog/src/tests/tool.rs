//! Invalid tools.

use super::*;

fn refusal(raw: &str, rules: HeaderRules) -> Option<String> {
    Tool::parse(raw.as_bytes(), rules).err().map(|error| error.to_string())
}

#[test]
fn each_fault_is_named() {
    let long = format!(r#"{{"name":"{}","inputSchema":{{"type":"object"}}}}"#, "x".repeat(1025));
    let deep = format!(r#"{{"name":"a","_meta":{}1{}}}"#, "[".repeat(90), "]".repeat(90));
    let large = format!(r#"{{"name":"a","_meta":"{}"}}"#, "x".repeat(1 << 20));
    for (raw, expected) in [
        ("", "it must be a JSON object"),
        ("[]", "it must be a JSON object"),
        (r#"{"name":"a""#, "not valid JSON"),
        (r#"{"name":"a"} {}"#, "not valid JSON"),
        (r#"{"inputSchema":{"type":"object"}}"#, r#"the field "name" is missing"#),
        (r#"{"name":"a"}"#, r#"the field "inputSchema" is missing"#),
        (r#"{"name":1,"inputSchema":{"type":"object"}}"#, r#"the field "name" must be a string"#),
        (r#"{"name":"a","inputSchema":null}"#, r#"the field "inputSchema" must be an object"#),
        (
            r#"{"name":"","inputSchema":{"type":"object"}}"#,
            "the name has 0 bytes, 1 to 1024 are allowed",
        ),
        (&long, "the name has 1025 bytes, 1 to 1024 are allowed"),
        (&deep, "nested more than 66 levels deep"),
        (&large, "it has 1048599 bytes, at most 1048576 are allowed"),
        (
            r#"{"name":"a","n\u0061me":"b","inputSchema":{"type":"object"}}"#,
            r#"duplicate key "name""#,
        ),
        (r#"{"name":"a","x":1,"x":2,"inputSchema":{"type":"object"}}"#, r#"duplicate key "x""#),
        (
            r#"{"name":"a","inputSchema":{"properties":{}}}"#,
            r#"inputSchema must have "type": "object" at its root"#,
        ),
        (
            r##"{"name":"a","inputSchema":{"type":"object","allOf":[{"$ref":"#"}]}}"##,
            "inputSchema chains more than 32 subschemas on one value",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object","x-mcp-header":"A"}}"#,
            r#"x-mcp-header at "/" is not reached through properties alone"#,
        ),
    ] {
        assert_eq!(refusal(raw, HeaderRules::Enforce).as_deref(), Some(expected));
    }
    assert_eq!(
        Tool::parse(b"{\"name\":\"\xff\"}", HeaderRules::Enforce).err(),
        Some(ItemError::Json(JsonError::Syntax))
    );
}

#[test]
fn a_server_without_http_may_annotate_as_it_likes() {
    let tool = |annotation: &str| {
        let raw = json!({"name": "a", "inputSchema": {"type": "object", "properties": {
            "p": {"type": "string", "x-mcp-header": annotation},
        }}});
        Tool::parse(raw.to_string().as_bytes(), HeaderRules::Ignore).unwrap()
    };
    assert!(tool("no token").param_headers.is_empty());
    // A client over HTTP sees a valid one and mirrors it, for any transport of the server.
    assert_eq!(tool("Region").param_headers.len(), 1);
}

#[test]
fn every_unknown_field_is_kept() {
    let raw =
        br#"{"name":"a","inputSchema":{"type":"object"},"later":{"x":[null]},"execution":{}}"#;
    let tool = Tool::parse(raw, HeaderRules::Enforce).unwrap();
    let mut out = Vec::new();
    tool.bytes().splice("a", None, Cow::Borrowed, &ServerOffers::default(), &mut out);
    assert_eq!(out, raw);
}

#[test]
fn a_tool_does_not_advertise_tasks_that_its_server_lacks() {
    let raw = br#"{"name":"a","inputSchema":{"type":"object"},"execution":{ "taskSupport" : "required","x":1}}"#;
    let tool = Tool::parse(raw, HeaderRules::Enforce).unwrap();
    assert_eq!(tool.tasks, TaskSupport::Required);
    let mut out = Vec::new();
    tool.bytes().splice("a", None, Cow::Borrowed, &ServerOffers::default(), &mut out);
    let shown = String::from_utf8_lossy(raw).replace("required", "forbidden");
    assert_eq!(String::from_utf8(out).unwrap(), shown);
    let tasks =
        ServerOffers::new(&json!({ "tasks": { "requests": { "tools": { "call": {} } } } }), None);
    let mut out = Vec::new();
    tool.bytes().splice("a", None, Cow::Borrowed, &tasks, &mut out);
    assert_eq!(out, raw);
}

#[test]
fn a_tool_nested_without_end_is_refused_by_name() {
    let raw = format!(r#"{{"name":"a","_meta":{}{}}}"#, "[".repeat(500_000), "]".repeat(500_000));
    let server = ServerName::new("s").unwrap();
    let (_, refused) = built(server, vec![raw.into()], HeaderRules::Enforce, None);
    assert_eq!(
        refused,
        [(Kind::Tools, "a".to_owned(), ItemError::Json(JsonError::TooDeep { max: 66 }))]
    );
}

/// A tool with a pattern that may take `classes` times 192 KiB to compile.
fn with_classes(name: &str, classes: usize) -> Bytes {
    let pattern = format!("(?i){}", "[a]".repeat(classes));
    let properties = json!({ "x": { "type": "string", "pattern": pattern } });
    let schema = json!({ "type": "object", "properties": properties });
    json!({ "name": name, "inputSchema": schema }).to_string().into()
}

#[test]
fn the_same_tools_are_left_out_for_their_patterns_whatever_list_came_before() {
    let server = || ServerName::new("s").unwrap();
    let names = |list: &ServerList| {
        list.tools.iter().map(|tool| tool.native.to_string()).collect::<Vec<_>>()
    };
    let all: Vec<_> = (0..30).map(|number| with_classes(&format!("t{number}"), 64)).collect();
    let (first, refused) = built(server(), all.clone(), HeaderRules::Enforce, None);
    assert!(!first.tools.is_empty() && first.tools.len() + refused.len() == 30);
    let reason = |one: &RejectedElement| {
        matches!(one.2, ItemError::Schema(SchemaError::ListPatterns { .. }))
    };
    assert!(refused.iter().all(reason), "{refused:?}");
    let reversed: Vec<_> = all.iter().rev().cloned().collect();
    let (afresh, _) = built(server(), reversed.clone(), HeaderRules::Enforce, None);
    let (later, _) = built(server(), reversed, HeaderRules::Enforce, Some(&first));
    assert_eq!(names(&afresh), names(&later));
}
