//! Modern requests that go on at another replica: retries of parked calls, and reads of kept results.

use serde_json::{Value, json};

use crate::cluster::{RedisServer, forwarded, start_replicas};
use crate::support::client::Ask;
use crate::support::{Client, Gateway, Step, Upstream, client_table, until_async};

/// A Legacy server whose tool `ask` needs an answer of the user.
pub async fn asking_server() -> Upstream {
    let upstream = Upstream::legacy().await;
    upstream.does("ask", |_| {
        let schema = json!({ "type": "object", "properties": {} });
        let form = json!({ "mode": "form", "message": "Who?", "requestedSchema": schema });
        vec![Step::Ask("who", "elicitation/create", form), Step::Await("who"), Step::Answers]
    });
    upstream
}

fn ask(client: &Client) -> Ask<'_> {
    let able = json!({ "elicitation": { "form": {} } });
    let ask = client.ask_call("s__ask", json!({}));
    ask.meta("io.modelcontextprotocol/clientCapabilities", able)
}

/// Makes a call that waits for its client. Returns the members of a retry that would end it.
pub async fn park(client: &Client) -> WaitingCall {
    let said = ask(client).send().await.said().await;
    let result = said.result().clone();
    assert_eq!(result["resultType"], "input_required", "{said:?}");
    let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let answers = json!({ key: { "action": "accept", "content": {} } });
    WaitingCall { answers, state: result["requestState"].clone() }
}

/// The members of a retry that ends a parked call.
pub struct WaitingCall {
    answers: Value,
    state: Value,
}

/// Answers the question of a parked call.
pub fn retry_parked<'a>(client: &'a Client, waiting: &WaitingCall) -> Ask<'a> {
    let WaitingCall { answers, state } = waiting;
    ask(client).param("inputResponses", answers.clone()).param("requestState", state.clone())
}

#[tokio::test]
async fn a_parked_call_is_resumed_through_any_replica_once() {
    let (redis, upstream) = (RedisServer::start().await, asking_server().await);
    let with_clients = || {
        Gateway::with("s", upstream.http())
            .toml(&client_table("one", "key-one", ""))
            .toml(&client_table("two", "key-two", ""))
    };
    let [a, b, c] = start_replicas(&redis.url(), with_clients).await;
    let waiting = park(&a.modern().key("key-one")).await;
    // The state is worthless to another client, at each replica.
    for replica in [&a, &b] {
        let said =
            retry_parked(&replica.modern().key("key-two"), &waiting).send().await.said().await;
        assert_eq!(said.code(), -32602, "{said:?}");
    }
    assert_eq!(forwarded(&b, "answered").await, 0);
    let said = retry_parked(&b.modern().key("key-one"), &waiting).send().await.said().await;
    assert!(said.text().contains("accept"), "{said:?}");
    assert_eq!(forwarded(&b, "answered").await, 1);
    for replica in [&a, &b, &c] {
        let said =
            retry_parked(&replica.modern().key("key-one"), &waiting).send().await.said().await;
        assert_eq!(said.code(), -32602, "the call has ended: {said:?}");
    }
    assert_eq!(upstream.all("tools/call").len(), 1);
    // Other calls of Modern clients are not forwarded.
    let said = c.modern().key("key-one").call("s__echo", json!({ "requestState": "x" })).await;
    assert_eq!(said.text(), r#"{"requestState":"x"}"#);
    assert_eq!(forwarded(&c, "answered").await, 1, "only the retry was forwarded");
}

#[tokio::test]
async fn a_parked_call_of_a_lost_replica_ends_with_an_error() {
    let (redis, upstream) = (RedisServer::start().await, asking_server().await);
    let [a, b] = start_replicas(&redis.url(), || Gateway::with("s", upstream.http())).await;
    let waiting = park(&a.modern()).await;
    a.stop().await;
    let is_gone =
        async || retry_parked(&b.modern(), &waiting).send().await.said().await.code() == -32602;
    until_async(is_gone).await;
    assert_eq!(upstream.all("tools/call").len(), 1, "the call was not repeated");
}

#[tokio::test]
async fn a_kept_result_is_read_through_any_replica() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let text = "0123456789".repeat(2000);
    upstream.does("large", move |_| vec![Step::text(&text)]);
    let lines = format!(
        "{}\nresult = {{ max_size = \"4KiB\", when_larger = \"resource\" }}\n",
        upstream.http()
    );
    let [a, b] = start_replicas(&redis.url(), || Gateway::with("s", lines.clone())).await;
    let said = a.modern().call("s__large", json!({})).await;
    let link = said.answer().to_string();
    let start = link.find("trunkline://results/").unwrap_or_else(|| panic!("{link}"));
    let uri: String = link[start..].chars().take("trunkline://results/".len() + 48).collect();
    for (replica, forwarded_by_it) in [(&a, 0), (&b, 1)] {
        let said = replica.modern().read_resource(&format!("{uri}?range=0-3")).await;
        assert_eq!(said.answer()["result"]["contents"][0]["text"], "0123", "{said:?}");
        assert_eq!(forwarded(replica, "answered").await, forwarded_by_it);
    }
}
