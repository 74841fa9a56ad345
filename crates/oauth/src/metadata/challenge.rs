//! `WWW-Authenticate`: a server's description of the credentials that it requires (RFC 9110,
//! 11.6.1; RFC 6750, 3; RFC 9449, 7.1; RFC 9728, 5.1).

use http::{HeaderMap, header};

use super::scopes::ScopeSet;
use super::token_use::TokenUse;

/// Requirements of a server that has refused a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BearerChallenge {
    /// URL of its Protected Resource Metadata.
    pub(crate) resource_metadata: Option<String>,
    /// The scopes that the request needs.
    pub(crate) scope: ScopeSet,
    /// Error code for the credentials that were sent.
    pub(crate) error: Option<String>,
    /// Type of tokens that it requires.
    pub(crate) wants: TokenUse,
}

/// The scopes that a server and earlier logins have requested.
#[derive(Clone, Copy)]
pub(crate) struct RequestedScopes<'a> {
    pub(crate) challenge: &'a BearerChallenge,
    /// The scopes of the previous grant.
    pub(crate) asked: &'a ScopeSet,
}

impl BearerChallenge {
    /// Returns true if the token is valid, but lacks scopes.
    pub(crate) fn needs_scopes(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    /// Returns true if only the nonce of the proof is missing or old (RFC 9449, 9).
    pub fn needs_nonce(&self) -> bool {
        self.error.as_deref() == Some("use_dpop_nonce")
    }
}

/// Returns the first `Bearer` or `DPoP` challenge in a response's headers. Returns `None` if there
/// is none, or if it is malformed.
pub fn find_challenge(headers: &HeaderMap) -> Option<BearerChallenge> {
    let values = headers.get_all(header::WWW_AUTHENTICATE).iter();
    values.filter_map(|value| value.to_str().ok()).find_map(parse_challenge)
}

/// Returns the challenge in one header value, which may contain several.
fn parse_challenge(text: &str) -> Option<BearerChallenge> {
    let mut rest = text.get(..text.len().min(MAX_CHALLENGE_BYTES))?;
    let mut found: Option<BearerChallenge> = None;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return found;
        }
        let (name, after) = split_token(rest)?;
        let after_space = after.trim_start_matches([' ', '\t']);
        if let Some(value) = after_space.strip_prefix('=') {
            let (value, after) = read_value(value.trim_start_matches([' ', '\t']))?;
            if let Some(challenge) = &mut found {
                challenge.set(name, value);
            }
            rest = after;
            continue;
        }
        // The scheme of a further challenge, if one was found already.
        if found.is_some() {
            return found;
        }
        let wants = [TokenUse::Bearer, TokenUse::Dpop]
            .into_iter()
            .find(|wanted| name.eq_ignore_ascii_case(wanted.scheme()));
        found = wants.map(|wants| BearerChallenge { wants, ..BearerChallenge::default() });
        rest = after;
    }
}

impl BearerChallenge {
    fn set(&mut self, name: &str, value: String) {
        match name.to_ascii_lowercase().as_str() {
            "resource_metadata" if self.resource_metadata.is_none() => {
                self.resource_metadata = Some(value);
            }
            "scope" if self.scope.is_empty() => self.scope = ScopeSet::parse(&value),
            "error" if self.error.is_none() => self.error = Some(value),
            _ => {}
        }
    }
}

/// Splits off a token at the beginning of a text.
fn split_token(text: &str) -> Option<(&str, &str)> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~/".contains(c);
    let end = text.find(|c: char| !is_token(c)).unwrap_or(text.len());
    text.split_at_checked(end).filter(|(token, _)| !token.is_empty())
}

/// Splits off a token or a quoted string at the beginning of a text.
fn read_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        // Some servers leave out the quotes of URLs.
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return text.split_at_checked(end).map(|(value, rest)| (value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, quoted.get(at + 1..).unwrap_or_default())),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// Maximum number of bytes of a header value that are read.
const MAX_CHALLENGE_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<[String; 3]> {
        let headers = HeaderMap::from_iter([(header::WWW_AUTHENTICATE, text.parse().unwrap())]);
        find_challenge(&headers).map(|it| {
            let text = Option::unwrap_or_default;
            [text(it.resource_metadata), it.scope.to_string(), text(it.error)]
        })
    }

    #[test]
    fn a_challenge_says_whether_tokens_are_bound() {
        for (text, wants, needs_nonce) in [
            ("Bearer scope=\"a\"", TokenUse::Bearer, false),
            ("DPoP resource_metadata=\"https://a.test/m\"", TokenUse::Dpop, false),
            ("dpop error=\"use_dpop_nonce\", algs=\"ES256\"", TokenUse::Dpop, true),
            ("Basic realm=\"DPoP\", Bearer", TokenUse::Bearer, false),
            ("Bearer, DPoP algs=\"ES256\"", TokenUse::Bearer, false),
        ] {
            let headers = HeaderMap::from_iter([(header::WWW_AUTHENTICATE, text.parse().unwrap())]);
            let found = find_challenge(&headers).unwrap();
            assert_eq!((found.wants, found.needs_nonce()), (wants, needs_nonce), "{text}");
        }
    }

    #[test]
    fn the_bearer_challenge_is_found_among_others() {
        let full = [
            r#"Bearer realm="mcp", resource_metadata="https://a.test/m", scope="a b", error="x""#,
            r#"bearer  resource_metadata = "https://a.test/m" ,scope="a  b",error=x"#,
            r#"Basic realm="a, Bearer scope=\"z\"", Bearer resource_metadata=https://a.test/m, scope="a b", error="x""#,
            r#"Bearer scope="a b", error="x", resource_metadata="https://a.test/m", Digest scope="c", error="y""#,
        ];
        for text in full {
            let expected = ["https://a.test/m", "a b", "x"].map(str::to_owned);
            assert_eq!(read(text), Some(expected), "{text}");
        }
        for (text, found) in [
            ("Bearer", Some(["", "", ""])),
            ("Negotiate abc123==, Bearer scope=\"a\"", Some(["", "a", ""])),
            ("Basic realm=\"x\"", None),
            ("Bearer scope=\"unclosed", None),
            ("", None),
            ("Bearer scope=\"a\", scope=\"b\"", Some(["", "a", ""])),
            ("Bearer error=\"q\\\"q\"", Some(["", "", "q\"q"])),
        ] {
            assert_eq!(read(text), found.map(|it| it.map(str::to_owned)), "{text}");
        }
    }
}
