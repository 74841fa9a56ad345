//! Hosts and pages that are not ours, and browsers that are.

use http::{Method, Request, StatusCode};
use http_body_util::Empty;
use trunkline::listener::{Guard, Settings};

use crate::door::{Door, get, get_h2, text, within};

#[tokio::test]
async fn a_foreign_host_is_refused_on_both_protocols_and_the_connection_stays() {
    let door = Door::open(Settings::default()).await;
    let (mut h1, mut h2) = (door.h1().await, door.h2().await);

    let mut foreign = get("/");
    foreign.headers_mut().insert("host", "evil.example.com".parse().unwrap());
    let refused = within(h1.send_request(foreign)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(refused.headers()["content-type"], "application/json");
    let body: serde_json::Value = serde_json::from_str(&text(refused).await).unwrap();
    assert_eq!(body["error"]["code"], -32600);
    assert!(body["error"]["message"].as_str().unwrap().contains("`allowed_hosts`"));
    assert_eq!(h1.send_request(get("/")).await.unwrap().status(), StatusCode::OK);

    let foreign = Request::get("http://evil.example.com/").body(Empty::new()).unwrap();
    let refused = within(h2.send_request(foreign)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(h2.send_request(get_h2("/")).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_host_that_is_missing_or_doubled_is_a_bad_request() {
    let door = Door::open(Settings::default()).await;
    for hosts in ["", "Host: localhost\r\nHost: localhost\r\n", "Host: a b\r\n"] {
        let raw = format!("GET / HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        let answer = door.exchange(raw).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{hosts:?}: {answer}");
    }
}

#[tokio::test]
async fn a_foreign_page_is_refused_and_reads_nothing() {
    let door = Door::open(Settings::default()).await;
    for origin in ["http://evil.example.com", "null"] {
        for method in [Method::POST, Method::OPTIONS] {
            let refused = ask(&door, method, origin).await;
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{origin}");
            assert!(!refused.headers().contains_key("access-control-allow-origin"));
        }
    }
}

#[tokio::test]
async fn a_trusted_page_may_ask_and_read() {
    let page = "https://app.example.com";
    let guard = Guard::new(&[], &[page.to_owned()]).unwrap();
    let door = Door::open(Settings { guard, ..Settings::default() }).await;
    for origin in [page, "http://localhost:6274"] {
        let preflight = ask(&door, Method::OPTIONS, origin).await;
        assert_eq!(preflight.status(), StatusCode::NO_CONTENT);
        let header = |name: &str| preflight.headers()[name].to_str().unwrap();
        assert_eq!(header("access-control-allow-origin"), origin);
        assert_eq!(header("access-control-allow-methods"), "GET, POST, DELETE");
        assert!(header("access-control-allow-headers").contains("mcp-protocol-version"));

        let answer = ask(&door, Method::POST, origin).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["access-control-allow-origin"], origin);
        assert_eq!(answer.headers()["vary"], "Origin");
        let exposed = answer.headers()["access-control-expose-headers"].to_str().unwrap();
        assert!(exposed.contains("Mcp-Session-Id"), "{exposed}");
    }
}

#[tokio::test]
async fn the_guard_can_be_changed_under_an_open_connection() {
    let door = Door::open(Settings::default()).await;
    let mut h1 = door.h1().await;
    let named = || {
        let mut request = get("/");
        request.headers_mut().insert("host", "gw.example.com".parse().unwrap());
        request
    };
    let refused = h1.send_request(named()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    text(refused).await;

    let guard = Guard::new(&["gw.example.com".to_owned()], &[]).unwrap();
    door.live.publish(Settings { guard, ..Settings::default() });

    assert_eq!(h1.send_request(named()).await.unwrap().status(), StatusCode::OK);
}

async fn ask(door: &Door, method: Method, origin: &str) -> http::Response<hyper::body::Incoming> {
    let mut request = get("/");
    *request.method_mut() = method;
    request.headers_mut().insert("origin", origin.parse().unwrap());
    request.headers_mut().insert("access-control-request-method", "POST".parse().unwrap());
    within(door.h1().await.send_request(request)).await.unwrap()
}
