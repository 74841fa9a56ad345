//! Generated spellings of URIs in front of servers on the official SDKs. A denied resource or
//! template that they serve without rules is not served under rules, and allowed ones are.

use fastrand::Rng;
use serde_json::json;

use super::peers::file;
use super::support::{Client, Gateway};

mod respelled;

use respelled::{expand, extend, pick, respell};

/// Number of reads at each of the four servers.
const CASES_EACH: usize = 500;

const RESOURCES: [&str; 6] = [
    "file:///secret.txt",
    "file:///pub/a.txt",
    "https://example.com/secret",
    "https://example.com/open",
    "note://h/secret",
    "note://h/open",
];

/// The denied elements, and rules that deny them.
const DENIED: [&str; 5] = [
    "file:///secret.txt",
    "https://example.com/secret",
    "note://h/secret",
    "db://Prod/{id}",
    "https://a.example/{x}",
];
const RULES: &str = r#"
[policy.rules.all]
[policy.rules.patterns]
effect = "deny"
resources = ["mcp://s/file:///secret.txt", "mcp://s/db://Prod/{id}", "https://a.example/{x}"]
[policy.rules.condition]
effect = "deny"
when = "item.native in ['https://example.com/secret', 'note://h/secret']"
"#;

/// Templates that every SDK can serve, in matching order.
const TEMPLATES: [&str; 5] = [
    "db://Prod/{id}",
    "db://{table}/{id}",
    "https://a.example/{x}",
    "https://{host}/{x}",
    "file:///{name}",
];
/// Templates with values of several segments, which the Python SDK 1.x cannot serve.
const WIDE: [&str; 3] = ["db://{+all}", "file:///{+path}", "https://{+rest}"];

/// One server on an official SDK.
struct SdkServer {
    sdk: &'static str,
    templates: Vec<&'static str>,
    command: String,
    args: Vec<String>,
}

impl SdkServer {
    fn typescript(version: &'static str) -> Self {
        let templates = [&TEMPLATES[..], &WIDE[..]].concat();
        let args = vec![file("resources_server.mjs"), version.to_owned()];
        Self { sdk: "TypeScript", templates, command: "node".to_owned(), args }
    }

    fn python(environment: &'static str) -> Self {
        let more = if environment == ".venv-v1" { &[][..] } else { &WIDE[..] };
        let command = file(&format!("{environment}/bin/python"));
        let args = vec![file("resources_server.py")];
        Self { sdk: environment, templates: [&TEMPLATES[..], more].concat(), command, args }
    }

    /// Returns its lines in the configuration.
    fn lines(&self) -> String {
        let offered = json!({ "resources": RESOURCES, "templates": self.templates });
        let args = [&self.args[..], &[offered.to_string()]].concat();
        format!("command = {:?}\nargs = {args:?}\n", self.command)
    }
}

/// Returns the element that a server serves for a URI; `None` if the read is refused.
async fn serve(client: &Client, native: &str) -> Option<String> {
    let said = client.read_resource(&format!("mcp://s/{native}")).await.answer().clone();
    Some(said["result"]["contents"][0]["text"].as_str()?.to_owned())
}

/// Reads generated URIs with and without rules; returns the number of reads that a rule had to deny.
async fn compare(server: &SdkServer, seed: u64) -> usize {
    let lines = server.lines();
    let open = Gateway::with("s", &lines).start().await;
    let guarded = Gateway::with("s", &lines).toml(RULES).start().await;
    open.ready("s").await;
    guarded.ready("s").await;
    let (direct, ruled) = (open.modern(), guarded.modern());
    let (mut rng, mut denied) = (Rng::with_seed(seed), 0);
    for case in 0..CASES_EACH {
        let of = match rng.u8(..3) {
            0 => {
                let template = pick(&mut rng, &server.templates);
                expand(&mut rng, template)
            }
            _ => pick(&mut rng, &RESOURCES).to_owned(),
        };
        let respelled = respell(&mut rng, &of);
        let uri = if rng.u8(..6) == 0 { extend(&mut rng, &respelled) } else { respelled };
        let (without, with) = (serve(&direct, &uri).await, serve(&ruled, &uri).await);
        let context = format!(
            "{} seed {seed} case {case}: {uri:?} of {of:?} is {without:?}, and {with:?} with rules",
            server.sdk
        );
        let is_denied =
            |one: &Option<String>| one.as_deref().is_some_and(|it| DENIED.contains(&it));
        assert!(!is_denied(&with), "{context}");
        denied += usize::from(is_denied(&without));
        // A listed resource is served in every spelling that its server accepts; for other
        // spellings, the gateway sends the listed one.
        let is_listed = without.as_deref().is_some_and(|it| RESOURCES.contains(&it));
        let is_plain = uri == of && is_canonical(&of) && !is_like_denied(&of);
        if !is_denied(&without) && (is_listed || is_plain) {
            assert_eq!(with, without, "{context}");
        }
        let is_same = with == without || with.as_ref() == Some(&of);
        assert!(is_same || with.is_none(), "{context}");
    }
    open.stop().await;
    guarded.stop().await;
    denied
}

/// Returns true if a URI has the form of the WHATWG URL standard.
fn is_canonical(uri: &str) -> bool {
    url::Url::parse(uri).is_ok_and(|url| url.as_str() == uri)
}

/// Returns true if a URI may lead to a denied element at some server, or lacks a value that all
/// SDKs but the Python SDK 2.x require.
fn is_like_denied(uri: &str) -> bool {
    let uri = uri.to_ascii_lowercase();
    let is_denied = ["db://prod", "https://a.example/"].iter().any(|start| uri.starts_with(start));
    is_denied || uri.contains("secret") || uri.ends_with('/') || uri[4..].contains("///")
}

#[tokio::test]
async fn servers_on_the_official_sdks_serve_nothing_denied_in_any_spelling() {
    file("node_modules/.installed-from");
    let servers = [
        SdkServer::typescript("1"),
        SdkServer::typescript("2"),
        SdkServer::python(".venv-v1"),
        SdkServer::python(".venv-v2"),
    ];
    let [one, two, three, four] = &servers;
    let denied =
        tokio::join!(compare(one, 1), compare(two, 2), compare(three, 3), compare(four, 4));
    for denied in <[usize; 4]>::from(denied) {
        assert!(denied > CASES_EACH / 10, "the servers serve denied elements: {denied:?}");
    }
}
