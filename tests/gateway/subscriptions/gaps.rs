//! Subscriptions across lost servers, sessions and streams, reloads, and clients that do not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{Hearing, all_kinds, kinds, public, subscribe};
use crate::support::upstream::news::{PROMPTS, RESOURCES, TOOLS, UPDATED};
use crate::support::{Gateway, Upstream, until, within};

#[tokio::test]
async fn subscriptions_to_a_lost_server_are_renewed_and_clients_are_notified_of_possible_changes() {
    for kind in kinds().await {
        let gateway = Gateway::with(kind.name, &kind.lines).start().await;
        let uri = public(&kind, "a:1");
        let mut hearings = Hearing::of_both(&gateway, &uri).await;
        kind.upstream.lists("prompts", [json!({ "name": "meanwhile" })]);
        kind.upstream.inner.sessions.lock().unwrap().clear();
        kind.upstream.crash();
        for hearing in &mut hearings {
            let mut awaited = vec![(UPDATED.into(), json!(uri)), (PROMPTS.into(), Value::Null)];
            while !awaited.is_empty() {
                let heard = hearing.next().await;
                awaited.retain(|one| *one != heard);
            }
            hearing.rest().await;
        }
        kind.upstream.update("a:1").await;
        for hearing in &mut hearings {
            hearing.is_told_of(&uri).await;
        }
    }
}

#[tokio::test]
async fn a_session_that_the_server_has_lost_takes_no_subscription_with_it() {
    let upstream = Upstream::legacy().await;
    upstream.resources(&["a:1"]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let mut hearings = Hearing::of_both(&gateway, "mcp://s/a:1").await;
    upstream.forget_sessions();
    for hearing in &mut hearings {
        // The next call detects that the session is lost.
        assert_eq!(hearing.client.call("s__echo", json!({})).await.text(), "{}");
        hearing.is_told_of("mcp://s/a:1").await;
        hearing.rest().await;
    }
    assert_eq!(upstream.subscriptions(), ["a:1", "a:1"], "each in its own session");
    upstream.update("a:1").await;
    for hearing in &mut hearings {
        hearing.is_told_of("mcp://s/a:1").await;
    }
}

#[tokio::test]
async fn a_session_lost_before_its_first_stream_opens_gets_updates_in_the_next_session() {
    let upstream = Upstream::legacy().await;
    upstream.resources(&["a:1"]);
    let (inner, lost) = (Arc::downgrade(&upstream.inner), AtomicBool::new(false));
    upstream.guards(move |received| {
        if received.method == "GET" && !lost.swap(true, Ordering::SeqCst) {
            inner.upgrade()?.sessions.lock().unwrap().clear();
        }
        None
    });
    let gateway = Gateway::with("s", upstream.http() + "isolation = \"shared\"\n").start().await;
    upstream.heard("GET", 1).await;
    let mut hearings = Hearing::of_both(&gateway, "mcp://s/a:1").await;
    for hearing in &mut hearings {
        assert_eq!(hearing.client.call("s__echo", json!({})).await.text(), "{}");
    }
    upstream.heard("GET", 2).await;
    upstream.update("a:1").await;
    for hearing in &mut hearings {
        hearing.is_told_of("mcp://s/a:1").await;
    }
}

#[tokio::test]
async fn a_stream_that_its_server_ends_is_resumed_at_the_servers_pace_without_repeated_updates() {
    let upstream = Upstream::legacy().await;
    upstream.resources(&["a:1"]);
    let (polled, is_polled) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(true)));
    let polls = Arc::clone(&is_polled);
    upstream.guards(move |received| {
        (received.method == "GET" && polls.load(Ordering::SeqCst)).then(|| {
            let number = polled.fetch_add(1, Ordering::SeqCst);
            let events = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
            (200, events, format!("id: {number}\nretry: 0\ndata:\n\n"))
        })
    });
    let gateway = Gateway::with("s", upstream.http() + "isolation = \"shared\"\n").start().await;
    let mut hearing = Hearing::of(gateway.legacy().await, &["mcp://s/a:1"]).await;
    // With backoff, so many connections take longer than a test waits.
    upstream.heard("GET", upstream.all("GET").len() + 8).await;
    let heard = within(hearing.rest()).await;
    assert!(heard.iter().all(|(method, _)| method != UPDATED), "{heard:?}");
    let streams = upstream.all("GET");
    assert_eq!(streams[0].header("last-event-id"), None);
    for (number, stream) in streams[1..].iter().enumerate() {
        assert_eq!(stream.header("last-event-id"), Some(&*number.to_string()));
    }
    // From now on the server refuses the ids, so that the gateway begins anew.
    is_polled.store(false, Ordering::SeqCst);
    within(hearing.is_told_of("mcp://s/a:1")).await;
    upstream.update("a:1").await;
    hearing.is_told_of("mcp://s/a:1").await;
}

