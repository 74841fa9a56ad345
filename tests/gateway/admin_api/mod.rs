//! The admin API: the private socket, roles over TCP, problems, and the OpenAPI document.

mod activity;
mod logins;
mod bodies;
mod calls;
mod disabled;
mod documents;
mod certificates;
mod configuration;
mod guards;
mod limits;
mod operator_calls;
mod resources;
mod tokens;
mod server_checks;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::{Value, json};

use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Said, Upstream, client_table};

const STATUS: &str = "/api/v1/status";

async fn send(client: &Client, method: &str, path: &str) -> Said {
    client.http(method, path).send().await.said().await
}

/// Checks a problem's document, and returns its code.
#[track_caller]
fn code(said: &Said, status: u16) -> String {
    assert_eq!(said.status, status, "{said:?}");
    assert_eq!(said.header("content-type"), Some("application/problem+json"), "{said:?}");
    assert_eq!(said.header("cache-control"), Some("no-store"), "{said:?}");
    let problem: Value = serde_json::from_str(&said.body).unwrap();
    assert_eq!(problem["status"], status, "{problem}");
    let code = problem["code"].as_str().unwrap();
    assert_eq!(problem["type"], format!("urn:trunkline:problem:{code}"));
    assert!(["title", "detail"].iter().all(|it| problem[it].as_str().unwrap().len() > 5));
    code.to_owned()
}

fn with_roles(builder: Builder) -> Builder {
    builder
        .toml(&client_table("plain", "plain-key", ""))
        .toml(&client_table("looks", "looks-key", "role = \"viewer\""))
        .toml(&client_table("acts", "acts-key", "role = \"operator\""))
        .toml(&client_table("rules", "rules-key", "role = \"admin\""))
}

#[tokio::test]
async fn the_socket_answers_its_own_user_without_a_key() {
    let upstream = Upstream::modern().await;
    let gateway = with_roles(Gateway::with("s", upstream.http())).start().await;
    let socket = gateway.folder().join("admin.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let status = gateway.admin(STATUS).await;
    assert_eq!((status.status, &status.json()["state"]), (200, &json!("ready")));
    assert_eq!(status.header("cache-control"), Some("no-store"));
    let page = gateway.status().await;
    let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(members(&page), members(&status.json()), "the page is the same document");
    let head = send(&gateway.operator(), "HEAD", STATUS).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let folder = gateway.stop().await;
    assert!(!folder.path().join("admin.sock").exists(), "removed at the stop");
}

#[tokio::test]
async fn unknown_paths_methods_and_parameters_are_problems() {
    let gateway = Gateway::alone().start().await;
    let operator = gateway.operator();
    for (method, path, status, expected) in [
        ("GET", "/api/v1", 404, "unknown_path"),
        ("GET", "/api/v1/", 404, "unknown_path"),
        ("GET", "/api/v1/stats", 404, "unknown_path"),
        ("GET", "/api/v1/status/", 404, "unknown_path"),
        ("POST", "/api/v1/status", 405, "method_not_allowed"),
        ("OPTIONS", "/api/v1/status", 405, "method_not_allowed"),
        ("GET", "/api/v1/status?a=1", 400, "invalid_request"),
        ("POST", "/api/v1/servers/a/refresh?client=a&client=b", 400, "invalid_request"),
        ("POST", "/api/v1/servers/a/refresh", 404, "unknown_server"),
    ] {
        let said = send(&operator, method, path).await;
        assert_eq!(code(&said, status), expected, "{method} {path}");
    }
    let refused = send(&operator, "DELETE", "/api/v1/status").await;
    assert_eq!(refused.header("allow"), Some("GET, HEAD"));
    // Not of the API.
    assert_eq!(send(&operator, "GET", "/api/v10").await.json()["error"], "not found");
}

#[tokio::test]
async fn over_tcp_everything_but_probes_and_local_metrics_needs_a_role() {
    let upstream = Upstream::modern().await;
    let gateway = with_roles(Gateway::with("s", upstream.http())).start().await;
    let client = |key: &str| gateway.remote_operator().key(key);
    for open in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(send(&gateway.remote_operator(), "GET", open).await.status, 200, "{open}");
    }
    for path in
        ["/", "/status", "/definitions", "/tools", "/healthz/", "/other", STATUS, "/api/v1/x"]
    {
        let said = send(&gateway.remote_operator(), "GET", path).await;
        assert_eq!(code(&said, 401), "unauthenticated", "{path}");
        assert_eq!(said.header("www-authenticate"), Some("Bearer"), "{path}");
        let said = send(&client("wrong-key"), "GET", path).await;
        assert_eq!(code(&said, 401), "unauthenticated", "{path}");
    }
    for path in ["/", "/status", "/definitions", "/tools", STATUS] {
        assert_eq!(
            code(&send(&client("plain-key"), "GET", path).await, 403),
            "role_needed",
            "{path}"
        );
        for key in ["looks-key", "acts-key", "rules-key"] {
            assert_eq!(send(&client(key), "GET", path).await.status, 200, "{path} {key}");
        }
    }
    for path in ["/servers/s/refresh", "/api/v1/servers/s/refresh"] {
        assert_eq!(
            code(&send(&gateway.remote_operator(), "POST", path).await, 401),
            "unauthenticated"
        );
        for key in ["plain-key", "looks-key"] {
            let said = send(&client(key), "POST", path).await;
            assert_eq!(code(&said, 403), "role_needed", "{path} {key}");
        }
        for key in ["acts-key", "rules-key"] {
            assert_eq!(send(&client(key), "POST", path).await.status, 200, "{path} {key}");
        }
    }
}

