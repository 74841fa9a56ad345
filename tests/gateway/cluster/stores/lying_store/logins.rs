//! Records of logins at servers: grants, links, logins in progress and browsers.

use serde_json::json;

use super::{Lie, key_of_record, next_key, warnings};
use crate::cluster::records::grants::{ECHO, server_with_tokens};
use crate::cluster::{RedisServer, free_port, replica_at, start_replicas};
use crate::oauth::{agree, call, link_in, log_in, protected};
use crate::support::browser::fields;
use crate::support::gateway::Builder;
use crate::support::{Browser, Client, Gateway, OauthServer, Said};

/// A store, and two servers, each with a login of its own.
struct TwoServers {
    redis: RedisServer,
    s: OauthServer,
    t: OauthServer,
}

impl TwoServers {
    async fn start() -> Self {
        let (redis, s, t) =
            (RedisServer::start().await, server_with_tokens().await, protected().await);
        t.gives("other", json!({ "expires_in": 3600 }));
        t.takes("other", &["list", "call"]);
        Self { redis, s, t }
    }

    async fn start_replicas(&self) -> [Gateway; 2] {
        start_replicas(&self.redis.url(), || self.builder()).await
    }

    fn builder(&self) -> Builder {
        Gateway::with("s", self.s.lines("s", "")).server("t", self.t.lines("t", ""))
    }

    /// Returns true if the server `s` was sent the token of the other one.
    fn has_mixed_tokens(&self) -> bool {
        let received = self.s.upstream.received();
        let mut sent = received.iter().filter_map(|request| request.header("authorization"));
        sent.any(|sent| sent.contains("other"))
    }
}

async fn call_t(client: &Client) -> Said {
    client.call("t__echo", json!({ "a": 1 })).await
}

/// Returns the path and query of a link.
fn path_of(link: &str) -> String {
    let link = url::Url::parse(link).unwrap();
    format!("{}?{}", link.path(), link.query().unwrap())
}

/// Returns the link to log in at the server `s`.
async fn link_to_s(replica: &Gateway) -> String {
    path_of(&link_in(&call(&replica.modern()).await))
}

async fn link_to_t(replica: &Gateway) -> String {
    path_of(&link_in(&call_t(&replica.modern()).await))
}

/// Logs in by a link. Returns the browser and the response of the authorization server, which the gateway
/// has not received yet.
async fn log_in_by(link: &str, replica: &Gateway, server: &OauthServer) -> (Browser, String) {
    let browser = Browser::of(replica);
    let back = server.agrees(&browser.agrees(link).await);
    (browser, back)
}

/// Returns the key of the record of a link.
fn key_of_link(link: &str) -> String {
    key_of_record("links", link.split("ticket=").nth(1).expect("a ticket"))
}

/// Returns the form key of a page. Each browser has its own.
fn form_key_of(page: &Said) -> String {
    fields(&page.body)["form_key"].clone()
}

/// Returns the same browser at another replica.
fn moved(browser: &Browser, replica: &Gateway) -> Browser {
    let other = Browser::of(replica);
    other.has(browser.cookie());
    other
}

/// Asserts that a page is refused for its link or response, or because its record cannot be read.
fn assert_refused(page: &Said, lie: Lie) {
    let expected = if matches!(lie, Lie::TooLong | Lie::OtherType) { 503 } else { 400 };
    assert_eq!(page.status, expected, "{lie:?}: {page:?}");
}