#[tokio::test]
async fn subscriptions_outlive_a_reload_that_replaces_their_server() {
    for kind in kinds().await {
        let gateway = Gateway::with(kind.name, &kind.lines).start().await;
        let uri = public(&kind, "a:1");
        let mut hearings = Hearing::of_both(&gateway, &uri).await;
        let changed = format!("{}max_response = \"2MiB\"\n", kind.lines);
        gateway.reload(Gateway::with(kind.name, changed)).await;
        for hearing in &mut hearings {
            hearing.is_told_of(&uri).await;
            hearing.rest().await;
        }
        kind.upstream.update("a:1").await;
        for hearing in &mut hearings {
            hearing.is_told_of(&uri).await;
        }
        gateway.reload(Gateway::alone()).await;
        for hearing in &mut hearings {
            let lists: Vec<_> =
                hearing.rest().await.into_iter().map(|(method, _)| method).collect();
            assert!(lists.contains(&TOOLS.to_owned()), "{lists:?}");
            assert!(lists.contains(&RESOURCES.to_owned()), "{lists:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_never_reads_delays_no_other_and_gets_the_newest_in_the_end() {
    let (kinds, gateway) = all_kinds().await;
    for kind in &kinds {
        let (one, two) = (public(kind, "a:1"), public(kind, "a:2"));
        let mut lazy = Vec::new();
        for (_, client) in gateway.both().await {
            lazy.push(Hearing::of(client, &[&one, &two]).await);
        }
        let mut reader = Hearing::of(gateway.modern(), &[&one]).await;
        let padding = "x".repeat(8 * 1024);
        for number in 0..500 {
            let params = json!({ "uri": "a:1", "number": number, "padding": padding });
            kind.upstream.tell_anyway(UPDATED, params);
            if number % 10 == 0 {
                reader.is_told_of(&one).await;
            }
        }
        kind.upstream.update("a:2").await;
        for hearing in &mut lazy {
            let mut told = 0;
            while hearing.next().await != (UPDATED.into(), json!(two)) {
                told += 1;
            }
            assert!(told <= 500, "{told}");
        }
    }
}

#[tokio::test]
async fn changes_without_an_open_get_stream_are_reported_on_the_next() {
    let (kinds, gateway) = all_kinds().await;
    for kind in &kinds {
        let uri = public(kind, "a:1");
        let client = gateway.legacy().await;
        for kind in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            client.request(kind, json!({})).await.result();
        }
        subscribe(&client, &uri).await;
        for number in 0..5 {
            kind.upstream.update("a:1").await;
            kind.upstream.lists("prompts", [json!({ "name": number.to_string() })]);
        }
        let mut changes = gateway.running.gateway.changes();
        let before = kind.upstream.all("prompts/list").len();
        kind.upstream.tell(PROMPTS, json!({})).await;
        // The gateway reads a server's messages in their order: it has the updates, too.
        until(|| kind.upstream.all("prompts/list").len() > before).await;
        within(changes.changed()).await.unwrap();
        let stream = client.listen().await;
        let mut hearing = Hearing { client, stream };
        let mut heard = hearing.rest().await;
        heard.sort_by_key(|(method, _)| method.clone());
        let expected = [(PROMPTS.to_owned(), Value::Null), (UPDATED.to_owned(), json!(uri))];
        assert_eq!(heard, expected, "{}: each once", kind.name);
    }
}
