//! Callers who may not use all tools: lists do not mention the others, and everything else is
//! unchanged.

use super::*;

/// Hides tools by their native names.
#[derive(Debug)]
struct Without(&'static [&'static str]);

impl ElementFilter for Without {
    fn shows(&self, element: &CatalogElement<'_>) -> bool {
        element.kind != Kind::Tools || !self.0.contains(&element.native)
    }

    fn shows_unlisted(&self, _: &ServerName) -> bool {
        true
    }

    fn may_hear_of(&self, _: &ServerName) -> bool {
        true
    }

    fn denies_resources(&self, _: &ServerName) -> bool {
        false
    }
}

fn server_with_texts() -> Server {
    let name = ServerName::new("s").unwrap();
    let tool = json!({
        "name": "read", "description": "Reads.",
        "inputSchema": { "type": "object", "required": ["path"], "properties": {
            "path": { "type": "string", "description": "Where. Else see read_all." },
        } },
    });
    let prompt = json!({
        "name": "tidy", "title": "As read_all",
        "arguments": [{ "name": "path", "description": "As of `read_all`." }],
    });
    let resource = |key: &str| json!({ key: "a:b", "name": "n", "description": "A. By read_all." });
    let lists = ByKind {
        tools: Some(vec![tool.to_string().into(), raw("read_all")]),
        prompts: Some(vec![prompt.to_string().into()]),
        resources: Some(vec![resource("uri").to_string().into()]),
        templates: Some(vec![resource("uriTemplate").to_string().into()]),
        skills: None,
    };
    let (list, refused) = ServerList::build(name.clone(), &lists, HeaderRules::Enforce, None);
    assert!(refused.is_empty());
    Server { name, rules: ServerRules::default(), list: Some(list) }
}

fn merge_for(server: &Server, rights: Option<Without>) -> Catalog {
    let (rules, list) = (&server.rules, server.list.as_ref());
    let source = MergeSource { server: &server.name, rules, list };
    let rights = rights.map(|rights| Arc::new(rights) as Arc<dyn ElementFilter>);
    let scope = Scope::default().with_rights(rights);
    Catalog::merge(&super::rules(NamingChoice::Prefix), &[source], &scope).0
}

fn listed(catalog: &Catalog, kind: Kind) -> String {
    String::from_utf8(catalog.list(kind).bytes().to_vec()).unwrap()
}

#[test]
fn no_text_of_a_list_names_a_hidden_tool() {
    let server = server_with_texts();
    let catalog = merge_for(&server, Some(Without(&["read_all"])));
    for kind in Kind::ALL {
        let list = listed(&catalog, kind);
        assert!(!list.contains("read_all"), "{list}");
    }
    assert!(listed(&catalog, Kind::Tools).contains(r#""description":"Where.""#));
    assert!(listed(&catalog, Kind::Prompts).contains(r#"[{"name":"path","description":""}]"#));
    assert!(listed(&catalog, Kind::Resources).contains(r#""description":"A.""#));
    assert!(listed(&catalog, Kind::Templates).contains(r#""description":"A.""#));
    assert!(catalog.entries().all(|entry| entry.is_redescribed));
}

#[test]
fn a_tool_that_loses_texts_is_checked_and_pinned_as_its_server_listed_it() {
    let server = server_with_texts();
    let listed = &server.list.as_ref().unwrap().tools[0];
    let catalog = merge_for(&server, Some(Without(&["read_all"])));
    let entry = catalog.find_tool("s__read").unwrap();
    assert!(Arc::ptr_eq(&entry.tool, listed));
    assert!(entry.tool.arguments.check(Some(b"{}")).is_err());
}

#[test]
fn without_rights_or_hidden_tools_every_byte_stays() {
    let server = server_with_texts();
    let plain = merge_for(&server, None);
    let all = merge_for(&server, Some(Without(&[])));
    for kind in Kind::ALL {
        assert_eq!(listed(&plain, kind), listed(&all, kind));
    }
    assert!(listed(&plain, Kind::Prompts).contains("read_all"));
    assert!(!plain.entries().chain(all.entries()).any(|entry| entry.is_redescribed));
}