#[tokio::test]
async fn a_gateway_without_clients_has_no_operators_over_tcp() {
    let gateway = Gateway::alone().start().await;
    let said = send(&gateway.remote_operator(), "GET", STATUS).await;
    assert_eq!(code(&said, 401), "unauthenticated");
    assert!(said.body.contains("private socket"), "{said:?}");
}

#[tokio::test]
async fn guessed_keys_are_limited_like_those_of_clients() {
    let gateway = with_roles(Gateway::alone().gateway("failed_logins = \"3/min\"")).start().await;
    let client = |key: &str| gateway.remote_operator().key(key);
    for attempt in 0..3 {
        let said = send(&client(&format!("guess-{attempt}")), "GET", "/status").await;
        assert_eq!(code(&said, 401), "unauthenticated");
    }
    let said = send(&client("guess-4"), "GET", STATUS).await;
    assert_eq!(code(&said, 429), "too_many_attempts");
    assert!(said.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(send(&client("looks-key"), "GET", STATUS).await.status, 200, "a known key passes");
}

#[tokio::test]
async fn a_web_page_of_another_site_changes_nothing() {
    let upstream = Upstream::modern().await;
    let gateway = with_roles(Gateway::with("s", upstream.http())).start().await;
    for path in ["/api/v1/servers/s/refresh", "/servers/s/refresh"] {
        for client in [gateway.operator(), gateway.remote_operator().key("acts-key")] {
            let form = client.http("POST", path).header("content-type", "text/plain").body("a");
            assert_eq!(code(&form.send().await.said().await, 415), "unsupported_media_type");
            let page = client.http("POST", path).header("sec-fetch-site", "cross-site");
            assert_eq!(code(&page.send().await.said().await, 403), "foreign_page", "{path}");
            let page = client.http("POST", path).header("origin", "https://evil.example.com");
            assert_eq!(page.send().await.status(), 403, "{path}");
            let json = client.http("POST", path).header("content-type", "application/json");
            assert_eq!(json.send().await.status(), 200, "{path}");
        }
    }
    let operator = gateway.operator();
    let large = operator.http("POST", "/api/v1/servers/s/refresh");
    let large = large.header("content-type", "application/json").body("x".repeat(1 << 21));
    assert_eq!(code(&large.send().await.said().await, 413), "body_too_large");
}

#[tokio::test]
async fn a_socket_that_cannot_be_bound_keeps_no_gateway_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let gateway = Gateway::alone().in_folder(folder).start_at_once().await;
    assert!(!gateway.folder().join("admin.sock").exists());
    assert_eq!(send(&gateway.remote_operator(), "GET", "/healthz").await.status, 200);
}

#[tokio::test]
async fn the_document_of_the_api_is_served() {
    let gateway = Gateway::alone().start().await;
    let document = gateway.admin("/api/v1/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["paths"][STATUS]["get"]["x-trunkline-role"], "viewer");
    // The schema of the answer describes it.
    let mut schema = document["paths"][STATUS]["get"]["responses"]["200"]["content"]
        ["application/json"]["schema"]
        .clone();
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let status = gateway.admin(STATUS).await.json();
    if let Err(fault) = validator.validate(&status) {
        panic!("{fault}: {status:#}");
    }
}

/// Connects as another user of the machine, which only root can do: run as root, like in a container.
#[tokio::test]
async fn another_user_cannot_connect_even_if_the_file_permits_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let gateway = Gateway::alone().start().await;
    let socket = gateway.folder().join("admin.sock");
    let permit = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    permit(gateway.folder(), 0o755);
    permit(&socket, 0o666);
    let script = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(10)\n\
                  s.connect(sys.argv[1])\ns.sendall(b'GET /healthz HTTP/1.1\\r\\nhost: localhost\\r\\n\\r\\n')\n\
                  print(len(s.recv(1)))";
    assert_eq!(gateway.admin("/healthz").await.status, 200);
    // The first is a child process of the gateway, which is in this process.
    for uid in [0, 65534] {
        let mut python = tokio::process::Command::new("python3");
        python.args(["-c", script]).arg(&socket).uid(uid).gid(uid);
        let output = crate::support::within(python.output()).await.unwrap();
        let received = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert_ne!(received, "1", "{uid}: closed without an answer");
    }
}
