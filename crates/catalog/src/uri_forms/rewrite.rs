//! Rewrites the URIs in a server's result to their public form. All other bytes are unchanged.

use bytes::Bytes;
use memchr::memmem;
use serde_json::value::RawValue;

use trunkline_jsonrpc::{Members, Splice, string, text};
use trunkline_protocol::mcp::Method;

/// The positions of URIs in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultShape {
    /// A tool result: links and embedded resources in its content, and its user
    /// interface in `_meta`.
    ToolResult,
    /// A prompt: the same in each message.
    Prompt,
    /// A read: one URI in each content.
    Contents,
    /// A task: those of its tool result.
    Task,
    /// The entry of a skill: its own, and one for each of its files.
    SkillEntry,
    /// A skill: those of its entry.
    Skill,
    /// A directory: those of its children.
    Directory,
}

impl ResultShape {
    /// The shape of a method's results; `None` if they contain no URIs.
    pub fn for_method(method: &Method) -> Option<Self> {
        match method {
            Method::ToolsCall | Method::TasksResult => Some(Self::ToolResult),
            Method::TasksGet => Some(Self::Task),
            Method::PromptsGet => Some(Self::Prompt),
            Method::ResourcesRead => Some(Self::Contents),
            Method::SkillsGet => Some(Self::Skill),
            Method::DirectoryRead => Some(Self::Directory),
            _ => None,
        }
    }
}

/// The result with the URIs that `public` returns; `None` if no URI changes. A
/// result of another shape is not rewritten.
pub fn rewrite_uris(
    raw: &[u8],
    shape: ResultShape,
    public: impl Fn(&str) -> Option<String>,
) -> Option<Bytes> {
    let mut finder = UriFinder { public, splice: Splice::new(raw) };
    // Most results contain none: searching for the key costs next to nothing. A key may be written
    // with escapes.
    let may_have = |key: &[u8]| memmem::find(raw, key).is_some();
    let interface_key: &[u8] = match shape {
        ResultShape::ToolResult | ResultShape::Task => b"esourceUri\"",
        _ => b"\"uri\"",
    };
    if ![b"\"uri\"", interface_key, br"\u"].into_iter().any(may_have) {
        return None;
    }
    let result = Members::parse_with_duplicates(raw).ok()?;
    match shape {
        ResultShape::ToolResult => finder.find_in_tool_result(&result),
        ResultShape::Task => {
            for inner in result.find_all("result").filter_map(parse_node) {
                finder.find_in_tool_result(&inner);
            }
        }
        ResultShape::Prompt => {
            for message in result.find_all("messages").flat_map(parse_list) {
                finder.find_in_message(message);
            }
        }
        ResultShape::Contents => {
            for content in result.find_all("contents").flat_map(parse_list) {
                finder.find_in_resource(content);
            }
        }
        ResultShape::SkillEntry => finder.find_in_skill(&result),
        ResultShape::Skill => {
            for entry in result.find_all("skill").filter_map(parse_node) {
                finder.find_in_skill(&entry);
            }
        }
        ResultShape::Directory => {
            for child in result.find_all("resources").flat_map(parse_list) {
                finder.find_in_resource(child);
            }
        }
    }
    finder.splice.finish_edited()
}

/// The listing of a directory without the children that the client may not see; `None` if it may
/// see all. `is_shown` gets each child's URI as written in the listing.
pub fn hide_children(raw: &[u8], is_shown: impl Fn(&str) -> bool) -> Option<Bytes> {
    let result = Members::parse_with_duplicates(raw).ok()?;
    let mut splice = Splice::new(raw);
    for list in result.find_all("resources") {
        let children = parse_list(list);
        let all = children.len();
        let shown: Vec<_> = children
            .into_iter()
            .filter(|child| {
                let uris = parse_node(child);
                let mut uris = uris.iter().flat_map(|child| child.find_all("uri").filter_map(text));
                uris.all(|uri| is_shown(&uri))
            })
            .map(RawValue::get)
            .collect();
        if shown.len() < all {
            splice.replace_part(list.get().as_bytes(), format!("[{}]", shown.join(",")));
        }
    }
    splice.finish_edited()
}

/// The elements of a raw array; any other value is its own only element.
fn parse_list(raw: &RawValue) -> Vec<&RawValue> {
    if raw.get().starts_with('[') {
        serde_json::from_str(raw.get()).unwrap_or_default()
    } else {
        vec![raw]
    }
}

