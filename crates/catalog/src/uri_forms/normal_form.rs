//! The normal form of a URI: one spelling for all spellings that servers read as the same resource.
//!
//! The official servers parse URIs as the WHATWG URL standard does and then compare text. Others decode
//! percent-encoding (RFC 3986, section 6.2.2) or read `file:` URIs as paths (RFC 8089). The normal form
//! applies all three, and [`UriSpellings`] adds the forms that only some servers read alike.

use std::collections::HashSet;
use std::fmt::Write as _;

use percent_encoding::percent_decode_str;
use url::Url;

/// Returns the normal form of a URI; `None` if the text is no absolute URI.
pub fn normal_form(uri: &str) -> Option<String> {
    if is_plainly_normal(uri) {
        return Some(uri.to_owned());
    }
    let mut form = normalise_once(uri)?;
    // Decoded characters can be a dot segment or a drive letter.
    for _ in 0..MAX_PASSES {
        let next = normalise_once(&form)?;
        if next == form {
            break;
        }
        form = next;
    }
    Some(form)
}

/// Returns the normal form of text with `opaque` parts (wildcards, expressions of a template) that
/// are unchanged; `None` if the text is no absolute URI.
pub(crate) fn normal_form_around<'t>(
    text: &'t str,
    mut next_opaque: impl FnMut(&'t str) -> Option<(&'t str, &'t str, &'t str)>,
) -> Option<String> {
    let mark = choose_mark(text)?;
    let (mut marked, mut opaque, mut rest) = (String::with_capacity(text.len()), Vec::new(), text);
    while let Some((before, part, after)) = next_opaque(rest) {
        marked.push_str(before);
        let _ = write!(marked, "{mark}{}{mark}", opaque.len());
        opaque.push(part);
        rest = after;
    }
    marked.push_str(rest);
    let mut form = normal_form(&marked)?;
    for (place, part) in opaque.iter().enumerate() {
        form = form.replace(&format!("{mark}{place}{mark}"), part);
    }
    Some(form)
}

/// Returns the normal form of a URI template. Its expressions are unchanged.
pub(crate) fn normal_template(text: &str) -> Option<String> {
    normal_form_around(text, |rest| {
        let (before, inside) = rest.split_once('{')?;
        let (expression, after) = inside.split_once('}')?;
        let end = before.len() + expression.len() + 2;
        Some((before, rest.get(before.len()..end)?, after))
    })
}

/// Returns the end of a URI's scheme and authority, which RFC 3986 compares without regard to case.
pub(crate) fn authority_end(uri: &str) -> usize {
    let Some(colon) = uri.find(':') else { return 0 };
    let after = colon + 1;
    match uri.get(after..).and_then(|rest| rest.strip_prefix("//")) {
        Some(rest) => after + 2 + rest.find(['/', '?', '#']).unwrap_or(rest.len()),
        None => after,
    }
}

/// Returns the URI with its scheme and authority in lower case.
pub fn fold_authority(uri: &str) -> String {
    let (authority, rest) = uri.split_at_checked(authority_end(uri)).unwrap_or(("", uri));
    authority.to_ascii_lowercase() + rest
}

/// The forms in which servers may read one URI.
#[derive(Debug)]
pub struct UriSpellings {
    /// As written.
    written: String,
    /// The form for servers that parse it and change nothing else; `None` if it is in normal form.
    parsed: Option<String>,
    normal: Option<String>,
    /// Forms without percent-encoding.
    decoded: Vec<String>,
    /// Forms without a fragment, an empty query or, for a `file:` URI, any query.
    cut: Vec<String>,
}

impl UriSpellings {
    /// The spellings of a URI.
    pub fn of(uri: &str) -> Self {
        let normal = normal_form(uri);
        let is_normal = normal.as_deref() == Some(uri);
        let parsed = if is_normal { None } else { Url::parse(uri).ok().map(String::from) };
        Self { parsed, ..Self::written(uri, normal) }.complete()
    }

    /// The spellings of a URI template.
    pub(crate) fn of_template(text: &str) -> Self {
        Self::written(text, normal_template(text)).complete()
    }

    fn written(uri: &str, normal: Option<String>) -> Self {
        let (written, decoded, cut) = (uri.to_owned(), Vec::new(), Vec::new());
        Self { written, parsed: None, normal, decoded, cut }
    }

    /// Adds the forms that are made of the written and the normal form.
    fn complete(mut self) -> Self {
        let uri = &*self.written;
        if self.is_normal() && !uri.contains(['%', '#', '?']) {
            return self;
        }
        let mut decoded: Vec<String> = Vec::new();
        let once = decode(uri);
        let of_normal = self.normal.as_deref().map(decode);
        let normal_of_decoded = normal_form(&once);
        let both = normal_of_decoded.as_deref().map(decode);
        decoded.extend([Some(once), of_normal, normal_of_decoded, both].into_iter().flatten());
        decoded.sort_unstable();
        decoded.dedup();
        self.decoded = decoded;
        let cut = self.whole_forms().filter_map(cut_ignored_end).collect::<HashSet<_>>();
        self.cut = cut.into_iter().collect();
        self
    }

