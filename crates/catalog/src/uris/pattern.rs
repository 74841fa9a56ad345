//! Patterns of rules for resources, and the public URIs that they are compared with.

use trunkline_config::Pattern;

use super::{PUBLIC_URI_PREFIX, UI_PREFIX, prefix_uri};
use crate::kind::Kind;
use crate::selection::visibility::CatalogElement;
use crate::uri_forms::normal_form::{UriSpellings, authority_end, normal_form_around};

/// A pattern for URIs, as written and in normal form.
#[derive(Debug, Clone)]
pub struct UriPattern {
    written: Pattern,
    /// Without percent-encoding, except for the wildcards; `None` if it is the same.
    normal: Option<Pattern>,
    /// Set if the normal form was cut, and therefore matches too much.
    is_cut: bool,
}

impl UriPattern {
    /// The pattern with its normal form.
    pub fn new(written: &Pattern) -> Self {
        let text = written.as_str();
        let (prefix, native) = split_public(text);
        let normal = normal_form_around(native, |rest| {
            let (before, after) = rest.split_at_checked(rest.find(['*', '?'])?)?;
            Some((before, after.get(..1)?, after.get(1..)?))
        });
        let normal = prefix.to_owned() + &decode_literals(normal.as_deref().unwrap_or(native));
        let short: String = normal.chars().take(Pattern::MAX_LEN - 1).collect();
        let is_cut = normal.chars().count() > Pattern::MAX_LEN;
        let normal = if is_cut { short + "*" } else { normal };
        let normal = Pattern::new(&normal).filter(|_| normal != text);
        Self { written: written.clone(), normal, is_cut }
    }

    /// Returns true if the pattern can match URIs of the server with this name: it names no other.
    pub fn may_match_server(&self, server: &str) -> bool {
        let text = self.written.as_str();
        let Some(rest) = text.strip_prefix(PUBLIC_URI_PREFIX) else { return true };
        let name = rest.split_once('/').map_or(rest, |(name, _)| name);
        name.contains(['*', '?']) || !rest.contains('/') || name.eq_ignore_ascii_case(server)
    }

    fn denies(&self, public: &str, folded: usize) -> bool {
        let mut forms = std::iter::once(&self.written).chain(&self.normal);
        forms.any(|one| one.matches_folding(public, folded))
    }

    fn allows(&self, public: &str) -> bool {
        let normal = self.normal.as_ref().filter(|_| !self.is_cut);
        self.written.matches(public) || normal.is_some_and(|normal| normal.matches(public))
    }
}

/// The spellings of an element with a URI: those of its native URI, after each prefix that its
/// public URI can have.
#[derive(Debug)]
pub struct ElementSpellings<'a> {
    spellings: UriSpellings,
    /// The prefix of its public URI.
    prefix: &'a str,
    /// The prefix that its public URI has, or would have in another catalog.
    own_prefix: String,
}

impl<'a> ElementSpellings<'a> {
    /// The spellings of an element; `None` if it has a name instead of a URI.
    pub fn of(element: &CatalogElement<'a>) -> Option<Self> {
        let spellings = match element.kind {
            Kind::Tools | Kind::Prompts => return None,
            Kind::Templates => UriSpellings::of_template(element.native),
            Kind::Resources | Kind::Skills => UriSpellings::of(element.native),
        };
        let prefix = element.public.strip_suffix(element.native).unwrap_or_default();
        let own_prefix = element.server.map(|server| {
            let public = prefix_uri(server, element.native);
            public.strip_suffix(element.native).unwrap_or_default().to_owned()
        });
        Some(Self { spellings, prefix, own_prefix: own_prefix.unwrap_or_default() })
    }

    /// Returns true if one of the patterns names the element in any form, under any prefix.
    pub fn is_denied_by(&self, patterns: &[UriPattern]) -> bool {
        let mut prefixes = vec![self.prefix, "", &self.own_prefix];
        prefixes.sort_unstable();
        prefixes.dedup();
        self.spellings.for_denial().any(|native| {
            prefixes.iter().any(|prefix| {
                let public = format!("{prefix}{native}");
                let folded = prefix.len() + authority_end(native);
                patterns.iter().any(|pattern| pattern.denies(&public, folded))
            })
        })
    }

    /// Returns true if the patterns name the element's public URI in all forms: as written and decoded by
    /// the text of a pattern, in any other form by its normal form as well.
    pub fn is_allowed_by(&self, patterns: &[UriPattern]) -> bool {
        let public = |native: &str| format!("{}{native}", self.prefix);
        let is_written = |form: &str| {
            let public = public(form);
            patterns.iter().any(|pattern| pattern.written.matches(&public))
        };
        let mut forms = self.spellings.for_permission();
        forms.next().is_some_and(is_written)
            && is_written(&self.spellings.decoded_once())
            && forms.all(|form| {
                let public = public(form);
                patterns.iter().any(|pattern| pattern.allows(&public))
            })
    }

