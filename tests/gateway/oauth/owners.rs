//! Owners of grants: the grant that a call uses, and the client that gets the link.

use serde_json::json;

use crate::support::oauth::parameters;
use crate::support::upstream::tool;
use crate::support::{Client, Gateway, OauthServer, Step, Upstream, client_table};

use super::{agree, call, link_in, protected};

async fn shared_by_two(server: &OauthServer, settings: &str) -> (Gateway, [Client; 2]) {
    let gateway = Gateway::with("s", server.lines("s", settings))
        .toml(&client_table("ann", "key-of-ann", ""))
        .toml(&client_table("bob", "key-of-bob", ""))
        .start()
        .await;
    let clients = ["key-of-ann", "key-of-bob"].map(|key| gateway.modern().key(key));
    (gateway, clients)
}

/// Logs a user in by a link, with this token.
async fn log_in_by((gateway, server): (&Gateway, &OauthServer), link: &str, token: &str) {
    server.gives(token, json!({}));
    server.takes(token, &["list", "call"]);
    assert_eq!(agree(gateway, server, link).await.status, 200);
}

/// Logs the operator in by the link in `/status`.
async fn log_in_as_operator(gateway: &Gateway, server: &OauthServer, token: &str) {
    let link = gateway.server("s").await["login"].as_str().unwrap().to_owned();
    log_in_by((gateway, server), &link, token).await;
    gateway.ready("s").await;
}

