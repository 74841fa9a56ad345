//! The secrets of one server, to be kept out of logs and status pages: servers repeat values that
//! they received, in error messages and on standard error.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use trunkline_core::text::names_secret;

use super::sent_secrets::SentSecrets;
use crate::reader::setting::SectionPart;
use crate::reader::{ConfigReader, ConfigTable};
use crate::source::secret::Secret;

/// The secret values that a server received: the values of its `env` and `headers`, everything that
/// was substituted in its table, and later values, such as tokens.
#[derive(Debug, Clone, Default)]
pub struct ServerSecrets {
    configured: Vec<Secret>,
    /// The values that authenticate the gateway.
    credentials: Vec<Secret>,
    /// Shared by all clones.
    sent: Arc<SentSecrets>,
}

impl PartialEq for ServerSecrets {
    // Compares both sides of a reload: sent values are no part of the configuration.
    fn eq(&self, other: &Self) -> bool {
        self.configured == other.configured
    }
}

impl Eq for ServerSecrets {}

impl ServerSecrets {
    /// The secrets among these values: their lines, and long words in these lines, because servers
    /// quote parts of them; the name and the password of a `Basic` credential; and all of these as
    /// they are written in URLs, in JSON and in base64.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        Self { configured: hidden_forms(values), credentials: Vec::new(), sent: Arc::default() }
    }

    /// Adds secrets that no response of the server may contain ([`Self::hide_credentials_in`]).
    fn with_credentials<'a>(mut self, values: impl IntoIterator<Item = &'a str>) -> Self {
        self.credentials = hidden_forms(values);
        self.credentials.retain(|form| form.expose().len() >= MIN_SECRET_WORD_BYTES);
        self
    }

    /// Notes a secret that the configuration does not have and that is sent to the server now. It
    /// is hidden in this value and in all its clones.
    #[inline]
    pub fn note_sent(&self, value: &str) {
        self.sent.note(value);
    }

    /// Notes a secret in a header of a request to the server. Like [`Self::note_sent`].
    pub fn note_header(&self, value: &HeaderValue) {
        if let Ok(text) = value.to_str() {
            self.note_sent(text);
        }
    }

    /// The text with `***` for each secret in it.
    pub fn hide_in<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut shown = hide_all(&self.configured, Cow::Borrowed(text));
        for sent in self.sent.list() {
            shown = hide_all(sent.forms(), shown);
        }
        shown
    }

    /// The text with `***` for each configured credential in it: of `auth`, `oauth` and `aws`, and
    /// in headers with the name of one. For texts that clients use, which have to keep other values
    /// of the configuration, such as a tenant.
    #[inline]
    pub fn hide_credentials_in<'a>(&self, text: &'a str) -> Cow<'a, str> {
        hide_all(&self.credentials, Cow::Borrowed(text))
    }

    /// Like [`Self::hide_in`], for a text that was cut: the beginning of a secret at its end is
    /// hidden as well.
    pub fn hide_in_cut<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let shown = self.hide_in(text);
        let begun = |secret: &Secret| {
            let ends = secret.expose().char_indices().map(|(end, _)| end);
            let mut ends = ends.rev().take_while(|end| *end >= MIN_SECRET_BYTES);
            ends.find(|end| secret.expose().get(..*end).is_some_and(|it| shown.ends_with(it)))
        };
        let sent = self.sent.list();
        let all = self.configured.iter().chain(sent.iter().flat_map(|sent| sent.forms()));
        match all.filter_map(begun).max() {
            Some(length) => {
                let kept = shown.get(..shown.len() - length).unwrap_or_default();
                Cow::Owned(format!("{kept}***"))
            }
            None => shown,
        }
    }
}

/// The forms of these values to hide, the longest first.
pub(crate) fn hidden_forms<'a>(values: impl IntoIterator<Item = &'a str>) -> Vec<Secret> {
    let mut parts = Vec::new();
    for line in values.into_iter().flat_map(str::lines) {
        let words = line.split_whitespace().filter(|word| word.len() >= MIN_SECRET_WORD_BYTES);
        parts.extend(std::iter::once(line.trim()).chain(words).map(str::to_owned));
        parts.extend(basic_credential(line).into_iter().flatten());
    }
    parts.retain(|part| part.len() >= MIN_SECRET_BYTES);
    let encoded: Vec<_> = parts.iter().flat_map(|part| encoded_forms(part)).collect();
    parts.extend(encoded);
    // Longest first, so that no remainder of a longer one is left.
    parts.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
    parts.dedup();
    parts.into_iter().map(Secret::new).collect()
}

