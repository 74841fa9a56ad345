//! Long calls, and the notifications of their clients.

use std::time::Duration;

use serde_json::json;

use crate::support::{Gateway, Step, Upstream};

const SETTINGS: &str = "slow_after = \"20ms\"\nslow_message = \"One moment\"\n";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

#[tokio::test]
async fn a_client_with_a_token_hears_of_a_slow_call_before_its_result() {
    for upstream in Upstream::both().await {
        for (way, lines) in upstream.ways() {
            let gateway = Gateway::with("s", lines + SETTINGS).start().await;
            for (era, client) in gateway.both().await {
                let mut reply =
                    client.ask_call("s__hold", json!({})).token(json!("t")).send().await;
                let heard = reply.message().await.unwrap();
                assert_eq!(heard["method"], "notifications/progress", "{way} {era}: {heard}");
                assert_eq!(heard["params"]["message"], "One moment", "{way} {era}");
                assert_eq!(heard["params"]["progressToken"], "t", "{way} {era}");
                upstream.release(1);
                let answer = reply.message().await.unwrap();
                assert_eq!(answer["result"]["content"][0]["text"], "held", "{way} {era}: {answer}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_asks_for_logs_hears_a_log_message_and_no_other_client_hears_anything() {
    let upstream = Upstream::modern().await;
    upstream.does("slow", |_| vec![Step::Pause(Duration::from_millis(100)), Step::text("done")]);
    let gateway = Gateway::with("s", upstream.http() + SETTINGS).start().await;
    let client = gateway.modern();
    let ask = client.ask_call("s__slow", json!({})).meta(LEVEL, json!("info"));
    let said = ask.send().await.said().await;
    let [heard] = said.notices() else { panic!("{said:?}") };
    assert_eq!(heard["method"], "notifications/message");
    assert_eq!(
        (&heard["params"]["level"], &heard["params"]["data"]),
        (&json!("info"), &json!("One moment"))
    );
    assert_eq!(said.text(), "done");
    // Without a token and a level, or with a more severe level.
    for (era, client) in gateway.both().await {
        let said = client.call("s__slow", json!({})).await;
        assert_eq!((said.notices().len(), said.text()), (0, "done"), "{era}: {said:?}");
    }
    let ask = client.ask_call("s__slow", json!({})).meta(LEVEL, json!("error"));
    let said = ask.send().await.said().await;
    assert_eq!((said.notices().len(), said.text()), (0, "done"), "{said:?}");
}

#[tokio::test]
async fn a_call_that_reports_its_own_progress_is_not_called_slow() {
    let upstream = Upstream::legacy().await;
    upstream.does("busy", |_| {
        vec![Step::Progress(1), Step::Pause(Duration::from_millis(2500)), Step::text("done")]
    });
    // Long enough for the first progress to arrive on a loaded machine.
    let settings = "slow_after = \"1m\"\ntools.busy.slow_after = \"2s\"";
    let gateway = Gateway::with("s", upstream.http() + settings).start().await;
    for (era, client) in gateway.both().await {
        let said = client.ask_call("s__busy", json!({})).token(json!(7)).send().await.said().await;
        let [progress] = said.notices() else { panic!("{era}: {said:?}") };
        assert_eq!(progress["params"]["progress"], 1, "{era}");
    }
}
