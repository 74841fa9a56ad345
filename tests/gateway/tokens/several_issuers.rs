//! Two issuers side by side: neither can issue tokens for the users of the other.

use serde_json::{Value, json};

use super::is_refused;
use crate::support::client::{Ask, Client};
use crate::support::issuer::with;
use crate::support::{Gateway, Issuer, Said, Step, Upstream, until_async};

/// A gateway that accepts the tokens of `a` and `b`, both of which name their key `first`.
struct Union {
    upstream: Upstream,
    a: Issuer,
    b: Issuer,
    gateway: Gateway,
}

impl Union {
    async fn of(a: Issuer, b: Issuer, upstream: Upstream) -> Self {
        let gateway = Gateway::with("s", upstream.http())
            .toml(&a.table("a", ""))
            .toml(&b.table("b", ""))
            .toml("[audit]\nfile = \"audit.jsonl\"\n")
            .start()
            .await;
        Self { upstream, a, b, gateway }
    }

    async fn start() -> Self {
        Self::of(Issuer::start().await, Issuer::start().await, Upstream::modern().await).await
    }

    fn resource(&self) -> String {
        format!("http://{}/mcp", self.gateway.running.address)
    }

    fn client(&self, token: &str) -> Client {
        self.gateway.modern().key(token)
    }

    async fn call(&self, token: &str) -> Said {
        self.client(token).call("s__echo", json!({})).await
    }
}

#[tokio::test]
async fn a_key_signs_for_its_own_issuer_only() {
    let union = Union::start().await;
    let Union { a, b, .. } = &union;
    assert_eq!(a.key.id, b.key.id, "the header names a key that both have");
    let claims = |issuer: &Issuer, more: Value| with(issuer.claims(&union.resource()), more);
    for (own, other) in [(a, b), (b, a)] {
        is_refused(&union.call(&own.key.sign(&claims(other, json!({})))).await, "signature");
        // Naming both issuers, or its own in other claims, does not help either.
        let both = json!({ "iss": [own.url(), other.url()] });
        is_refused(&union.call(&own.key.sign(&claims(own, both))).await, "accepted issuer");
        let hidden = json!({ "act": { "iss": own.url() }, "azp": own.url() });
        is_refused(&union.call(&own.key.sign(&claims(other, hidden))).await, "signature");
        assert_eq!(union.call(&own.key.sign(&claims(own, json!({})))).await.text(), "{}");
    }
    assert_eq!(union.upstream.calls().len(), 2);
    assert_eq!((a.fetches(), b.fetches()), (1, 1), "no foreign signature has keys fetched");
}

#[tokio::test]
async fn users_of_one_name_are_two_principals() {
    let upstream = Upstream::legacy().await;
    let form = json!({
        "mode": "form", "message": "Who?",
        "requestedSchema": { "type": "object", "properties": {} },
    });
    upstream.does("ask", move |_| {
        let ask = Step::Ask("who", "elicitation/create", form.clone());
        vec![ask, Step::Await("who"), Step::Answers]
    });
    let union = Union::of(Issuer::start().await, Issuer::start().await, upstream).await;
    let of_a = union.a.token(&union.resource(), json!({}));
    let of_b = union.b.token(&union.resource(), json!({}));
    // Sessions.
    let [(_, modern), (_, ours)] = union.gateway.both_as(&of_a, "/mcp").await;
    let theirs = union.gateway.plain().key(&of_b).becomes(ours.kind());
    for said in [
        theirs.call("s__echo", json!({})).await,
        theirs.get_stream().send().await.said().await,
        theirs.http("DELETE", "/mcp").of_session().send().await.said().await,
    ] {
        assert_eq!((said.status, said.code()), (404, -32600), "{said:?}");
    }
    assert_eq!(ours.call("s__echo", json!({})).await.text(), "{}");
    // Calls that wait for input.
    let said = ask(&modern).send().await.said().await;
    let result = said.result().clone();
    assert_eq!(result["resultType"], "input_required", "{said:?}");
    let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let answers = json!({ key: { "action": "accept", "content": {} } });
    let retry = async |client: &Client| {
        let ask = ask(client).param("inputResponses", answers.clone());
        ask.param("requestState", result["requestState"].clone()).send().await.said().await
    };
    let said = retry(&union.client(&of_b)).await;
    assert_eq!(said.code(), -32602, "{said:?}");
    assert!(retry(&modern).await.text().contains("accept"));
    // Records.
    assert_eq!(union.call(&of_b).await.text(), "{}");
    let folder = union.gateway.stop().await;
    let records = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    for (user, issuer) in [("a:ann", "a:"), ("b:ann", "b:")] {
        let records = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut theirs = records.filter(|record| record["principal"] == user).peekable();
        assert!(theirs.peek().is_some(), "{user}");
        for record in theirs {
            assert_eq!(record["credential"]["kind"], "token");
            let id = record["credential"]["id"].as_str().unwrap();
            assert!(id.starts_with(issuer) && id.len() == 10, "{record}");
        }
    }
}

fn ask(client: &Client) -> Ask<'_> {
    let able = json!({ "elicitation": { "form": {} } });
    let ask = client.ask_call("s__ask", json!({}));
    ask.meta("io.modelcontextprotocol/clientCapabilities", able)
}

#[tokio::test]
async fn one_issuer_without_keys_keeps_no_user_of_the_other_out() {
    let (a, b) = (Issuer::silent().await, Issuer::start().await);
    let union = Union::of(a, b, Upstream::modern().await).await;
    let fault = |status: &Value| status["issuers"][0]["error"].clone();
    union.gateway.wait_for(|status| fault(status).is_string()).await;
    let of_a = union.a.token(&union.resource(), json!({}));
    let of_b = union.b.token(&union.resource(), json!({}));
    assert_eq!(union.call(&of_a).await.status, 503);
    assert_eq!(union.call(&of_b).await.text(), "{}");
    // A token of B with a signature of A's key is invalid, also if one of them has no keys.
    let claims = union.b.claims(&union.resource());
    is_refused(&union.call(&union.a.key.sign(&claims)).await, "signature");
    union.a.publishes(&[&union.a.key]);
    until_async(async || union.call(&of_a).await.status == 200).await;
    assert_eq!(union.call(&of_b).await.text(), "{}");
}

#[tokio::test]
async fn metadata_names_both() {
    let union = Union::start().await;
    let place = "/.well-known/oauth-protected-resource/mcp";
    let said = union.gateway.plain().http("GET", place).send().await.said().await;
    let servers = &said.json()["authorization_servers"];
    assert_eq!(*servers, json!([union.a.url(), union.b.url()]));
}
