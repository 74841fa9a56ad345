//! Replacement of secrets in arguments.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::arguments::ArgumentTree;

/// Rules by which values are replaced.
#[derive(Debug)]
pub struct RedactionRules {
    /// Key patterns of the configuration.
    keys: RegexSet,
    /// The expressions of `values`, all at once.
    is_secret: RegexSet,
    values: Vec<Regex>,
}

/// Error of an expression that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("not a regular expression")]
pub struct RedactionError(#[from] regex::Error);

impl RedactionRules {
    /// Builds the rules: the built-in ones, and these. They replace members with a key that matches
    /// one of `keys`, and texts that match one of `values`.
    ///
    /// # Errors
    /// An expression does not parse, or is too large.
    pub fn new(keys: &[String], values: &[String]) -> Result<Self, RedactionError> {
        let values = BUILT_IN_VALUES.iter().copied().chain(values.iter().map(String::as_str));
        let compile = |value| RegexBuilder::new(value).size_limit(EXPRESSIONS_SIZE).build();
        Ok(Self {
            keys: RegexSetBuilder::new(keys)
                .case_insensitive(true)
                .size_limit(EXPRESSIONS_SIZE)
                .build()?,
            is_secret: RegexSetBuilder::new(values.clone()).size_limit(EXPRESSIONS_SIZE).build()?,
            values: values.map(compile).collect::<Result<_, _>>()?,
        })
    }

    /// Replaces the secrets in arguments.
    pub(super) fn redact_tree(&self, tree: &mut ArgumentTree<'_>) {
        self.redact_value(tree, ValueKey::Other);
    }

    /// The depth is bounded by the parser that read the value.
    fn redact_value(&self, value: &mut ArgumentTree<'_>, key: ValueKey) {
        match value {
            ArgumentTree::Number(_) if key == ValueKey::Secret => {
                *value = ArgumentTree::Text(REDACTED_TEXT.into());
            }
            ArgumentTree::Word(_) | ArgumentTree::Number(_) => {}
            ArgumentTree::Text(text) if key == ValueKey::Other => self.redact_text(text),
            ArgumentTree::Text(text) => *text = redacted(text),
            ArgumentTree::List(items) => {
                for item in items {
                    self.redact_value(item, key);
                }
            }
            ArgumentTree::Map(members) => {
                for (name, member) in members {
                    self.redact_value(member, key.max(self.kind_of(name)));
                    self.redact_text(name);
                }
            }
        }
    }

    /// Replaces the parts of a text that are secrets.
    fn redact_text(&self, text: &mut Cow<'_, str>) {
        for place in self.is_secret.matches(text) {
            let Some(rule) = self.values.get(place) else { continue };
            let (mut shown, mut shown_to) = (String::new(), 0);
            for found in rule.captures_iter(text) {
                let Some(secret) = found.name(SECRET_GROUP).or_else(|| found.get(0)) else {
                    continue;
                };
                if secret.is_empty() {
                    continue;
                }
                shown.push_str(text.get(shown_to..secret.start()).unwrap_or_default());
                shown.push_str(&redacted(secret.as_str()));
                shown_to = secret.end();
            }
            shown.push_str(text.get(shown_to..).unwrap_or_default());
            *text = shown.into();
        }
    }

    fn kind_of(&self, name: &str) -> ValueKey {
        if self.keys.is_match(name) { ValueKey::Secret } else { kind_of_key(name) }
    }
}

/// Meaning of a value's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ValueKey {
    /// No secret.
    Other,
    /// Texts are secrets, and numbers are not: a number of tokens is no secret.
    SecretText,
    /// Texts and numbers are secrets.
    Secret,
}

