//! Results of megabytes: with many links each takes long to rewrite, and each occupies memory until
//! it has been sent.

use std::pin::pin;

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::long_calls::{LongCalls, connected_bystander};
use crate::support::{Client, Gateway, Said, Step, Upstream, within};
use crate::{ATTACKER, BYSTANDER, two_clients};

/// Starts a gateway that serves all clients on one thread, and a server with a tool that returns
/// very many links.
async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::modern().await;
    let links = r#"{"type":"resource_link","uri":"a:1","name":""}"#;
    let result = format!(r#"{{"content":[{}]}}"#, vec![links; 20_000].join(","));
    upstream.offers_everything().does("links", move |_| vec![Step::Raw(result.clone())]);
    let builder = Gateway::with("s", upstream.http()).gateway("threads = 1");
    let gateway = two_clients(builder).start().await;
    (gateway, upstream)
}

fn attack(gateway: &Gateway, calls: usize) -> LongCalls {
    LongCalls::begin(
        gateway,
        calls,
        "s__links",
        || json!({}),
        |said| {
            let content = said.result()["content"].as_array().unwrap();
            assert_eq!(content.len(), 20_000);
            assert!(content.iter().all(|link| link["uri"] == "mcp://s/a:1"));
        },
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_with_many_links_hold_up_no_other_client() {
    let (gateway, _upstream) = gateway().await;
    let bystander = connected_bystander(&gateway).await;
    attack(&gateway, 4).hold_up_no_other_client(&bystander).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_of_one_client_delay_no_other() {
    let (gateway, _upstream) = gateway().await;
    let own = async {
        let said = gateway.modern().key(BYSTANDER).call("s__links", json!({})).await;
        assert!(!said.is_error(), "{}", said.text());
    };
    attack(&gateway, 8).delay_no_long_call(own).await;
}

/// More than half of the permitted bytes in memory.
const LARGE: usize = 300 << 10;

/// A gateway with a limit for responses. Each result waits for an interceptor that never answers,
/// and stays in memory meanwhile.
struct WaitingResults {
    gateway: Gateway,
    interceptor: TcpListener,
    tool: &'static str,
}

impl WaitingResults {
    async fn behind(bound: &str, lines: String, tool: &'static str) -> Self {
        let interceptor = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let check = format!(
            "[interceptors.check]\nurl = \"http://{}/\"\ntimeout = \"60s\"\non = [\"result\"]\n",
            interceptor.local_addr().unwrap()
        );
        let server = lines + "max_response = \"512KiB\"\ninterceptors = [\"check\"]\n";
        let builder = Gateway::with("s", server).toml(&check).gateway(bound);
        Self { gateway: two_clients(builder).start().await, interceptor, tool }
    }

    fn client(&self, key: &str) -> Client {
        self.gateway.modern().key(key)
    }

    async fn call(&self, client: &Client) -> Said {
        let call = client.ask_call(&format!("s__{}", self.tool), json!({}));
        call.token(json!("t")).send().await.said().await
    }

    /// Drives a call until its result waits, for the lifetime of the interceptor's socket. Returns
    /// the reason if it is refused instead.
    async fn wait_for(&self, call: impl Future<Output = Said>) -> Result<TcpStream, String> {
        tokio::select! {
            accepted = within(self.interceptor.accept()) => Ok(accepted.unwrap().0),
            said = call => Err(said.text().to_owned()),
        }
    }
}

#[tokio::test]
async fn results_in_memory_are_bounded_for_each_client_and_for_all() {
    let upstream = Upstream::modern().await;
    upstream.does("large", |_| vec![Step::text("x".repeat(LARGE))]);
    upstream.does("streamed", |call| {
        let params = json!({ "progressToken": call.token(), "progress": 1 });
        let method = "notifications/progress";
        let progress = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        vec![Step::Send(progress), Step::text("x".repeat(LARGE))]
    });
    let ways =
        [(upstream.http(), "large"), (upstream.http(), "streamed"), (upstream.stdio(), "large")];
    let bounds = [
        ("limits.responses)", "limits.responses = \"512KiB\"", false),
        ("limits.responses_each)", "limits.responses_each = \"512KiB\"", true),
    ];
    for ((name, bound, spares_others), way) in
        bounds.into_iter().flat_map(|bound| ways.clone().map(|way| (bound, way)))
    {
        let named = format!("{bound} {way:?}");
        let waiting = WaitingResults::behind(bound, way.0, way.1).await;
        let (attacker, bystander) = (waiting.client(ATTACKER), waiting.client(BYSTANDER));
        {
            let mut first = pin!(waiting.call(&attacker));
            let _socket = waiting.wait_for(first.as_mut()).await.expect(&named);
            let refusal = waiting.wait_for(waiting.call(&attacker)).await.expect_err(&named);
            assert!(refusal.contains(name), "{named}: {refusal}");
            let other = waiting.wait_for(waiting.call(&bystander)).await;
            assert_eq!(other.is_ok(), spares_others, "{named}: {other:?}");
        }
        // The calls end with their clients, and release their memory.
        within(async { while waiting.wait_for(waiting.call(&attacker)).await.is_err() {} }).await;
    }
}
