//! The texts of a definition that models and people read: their positions, and edited definitions.
//! Names, keywords of schemas and their values keep their bytes, and so does a definition without
//! an edited text.
//!
//! The position of a member makes it a text, not its name: a property that is called `description`
//! is a schema, and the members of `enum`, `const`, `default` and `examples` are values.

use std::borrow::Cow;

use serde_json::value::RawValue;

use trunkline_jsonrpc::{Members, object_of};

use crate::kind::{Kind, MAX_ITEM_DEPTH};

/// The purpose of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextRole {
    /// A `description`.
    Description,
    /// A `title`, which clients show instead of the name.
    Title,
    /// A `$comment` of a schema, or its description in another notation.
    Remark,
    /// The `examples` of a schema: any values.
    Examples,
}

/// An edit of texts.
pub(crate) trait TextEdit {
    /// Edits a text, given as its raw value: borrowed if unchanged, `None` to remove its member.
    fn edit_text<'a>(&self, role: TextRole, value: &'a RawValue) -> Option<Cow<'a, str>>;
}

/// An element of a list with edited texts; borrowed if all of them are unchanged, or it is no
/// object.
///
/// Skills are never edited: a skill's frontmatter is a copy of a file, and clients compare the two.
pub(crate) fn edit_texts<'a>(kind: Kind, raw: &'a [u8], edit: &impl TextEdit) -> Cow<'a, [u8]> {
    let Ok(element) = serde_json::from_slice::<&RawValue>(raw) else { return raw.into() };
    let edited = edit_members(element, |key, value| match (kind, key) {
        (Kind::Skills, _) => Some(value.get().into()),
        (_, "description") => edit.edit_text(TextRole::Description, value),
        (_, "title") => edit.edit_text(TextRole::Title, value),
        (Kind::Tools, "annotations") => Some(edit_label(value, edit)),
        (Kind::Tools, "inputSchema" | "outputSchema") => Some(edit_schema_texts(value, edit, 0)),
        (Kind::Prompts, "arguments") => Some(edit_items(value, |one| edit_label(one, edit))),
        _ => Some(value.get().into()),
    });
    match edited {
        Cow::Borrowed(_) => raw.into(),
        Cow::Owned(edited) => Cow::Owned(edited.into_bytes()),
    }
}

/// The annotations of a tool, or an argument of a prompt.
fn edit_label<'a>(raw: &'a RawValue, edit: &impl TextEdit) -> Cow<'a, str> {
    edit_members(raw, |key, value| match key {
        "description" => edit.edit_text(TextRole::Description, value),
        "title" => edit.edit_text(TextRole::Title, value),
        _ => Some(value.get().into()),
    })
}

fn edit_schema_texts<'a>(raw: &'a RawValue, edit: &impl TextEdit, depth: usize) -> Cow<'a, str> {
    // No element is deeper.
    if depth > MAX_ITEM_DEPTH {
        return raw.get().into();
    }
    let edit_schema = |schema| edit_schema_texts(schema, edit, depth + 1);
    edit_members(raw, |key, value| match key {
        "description" => edit.edit_text(TextRole::Description, value),
        "title" => edit.edit_text(TextRole::Title, value),
        "$comment" | "markdownDescription" => edit.edit_text(TextRole::Remark, value),
        "examples" | "example" => edit.edit_text(TextRole::Examples, value),
        // The names in these are the server's own.
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
        | "dependencies" => Some(edit_members(value, |_, schema| Some(edit_schema(schema)))),
        "items"
        | "prefixItems"
        | "additionalItems"
        | "unevaluatedItems"
        | "contains"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "propertyNames"
        | "contentSchema"
        | "not"
        | "if"
        | "then"
        | "else"
        | "allOf"
        | "anyOf"
        | "oneOf" => Some(match value.get().as_bytes().first() {
            Some(b'[') => edit_items(value, edit_schema),
            _ => edit_schema(value),
        }),
        _ => Some(value.get().into()),
    })
}

/// An object with edited values of its members; borrowed if all of them are unchanged, or it is no
/// object. A duplicate key keeps all its values, because a reader may use any of them.
fn edit_members<'a>(
    raw: &'a RawValue,
    edit: impl Fn(&str, &'a RawValue) -> Option<Cow<'a, str>>,
) -> Cow<'a, str> {
    let Ok(members) = Members::parse_with_duplicates(raw.get().as_bytes()) else {
        return raw.get().into();
    };
    let edited = members.0.iter().map(|(key, value)| (&**key, edit(key, value)));
    let edited: Vec<_> = edited.collect();
    if edited.iter().all(|(_, value)| matches!(value, Some(Cow::Borrowed(_)))) {
        return raw.get().into();
    }
    let kept = edited.into_iter().filter_map(|(key, value)| Some((key, value?)));
    String::from_utf8(object_of(kept)).map_or(raw.get().into(), Cow::Owned)
}

