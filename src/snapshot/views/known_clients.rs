//! Known limits of clients' tools, for `discovery = "auto"`.
//!
//! Their vendors publish them; none was measured. An operator adds to them by `[search] clients`.

use crate::config::ToolAppetite;

/// Returns the number of tools that a client supports, by the name and version in its `clientInfo`;
/// `None` if it is unknown.
pub(crate) fn known_appetite(name: &str, version: &str) -> Option<ToolAppetite> {
    let name = name.to_ascii_lowercase();
    let known = KNOWN_CLIENTS.iter().find(|known| {
        let is_named = match known.name.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == known.name,
        };
        is_named && known.since.is_none_or(|since| read_version(version) >= since)
    });
    known.map(|known| known.appetite)
}

/// A known client.
struct KnownClient {
    /// Its name in lower case; a trailing `*` makes it a prefix.
    name: &'static str,
    /// The first version with this limit.
    since: Option<(u32, u32)>,
    appetite: ToolAppetite,
}

/// The first match counts.
const KNOWN_CLIENTS: &[KnownClient] = &[
    KnownClient { name: "claude-code", since: Some((2, 1)), appetite: ToolAppetite::All },
    KnownClient { name: "cursor*", since: None, appetite: ToolAppetite::AtMost(40) },
    KnownClient { name: "windsurf*", since: None, appetite: ToolAppetite::AtMost(100) },
    KnownClient { name: "visual studio code*", since: None, appetite: ToolAppetite::AtMost(128) },
];

/// Parses the first two numbers of a version; 0 for invalid ones.
fn read_version(version: &str) -> (u32, u32) {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_its_name_and_version() {
        for (name, version, expected) in [
            ("claude-code", "2.1.9", Some(ToolAppetite::All)),
            ("claude-code", "2.0.77", None),
            ("claude-code-fork", "2.1", None),
            ("Cursor", "1.0", Some(ToolAppetite::AtMost(40))),
            ("cursor-vscode", "", Some(ToolAppetite::AtMost(40))),
            ("my-agent", "1.0", None),
        ] {
            assert_eq!(known_appetite(name, version), expected, "{name} {version}");
        }
    }
}