#[tokio::test]
async fn a_wrong_grant_is_not_used() {
    warnings();
    for lie in Lie::ALL {
        let servers = TwoServers::start().await;
        let redis = &servers.redis;
        let a = replica_at(servers.builder(), &redis.url(), free_port(), "").start().await;
        log_in(&a, &servers.s, &a.modern()).await;
        let of_s = next_key(redis, "grants", &[]).await;
        let link = link_in(&call_t(&a.modern()).await);
        assert_eq!(agree(&a, &servers.t, &link).await.status, 200);
        let of_t = next_key(redis, "grants", &[&of_s]).await;
        lie.tell(redis, &of_s, &of_t).await;
        let b = replica_at(servers.builder(), &redis.url(), free_port(), "").start().await;
        let said = call(&b.modern()).await;
        assert!(!said.answer().to_string().contains(r#"{\"a\":1}"#), "{lie:?}: {said:?}");
        lie.expect_line(redis, "grants").await;
        assert!(!servers.has_mixed_tokens(), "{lie:?}");
        // The record of the other server is used.
        b.ready("t").await;
        assert_eq!(call_t(&b.modern()).await.text(), ECHO, "{lie:?}");
        // A login replaces it.
        if !matches!(lie, Lie::TooLong | Lie::OtherType) {
            log_in(&b, &servers.s, &b.modern()).await;
            b.ready("s").await;
            assert_eq!(call(&b.modern()).await.text(), ECHO, "{lie:?}");
        }
    }
}

#[tokio::test]
async fn an_old_grant_makes_a_replica_present_a_used_token_and_nothing_else() {
    let (redis, server) = (RedisServer::start().await, server_with_tokens().await);
    let builder = || Gateway::with("s", server.lines("s", ""));
    let a = replica_at(builder(), &redis.url(), free_port(), "").start().await;
    log_in(&a, &server, &a.modern()).await;
    let grant = next_key(&redis, "grants", &[]).await;
    redis.command(&format!("COPY {grant} old")).await;
    server.refuses("first");
    server.gives("second", json!({ "expires_in": 3600, "refresh_token": "r2" }));
    server.takes("second", &["list", "call"]);
    a.ready("s").await;
    assert_eq!(call(&a.modern()).await.text(), ECHO);
    redis.command(&format!("COPY old {grant} REPLACE")).await;
    // The authorization server refuses a token that was used.
    server.gives_none("invalid_grant");
    let b = replica_at(builder(), &redis.url(), free_port(), "").start().await;
    link_in(&call(&b.modern()).await);
    let forms = server.token_requests().into_iter();
    let renewals: Vec<_> = forms.filter_map(|form| form.get("refresh_token").cloned()).collect();
    assert_eq!(renewals, ["r1", "r1"]);
}

#[tokio::test]
async fn a_wrong_link_leads_to_no_login() {
    warnings();
    for lie in Lie::ALL {
        let servers = TwoServers::start().await;
        let ([a, b], redis) = (servers.start_replicas().await, &servers.redis);
        let link = link_to_s(&a).await;
        let other_link = link_to_t(&a).await;
        // Each replica has its own links, to both servers.
        let [of_s, of_t] = [&link, &other_link].map(|link| key_of_link(link));
        lie.tell(redis, &of_s, &of_t).await;
        assert_refused(&Browser::of(&b).opens(&link).await, lie);
        lie.expect_line(redis, "links").await;
        assert_eq!(Browser::of(&b).opens(&other_link).await.status, 200, "{lie:?}");
    }
}

#[tokio::test]
async fn a_wrong_login_in_progress_accepts_no_response() {
    warnings();
    for lie in Lie::ALL {
        let servers = TwoServers::start().await;
        let ([a, b], redis) = (servers.start_replicas().await, &servers.redis);
        let (browser, back) = log_in_by(&link_to_s(&a).await, &a, &servers.s).await;
        let of_s = next_key(redis, "logins", &[]).await;
        let (other_browser, other_back) = log_in_by(&link_to_t(&a).await, &a, &servers.t).await;
        let of_t = next_key(redis, "logins", &[&of_s]).await;
        lie.tell(redis, &of_s, &of_t).await;
        assert_refused(&moved(&browser, &b).opens(&back).await, lie);
        lie.expect_line(redis, "logins").await;
        assert!(servers.s.token_requests().is_empty(), "{lie:?}");
        let page = moved(&other_browser, &b).opens(&other_back).await;
        assert_eq!(page.status, 200, "{lie:?}: {page:?}");
    }
}

#[tokio::test]
async fn a_wrong_browser_is_unknown() {
    warnings();
    for lie in Lie::ALL {
        let servers = TwoServers::start().await;
        let ([a, b], redis) = (servers.start_replicas().await, &servers.redis);
        let (browser, back) = log_in_by(&link_to_s(&a).await, &a, &servers.s).await;
        let browser = moved(&browser, &b);
        assert_eq!(browser.opens(&back).await.status, 200, "{lie:?}");
        let known = next_key(redis, "browsers", &[]).await;
        let other_link = link_to_t(&a).await;
        assert_eq!(Browser::of(&a).opens(&other_link).await.status, 200);
        let other = next_key(redis, "browsers", &[&known]).await;
        let form_key = form_key_of(&browser.opens("/connect").await);
        lie.tell(redis, &known, &other).await;
        let is_read = !matches!(lie, Lie::TooLong | Lie::OtherType);
        let form = [("form_key", &*form_key), ("server", "s")];
        let revoked = browser.sends("/connect/revoke", &form).await;
        assert_eq!(revoked.status, if is_read { 403 } else { 503 }, "{lie:?}: {revoked:?}");
        lie.expect_line(redis, "browsers").await;
        // Without keys, each browser on this machine is the user's: it is a new one.
        let page = browser.opens("/connect").await;
        assert_eq!(page.status, if is_read { 200 } else { 503 }, "{lie:?}: {page:?}");
        assert!(!is_read || form_key_of(&page) != form_key, "{lie:?}");
        b.ready("s").await;
        assert_eq!(call(&b.modern()).await.text(), ECHO, "{lie:?}: the login is not revoked");
    }
}

#[tokio::test]
async fn old_records_of_a_login_return_no_more_than_the_docs_say() {
    let (redis, server) = (RedisServer::start().await, server_with_tokens().await);
    let [a, b] = start_replicas(&redis.url(), || Gateway::with("s", server.lines("s", ""))).await;
    let (browser, back) = log_in_by(&link_to_s(&a).await, &a, &server).await;
    let state = next_key(&redis, "logins", &[]).await;
    redis.command(&format!("COPY {state} old-state")).await;
    assert_eq!(browser.opens(&back).await.status, 200);
    let known = next_key(&redis, "browsers", &[]).await;
    // A response is accepted again, and its code presented again, in the same browser alone.
    redis.command(&format!("COPY old-state {state} REPLACE")).await;
    server.gives_none("invalid_grant");
    assert_ne!(Browser::of(&b).opens(&back).await.status, 200);
    redis.command(&format!("COPY old-state {state} REPLACE")).await;
    assert_ne!(moved(&browser, &b).opens(&back).await.status, 200);
    let codes: Vec<_> = server.token_requests().iter().map(|form| form["code"].clone()).collect();
    assert_eq!(codes, ["the-code-1", "the-code-1"]);
    a.ready("s").await;
    assert_eq!(call(&a.modern()).await.text(), ECHO, "the login is used");
    // A browser that has signed out is known again.
    redis.command(&format!("COPY {known} old-browser")).await;
    let cookie = browser.cookie();
    let form_key = form_key_of(&browser.opens("/connect").await);
    let left = browser.sends("/connect/leave", &[("form_key", &*form_key)]).await;
    assert_eq!(left.status, 200, "{left:?}");
    // Without keys, each browser on this machine is the user's: an unknown one gets a new cookie.
    browser.has(cookie.clone());
    let page = browser.opens("/connect").await;
    assert_ne!(form_key_of(&page), form_key, "{page:?}");
    redis.command(&format!("COPY old-browser {known} REPLACE")).await;
    browser.has(cookie);
    let page = browser.opens("/connect").await;
    assert_eq!(form_key_of(&page), form_key, "{page:?}");
}
