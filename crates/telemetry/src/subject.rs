//! The subject of a request, for logs and traces.

use std::borrow::Cow;

use trunkline_core::text::clip;

use super::MAX_CLIENT_TEXT_BYTES;

/// The subject of a request: at most one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallSubject<'a> {
    /// No subject besides the method.
    #[default]
    Nothing,
    /// A tool, by its name.
    Tool(&'a str),
    /// A prompt, by its name.
    Prompt(&'a str),
    /// A resource, by its URI.
    Resource(&'a str),
}

impl<'a> CallSubject<'a> {
    /// The tool's name; truncated when long.
    #[inline]
    pub fn tool(self) -> Option<&'a str> {
        if let Self::Tool(name) = self { Some(clip(name, MAX_CLIENT_TEXT_BYTES)) } else { None }
    }

    /// The prompt's name; truncated when long.
    #[inline]
    pub fn prompt(self) -> Option<&'a str> {
        if let Self::Prompt(name) = self { Some(clip(name, MAX_CLIENT_TEXT_BYTES)) } else { None }
    }

    /// The resource's URI without parts that may be secret: credentials, query and fragment;
    /// truncated when long.
    pub fn resource_uri(self) -> Option<Cow<'a, str>> {
        let Self::Resource(uri) = self else { return None };
        let uri = clip(uri.split(['?', '#']).next().unwrap_or_default(), MAX_CLIENT_TEXT_BYTES);
        // A public URI contains the server's own: the last authority counts.
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
    fn a_uri_is_recorded_without_its_secrets() {
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
