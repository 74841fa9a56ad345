//! Sessions and streams of users: their owners and their end.

use serde_json::json;

use super::{House, is_refused};
use crate::support::issuer::now;
use crate::support::{Gateway, Issuer, Said, Step, Upstream, client_table, until, within};

#[tokio::test]
async fn a_session_is_not_there_for_another_user() {
    let house = House::with("", |it| it.toml(&client_table("ann", "key-of-ann", ""))).await;
    let [_, (_, ours)] = house.gateway.both_as(&house.token(json!({})), "/mcp").await;
    let lost = |said: &Said| assert_eq!((said.status, said.code()), (404, -32600), "{said:?}");
    // Another user of the issuer, and a client with the name of the user.
    for credential in [house.token(json!({ "sub": "bob" })), "key-of-ann".to_owned()] {
        let theirs = house.gateway.plain().key(&credential).becomes(ours.kind());
        lost(&theirs.call("s__echo", json!({})).await);
        lost(&theirs.get_stream().send().await.said().await);
        lost(&theirs.http("DELETE", "/mcp").of_session().send().await.said().await);
    }
    let without = house.gateway.plain().becomes(ours.kind());
    assert_eq!(without.call("s__echo", json!({})).await.status, 401);
    assert_eq!(ours.call("s__echo", json!({})).await.text(), "{}", "it is still there");
}

#[tokio::test]
async fn a_session_goes_on_with_a_new_token_and_streams_end_with_the_old_one() {
    let house = House::with("clock_skew = \"0s\"", |builder| builder).await;
    let ends = now() + 3;
    let short = house.token(json!({ "exp": ends }));
    let [(_, modern), (_, legacy)] = house.gateway.both_as(&short, "/mcp").await;
    let mut streams = vec![modern.listen().await, legacy.listen().await];
    for stream in &mut streams {
        within(async { while stream.message().await.is_some() {} }).await;
    }
    assert!((ends..ends + 10).contains(&now()), "at once, not at the next sign of life");
    is_refused(&modern.call("s__echo", json!({})).await, "has expired");
    is_refused(&legacy.call("s__echo", json!({})).await, "has expired");
    let renewed = legacy.key(&house.token(json!({})));
    assert_eq!(renewed.call("s__echo", json!({})).await.text(), "{}", "the same session");
    renewed.listen().await;
}

#[tokio::test]
async fn a_call_ends_by_itself_when_its_token_expires_meanwhile() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    upstream.does("slow", |_| vec![Step::Progress(1), Step::Hold, Step::text("done")]);
    let table = issuer.table("idp", "clock_skew = \"0s\"");
    let gateway = Gateway::with("s", upstream.http()).toml(&table).start().await;
    let house = House { upstream, issuer, gateway };
    let ends = now() + 4;
    let short = house.token(json!({ "exp": ends }));
    let clients = house.gateway.both_as(&short, "/mcp").await;
    let mut calls = Vec::new();
    for (era, client) in &clients {
        let mut call = client.ask_call("s__slow", json!({})).token(json!(1)).send().await;
        call.message().await.expect("progress");
        calls.push((era, call));
    }
    until(|| now() > ends).await;
    house.upstream.release(2);
    for (era, call) in calls {
        assert_eq!(call.said().await.text(), "done", "{era}");
    }
}

#[tokio::test]
async fn users_of_an_issuer_that_a_reload_takes_away_lose_all_they_have() {
    let house = House::with("", |it| it.toml(&client_table("ci", "key-of-ci", ""))).await;
    let token = house.token(json!({}));
    let [(_, modern), (_, legacy)] = house.gateway.both_as(&token, "/mcp").await;
    let mut streams = vec![modern.listen().await, legacy.listen().await];
    let [(_, kept), _] = house.gateway.both_as("key-of-ci", "/mcp").await;
    let without = Gateway::with("s", house.upstream.http());
    house.gateway.reload(without.toml(&client_table("ci", "key-of-ci", ""))).await;
    for stream in &mut streams {
        within(async { while stream.message().await.is_some() {} }).await;
    }
    assert_eq!(modern.call("s__echo", json!({})).await.status, 401);
    within(async {
        while house.gateway.status().await["sessions"] != 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(kept.call("s__echo", json!({})).await.text(), "{}");
    // The same name of another issuer does not bring them back either.
    let other = format!(
        "[issuers.idp]\nissuer = \"https://login.example.com\"\njwks_url = \"{}\"\n",
        house.issuer.api.url("/keys")
    );
    house.gateway.reload(Gateway::with("s", house.upstream.http()).toml(&other)).await;
    is_refused(&legacy.call("s__echo", json!({})).await, "accepted issuer");
}
