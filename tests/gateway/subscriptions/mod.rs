//! Notifications of clients: about changes of every list, and of the resources that they subscribed
//! to.

mod gaps;
mod own_sessions;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::client::Piece;
use crate::support::gateway::of;
use crate::support::upstream::news::{PROMPTS, RESOURCES, TOOLS, UPDATED};
use crate::support::upstream::{Era, Kind};
use crate::support::{Client, Gateway, Reply, Upstream, every_kind, until};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const ALL: [&str; 3] = ["toolsListChanged", "promptsListChanged", "resourcesListChanged"];

/// A client that listens.
struct Hearing {
    client: Client,
    stream: Reply,
}

impl Hearing {
    /// Listens for these resources, and for changes of all lists.
    async fn of(client: Client, uris: &[&str]) -> Self {
        if client.is_modern() {
            let mut filter = json!({ "resourceSubscriptions": uris });
            ALL.iter().for_each(|key| filter[key] = json!(true));
            let (stream, agreed) = listen(&client, filter.clone()).await;
            assert_eq!(agreed, filter);
            return Self { client, stream };
        }
        for uri in uris {
            subscribe(&client, uri).await;
        }
        let stream = client.listen().await;
        Self { client, stream }
    }

    /// Listens for one resource, for a client of each era.
    async fn of_both(gateway: &Gateway, uri: &str) -> Vec<Self> {
        let mut hearings = Vec::new();
        for (_, client) in gateway.both().await {
            hearings.push(Self::of(client, &[uri]).await);
        }
        hearings
    }

    /// Returns the next message: its method, and its URI.
    async fn next(&mut self) -> (String, Value) {
        let message = self.stream.message().await.expect("a message");
        if self.client.is_modern() {
            assert!(message["params"]["_meta"].get(SUBSCRIPTION).is_some(), "{message}");
        } else {
            assert_eq!(message["params"].get("_meta"), None, "{message}");
        }
        let method = message["method"].as_str().unwrap().to_owned();
        (method, message["params"].get("uri").cloned().unwrap_or_default())
    }

    async fn is_told_of(&mut self, uri: &str) {
        assert_eq!(self.next().await, (UPDATED.into(), json!(uri)));
    }

    async fn is_told(&mut self, method: &str) {
        assert_eq!(self.next().await, (method.into(), Value::Null));
    }

    /// Returns the messages until none arrives for a while.
    async fn rest(&mut self) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        while let Ok(next) = tokio::time::timeout(Duration::from_millis(300), self.next()).await {
            all.push(next);
        }
        all
    }

    async fn is_told_nothing(&mut self) {
        assert_eq!(self.rest().await, []);
    }
}

/// Opens a `subscriptions/listen` and reads its acknowledgement.
async fn listen(client: &Client, filter: Value) -> (Reply, Value) {
    let ask = client.ask("subscriptions/listen", json!({ "notifications": filter }));
    let mut stream = ask.send().await;
    let first = stream.message().await.expect("an acknowledgement");
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    (stream, first["params"]["notifications"].clone())
}

async fn subscribe(client: &Client, uri: &str) {
    let said = client.request("resources/subscribe", json!({ "uri": uri })).await;
    assert_eq!(said.result(), &json!({}));
}

/// Returns all kinds of servers, each with two resources.
async fn kinds() -> Vec<Kind> {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.resources(&["a:1", "a:2"]);
    }
    kinds
}

/// Returns all kinds of servers, behind one gateway.
async fn all_kinds() -> (Vec<Kind>, Gateway) {
    let kinds = kinds().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    (kinds, gateway)
}

fn public(kind: &Kind, uri: &str) -> String {
    format!("mcp://{}/{uri}", kind.name)
}

