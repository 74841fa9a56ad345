//! The texts for an embedding model: a few sentences about each element, and queries.

use trunkline_core::text::{clip, split_sentence};

use super::question::{MAX_QUERY_BYTES, SearchQuery};
use crate::elements::element::ElementMembers;
use crate::elements::schema_text::visit_schema;
use crate::fields::Field;
use crate::words::split_words;

/// The text of an element for its vector, from the name of its server, which may be empty, and its
/// definition as clients list it, raw JSON: both names in words, its title, the start of its
/// description, and the names of its parameters. At most [`MAX_EMBEDDED_TEXT`] bytes; only the
/// server's name if the definition cannot be read.
///
/// Users name their subject, and descriptions seldom do.
pub fn embedded_text(server: &str, raw: &[u8]) -> String {
    let members: ElementMembers<'_> = serde_json::from_slice(raw).unwrap_or_default();
    let name = spell_name(members.name.as_deref().unwrap_or_default());
    let mut sentences = vec![with_server(&spell_name(server), name)];
    let title = members.title.as_deref().or(members.annotations.title.as_deref());
    sentences.push(title.unwrap_or_default().trim().to_owned());
    let description = members.description.as_deref().unwrap_or_default();
    let (summary, rest) = split_sentence(description);
    sentences.push(clip(summary.trim(), MAX_SUMMARY).to_owned());
    sentences.push(clip(rest.trim(), MAX_REST).to_owned());
    let mut parameters = Vec::new();
    for schema in [members.schema, members.arguments].into_iter().flatten() {
        visit_schema(schema.get(), &mut |field, text| {
            if field == Field::ParameterName && parameters.len() < MAX_PARAMETERS {
                parameters.push(spell_name(text));
            }
        });
    }
    sentences.push(parameters.join(", "));
    let sentences = sentences.iter().map(|sentence| sentence.trim_end_matches('.'));
    let text = sentences.filter(|one| !one.is_empty()).collect::<Vec<_>>().join(". ");
    clip(&text, MAX_EMBEDDED_TEXT).to_owned()
}

/// The text of a query for its vector: the query, and in brackets its English as far as that is
/// known. Many models read one language only, and others are not disturbed by it.
pub fn embedded_question(question: &str) -> String {
    let question = clip(question, MAX_QUERY_BYTES);
    match SearchQuery::parse(question).translate() {
        Some(english) => format!("{question} ({english})"),
        None => question.to_owned(),
    }
}

/// A name after that of its server, unless it contains that already.
fn with_server(server: &str, name: String) -> String {
    if format!(" {name} ").contains(&format!(" {server} ")) {
        return name;
    }
    format!("{server} {name}").trim().to_owned()
}

/// A name as the words that it consists of: `create_issue` and `createIssue` are "create issue".
fn spell_name(name: &str) -> String {
    let words = split_words(clip(name, MAX_NAME)).into_iter();
    let words =
        words.flat_map(|word| if word.parts.is_empty() { vec![word.text] } else { word.parts });
    words.collect::<Vec<_>>().join(" ")
}

/// The most bytes of an element's text.
pub const MAX_EMBEDDED_TEXT: usize = 2000;
const MAX_NAME: usize = 256;
const MAX_SUMMARY: usize = 400;
const MAX_REST: usize = 300;
const MAX_PARAMETERS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_describes_the_element() {
        let raw = r#"{"name":"tracker__createIssue","title":"New issue","description":"Opens an issue.\nIt is new.",
            "inputSchema":{"properties":{"repoName":{"type":"string","description":"x"},"labels":{}}}}"#;
        let expected =
            "tracker create issue. New issue. Opens an issue. It is new. repo name, labels";
        assert_eq!(embedded_text("", raw.as_bytes()), expected);
        assert_eq!(embedded_text("tracker", raw.as_bytes()), expected, "it is named already");
        assert_eq!(embedded_text("Google-Maps", br#"{"name":"ping"}"#), "google maps ping");
        assert_eq!(embedded_text("", br#"{"name":"ping"}"#), "ping");
        assert_eq!(embedded_text("", b"[]"), "");
    }

    #[test]
    fn a_question_is_followed_by_its_english() {
        let german = "Lösche die Datei in Trello!";
        assert_eq!(embedded_question(german), format!("{german} (delete file trello)"));
        assert_eq!(embedded_question("delete the file"), "delete the file");
        assert!(embedded_question(&"Besprechung ".repeat(10_000)).len() <= 2 * MAX_QUERY_BYTES);
    }

    #[test]
    fn a_text_without_end_is_bounded() {
        let endless = "word ".repeat(10_000);
        let properties: serde_json::Map<_, _> =
            (0..1000).map(|number| (format!("p{number}_{endless}"), 1.into())).collect();
        let tool = serde_json::json!({
            "name": endless, "title": endless, "description": format!("{endless}. {endless}"),
            "inputSchema": { "properties": properties },
        });
        assert!(embedded_text(&endless, tool.to_string().as_bytes()).len() <= MAX_EMBEDDED_TEXT);
    }
}
