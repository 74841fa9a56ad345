//! Templates that a rule denies or a hold concerns. They bar every URI that some official server
//! serves by them.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

use super::UriTemplate;

/// A template that bars URIs.
#[derive(Debug)]
pub(crate) struct BarredTemplate {
    template: UriTemplate,
    expression: Option<TemplateExpression>,
}

/// A template as the Python SDK 1.x reads it: its literal text is a regular expression.
#[derive(Debug)]
struct TemplateExpression {
    /// The text that every match begins with.
    prefix: String,
    pattern: String,
    /// Compiled for the first URI with the prefix; `None` if it is no regular expression.
    compiled: OnceLock<Option<Regex>>,
}

impl BarredTemplate {
    /// Parses a template.
    pub(crate) fn parse(text: &str) -> Self {
        let template = UriTemplate::parse(text);
        let expression = TemplateExpression::of(&template);
        Self { template, expression }
    }

    /// Returns true if some official server serves the URI by the template.
    pub(crate) fn covers(&self, uri: &str) -> bool {
        self.template.matches_widely(uri)
            || self.expression.as_ref().is_some_and(|expression| expression.matches(uri))
    }
}

impl TemplateExpression {
    /// Returns the expression of a template; `None` if its text means itself.
    fn of(template: &UriTemplate) -> Option<Self> {
        let pattern = template.replace_expressions("[^/]+");
        let literal = template.literal_prefix();
        let is_plain = !template.literals().any(|text| text.contains(REGEX_CHARACTERS));
        if is_plain {
            return None;
        }
        let prefix = if pattern.contains('|') {
            String::new()
        } else {
            // The character before a special one can be optional.
            let end = literal.find(REGEX_CHARACTERS).unwrap_or(literal.len());
            let mut prefix = literal.get(..end).unwrap_or_default().to_owned();
            prefix.pop();
            prefix
        };
        Some(Self { prefix, pattern, compiled: OnceLock::new() })
    }

    fn matches(&self, uri: &str) -> bool {
        if !uri.starts_with(&self.prefix) {
            return false;
        }
        // Earlier releases of the SDK anchored the beginning of the first alternative and the end of
        // the last one only.
        let compile =
            || RegexBuilder::new(&format!("^{}$", self.pattern)).size_limit(MAX_COMPILED).build();
        let compiled = self.compiled.get_or_init(|| compile().ok());
        compiled.as_ref().is_none_or(|compiled| compiled.is_match(uri))
    }
}

/// Characters with a special meaning in regular expressions.
const REGEX_CHARACTERS: [char; 13] =
    ['.', '^', '$', '*', '+', '?', '(', ')', '[', ']', '|', '\\', '{'];
/// The largest compiled expression, in bytes. Larger ones match every URI with their prefix.
const MAX_COMPILED: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barred_template_covers_all_that_official_servers_serve_by_it() {
        for (template, uri, covers) in [
            ("db://Prod/{id}", "db://Prod/7", true),
            ("db://Prod/{id}", "db://Prod/7/8", false),
            // The Python SDK 2.x takes empty values.
            ("db://Prod/{id}", "db://Prod/", true),
            ("db://Prod/{id}/x", "db://Prod//x", true),
            ("db://Prod/{+path}", "db://Prod/", true),
            // The Python SDK 1.x reads the text as a regular expression.
            ("https://a.example/{x}", "https://a-example/7", true),
            ("https://a.example/{x}", "https://example/7", false),
            ("x://h?n={v}", "x://n=7", true),
            ("x://h?n={v}", "x://m=7", false),
            ("x://c+/{v}", "x://ccc/7", true),
            ("x://(a|b)/{v}", "x://b/7", true),
            ("x://a|y://b/{v}", "y://b/7", true),
            // No regular expression.
            ("x://h(/{v}", "x://other", true),
            ("x://h(/{v}", "y://other", false),
        ] {
            assert_eq!(BarredTemplate::parse(template).covers(uri), covers, "{template} {uri}");
        }
    }
}