#[tokio::test]
async fn a_client_hears_of_its_resources_and_of_every_list_from_every_kind_of_server() {
    let (kinds, gateway) = all_kinds().await;
    // By era, so that each server is quiet for a while: lists with repeated changes are requested
    // less and less often.
    for era in ["Modern", "Legacy"] {
        for kind in &kinds {
            let uri = public(kind, "a:1");
            let client = match era {
                "Modern" => gateway.modern(),
                _ => gateway.legacy().await,
            };
            let mut hearing = Hearing::of(client, &[&uri]).await;
            kind.upstream.update("a:1").await;
            hearing.is_told_of(&uri).await;
            kind.upstream.update("a:1").await;
            hearing.is_told_of(&uri).await;
            kind.upstream.lists("prompts", [json!({ "name": format!("p-{era}") })]);
            kind.upstream.tell(PROMPTS, json!({})).await;
            hearing.is_told(PROMPTS).await;
            let more = json!({ "uri": format!("b:{era}"), "name": "x" });
            kind.upstream.lists("resources", [json!({ "uri": "a:1", "name": "a" }), more]);
            kind.upstream.tell(RESOURCES, json!({})).await;
            hearing.is_told(RESOURCES).await;
            kind.upstream
                .set_tools([format!(r#"{{"name":"t-{era}","inputSchema":{{"type":"object"}}}}"#)]);
            kind.upstream.announce().await;
            hearing.is_told(TOOLS).await;
            kind.upstream.lists(
                "resourceTemplates",
                [json!({
                    "uriTemplate": format!("t:{era}/{{x}}"), "name": "t",
                })],
            );
            kind.upstream.tell(RESOURCES, json!({})).await;
            hearing.is_told(RESOURCES).await;
            hearing.is_told_nothing().await;
        }
    }
}

#[tokio::test]
async fn a_filter_is_honoured_exactly() {
    let (kinds, gateway) = all_kinds().await;
    for kind in &kinds {
        let (one, two) = (public(kind, "a:1"), public(kind, "a:2"));
        let everything = gateway.modern();
        let mut everything = Hearing::of(everything, &[&one, &two]).await;
        let (prompts, _) = listen(&gateway.modern(), json!({ "promptsListChanged": true })).await;
        let filter = json!({ "resourceSubscriptions": [two, two] });
        let (second, agreed) = listen(&gateway.modern(), filter).await;
        assert_eq!(agreed, json!({ "resourceSubscriptions": [two] }));
        let (nothing, agreed) = listen(&gateway.modern(), json!({})).await;
        assert_eq!(agreed, json!({}));
        let all = [prompts, second, nothing];
        let mut all = all.map(|stream| Hearing { client: gateway.modern(), stream });
        kind.upstream.update("a:1").await;
        everything.is_told_of(&one).await;
        kind.upstream.lists("prompts", [json!({ "name": "p" })]);
        kind.upstream.tell(PROMPTS, json!({})).await;
        everything.is_told(PROMPTS).await;
        kind.upstream.update("a:2").await;
        everything.is_told_of(&two).await;
        let mut heard = Vec::new();
        for hearing in &mut all {
            heard.push(hearing.rest().await);
        }
        let prompts = (PROMPTS.to_owned(), Value::Null);
        let updated = (UPDATED.to_owned(), json!(two));
        assert_eq!(heard, [vec![prompts], vec![updated], vec![]], "{}", kind.name);
    }
}

#[tokio::test]
async fn many_clients_are_one_subscription_and_the_last_one_out_ends_it() {
    let mut kinds = kinds().await;
    for kind in &mut kinds {
        kind.lines.push_str("isolation = \"shared\"\n");
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for kind in &kinds {
        let uri = public(kind, "a:1");
        let mut hearings = Hearing::of_both(&gateway, &uri).await;
        hearings.extend(Hearing::of_both(&gateway, &uri).await);
        assert_eq!(kind.upstream.subscriptions(), ["a:1"], "{}", kind.name);
        kind.upstream.update("a:1").await;
        for hearing in &mut hearings {
            hearing.is_told_of(&uri).await;
        }
        for hearing in hearings {
            assert_eq!(kind.upstream.subscriptions(), ["a:1"], "{}", kind.name);
            if !hearing.client.is_modern() {
                let uri = json!({ "uri": uri });
                hearing.client.request("resources/unsubscribe", uri).await.result();
            }
        }
        until(|| kind.upstream.subscriptions().is_empty()).await;
    }
}

#[tokio::test]
async fn who_unsubscribes_or_ends_its_session_hears_no_more() {
    let (kinds, gateway) = all_kinds().await;
    for kind in &kinds {
        let (one, two) = (public(kind, "a:1"), public(kind, "a:2"));
        let mut hearing = Hearing::of(gateway.legacy().await, &[&one, &two]).await;
        let params = json!({ "uri": one });
        hearing.client.request("resources/unsubscribe", params).await.result();
        until(|| kind.upstream.subscriptions() == ["a:2"]).await;
        kind.upstream.tell_anyway(UPDATED, json!({ "uri": "a:1" }));
        kind.upstream.update("a:2").await;
        hearing.is_told_of(&two).await;
        hearing.is_told_nothing().await;
        hearing.client.http("DELETE", "/mcp").of_session().send().await;
        assert_eq!(hearing.stream.message().await, None);
        until(|| kind.upstream.subscriptions().is_empty()).await;
    }
}

#[tokio::test]
async fn notifications_reach_subscribers_only() {
    let (kinds, gateway) = all_kinds().await;
    for kind in &kinds {
        let (one, two) = (public(kind, "a:1"), public(kind, "a:2"));
        let mut first = Hearing::of_both(&gateway, &one).await;
        let mut second = Hearing::of_both(&gateway, &two).await;
        for _ in 0..20 {
            kind.upstream.update("a:1").await;
        }
        for hearing in &mut first {
            let heard = hearing.rest().await;
            assert!(!heard.is_empty() && heard.iter().all(|(_, uri)| *uri == one), "{heard:?}");
        }
        for hearing in &mut second {
            hearing.is_told_nothing().await;
        }
    }
}

#[tokio::test]
async fn missing_resources_cannot_be_subscribed_to() {
    let (kinds, gateway) = all_kinds().await;
    for kind in &kinds {
        kind.upstream.refuses_to_tell_of(&["a:2"]);
        let (one, two) = (public(kind, "a:1"), public(kind, "a:2"));
        let filter = json!({ "resourceSubscriptions": ["mcp://nobody/a:1", two, one, "x:y"] });
        let (_stream, agreed) = listen(&gateway.modern(), filter).await;
        assert_eq!(agreed, json!({ "resourceSubscriptions": [one] }), "{}", kind.name);
        let legacy = gateway.legacy().await;
        for (uri, code) in [("mcp://nobody/a:1", -32602), ("x:y", -32602)] {
            let said = legacy.request("resources/subscribe", json!({ "uri": uri })).await;
            assert_eq!(said.code(), code, "{uri}");
            assert_eq!(said.error()["data"]["uri"], uri);
        }
        let refused = legacy.request("resources/subscribe", json!({ "uri": two })).await;
        let code = if kind.upstream.inner.era == Era::Legacy { -32002 } else { -32602 };
        assert_eq!(refused.code(), code, "{}: {refused:?}", kind.name);
        assert_eq!(legacy.request("resources/subscribe", json!({})).await.code(), -32602);
    }
}

#[tokio::test]
async fn a_server_that_does_not_tell_of_resources_is_not_asked_to() {
    for kind in every_kind().await {
        kind.upstream.can(json!({ "resources": {} }));
        kind.upstream.lists("resources", [json!({ "uri": "a:1", "name": "a" })]);
        let gateway = Gateway::with(kind.name, &kind.lines).start().await;
        let uri = public(&kind, "a:1");
        let filter = json!({ "resourceSubscriptions": [uri], "resourcesListChanged": true });
        let (_stream, agreed) = listen(&gateway.modern(), filter).await;
        assert_eq!(agreed, json!({ "resourcesListChanged": true }), "{}", kind.name);
        let legacy = gateway.legacy().await;
        let said = legacy.request("resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(said.code(), -32602);
        assert!(kind.upstream.all("resources/subscribe").is_empty());
        assert!(kind.upstream.all("subscriptions/listen").is_empty());
    }
}

#[tokio::test]
async fn an_update_of_a_part_reaches_subscribers_of_the_whole_resource() {
    let kinds = kinds().await;
    for kind in &kinds {
        kind.upstream.resources(&["file:///d"]);
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for kind in &kinds {
        // A server with an update that no client subscribed to.
        let mut hearing = Hearing::of(gateway.modern(), &[&public(kind, "file:///d")]).await;
        let told = json!({ "uri": "file:///d/x", "note": 1.0 });
        kind.upstream.tell_all(UPDATED, told);
        hearing.is_told_of(&public(kind, "file:///d/x")).await;
    }
}

#[tokio::test]
async fn a_client_hears_of_a_resource_by_the_uri_that_it_used() {
    let upstream = Upstream::modern().await;
    upstream.resources(&["a:1", "a:2", "a:3", "a:4"]);
    let gateway = Gateway::with("s", upstream.http()).gateway("uris = \"original\"").start().await;
    let more = ["a:2", "mcp://s/a:2", "a:3", "mcp://s/a:3", "a:4", "mcp://s/a:4"];
    for (era, client) in gateway.both().await {
        let began = Instant::now();
        let mut both = Hearing::of(client, &[&["a:1", "mcp://s/a:1"], &more[..]].concat()).await;
        // The second client subscribes to the resources that the first one has just unsubscribed
        // from. Without a verdict it would wait for five seconds for each of the eight.
        let took = began.elapsed();
        assert!(took < Duration::from_secs(30), "{era}: {took:?}");
        upstream.update("a:1").await;
        let mut heard = [both.next().await.1, both.next().await.1];
        heard.sort_by_key(Value::to_string);
        assert_eq!(heard, [json!("a:1"), json!("mcp://s/a:1")]);
    }
}

#[tokio::test]
async fn subscriptions_are_bounded_for_each_client_and_in_all() {
    let upstream = Upstream::legacy().await;
    upstream.resources(&["a:1", "a:2", "a:3"]);
    let limits = "limits.subscriptions = 2\nlimits.all_subscriptions = 3";
    let gateway = Gateway::with("s", upstream.stdio()).gateway(limits).start().await;
    let [one, two, three] = ["mcp://s/a:1", "mcp://s/a:2", "mcp://s/a:3"];
    let modern = gateway.modern();
    let too_many = json!({ "notifications": { "resourceSubscriptions": [one, two, three] } });
    let refused = modern.request("subscriptions/listen", too_many).await;
    assert_eq!((refused.status, refused.code()), (429, 42_900));
    let legacy = gateway.legacy().await;
    subscribe(&legacy, one).await;
    subscribe(&legacy, two).await;
    subscribe(&legacy, two).await;
    let third = legacy.request("resources/subscribe", json!({ "uri": three })).await;
    assert_eq!(third.code(), 42_900);
    let filter = json!({ "resourceSubscriptions": [one, two] });
    let (stream, agreed) = listen(&modern, filter.clone()).await;
    assert_eq!(agreed, json!({ "resourceSubscriptions": [one] }), "no room for more");
    drop(stream);
    until(|| {
        legacy.session();
        upstream.subscriptions().len() == 2
    })
    .await;
    legacy.request("resources/unsubscribe", json!({ "uri": two })).await.result();
    gateway.wait_for(|status| status["streams"] == 0).await;
    let (_stream, agreed) = listen(&modern, filter.clone()).await;
    assert_eq!(agreed, filter);
}

#[tokio::test]
async fn a_lazy_server_is_started_and_kept_by_a_subscription() {
    let upstream = Upstream::legacy().await;
    upstream.resources(&["a:1"]);
    let other = Upstream::legacy().await;
    let lazy = |of: &Upstream| format!("{}start = \"lazy\"\nidle_stop = \"300ms\"\n", of.stdio());
    let builder = Gateway::with("s", lazy(&upstream)).server("other", lazy(&other));
    let gateway = builder.start().await;
    let mut hearing = Hearing::of(gateway.modern(), &["mcp://s/a:1"]).await;
    // A server that is used later, and is stopped.
    gateway.modern().call("other__echo", json!({})).await.result();
    assert_eq!(other.starts(), 1);
    gateway.wait_for(|status| of(status, "other")["state"] == "idle").await;
    upstream.update("a:1").await;
    hearing.rest().await;
    assert_eq!(upstream.starts(), 1);
    drop(hearing);
    gateway.wait_for(|status| status["servers"][0]["state"] == "idle").await;
}

#[tokio::test]
async fn a_stream_is_quiet_where_there_is_nothing_to_tell() {
    let gateway = Gateway::alone().gateway("keep_alive = \"1s\"").start().await;
    let (mut stream, _) = listen(&gateway.modern(), json!({ "toolsListChanged": true })).await;
    assert_eq!(stream.piece().await, Some(Piece::Comment));
}