/// A block of content, a message, or a resource. A client may use any of a duplicate member.
fn parse_node(raw: &RawValue) -> Option<Members<'_>> {
    Members::parse_with_duplicates(raw.get().as_bytes()).ok()
}

struct UriFinder<'a, F> {
    public: F,
    splice: Splice<'a>,
}

impl<'a, F: Fn(&str) -> Option<String>> UriFinder<'a, F> {
    fn find_in_tool_result(&mut self, result: &Members<'a>) {
        result.find_all("content").flat_map(parse_list).for_each(|block| self.find_in_block(block));
        for (raw, uri) in result.find_all("_meta").flat_map(|meta| find_interface(meta.get())) {
            self.add_edit(raw, &uri);
        }
    }

    fn find_in_message(&mut self, raw: &'a RawValue) {
        let Some(message) = parse_node(raw) else { return };
        let content = message.find_all("content").flat_map(parse_list);
        content.for_each(|block| self.find_in_block(block));
    }

    fn find_in_block(&mut self, raw: &'a RawValue) {
        let Some(block) = parse_node(raw) else { return };
        let is = |kind| block.find_all("type").filter_map(text).any(|found| found == kind);
        if is("resource_link") {
            block.find_all("uri").for_each(|uri| self.find_uri(uri));
        }
        if is("resource") {
            block.find_all("resource").for_each(|resource| self.find_in_resource(resource));
        }
    }

    fn find_in_resource(&mut self, raw: &'a RawValue) {
        if let Some(resource) = parse_node(raw) {
            resource.find_all("uri").for_each(|uri| self.find_uri(uri));
        }
    }

    fn find_in_skill(&mut self, entry: &Members<'a>) {
        entry.find_all("uri").for_each(|uri| self.find_uri(uri));
        let files = entry.find_all("resources").flat_map(parse_list);
        files.for_each(|file| self.find_in_resource(file));
    }

    fn find_uri(&mut self, raw: &'a RawValue) {
        if let Some(uri) = text(raw) {
            self.add_edit(raw.get(), &uri);
        }
    }

    fn add_edit(&mut self, raw: &str, uri: &str) {
        if let Some(public) = (self.public)(uri) {
            self.splice.replace_part(raw.as_bytes(), string(&public));
        }
    }
}

