//! Decides which requests of a login are forwarded. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;
use url::Url;

use trunkline_config::is_safe_url;

use super::LoginRelayFault;
use crate::metadata::parameters::OauthParameters;

/// Checks an authorization request (RFC 6749, 4.1.1) of the configured client, or of any client if
/// none is configured.
///
/// # Errors
/// [`LoginRelayFault`] names the fault in the request.
pub(super) fn check_authorization(
    request: &OauthParameters,
    client_id: Option<&str>,
) -> Result<(), LoginRelayFault> {
    // A request object contains parameters that are not visible here (RFC 9101, 5).
    if let Some(name) = REQUEST_OBJECTS.into_iter().find(|name| request.has(name)) {
        return Err(LoginRelayFault::RequestObject { name });
    }
    // `token` would put the token into the redirect URI (RFC 9700, 2.1.2).
    if request.find("response_type") != Some("code") {
        return Err(LoginRelayFault::ResponseType);
    }
    check_client_id(request, client_id)?;
    let challenge = request.find("code_challenge").filter(|text| is_pkce_text(text));
    if challenge.is_none() || request.find("code_challenge_method") != Some("S256") {
        return Err(LoginRelayFault::Pkce);
    }
    match request.find("redirect_uri") {
        Some(redirect) => check_redirect(redirect).map(drop),
        // Without a redirect URI the user could not be asked for consent.
        None if client_id.is_some() => Err(LoginRelayFault::RedirectUri),
        None => Ok(()),
    }
}

/// Checks a token request (RFC 6749, 4.1.3, 4.4.2 and 6). Returns the `Authorization` header to
/// forward with it.
///
/// # Errors
/// [`LoginRelayFault`] names the fault in the request.
pub(super) fn check_token_request<'h>(
    form: &OauthParameters,
    headers: &'h HeaderMap,
    client_id: Option<&str>,
) -> Result<Option<&'h HeaderValue>, LoginRelayFault> {
    // Any other grant would lend the gateway's address to attackers who guess passwords.
    let grant = form.find("grant_type").filter(|grant| RELAYED_GRANTS.contains(grant));
    let grant = grant.ok_or(LoginRelayFault::Grant)?;
    if client_id.is_some() && grant == CLIENT_CREDENTIALS {
        return Err(LoginRelayFault::PublicClient);
    }
    let credentials = read_basic(headers)?;
    let has_secret = CLIENT_SECRETS.into_iter().any(|name| form.has(name));
    if let Some(basic) = &credentials {
        // Only one way to authenticate at a time (RFC 6749, 2.3).
        let is_other = form.find("client_id").is_some_and(|id| id != basic.id);
        if is_other || has_secret {
            return Err(LoginRelayFault::Client);
        }
    }
    match (client_id, &credentials) {
        // The configured client has no secret, so any secret is a guess or belongs to another
        // client.
        (Some(_), _) if has_secret => return Err(LoginRelayFault::Client),
        (Some(id), Some(basic)) if basic.id != id || basic.has_secret => {
            return Err(LoginRelayFault::Client);
        }
        (Some(_), _) => check_client_id(form, client_id)?,
        (None, _) => {}
    }
    if grant == AUTHORIZATION_CODE && form.find("code_verifier").is_none() {
        return Err(LoginRelayFault::Pkce);
    }
    Ok(credentials.filter(|_| client_id.is_none()).map(|basic| basic.header))
}

/// Checks a redirect URI: a web page over HTTPS, a program on the user's machine, or a scheme that
/// belongs to a program.
///
/// # Errors
/// [`LoginRelayFault::RedirectUri`].
pub(super) fn check_redirect(text: &str) -> Result<Url, LoginRelayFault> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let url = Url::parse(text).ok().filter(|url| {
        let is_of_browser = FOREIGN_SCHEMES.contains(&url.scheme());
        let is_safe = url.scheme() != "http" || is_safe_url(url);
        let has_user = !url.username().is_empty() || url.password().is_some();
        // RFC 6749, 3.1.2: no fragment.
        is_plain && is_safe && !is_of_browser && !has_user && url.fragment().is_none()
    });
    url.ok_or(LoginRelayFault::RedirectUri)
}

fn check_client_id(
    parameters: &OauthParameters,
    client_id: Option<&str>,
) -> Result<(), LoginRelayFault> {
    match client_id {
        Some(_) if parameters.find("client_id") != client_id => Err(LoginRelayFault::Client),
        _ => Ok(()),
    }
}

