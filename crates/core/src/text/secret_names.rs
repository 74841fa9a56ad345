//! Names that mark their value as a secret.

/// Returns true if the name of a variable, header, option or parameter marks its value as a secret.
pub fn names_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    // The value is the name of a variable.
    if upper.ends_with("ENV_VAR") {
        return false;
    }
    SECRET_PARTS.iter().any(|part| upper.contains(part))
        || upper.ends_with("KEY")
        || split_words(name).any(|word| SECRET_WORDS.contains(&word.as_str()))
}

/// The words of a name, in capitals: `dbPass` and `DB_PASS` have the same.
fn split_words(name: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::new();
    let mut follows_small = false;
    for c in name.chars() {
        if follows_small && c.is_ascii_uppercase() {
            spaced.push(' ');
        }
        follows_small = c.is_ascii_lowercase();
        spaced.push(if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { ' ' });
    }
    spaced.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Parts of names of secrets.
const SECRET_PARTS: [&str; 9] = [
    "TOKEN",
    "SECRET",
    "PASSW",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
    "AUTHORIZATION",
    "COOKIE",
    "WEBHOOK",
];

/// Words of names of secrets.
const SECRET_WORDS: [&str; 14] = [
    "KEY",
    "AUTH",
    "PASS",
    "PAT",
    "PWD",
    "PW",
    "DSN",
    "SIGNATURE",
    "SIG",
    "JWT",
    "CREDS",
    "BEARER",
    "PIN",
    "OTP",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_recognised() {
        for name in [
            "GITHUB_TOKEN",
            "api-key",
            "--api-key",
            "Authorization",
            "X-API-Key",
            "OPENAIKEY",
            "DB_PASSWORD",
            "client_secret",
            "GITLAB_PAT",
            "PASS",
            "X-Pass",
            "dbPass",
            "SLACK_WEBHOOK_URL",
        ] {
            assert!(names_secret(name), "{name}");
        }
        for name in [
            "PATH",
            "LOG_LEVEL",
            "KEYBOARD",
            "--port",
            "Accept-Language",
            "PATTERN",
            "COMPASS",
            "bypassCache",
            "bearer_token_env_var",
        ] {
            assert!(!names_secret(name), "{name}");
        }
    }
}
