//! Patterns in the language of regular expressions. Names of tools and servers have none of its
//! characters, so such a pattern matches nothing.

use crate::config::{Config, Pattern};

/// Describes the patterns for names of tools, prompts and servers that are regular expressions.
pub(crate) fn describe_foreign_patterns(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |key: String, patterns: Option<&[Pattern]>| {
        for pattern in patterns.unwrap_or_default() {
            if let Some(sign) = foreign_sign(pattern.as_str()) {
                found.push(format!(
                    "{key}: {:?} is no regular expression here, and `{sign}` is in no name: `*` \
                     and `?` are the only special characters",
                    pattern.as_str()
                ));
            }
        }
    };
    for server in &config.servers {
        add(format!("servers.{}.tools.allow", server.name), Some(&server.tools.allow));
        add(format!("servers.{}.tools.deny", server.name), Some(&server.tools.deny));
    }
    for rule in &config.policy.rules {
        let key = |setting: &str| format!("policy.rules.{}.{setting}", rule.name);
        add(key("servers"), rule.servers.as_deref());
        add(key("tools"), rule.tools.as_deref());
        add(key("prompts"), rule.prompts.as_deref());
    }
    for profile in &config.profiles {
        let key = |setting: &str| format!("profiles.{}.{setting}", profile.name.as_str());
        add(key("servers"), profile.servers.as_deref());
        add(key("tools"), profile.tools.as_deref());
        add(key("prompts"), profile.prompts.as_deref());
    }
    found
}

/// The first sign of a regular expression in a pattern.
fn foreign_sign(pattern: &str) -> Option<&'static str> {
    const SIGNS: [&str; 9] = ["[", "]", "{", "}", "^", "$", "|", "\\", ".*"];
    SIGNS.into_iter().find(|sign| pattern.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signs_that_are_in_no_name_are_reported() {
        for (pattern, sign) in [
            ("read_[a-z]+", Some("[")),
            ("^read", Some("^")),
            ("a|b", Some("|")),
            ("read.*", Some(".*")),
            ("read_*", None),
            ("files.read?", None),
            ("a/b-c", None),
        ] {
            assert_eq!(foreign_sign(pattern), sign, "{pattern}");
        }
    }
}
