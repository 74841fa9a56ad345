//! The catalog as its users see it: lists in, names and listings out.

mod hidden_tools;
mod identities;
mod naming;
mod tool;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use trunkline_config::{Config, ConfigSource, NamingChoice, SystemEnvironment};
use trunkline_jsonrpc::JsonError;

use super::*;

/// One server of a test, with its rules.
#[derive(Debug)]
struct Server {
    name: ServerName,
    rules: ServerRules,
    list: Option<ServerList>,
}

fn server(name: &str, tools: &[&str]) -> Server {
    let raws: Vec<_> = tools.iter().map(|tool| raw(tool)).collect();
    let name = ServerName::new(name).unwrap();
    let list = built(name.clone(), raws, HeaderRules::Enforce, None).0;
    Server { name, rules: ServerRules::default(), list: Some(list) }
}

/// A list of tools only.
fn built(
    name: ServerName,
    tools: Vec<Bytes>,
    rules: HeaderRules,
    old: Option<&ServerList>,
) -> (ServerList, Vec<RejectedElement>) {
    ServerList::build(name, &ByKind { tools: Some(tools), ..ByKind::default() }, rules, old)
}

#[test]
fn lists_of_both_eras_share_equal_entries() {
    let name = ServerName::new("s").unwrap();
    let build = |rules, old| built(name.clone(), vec![raw("a"), raw("b")], rules, old).0;
    let modern = build(HeaderRules::Enforce, None);
    let mut legacy = build(HeaderRules::Ignore, Some(&modern));
    legacy.freshness = ByKind::from_fn(|_| Freshness::FOR_EVER);
    assert!(legacy.offers_the_same(&modern) && !legacy.is_same(&modern));
    let apart = build(HeaderRules::Ignore, None);
    assert!(apart.offers_the_same(&modern), "compared by what the server sent");
}

impl Server {
    fn renaming(mut self, renames: &[(&str, &str)]) -> Self {
        let change =
            |name: &str| ToolChange { name: Some(PublicName::new(name)), ..ToolChange::default() };
        let overrides = renames.iter().map(|(native, name)| ((*native).to_owned(), change(name)));
        self.rules = ServerRules::new(|_| true, overrides.collect());
        self
    }

    fn silent(mut self) -> Self {
        self.list = None;
        self
    }
}

fn raw(name: &str) -> Bytes {
    json!({"name": name, "inputSchema": {"type": "object"}}).to_string().into()
}

fn merge(naming: impl Into<Naming>, servers: &[Server]) -> (Catalog, Vec<MergeFault>) {
    let sources: Vec<_> = servers
        .iter()
        .map(|one| MergeSource { server: &one.name, rules: &one.rules, list: one.list.as_ref() })
        .collect();
    Catalog::merge(&rules(naming), &sources, &Scope::default())
}

fn rules(naming: impl Into<Naming>) -> Rules {
    Rules {
        naming: naming.into(),
        uris: UriMode::Prefix,
        own_tools: Vec::new(),
        has_meta_tools: false,
    }
}

/// The names that these settings of `[gateway]` make.
pub(super) fn naming(settings: &str) -> Naming {
    let bytes = format!("[gateway]\n{settings}").into_bytes();
    let source = ConfigSource { name: "gateway.toml".into(), folder: "/".into(), bytes };
    Naming::new(&Config::read(&source, &SystemEnvironment).unwrap().gateway)
}

impl From<NamingChoice> for Naming {
    fn from(choice: NamingChoice) -> Self {
        naming(&format!("naming = {:?}", choice.as_str()))
    }
}

/// The catalog as `public=server/native`, in listing order.
fn names(naming: impl Into<Naming>, servers: &[Server]) -> Vec<String> {
    let entry = |one: &ToolEntry| format!("{}={}/{}", one.public, one.server, one.native());
    merge(naming, servers).0.entries().map(entry).collect()
}

fn listed(catalog: &Catalog) -> Vec<String> {
    names_in(catalog.list(Kind::Tools).bytes())
}

