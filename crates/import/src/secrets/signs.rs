//! Signs of a secret: its name, its form, or a URL that contains it.

use url::Url;

use trunkline_core::text::names_secret;

/// Returns the start of the value in the first `NAME=VALUE`, `NAME: VALUE` or `--NAME VALUE` of a
/// text with a name that marks a secret.
pub(super) fn find_named_value(text: &str) -> Option<usize> {
    let separators = text.match_indices(['=', ':', ' ']).filter(|(at, separator)| {
        let before = text.get(..*at).unwrap_or_default();
        let after = text.get(*at..).unwrap_or_default();
        let name = last_name(before);
        // A colon may belong to a URL, and a blank separates words as well.
        !after.starts_with("://")
            && (*separator != " " || name.starts_with('-'))
            && names_secret(name)
            && after.contains(char::is_alphanumeric)
    });
    separators.map(|(at, _)| at + 1).next()
}

/// Returns the name at the end of a text.
fn last_name(text: &str) -> &str {
    let text = text.trim_end_matches([' ', '"', '\'']);
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let start = text.char_indices().rev().take_while(|(_, c)| is_name(*c)).last();
    start.and_then(|(at, _)| text.get(at..)).unwrap_or_default()
}

/// Returns true if a text is or contains a secret.
pub(super) fn looks_secret(text: &str) -> bool {
    text.contains("-----BEGIN")
        || text
            .split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'' | '='))
            .any(|word| looks_random(word) || is_login(word))
}

/// Returns true if a word is `USER:PASSWORD@HOST`.
fn is_login(word: &str) -> bool {
    let login = word.rsplit_once('@').and_then(|(login, _)| login.split_once(':'));
    login.is_some_and(|(user, password)| {
        !user.is_empty()
            && !password.is_empty()
            && !user.contains(['/', '@'])
            && !password.contains('/')
    })
}

/// Returns true if a URL contains a credential.
pub(super) fn url_has_secret(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let Some(host) = url.host_str() else { return false };
    let path = url.path().to_ascii_lowercase();
    url.password().is_some()
        || !url.username().is_empty()
        || url
            .query_pairs()
            .any(|(name, value)| !value.is_empty() && (names_secret(&name) || looks_random(&value)))
        || url.fragment().is_some_and(|fragment| find_named_value(fragment).is_some())
        || url.path().split('/').any(looks_random)
        // The address of a webhook is its key.
        || host.starts_with("hooks.")
        || path.contains("webhook")
}

/// Returns true if a word is a token: it has the prefix of a known kind, or it is long and mixes
/// letters and digits unlike words.
fn looks_random(word: &str) -> bool {
    if KNOWN_PREFIXES.iter().any(|prefix| word.len() > prefix.len() + 8 && word.starts_with(prefix))
    {
        return true;
    }
    let token =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.' | '/' | '=');
    if word.len() < 20 || !word.chars().all(token) || word.starts_with(['/', '.']) {
        return false;
    }
    let classes = word.chars().filter(char::is_ascii_alphanumeric).map(|c| match c {
        '0'..='9' => 0,
        'a'..='z' => 1,
        _ => 2,
    });
    let classes: Vec<_> = classes.collect();
    let changes = classes.windows(2).filter(|pair| pair.first() != pair.last()).count();
    // Six changes within twenty characters: names with a version or a date have fewer.
    changes * 10 >= word.len() * 3
}

/// Prefixes by which secret scanners recognise tokens.
const KNOWN_PREFIXES: [&str; 18] = [
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "hf_",
    "npm_",
    "AKIA",
    "eyJ",
    "AIza",
    "tlk_",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_secrets_are_recognised_and_ordinary_ones_are_not() {
        for value in [
            "ghp_0123456789abcdef",
            "Bearer 8f3kQ92mZx7Lp0Wv5Rt1Yb6N",
            "app:hunter2@db",
            "d41d8cd98f00b204e9800998ecf8427e",
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "-----BEGIN PRIVATE KEY-----",
        ] {
            assert!(looks_secret(value), "{value}");
        }
        for value in [
            "@modelcontextprotocol/server-filesystem@2025.11.25",
            "npm:@scope/name@1.2.3",
            "git@github.com:acme/site.git",
            "/home/ann/projects/site/node_modules/.bin/server",
            "src.mcp_servers.aviation_atis_server",
            "https://mcp.example.com/v1/servers/documents",
            "Asterisk-AI-Voice-Agent (+https://github.com/...)",
            "mcp-server-postgres-with-a-long-name-2025-11-25",
        ] {
            assert!(!looks_secret(value), "{value}");
        }
    }

    #[test]
    fn a_url_with_a_credential_is_a_secret() {
        for url in [
            "https://ann:pw@host/mcp",
            "https://token@host/mcp",
            "postgres://app:hunter2@db/x",
            "https://host/mcp?api_key=x",
            "https://host/mcp#access_token=x",
            "https://host/s/8f3kQ92mZx7Lp0Wv5Rt1Yb6N/mcp",
            "https://hooks.slack.com/services/T0/B0/x",
            "https://discord.com/api/webhooks/1/x",
        ] {
            assert!(url_has_secret(url), "{url}");
        }
        assert!(!url_has_secret("https://mcp.example.com/mcp?tools=a,b&version=2025-11-25"));
    }
}