/// The text with `***` for each of these secrets, the longest of which come first.
fn hide_all<'a>(secrets: &[Secret], mut text: Cow<'a, str>) -> Cow<'a, str> {
    for secret in secrets {
        if text.contains(secret.expose()) {
            text = Cow::Owned(text.replace(secret.expose(), "***"));
        }
    }
    text
}

/// The credential in the value of an `Authorization` header, and its password (RFC 7617).
fn basic_credential(value: &str) -> Option<[String; 2]> {
    let (scheme, encoded) = value.trim().split_once(' ')?;
    let bytes = STANDARD.decode(encoded.trim()).ok()?;
    let credential =
        String::from_utf8(bytes).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let (_, password) = credential.split_once(':')?;
    Some([password.to_owned(), credential])
}

/// A secret as servers repeat it in URLs, in JSON, and within longer texts in base64.
fn encoded_forms(secret: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for set in [NON_ALPHANUMERIC, &NOT_UNRESERVED, &NOT_COMPONENT] {
        let encoded = utf8_percent_encode(secret, set).to_string();
        forms.push(with_lower_hex(&encoded));
        forms.push(encoded);
    }
    let in_json = serde_json::Value::from(secret).to_string();
    let in_json = in_json.trim_start_matches('"');
    let in_json = in_json.strip_suffix('"').unwrap_or(in_json);
    forms.push(in_ascii(in_json));
    // Writers of PHP escape slashes, and those of Go the characters that HTML reserves.
    forms.push(in_json.replace('/', "\\/"));
    forms.push(with_escaped_html(in_json));
    forms.push(in_json.to_owned());
    forms.push(STANDARD.encode(secret));
    // Three bytes are four digits: the digits depend on where in a longer text the secret begins.
    for before in ["", "1", "12"] {
        let text = [before, secret].concat();
        let (begin, whole) = ((before.len() * 4).div_ceil(3), text.len() * 4 / 3);
        for encoded in [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
            let digits = encoded.get(begin..whole).unwrap_or_default();
            forms.extend((digits.len() >= MIN_SECRET_WORD_BYTES).then(|| digits.to_owned()));
        }
    }
    forms.retain(|form| form != secret);
    forms
}

/// The text with the hexadecimal digits of `%2F` and the like in lower case.
fn with_lower_hex(encoded: &str) -> String {
    let mut pieces = encoded.split('%');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| {
        let (hex, rest) = piece.split_at_checked(2).unwrap_or((piece, ""));
        text + "%" + &hex.to_ascii_lowercase() + rest
    })
}

/// JSON text with the characters that HTML reserves as `\u003c` and the like.
fn with_escaped_html(json: &str) -> String {
    let mut text = String::new();
    for character in json.chars() {
        if matches!(character, '<' | '>' | '&' | '\'') {
            let _ = write!(text, "\\u{:04x}", u32::from(character));
        } else {
            text.push(character);
        }
    }
    text
}

/// JSON text with only ASCII characters, as some writers prefer it.
fn in_ascii(json: &str) -> String {
    let mut units = [0; 2];
    let mut text = String::new();
    for character in json.chars() {
        if character.is_ascii() {
            text.push(character);
        } else {
            text.extend(
                character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")),
            );
        }
    }
    text
}

impl SectionPart for ServerSecrets {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let own = reader.secrets.iter().filter_map(|(key, secret)| {
            Some((key.strip_prefix(&table.key)?.strip_prefix('.')?, secret.expose()))
        });
        let own: Vec<_> = own.collect();
        let credentials = own.iter().filter(|(setting, _)| is_credential(setting));
        let secrets = Self::new(own.iter().map(|(_, value)| *value));
        Some(secrets.with_credentials(credentials.map(|(_, value)| *value)))
    }
}

/// Returns true if a setting of a server, such as `headers.Authorization`, is a credential.
fn is_credential(setting: &str) -> bool {
    match setting.split_once('.') {
        Some(("auth" | "oauth" | "aws", _)) => true,
        Some(("headers", name)) => names_secret(name),
        _ => false,
    }
}

