use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use trunkline_config::NamingChoice;

use super::*;
use crate::{ByKind, Catalog, HeaderRules, Rules, Scope, ServerList, ServerOffers, ServerRules};

/// One server of a test.
#[derive(Debug, Clone)]
struct Server {
    name: ServerName,
    resources: Vec<String>,
    templates: Vec<String>,
    variables: BTreeMap<String, String>,
    /// URIs of its tools' user interfaces.
    interfaces: Vec<String>,
    offers: bool,
    listed: bool,
}

fn server(name: &str, resources: &[&str], templates: &[&str]) -> Server {
    let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    Server {
        name: ServerName::new(name).unwrap(),
        resources: owned(resources),
        templates: owned(templates),
        variables: BTreeMap::new(),
        interfaces: Vec::new(),
        offers: true,
        listed: true,
    }
}

impl Server {
    fn binding(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    fn with_interface(mut self, uri: &str) -> Self {
        self.interfaces.push(uri.into());
        self
    }

    fn without_resources(mut self) -> Self {
        self.offers = false;
        self
    }

    fn silent(mut self) -> Self {
        self.listed = false;
        self
    }

    fn list(&self) -> Option<ServerList> {
        let raws =
            |all: Vec<Value>| Some(all.iter().map(|one| Bytes::from(one.to_string())).collect());
        let lists = ByKind {
            tools: raws(
                self.interfaces
                    .iter()
                    .enumerate()
                    .map(|(i, uri)| json!({ "name": format!("t{i}"), "inputSchema": { "type": "object" }, "_meta": { "ui": { "resourceUri": uri } } }))
                    .collect(),
            ),
            prompts: None,
            resources: raws(self.resources.iter().map(|uri| json!({ "name": "r", "uri": uri })).collect()),
            templates: raws(
                self.templates.iter().map(|uri| json!({ "name": "t", "uriTemplate": uri })).collect(),
            ),
            skills: None,
        };
        let mut list = ServerList::build(self.name.clone(), &lists, HeaderRules::Ignore, None).0;
        let offers = if self.offers { json!({ "resources": {} }) } else { json!({}) };
        list.offers = Arc::new(ServerOffers::new(&offers, None));
        self.listed.then_some(list)
    }
}

fn merged(mode: UriMode, servers: &[Server]) -> (Catalog, Vec<MergeFault>) {
    let parts: Vec<_> = servers
        .iter()
        .map(|one| (ServerRules::default().with_variables(one.variables.clone()), one.list()))
        .collect();
    let sources: Vec<_> = servers
        .iter()
        .zip(&parts)
        .map(|(one, (rules, list))| MergeSource { server: &one.name, rules, list: list.as_ref() })
        .collect();
    Catalog::merge(
        &Rules {
            naming: NamingChoice::Prefix.into(),
            uris: mode,
            own_tools: Vec::new(),
            has_meta_tools: false,
        },
        &sources,
        &Scope::default(),
    )
}

fn catalog(mode: UriMode, servers: &[Server]) -> Catalog {
    merged(mode, servers).0
}

fn listed(catalog: &Catalog, kind: Kind, field: &str) -> Vec<String> {
    let all: Vec<Value> = serde_json::from_slice(catalog.list(kind).bytes()).unwrap();
    all.iter().map(|one| one[field].as_str().unwrap().to_owned()).collect()
}

fn resources(catalog: &Catalog) -> Vec<String> {
    listed(catalog, Kind::Resources, "uri")
}

fn templates(catalog: &Catalog) -> Vec<String> {
    listed(catalog, Kind::Templates, "uriTemplate")
}

/// The origin of a URI, as `server/native`.
fn way(catalog: &Catalog, uri: &str) -> Option<String> {
    let origin = catalog.uris().find_origin(uri)?;
    Some(format!("{} {}", origin.server, origin.native))
}

#[test]
fn a_prefix_stands_before_every_uri_and_is_taken_off_again() {
    let servers = [server("a", &["x://1"], &["x://{id}"]), server("b", &["x://1"], &[])];
    let catalog = catalog(UriMode::Prefix, &servers);
    assert_eq!(resources(&catalog), ["mcp://a/x://1", "mcp://b/x://1"]);
    assert_eq!(templates(&catalog), ["mcp://a/x://{id}"]);
    for (uri, leads) in [
        ("mcp://a/x://1", Some("a x://1")),
        ("mcp://b/x://1", Some("b x://1")),
        ("mcp://b/anything?at=all#x", Some("b anything?at=all#x")),
        ("mcp://A/x://7", Some("a x://7")),
        ("x://1", None),
        ("mcp://c/x://1", None),
        ("mcp://a/", None),
        ("mcp://a", None),
        ("", None),
    ] {
        assert_eq!(way(&catalog, uri).as_deref(), leads, "{uri}");
    }
}

#[test]
fn original_uris_stay_where_only_their_server_can_be_meant() {
    let servers = [
        server("a", &["x://1", "x://2", "mcp://b/x"], &["y://{id}", "f:///{p}"]),
        server("b", &["x://2", "y://3"], &["f:///etc/{p}"]),
    ];
    let catalog = catalog(UriMode::Original, &servers);
    assert_eq!(
        resources(&catalog),
        ["x://1", "mcp://a/x://2", "mcp://a/mcp://b/x", "mcp://b/x://2", "mcp://b/y://3"]
    );
    assert_eq!(templates(&catalog), ["y://{id}", "mcp://a/f:///{p}", "mcp://b/f:///etc/{p}"]);
    for (uri, leads) in [
        ("x://1", Some("a x://1")),
        ("y://anything", Some("a y://anything")),
        ("x://2", None),
        ("z://unknown", None),
        ("mcp://b/z://unknown", Some("b z://unknown")),
        ("mcp://a/mcp://b/x", Some("a mcp://b/x")),
    ] {
        assert_eq!(way(&catalog, uri).as_deref(), leads, "{uri}");
    }
}

#[test]
fn the_only_server_with_resources_is_passed_through_byte_for_byte() {
    let one = server("a", &["x://1", "mcp://a/odd"], &["{+any}"]);
    let servers = [one, server("b", &[], &[]).without_resources()];
    let catalog = catalog(UriMode::Original, &servers);
    assert_eq!(resources(&catalog), ["x://1", "mcp://a/odd"]);
    assert_eq!(templates(&catalog), ["{+any}"]);
    let uris = catalog.uris();
    for server in &servers {
        assert!(uris.keeps_native_uris(&server.name));
        assert_eq!(uris.public_uri(&server.name, "what:ever"), "what:ever");
    }
    assert_eq!(way(&catalog, "what:ever").as_deref(), Some("a what:ever"));
    assert_eq!(way(&catalog, "mcp://a/odd").as_deref(), Some("a mcp://a/odd"));
}

#[test]
fn a_relative_uri_is_listed_with_its_servers_prefix() {
    let relative = ["notes", "/etc/x", "7up:x", "a b:c", "docs/a:b"];
    let native = ["x://1", "urn:isbn:1", "a+b-c.d:x"];
    let listed: Vec<_> = native.iter().chain(&relative).copied().collect();
    for others in [vec![], vec![server("b", &["y://1"], &[])]] {
        let servers: Vec<_> = [server("a", &listed, &[])].into_iter().chain(others).collect();
        let catalog = catalog(UriMode::Original, &servers);
        let expected = native.iter().map(|uri| (*uri).to_owned());
        let expected = expected.chain(relative.iter().map(|uri| format!("mcp://a/{uri}")));
        let shown: Vec<_> = resources(&catalog).into_iter().take(listed.len()).collect();
        assert_eq!(shown, expected.collect::<Vec<_>>());
        assert_eq!(way(&catalog, "mcp://a/notes").as_deref(), Some("a notes"));
    }
}

#[test]
fn interfaces_keep_their_scheme_in_both_modes() {
    let servers = [
        server("a", &["ui://app/1"], &[]).with_interface("ui://app/2"),
        server("b", &["ui://app/1", "ui://app/3"], &[]).with_interface("ui://app/1"),
    ];
    for mode in [UriMode::Prefix, UriMode::Original] {
        let catalog = catalog(mode, &servers);
        assert_eq!(
            resources(&catalog),
            ["ui://app/1", "ui://mcp.b/ui://app/1", "ui://app/3"],
            "{mode:?}"
        );
        let tools: Vec<Value> = serde_json::from_slice(catalog.list(Kind::Tools).bytes()).unwrap();
        let interfaces = tools.iter().map(|tool| tool["_meta"]["ui"]["resourceUri"].clone());
        let interfaces: Vec<_> = interfaces.collect();
        assert_eq!(interfaces, ["ui://app/2", "ui://mcp.b/ui://app/1"], "{mode:?}");
        for (uri, leads) in [
            ("ui://app/1", Some("a ui://app/1")),
            ("ui://app/2", Some("a ui://app/2")),
            ("ui://app/3", Some("b ui://app/3")),
            ("ui://mcp.b/ui://app/1", Some("b ui://app/1")),
            ("ui://app/9", None),
        ] {
            assert_eq!(way(&catalog, uri).as_deref(), leads, "{mode:?} {uri}");
        }
    }
}

#[test]
fn bound_variables_turn_templates_into_resources_and_limit_reads() {
    let servers =
        [server("a", &["d://x/acme"], &["d://{tenant}/{id}", "e://{tenant}", "g://{id}"])
            .binding("tenant", "acme")
            .binding("typo", "x")];
    for (mode, prefix) in [(UriMode::Prefix, "mcp://a/"), (UriMode::Original, "")] {
        let (catalog, warnings) = merged(mode, &servers);
        let said: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [r#"the configuration binds "typo", which no resource template of server a has"#]
        );
        let public = |native: &str| format!("{prefix}{native}");
        assert_eq!(resources(&catalog), [public("d://x/acme"), public("e://acme")]);
        assert_eq!(templates(&catalog), [public("d://acme/{id}"), public("g://{id}")]);
        let leads = |native: &str| way(&catalog, &public(native)).is_some();
        assert!(leads("d://acme/7") && leads("e://acme") && leads("g://7"));
        assert!(leads("d://x/acme"), "listed by the server itself");
        assert!(!leads("d://other/7") && !leads("e://other"));
        assert!(!leads("other://x"), "neither listed nor of a template");
        let template = public("d://acme/{id}");
        let reference = catalog.uris().find_reference(&template, &|_, _| false).unwrap();
        assert_eq!(reference.origin.native.as_str(), "d://{tenant}/{id}");
        assert_eq!(&*reference.bound, [("tenant".to_owned(), "acme".to_owned())]);
    }
}

#[test]
fn a_bound_variable_cannot_be_led_around() {
    let templates = ["f:///d/{tenant}/{+path}", "f:///{top}/{x}/{y}", "g:///{+path}"];
    let one = server("a", &[], &templates).binding("tenant", "acme");
    let silent = one.clone().silent();
    let catalog_of = |server| catalog(UriMode::Prefix, &[server]);
    let listed = catalog_of(one);
    for (native, leads) in [
        ("f:///d/acme/x/y", true),
        ("f:///d/acme/x/..y", true),
        ("g:///x", true),
        ("f:///d/acme/../other/x", false),
        ("f:///d/acme/%2E%2e/other/x", false),
        ("f:///d/acme/..%2fother%2fx", false),
        ("f:///d/acme/..%5Cother", false),
        ("f:///d/acme/..\\other", false),
        ("f:///d/acme/.\t./other/x", false),
        ("f:///d/acme//d/other/x", false),
        ("f:///d/acme/%2Fd/other/x", false),
        // It matches the template without bound variables as well.
        ("f:///d/other/x", false),
        // From a template without bound variables.
        ("g:///../d/other/x", false),
        // From no template, but perhaps the same file.
        ("F:///d/other/x", false),
        ("f:///x/../d/other/x", false),
    ] {
        let uri = format!("mcp://a/{native}");
        assert_eq!(way(&listed, &uri).is_some(), leads, "{native}");
    }
    let unlisted = catalog_of(silent);
    assert_eq!(way(&unlisted, "mcp://a/f:///d/other/x"), None, "its templates are not known yet");
}

#[test]
fn a_resource_made_of_a_template_keeps_all_its_fields_but_the_key() {
    let server = server("a", &[], &["d://{x}"]).binding("x", "1");
    let mut list = server.list().unwrap();
    let raw = br#"{ "uriTemplate" : "d:\/\/{x}","name":"n","later":[1 , 2]}"#;
    list.templates = vec![Arc::new(CatalogItem::parse(Kind::Templates, raw).unwrap())];
    let rules = ServerRules::default().with_variables(server.variables.clone());
    let source = MergeSource { server: &server.name, rules: &rules, list: Some(&list) };
    let rules = Rules {
        naming: NamingChoice::Prefix.into(),
        uris: UriMode::Prefix,
        own_tools: Vec::new(),
        has_meta_tools: false,
    };
    let catalog = Catalog::merge(&rules, &[source], &Scope::default()).0;
    assert_eq!(
        catalog.list(Kind::Resources).bytes(),
        r#"[{ "uri" : "mcp://a/d://1","name":"n","later":[1 , 2]}]"#
    );
}

#[test]
fn a_server_that_has_not_listed_yet_can_be_read_from() {
    let silent = server("a", &[], &[]).silent();
    let without = server("a", &[], &[]).without_resources();
    for (one, leads) in [(silent, Some("a x://1")), (without, None)] {
        let catalog = catalog(UriMode::Prefix, &[one]);
        assert_eq!(way(&catalog, "mcp://a/x://1").as_deref(), leads);
    }
}

fn any_servers() -> impl Strategy<Value = Vec<Server>> {
    let uri = prop_oneof![
        "[xy]://[ab]{1,2}",
        "ui://[ab]",
        "mcp://[ab]/[xy]",
        "ui://mcp\\.[ab]/ui://x",
        r"[^\p{Cc}\\]{1,6}"
    ];
    let template =
        prop_oneof!["[xy]://\\{v\\}", "[xy]://a\\{\\+v\\}", "\\{\\+v\\}", "ui://\\{v\\}"];
    let lists = (
        prop::collection::vec(uri.clone(), 0..5),
        prop::collection::vec(template, 0..3),
        prop::collection::vec(uri, 0..2),
    );
    prop::collection::vec(lists, 1..4).prop_map(|servers| {
        let names = ["a", "b", "c"];
        let servers = names.iter().zip(servers);
        servers
            .map(|(name, (mut resources, mut templates, interfaces))| {
                resources.sort();
                resources.dedup();
                templates.sort();
                templates.dedup();
                Server { resources, templates, interfaces, ..server(name, &[], &[]) }
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_listed_uri_leads_back_to_where_it_came_from(servers in any_servers()) {
        for mode in [UriMode::Prefix, UriMode::Original] {
            let catalog = catalog(mode, &servers);
            let expected: Vec<_> = servers
                .iter()
                .flat_map(|one| one.resources.iter().map(move |uri| format!("{} {uri}", one.name)))
                .collect();
            let public = resources(&catalog);
            let found: Vec<_> = public.iter().filter_map(|uri| way(&catalog, uri)).collect();
            prop_assert_eq!(&found, &expected);
            let distinct: std::collections::HashSet<_> = public.iter().collect();
            prop_assert_eq!(distinct.len(), public.len());
            for (one, native) in servers.iter().flat_map(|s| s.resources.iter().map(move |r| (s, r))) {
                let again = catalog.uris().public_uri(&one.name, native);
                prop_assert!(public.iter().any(|uri| *uri == again));
            }
        }
    }

    #[test]
    fn unlisted_uris_in_an_answer_lead_back_as_well(
        servers in any_servers(),
        native in prop_oneof!["[xyz]://[abc]{1,3}", "ui://[abc]"],
    ) {
        for mode in [UriMode::Prefix, UriMode::Original] {
            let catalog = catalog(mode, &servers);
            for one in &servers {
                let public = catalog.uris().public_uri(&one.name, &native);
                let expected = format!("{} {native}", one.name);
                if native.starts_with(UI_SCHEME) && *public == native {
                    // An interface that no server lists keeps its URI, for any server that shows
                    // it.
                    continue;
                }
                prop_assert_eq!(way(&catalog, &public), Some(expected), "{}", public);
            }
        }
    }
}

/// RFC 6570, 2.4.1: a prefix has a length of 1 to 9999.
#[test]
fn a_prefix_that_is_none_is_ignored() {
    for (template, uri) in
        [("s://{a:2}", "s://va"), ("s://{a:0}", "s://value"), ("s://{a:10000}", "s://value")]
    {
        let bound = UriTemplate::parse(template).bind_variables(|_| Some("value"));
        assert_eq!(bound, BoundTemplate::Whole(uri.into()), "{template}");
    }
}
