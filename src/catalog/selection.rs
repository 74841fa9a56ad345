//! Which part of the catalog is shown: what a profile selects, and how a
//! client narrows it in its URL.
//!
//! A selection lists what it shows, by patterns for public names. One that
//! names tools, prompts or resources shows of these three only what it names,
//! so that nobody is shown resources for having listed tools; one that names
//! none of them shows all that its servers have.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use super::kind::Kind;
use crate::call::ServerName;
use crate::config::{Pattern, ProfileConfig};
use crate::text::clip;

/// What of the catalog is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The servers; all of them without it.
    servers: Patterns,
    tools: Patterns,
    prompts: Patterns,
    resources: Patterns,
}

/// What may stand there; anything where there are none.
type Patterns = Option<Vec<Pattern>>;

/// Selections, one within the other: what all of them show. Everything, where
/// there are none.
#[derive(Debug, Clone, Default)]
pub struct Scope(Vec<Selection>);

/// Why a query is no selection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionFault {
    /// The query is too long.
    #[error("the URL's query has {len} bytes, at most {max} are read", max = Selection::LONGEST)]
    TooLong {
        /// How long it is.
        len: usize,
    },
    /// A parameter that means nothing here.
    #[error("the URL's query has an unknown parameter {name:?}: {KNOWN}")]
    Unknown {
        /// Its name, cut to a readable length.
        name: String,
    },
    /// A parameter that stands there twice.
    #[error("the URL's query has `{name}` twice: separate its patterns by commas")]
    Twice {
        /// Its name.
        name: &'static str,
    },
    /// A pattern that is empty or too long, or not UTF-8.
    #[error(
        "the URL's query has {pattern:?} in `{name}`: a pattern has 1 to 128 characters, `*` is \
         any run of them and `?` any one"
    )]
    Pattern {
        /// The parameter.
        name: &'static str,
        /// The pattern, cut to a readable length.
        pattern: String,
    },
    /// More patterns than are looked at.
    #[error("the URL's query has more than {max} patterns", max = Selection::MOST)]
    TooMany,
}

impl Selection {
    /// The longest query that is read, in bytes.
    pub const LONGEST: usize = 2048;
    /// The most patterns of a query.
    pub const MOST: usize = 64;

    /// What a profile selects.
    pub fn from_profile(profile: &ProfileConfig) -> Self {
        Self {
            servers: profile.servers.clone(),
            tools: profile.tools.clone(),
            prompts: profile.prompts.clone(),
            resources: profile.resources.clone(),
        }
    }

    /// Reads the query of a URL: `servers=a,b&tools=x*&prompts=…&resources=…`.
    /// A parameter without a value shows nothing of its kind.
    ///
    /// # Errors
    /// What is wrong with it, for whoever wrote the URL.
    pub fn parse(query: &str) -> Result<Self, SelectionFault> {
        if query.len() > Self::LONGEST {
            return Err(SelectionFault::TooLong { len: query.len() });
        }
        let mut selection = Self::default();
        let mut count = 0;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let Some((name, place)) = selection.patterns_for(name) else {
                return Err(SelectionFault::Unknown { name: clip_pattern(name) });
            };
            if place.is_some() {
                return Err(SelectionFault::Twice { name });
            }
            let patterns = parse_patterns(name, value)?;
            count += patterns.len();
            *place = Some(patterns);
        }
        if count > Self::MOST { Err(SelectionFault::TooMany) } else { Ok(selection) }
    }

    /// Whether it leaves everything as it is.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a server's offers can be among it.
    pub fn admits_server(&self, server: &ServerName) -> bool {
        any_matches(self.servers.as_deref(), true, server.as_str())
    }

    /// Whether it shows one of that kind by that public name or URI.
    pub fn admits(&self, kind: Kind, public: &str) -> bool {
        any_matches(self.kind_patterns(kind), self.names_no_kind(), public)
    }

    /// The names of servers that are meant, not patterns that may match some.
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
            Kind::Resources | Kind::Templates => self.resources.as_deref(),
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
    /// What all of these show.
    pub fn new(selections: impl IntoIterator<Item = Selection>) -> Self {
        Self(selections.into_iter().filter(|one| !one.is_everything()).collect())
    }

    /// Whether it leaves everything as it is.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a server's offers can be among it.
    pub fn admits_server(&self, server: &ServerName) -> bool {
        self.0.iter().all(|one| one.admits_server(server))
    }

    /// Whether it shows a server's tool, prompt, resource or template by that
    /// public name or URI.
    pub fn admits(&self, server: &ServerName, kind: Kind, public: &str) -> bool {
        self.0.iter().all(|one| one.admits_server(server) && one.admits(kind, public))
    }

    /// Whether it may show any of a kind.
    pub fn may_show(&self, kind: Kind) -> bool {
        let some = |one: &Selection| {
            one.kind_patterns(kind).map_or(one.names_no_kind(), |all| !all.is_empty())
        };
        self.0.iter().all(some)
    }

    /// Whether a server may be asked for what is in no list, such as by a
    /// method that the gateway does not know: where only what is listed can be
    /// used, that cannot.
    pub fn admits_unlisted(&self, server: &ServerName) -> bool {
        self.admits_server(server) && self.0.iter().all(Selection::names_no_kind)
    }

    /// Whether a URI that is in no list may be read: each selection shows it,
    /// or a template that it comes of, by `of_template`, which is asked whether
    /// one of the server's templates covers it and is shown.
    pub fn admits_uri(
        &self,
        server: &ServerName,
        public: &str,
        mut of_template: impl FnMut(&Selection) -> bool,
    ) -> bool {
        self.0.iter().all(|one| {
            one.admits_server(server)
                && (one.names_no_kind()
                    || (one.admits(Kind::Resources, public) && !has_parent_segment(public))
                    || of_template(one))
        })
    }
}

/// Whether a URI leads up again, so that it may mean something else than what a
/// pattern sees in it.
fn has_parent_segment(uri: &str) -> bool {
    let plain = uri.to_ascii_lowercase();
    let plain = plain.replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    plain.split(['/', '\\', '?', '#']).any(|segment| matches!(segment, "." | ".."))
}

/// One text for each selection, which [`Selection::parse`] reads again: the
/// same for two queries that mean the same.
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
                // What is read back takes `+` for itself.
                let mut pieces = form_urlencoded::byte_serialize(text.as_bytes());
                pieces.try_for_each(|it| f.write_str(if it == "+" { "%20" } else { it }))?;
            }
        }
        Ok(())
    }
}

fn any_matches(patterns: Option<&[Pattern]>, otherwise: bool, name: &str) -> bool {
    patterns.map_or(otherwise, |patterns| patterns.iter().any(|pattern| pattern.matches(name)))
}

/// The patterns of a value, between commas. One in a pattern is `%2C`.
fn parse_patterns(name: &'static str, value: &str) -> Result<Vec<Pattern>, SelectionFault> {
    let texts = value.split(',').filter(|_| !value.is_empty());
    texts
        .map(|raw| {
            let text = decode_query(raw);
            Pattern::new(&text)
                .filter(|_| !text.contains('\u{fffd}'))
                .ok_or_else(|| SelectionFault::Pattern { name, pattern: clip_pattern(&text) })
        })
        .collect()
}

/// Percent-decoded text. A `+` stays a plus sign: URI templates have some.
fn decode_query(raw: &str) -> Cow<'_, str> {
    percent_decode_str(raw).decode_utf8_lossy()
}

fn clip_pattern(text: &str) -> String {
    clip(text, 64).to_owned()
}

const KNOWN: &str = "it can have servers, tools, prompts and resources";

#[cfg(test)]
mod tests;
