//! Values for a tool's templates: the client's arguments, and results of other calls.

use serde_json::value::RawValue;

use crate::call::{ResultBody, ResultType};
use crate::config::{
    MessageTemplate, OwnCallConfig, ROOT_ARGUMENTS, TemplatePart, ValuePath, ValueTemplate,
};
use crate::jsonrpc::{Members, object_of, string};
use crate::policy::{text_of, value_text};

/// Raw values that are known so far.
pub(super) struct KnownValues<'a> {
    pub(super) arguments: &'a str,
    pub(super) calls: &'a [OwnCallConfig],
    /// By index of the call; `None` for calls that are pending or have failed.
    pub(super) results: &'a [Option<String>],
}

impl KnownValues<'_> {
    fn find(&self, path: &ValuePath) -> Option<&str> {
        let mut steps = path.steps();
        let first = steps.next()?;
        let root = if first == ROOT_ARGUMENTS {
            self.arguments
        } else {
            let place = self.calls.iter().position(|call| call.name.as_str() == first)?;
            self.results.get(place)?.as_deref()?
        };
        ValuePath::follow(steps, root)
    }

    /// Fills a text with the values of its paths. A missing value is empty.
    pub(super) fn fill_text(&self, template: &MessageTemplate) -> String {
        let parts = template.parts().iter().map(|part| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Value(path) => self.find(path).and_then(value_text).unwrap_or_default(),
        });
        parts.collect()
    }

    /// Returns the raw value of a template; `None` if it has none.
    pub(super) fn fill_value(&self, template: &ValueTemplate) -> Option<String> {
        Some(match template {
            ValueTemplate::Fixed(raw) => raw.to_string(),
            ValueTemplate::Value(path) => self.find(path)?.to_owned(),
            ValueTemplate::Text(template) => string(&self.fill_text(template)),
            ValueTemplate::Array(items) => {
                let null = || "null".to_owned();
                let items = items.iter().map(|item| self.fill_value(item).unwrap_or_else(null));
                format!("[{}]", items.collect::<Vec<_>>().join(","))
            }
            ValueTemplate::Object(members) => {
                let members = members
                    .iter()
                    .filter_map(|(name, value)| Some((&**name, self.fill_value(value)?.into())));
                String::from_utf8(object_of(members)).ok()?
            }
        })
    }

    /// Returns all results as an object by the names of their calls.
    pub(super) fn all_results(&self) -> String {
        let results = self.calls.iter().zip(self.results);
        let members = results
            .map(|(call, result)| (call.name.as_str(), result.as_deref().unwrap_or("null").into()));
        String::from_utf8(object_of(members)).unwrap_or_default()
    }
}

/// Returns the raw value of a result: its structured content, or its text, which may be JSON. An
/// error result becomes an error text.
pub(crate) fn value_of(result: &ResultBody) -> Result<String, String> {
    if *result.kind() != ResultType::Complete {
        return Err("it requests input, or became a task, which is not supported here".to_owned());
    }
    let members = Members::parse(result.raw()).map_err(|error| error.to_string())?;
    let content = members.find("content").map_or("[]", RawValue::get);
    let items: Vec<&RawValue> = serde_json::from_str(content).unwrap_or_default();
    let texts: Vec<String> = items.into_iter().filter_map(text_of).collect();
    if result.is_error() {
        return Err(texts.join("\n"));
    }
    let structured = members.find("structuredContent").map(RawValue::get);
    if let Some(structured) = structured.filter(|raw| *raw != "null") {
        return Ok(structured.to_owned());
    }
    let is_json = |text: &str| {
        text.starts_with(['{', '[']) && serde_json::from_str::<&RawValue>(text).is_ok()
    };
    Ok(match &texts[..] {
        [alone] if is_json(alone.trim()) => alone.trim().to_owned(),
        all => string(&all.join("\n")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{Config, ConfigSource, SystemEnvironment};

    #[test]
    fn arguments_are_made_of_values_of_any_kind() {
        let text = r#"
            [tools.t.calls.one]
            tool = "a"
            [tools.t.calls.two]
            tool = "b"
            arguments = { n = "{one.n}", t = "{one.n}/{arguments.x}", none = "{one.z}", l = ["{one.z}", true] }
        "#;
        let source =
            ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes: text.into() };
        let config = Config::read(&source, &SystemEnvironment).unwrap();
        let calls = &config.tools[0].calls;
        let results = [Some(r#"{"n":12345678901234567890}"#.to_owned()), None];
        let known = KnownValues { arguments: r#"{"x":"é\""}"#, calls, results: &results };
        let made = known.fill_value(&calls[1].arguments).unwrap();
        assert_eq!(
            made,
            r#"{"n":12345678901234567890,"t":"12345678901234567890/é\"","l":[null,true]}"#
        );
        assert_eq!(known.all_results(), r#"{"one":{"n":12345678901234567890},"two":null}"#);
    }

    #[test]
    fn the_value_of_a_result_is_its_structure_or_its_text() {
        let text = |text: &str| json!([{ "type": "text", "text": text }]);
        for (result, expected) in [
            (json!({ "content": text("x"), "structuredContent": { "a": 1 } }), Ok(r#"{"a":1}"#)),
            (json!({ "content": text(" [1] ") }), Ok("[1]")),
            (json!({ "content": text("plain \"") }), Ok(r#""plain \"""#)),
            (json!({ "content": [] }), Ok("\"\"")),
            (json!({ "content": text("no"), "isError": true }), Err("no")),
            (json!({ "resultType": "task", "taskId": "1" }), Err("it requests")),
        ] {
            let body = ResultBody::parse(result.to_string().into()).unwrap();
            match (value_of(&body), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{found}"),
                (found, expected) => panic!("{found:?} {expected:?}"),
            }
        }
    }
}
