//! URI templates (RFC 6570), as far as the gateway needs them: matching URIs, and the remainder of
//! a template once some variables are bound.

use std::fmt::Write as _;

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTemplate(Vec<TemplatePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Literal(String),
    Expression {
        operator: Operator,
        variables: Vec<TemplateVariable>,
        /// True if a variable may be a list with values that have any separator.
        nested: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TemplateVariable {
    name: String,
    /// `*` or `:N`, as written.
    modifier: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Simple,
    Reserved,
    Fragment,
    Label,
    Path,
    Parameter,
    Query,
    Continuation,
}

/// The result of binding values to a template's variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundTemplate {
    /// The template has none of the variables.
    Untouched,
    /// Some variables are bound: a smaller template.
    Partly(String),
    /// All variables are bound: a URI.
    Whole(String),
}

impl UriTemplate {
    /// Parses a template. Text that is not an expression is literal.
    pub fn parse(text: &str) -> Self {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let Some((inside, behind)) = after.split_once('}') else { break };
            if !before.is_empty() {
                parts.push(TemplatePart::Literal(before.to_owned()));
            }
            parts.push(TemplatePart::expression(inside));
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Literal(rest.to_owned()));
        }
        Self(parts)
    }

    /// The literal text that every expansion begins with.
    pub fn literal_prefix(&self) -> &str {
        match self.0.first() {
            Some(TemplatePart::Literal(text)) => text,
            _ => "",
        }
    }

    /// Returns true if some URI could match both. Compares only the literal prefixes, so it may
    /// report an overlap that does not exist.
    pub fn may_overlap(&self, other: &Self) -> bool {
        let (one, two) = (self.literal_prefix(), other.literal_prefix());
        one.starts_with(two) || two.starts_with(one)
    }

    /// Returns true if the template matches `uri`. Takes time linear in the URI for each part, for
    /// any part.
    pub fn matches(&self, uri: &str) -> bool {
        self.run(uri, Operator::reach)
    }

    /// Returns true if the template matches `uri` as some server reads it. The official servers
    /// differ in the characters that a value may have, in the sign before it, and in the treatment
    /// of empty values.
    pub(crate) fn matches_widely(&self, uri: &str) -> bool {
        self.run(uri, Operator::reach_widely)
    }

    /// Follows the parts of the template through a URI. `reach` returns the positions after an
    /// expression.
    fn run(&self, uri: &str, reach: fn(Operator, &[bool], &[u8], bool) -> Vec<bool>) -> bool {
        let uri = uri.as_bytes();
        if !uri.starts_with(self.literal_prefix().as_bytes()) {
            return false;
        }
        // The positions that the parts so far can reach.
        let mut reached = vec![false; uri.len() + 1];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        for part in &self.0 {
            reached = match part {
                TemplatePart::Literal(text) => positions_after(&reached, uri, text.as_bytes()),
                TemplatePart::Expression { operator, nested, .. } => {
                    reach(*operator, &reached, uri, *nested)
                }
            };
        }
        reached.last() == Some(&true)
    }

    /// The literal parts.
    pub(crate) fn literals(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Literal(text) => Some(text.as_str()),
            TemplatePart::Expression { .. } => None,
        })
    }

    /// The template's text with another text for each expression.
    pub(crate) fn replace_expressions(&self, replacement: &str) -> String {
        let texts = self.0.iter().map(|part| match part {
            TemplatePart::Literal(text) => text.as_str(),
            TemplatePart::Expression { .. } => replacement,
        });
        texts.collect()
    }

    /// The number of expressions.
    pub fn count_expressions(&self) -> usize {
        self.0.iter().filter(|part| matches!(part, TemplatePart::Expression { .. })).count()
    }

    /// The names of the template's variables.
    pub fn variable_names(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .flat_map(|part| match part {
                TemplatePart::Literal(_) => &[][..],
                TemplatePart::Expression { variables, .. } => variables,
            })
            .map(|variable| variable.name.as_str())
    }

    /// Fills in the variables that have a value.
    pub fn bind_variables<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> BoundTemplate {
        let (mut out, mut bound, mut free) = (String::new(), false, false);
        for part in &self.0 {
            match part {
                TemplatePart::Literal(text) => out.push_str(text),
                TemplatePart::Expression { operator, variables, .. } => {
                    let known = |variable: &&TemplateVariable| value(&variable.name).is_some();
                    let (given, left): (Vec<_>, Vec<_>) = variables.iter().partition(known);
                    bound |= !given.is_empty();
                    free |= !left.is_empty();
                    operator.expand(&given, &value, &mut out);
                    operator.leave(&left, !given.is_empty(), &mut out);
                }
            }
        }
        match (bound, free) {
            (false, _) => BoundTemplate::Untouched,
            (true, true) => BoundTemplate::Partly(out),
            (true, false) => BoundTemplate::Whole(out),
        }
    }
}