/// Judges a key by its last words: `access_token`, `apiKey` and `password_confirmation` are secrets, and
/// `token_path` and `tokenizer` are not.
fn kind_of_key(name: &str) -> ValueKey {
    let words = words_of(name);
    let is_qualifier = |word: &String| SECRET_QUALIFIERS.contains(&word.as_str());
    let end = words.iter().rposition(|word| !is_qualifier(word)).map_or(0, |last| last + 1);
    let Some((last, before)) = words.get(..end).and_then(<[_]>::split_last) else {
        return ValueKey::Other;
    };
    let singular = last.strip_suffix('s').unwrap_or(last);
    let ends = |secret: &&str| last.ends_with(*secret) || singular.ends_with(*secret);
    if SECRET_WORDS.iter().any(ends) {
        return ValueKey::Secret;
    }
    if singular.ends_with("token") {
        return ValueKey::SecretText;
    }
    let is_key = KEY_KINDS.iter().any(|kind| match singular.strip_suffix("key") {
        Some("") => before.last().is_some_and(|word| word.ends_with(kind)),
        Some(joined) => joined.ends_with(kind),
        None => false,
    });
    if is_key { ValueKey::Secret } else { ValueKey::Other }
}

/// Splits a key into words in lower case, such as `x-api-key`, `apiKey` and `API_KEY2`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        let begins = before.is_lowercase() && c.is_uppercase();
        if begins || !c.is_alphabetic() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphabetic()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The text in place of a secret.
fn redacted(secret: &str) -> Cow<'static, str> {
    match secret.len() {
        0..=MAX_HIDDEN_LENGTH => REDACTED_TEXT.into(),
        len => format!("[redacted: {len} bytes]").into(),
    }
}

/// Last words of keys with secret values. They may be joined with another word: `dbpassword`.
const SECRET_WORDS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "authorization",
    "credential",
    "cookie",
    "apikey",
    "privatekey",
];
/// Words before `key` that mark a secret.
const KEY_KINDS: [&str; 6] = ["api", "private", "secret", "access", "signing", "encryption"];
/// Words that may follow those of a secret.
const SECRET_QUALIFIERS: [&str; 20] = [
    "value",
    "text",
    "string",
    "data",
    "plain",
    "raw",
    "base",
    "b",
    "encoded",
    "hash",
    "header",
    "confirm",
    "confirmation",
    "again",
    "repeat",
    "old",
    "new",
    "current",
    "v",
    "hex",
];

/// Texts that are or contain a secret under any key. The group `secret` is the secret part.
pub(super) const BUILT_IN_VALUES: [&str; 6] = [
    r"(?i)\b(?:bearer|basic)\s+(?P<secret>[a-z0-9+/=._~-]{8,})",
    r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*",
    r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?(?:-----)?(?:\s*[A-Za-z0-9+/=]{16,})*(?:\s*[A-Za-z0-9+/=]*\s*-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----)?",
    r"\b(sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs]|whsec|npm)[-_][A-Za-z0-9_-]{10,}",
    r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    r"://(?P<secret>[^/\s:@]+:[^/\s@]+)@",
];

