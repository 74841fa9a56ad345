//! Paths to values in a result, and texts with such paths in them.

use serde_json::value::RawValue;

use trunkline_jsonrpc::Members;

use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::setting::TextSetting;

/// The location of a value in a result: the names of members, and the positions of items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValuePath(Vec<String>);

impl ValuePath {
    /// Parses a JSON pointer (RFC 6901) or a dotted path; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let steps: Vec<String> = if let Some(pointer) = text.strip_prefix('/') {
            pointer.split('/').map(unescape_step).collect::<Option<_>>()?
        } else {
            let inner = text.strip_prefix("structuredContent.").unwrap_or(text);
            inner.split('.').map(str::to_owned).collect()
        };
        let is_dotted = !text.starts_with('/');
        let is_empty = |step: &String| step.trim().is_empty() || step.contains(['{', '}']);
        (!is_dotted || !steps.iter().any(is_empty)).then_some(Self(steps))
    }

    /// The raw value that these steps lead to from a raw value.
    pub fn follow<'a, 'b>(
        mut steps: impl Iterator<Item = &'b str>,
        value: &'a str,
    ) -> Option<&'a str> {
        steps.try_fold(value, |value, step| {
            let found = match value.as_bytes().first()? {
                b'[' => {
                    let items: Vec<&RawValue> = serde_json::from_str(value).ok()?;
                    *items.get(step.parse::<usize>().ok()?)?
                }
                b'{' => Members::parse_with_duplicates(value.as_bytes()).ok()?.find(step)?,
                _ => return None,
            };
            Some(found.get())
        })
    }

    /// The steps of the path.
    #[inline]
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// A step of a JSON pointer without its escapes.
fn unescape_step(step: &str) -> Option<String> {
    let mut pieces = step.split('~');
    let mut plain = pieces.next()?.to_owned();
    for piece in pieces {
        let (character, rest) = match piece.split_at_checked(1)? {
            ("0", rest) => ('~', rest),
            ("1", rest) => ('/', rest),
            _ => return None,
        };
        plain.push(character);
        plain.push_str(rest);
    }
    Some(plain)
}

impl TextSetting for ValuePath {
    type Value = Self;
    const WORD: &'static str = "path of a value";
    const RULE: &'static str = "names with dots between them, or a JSON pointer";
    const EXAMPLE: &'static str = "\"summary.text\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        Ok(Self::parse(text))
    }
}

/// A text with values of a result in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageTemplate(Vec<TemplatePart>);

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// A text of the configuration.
    Text(String),
    /// The value at a path.
    Value(ValuePath),
}

impl MessageTemplate {
    /// Parses a template; `None` if a brace is alone, or has no path in it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let (mut plain, mut rest) = (String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            let brace = from.get(..1)?;
            if from.get(1..2) == Some(brace) {
                plain.push_str(brace);
                rest = from.get(2..)?;
                continue;
            }
            let (path, after) = from.strip_prefix('{')?.split_once('}')?;
            parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
            parts.push(TemplatePart::Value(ValuePath::parse(path.trim())?));
            rest = after;
        }
        plain.push_str(rest);
        parts.push(TemplatePart::Text(plain));
        Some(Self(parts))
    }

    /// The paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = &ValuePath> {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Value(path) => Some(path),
            TemplatePart::Text(_) => None,
        })
    }

    /// The parts, in order.
    #[inline]
    pub fn parts(&self) -> &[TemplatePart] {
        &self.0
    }
}

impl TextSetting for MessageTemplate {
    type Value = Self;
    const WORD: &'static str = "template";
    const RULE: &'static str = "a text with paths within { }";
    const EXAMPLE: &'static str = "\"{city}: {now.temperature} degrees\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        Ok(Self::parse(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_pointers_or_have_dots() {
        for (text, steps) in [
            ("summary", Some(&["summary"][..])),
            ("structuredContent.a.0.b", Some(&["a", "0", "b"])),
            ("/a~1b/~0/", Some(&["a/b", "~", ""])),
            ("a..b", None),
            ("", None),
            ("/a~2", None),
            ("a{b", None),
        ] {
            let path = ValuePath::parse(text);
            let found: Option<Vec<_>> = path.as_ref().map(|path| path.steps().collect());
            assert_eq!(found.as_deref(), steps, "{text}");
        }
    }

    #[test]
    fn braces_are_paths_unless_they_are_doubled() {
        for (text, parts) in [
            ("plain", Some(1)),
            ("{a}", Some(3)),
            ("x {a.b} {{y}} {/c}", Some(5)),
            ("{ a }", Some(3)),
            ("{ }", None),
            ("{", None),
            ("}", None),
            ("{}", None),
            ("{a", None),
            ("a}b", None),
        ] {
            let template = MessageTemplate::parse(text);
            assert_eq!(template.map(|template| template.parts().len()), parts, "{text}");
        }
    }
}
