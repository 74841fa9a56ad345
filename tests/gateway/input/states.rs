//! States that clients hold while a server waits: sealed, bound, and valid for a limited time.

use serde_json::{Value, json};

use crate::support::gateway::Builder;
use crate::support::issuer::now;
use crate::support::{Client, Gateway, Kind, Said, Upstream, client_table, every_kind, until};

use super::{Asked, ann, ask, asks, everything, form, json_of, retry};

async fn kinds() -> Vec<Kind> {
    let kinds = every_kind().await;
    asks(&kinds, "ask", || vec![("q", "elicitation/create", form())]);
    asks(&kinds, "other", || vec![("q", "elicitation/create", form())]);
    kinds
}

#[track_caller]
fn is_refused(said: &Said, reason: &str) {
    assert_eq!(said.code(), -32602, "{said:?}");
    let text = said.error()["message"].as_str().unwrap();
    assert!(text.contains("requestState") && text.contains(reason), "{text}");
}

const FOREIGN: &str = "it was not issued to this client";

#[tokio::test]
async fn a_state_shows_nothing_and_is_no_good_when_it_is_changed() {
    let kinds = kinds().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let client = gateway.modern().offering(everything()).await;
    for kind in &kinds {
        let tool = format!("{}__ask", kind.name);
        let asked = ask(&client, &tool).await;
        let state = asked.state().as_str().unwrap().to_owned();
        assert!(!state.contains("mine"), "a server's own state is sealed");
        let mut flipped = state.clone().into_bytes();
        flipped[30] = if flipped[30] == b'A' { b'B' } else { b'A' };
        let flipped = String::from_utf8(flipped).unwrap();
        for wrong in [format!("{state}-TAMPERED"), flipped, "mine".into(), String::new()] {
            is_refused(&retry(&client, &tool, asked.all(&ann()), &json!(wrong)).await, FOREIGN);
        }
        let said = retry(&client, &tool, asked.all(&ann()), asked.state()).await;
        assert_eq!(json_of(&said), json!({ "q": ann() }), "{tool}");
    }
}

#[tokio::test]
async fn a_state_is_good_for_its_own_request_alone() {
    let kinds = kinds().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let client = gateway.modern().offering(everything()).await;
    for kind in &kinds {
        let tool = format!("{}__ask", kind.name);
        let asked = ask(&client, &tool).await;
        let other = format!("{}__other", kind.name);
        is_refused(&retry(&client, &other, asked.all(&ann()), asked.state()).await, "another");
        for (tool, arguments) in [(&tool, json!({ "a": 2 })), (&tool, json!({ "a": 1, "b": 1 }))] {
            let ask = client.ask_call(tool, arguments).param("requestState", asked.state().clone());
            let ask = ask.param("inputResponses", asked.all(&ann()));
            is_refused(&ask.send().await.said().await, "another");
        }
    }
}

pub fn with_keys(mut builder: Builder) -> Builder {
    for name in ["ann", "bob"] {
        builder = builder.toml(&client_table(name, name, ""));
    }
    builder
}

#[tokio::test]
async fn a_state_is_good_for_its_own_principal_alone() {
    let kinds = kinds().await;
    let gateway = with_keys(Gateway::alone().kinds(&kinds)).start_at_once().await;
    let client = |name: &str| gateway.modern().key(name).offering(everything());
    let (ann_, bob) = (client("ann").await, client("bob").await);
    for kind in &kinds {
        gateway.ready(kind.name).await;
        let tool = format!("{}__ask", kind.name);
        let asked = ask(&ann_, &tool).await;
        is_refused(&retry(&bob, &tool, asked.all(&ann()), asked.state()).await, FOREIGN);
        let said = retry(&ann_, &tool, asked.all(&ann()), asked.state()).await;
        assert_eq!(json_of(&said), json!({ "q": ann() }), "{tool}");
    }
}

#[tokio::test]
async fn a_state_is_good_at_the_endpoint_where_it_was_given_alone() {
    let kinds = kinds().await;
    let builder = Gateway::alone().kinds(&kinds).toml("[profiles.all]\ntools = [\"*\"]\n");
    let gateway = builder.start().await;
    let at = |endpoint: &'static str| gateway.modern().at(endpoint).offering(everything());
    let endpoints =
        ["/mcp", "/mcp?tools=*__ask", "/mcp?tools=*__a*", "/mcp/all", "/mcp/all?tools=*__ask"];
    for kind in &kinds {
        let tool = format!("{}__ask", kind.name);
        for given in endpoints {
            let asked = ask(&at(given).await, &tool).await;
            for other in endpoints.into_iter().filter(|other| *other != given) {
                let said = retry(&at(other).await, &tool, asked.all(&ann()), asked.state()).await;
                is_refused(&said, FOREIGN);
            }
            let said = retry(&at(given).await, &tool, asked.all(&ann()), asked.state()).await;
            assert_eq!(json_of(&said), json!({ "q": ann() }), "{tool} at {given}");
        }
    }
}