    /// The normal form.
    #[inline]
    pub fn normal(&self) -> Option<&str> {
        self.normal.as_deref()
    }

    /// Returns true if the URI is written in normal form.
    #[inline]
    pub fn is_normal(&self) -> bool {
        self.normal.as_deref() == Some(&*self.written)
    }

    /// The forms for a rule that denies, which has to name one of them.
    #[inline]
    pub fn for_denial(&self) -> impl Iterator<Item = &str> {
        self.whole_forms().chain(self.cut.iter().map(String::as_str))
    }

    /// The forms for a rule that allows, which has to name all of them, besides
    /// [`Self::decoded_once`].
    #[inline]
    pub fn for_permission(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.written).chain(self.decoded.iter().map(String::as_str))
    }

    /// The URI without percent-encoding.
    #[inline]
    pub fn decoded_once(&self) -> String {
        decode(&self.written)
    }

    /// The forms of [`Self::for_denial`] with scheme and authority in lower case: two URIs that share one
    /// can be the same resource.
    pub(crate) fn keys(&self) -> impl Iterator<Item = String> {
        self.for_denial().map(fold_authority)
    }

    fn whole_forms(&self) -> impl Iterator<Item = &str> {
        let written = std::iter::once(&self.written);
        let normal = self.normal.as_ref().filter(|_| !self.is_normal());
        written.chain(normal).chain(&self.parsed).chain(&self.decoded).map(String::as_str)
    }
}

/// Returns true if a URI is in normal form by its characters alone, as most listed ones are: views
/// compare thousands of them with each rule.
fn is_plainly_normal(uri: &str) -> bool {
    const PARSED_HOSTS: [&str; 5] = ["http", "https", "ws", "wss", "ftp"];
    let Some((scheme, rest)) = uri.split_once("://") else { return false };
    let (host, path) =
        rest.split_at_checked(rest.find('/').unwrap_or(rest.len())).unwrap_or_default();
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_lowercase())
        && !scheme.is_empty()
        && !PARSED_HOSTS.contains(&scheme);
    let is_file = scheme == "file";
    let is_host = if is_file { host.is_empty() && !path.is_empty() } else { !host.is_empty() };
    let mut segments = path.split('/').skip(1);
    is_scheme
        && is_host
        && rest.bytes().all(|byte| byte == b'/' || is_unreserved(byte))
        && segments.all(|segment| !matches!(segment, "." | ".."))
        && !(is_file && path.contains("//"))
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn normalise_once(uri: &str) -> Option<String> {
    let mut url = Url::parse(uri).ok()?;
    if url.scheme() == "file" {
        normalise_file_path(&mut url);
    }
    Some(normalise_percents(url.as_str()))
}

fn normalise_file_path(url: &mut Url) {
    // A path has no empty segments (RFC 8089): `file:////a` is read as `file:///a`.
    if url.path().contains("//") {
        let mut path = url.path().to_owned();
        while path.contains("//") {
            path = path.replace("//", "/");
        }
        url.set_path(&path);
    }
    // The WHATWG URL standard reads `/C|/a` as `/C:/a`, and the crate does not.
    if let [b'/', letter, b'|', rest @ ..] = url.path().as_bytes()
        && letter.is_ascii_alphabetic()
        && matches!(rest.first(), None | Some(b'/'))
    {
        let path = url.path().replacen('|', ":", 1);
        url.set_path(&path);
    }
}