impl TemplatePart {
    fn expression(inside: &str) -> Self {
        let (operator, names) = Operator::read(inside);
        let variables = names.split(',').map(|written| {
            let end = written.find([':', '*']).unwrap_or(written.len());
            let (name, modifier) = written.split_at(end);
            TemplateVariable { name: name.to_owned(), modifier: modifier.to_owned() }
        });
        let variables: Vec<TemplateVariable> = variables.collect();
        let nested = variables.iter().any(|variable| variable.modifier == "*");
        Self::Expression { operator, variables, nested }
    }
}

impl Operator {
    fn read(inside: &str) -> (Self, &str) {
        let operator = match inside.as_bytes().first() {
            Some(b'+') => Self::Reserved,
            Some(b'#') => Self::Fragment,
            Some(b'.') => Self::Label,
            Some(b'/') => Self::Path,
            Some(b';') => Self::Parameter,
            Some(b'?') => Self::Query,
            Some(b'&') => Self::Continuation,
            _ => return (Self::Simple, inside),
        };
        (operator, inside.get(1..).unwrap_or_default())
    }

    /// The text before the first value, and between two (RFC 6570, "Expression Expansion").
    fn signs(self) -> (&'static str, &'static str) {
        match self {
            Self::Simple | Self::Reserved => ("", ","),
            Self::Fragment => ("#", ","),
            Self::Label => (".", "."),
            Self::Path => ("/", "/"),
            Self::Parameter => (";", ";"),
            Self::Query => ("?", "&"),
            Self::Continuation => ("&", "&"),
        }
    }

