//! Parameters of an OAuth request (RFC 6749, 3.1 and 3.2), read in one way only.
//!
//! Programs differ in how they read a query or a form: which of two equal names counts, whether `;`
//! separates, whether `Grant_Type`, `grant.type` and `grant_type` are one name. A request is
//! therefore refused if it has a name twice in any of these readings, and is written anew from the
//! checked pairs.

use percent_encoding::percent_decode_str;
use url::Url;
use url::form_urlencoded::Serializer;

/// Parameters of a query or a form.
// No `Debug`, because it may contain a code or a secret.
pub(crate) struct OauthParameters(Vec<(String, String)>);

/// A query or a form that could be understood in more than one way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterFault {
    /// A parameter occurs more than once.
    #[error("the parameter `{name}` occurs more than once: send it once")]
    Duplicate {
        /// The parameter.
        name: String,
    },
    /// Some programs would mistake a parameter for another one.
    #[error("wrong spelling of the parameter `{name}`: expected `{expected}`")]
    Spelling {
        /// Its name in the request.
        name: String,
        /// The name that OAuth defines.
        expected: String,
    },
    /// No parameter may have this name (RFC 6749, 8.2).
    #[error("the name of a parameter has characters other than letters, digits, `-`, `.` and `_`")]
    Name,
    /// A value is not percent-encoded UTF-8, or contains control characters.
    #[error("a parameter is not percent-encoded UTF-8 without control characters")]
    Encoding,
    /// There are too many parameters.
    #[error("there are more than {limit} parameters")]
    TooMany {
        /// Maximum number of parameters.
        limit: usize,
    },
}

impl OauthParameters {
    /// Reads a query or a form. Only `resource` may occur more than once (RFC 8707, 2).
    ///
    /// # Errors
    /// [`ParameterFault`].
    pub(crate) fn parse(text: &str) -> Result<Self, ParameterFault> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for piece in text.split('&').filter(|piece| !piece.is_empty()) {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            let folded = fold_name(&name)?;
            if folded != name && LOGIN_PARAMETERS.contains(&&*folded) {
                return Err(ParameterFault::Spelling { name, expected: folded });
            }
            let is_taken = |(known, _): &(String, String)| fold_name(known).as_ref() == Ok(&folded);
            if name != RESOURCE_PARAMETER && pairs.iter().any(is_taken) {
                return Err(ParameterFault::Duplicate { name });
            }
            if pairs.len() >= MAX_PARAMETERS {
                return Err(ParameterFault::TooMany { limit: MAX_PARAMETERS });
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Returns the value of a parameter. An empty one counts as omitted (RFC 6749, 3.1).
    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value).filter(|value| !value.is_empty())
    }

    /// Returns true if there is a parameter of this name, empty or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Removes a parameter.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// Checks that an endpoint's own query has none of these parameters. The authorization server
    /// would see them twice.
    ///
    /// # Errors
    /// [`ParameterFault`].
    pub(crate) fn check_endpoint(&self, endpoint: &Url) -> Result<(), ParameterFault> {
        let own = Self::parse(endpoint.query().unwrap_or_default())?;
        let names = own.0.iter().map(|(name, _)| fold_name(name)).collect::<Result<Vec<_>, _>>()?;
        for (name, _) in &self.0 {
            if names.contains(&fold_name(name)?) {
                return Err(ParameterFault::Duplicate { name: name.clone() });
            }
        }
        Ok(())
    }

    /// Writes the query or the form.
    pub(crate) fn to_text(&self) -> String {
        Serializer::new(String::new()).extend_pairs(&self.0).finish()
    }
}

/// Returns true if the query of an endpoint sets no parameter of a login, so that a login may add
/// its own.
pub(crate) fn is_open_endpoint(endpoint: &Url) -> bool {
    let own = OauthParameters::parse(endpoint.query().unwrap_or_default());
    own.is_ok_and(|own| own.0.iter().all(|(name, _)| !LOGIN_PARAMETERS.contains(&&**name)))
}

fn decode(text: &str) -> Result<String, ParameterFault> {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let mut escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if !escapes.all(|(at, _)| is_hex(bytes.get(at + 1)) && is_hex(bytes.get(at + 2))) {
        return Err(ParameterFault::Encoding);
    }
    let text = text.replace('+', " ");
    let decoded = percent_decode_str(&text).decode_utf8().map_err(|_| ParameterFault::Encoding)?;
    if decoded.chars().any(char::is_control) {
        return Err(ParameterFault::Encoding);
    }
    Ok(decoded.into_owned())
}

