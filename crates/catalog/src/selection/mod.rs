//! The visible part of the catalog: as a profile selects it, and as a client narrows it in its URL.
//!
//! A selection consists of patterns for public names. If it names tools, prompts or resources, it
//! shows only the elements of these three that it names, so that a list of tools does not expose
//! resources; if it names none of them, it shows everything that its servers have.

pub(crate) mod visibility;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use trunkline_config::{Pattern, ProfileConfig};
use trunkline_core::text::clip;
use trunkline_protocol::call::{QueryFault, ServerName};

use crate::kind::Kind;
use crate::uri_forms::climbing::has_dot_segment;
use visibility::{CatalogElement, ElementFilter};

/// The visible part of the catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The servers; `None` for all.
    servers: Patterns,
    tools: Patterns,
    prompts: Patterns,
    resources: Patterns,
}

/// Patterns that admit a name; `None` admits any.
type Patterns = Option<Vec<Pattern>>;

/// Nested selections: their intersection, limited by the caller's rights. Empty admits everything.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    selections: Vec<Selection>,
    rights: Option<Arc<dyn ElementFilter>>,
}

impl Selection {
    /// The longest query that is read, in bytes.
    pub const MAX_BYTES: usize = 2048;
    /// The most patterns of a query.
    pub const MAX_PATTERNS: usize = 64;

    /// The selection of a profile.
    pub fn from_profile(profile: &ProfileConfig) -> Self {
        Self {
            servers: profile.servers.clone(),
            tools: profile.tools.clone(),
            prompts: profile.prompts.clone(),
            resources: profile.resources.clone(),
        }
    }

    /// Parses the query of a URL: `servers=a,b&tools=x*&prompts=…&resources=…`. A parameter without
    /// a value hides everything of its kind.
    ///
    /// # Errors
    /// The fault of the query, for the author of the URL.
    pub fn parse(query: &str) -> Result<Self, QueryFault> {
        if query.len() > Self::MAX_BYTES {
            return Err(QueryFault::TooLong { len: query.len(), limit: Self::MAX_BYTES });
        }
        let mut selection = Self::default();
        let mut count = 0;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let Some((name, place)) = selection.patterns_for(name) else {
                return Err(QueryFault::UnknownParameter { name: clip_pattern(name) });
            };
            if place.is_some() {
                return Err(QueryFault::Duplicate { name });
            }
            let patterns = parse_patterns(name, value)?;
            count += patterns.len();
            *place = Some(patterns);
        }
        if count > Self::MAX_PATTERNS {
            Err(QueryFault::TooManyPatterns { limit: Self::MAX_PATTERNS })
        } else {
            Ok(selection)
        }
    }

    /// Returns true if the selection shows everything.
    #[inline]
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the selection may show elements of this server.
    #[inline]
    pub fn admits_server(&self, server: &ServerName) -> bool {
        any_matches(self.servers.as_deref(), true, server.as_str())
    }

    fn is_about_server(&self, server: &ServerName) -> bool {
        let kinds = [&self.tools, &self.prompts, &self.resources];
        are_about_server(self.servers.as_deref(), kinds.map(|kind| kind.as_deref()), server)
    }

    /// Returns true if the selection shows an element of that kind by its public name or URI. A
    /// pattern for URIs admits only those without dot segments, which lead elsewhere than the
    /// pattern shows.
    #[inline]
    pub fn admits(&self, kind: Kind, public: &str) -> bool {
        let patterns = self.kind_patterns(kind);
        let is_uri = matches!(kind, Kind::Resources | Kind::Templates | Kind::Skills);
        any_matches(patterns, self.names_no_kind(), public)
            && !(is_uri && patterns.is_some() && has_dot_segment(public))
    }

    /// The servers that are named exactly, not by wildcard patterns.
    #[inline]
    pub fn named_servers(&self) -> impl Iterator<Item = &str> {
        let patterns = self.servers.iter().flatten().map(Pattern::as_str);
        patterns.filter(|pattern| !pattern.contains(['*', '?']))
    }

    fn names_no_kind(&self) -> bool {
        self.tools.is_none() && self.prompts.is_none() && self.resources.is_none()
    }

    fn kind_patterns(&self, kind: Kind) -> Option<&[Pattern]> {
        match kind {
            Kind::Tools => self.tools.as_deref(),
            Kind::Prompts => self.prompts.as_deref(),
            Kind::Resources | Kind::Templates | Kind::Skills => self.resources.as_deref(),
        }
    }

    fn patterns_for(&mut self, name: &str) -> Option<(&'static str, &mut Patterns)> {
        Some(match name {
            "servers" => ("servers", &mut self.servers),
            "tools" => ("tools", &mut self.tools),
            "prompts" => ("prompts", &mut self.prompts),
            "resources" => ("resources", &mut self.resources),
            _ => return None,
        })
    }
}