    /// The operator's sign in a template.
    fn sign(self) -> &'static str {
        match self {
            Self::Simple => "",
            Self::Reserved => "+",
            other => other.signs().0,
        }
    }

    fn named(self) -> bool {
        matches!(self, Self::Parameter | Self::Query | Self::Continuation)
    }

    fn expand<'a>(
        self,
        given: &[&TemplateVariable],
        value: &impl Fn(&str) -> Option<&'a str>,
        out: &mut String,
    ) {
        let (first, between) = self.signs();
        for (place, variable) in given.iter().enumerate() {
            out.push_str(if place == 0 { first } else { between });
            if self.named() {
                let _ = write!(out, "{}=", variable.name);
            }
            let value = value(&variable.name).unwrap_or_default();
            // RFC 6570, 2.4.1: a prefix has a length of 1 to 9999; any other is ignored.
            let most = variable.modifier.strip_prefix(':').and_then(|most| most.parse().ok());
            let most = most.filter(|most| (1..=9999).contains(most));
            self.encode(value.chars().take(most.unwrap_or(usize::MAX)), out);
        }
    }

    /// Writes the remainder of the expression after the values that were filled in.
    fn leave(self, left: &[&TemplateVariable], behind_values: bool, out: &mut String) {
        if left.is_empty() {
            return;
        }
        let sign = match self {
            Self::Query if behind_values => "&",
            Self::Fragment if behind_values => "+",
            other => other.sign(),
        };
        if behind_values && matches!(self, Self::Simple | Self::Reserved | Self::Fragment) {
            out.push(',');
        }
        let names = left.iter().map(|variable| format!("{}{}", variable.name, variable.modifier));
        let _ = write!(out, "{{{sign}{}}}", names.collect::<Vec<_>>().join(","));
    }

    fn encode(self, value: impl Iterator<Item = char>, out: &mut String) {
        let reserved = matches!(self, Self::Reserved | Self::Fragment);
        let mut buffer = [0; 4];
        for character in value {
            let plain = character.is_ascii_alphanumeric()
                || "-._~".contains(character)
                || (reserved && ":/?#[]@!$&'()*+,;=%".contains(character));
            if plain {
                out.push(character);
            } else {
                for byte in character.encode_utf8(&mut buffer).bytes() {
                    let _ = write!(out, "%{byte:02X}");
                }
            }
        }
    }

    /// The positions that can be reached after the expression. Servers interpret templates more
    /// widely than the RFC does, and so does this.
    fn reach(self, from: &[bool], uri: &[u8], nested: bool) -> Vec<bool> {
        let inside = |byte: u8| match self {
            Self::Reserved | Self::Fragment => true,
            Self::Simple => nested || !matches!(byte, b'/' | b'?' | b'#'),
            Self::Path => nested || !matches!(byte, b'?' | b'#'),
            Self::Label | Self::Parameter => !matches!(byte, b'/' | b'?' | b'#'),
            Self::Query | Self::Continuation => byte != b'#',
        };
        let sign = self.signs().0.as_bytes().first().copied();
        // An operator with a sign may expand to nothing.
        let mut reached = if sign.is_some() { from.to_vec() } else { vec![false; from.len()] };
        let mut running = false;
        for (place, byte) in uri.iter().enumerate() {
            let begins = from.get(place) == Some(&true) && sign.is_none_or(|sign| sign == *byte);
            running = (begins && (sign.is_some() || inside(*byte))) || (running && inside(*byte));
            if let Some(next) = reached.get_mut(place + 1) {
                *next |= running;
            }
        }
        reached
    }

    /// The positions that can be reached after the expression at any server.
    fn reach_widely(self, from: &[bool], uri: &[u8], nested: bool) -> Vec<bool> {
        let is_segment = matches!(self, Self::Simple | Self::Label | Self::Parameter) && !nested;
        let mut reached = from.to_vec();
        let mut running = false;
        for (place, byte) in uri.iter().enumerate() {
            let inside = !is_segment || *byte != b'/';
            running = inside && (running || from.get(place) == Some(&true));
            if let Some(next) = reached.get_mut(place + 1) {
                *next |= running;
            }
        }
        reached
    }
}

/// The positions after `text` where it begins at a position of `from`. Linear (Knuth, Morris and
/// Pratt): comparing the text at each position would take the product of the two lengths.
fn positions_after(from: &[bool], uri: &[u8], text: &[u8]) -> Vec<bool> {
    let borders = border_lengths(text);
    let mut reached = vec![false; from.len()];
    let mut matched = 0;
    for (end, byte) in (1..).zip(uri) {
        matched = extend_match(text, &borders, matched, *byte);
        if matched == text.len()
            && let Some(next) = reached.get_mut(end)
        {
            *next = from.get(end - matched) == Some(&true);
        }
    }
    reached
}

/// For each beginning of `text`, the length of its longest proper beginning that is also its end.
fn border_lengths(text: &[u8]) -> Vec<usize> {
    let mut borders = vec![0];
    let mut matched = 0;
    for byte in text.iter().skip(1) {
        matched = extend_match(text, &borders, matched, *byte);
        borders.push(matched);
    }
    borders
}

