//! What is replaced in the recorded values of arguments.

use regex::{RegexSet, RegexSetBuilder};
use serde_json::Value;

/// The rules by which values are replaced.
#[derive(Debug)]
pub struct RedactionRules {
    keys: RegexSet,
    values: RegexSet,
}

/// Why an expression cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("not a regular expression")]
pub struct RedactionError(#[from] regex::Error);

impl RedactionRules {
    /// The built-in rules, and these: members whose key matches one of `keys`, and texts in which
    /// one of `values` matches, are replaced.
    ///
    /// # Errors
    /// An expression does not parse, or is too large.
    pub fn new(keys: &[String], values: &[String]) -> Result<Self, RedactionError> {
        let keys = BUILT_IN_KEYS.iter().copied().chain(keys.iter().map(String::as_str));
        let values = BUILT_IN_VALUES.iter().copied().chain(values.iter().map(String::as_str));
        Ok(Self {
            keys: RegexSetBuilder::new(keys)
                .case_insensitive(true)
                .size_limit(EXPRESSIONS_SIZE)
                .build()?,
            values: RegexSetBuilder::new(values).size_limit(EXPRESSIONS_SIZE).build()?,
        })
    }

    /// The arguments with secrets replaced, or a text that says why they are left out.
    pub fn redact_arguments(&self, raw: &[u8], most: usize) -> Value {
        if raw.len() > most {
            return Value::from(TOO_LARGE);
        }
        match serde_json::from_slice(raw) {
            Ok(mut arguments) => {
                self.redact_value(&mut arguments);
                arguments
            }
            Err(_) => Value::from(UNREADABLE),
        }
    }

    /// The depth is bounded by the parser that read the value.
    fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) if self.values.is_match(text) => *value = Value::from(REDACTED),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(members) => {
                for (key, member) in members.iter_mut() {
                    if self.keys.is_match(key) {
                        *member = Value::from(REDACTED);
                    } else {
                        self.redact_value(member);
                    }
                }
                if members.keys().any(|key| self.values.is_match(key)) {
                    // A secret as a key: nothing of the object can be told.
                    *value = Value::from(REDACTED);
                }
            }
            _ => {}
        }
    }
}

/// Keys whose values are secrets, in any case.
pub(super) const BUILT_IN_KEYS: [&str; 8] = [
    "passw(or)?d",
    "passphrase",
    "secret",
    "token",
    "api[-_]?key",
    "authorization",
    "credential",
    "private[-_]?key|cookie",
];

/// Texts that are secrets, or contain one, whatever their key.
pub(super) const BUILT_IN_VALUES: [&str; 6] = [
    r"(?i)\b(bearer|basic)\s+[a-z0-9+/=._~-]{8,}",
    r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.",
    r"-----BEGIN [A-Z ]*PRIVATE KEY",
    r"\b(sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs]|whsec|npm)[-_][A-Za-z0-9_-]{10,}",
    r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    r"://[^/\s:@]+:[^/\s@]+@",
];

/// What stands in place of a secret.
const REDACTED: &str = "[redacted]";
/// What stands in place of arguments that are too large.
const TOO_LARGE: &str = "[left out: too large]";
/// What stands in place of arguments that cannot be read.
const UNREADABLE: &str = "[left out: not readable]";
/// The most bytes of all compiled expressions of one kind.
const EXPRESSIONS_SIZE: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_replaced_by_key_and_by_value_at_any_depth() {
        let own = (["^pin$".to_owned()], ["\\bcard-\\d+".to_owned()]);
        let rules = RedactionRules::new(&own.0, &own.1).unwrap();
        let raw = json!({
            "path": "/a", "n": 7, "Password": "x", "pin": 1234, "pinned": true,
            "deep": [{ "api_key": { "a": 1 }, "note": "use Bearer abcdefghijk now" }],
            "jwt": "eyJhbGciOiJI.eyJzdWIiOiIx.sig", "pay": "card-99", "url": "db://me:pw@host/",
            "aws": "AKIAABCDEFGHIJKLMNOP", "pem": "-----BEGIN RSA PRIVATE KEY-----",
            "gh": "ghp_0123456789abcdef", "map": { "ghp_0123456789abcdef": 1 },
        });
        let redacted = rules.redact_arguments(raw.to_string().as_bytes(), 10_000);
        let hidden = REDACTED;
        let expected = json!({
            "path": "/a", "n": 7, "Password": hidden, "pin": hidden, "pinned": true,
            "deep": [{ "api_key": hidden, "note": hidden }],
            "jwt": hidden, "pay": hidden, "url": hidden, "aws": hidden, "pem": hidden, "gh": hidden,
            "map": hidden,
        });
        assert_eq!(redacted, expected);
    }

    #[test]
    fn large_and_unreadable_arguments_are_left_out() {
        let rules = RedactionRules::new(&[], &[]).unwrap();
        assert_eq!(rules.redact_arguments(b"{\"a\":1}", 6), json!(TOO_LARGE));
        assert_eq!(rules.redact_arguments(b"{\"a\":1", 100), json!(UNREADABLE));
    }

    #[test]
    fn an_expression_that_is_wrong_or_huge_is_refused() {
        assert!(RedactionRules::new(&["(".to_owned()], &[]).is_err());
        let huge = r"(\pL{1000}){1000}".to_owned();
        assert!(RedactionRules::new(&[], &[huge]).is_err());
    }
}