/// Credentials of a client in `Authorization` (RFC 6749, 2.3.1).
struct BasicCredentials<'h> {
    header: &'h HeaderValue,
    id: String,
    has_secret: bool,
}

fn read_basic(headers: &HeaderMap) -> Result<Option<BasicCredentials<'_>>, LoginRelayFault> {
    let mut all = headers.get_all(AUTHORIZATION).into_iter();
    let Some(header) = all.next() else { return Ok(None) };
    let read = || {
        let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
        let decoded = STANDARD.decode(encoded.trim()).ok()?;
        let text = String::from_utf8(decoded).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"));
        let (id, secret) = text.as_ref()?.split_once(':')?;
        let id = id.replace('+', " ");
        let id = percent_decode_str(&id).decode_utf8().ok()?.into_owned();
        Some(BasicCredentials { header, id, has_secret: !secret.is_empty() })
    };
    match (read(), all.next()) {
        (Some(basic), None) => Ok(Some(basic)),
        _ => Err(LoginRelayFault::Client),
    }
}

/// Returns true for a text that is valid as a challenge or a verifier (RFC 7636, 4.1 and 4.2).
fn is_pkce_text(text: &str) -> bool {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (43..=128).contains(&text.len()) && text.bytes().all(is_unreserved)
}

const AUTHORIZATION_CODE: &str = "authorization_code";
const CLIENT_CREDENTIALS: &str = "client_credentials";
/// Grants of programs that log in for a person, and of programs that act for themselves.
pub(super) const RELAYED_GRANTS: [&str; 3] =
    [AUTHORIZATION_CODE, "refresh_token", CLIENT_CREDENTIALS];