/// The length of the beginning of `text` that ends with `byte`, if `matched` bytes of it came
/// before.
fn extend_match(text: &[u8], borders: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && text.get(matched) != Some(&byte) {
        matched = borders.get(matched - 1).copied().unwrap_or_default();
    }
    matched + usize::from(text.get(matched) == Some(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_matches_its_expansions() {
        for (template, uri, matches) in [
            ("file:///{path}", "file:///a.txt", true),
            ("file:///{path}", "file:///a/b", false),
            ("file:///{path}", "file:///", false),
            ("file:///{+path}", "file:///a/b?c#d", true),
            ("db://{table}/{id}", "db://users/7", true),
            ("db://{table}/{id}", "db://users", false),
            ("db://{table}/row{/id}", "db://users/row", true),
            ("db://{table}/row{/id}", "db://users/row/7", true),
            ("db://{table}{?limit,offset}", "db://users?limit=1", true),
            ("db://{table}{?limit,offset}", "db://users", true),
            ("a://{x}-{y}/z", "a://1-2-3/z", true),
            ("a://{x}-{y}/z", "a://1-2-3/z/", false),
            ("a://b", "a://b", true),
            ("a://b{", "a://b{", true),
            ("{+any}", "what:ever", true),
            ("a://é{x}", "a://éü", true),
            ("{x}aab{y}", "aaaabaab", true),
            ("{x}aab{y}", "aaaabb", true),
            ("{x}aab{y}", "aaaab", false),
            ("{x}abab{y}", "xababab", true),
            ("{x}abab", "ababab", true),
            ("{x}abab{y}bab", "xababab", false),
        ] {
            assert_eq!(UriTemplate::parse(template).matches(uri), matches, "{template} {uri}");
        }
    }

    #[test]
    fn literal_text_is_found_wherever_it_begins() {
        for (text, uri) in [("aa", "aaaa"), ("abab", "abababxabab"), ("a", ""), ("ab", "ba")] {
            for skipped in 0..=uri.len() {
                let from: Vec<_> = (0..=uri.len()).map(|place| place != skipped).collect();
                let naive = (0..=uri.len()).map(|end| {
                    let start = end.checked_sub(text.len());
                    start.is_some_and(|start| from[start] && uri[start..end] == *text)
                });
                let found = positions_after(&from, uri.as_bytes(), text.as_bytes());
                assert!(naive.eq(found), "{text} {uri} {skipped}");
            }
        }
    }

    #[test]
    fn bound_variables_leave_a_smaller_template_or_a_uri() {
        let values = [("a", "1/2"), ("b", "x y")];
        let value =
            |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let whole = |text: &str| BoundTemplate::Whole(text.into());
        let partly = |text: &str| BoundTemplate::Partly(text.into());
        for (template, bound) in [
            ("s://{x}", BoundTemplate::Untouched),
            ("s://{a}", whole("s://1%2F2")),
            ("s://{+a}", whole("s://1/2")),
            ("s://{a:1}/{b}", whole("s://1/x%20y")),
            ("s://{a}/{x}", partly("s://1%2F2/{x}")),
            ("s://{a,x*}", partly("s://1%2F2,{x*}")),
            ("s://h{?a,b}", whole("s://h?a=1%2F2&b=x%20y")),
            ("s://h{?x,a,y}", partly("s://h?a=1%2F2{&x,y}")),
            ("s://h{&a,x}", partly("s://h&a=1%2F2{&x}")),
            ("s://h{/b,x}", partly("s://h/x%20y{/x}")),
            ("s://h{#a,x}", partly("s://h#1/2,{+x}")),
            ("s://h{;b}{.b}", whole("s://h;b=x%20y.x%20y")),
        ] {
            assert_eq!(UriTemplate::parse(template).bind_variables(value), bound, "{template}");
        }
    }

    #[test]
    fn templates_overlap_where_one_begins_as_the_other() {
        let overlap =
            |one: &str, two: &str| UriTemplate::parse(one).may_overlap(&UriTemplate::parse(two));
        assert!(overlap("file:///{a}", "file:///x/{+b}"));
        assert!(overlap("{+any}", "file:///x"));
        assert!(!overlap("file:///a/{a}", "file:///b/{a}"));
    }
}
