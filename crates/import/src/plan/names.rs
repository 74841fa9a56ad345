//! Valid names for the gateway, derived from the names of other programs. The same input always
//! gives the same name.

use trunkline_protocol::call::ServerName;

/// Returns a valid server name: other characters become `-`, and `__`, which separates server and
/// tool, becomes `_`.
pub(crate) fn server_name(text: &str) -> String {
    let mut name = replace_characters(text);
    while name.contains("__") {
        name = name.replace("__", "_");
    }
    clip_name(&name, ServerName::MAX_LEN, "server")
}

/// Returns a valid profile name. `default` is reserved for the profile of `/mcp` itself.
pub(crate) fn profile_name(text: &str) -> String {
    match clip_name(&replace_characters(text), MAX_PROFILE, "profile") {
        name if name == trunkline_protocol::call::ProfileName::DEFAULT => {
            "default-agent".to_owned()
        }
        name => name,
    }
}

/// Returns a free name: the name itself, or the name with the first free number from 2 on.
pub(crate) fn unique_name(name: &str, max: usize, is_taken: impl Fn(&str) -> bool) -> String {
    if !is_taken(name) {
        return name.to_owned();
    }
    let numbered = (2_u32..).map(|number| {
        let ending = format!("-{number}");
        format!("{}{ending}", trunkline_core::text::clip(name, max - ending.len()))
    });
    numbered.into_iter().find(|name| !is_taken(name)).unwrap_or_default()
}

fn replace_characters(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    // `@scope/name` and `com.example/name` end in the part that names the server.
    let last = text.rsplit('/').find(|part| part.contains(allowed)).unwrap_or(text);
    last.chars().map(|c| if allowed(c) { c } else { '-' }).collect()
}

fn clip_name(name: &str, max: usize, fallback: &str) -> String {
    let name = name.trim_matches('-');
    let name = trunkline_core::text::clip(name, max).trim_end_matches(['-', '_']);
    if name.is_empty() { fallback.to_owned() } else { name.to_owned() }
}

/// Maximum bytes of a profile's name.
const MAX_PROFILE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_a_valid_name_and_a_valid_name_stays() {
        for (text, expected) in [
            ("github", "github"),
            ("My Server", "My-Server"),
            ("a__b___c", "a_b_c"),
            ("@scope/files", "files"),
            ("io.github.acme/weather", "weather"),
            ("", "server"),
            ("天気", "server"),
            ("a-very-long-name-of-a-server-that-does-not-end", "a-very-long-name-of-a-server-tha"),
        ] {
            let name = server_name(text);
            assert_eq!(name, expected);
            assert!(ServerName::new(&name).is_ok(), "{name}");
        }
        assert_eq!(profile_name("default"), "default-agent");
    }

    #[test]
    fn a_taken_name_gets_a_number_within_the_length() {
        let long = "x".repeat(32);
        assert_eq!(unique_name("a", 32, |name| name == "a"), "a-2");
        let name = unique_name(&long, 32, |name| name == long);
        assert_eq!(name, format!("{}-2", "x".repeat(30)));
    }
}
