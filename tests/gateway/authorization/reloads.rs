//! Rules that change while clients are connected.

use serde_json::json;

use super::{Two, names, told};
use crate::support::{Reply, within};

const ALL: &str = "[policy.rules.all]\n";
const FEW: &str = "[policy.rules.few]\nprincipals = [\"ann\"]\ntools = [\"a__echo\"]\n\
                   [policy.rules.rest]\nprincipals = [\"root\"]\n";

#[tokio::test]
async fn clients_with_changed_lists_are_notified_without_the_lost_names() {
    let two = Two::new().await;
    let gateway = two.with(ALL).start().await;
    let both = gateway.both_as("key-of-ann", "/mcp").await;
    let mut streams = Vec::new();
    for (era, ann) in &both {
        assert!(ann.tool_names().await.contains(&"b__echo".to_owned()), "{era}");
        assert!(!ann.call("b__echo", json!({})).await.is_error(), "{era}");
        streams.push(ann.listen().await);
    }
    gateway.reload(two.with(FEW)).await;
    for stream in &mut streams {
        let message = within(stream.message()).await.unwrap();
        assert_eq!(message["method"], "notifications/tools/list_changed");
    }
    for (era, ann) in &both {
        assert_eq!(ann.tool_names().await, ["a__echo"], "{era}");
        assert_eq!(names(ann, "prompts/list", "prompts", "name").await, [""; 0], "{era}");
        // As if it had never existed: the answer does not reveal its removal.
        let lost = ann.call("b__echo", json!({})).await;
        assert_eq!(lost.code(), -32_602, "{era} {lost:?}");
        let message = lost.error()["message"].as_str().unwrap();
        assert!(message.starts_with("unknown tool: "), "{era} {lost:?}");
    }
}

#[tokio::test]
async fn a_subscription_ends_with_the_right_to_it() {
    let two = Two::new().await;
    let gateway = two.with(ALL).start().await;
    let [_, (_, ann)] = gateway.both_as("key-of-ann", "/mcp").await;
    let mut stream = ann.listen().await;
    let uris = ["mcp://a/b://2", "mcp://a/file:///a.txt"];
    for uri in uris {
        assert!(ann.subscribes(uri).await);
    }
    // Subscribing may send updates of the resources, too: those from before the reload are read
    // first.
    for (native, uri) in [("b://2", uris[0]), ("file:///a.txt", uris[1])] {
        two.a.update(native).await;
        next_update_of(&mut stream, |told| told == uri).await;
    }
    let rules = format!("{FEW}[policy.rules.file]\nresources = [\"{}\"]\n", uris[1]);
    gateway.reload(two.with(&rules)).await;
    two.a.update("b://2").await;
    two.a.update("file:///a.txt").await;
    let told = next_update_of(&mut stream, |_| true).await;
    assert_eq!(told, uris[1], "the first one was not told");
}

/// Returns the URI of the next matching update.
async fn next_update_of(stream: &mut Reply, fits: impl Fn(&str) -> bool) -> String {
    within(async {
        loop {
            let message = stream.message().await.unwrap();
            let uri = message["params"]["uri"].as_str().unwrap_or_default();
            if message["method"] == "notifications/resources/updated" && fits(uri) {
                return uri.to_owned();
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_client_that_loses_a_group_loses_its_permissions() {
    let two = Two::new().await;
    let rules = "[policy.rules.readers]\ngroups = [\"readers\"]\n";
    let gateway = two.with(rules).start().await;
    let both = gateway.both_as("key-of-ann", "/mcp").await;
    let mut streams = Vec::new();
    for (_, ann) in &both {
        assert!(!ann.call("b__echo", json!({})).await.is_error());
        streams.push(ann.listen().await);
    }
    let text = two.with(rules).text().replacen("groups = [\"readers\"]\n", "", 1);
    assert_ne!(text, two.with(rules).text());
    gateway.reload_text(&text).await;
    for stream in &mut streams {
        // It had the client's former groups.
        within(async { while stream.message().await.is_some() {} }).await;
    }
    for (era, ann) in &both {
        assert_eq!(ann.tool_names().await, [""; 0], "{era}");
        let lost = ann.call("b__echo", json!({})).await;
        let never = ann.call("b__none", json!({})).await;
        assert_eq!(lost.code(), never.code(), "{era}");
        let _ = told(&lost, "b__echo");
    }
}
