//! Protected Resource Metadata: its location and its content.

use serde_json::{Value, json};

use super::House;
use crate::support::{Gateway, Said, Upstream};

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

async fn get(gateway: &Gateway, path: &str) -> Said {
    gateway.plain().http("GET", path).send().await.said().await
}

#[tokio::test]
async fn every_endpoint_has_metadata_at_its_place_and_the_first_one_at_the_root() {
    let house = House::with("", |builder| {
        builder.toml("[profiles.other]\nscopes = [\"mcp:other\", \"mcp:read\"]\n")
    })
    .await;
    for (path, resource) in
        [("", "/mcp"), ("/mcp", "/mcp"), ("/mcp/", "/mcp"), ("/mcp/other", "/mcp/other")]
    {
        let said = get(&house.gateway, &format!("{WELL_KNOWN}{path}")).await;
        assert_eq!(said.status, 200, "{path}: {said:?}");
        assert_eq!(said.header("content-type"), Some("application/json"));
        let document = said.json();
        assert_eq!(document["resource"], house.resource(resource), "{path}");
        assert_eq!(document["authorization_servers"], json!([house.issuer.url()]), "{path}");
        assert_eq!(document["bearer_methods_supported"], json!(["header"]), "{path}");
        let scopes = match resource {
            "/mcp/other" => json!(["mcp:other", "mcp:read"]),
            _ => Value::Null,
        };
        assert_eq!(document["scopes_supported"], scopes, "{path}");
    }
    for (method, path, status) in [
        ("GET", "/mcp/none", 404),
        ("GET", "/mcp//", 404),
        ("GET", "/mcp/../admin", 404),
        ("GET", "/sse", 404),
        ("GET", "x", 404),
        ("POST", "/mcp", 405),
        ("DELETE", "/mcp", 405),
    ] {
        let client = house.gateway.plain();
        let ask = client.http(method, &format!("{WELL_KNOWN}{path}"));
        let said = ask.send().await.said().await;
        assert_eq!(said.status, status, "{method} {path}: {said:?}");
        assert!(!said.body.contains("other"), "{path}: it names no profile");
    }
}

#[tokio::test]
async fn a_challenge_leads_to_the_metadata_of_its_endpoint() {
    let house = House::with("", |builder| {
        builder.toml("[profiles.other]\nscopes = [\"mcp:other\", \"mcp:read\"]\n")
    })
    .await;
    for (endpoint, scope) in [("/mcp", None), ("/mcp/other", Some("mcp:other mcp:read"))] {
        for method in ["POST", "GET", "DELETE"] {
            let said = house.gateway.plain().http(method, endpoint).send().await.said().await;
            assert_eq!((said.status, said.code()), (401, 40_100), "{said:?}");
            let challenge = said.header("www-authenticate").unwrap();
            let place = house.resource(&format!("{WELL_KNOWN}{endpoint}"));
            assert!(challenge.contains(&format!("resource_metadata=\"{place}\"")), "{challenge}");
            assert!(!challenge.contains("error="), "no credentials came: {challenge}");
            let said = scope.map(|scope| format!("scope=\"{scope}\""));
            assert_eq!(challenge.contains("scope="), said.is_some(), "{challenge}");
            assert!(said.is_none_or(|scope| challenge.contains(&scope)), "{challenge}");
        }
    }
}

#[tokio::test]
async fn the_public_url_is_the_resource() {
    let url = "https://mcp.example.com/team";
    let house =
        House::with("", |builder| builder.gateway(&format!("public_url = \"{url}/\""))).await;
    let token = house.issuer.token(&format!("{url}/mcp"), json!({}));
    assert_eq!(house.call(&token).await.text(), "{}");
    super::is_refused(&house.call(&house.token(json!({}))).await, "another resource");
    let challenge = house.call("x.y.z").await;
    let challenge = challenge.header("www-authenticate").unwrap().to_owned();
    let place = format!("https://mcp.example.com{WELL_KNOWN}/team/mcp");
    assert!(challenge.contains(&format!("resource_metadata=\"{place}\"")), "{challenge}");
    // A proxy may forward the path or strip it.
    for path in ["/team/mcp", "/mcp"] {
        let said = get(&house.gateway, &format!("{WELL_KNOWN}{path}")).await;
        assert_eq!(said.json()["resource"], format!("{url}/mcp"), "{path}");
    }
}

#[tokio::test]
async fn an_issuer_may_send_clients_elsewhere_and_call_scopes_otherwise() {
    let lines = "authorization_server = \"https://login.example.com/v2.0\"\n\
                 scope_requests = { \"mcp:read\" = \"api://gateway/Read\" }\n";
    let house =
        House::with(lines, |builder| builder.toml("[profiles.default]\nscopes = [\"mcp:read\"]\n"))
            .await;
    let document = get(&house.gateway, WELL_KNOWN).await.json();
    assert_eq!(document["authorization_servers"], json!(["https://login.example.com/v2.0"]));
    assert_eq!(document["scopes_supported"], json!(["api://gateway/Read"]));
    let said = house.call("x.y.z").await;
    let challenge = said.header("www-authenticate").unwrap();
    assert!(challenge.contains("scope=\"api://gateway/Read\""), "{challenge}");
}

#[tokio::test]
async fn an_issuer_that_may_not_use_a_profile_is_not_named_there() {
    let house = House::with("profiles = [\"other\"]", |builder| {
        builder.toml("[profiles.other]\n[profiles.third]\n")
    })
    .await;
    let document = async |path: &str| get(&house.gateway, &format!("{WELL_KNOWN}{path}")).await;
    let challenge = async |path: &str| {
        let said = house.gateway.plain().http("POST", path).send().await.said().await;
        assert_eq!(said.status, 401, "{said:?}");
        said.header("www-authenticate").unwrap().to_owned()
    };
    let servers = &document("/mcp/other").await.json()["authorization_servers"];
    assert_eq!(*servers, json!([house.issuer.url()]));
    assert!(challenge("/mcp/other").await.contains("resource_metadata="));
    // Without an issuer there is no document, and no challenge refers to one.
    for (place, endpoint) in [("/mcp/third", "/mcp/third"), ("/mcp", "/mcp"), ("", "/mcp")] {
        assert_eq!(document(place).await.status, 404, "{place}");
        let challenge = challenge(endpoint).await;
        assert!(!challenge.contains("resource_metadata"), "{place}: {challenge}");
    }
}

#[tokio::test]
async fn without_issuers_there_is_no_metadata() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for path in ["", "/mcp"] {
        assert_eq!(get(&gateway, &format!("{WELL_KNOWN}{path}")).await.status, 404);
    }
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_read_it_and_no_other() {
    let house =
        House::with("", |it| it.gateway("allowed_origins = [\"https://app.example.com\"]")).await;
    for (origin, status) in [("https://app.example.com", 200), ("https://evil.example.com", 403)] {
        let client = house.gateway.plain();
        let ask = client.http("GET", WELL_KNOWN).header("origin", origin);
        let said = ask.send().await.said().await;
        assert_eq!(said.status, status, "{said:?}");
        let allowed = said.header("access-control-allow-origin");
        assert_eq!(allowed, (status == 200).then_some(origin));
    }
}

#[tokio::test]
async fn metadata_counts_towards_the_rate_of_its_address() {
    let house = House::with("", |builder| builder.gateway("client_rate = \"2/h\"")).await;
    for status in [200, 200, 429] {
        assert_eq!(get(&house.gateway, WELL_KNOWN).await.status, status);
    }
}
