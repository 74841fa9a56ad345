//! One client that requests login links, or opens one in browser after browser, to keep other users
//! from logging in.

use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use crate::support::{Browser, Gateway, OauthServer, Upstream};
use crate::{ATTACKER, BYSTANDER, two_clients};

/// Returns a link to the connections of the client with this key.
async fn link(gateway: &Gateway, key: &str) -> String {
    let said = gateway.plain().key(key).http("POST", "/connect").send().await.said().await;
    assert_eq!(said.status, 200, "{said:?}");
    let Value::String(link) = said.json()["link"].clone() else { panic!("{said:?}") };
    link
}

#[tokio::test]
async fn links_of_one_client_leave_the_logins_of_others_alone() {
    let server = OauthServer::before(Upstream::modern().await).await;
    let gateway = two_clients(Gateway::with("s", server.lines("s", ""))).start().await;
    let known = Browser::of(&gateway);
    known.agrees(&link(&gateway, BYSTANDER).await).await;
    let waiting = link(&gateway, BYSTANDER).await;
    let first = link(&gateway, ATTACKER).await;
    let links = (0..10_000).map(|_| link(&gateway, ATTACKER));
    stream::iter(links).buffer_unordered(32).for_each(|_| async {}).await;
    assert_eq!(Browser::of(&gateway).opens(&first).await.status, 400, "its own made room");
    let opened = link(&gateway, ATTACKER).await;
    for _ in 0..100 {
        assert_eq!(Browser::of(&gateway).opens(&opened).await.status, 200);
    }
    assert_eq!(known.opens("/connect").await.status, 200, "the bystander is still signed in");
    Browser::of(&gateway).agrees(&waiting).await;
    Browser::of(&gateway).agrees(&link(&gateway, BYSTANDER).await).await;
}