fn names_in(tools: &[u8]) -> Vec<String> {
    let tools: Vec<Value> = serde_json::from_slice(tools).unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_tool_keeps_every_byte_but_its_name_and_description() {
    let name = ServerName::new("s").unwrap();
    let raws = [
        Bytes::from_static(
            br#" { "z" : [1 , 2.50] , "na\u006de" : "a\u0062" ,"description":"old", "inputSchema" :{"type":"object"}, "_meta":{"k":1e2} }  "#,
        ),
        Bytes::from_static(br#"{"name":"c","inputSchema":{"type":"object"}}"#),
    ];
    let (list, refused) = built(name.clone(), raws.to_vec(), HeaderRules::Enforce, None);
    assert_eq!(refused, []);
    let said = |text: &str| ToolChange { description: Some(text.into()), ..ToolChange::default() };
    let overrides = BTreeMap::from([("ab".into(), said("new \"x\"")), ("c".into(), said("C"))]);
    for (naming, changes, expected) in [
        (
            NamingChoice::None,
            ServerRules::default(),
            r#"[{ "z" : [1 , 2.50] , "na\u006de" : "a\u0062" ,"description":"old", "inputSchema" :{"type":"object"}, "_meta":{"k":1e2} },{"name":"c","inputSchema":{"type":"object"}}]"#,
        ),
        (
            NamingChoice::Prefix,
            ServerRules::new(|_| true, overrides),
            r#"[{ "z" : [1 , 2.50] , "na\u006de" : "s__ab" ,"description":"new \"x\"", "inputSchema" :{"type":"object"}, "_meta":{"k":1e2} },{"name":"s__c","description":"C","inputSchema":{"type":"object"}}]"#,
        ),
    ] {
        let source = MergeSource { server: &name, rules: &changes, list: Some(&list) };
        let (catalog, warnings) = Catalog::merge(&rules(naming), &[source], &Scope::default());
        assert_eq!(std::str::from_utf8(catalog.list(Kind::Tools).bytes()).unwrap(), expected);
        assert_eq!(warnings, []);
    }
}

#[test]
fn a_hidden_tool_is_neither_listed_nor_found() {
    let mut one = server("s", &["read", "write"]);
    one.rules = ServerRules::new(|native| native != "write", BTreeMap::new());
    let (catalog, _) = merge(NamingChoice::Prefix, &[one]);
    assert_eq!(listed(&catalog), ["s__read"]);
    assert!(catalog.find_tool("s__write").is_none());
    assert!(catalog.find_tool("write").is_none());
}

#[test]
fn a_renamed_tool_answers_to_its_new_name_only() {
    let (catalog, _) =
        merge(NamingChoice::Prefix, &[server("s", &["a", "b"]).renaming(&[("a", "find.it")])]);
    assert_eq!(listed(&catalog), ["find.it", "s__b"]);
    assert_eq!(catalog.find_tool("find.it").unwrap().native().as_str(), "a");
    assert!(catalog.find_tool("s__a").is_none());
}

#[test]
fn a_change_to_a_tool_that_is_not_there_is_warned_about_once_the_server_has_answered() {
    let typo = || server("s", &["a"]).renaming(&[("aa", "x")]);
    let said: Vec<_> =
        merge(NamingChoice::Prefix, &[typo()]).1.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [r#"the configuration overrides tool "aa" of server s, which that server does not list"#]
    );
    assert_eq!(merge(NamingChoice::Prefix, &[typo().silent()]).1, []);
}

#[test]
fn the_digest_changes_with_the_listing_and_only_then() {
    let digest =
        |servers: &[Server]| *merge(NamingChoice::Prefix, servers).0.list(Kind::Tools).digest();
    let base = digest(&[server("s", &["a", "b"])]);
    assert_eq!(base, digest(&[server("s", &["a", "b"]), server("t", &[])]));
    assert_ne!(base, digest(&[server("s", &["b", "a"])]));
    assert_ne!(base, digest(&[server("s", &["a"])]));
}

#[test]
fn pages_cut_the_listing_without_gap_or_repetition() {
    let tools: Vec<_> = (0..7).map(|i| format!("t{i}")).collect();
    let tools: Vec<_> = tools.iter().map(String::as_str).collect();
    let (catalog, _) =
        merge(NamingChoice::None, &[server("a", &tools[..3]), server("b", &tools[3..])]);
    for size in 1..=9 {
        let (mut seen, mut from) = (Vec::new(), None);
        loop {
            let page = catalog.list(Kind::Tools).page(from, NonZeroUsize::new(size).unwrap());
            let names = names_in(&page.items);
            assert!(names.len() <= size);
            seen.extend(names);
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(seen, tools, "{size}");
    }
    let behind = catalog.list(Kind::Tools).page(Some(ListPosition(99)), NonZeroUsize::MIN);
    assert_eq!(behind, ListPage { items: Bytes::from_static(b"[]"), next: None });
}

#[test]
fn a_catalog_without_tools_is_an_empty_array() {
    let (catalog, warnings) = merge(NamingChoice::Conflict, &[server("s", &["a"]).silent()]);
    assert_eq!((catalog.list(Kind::Tools).bytes().as_ref(), warnings), (&b"[]"[..], vec![]));
    assert_eq!(catalog.list(Kind::Tools).page(None, NonZeroUsize::MIN).items, "[]");
}

#[test]
fn freshness_is_the_strictest_of_all_servers() {
    let lenient = |seconds| {
        let mut one = server("s", &[]);
        let ttl = Duration::from_secs(seconds);
        one.list.as_mut().unwrap().freshness.tools = Freshness { ttl, scope: CacheScope::Public };
        one
    };
    let both = merge(NamingChoice::None, &[lenient(9), lenient(5)]).0.list(Kind::Tools).freshness();
    assert_eq!(both, Freshness { ttl: Duration::from_secs(5), scope: CacheScope::Public });
    let silent =
        merge(NamingChoice::None, &[lenient(9), server("t", &[])]).0.list(Kind::Tools).freshness();
    assert_eq!(silent, Freshness::default());
}

#[test]
fn unchanged_tools_are_taken_over_and_not_compiled_again() {
    let name = ServerName::new("s").unwrap();
    let build = |raws: &[&str], rules, old: Option<&ServerList>| {
        let raws: Vec<_> = raws.iter().map(|name| raw(name)).collect();
        built(name.clone(), raws, rules, old).0
    };
    let old = build(&["a", "b"], HeaderRules::Enforce, None);
    let new = build(&["c", "b"], HeaderRules::Enforce, Some(&old));
    assert!(Arc::ptr_eq(&new.tools[1], &old.tools[1]));
    let lenient = build(&["a", "b"], HeaderRules::Ignore, None);
    let strict = build(&["a", "b"], HeaderRules::Enforce, Some(&lenient));
    assert!(!Arc::ptr_eq(&strict.tools[1], &lenient.tools[1]), "judged by stricter rules");
}

#[test]
fn an_invalid_tool_is_lost_alone_and_named() {
    let raws = [
        r#"{"name":"a","inputSchema":{}}"#,
        "nonsense",
        r#"{"name":"ok","inputSchema":{"type":"object"}}"#,
        r#"{"name":"ok","inputSchema":{"type":"object"},"title":"2"}"#,
    ];
    let raws = raws.map(|raw| Bytes::from_static(raw.as_bytes())).to_vec();
    let name = ServerName::new("s").unwrap();
    let (list, refused) = built(name, raws, HeaderRules::Enforce, None);
    assert_eq!(list.tools.len(), 1);
    assert_eq!(
        refused,
        [
            (Kind::Tools, "a".to_owned(), ItemError::Schema(SchemaError::RootType)),
            (Kind::Tools, "#2".to_owned(), ItemError::NotAnObject),
            (Kind::Tools, "ok".to_owned(), ItemError::Repeated),
        ]
    );
}

#[test]
fn a_catalog_can_be_shared_between_workers() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&merge(NamingChoice::Prefix, &[]).0);
    shared(&SealedCursors::new([[0; 32].as_slice()]).unwrap());
}

fn any_servers() -> impl Strategy<Value = Vec<Server>> {
    let tool = prop_oneof!["[ab_]{1,6}", "[a-c_.é ]{1,4}", "[a-b]{60,70}", "a__[ab]", ".{1,8}"];
    let rename = prop::option::weighted(0.1, "[ab_]{1,6}");
    let tools = prop::collection::vec((tool, rename), 0..8);
    prop::collection::btree_map("[ab][ab_-]{0,2}", tools, 1..5).prop_map(|servers| {
        let valid = servers.iter().filter(|(name, _)| ServerName::new(name).is_ok());
        valid
            .map(|(name, tools)| {
                let natives: Vec<_> = tools.iter().map(|(native, _)| native.as_str()).collect();
                let renames = tools.iter().filter_map(|(n, to)| Some((n.as_str(), to.as_deref()?)));
                server(name, &natives).renaming(&renames.collect::<Vec<_>>())
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_name_leads_to_one_tool_and_back(servers in any_servers()) {
        for naming in [
            NamingChoice::Prefix,
            NamingChoice::Conflict,
            NamingChoice::First,
            NamingChoice::None,
        ] {
            let (catalog, warnings) = merge(naming, &servers);
            let mut origins = HashSet::new();
            for entry in catalog.entries() {
                let found = catalog.find_tool(entry.public.as_str()).unwrap();
                prop_assert!(std::ptr::eq(found, entry));
                prop_assert!(origins.insert((entry.server.clone(), entry.native().clone())));
            }
            let public: Vec<_> = catalog.entries().map(|one| one.public.to_string()).collect();
            prop_assert_eq!(&public, &listed(&catalog));
            let all: usize = servers.iter().map(|one| one.list.as_ref().unwrap().tools.len()).sum();
            let lost = warnings.iter().filter(|one| matches!(one, MergeFault::NameTaken { .. })).count();
            prop_assert_eq!(catalog.entries().len() + lost, all);
        }
    }

    #[test]
    fn every_produced_name_suits_the_strictest_model_provider(servers in any_servers()) {
        for naming in [
            NamingChoice::Prefix.into(),
            NamingChoice::Conflict.into(),
            NamingChoice::First.into(),
            naming("naming = \"first\"\nname_case = \"snake\"\nname_format = \"{tool}_of_{server}\""),
        ] as [Naming; 4] {
            for entry in merge(naming, &servers).0.entries() {
                let name = entry.public.as_str();
                prop_assert!((1..=64).contains(&name.len()), "{}", name);
                prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
            }
        }
    }

    #[test]
    fn the_file_order_decides_the_order_and_no_produced_name(servers in any_servers()) {
        let mut servers = servers;
        for one in &mut servers {
            one.rules = ServerRules::default();
        }
        for naming in [NamingChoice::Prefix, NamingChoice::Conflict] {
            let mut forward = names(naming, &servers);
            servers.reverse();
            let mut backward = names(naming, &servers);
            forward.sort();
            backward.sort();
            prop_assert_eq!(forward, backward);
        }
    }

    #[test]
    fn no_bytes_make_parsing_panic(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Tool::parse(&raw, HeaderRules::Enforce);
    }

    #[test]
    fn no_broken_tool_makes_parsing_panic(cut in 0_usize..200, byte in any::<u8>()) {
        let mut raw = br#"{"name":"a\u00e9","description":"d","inputSchema":{"type":"object","properties":{"p":{"type":"string","x-mcp-header":"P","pattern":"^a"}},"required":["p"]},"icons":[]}"#.to_vec();
        let place = cut % raw.len();
        raw[place] = byte;
        let whole = Tool::parse(&raw, HeaderRules::Enforce);
        if let Ok(tool) = whole {
            let mut out = Vec::new();
            tool.bytes().splice("public", Some("said"), Cow::Borrowed, &ServerOffers::default(), &mut out);
            let back: Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(&back["name"], "public");
            prop_assert_eq!(&back["description"], "said");
        }
        raw.truncate(place);
        let _ = Tool::parse(&raw, HeaderRules::Enforce);
    }
}
