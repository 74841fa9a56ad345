//! Logins that outlive the gateway.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::oneshot;

use crate::support::api::Page;
use crate::support::gateway::{TRUNKLINE, kept_files};
use crate::support::{Client, Gateway, OauthServer, Said, client_table, until, within};

use super::{agree, call, link_in, log_in, protected};

pub const KEY: &str = "a vault key with more than 32 bytes";

async fn with_vault(server: &OauthServer, folder: TempDir, more: &str) -> Gateway {
    let vault = format!("[vault]\nkeys = [\"{KEY}\"]\n{more}");
    Gateway::with("s", server.lines("s", "")).toml(&vault).in_folder(folder).start().await
}

/// Logs in with `token-1`, which the authorization server returns with further members.
async fn log_in_with(gateway: &Gateway, server: &OauthServer, more: Value) {
    server.gives("token-1", more);
    server.takes("token-1", &["list", "call"]);
    log_in(gateway, server, &gateway.modern()).await;
}

/// Returns the folder of a gateway with a login that has stopped.
pub async fn keep_login(server: &OauthServer, more: Value) -> TempDir {
    let gateway = with_vault(server, tempfile::tempdir().unwrap(), "").await;
    log_in_with(&gateway, server, more).await;
    gateway.stop().await
}

#[tokio::test]
async fn a_login_and_a_client_outlive_the_gateway() {
    let server = protected().await;
    let folder =
        keep_login(&server, json!({ "expires_in": 3600, "refresh_token": "refresh-1" })).await;
    let file = fs::read(folder.path().join("trunkline.vault")).unwrap();
    for secret in ["token-1", "refresh-1", "client-secret-1", KEY] {
        assert!(!file.windows(secret.len()).any(|it| it == secret.as_bytes()), "{secret}");
    }
    let gateway = with_vault(&server, folder, "").await;
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    // Its token is renewed with the client that was registered before.
    server.refuses("token-1");
    server.gives("token-2", json!({}));
    server.takes("token-2", &["list", "call"]);
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    assert_eq!(server.token_requests().last().unwrap()["refresh_token"], "refresh-1");
    assert_eq!(server.api.calls("/register").len(), 1);
    // The next start uses the renewed one.
    let folder = gateway.stop().await;
    let gateway = with_vault(&server, folder, "").await;
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    assert_eq!(server.token_requests().len(), 2);
}

#[tokio::test]
async fn the_page_of_a_kept_login_is_its_issuers_before_its_server_is_used() {
    let (server, evil) = (protected().await, protected().await);
    let folder = keep_login(&server, json!({ "expires_in": 3600 })).await;
    evil.publishes(json!({ "authorization_endpoint": server.api.url("/authorize") }));
    let lazy = format!("start = \"lazy\"\n{}", server.lines("s", ""));
    let vault = format!("[vault]\nkeys = [\"{KEY}\"]\n");
    let mut folder = Some(folder);
    // The server has not been used, or is not in the configuration.
    for builder in [Gateway::alone().server("s", lazy), Gateway::alone()] {
        let builder = builder.server("evil", evil.lines("evil", "")).toml(&vault);
        let gateway = builder.in_folder(folder.take().unwrap()).start().await;
        let evil_status = |status: &Value| {
            let servers = status["servers"].as_array().unwrap();
            servers.iter().find(|server| server["name"] == "evil").unwrap().clone()
        };
        let is_over = |status: &Value| {
            let status = evil_status(status);
            let error = status["last_error"]["message"].as_str();
            let is_refused = error.is_some_and(|error| error.contains(&server.issuer()));
            is_refused || status["login"].is_string()
        };
        let status = gateway.wait_for(is_over).await;
        assert_eq!(evil_status(&status)["login"], Value::Null, "{status}");
        folder = Some(gateway.stop().await);
    }
}