impl Scope {
    /// The intersection of these selections.
    pub fn new(selections: impl IntoIterator<Item = Selection>) -> Self {
        let selections = selections.into_iter().filter(|one| !one.is_everything()).collect();
        Self { selections, rights: None }
    }

    /// The same scope for a caller with these rights.
    #[must_use]
    pub fn with_rights(self, rights: Option<Arc<dyn ElementFilter>>) -> Self {
        Self { rights, ..self }
    }

    /// Returns true if rights of a caller limit the scope.
    pub(crate) fn has_rights(&self) -> bool {
        self.rights.is_some()
    }

    /// Returns true if the caller's rights show an element. They show no URI with dot segments,
    /// which may lead elsewhere than a rule shows.
    #[inline]
    pub fn shows(&self, element: &CatalogElement<'_>) -> bool {
        let Some(rights) = &self.rights else { return true };
        let is_uri = !matches!(element.kind, Kind::Tools | Kind::Prompts);
        !(is_uri && has_dot_segment(element.public)) && rights.shows(element)
    }

    /// Returns true if the caller's rights may deny resources of this server.
    pub(crate) fn guards_resources(&self, server: &ServerName) -> bool {
        self.rights.as_ref().is_some_and(|rights| rights.denies_resources(server))
    }

    /// Returns true if the scope shows everything.
    #[inline]
    pub fn is_everything(&self) -> bool {
        self.selections.is_empty() && self.rights.is_none()
    }

    /// Returns true if the scope may show elements of this server.
    #[inline]
    pub fn admits_server(&self, server: &ServerName) -> bool {
        self.selections.iter().all(|one| one.admits_server(server))
    }

    /// Returns true if the scope is about elements of this server, as far as is known before the
    /// server has listed any.
    #[inline]
    pub fn is_about_server(&self, server: &ServerName) -> bool {
        self.selections.iter().all(|one| one.is_about_server(server))
            && self.rights.as_ref().is_none_or(|rights| rights.may_hear_of(server))
    }

    /// Returns true if the scope shows a server's tool, prompt, resource or template by its public
    /// name or URI.
    #[inline]
    pub fn admits(&self, server: &ServerName, kind: Kind, public: &str) -> bool {
        self.selections.iter().all(|one| one.admits_server(server) && one.admits(kind, public))
    }

    /// Returns true if the scope shows a tool of the gateway itself, which no server has.
    #[inline]
    pub fn admits_own_tool(&self, public: &str) -> bool {
        let is_selected =
            |one: &Selection| one.servers.is_none() && one.admits(Kind::Tools, public);
        self.selections.iter().all(is_selected) && self.shows(&CatalogElement::own_tool(public))
    }

    /// Returns true if the scope may show any element of a kind.
    #[inline]
    pub fn may_show(&self, kind: Kind) -> bool {
        let some = |one: &Selection| {
            one.kind_patterns(kind).map_or(one.names_no_kind(), |all| !all.is_empty())
        };
        self.selections.iter().all(some)
    }

