//! The identities of elements, as rules that deny match them.

use super::super::{ElementIdentities, Kind};
use super::*;
use crate::selection::visibility::{CatalogElement, ElementBasis};

fn identities(settings: &str, kind: Kind, public: &str, native: &str) -> Vec<String> {
    let (server, naming) = (ServerName::new("git").unwrap(), naming(settings));
    let (tool, basis) = (None, ElementBasis::Itself);
    let element = CatalogElement { kind, server: Some(&server), public, native, tool, basis };
    ElementIdentities::new(&element, &naming).iter().map(ToOwned::to_owned).collect()
}

#[test]
fn a_tool_has_every_name_that_a_naming_may_make_of_it() {
    let all = identities("", Kind::Tools, "git__push", "push");
    assert_eq!(all, ["git__push", "push", "git__push_hhhvhgat"]);
    let custom = "name_format = \"mcp_{server}_{tool}\"\nname_case = \"snake\"";
    let all = identities(custom, Kind::Prompts, "rm", "deleteAll");
    for name in ["rm", "deleteAll", "delete_all", "git__deleteAll", "mcp_git_delete_all"] {
        assert!(all.iter().any(|one| one == name), "{name}: {all:?}");
    }
    let long = format!("git__{}", "x".repeat(70));
    let all = identities("naming = \"first\"", Kind::Tools, "cut", &long[5..]);
    assert!(all.contains(&long), "{all:?}");
}

#[test]
fn every_public_name_is_an_identity_whatever_others_list() {
    let long = "y".repeat(70);
    let natives = ["x", "__x", "a.b", "a_b", "aB", "日本", &*long, "git__x"];
    for settings in [
        "naming = \"prefix\"",
        "naming = \"conflict\"",
        "naming = \"first\"",
        "naming = \"none\"",
        "naming = \"conflict\"\nname_format = \"{tool}{server}\"\nname_case = \"snake\"",
    ] {
        let servers = [server("gi", &natives), server("git", &natives), server("t", &natives)];
        let (catalog, _) = merge(naming(settings), &servers);
        let naming = naming(settings);
        for entry in catalog.entries() {
            // The element as it was before the others took its name.
            let element = CatalogElement {
                kind: Kind::Tools,
                server: Some(&entry.server),
                public: "",
                native: entry.native().as_str(),
                tool: None,
                basis: ElementBasis::Itself,
            };
            let all = ElementIdentities::new(&element, &naming);
            let public = entry.public.as_str();
            assert!(all.iter().any(|one| one == public), "{settings} {public}");
        }
    }
}

#[test]
fn a_resource_has_its_own_uri_and_that_behind_the_prefix() {
    let native = "file:///a";
    for public in [native, "mcp://git/file:///a"] {
        let mut all = identities("", Kind::Resources, public, native);
        all.sort_unstable();
        assert_eq!(all, [native, "mcp://git/file:///a"]);
    }
    let all = identities("", Kind::Resources, "ui://app", "ui://app");
    assert_eq!(all, ["ui://app", "ui://mcp.git/ui://app"]);
}

#[test]
fn a_tool_of_the_gateway_has_one_name() {
    let (element, naming) = (CatalogElement::own_tool("own"), naming(""));
    assert_eq!(ElementIdentities::new(&element, &naming).iter().collect::<Vec<_>>(), ["own"]);
}