/// An array with edited elements; borrowed if all of them are unchanged, or it is no array.
fn edit_items<'a>(raw: &'a RawValue, edit: impl Fn(&'a RawValue) -> Cow<'a, str>) -> Cow<'a, str> {
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) else {
        return raw.get().into();
    };
    let edited: Vec<_> = items.into_iter().map(edit).collect();
    if edited.iter().all(|item| matches!(item, Cow::Borrowed(_))) {
        return raw.get().into();
    }
    Cow::Owned(format!("[{}]", edited.join(",")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use trunkline_jsonrpc::{string, text};

    use super::*;

    /// Appends a mark to each text, and removes titles with the text `drop`.
    struct Mark;

    impl TextEdit for Mark {
        fn edit_text<'a>(&self, role: TextRole, value: &'a RawValue) -> Option<Cow<'a, str>> {
            match text(value) {
                Some(text) if role == TextRole::Title && text == "drop" => None,
                Some(text) if text != "stays" => Some(Cow::Owned(string(&format!("{text}!")))),
                _ => Some(value.get().into()),
            }
        }
    }

    fn marked(kind: Kind, element: &Value) -> Value {
        let raw = element.to_string();
        serde_json::from_slice(&edit_texts(kind, raw.as_bytes(), &Mark)).unwrap()
    }

    #[test]
    fn texts_of_schemas_are_found_by_their_place() {
        let tool = json!({
            "name": "t", "title": "t", "description": "t", "_meta": { "title": "t" },
            "annotations": { "title": "drop", "readOnlyHint": true },
            "inputSchema": {
                "type": "object", "$comment": "t", "required": ["description"],
                "properties": {
                    "description": { "description": "t", "enum": ["title"], "default": "t" },
                    "title": { "const": { "title": "t" }, "title": 7 },
                    "list": { "items": [{ "title": "t" }, true], "not": { "oneOf": [{ "title": "t" }] } },
                    "ref": { "dependencies": { "title": ["t"], "description": { "title": "t" } } },
                },
                "$defs": { "title": { "contentSchema": { "markdownDescription": "t" } } },
            },
            "outputSchema": { "additionalProperties": { "title": "drop" } },
        });
        assert_eq!(
            marked(Kind::Tools, &tool),
            json!({
                "name": "t", "title": "t!", "description": "t!", "_meta": { "title": "t" },
                "annotations": { "readOnlyHint": true },
                "inputSchema": {
                    "type": "object", "$comment": "t!", "required": ["description"],
                    "properties": {
                        "description": { "description": "t!", "enum": ["title"], "default": "t" },
                        "title": { "const": { "title": "t" }, "title": 7 },
                        "list": { "items": [{ "title": "t!" }, true], "not": { "oneOf": [{ "title": "t!" }] } },
                        "ref": { "dependencies": { "title": ["t"], "description": { "title": "t!" } } },
                    },
                    "$defs": { "title": { "contentSchema": { "markdownDescription": "t!" } } },
                },
                "outputSchema": { "additionalProperties": {} },
            })
        );
    }

    #[test]
    fn each_kind_has_texts_of_its_own() {
        let element = json!({
            "name": "n", "uri": "a:b", "title": "t", "annotations": { "title": "t" },
            "arguments": [{ "name": "title", "title": "drop", "description": "t" }],
            "frontmatter": { "description": "t" },
        });
        let mut edited = element.clone();
        assert_eq!(marked(Kind::Skills, &element), edited);
        edited["title"] = json!("t!");
        assert_eq!(marked(Kind::Resources, &element), edited);
        assert_eq!(marked(Kind::Templates, &element), edited);
        edited["arguments"] = json!([{ "name": "title", "description": "t!" }]);
        assert_eq!(marked(Kind::Prompts, &element), edited);
    }

    #[test]
    fn unchanged_definitions_keep_their_bytes() {
        for raw in [
            "",
            "[]",
            "null",
            r#"{ "name" : "t", "description":"stays", "inputSchema":{"items":[ {}, 1 ]} }"#,
        ] {
            let edited = edit_texts(Kind::Tools, raw.as_bytes(), &Mark);
            assert!(matches!(edited, Cow::Borrowed(_)), "{raw}");
            assert_eq!(edited, raw.as_bytes());
        }
        let raw = r#"{"n": [1.0],"title":"drop","inputSchema":{"maximum": 1e400 ,"title":"a","title":"b"}}"#;
        let edited = r#"{"n":[1.0],"inputSchema":{"maximum":1e400,"title":"a!","title":"b!"}}"#;
        assert_eq!(edit_texts(Kind::Tools, raw.as_bytes(), &Mark), edited.as_bytes());
    }
}
