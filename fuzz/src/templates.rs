//! URI templates, and URIs in the lists and answers of servers.

use trunkline::catalog::{BoundTemplate, ResultShape, UriTemplate, rewrite_uris};

/// A template (the first line) matches every URI of its expansion, with its variables bound at once
/// or one by one; and any text (the rest) can be matched against it.
pub fn templates(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (template, uri) = text.split_once('\n').unwrap_or((&text, ""));
    let parsed = UriTemplate::parse(template);
    let _ = parsed.matches(uri);
    assert!(parsed.may_overlap(&parsed));
    if parsed.matches(uri) {
        assert!(uri.starts_with(parsed.literal_prefix()));
    }
    uris(data);
    // RFC 6570, 2.3; a name with a `#` or a `/` expands to a URI that no template matches.
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.%".contains(&byte);
    if !parsed.variable_names().all(|name| !name.is_empty() && name.bytes().all(is_name)) {
        return;
    }
    let all = parsed.bind_variables(|_| Some("v"));
    expands(&parsed, &all);
    let first = parsed.variable_names().next().unwrap_or_default().to_owned();
    match parsed.bind_variables(|name| (name == first).then_some("w")) {
        BoundTemplate::Partly(rest) => {
            expands(&parsed, &UriTemplate::parse(&rest).bind_variables(|_| Some("v")));
        }
        whole => expands(&parsed, &whole),
    }
}

fn expands(template: &UriTemplate, bound: &BoundTemplate) {
    if let BoundTemplate::Whole(uri) = bound {
        assert!(template.matches(uri), "{template:?} does not stand for {uri}");
    }
}

/// Checks that URIs in results are found and renamed, and that the rest is unchanged.
fn uris(data: &[u8]) {
    let Ok(before) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    for shape in
        [ResultShape::ToolResult, ResultShape::Task, ResultShape::Prompt, ResultShape::Contents]
    {
        let same = rewrite_uris(data, shape, |uri| Some(uri.to_owned()));
        let Some(same) = same else { continue };
        let after: serde_json::Value = serde_json::from_slice(&same).expect("a result is JSON");
        assert_eq!(after, before, "{shape:?}");
    }
}
