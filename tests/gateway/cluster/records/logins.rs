//! Links and logins in progress, which any replica continues.

use crate::cluster::records::grants::{ECHO, server_with_tokens, with_login};
use crate::cluster::{RedisServer, start_replicas};
use crate::oauth::{call, link_in};
use crate::support::browser::fields;
use crate::support::{Browser, Gateway};

/// Returns the path and query of a link: a load balancer sends it to any replica.
fn path_of(link: &str) -> String {
    let link = url::Url::parse(link).unwrap();
    format!("{}?{}", link.path(), link.query().unwrap())
}

/// Returns the same browser at another replica.
fn moved(browser: &Browser, replica: &Gateway) -> Browser {
    let other = Browser::of(replica);
    other.has(browser.cookie());
    other
}

#[tokio::test]
async fn each_step_of_a_login_is_served_by_another_replica() {
    let (redis, server) = (RedisServer::start().await, server_with_tokens().await);
    let [a, b, c] = start_replicas(&redis.url(), || with_login(&server)).await;
    let link = path_of(&link_in(&call(&a.modern()).await));
    let browser = Browser::of(&b);
    let page = browser.opens(&link).await;
    assert_eq!(page.status, 200, "{page:?}");
    let form = fields(&page.body);
    let answer = [("form_key", &*form["form_key"]), ("ticket", &*form["ticket"])];
    let browser = moved(&browser, &c);
    let led = browser.sends("/connect/link", &[answer[0], answer[1], ("answer", "accept")]).await;
    assert_eq!(led.status, 303, "{led:?}");
    let back = server.agrees(led.header("location").unwrap());
    let browser = moved(&browser, &b);
    let page = browser.opens(&back).await;
    assert_eq!(page.status, 200, "{page:?}");
    for replica in [&a, &b, &c] {
        replica.ready("s").await;
        assert_eq!(call(&replica.modern()).await.text(), ECHO);
    }
    // The response, and the link, are used up at all replicas.
    for replica in [&a, &b, &c] {
        let browser = moved(&browser, replica);
        assert_eq!(browser.opens(&back).await.status, 400);
        assert_eq!(browser.opens(&link).await.status, 400);
    }
    assert_eq!(server.token_requests().len(), 1);
    for kind in ["links", "logins"] {
        let names = redis.command(&format!("KEYS trunkline:{kind}:*")).await;
        assert!(!names.contains(&link[link.len() - 20..]), "{names}");
    }
}

#[tokio::test]
async fn one_link_and_one_response_that_are_used_at_three_replicas_at_once_succeed_once() {
    let (redis, server) = (RedisServer::start().await, server_with_tokens().await);
    let replicas: [Gateway; 3] = start_replicas(&redis.url(), || with_login(&server)).await;
    let link = path_of(&link_in(&call(&replicas[0].modern()).await));
    let browsers = [0, 1, 2].map(|number| Browser::of(&replicas[number]));
    let agree = async |browser: &Browser| {
        let page = browser.opens(&link).await;
        assert_eq!(page.status, 200, "{page:?}");
        let form = fields(&page.body);
        let fields = [("form_key", &*form["form_key"]), ("ticket", &*form["ticket"])];
        let answer = [fields[0], fields[1], ("answer", "accept")];
        browser.sends("/connect/link", &answer).await
    };
    let (x, y, z) = tokio::join!(agree(&browsers[0]), agree(&browsers[1]), agree(&browsers[2]));
    let led = [x, y, z];
    let accepted: Vec<_> = (0..3).filter(|number| led[*number].status == 303).collect();
    assert_eq!(accepted.len(), 1, "{led:?}");
    let back = server.agrees(led[accepted[0]].header("location").unwrap());
    let [x, y, z] = [0, 1, 2].map(|number| moved(&browsers[accepted[0]], &replicas[number]));
    let (x, y, z) = tokio::join!(x.opens(&back), y.opens(&back), z.opens(&back));
    let statuses = [x.status, y.status, z.status];
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(server.token_requests().len(), 1);
}

#[tokio::test]
async fn no_link_is_opened_and_no_response_accepted_without_the_store() {
    let (mut redis, server) = (RedisServer::start().await, server_with_tokens().await);
    let [a, b] = start_replicas(&redis.url(), || with_login(&server)).await;
    let link = path_of(&link_in(&call(&a.modern()).await));
    let browser = Browser::of(&a);
    let place = browser.agrees(&link).await;
    let back = server.agrees(&place);
    redis.kill();
    for replica in [&a, &b] {
        let browser = moved(&browser, replica);
        for path in [&link, &back] {
            let page = browser.opens(path).await;
            assert!(page.status == 503 && page.body.contains("the store"), "{page:?}");
        }
    }
    assert!(server.token_requests().is_empty());
}

#[tokio::test]
async fn a_browser_that_signs_out_at_one_replica_is_unknown_at_the_others() {
    let (redis, server) = (RedisServer::start().await, server_with_tokens().await);
    let [a, b] = start_replicas(&redis.url(), || with_login(&server)).await;
    let link = path_of(&link_in(&call(&a.modern()).await));
    let browser = Browser::of(&a);
    let place = browser.agrees(&link).await;
    let browser = moved(&browser, &b);
    assert_eq!(browser.opens(&server.agrees(&place)).await.status, 200);
    let page = browser.opens("/connect").await;
    assert!(page.body.contains("Revoke"), "{page:?}");
    let form = fields(&page.body);
    let left = browser.sends("/connect/leave", &[("form_key", &*form["form_key"])]).await;
    assert_eq!(left.status, 200, "{left:?}");
    let cookie = browser.cookie();
    for replica in [&a, &b] {
        let browser = Browser::of(replica);
        browser.has(cookie.clone());
        let key = [("form_key", &*form["form_key"]), ("server", "s")];
        assert_eq!(browser.sends("/connect/revoke", &key).await.status, 403);
    }
}