/// Name of the group that matches the secret part of a text.
const SECRET_GROUP: &str = "secret";
/// The text in place of a secret.
const REDACTED_TEXT: &str = "[redacted]";
/// Maximum bytes of a secret with a hidden length.
const MAX_HIDDEN_LENGTH: usize = 256;
/// Maximum bytes of all compiled expressions of one kind.
const EXPRESSIONS_SIZE: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::ArgumentBounds;
    use super::*;

    fn redacted_json(rules: &RedactionRules, raw: &Value) -> Value {
        let raw = raw.to_string();
        let bounds = ArgumentBounds { usual: 100_000, most: 100_000 };
        let shown = rules.show_arguments(raw.as_bytes(), bounds).unwrap();
        serde_json::from_str(&shown.json).unwrap()
    }

    #[test]
    fn secrets_are_replaced_by_key_and_by_value_at_any_depth() {
        let own = (["^pin$".to_owned()], ["\\bcard-\\d+".to_owned()]);
        let rules = RedactionRules::new(&own.0, &own.1).unwrap();
        let raw = json!({
            "path": "/a", "n": 7, "Password": "x", "pin": 1234, "pinned": true,
            "deep": [{ "api_key": { "a": 1, "b": true }, "note": "use Bearer abcdefghijk now" }],
            "jwt": "eyJhbGciOiJI.eyJzdWIiOiIx.sig", "pay": "card-99", "url": "db://me:pw@host/",
            "aws": "AKIAABCDEFGHIJKLMNOP", "pem": "-----BEGIN RSA PRIVATE KEY-----",
            "gh": "ghp_0123456789abcdef", "map": { "ghp_0123456789abcdef": 1 },
        });
        let hidden = REDACTED_TEXT;
        let expected = json!({
            "path": "/a", "n": 7, "Password": hidden, "pin": hidden, "pinned": true,
            "deep": [{ "api_key": { "a": hidden, "b": true }, "note": "use Bearer [redacted] now" }],
            "jwt": hidden, "pay": hidden, "url": "db://[redacted]@host/", "aws": hidden,
            "pem": hidden, "gh": hidden, "map": { "[redacted]": 1 },
        });
        assert_eq!(redacted_json(&rules, &raw), expected);
    }

    #[test]
    fn a_key_is_that_of_a_secret_by_its_last_words() {
        let rules = RedactionRules::new(&[], &[]).unwrap();
        let shown = |name: &str, value: Value| {
            let raw = json!({ name: value });
            redacted_json(&rules, &raw) == raw
        };
        for name in [
            "password",
            "PASSWORD",
            "db_password",
            "dbpassword",
            "password2",
            "newPassword",
            "password_confirmation",
            "passwd",
            "passphrase",
            "secret",
            "client_secret",
            "clientSecret",
            "clientsecret",
            "secretValue",
            "token",
            "access_token",
            "accessToken",
            "authtoken",
            "token_value",
            "refresh_tokens",
            "api_key",
            "apiKey",
            "apikey",
            "X-API-Key",
            "api-key",
            "API_KEYS",
            "Authorization",
            "authorization_header",
            "credential",
            "credentials",
            "private_key",
            "privateKey",
            "private-key",
            "secret_key",
            "cookie",
            "Set-Cookie",
            "session_cookies",
        ] {
            assert!(!shown(name, json!("hunter2")), "{name}");
        }
        for name in [
            "token_path",
            "tokenPath",
            "tokenizer",
            "token_type",
            "secret_name",
            "secret_file",
            "secretary",
            "password_file",
            "passwords_dir",
            "cookie_policy",
            "cookie_domain",
            "credential_id",
            "credentials_path",
            "authorization_url",
            "api_key_file",
            "keyword",
            "key",
            "primary_key",
            "monkey",
            "path",
            "",
        ] {
            assert!(shown(name, json!("/etc/passwd")), "{name}");
        }
        assert!(shown("max_tokens", json!(4000)) && !shown("password", json!(4000)));
        assert!(shown("secret", json!(true)) && shown("secret", json!(null)));
    }

    #[test]
    fn only_the_secret_part_of_a_text_is_replaced() {
        let rules = RedactionRules::new(&[], &[]).unwrap();
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\nabc=\n-----END PRIVATE KEY-----",
            "Ab1+".repeat(16)
        );
        for (text, expected) in [
            (
                "curl -H 'Authorization: Bearer abcdefgh12' evil.example",
                "curl -H 'Authorization: Bearer [redacted]' evil.example",
            ),
            (
                "git clone https://me:pw@host/x && rm -rf ~",
                "git clone https://[redacted]@host/x && rm -rf ~",
            ),
            ("key AKIAABCDEFGHIJKLMNOP; drop table", "key [redacted]; drop table"),
            ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln rm -rf", "[redacted] rm -rf"),
            ("-----BEGIN PRIVATE KEY-----\nrm -rf /home", "[redacted]\nrm -rf /home"),
            (&format!("a {pem} b"), "a [redacted] b"),
            ("Bearer abcdefgh12 and Bearer zyxwvuts98", "Bearer [redacted] and Bearer [redacted]"),
        ] {
            let raw = json!({ "x": text });
            assert_eq!(redacted_json(&rules, &raw)["x"], expected, "{text}");
        }
        let long = redacted_json(&rules, &json!({ "x": format!("Bearer {}", "a1".repeat(500)) }));
        assert_eq!(long["x"], "Bearer [redacted: 1000 bytes]");
    }

    #[test]
    fn an_expression_that_is_wrong_or_huge_is_refused() {
        assert!(RedactionRules::new(&["(".to_owned()], &[]).is_err());
        let huge = r"(\pL{1000}){1000}".to_owned();
        assert!(RedactionRules::new(&[], &[huge]).is_err());
    }
}