#[tokio::test]
async fn a_state_expires() {
    let kinds = kinds().await;
    let builder = Gateway::alone().kinds(&kinds);
    let gateway = builder.toml("[gateway.limits]\nparked_time = \"1s\"\n").start().await;
    let client = gateway.modern().offering(everything()).await;
    let mut held = Vec::new();
    for kind in &kinds {
        let tool = format!("{}__ask", kind.name);
        held.push((ask(&client, &tool).await, tool));
    }
    // The end of a state is a whole second.
    let ends = now() + 2;
    until(|| now() >= ends).await;
    for (asked, tool) in held {
        is_refused(&retry(&client, &tool, asked.all(&ann()), asked.state()).await, "expired");
    }
}

#[tokio::test]
async fn a_state_that_was_used_is_used_up_where_a_call_waited() {
    let kinds = kinds().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let client = gateway.modern().offering(everything()).await;
    for kind in kinds.iter().filter(|kind| kind.name.starts_with("legacy")) {
        let tool = format!("{}__ask", kind.name);
        let asked = ask(&client, &tool).await;
        let (one, two) = tokio::join!(
            retry(&client, &tool, asked.all(&ann()), asked.state()),
            retry(&client, &tool, asked.all(&ann()), asked.state())
        );
        let (used, refused) =
            if one.answer().get("result").is_some() { (one, two) } else { (two, one) };
        assert_eq!(json_of(&used), json!({ "q": ann() }), "{tool}");
        is_refused(&refused, "no longer waiting");
        let again = retry(&client, &tool, asked.all(&ann()), asked.state()).await;
        is_refused(&again, "no longer waiting");
    }
}

/// Starts a gateway with these keys in front of a Modern server.
async fn keyed(upstream: &Upstream, keys: &[&str]) -> (Gateway, Client) {
    let gateway = Gateway::with("s", upstream.http());
    let gateway = gateway.gateway(&format!("state_keys = {}", json!(keys))).start().await;
    let client = gateway.modern().offering(everything()).await;
    (gateway, client)
}

async fn modern() -> Upstream {
    let kinds = kinds().await;
    kinds.into_iter().find(|kind| kind.name == "modern-http").unwrap().upstream
}

const OLD: &str = "0123456789abcdef0123456789abcdef";
const NEW: &str = "fedcba9876543210fedcba9876543210";

#[tokio::test]
async fn gateways_that_share_a_key_take_each_others_states_and_keys_rotate() {
    let upstream = modern().await;
    let good = |said: Said| assert_eq!(json_of(&said), json!({ "q": ann() }));
    let (_old, old) = keyed(&upstream, &[OLD]).await;
    let (_both, both) = keyed(&upstream, &[NEW, OLD]).await;
    let (_new, new) = keyed(&upstream, &[NEW]).await;
    let back = async |client: &Client, asked: &Asked| {
        retry(client, "s__ask", asked.all(&ann()), asked.state()).await
    };
    let by_old = ask(&old, "s__ask").await;
    let by_both = ask(&both, "s__ask").await;
    good(back(&both, &by_old).await);
    good(back(&new, &by_both).await);
    is_refused(&back(&old, &by_both).await, FOREIGN);
    is_refused(&back(&new, &by_old).await, FOREIGN);
}

#[tokio::test]
async fn a_reload_changes_the_keys_and_without_any_a_key_lasts_over_reloads() {
    let upstream = modern().await;
    let (gateway, client) = keyed(&upstream, &[OLD]).await;
    let asked = ask(&client, "s__ask").await;
    let with =
        |keys: Value| Gateway::with("s", upstream.http()).gateway(&format!("state_keys = {keys}"));
    let back =
        async |asked: &Asked| retry(&client, "s__ask", asked.all(&ann()), asked.state()).await;
    gateway.reload(with(json!([NEW, OLD]))).await;
    assert_eq!(json_of(&back(&asked).await), json!({ "q": ann() }));
    gateway.reload(with(json!([NEW]))).await;
    is_refused(&back(&asked).await, FOREIGN);
    gateway.reload(with(json!([]))).await;
    let asked = ask(&client, "s__ask").await;
    gateway.reload(with(json!([])).gateway("title = \"another\"")).await;
    assert_eq!(json_of(&back(&asked).await), json!({ "q": ann() }));
}

#[tokio::test]
async fn keys_stand_nowhere() {
    let upstream = modern().await;
    let (gateway, client) = keyed(&upstream, &[OLD]).await;
    ask(&client, "s__ask").await;
    assert!(!gateway.status().await.to_string().contains(OLD));
    assert!(!gateway.metrics().await.contains(OLD));
}

#[tokio::test]
async fn a_large_question_is_sealed_as_well() {
    let upstream = Upstream::modern().await;
    upstream.does("ask", |call| match call.params.get("inputResponses") {
        Some(said) => vec![crate::support::Step::text(said.to_string())],
        None => {
            let mut large = form();
            large["message"] = json!("x".repeat(600 * 1024));
            vec![super::required(&[("q", "elicitation/create", large)], Some("mine"))]
        }
    });
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern().offering(everything()).await;
    let asked = ask(&client, "s__ask").await;
    assert_ne!(asked.state(), "mine");
    let said = retry(&client, "s__ask", asked.all(&ann()), asked.state()).await;
    assert_eq!(json_of(&said), json!({ "q": ann() }));
}