#[tokio::test]
async fn each_client_has_its_own_grant_and_uses_no_other() {
    for upstream in Upstream::both().await {
        let server = OauthServer::before(upstream).await;
        let (gateway, [ann, bob]) = shared_by_two(&server, "per = \"user\"").await;
        let of_operator = gateway.server("s").await["login"].as_str().unwrap().to_owned();
        let before = link_in(&call(&ann).await);
        assert_ne!(before, of_operator, "the operator's link is not for her");
        log_in_as_operator(&gateway, &server, "of-operator").await;
        // The operator's grant is for lists only, not for a client's calls.
        let [of_ann, of_bob] = [link_in(&call(&ann).await), link_in(&call(&bob).await)];
        assert_ne!(parameters(&of_ann)["ticket"], parameters(&of_bob)["ticket"]);
        log_in_by((&gateway, &server), &of_ann, "of-ann").await;
        assert_eq!(call(&ann).await.text(), r#"{"a":1}"#);
        assert_eq!(link_in(&call(&bob).await), of_bob, "her login is not his");
        log_in_by((&gateway, &server), &of_bob, "of-bob").await;
        assert_eq!(call(&bob).await.text(), r#"{"a":1}"#);
        let calls = server.upstream.calls();
        let tokens: Vec<_> = calls.iter().filter_map(|call| call.header("authorization")).collect();
        assert_eq!(tokens, ["Bearer of-ann", "Bearer of-bob"]);
    }
}

#[tokio::test]
async fn a_viewer_does_not_see_the_operators_link() {
    let server = protected().await;
    let gateway = Gateway::with("s", server.lines("s", ""))
        .toml(&client_table("looks", "looks-key", "role = \"viewer\""))
        .toml(&client_table("acts", "acts-key", "role = \"operator\""))
        .start()
        .await;
    let link = gateway.server("s").await["login"].as_str().unwrap().to_owned();
    let ticket = &parameters(&link)["ticket"];
    for path in ["/status", "/api/v1/status", "/api/v1/servers", "/api/v1/servers/s"] {
        for (key, is_shown) in [("looks-key", false), ("acts-key", true)] {
            let operator = gateway.remote_operator().key(key);
            let said = operator.http("GET", path).send().await.said().await;
            assert_eq!(
                (said.status, said.body.contains(&**ticket)),
                (200, is_shown),
                "{path} {key}"
            );
        }
    }
}

#[tokio::test]
async fn each_client_sees_the_list_of_its_own_account() {
    for upstream in Upstream::both().await {
        upstream.when_asked("tools/list", |asked| {
            let sent = asked.header("authorization").unwrap_or_default();
            let whose = sent.strip_prefix("Bearer of-").unwrap_or_default();
            let tools = ["echo", whose].map(tool);
            vec![Step::Result(json!({ "tools": tools, "ttlMs": 60_000, "cacheScope": "private" }))]
        });
        let server = OauthServer::before(upstream).await;
        let (gateway, clients) = shared_by_two(&server, "per = \"user\"").await;
        log_in_as_operator(&gateway, &server, "of-operator").await;
        let own = |whose: &str| [format!("s__{whose}"), "s__echo".to_owned()];
        let listed = async |client: &Client| {
            let mut names = client.tool_names().await;
            names.sort_by_key(|name| name == "s__echo");
            names
        };
        // A client without a login has the operator's list.
        for client in &clients {
            assert_eq!(listed(client).await, own("operator"));
        }
        for (client, name) in clients.iter().zip(["ann", "bob"]) {
            let link = link_in(&call(client).await);
            let token = format!("of-{name}");
            log_in_by((&gateway, &server), &link, &token).await;
            assert_eq!(listed(client).await, own(name));
        }
        let [ann, bob] = &clients;
        assert_eq!(listed(ann).await, own("ann"), "his login changes nothing of hers");
        let calls = server.upstream.calls().len();
        let said = ann.call("s__bob", json!({})).await;
        assert!(said.body.contains("unknown tool"), "{said:?}");
        assert_eq!(server.upstream.calls().len(), calls);
        bob.call("s__bob", json!({})).await;
        assert_eq!(server.upstream.calls().len(), calls + 1);
        // A client with a revoked login no longer has its list.
        server.refuses("of-ann");
        link_in(&call(ann).await);
        assert_eq!(listed(ann).await, own("operator"));
        assert_eq!(listed(bob).await, own("bob"));
    }
}

#[tokio::test]
async fn users_need_no_login_of_the_operator() {
    for upstream in Upstream::both().await {
        upstream.when_asked("tools/list", |asked| {
            let sent = asked.header("authorization").unwrap_or_default();
            let whose = sent.strip_prefix("Bearer of-").unwrap_or_default();
            vec![Step::Result(json!({ "tools": [tool("echo"), tool(whose)] }))]
        });
        let server = OauthServer::before(upstream).await;
        let (gateway, [ann, bob]) = shared_by_two(&server, "per = \"user\"").await;
        let [(_, _), (_, legacy_ann)] = gateway.both_as("key-of-ann", "/mcp").await;
        gateway.in_state("s", "login").await;
        assert_eq!(gateway.admin("/readyz").await.status, 200, "users can log in");
        for client in [&ann, &bob, &legacy_ann] {
            assert_eq!(client.tool_names().await, Vec::<String>::new());
        }
        let link = link_in(&call(&ann).await);
        log_in_by((&gateway, &server), &link, "of-ann").await;
        // In either era, and without an earlier list.
        for client in [&ann, &legacy_ann] {
            assert_eq!(call(client).await.text(), r#"{"a":1}"#);
            assert_eq!(client.tool_names().await, ["s__echo", "s__ann"]);
        }
        assert_eq!(bob.tool_names().await, Vec::<String>::new(), "her account is not his");
        let of_bob = link_in(&call(&bob).await);
        assert_ne!(parameters(&of_bob)["ticket"], parameters(&link)["ticket"]);
        log_in_by((&gateway, &server), &of_bob, "of-bob").await;
        assert_eq!(bob.tool_names().await, ["s__echo", "s__bob"]);
        assert_eq!(call(&bob).await.text(), r#"{"a":1}"#);
        assert_eq!(ann.tool_names().await, ["s__echo", "s__ann"]);
        let calls = server.upstream.calls();
        let tokens: Vec<_> = calls.iter().filter_map(|call| call.header("authorization")).collect();
        assert_eq!(tokens, ["Bearer of-ann", "Bearer of-ann", "Bearer of-bob"]);
        // A client with a revoked login has an empty list again, and gets a link.
        server.refuses("of-ann");
        link_in(&call(&ann).await);
        assert_eq!(ann.tool_names().await, Vec::<String>::new());
        // The operator may still log in.
        log_in_as_operator(&gateway, &server, "of-operator").await;
        assert_eq!(ann.tool_names().await, ["s__echo", "s__operator"]);
        assert_eq!(bob.tool_names().await, ["s__echo", "s__bob"]);
        assert_eq!(call(&bob).await.text(), r#"{"a":1}"#);
    }
}

#[tokio::test]
async fn a_user_who_is_asked_to_log_in_needs_no_operator() {
    for upstream in Upstream::both().await {
        let server = OauthServer::before(upstream).await;
        let (gateway, [ann, _]) = shared_by_two(&server, "per = \"user\"").await;
        gateway.in_state("s", "login").await;
        let ann = ann.offering(json!({ "elicitation": { "url": {} } })).await;
        let said = call(&ann).await;
        let link = said.result()["inputRequests"]["login"]["params"]["url"].as_str().unwrap();
        let link = link.to_owned();
        server.gives("of-ann", json!({}));
        server.takes("of-ann", &["list", "call"]);
        let retry = ann
            .ask_call("s__echo", json!({ "a": 1 }))
            .param("inputResponses", json!({ "login": { "action": "accept" } }))
            .param("requestState", said.result()["requestState"].clone());
        let (said, page) = tokio::join!(
            async { retry.send().await.said().await },
            agree(&gateway, &server, &link)
        );
        assert_eq!(page.status, 200);
        assert_eq!(said.text(), r#"{"a":1}"#);
    }
}

#[tokio::test]
async fn only_the_operator_chooses_the_account_of_all_clients() {
    let server = protected().await;
    let (gateway, clients) = shared_by_two(&server, "per = \"gateway\"").await;
    for client in &clients {
        let said = call(client).await;
        assert!(!said.body.contains("/connect"), "{said:?}");
        assert!(said.is_error() && said.text().contains("operator"), "{said:?}");
    }
    log_in_as_operator(&gateway, &server, "of-all").await;
    for client in &clients {
        assert_eq!(call(client).await.text(), r#"{"a":1}"#);
    }
    server.refuses("of-all");
    let said = call(&clients[0]).await;
    assert!(said.is_error() && !said.body.contains("/connect"), "{said:?}");
}

#[tokio::test]
async fn credentials_from_a_client_are_not_taken_for_its_grant() {
    let server = protected().await;
    server.takes("key-of-ann", &["list", "call"]);
    let settings = "forward_headers = [\"authorization\"]\n";
    let lines = format!("{settings}{}", server.lines("s", ""));
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.modern();
    let said = client.ask_call("s__echo", json!({})).header("authorization", "Bearer key-of-ann");
    let said = said.send().await.said().await;
    link_in(&said);
    let received = server.upstream.received();
    assert!(received.iter().all(|received| received.header("authorization").is_none()));
}

#[tokio::test]
async fn results_for_one_client_are_not_kept_for_another() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything().when_asked("resources/read", |asked| {
        let token = asked.header("authorization").unwrap_or_default();
        let contents = json!([{ "uri": asked.params["uri"], "text": token }]);
        let result = json!({ "contents": contents, "ttlMs": 60_000, "cacheScope": "public" });
        vec![Step::Result(result)]
    });
    let server = OauthServer::before(upstream).await;
    let (gateway, clients) = shared_by_two(&server, "").await;
    log_in_as_operator(&gateway, &server, "of-operator").await;
    for (client, token) in clients.iter().zip(["of-ann", "of-bob"]) {
        let link = link_in(&call(client).await);
        log_in_by((&gateway, &server), &link, token).await;
        let said = client.request("resources/read", json!({ "uri": "mcp://s/b://2" })).await;
        assert_eq!(said.result()["contents"][0]["text"], format!("Bearer {token}"));
    }
}

#[tokio::test]
async fn announced_ends_of_logins_and_client_secrets_are_in_the_calendar_without_names_of_users() {
    let server = OauthServer::before(Upstream::modern().await).await;
    let (gateway, [ann, bob]) = shared_by_two(&server, "per = \"user\"").await;
    log_in_as_operator(&gateway, &server, "of-operator").await;
    let [of_ann, of_bob] = [link_in(&call(&ann).await), link_in(&call(&bob).await)];
    for (link, token, days) in [(of_ann, "of-ann", 40), (of_bob, "of-bob", 10)] {
        let lifetime = days * 86_400 + 3600;
        server.gives(token, json!({ "refresh_token": "r", "refresh_token_expires_in": lifetime }));
        server.takes(token, &["list", "call"]);
        assert_eq!(agree(&gateway, &server, &link).await.status, 200);
    }
    let status = gateway.status().await;
    let expiries: Vec<_> = status["expiries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|expiry| json!([expiry["kind"], expiry["name"], expiry["state"]]))
        .collect();
    // The operator's refresh token has no announced end.
    assert_eq!(
        expiries,
        [
            json!(["grant", "servers.s.oauth[users]", "soon"]),
            json!(["provider_secret", "servers.s.oauth", "valid"]),
        ]
    );
    assert_eq!(status["expiries"][1]["expires_at"], "2096-10-02T07:06:40Z");
    let metrics = gateway.metrics().await;
    let lines: Vec<_> = metrics.lines().filter(|line| line.contains("trunkline_expiry")).collect();
    assert!(lines.iter().any(|line| line.contains("kind=\"grant\"")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("ann") || line.contains("bob")), "{lines:?}");
}
