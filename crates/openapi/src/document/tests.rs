use trunkline_config::{Config, ConfigSource, ServerKind, SystemEnvironment};

use serde_json::json;

use super::*;

/// Returns the description of a document with a limit of `looks` and more lines of configuration.
fn describe(tree: Value, looks: usize, lines: &str) -> ApiDescription {
    let text = format!("[servers.api]\nopenapi = \"http://a.test/openapi.json\"\n{lines}");
    let (name, folder) = ("test".to_owned(), std::env::temp_dir());
    let source = ConfigSource { name, folder, bytes: text.into() };
    let config = Config::read(&source, &SystemEnvironment).unwrap();
    let ServerKind::OpenApi(api) = &config.servers[0].target else { panic!("another kind") };
    let mut set = DocumentSet::new(Url::parse("http://a.test/openapi.json").unwrap(), tree);
    set.limit_looks(looks);
    describe_api(&set, api).unwrap()
}

#[test]
fn a_document_that_refers_to_the_same_values_too_often_is_read_in_part() {
    let parameter = |at| json!({ "name": format!("p{at}"), "in": "query" });
    let parameters: Vec<_> = (0..100).map(parameter).collect();
    let paths: serde_json::Map<_, _> =
        (0..100).map(|at| (format!("/p{at}"), json!({ "$ref": "#/shared" }))).collect();
    let shared = json!({ "get": { "parameters": parameters } });
    let tree = json!({ "openapi": "3.1.0", "paths": paths, "shared": shared });
    let api = describe(tree.clone(), 1_000_000, "");
    assert_eq!((api.tools.len(), api.left_out.len()), (100, 0));
    let api = describe(tree, 5000, "");
    assert_eq!(api.tools.len() + api.left_out.len(), 100, "each is listed");
    assert!(api.tools.len() > 5 && api.left_out.len() > 5, "{}", api.tools.len());
    let is_exhausted = |fault: &OperationFault| *fault == OperationFault::Exhausted;
    assert!(api.left_out.iter().all(|(_, fault)| is_exhausted(fault)));
}

#[test]
fn an_operation_that_leaves_the_path_of_the_server_is_left_out() {
    let long = format!("/{}", "x".repeat(3000));
    let paths: serde_json::Map<_, _> = ["/a/../admin", "/%2e%2E/x", "/..", &long, "/a?x=.."]
        .into_iter()
        .map(|path| (path.to_owned(), json!({ "get": {} })))
        .collect();
    let api = describe(json!({ "openapi": "3.1.0", "paths": paths }), 1000, "");
    let kept: Vec<_> = api.tools.iter().map(|(_, label, _)| label.as_str()).collect();
    assert_eq!(kept, ["GET /a?x=.."]);
    assert!(api.left_out.iter().all(|(_, fault)| *fault == OperationFault::Path));
}

#[test]
fn resources_count_as_much_as_tools() {
    let text = "x".repeat(MAX_DESCRIPTION_BYTES);
    let lines = "include = [{ path = \"*\", as = \"resource\" }]\n";
    let path = |at| (format!("/p{at}"), json!({ "get": { "description": text } }));
    let paths: serde_json::Map<_, _> = (0..15_000).map(path).collect();
    let tree = json!({ "openapi": "3.1.0", "paths": paths });
    let api = describe(tree, 1_000_000, lines);
    let listed: usize = api.resources.iter().map(|one| one.element.len()).sum();
    assert!(listed <= MAX_TOOLS_BYTES && !api.resources.is_empty());
    assert_eq!(api.left_out.len() + api.resources.len(), 15_000);
}
