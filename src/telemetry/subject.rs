//! What a request is about, as logs and traces tell of it.

use std::borrow::Cow;

use crate::text::clip;

use super::CLIP;

/// What a request is about: at most one thing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallSubject<'a> {
    /// The method says it all.
    #[default]
    Nothing,
    /// A tool, by a name of its.
    Tool(&'a str),
    /// A prompt, by a name of its.
    Prompt(&'a str),
    /// A resource, by a URI of its.
    Resource(&'a str),
}

impl<'a> CallSubject<'a> {
    /// The tool's name; cut when long.
    pub fn tool(self) -> Option<&'a str> {
        if let Self::Tool(name) = self { Some(clip(name, CLIP)) } else { None }
    }

    /// The prompt's name; cut when long.
    pub fn prompt(self) -> Option<&'a str> {
        if let Self::Prompt(name) = self { Some(clip(name, CLIP)) } else { None }
    }

    /// The resource's URI without what may be secret in it: credentials, query
    /// and fragment; cut when long.
    pub fn resource_uri(self) -> Option<Cow<'a, str>> {
        let Self::Resource(uri) = self else { return None };
        let uri = clip(uri.split(['?', '#']).next().unwrap_or_default(), CLIP);
        // A public URI has the server's own within it: the last authority counts.
        let authority = uri.rfind("://").map_or(0, |at| at + 3);
        let (before, rest) = uri.split_at(authority);
        let end = rest.find('/').unwrap_or(rest.len());
        Some(match rest.get(..end).and_then(|authority| authority.rfind('@')) {
            Some(at) => format!("{before}{}", rest.get(at + 1..).unwrap_or_default()).into(),
            None => uri.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_told_without_its_secrets() {
        for (uri, told) in [
            ("file:///a.txt", "file:///a.txt"),
            ("mcp://s/db://me:hunter2@host/x@y?key=1#z", "mcp://s/db://host/x@y"),
            ("urn:a@b", "b"),
            ("s3://bucket", "s3://bucket"),
        ] {
            assert_eq!(CallSubject::Resource(uri).resource_uri().as_deref(), Some(told), "{uri}");
        }
        assert_eq!(CallSubject::Tool("x").resource_uri(), None);
    }
}