/// The fewest bytes of a secret. Shorter values, such as a port or `yes`, are part of any text.
const MIN_SECRET_BYTES: usize = 4;
/// The fewest bytes of a word that is a secret by itself; `Bearer` is none.
const MIN_SECRET_WORD_BYTES: usize = 8;
/// The characters that strict writers of URLs encode (RFC 3986, 2.3).
const NOT_UNRESERVED: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The characters that `encodeURIComponent` encodes.
const NOT_COMPONENT: AsciiSet =
    NOT_UNRESERVED.remove(b'!').remove(b'*').remove(b'\'').remove(b'(').remove(b')');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_secret_is_hidden_and_short_values_are_not() {
        let secrets =
            ServerSecrets::new(["Bearer abc-1234", "one line\nsecond", "80", "abc-123456"]);
        for (text, shown) in [
            ("nothing here: 80", "nothing here: 80"),
            ("token abc-1234 is wrong", "token *** is wrong"),
            ("Bearer abc-1234", "***"),
            ("Bearer", "Bearer"),
            ("abc-123456 and abc-1234", "*** and ***"),
            ("[second]", "[***]"),
        ] {
            assert_eq!(secrets.hide_in(text), shown);
        }
    }

    #[test]
    fn a_secret_is_hidden_as_it_is_written_in_urls_in_json_and_in_base64() {
        let secrets = ServerSecrets::new(["pä\"ss/word!+1", "Basic dXNlcjpodW50ZXIyLWJhc2lj"]);
        for text in [
            "?key=p%C3%A4%22ss%2Fword%21%2B1&a",
            "?key=p%c3%a4%22ss%2fword%21%2b1&a",
            "?key=p%C3%A4%22ss%2Fword!%2B1&a",
            r#"{"key":"pä\"ss/word!+1"}"#,
            r#"{"key":"p\u00e4\"ss/word!+1"}"#,
            "no user user:hunter2-basic",
            "no password hunter2-basic",
            "Authorization: Basic dXNlcjpodW50ZXIyLWJhc2lj",
        ] {
            let shown = secrets.hide_in(text);
            let is_whole =
                ["ss/", "ss%2", "hunter2", "dXN"].iter().any(|part| shown.contains(part));
            assert!(shown.contains("***") && !is_whole, "{text} is shown as {shown}");
        }
        // Within a longer text, wherever it begins.
        for before in ["", "u:", "user:", "a user:"] {
            for encoded in [
                STANDARD.encode(format!("{before}pä\"ss/word!+1 and more")),
                URL_SAFE_NO_PAD.encode(format!("{before}pä\"ss/word!+1")),
            ] {
                let shown = secrets.hide_in(&encoded);
                let shown = shown.replace("***", "");
                assert!(
                    shown.len() <= encoded.len() - 16,
                    "{before}: {encoded} is shown as {shown}"
                );
            }
        }
    }

    #[test]
    fn credentials_are_hidden_in_the_escapes_that_json_writers_use() {
        let secrets = ServerSecrets::new([]).with_credentials(["a/b<c>&d'e\"f", "short"]);
        for text in
            [r#"a/b<c>&d'e\"f"#, r#"a\/b<c>&d'e\"f"#, r#"a/b\u003cc\u003e\u0026d\u0027e\"f"#]
        {
            assert_eq!(secrets.hide_credentials_in(text), "***", "{text}");
        }
        assert_eq!(secrets.hide_credentials_in("a short text"), "a short text");
    }

    #[test]
    fn credentials_differ_from_other_settings() {
        for setting in ["auth.key", "oauth.client_secret", "aws.secret", "headers.X-API-Key"] {
            assert!(is_credential(setting), "{setting}");
        }
        for setting in ["headers.X-Tenant", "url", "base_url", "server_variables.region"] {
            assert!(!is_credential(setting), "{setting}");
        }
    }

    #[test]
    fn secrets_sent_to_a_server_are_hidden_and_are_no_configuration_change() {
        let secrets = ServerSecrets::new(["hunter2-configured"]);
        let (clone, before) = (secrets.clone(), ServerSecrets::new(["hunter2-configured"]));
        secrets.note_sent("Bearer token/of-ann");
        let text = "hunter2-configured, token/of-ann, token%2Fof%2Dann";
        assert_eq!(clone.hide_in(text), "***, ***, ***");
        assert_eq!(clone.hide_in_cut("no token/of-a"), "no ***");
        assert_eq!(secrets, before);
        assert_eq!(before.hide_in("token/of-ann"), "token/of-ann");
    }

    #[test]
    fn a_secret_that_was_cut_is_hidden() {
        let secrets = ServerSecrets::new(["hunter2-é-hunter3"]);
        assert_eq!(secrets.hide_in_cut("key=hunter2-"), "key=***");
        assert_eq!(secrets.hide_in_cut("key=hunter2-é"), "key=***");
        assert_eq!(secrets.hide_in_cut("key=hun"), "key=hun");
        assert_eq!(secrets.hide_in_cut("hunter2-é-hunter3, and more"), "***, and more");
    }
}