#[tokio::test]
async fn a_used_up_grant_in_the_vault_leads_to_a_login() {
    let server = protected().await;
    let folder = keep_login(&server, json!({ "refresh_token": "refresh-1" })).await;
    // As if the gateway had been killed after the authorization server had renewed the tokens, and
    // before they were written.
    server.refuses("token-1");
    server.gives_none("invalid_grant");
    let gateway = with_vault(&server, folder, "").await;
    let link = link_in(&call(&gateway.modern()).await);
    server.gives("token-2", json!({}));
    server.takes("token-2", &["list", "call"]);
    assert_eq!(agree(&gateway, &server, &link).await.status, 200);
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_login_of_another_issuer_or_client_is_not_used() {
    let server = protected().await;
    let folder = keep_login(&server, json!({ "refresh_token": "refresh-1" })).await;
    let settings = "client_id = \"another\"\nclient_secret = \"another-secret\"";
    let vault = format!("[vault]\nkeys = [\"{KEY}\"]\n");
    let before = server.upstream.received().len();
    let gateway = Gateway::with("s", server.lines("s", settings)).toml(&vault);
    let gateway = gateway.in_folder(folder).start().await;
    link_in(&call(&gateway.modern()).await);
    let sent = server.upstream.received();
    assert!(sent[before..].iter().all(|sent| sent.header("authorization").is_none()));
}

#[tokio::test]
async fn a_revoked_login_is_gone_from_the_vault() {
    let server = protected().await;
    let gateway = with_vault(&server, tempfile::tempdir().unwrap(), "").await;
    log_in_with(&gateway, &server, json!({})).await;
    let browser = crate::support::Browser::of(&gateway);
    let page = browser.opens("/connect").await;
    let form = crate::support::browser::fields(&page.body);
    let form: Vec<_> = form.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(browser.sends("/connect/revoke", &form).await.status, 303);
    let folder = gateway.stop().await;
    let gateway = with_vault(&server, folder, "").await;
    link_in(&call(&gateway.modern()).await);
}

/// Starts two gateways with one vault. The first was logged in with a refresh token, and the second
/// uses its login.
async fn two_with_one_login(server: &OauthServer) -> (Gateway, Gateway) {
    let first = with_vault(server, tempfile::tempdir().unwrap(), "").await;
    log_in_with(&first, server, json!({ "refresh_token": "refresh-1" })).await;
    let path = first.folder().join("trunkline.vault");
    let vault = format!("[vault]\npath = \"{}\"\nkeys = [\"{KEY}\"]\n", path.display());
    let second = Gateway::with("s", server.lines("s", "")).toml(&vault).start().await;
    second.ready("s").await;
    assert_eq!(call(&second.modern()).await.text(), r#"{"a":1}"#);
    (first, second)
}

async fn revoke(gateway: &Gateway, server: &str) {
    let browser = crate::support::Browser::of(gateway);
    let page = browser.opens("/connect").await;
    let form = crate::support::browser::fields(&page.body);
    let form = [("form_key", &*form["form_key"]), ("server", server)];
    assert_eq!(browser.sends("/connect/revoke", &form).await.status, 303);
}

/// Repeats a call until the answer is an error, and returns it.
async fn call_until_refused(gateway: &Gateway, tool: &str) -> Said {
    within(async {
        loop {
            let said = gateway.modern().call(tool, json!({ "a": 1 })).await;
            if said.is_error() {
                break said;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_login_that_one_process_revokes_is_used_by_no_other() {
    for is_revoked_by_first in [true, false] {
        let server = protected().await;
        let (first, second) = two_with_one_login(&server).await;
        let (revoking, using) =
            if is_revoked_by_first { (&first, &second) } else { (&second, &first) };
        revoke(revoking, "s").await;
        // Its token is still valid at the server, and the other gateway no longer sends it.
        let link = link_in(&call_until_refused(using, "s__echo").await);
        let sent = server.upstream.received().len();
        assert_eq!(link_in(&call(&using.modern()).await), link);
        let sent = &server.upstream.received()[sent..];
        assert!(sent.iter().all(|sent| sent.header("authorization").is_none()));
    }
}

#[tokio::test]
async fn a_login_that_another_process_revokes_does_not_return_with_its_server() {
    let (server, other) = (protected().await, protected().await);
    let first = Gateway::with("s", server.lines("s", "")).server("t", other.lines("t", ""));
    let first = first.toml(&format!("[vault]\nkeys = [\"{KEY}\"]\n")).start().await;
    log_in_with(&first, &server, json!({})).await;
    other.gives("token-of-t", json!({}));
    other.takes("token-of-t", &["list", "call"]);
    let link = link_in(&first.modern().call("t__echo", json!({})).await);
    assert_eq!(agree(&first, &other, &link).await.status, 200);
    let path = first.folder().join("trunkline.vault");
    let vault = format!("[vault]\npath = \"{}\"\nkeys = [\"{KEY}\"]\n", path.display());
    let with_t = || Gateway::with("t", other.lines("t", "")).toml(&vault);
    let second = with_t().start().await;
    second.ready("t").await;
    assert!(!second.modern().call("t__echo", json!({})).await.is_error());
    // The second process has the login of `s`, but not the server. It sees both revocations.
    revoke(&first, "s").await;
    revoke(&first, "t").await;
    call_until_refused(&second, "t__echo").await;
    second.reload(with_t().server("s", server.lines("s", ""))).await;
    link_in(&call(&second.modern()).await);
}

/// Answers the first request to a token endpoint at once, and the second one after a signal.
async fn hold_second_token(
    listener: TcpListener,
    (arrived, released): (oneshot::Sender<()>, oneshot::Receiver<()>),
) {
    let mut signals = Some((arrived, released));
    for number in [1, 2] {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !String::from_utf8_lossy(&request).contains("grant_type=") {
            assert_ne!(socket.read_buf(&mut request).await.unwrap(), 0);
        }
        if number == 2 {
            let (arrived, released) = signals.take().unwrap();
            arrived.send(()).unwrap();
            released.await.unwrap();
        }
        let tokens = json!({
            "access_token": format!("token-{number}"), "token_type": "Bearer",
            "refresh_token": format!("refresh-{number}"),
        });
        let (tokens, head) = (tokens.to_string(), "HTTP/1.1 200 OK\r\nconnection: close");
        let length = tokens.len();
        let answer = format!(
            "{head}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{tokens}"
        );
        socket.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn tokens_that_are_renewed_while_another_process_revokes_the_login_are_revoked_too() {
    let server = protected().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.publishes(json!({
        "token_endpoint": format!("http://{}/token", listener.local_addr().unwrap()),
        "revocation_endpoint": server.api.url("/revoke"),
    }));
    server.api.sets("/revoke", Page::json(&json!({})));
    let ((arrived, renewal), (release, released)) = (oneshot::channel(), oneshot::channel());
    let answers = tokio::spawn(hold_second_token(listener, (arrived, released)));
    let (first, second) = two_with_one_login(&server).await;
    server.refuses("token-1");
    server.takes("token-2", &["list", "call"]);
    let client = second.modern();
    let (said, ()) = tokio::join!(call(&client), async {
        within(renewal).await.unwrap();
        revoke(&first, "s").await;
        release.send(()).unwrap();
    });
    answers.await.unwrap();
    link_in(&said);
    link_in(&call(&client).await);
    let calls = server.api.calls("/revoke");
    let revoked: Vec<_> = calls.iter().map(|call| String::from_utf8_lossy(&call.body)).collect();
    assert!(revoked.iter().any(|form| form.contains("-2")), "{revoked:?}");
    // The renewed login is not available to the next process with the vault either.
    second.stop().await;
    let third = with_vault(&server, first.stop().await, "").await;
    link_in(&call(&third.modern()).await);
}

#[tokio::test]
async fn a_login_that_one_process_revokes_is_renewed_by_no_other() {
    let server = protected().await;
    let (first, second) = two_with_one_login(&server).await;
    revoke(&first, "s").await;
    server.refuses("token-1");
    server.gives("token-2", json!({ "refresh_token": "refresh-2" }));
    server.takes("token-2", &["list", "call"]);
    link_in(&call(&second.modern()).await);
    let refreshed = server.token_requests();
    assert!(refreshed.iter().all(|form| form["grant_type"] != "refresh_token"), "{refreshed:?}");
    // It is not available to the next process with the vault either.
    second.stop().await;
    let folder = first.stop().await;
    let third = with_vault(&server, folder, "").await;
    link_in(&call(&third.modern()).await);
}

#[tokio::test]
async fn a_client_that_was_removed_gets_its_logins_back_only_with_an_earlier_key() {
    for vault in ["", &format!("[vault]\nkeys = [\"{KEY}\"]\n")] {
        let server = protected().await;
        let with = |clients: &str| {
            let bob = client_table("bob", "of-bob", "");
            Gateway::with("s", server.lines("s", "")).toml(vault).toml(clients).toml(&bob)
        };
        let ann = |key: &str| client_table("ann", key, "");
        let gateway = with(&ann("first")).start().await;
        let call_with = async |key: &str| call(&gateway.modern().key(key)).await;
        server.gives("of-ann", json!({ "expires_in": 3600 }));
        server.takes("of-ann", &["list", "call"]);
        log_in(&gateway, &server, &gateway.modern().key("first")).await;
        // Another key, with the client still configured.
        gateway.reload(with(&ann("second"))).await;
        assert_eq!(call_with("second").await.text(), r#"{"a":1}"#);
        // Removed, and added again with its former key.
        gateway.reload(with("")).await;
        gateway.reload(with(&ann("first"))).await;
        assert_eq!(call_with("first").await.text(), r#"{"a":1}"#);
        // Removed, and the name is given to another user.
        gateway.reload(with("")).await;
        gateway.reload(with(&ann("third"))).await;
        link_in(&call_with("third").await);
        // With the earlier key it has no logins either: they are deleted.
        gateway.reload(with(&ann("first"))).await;
        link_in(&call_with("first").await);
    }
}

#[tokio::test]
async fn a_gateway_without_a_key_keeps_logins_in_memory_only() {
    let server = protected().await;
    let gateway = Gateway::with("s", server.lines("s", "")).start().await;
    log_in_with(&gateway, &server, json!({})).await;
    let folder = gateway.stop().await;
    assert_eq!(kept_files(folder.path()), ["gateway.toml"]);
}

#[tokio::test]
async fn the_key_may_come_from_a_program() {
    let server = protected().await;
    let vault = format!("[vault]\nkeys = [\"${{command:echo {KEY}}}\"]\n");
    let lines = server.lines("s", "");
    let gateway = Gateway::with("s", lines).toml(&vault).start().await;
    log_in_with(&gateway, &server, json!({})).await;
    let folder = gateway.stop().await;
    // The same key by the configuration.
    let gateway = with_vault(&server, folder, "").await;
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
}

/// Returns `trunkline login s`, for the configuration in a folder.
fn login_command(folder: &std::path::Path) -> Command {
    let mut command = Command::new(TRUNKLINE);
    command.args(["login", "s", "--config"]).arg(folder.join("gateway.toml"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Logs in at a terminal, beside the gateway.
async fn log_in_at_terminal(gateway: &Gateway, server: &OauthServer) {
    let mut child = login_command(gateway.folder()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let link = loop {
        let line = within(lines.next_line()).await.unwrap().expect("a link");
        if line.starts_with("http") {
            break line;
        }
    };
    assert!(link.starts_with(&server.api.url("/authorize?")), "{link}");
    let asked = crate::support::oauth::parameters(&link);
    let back = url::Url::parse(&asked["redirect_uri"]).unwrap();
    let browser = Client::plain(format!("127.0.0.1:{}", back.port().unwrap()).parse().unwrap());
    // An answer without a pending login ends none.
    let other = browser.http("GET", "/oauth/callback?state=guessed&code=c").send().await;
    assert_eq!(other.status(), 400);
    let page = browser.http("GET", &server.agrees(&link)).send().await;
    assert_eq!(page.status(), 200);
    let ended = within(child.wait_with_output()).await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[tokio::test]
async fn a_login_at_a_terminal_is_used_by_the_gateway_that_runs() {
    let server = protected().await;
    let gateway = with_vault(&server, tempfile::tempdir().unwrap(), "").await;
    link_in(&call(&gateway.modern()).await);
    server.gives("token-1", json!({ "refresh_token": "refresh-1" }));
    server.takes("token-1", &["list", "call"]);
    log_in_at_terminal(&gateway, &server).await;
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
}

#[tokio::test]
async fn another_login_ends_the_wait_of_a_server_that_forbids_the_account() {
    let server = protected().await;
    let metadata = server.api.url("/prm");
    server.upstream.guards(move |received| match received.header("authorization") {
        Some("Bearer token-of-admin") => None,
        // Without a challenge: no other scope would help.
        Some("Bearer token-of-guest") => Some((403, Vec::new(), String::new())),
        _ => {
            let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
            let headers = vec![("WWW-Authenticate".to_owned(), challenge)];
            Some((401, headers, String::new()))
        }
    });
    let gateway = with_vault(&server, tempfile::tempdir().unwrap(), "").await;
    server.gives("token-of-guest", json!({}));
    log_in(&gateway, &server, &gateway.modern()).await;
    gateway.in_state("s", "failed").await;
    let failed = gateway.status().await;
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let wait = time(&failed["servers"][0]["next_retry_at"]).duration_since(time(&failed["now"]));
    assert!(wait.as_secs() > 60, "{failed:#}");
    server.gives("token-of-admin", json!({}));
    log_in_at_terminal(&gateway, &server).await;
    // Far earlier than the next attempt.
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_login_at_a_terminal_needs_a_vault_that_can_be_used() {
    let server = protected().await;
    let gateway = Gateway::with("s", server.lines("s", "")).start().await;
    let ended = within(login_command(gateway.folder()).output()).await.unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(2) && told.contains("[vault]"), "{told}");
    let gateway = with_vault(&server, tempfile::tempdir().unwrap(), "").await;
    let folder = gateway.stop().await;
    let vault = folder.path().join("trunkline.vault");
    let whole = fs::read(&vault).unwrap();
    fs::write(&vault, b"something else").unwrap();
    let ended = within(login_command(folder.path()).output()).await.unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && told.contains("trunkline.vault"), "{told}");
    assert!(told.contains("damaged") && !told.contains("panicked"), "{told}");
    assert_eq!(fs::read(&vault).unwrap(), b"something else");
    fs::write(&vault, whole).unwrap();
    // A full disk, as far as a process can simulate it.
    let full = folder.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::copy(folder.path().join("gateway.toml"), full.join("gateway.toml")).unwrap();
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" login s --config \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, TRUNKLINE]).arg(full.join("gateway.toml"));
    let ended = within(command.output()).await.unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && told.contains("trunkline.vault"), "{told}");
    assert!(told.contains("cannot read or write it") && !told.contains("panicked"), "{told}");
}

#[tokio::test]
async fn a_gateway_that_is_killed_while_it_renews_a_token_starts_again() {
    let server = protected().await;
    let folder = keep_login(&server, json!({ "refresh_token": "refresh-1" })).await;
    server.refuses("token-1");
    server.gives("token-2", json!({ "refresh_token": "refresh-2" }));
    let mut child = Command::new(TRUNKLINE)
        .args(["serve", "--config"])
        .arg(folder.path().join("gateway.toml"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // The token is requested when the server is listed, and no further requests follow.
    until(|| server.token_requests().len() >= 2).await;
    child.kill().await.unwrap();
    // The first refresh token has been used.
    server.gives_none("invalid_grant");
    server.takes("token-2", &["list", "call"]);
    let gateway = with_vault(&server, folder, "").await;
    let said = call(&gateway.modern()).await;
    if said.is_error() {
        let link = link_in(&said);
        server.gives("token-3", json!({}));
        server.takes("token-3", &["list", "call"]);
        assert_eq!(agree(&gateway, &server, &link).await.status, 200);
        assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    }
}