/// Returns a common form of all names that some program treats as equal: PHP reads `a.b` as `a_b`,
/// ASP.NET ignores case.
fn fold_name(name: &str) -> Result<String, ParameterFault> {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !name.bytes().all(is_name_byte) {
        return Err(ParameterFault::Name);
    }
    Ok(name.to_ascii_lowercase().replace('.', "_"))
}

/// The parameter of RFC 8707.
pub(crate) const RESOURCE_PARAMETER: &str = "resource";
/// Parameters of a login that affect its result: RFC 6749, 7521, 7636, 8707, 9101 and 9449.
const LOGIN_PARAMETERS: [&str; 21] = [
    "response_type",
    "response_mode",
    "client_id",
    "client_secret",
    "client_assertion",
    "client_assertion_type",
    "redirect_uri",
    "scope",
    "state",
    "code",
    "code_challenge",
    "code_challenge_method",
    "code_verifier",
    "grant_type",
    "refresh_token",
    "username",
    "password",
    "request",
    "request_uri",
    "dpop_jkt",
    RESOURCE_PARAMETER,
];
const MAX_PARAMETERS: usize = 100;
const MAX_NAME_LENGTH: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, ParameterFault> {
        OauthParameters::parse(text).map(|parameters| parameters.to_text())
    }

    #[test]
    fn a_parameter_that_a_program_could_read_twice_is_refused() {
        for text in [
            "grant_type=a&grant_type=b",
            "grant_type=a&grant%5Ftype=b",
            "x=1&X=2",
            "x.y=1&x_y=2",
            "x=1&x",
            "x=&x=",
            "resource=a&Resource=b",
        ] {
            let fault = read(text).unwrap_err();
            let is_meant =
                matches!(fault, ParameterFault::Duplicate { .. } | ParameterFault::Spelling { .. });
            assert!(is_meant, "{text}: {fault}");
        }
        for text in ["Grant_Type=a", "grant.type=a", "CLIENT_ID=a", "redirect.uri=a"] {
            let fault = read(text).unwrap_err();
            assert!(matches!(fault, ParameterFault::Spelling { .. }), "{text}: {fault}");
        }
        for text in ["grant_type[]=a", "client_id[0]=a", "=a", "a%00=b", "grant type=a", "\u{e9}=a"]
        {
            let fault = read(text).unwrap_err();
            assert!(matches!(fault, ParameterFault::Name | ParameterFault::Encoding), "{text}");
        }
        for text in ["a=%", "a=%4", "a=%zz", "a=%ff", "a=b%0d%0Ac"] {
            assert_eq!(read(text), Err(ParameterFault::Encoding), "{text}");
        }
        let many: Vec<_> = (0..=MAX_PARAMETERS).map(|number| format!("a{number}=1")).collect();
        let limit = MAX_PARAMETERS;
        assert_eq!(read(&many.join("&")), Err(ParameterFault::TooMany { limit }));
    }

    #[test]
    fn parameters_are_written_so_that_no_program_separates_them_otherwise() {
        for (text, written) in [
            ("a=1;grant_type=password", "a=1%3Bgrant_type%3Dpassword"),
            ("a=1&&b=2&", "a=1&b=2"),
            ("a=x+y&b=%2b", "a=x+y&b=%2B"),
            ("%61=1", "a=1"),
            ("resource=a&resource=b", "resource=a&resource=b"),
            ("a", "a="),
        ] {
            assert_eq!(read(text), Ok(written.to_owned()), "{text}");
        }
    }

    #[test]
    fn an_endpoint_that_sets_a_parameter_of_the_login_is_not_used() {
        let endpoint = |query: &str| format!("https://i.test/a{query}").parse::<Url>().unwrap();
        let request = OauthParameters::parse("client_id=c&tenant=1").unwrap();
        for (query, is_open, is_free) in [
            ("", true, true),
            ("?p=policy", true, true),
            ("?tenant=1", true, false),
            ("?Tenant=1", true, false),
            ("?client_id=evil", false, false),
            ("?client%5Fid=evil", false, false),
            ("?redirect_uri=https://evil.test", false, true),
            ("?a[]=1", false, false),
        ] {
            assert_eq!(is_open_endpoint(&endpoint(query)), is_open, "{query}");
            assert_eq!(request.check_endpoint(&endpoint(query)).is_ok(), is_free, "{query}");
        }
    }
}