    /// Returns true if a server may receive requests for unlisted things, such as unknown methods.
    /// It may not if the selection names elements.
    #[inline]
    pub fn admits_unlisted(&self, server: &ServerName) -> bool {
        let rights = self.rights.as_ref();
        self.admits_server(server)
            && self.selections.iter().all(Selection::names_no_kind)
            && rights.is_none_or(|rights| rights.shows_unlisted(server))
    }

    /// Returns true if an unlisted URI may be read: each selection shows the URI, or a template
    /// that covers it. `of_template` returns true if one of the server's templates confines the URI
    /// and is shown.
    pub fn admits_uri(
        &self,
        server: &ServerName,
        public: &str,
        mut of_template: impl FnMut(&Selection) -> bool,
    ) -> bool {
        self.selections.iter().all(|one| {
            one.admits_server(server)
                && (one.names_no_kind() || one.admits(Kind::Resources, public) || of_template(one))
        })
    }
}

/// A canonical query that [`Selection::parse`] reads back: equal for two
/// queries with the same meaning.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("servers", &self.servers),
            ("tools", &self.tools),
            ("prompts", &self.prompts),
            ("resources", &self.resources),
        ];
        let mut first = true;
        for (name, patterns) in parts {
            let Some(patterns) = patterns else { continue };
            if !std::mem::take(&mut first) {
                f.write_str("&")?;
            }
            write!(f, "{name}=")?;
            let mut texts: Vec<_> = patterns.iter().map(Pattern::as_str).collect();
            texts.sort_unstable();
            texts.dedup();
            for (at, text) in texts.into_iter().enumerate() {
                f.write_str(if at > 0 { "," } else { "" })?;
                // The parser reads `+` literally.
                let mut pieces = form_urlencoded::byte_serialize(text.as_bytes());
                pieces.try_for_each(|it| f.write_str(if it == "+" { "%20" } else { it }))?;
            }
        }
        Ok(())
    }
}

/// Returns true if patterns for servers, and for tools, prompts and resources, are about elements
/// of a server, as far as is known before the server has listed any: they name the server, or all
/// elements, or public names that may begin with the server's.
pub fn are_about_server(
    servers: Option<&[Pattern]>,
    kinds: [Option<&[Pattern]>; 3],
    server: &ServerName,
) -> bool {
    if servers.is_some() || kinds.iter().all(Option::is_none) {
        return any_matches(servers, true, server.as_str());
    }
    let [tools, prompts, _] = kinds;
    tools.into_iter().chain(prompts).flatten().any(|name| may_name_element_of(name, server))
}

/// Returns true if a pattern may match public names that begin with a server's.
fn may_name_element_of(pattern: &Pattern, server: &ServerName) -> bool {
    let prefix = format!("{server}__");
    let literal = pattern.as_str().split(['*', '?']).next().unwrap_or_default();
    literal.starts_with(&prefix) || (prefix.starts_with(literal) && literal != pattern.as_str())
}

fn any_matches(patterns: Option<&[Pattern]>, otherwise: bool, name: &str) -> bool {
    patterns.map_or(otherwise, |patterns| patterns.iter().any(|pattern| pattern.matches(name)))
}

/// Parses comma-separated patterns. A comma within a pattern is written `%2C`.
fn parse_patterns(name: &'static str, value: &str) -> Result<Vec<Pattern>, QueryFault> {
    let texts = value.split(',').filter(|_| !value.is_empty());
    texts
        .map(|raw| {
            let text = decode_query(raw);
            Pattern::new(&text)
                .filter(|_| !text.contains('\u{fffd}'))
                .ok_or_else(|| QueryFault::Pattern { name, pattern: clip_pattern(&text) })
        })
        .collect()
}

/// Percent-decodes text. A `+` is kept as a plus sign: URI templates contain some.
fn decode_query(raw: &str) -> Cow<'_, str> {
    percent_decode_str(raw).decode_utf8_lossy()
}

fn clip_pattern(text: &str) -> String {
    clip(text, 64).to_owned()
}

#[cfg(test)]
mod tests;