    /// The prefix of the public URI.
    #[inline]
    pub fn prefix(&self) -> &'a str {
        self.prefix
    }

    /// The spellings of the native URI.
    #[inline]
    pub fn native(&self) -> &UriSpellings {
        &self.spellings
    }
}

/// Splits a public URI, or the pattern of one, after the prefix with the server's name.
pub fn split_public(text: &str) -> (&str, &str) {
    let is_prefixed = |prefix: &&str| {
        text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let prefix = [UI_PREFIX, PUBLIC_URI_PREFIX].into_iter().find(is_prefixed).map_or(0, str::len);
    let name = text.get(prefix..).filter(|_| prefix > 0).and_then(|rest| rest.find('/'));
    name.and_then(|name| text.split_at_checked(prefix + name + 1)).unwrap_or(("", text))
}

/// Decodes percent-encoding, except where that would add a wildcard.
fn decode_literals(pattern: &str) -> String {
    let kept = pattern.replace("%2A", "%252A").replace("%2a", "%252A");
    let kept = kept.replace("%3F", "%253F").replace("%3f", "%253F");
    percent_encoding::percent_decode_str(&kept).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use trunkline_protocol::call::ServerName;

    use super::*;
    use crate::selection::visibility::ElementBasis;

    fn is_denied(pattern: &str, public: &str, native: &str) -> bool {
        let server = ServerName::new("t").unwrap();
        let (kind, server, tool) = (Kind::Resources, Some(&server), None);
        let basis = ElementBasis::Itself;
        let element = CatalogElement { kind, server, public, native, tool, basis };
        let patterns = [UriPattern::new(&Pattern::new(pattern).unwrap())];
        ElementSpellings::of(&element).unwrap().is_denied_by(&patterns)
    }

    #[test]
    fn a_denial_names_an_element_in_every_spelling_and_under_every_prefix() {
        for (pattern, native) in [
            ("mcp://t/file:///secret.txt", "FILE:///secret.txt"),
            ("mcp://t/FILE://localhost/secret*", "file:///secret.txt"),
            ("mcp://t/file:///secret.txt", "file:///%73ecret.txt#x"),
            ("mcp://t/file:/a b?.txt", "file:///a%20bc.txt"),
            ("mcp://t/https://EXAMPLE.com:443/*", "https://example.com/a"),
            ("*://example.COM/secret", "https://example.com/secret"),
            ("mcp://t/db://Prod/*", "db://prod/7"),
            ("mcp://t/x:a%2Ab", "x:a%2ab"),
            ("file:///secret.txt", "file:///secret.txt"),
            ("mcp://T/file:///\u{e9}*", "file:///%C3%A9x"),
            // As servers read it that parse it and decode nothing.
            ("mcp://t/docs://h/%7?/x", " docs://h/%7e/x"),
        ] {
            for public in [format!("mcp://t/{native}"), native.to_owned()] {
                assert!(is_denied(pattern, &public, native), "{pattern} {public}");
            }
        }
        for (pattern, native) in [
            ("mcp://t/file:///secret.txt", "file:///Secret.txt"),
            ("mcp://t/db://prod/a", "db://prod/A"),
            ("mcp://other/file:///secret.txt", "file:///secret.txt"),
        ] {
            assert!(
                !is_denied(pattern, &format!("mcp://t/{native}"), native),
                "{pattern} {native}"
            );
        }
    }

    #[test]
    fn a_pattern_with_a_too_long_normal_form_denies_more_and_allows_no_more() {
        let text = format!("mcp://t/file:/{}", "a".repeat(Pattern::MAX_LEN - 14));
        let pattern = UriPattern::new(&Pattern::new(&text).unwrap());
        let public = text.replace("file:/", "file:///");
        assert!(pattern.denies(&public, 0) && !pattern.allows(&public));
    }

    #[test]
    fn a_pattern_with_another_servers_name_matches_nothing_of_this_one() {
        for (pattern, may) in [
            ("mcp://t/x", true),
            ("mcp://T/x", true),
            ("mcp://u/x", false),
            ("mcp://*/x", true),
            ("mcp://t*", true),
            ("file:///x", true),
        ] {
            let pattern = UriPattern::new(&Pattern::new(pattern).unwrap());
            assert_eq!(pattern.may_match_server("t"), may, "{pattern:?}");
        }
    }
}