/// Decodes percent-encoded unreserved characters, and writes the other codes in capitals (RFC 3986,
/// sections 6.2.2.1 and 6.2.2.2) and a `%` that begins no code as `%25`.
fn normalise_percents(uri: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(uri.len()), uri);
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let code = after.get(..2).filter(|code| code.bytes().all(|it| it.is_ascii_hexdigit()));
        let Some(code) = code else {
            // Written as its code: otherwise a later pass would read it and the next characters as
            // another code.
            out.push_str("%25");
            rest = after;
            continue;
        };
        let byte = u8::from_str_radix(code, 16).unwrap_or_default();
        if is_unreserved(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&code.to_ascii_uppercase());
        }
        rest = after.get(2..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

fn decode(uri: &str) -> String {
    percent_decode_str(uri).decode_utf8_lossy().into_owned()
}

/// The URI without the end that servers may ignore when they look it up; `None` if it has no such
/// end.
fn cut_ignored_end(uri: &str) -> Option<String> {
    let whole = uri.split_once('#').map_or(uri, |(before, _)| before);
    let is_file = uri.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"));
    let cut = match whole.split_once('?') {
        Some((before, query)) if is_file || query.is_empty() => before,
        _ => whole,
    };
    (cut.len() < uri.len()).then(|| cut.to_owned())
}

/// Letters that do not occur in a text, to mark the positions of its opaque parts: letters are kept
/// in every component of a URI.
fn choose_mark(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    (1..=MAX_MARK).map(|length| "q".repeat(length) + "z").find(|mark| !text.contains(mark))
}

/// The most rounds of normalisation until a form no longer changes.
const MAX_PASSES: usize = 4;
/// The longest mark, in repeated letters.
const MAX_MARK: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_uri_that_is_plainly_normal_is_its_own_normal_form(
            uri in "(file|db|x|https)://[A-Za-z0-9._~-]{0,3}(/[A-Za-z0-9._~-]{0,3}){0,4}"
        ) {
            if is_plainly_normal(&uri) {
                prop_assert_eq!(normalise_once(&uri), Some(uri));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn a_normal_form_is_its_own_and_that_of_the_parsed_uri(
            uri in "(file|FILE|https|x|db|web\\+a)?:?/{0,4}([a-c%EF|:@?#.;~é /\\\\\\[\\]0-9\u{ff45}]|%2e|%2F|%7|%25|%4[13]|/\\.\\.?/){0,12}"
        ) {
            if let Ok(parsed) = Url::parse(&uri) {
                let normal = normal_form(&uri).unwrap();
                prop_assert_eq!(normal_form(parsed.as_str()), Some(normal.clone()));
                prop_assert_eq!(normal_form(&normal), Some(normal));
            }
        }
    }

    #[test]
    fn spellings_of_one_resource_have_one_normal_form() {
        for (normal, spellings) in [
            (
                "file:///secret.txt",
                &[
                    "FILE:///secret.txt",
                    "file:/secret.txt",
                    "file:secret.txt",
                    "file:////secret.txt",
                    "file://localhost/secret.txt",
                    "file://LOCALHOST/secret.txt",
                    "file://%6cocalhost/secret.txt",
                    "file://\u{ff4c}ocalhost/secret.txt",
                    "file:///%73ecret.txt",
                    "file:///%73%65cret%2etxt",
                    "file:///./secret.txt",
                    "file:///a/../secret.txt",
                    "file:///a/%2e%2E/secret.txt",
                    " file:///secret.txt",
                    "\u{1}file:///secret.txt ",
                    "fi\tle:///secret.txt",
                    "file:\\\\\\secret.txt",
                ][..],
            ),
            (
                "https://example.com/a",
                &[
                    "HTTPS://EXAMPLE.com/a",
                    "https://example.com:443/a",
                    "https://example.com:/a",
                    "https://@example.com/a",
                    "https://:@example.com/a",
                    "https:example.com/a",
                    "https:///example.com/a",
                    "https://\u{ff45}xample.com/a",
                    "https://example\u{3002}com/a",
                    "https://%65xample.com/%61",
                ][..],
            ),
            ("db://Prod/a%2Fb", &["DB://Prod/a%2fb", "db://@Prod/%61%2Fb", "db://%50rod/a%2Fb"]),
            ("x:a%20b", &["X:a%20b"]),
            // A `%` that begins no code is read as itself, and never with the decoded characters
            // that follow it.
            ("x:%2573ecret", &["x:%7%33ecret", "X:%2573ecret"]),
            ("x:100%25", &["x:100%"]),
            // Empty segments and drive letters, also decoded ones.
            ("file:///a/b", &["file:///a//b", "file:///a/%2e///b"]),
            ("file:///C:/b", &["file:///C|/b", "file:///%43|/b", "FILE:C|/b", "file:///C|//b"]),
        ] {
            for spelling in spellings.iter().chain([&normal]) {
                assert_eq!(normal_form(spelling).as_deref(), Some(normal), "{spelling:?}");
            }
        }
        for distinct in ["db://prod/a", "file:///Secret.txt", "file:///secret.txt/", "x:%2e"] {
            assert_ne!(normal_form(distinct).as_deref(), Some("file:///secret.txt"), "{distinct}");
        }
        assert_eq!(normal_form("no uri"), None);
    }

    #[test]
    fn expressions_of_a_template_stay_as_they_are() {
        for (text, normal) in [
            ("DB://Prod/{Id}", "db://Prod/{Id}"),
            ("HTTPS://EXAMPLE.com:443/%61{?Q}", "https://example.com/a{?Q}"),
            ("file:/{+Path}", "file:///{+Path}"),
            ("db://{Host}/{x,Y*}", "db://{Host}/{x,Y*}"),
        ] {
            assert_eq!(normal_template(text).as_deref(), Some(normal), "{text}");
        }
    }

    #[test]
    fn a_denial_sees_every_form_and_a_permission_needs_the_ones_that_mean_the_same() {
        let spellings = UriSpellings::of("FILE:///a%2Fb?x#y");
        let denied: HashSet<_> = spellings.for_denial().collect();
        for form in ["FILE:///a%2Fb?x#y", "file:///a%2Fb?x#y", "file:///a/b?x#y", "file:///a/b"] {
            assert!(denied.contains(form), "{form}");
        }
        let plain = UriSpellings::of("db://Prod/7");
        assert_eq!(plain.for_denial().collect::<Vec<_>>(), ["db://Prod/7"]);
        assert_eq!(plain.for_permission().collect::<Vec<_>>(), ["db://Prod/7"]);
        assert_eq!(plain.keys().collect::<Vec<_>>(), ["db://prod/7"]);
    }
}