const REQUEST_OBJECTS: [&str; 2] = ["request", "request_uri"];
/// Members of a form by which a client authenticates (RFC 6749, 2.3.1; RFC 7521, 4.2).
const CLIENT_SECRETS: [&str; 3] = ["client_secret", "client_assertion", "client_assertion_type"];
/// Schemes that browsers execute or read themselves, and those of other services. No program waits
/// for a login there.
const FOREIGN_SCHEMES: [&str; 22] = [
    "javascript",
    "data",
    "vbscript",
    "livescript",
    "file",
    "blob",
    "filesystem",
    "about",
    "view-source",
    "jar",
    "intent",
    "chrome",
    "resource",
    "ws",
    "wss",
    "ftp",
    "ftps",
    "mailto",
    "tel",
    "sms",
    "ldap",
    "urn",
];

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn parse(text: &str) -> OauthParameters {
        OauthParameters::parse(text).unwrap()
    }

    #[test]
    fn only_codes_with_s256_are_asked_for() {
        use LoginRelayFault::{Client, Pkce, RedirectUri, RequestObject, ResponseType};
        let with = |changes: &[(&str, Option<&str>)]| {
            let mut pairs = vec![
                ("response_type", "code"),
                ("client_id", "c"),
                ("redirect_uri", "http://127.0.0.1:7/cb"),
                ("code_challenge", CHALLENGE),
                ("code_challenge_method", "S256"),
            ];
            for (name, value) in changes {
                pairs.retain(|(known, _)| known != name);
                pairs.extend(value.map(|value| (*name, value)));
            }
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            check_authorization(&parse(&query.extend_pairs(pairs).finish()), Some("c"))
        };
        assert!(with(&[]).is_ok());
        for response_type in [None, Some("token"), Some("code token"), Some("id_token"), Some("")] {
            let checked = with(&[("response_type", response_type)]);
            assert!(matches!(checked, Err(ResponseType)), "{response_type:?}");
        }
        for method in [None, Some("plain"), Some("s256"), Some("")] {
            assert!(matches!(with(&[("code_challenge_method", method)]), Err(Pkce)), "{method:?}");
        }
        for challenge in [None, Some(""), Some("short"), Some(&*"%".repeat(43))] {
            let checked = with(&[("code_challenge", challenge)]);
            assert!(matches!(checked, Err(Pkce)), "{challenge:?}");
        }
        for client in [None, Some("other")] {
            assert!(matches!(with(&[("client_id", client)]), Err(Client)), "{client:?}");
        }
        for name in ["request", "request_uri"] {
            assert!(matches!(with(&[(name, Some(""))]), Err(RequestObject { .. })), "{name}");
        }
        assert!(matches!(with(&[("redirect_uri", None)]), Err(RedirectUri)));
        assert!(matches!(with(&[("redirect_uri", Some("javascript:1"))]), Err(RedirectUri)));
        // A client that is registered at the authorization server needs PKCE as well.
        let anybody = |text: &str| check_authorization(&parse(text), None);
        assert!(matches!(anybody("response_type=code&client_id=x"), Err(Pkce)));
        let pkce = format!("code_challenge={CHALLENGE}&code_challenge_method=S256");
        assert!(anybody(&format!("response_type=code&client_id=x&{pkce}")).is_ok());
    }

    #[test]
    fn a_redirect_uri_leads_to_a_page_or_to_a_program() {
        for (text, is_valid) in [
            ("https://app.test/cb", true),
            ("https://app.test:8443/cb?a=b", true),
            ("http://127.0.0.1:7/cb", true),
            ("http://[::1]:7/cb", true),
            ("http://localhost/cb", true),
            ("cursor://oauth/callback", true),
            ("com.example.app:/cb", true),
            ("http://app.test/cb", false),
            ("javascript:alert(1)", false),
            ("JavaScript:alert(1)", false),
            ("java\nscript:alert(1)", false),
            ("\tjavascript:alert(1)", false),
            ("data:text/html,x", false),
            ("vbscript:x", false),
            ("file:///etc/passwd", false),
            ("blob:https://app.test/x", false),
            ("view-source:https://app.test/", false),
            ("https://user@app.test/cb", false),
            ("https://app.test/cb#x", false),
            ("https:\\\\app.test", false),
            ("/cb", false),
            ("", false),
        ] {
            assert_eq!(check_redirect(text).is_ok(), is_valid, "{text:?}");
        }
    }

    #[test]
    fn a_public_client_has_no_secret_and_no_other_clients_credentials() {
        use LoginRelayFault::{Client, Grant, Pkce, PublicClient};
        let check = |client_id, form: &str, basic: Option<&str>| {
            let header = |text: &str| -> HeaderValue {
                format!("Basic {}", STANDARD.encode(text)).parse().unwrap()
            };
            let headers: HeaderMap =
                basic.map(|text| (AUTHORIZATION, header(text))).into_iter().collect();
            check_token_request(&parse(form), &headers, client_id).map(|sent| sent.is_some())
        };
        let refresh = "grant_type=refresh_token&refresh_token=r&client_id=c";
        assert!(matches!(check(Some("c"), refresh, None), Ok(false)));
        // An empty secret counts as none, and needs no header.
        assert!(matches!(check(Some("c"), refresh, Some("c:")), Ok(false)));
        for basic in ["c:s", "other:", "other:s", "no colon"] {
            assert!(matches!(check(Some("c"), refresh, Some(basic)), Err(Client)), "{basic}");
        }
        for secret in ["client_secret=s", "client_secret=", "client_assertion=a"] {
            let form = format!("{refresh}&{secret}");
            assert!(matches!(check(Some("c"), &form, None), Err(Client)), "{secret}");
            assert!(matches!(check(None, &form, None), Ok(false)), "{secret}");
            assert!(matches!(check(None, &form, Some("c:s")), Err(Client)), "{secret}");
        }
        assert!(matches!(check(None, refresh, Some("c:s")), Ok(true)));
        assert!(matches!(check(None, refresh, Some("other:s")), Err(Client)));
        let alone = "grant_type=client_credentials&client_id=c";
        assert!(matches!(check(Some("c"), alone, None), Err(PublicClient)));
        assert!(matches!(check(None, alone, Some("c:s")), Ok(true)));
        let code = "grant_type=authorization_code&code=x&client_id=c";
        for client_id in [Some("c"), None] {
            assert!(matches!(check(client_id, code, None), Err(Pkce)));
            assert!(check(client_id, &format!("{code}&code_verifier=v"), None).is_ok());
        }
        assert!(matches!(check(None, "grant_type=password", None), Err(Grant)));
        let mut twice = HeaderMap::new();
        for _ in 0..2 {
            twice.append(AUTHORIZATION, "Basic Yzpz".parse().unwrap());
        }
        let checked = check_token_request(&parse(refresh), &twice, None);
        assert!(matches!(checked, Err(Client)));
    }
}
