//! Headers of calls with values from the client: `call_headers`.

use serde_json::json;

use crate::support::{Gateway, Issuer, Upstream, client_table};

const MAPPED: &str = "call_headers = { X-Crm-Token = \"t-${header:x-crm}\", \
                      X-User = \"${claim:sub}\", X-Unit = \"${claim:org.unit}/${env:SITE}\" }";

async fn gateway_before(upstream: &Upstream, issuer: &Issuer) -> Gateway {
    Gateway::with("s", upstream.http() + MAPPED)
        .toml(&issuer.table("idp", ""))
        .variable("SITE", "here")
        .start()
        .await
}

/// Returns the headers of the last call.
fn sent(upstream: &Upstream) -> [Option<String>; 3] {
    let call = upstream.calls().pop().unwrap();
    ["x-crm-token", "x-user", "x-unit"]
        .map(|name| Some(call.headers.get(name)?.to_str().unwrap().to_owned()))
}

#[tokio::test]
async fn servers_get_headers_and_claims_of_each_call_and_of_no_other() {
    let issuer = Issuer::start().await;
    for upstream in Upstream::both().await {
        let gateway = gateway_before(&upstream, &issuer).await;
        let resource = format!("http://{}/mcp", gateway.running.address);
        for (name, unit) in [("ann", json!(7)), ("bob", json!("ops"))] {
            let claims = json!({ "sub": name, "org": { "unit": unit } });
            let token = issuer.token(&resource, claims);
            for (era, client) in gateway.both_as(&token, "/mcp").await {
                let ask = client.ask_call("s__echo", json!({})).header("x-crm", name);
                assert_eq!(ask.send().await.said().await.text(), "{}", "{era}");
                let unit = unit.to_string().replace('"', "") + "/here";
                let expected = [format!("t-{name}"), name.to_owned(), unit].map(Some);
                assert_eq!(sent(&upstream), expected, "{era}");
                // A header that the request lacks is omitted.
                assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era}");
                assert_eq!(sent(&upstream)[0], None, "{era}");
            }
        }
        let received = upstream.received();
        let own = received.iter().filter(|it| it.method != "tools/call");
        assert!(own.into_iter().all(|it| it.header("x-user").is_none()));
    }
}

#[tokio::test]
async fn a_call_without_a_usable_claim_is_not_made() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let lines = upstream.http() + "call_headers = { X-Unit = \"${claim:unit}\" }";
    let gateway = Gateway::with("s", lines)
        .toml(&issuer.table("idp", ""))
        .toml(&client_table("ci", "key-of-ci", ""))
        .start()
        .await;
    let resource = format!("http://{}/mcp", gateway.running.address);
    let of = |unit| issuer.token(&resource, json!({ "unit": unit }));
    for unit in [
        json!("ops\r\nX-User: root"),
        json!("ops\n"),
        // Servers strip these blanks, and would see another user's claim.
        json!(" ops"),
        json!("ops "),
        json!("ops\t"),
        json!("\u{a0}ops"),
        json!("a\u{0}b"),
        json!("x".repeat(5000)),
        json!(["ops"]),
        json!({ "name": "ops" }),
        json!(""),
        json!(null),
    ] {
        let said = gateway.modern().key(&of(unit.clone())).call("s__echo", json!({})).await;
        let message = said.error()["message"].as_str().unwrap();
        assert!(message.contains("no token with a usable claim \"unit\""), "{unit}: {message}");
    }
    let said = gateway.modern().key("key-of-ci").call("s__echo", json!({})).await;
    assert!(said.error()["message"].as_str().unwrap().contains("claim"), "{said:?}");
    assert_eq!(upstream.calls().len(), 0);
    let unusual = of(json!("Grüße"));
    assert_eq!(gateway.modern().key(&unusual).call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn a_header_that_a_client_sends_itself_is_no_claim() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let gateway = gateway_before(&upstream, &issuer).await;
    let resource = format!("http://{}/mcp", gateway.running.address);
    let claims = json!({ "sub": "ann", "org": { "unit": "ops" } });
    let client = gateway.modern().key(&issuer.token(&resource, claims));
    let ask = client.ask_call("s__echo", json!({})).header("x-user", "root");
    assert_eq!(ask.send().await.said().await.text(), "{}");
    assert_eq!(sent(&upstream)[1].as_deref(), Some("ann"));
}

#[tokio::test]
async fn a_header_of_a_client_that_its_server_repeats_is_not_shown() {
    let upstream = Upstream::modern().await;
    let lines = upstream.http()
        + "forward_headers = [\"x-own\"]\ncall_headers = { X-Mapped = \"key ${header:x-theirs}\" }\n";
    let gateway = Gateway::with("s", lines).start().await;
    gateway.ready("s").await;
    for header in ["x-own", "x-mapped"] {
        upstream.guards(move |received| {
            let sent = received.header(header).filter(|_| received.method == "tools/call")?;
            let repeated = format!("text/{}", sent.replace(' ', "+"));
            Some((200, vec![("content-type".to_owned(), repeated)], String::new()))
        });
        let client = gateway.modern();
        let ask = client.ask_call("s__echo", json!({}));
        let ask = ask.header("x-own", "secret-of-ann-1").header("x-theirs", "secret-of-ann-2");
        let said = ask.send().await.said().await;
        assert!(said.body.contains("text/") && said.body.contains("***"), "{said:?}");
        assert!(!said.body.contains("secret-of-ann"), "{said:?}");
    }
}