/// Returns the raw values in a `_meta` that name a user interface, with their text. The extension
/// has two spellings of the key; servers often send both.
pub(crate) fn find_interface(meta: &str) -> Vec<(&str, String)> {
    let Ok(meta) = Members::parse_with_duplicates(meta.as_bytes()) else { return Vec::new() };
    let nested = meta.find_all("ui").filter_map(|ui| {
        let ui = Members::parse_with_duplicates(ui.get().as_bytes()).ok()?;
        Some(ui.find_all("resourceUri").collect::<Vec<_>>())
    });
    let nested = nested.flatten();
    let found = nested.chain(meta.find_all("ui/resourceUri"));
    found.filter_map(|raw| Some((raw.get(), text(raw)?.into_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shout(raw: &str, shape: ResultShape) -> Option<String> {
        let out = rewrite_uris(raw.as_bytes(), shape, |uri| {
            uri.strip_prefix("a:").map(|rest| format!("A:\"{rest}"))
        });
        out.map(|out| String::from_utf8(out.to_vec()).unwrap())
    }

    #[test]
    fn every_uri_of_a_shape_is_found_and_nothing_else_is_touched() {
        for (shape, raw, expected) in [
            (
                ResultShape::ToolResult,
                r#"{"content":[ {"type":"resource_link","uri": "a:1"},{"type":"resource","resource":{"text":"\"uri\":\"a:0\"","uri":"a:2"}},{"type":"text","uri":"a:3","text":"x"}],"structuredContent":{"uri":"a:4"},"_meta":{"ui":{"resourceUri":"a:5"},"ui/resourceUri":"a:6"}}"#,
                r#"{"content":[ {"type":"resource_link","uri": "A:\"1"},{"type":"resource","resource":{"text":"\"uri\":\"a:0\"","uri":"A:\"2"}},{"type":"text","uri":"a:3","text":"x"}],"structuredContent":{"uri":"a:4"},"_meta":{"ui":{"resourceUri":"A:\"5"},"ui/resourceUri":"A:\"6"}}"#,
            ),
            (
                ResultShape::ToolResult,
                r#"{"content":[{"type":"resource_link","\u0075ri":"a:1"}]}"#,
                r#"{"content":[{"type":"resource_link","\u0075ri":"A:\"1"}]}"#,
            ),
            (
                ResultShape::ToolResult,
                r#"{"content":[{"type":"text","type":"resource_link","uri":"a:1","uri":"a:2"}],"_meta":{"ui":{},"ui":{"resourceUri":"a:3","resourceUri":"a:4"}}}"#,
                r#"{"content":[{"type":"text","type":"resource_link","uri":"A:\"1","uri":"A:\"2"}],"_meta":{"ui":{},"ui":{"resourceUri":"A:\"3","resourceUri":"A:\"4"}}}"#,
            ),
            (
                ResultShape::Task,
                r#"{"taskId":"1","content":[{"type":"resource_link","uri":"a:0"}],"result":{"content":[{"type":"resource_link","uri":"a:1"}]}}"#,
                r#"{"taskId":"1","content":[{"type":"resource_link","uri":"a:0"}],"result":{"content":[{"type":"resource_link","uri":"A:\"1"}]}}"#,
            ),
            (
                ResultShape::Prompt,
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:1"}}},{"content":[{"type":"resource_link","uri":"\u0061:2"},7]},{"content":"x"}]}"#,
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"A:\"1"}}},{"content":[{"type":"resource_link","uri":"A:\"2"},7]},{"content":"x"}]}"#,
            ),
            (
                ResultShape::SkillEntry,
                r#"{"uri":"a:1","frontmatter":{"uri":"a:0"},"resources":[{"uri":"a:1","digest":"a:0","size":1}, {"size":2,"uri":"a:2"}]}"#,
                r#"{"uri":"A:\"1","frontmatter":{"uri":"a:0"},"resources":[{"uri":"A:\"1","digest":"a:0","size":1}, {"size":2,"uri":"A:\"2"}]}"#,
            ),
            (
                ResultShape::Skill,
                r#"{"skill":{"uri":"a:1","resources":"dynamic"},"uri":"a:0"}"#,
                r#"{"skill":{"uri":"A:\"1","resources":"dynamic"},"uri":"a:0"}"#,
            ),
            (
                ResultShape::Directory,
                r#"{"resources":[{"name":"x","uri":"a:1"}],"uri":"a:0"}"#,
                r#"{"resources":[{"name":"x","uri":"A:\"1"}],"uri":"a:0"}"#,
            ),
            (
                ResultShape::Contents,
                r#"{"contents":[{"uri":"a:1","text":""},{"uri":"b:1"},{"uri":7}],"uri":"a:2"}"#,
                r#"{"contents":[{"uri":"A:\"1","text":""},{"uri":"b:1"},{"uri":7}],"uri":"a:2"}"#,
            ),
        ] {
            assert_eq!(shout(raw, shape).as_deref(), Some(expected));
        }
    }

    #[test]
    fn hidden_children_are_left_out_of_a_directory() {
        let hide = |raw: &str| {
            let out = hide_children(raw.as_bytes(), |uri| uri.starts_with("a:"));
            out.map(|out| String::from_utf8(out.to_vec()).unwrap())
        };
        assert_eq!(
            hide(
                r#"{"resources":[{"uri":"a:1"}, {"uri":"b:1"},{"uri":"a:2","uri":"b:2"},7],"x":1}"#
            ),
            Some(r#"{"resources":[{"uri":"a:1"},7],"x":1}"#.into())
        );
        for raw in ["", "[]", "{}", r#"{"resources":[]}"#, r#"{"resources":[{"uri":"a:1"}]}"#] {
            assert_eq!(hide(raw), None, "{raw}");
        }
    }

    #[test]
    fn results_without_uris_and_other_messages_stay_unchanged() {
        for raw in [
            "",
            "[]",
            "{}",
            r#"{"content":[{"type":"text","text":"x"}]}"#,
            r#"{"content":[{"type":"resource_link","uri":"b:1"}]}"#,
            r#"{"content":"uri","x":"uri"}"#,
        ] {
            assert_eq!(shout(raw, ResultShape::ToolResult), None, "{raw}");
        }
    }
}
