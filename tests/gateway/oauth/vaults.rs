//! Logins that outlive the gateway.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::support::gateway::TRUNKLINE;
use crate::support::{Client, Gateway, OauthServer, client_table, within};

use super::{agree, call, link_in, log_in, protected};

const KEY: &str = "a vault key with more than 32 bytes";

async fn with_vault(server: &OauthServer, folder: TempDir, more: &str) -> Gateway {
    let vault = format!("[vault]\nkeys = [\"{KEY}\"]\n{more}");
    Gateway::with("s", server.lines("s", "")).toml(&vault).in_folder(folder).start().await
}

/// Logs in for `token-1`, which the authorization server gives with more members.
async fn log_in_with(gateway: &Gateway, server: &OauthServer, more: Value) {
    server.gives("token-1", more);
    server.takes("token-1", &["list", "call"]);
    log_in(gateway, server, &gateway.modern()).await;
}

/// The folder of a gateway that was logged in and has ended.
async fn keep_login(server: &OauthServer, more: Value) -> TempDir {
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
    // Its token is renewed with the client that was registered then.
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

/// Two gateways with one vault, of which the first was logged in with a refresh token, and the second
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

async fn revoke(gateway: &Gateway) {
    let browser = crate::support::Browser::of(gateway);
    let page = browser.opens("/connect").await;
    let form = crate::support::browser::fields(&page.body);
    let form: Vec<_> = form.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(browser.sends("/connect/revoke", &form).await.status, 303);
}

#[tokio::test]
async fn a_login_that_one_process_revokes_is_used_by_no_other() {
    let server = protected().await;
    let (first, second) = two_with_one_login(&server).await;
    revoke(&first).await;
    // Its token is still good at the server, and the second one sends it no more.
    let link = within(async {
        loop {
            let said = call(&second.modern()).await;
            if said.is_error() {
                break link_in(&said);
            }
        }
    })
    .await;
    let sent = server.upstream.received().len();
    assert_eq!(link_in(&call(&second.modern()).await), link);
    let sent = &server.upstream.received()[sent..];
    assert!(sent.iter().all(|sent| sent.header("authorization").is_none()));
}

#[tokio::test]
async fn a_login_that_one_process_revokes_is_renewed_by_no_other() {
    let server = protected().await;
    let (first, second) = two_with_one_login(&server).await;
    revoke(&first).await;
    server.refuses("token-1");
    server.gives("token-2", json!({ "refresh_token": "refresh-2" }));
    server.takes("token-2", &["list", "call"]);
    link_in(&call(&second.modern()).await);
    let refreshed = server.token_requests();
    assert!(refreshed.iter().all(|form| form["grant_type"] != "refresh_token"), "{refreshed:?}");
    // Nor is it there again for the next process with the vault.
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
        // Another key, while the client is there.
        gateway.reload(with(&ann("second"))).await;
        assert_eq!(call_with("second").await.text(), r#"{"a":1}"#);
        // Removed, and there again with the key that it had.
        gateway.reload(with("")).await;
        gateway.reload(with(&ann("first"))).await;
        assert_eq!(call_with("first").await.text(), r#"{"a":1}"#);
        // Removed, and somebody else gets the name.
        gateway.reload(with("")).await;
        gateway.reload(with(&ann("third"))).await;
        link_in(&call_with("third").await);
        // Nor with an earlier key by now: its logins are deleted.
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
    let names = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["gateway.toml"]);
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

/// `trunkline login s`, for the configuration in a folder.
fn login_command(folder: &std::path::Path) -> Command {
    let mut command = Command::new(TRUNKLINE);
    command.args(["login", "s", "--config"]).arg(folder.join("gateway.toml"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn a_login_at_a_terminal_is_used_by_the_gateway_that_runs() {
    let server = protected().await;
    let gateway = with_vault(&server, tempfile::tempdir().unwrap(), "").await;
    link_in(&call(&gateway.modern()).await);
    server.gives("token-1", json!({ "refresh_token": "refresh-1" }));
    server.takes("token-1", &["list", "call"]);
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
    // What no login waits for ends none.
    let other = browser.http("GET", "/oauth/callback?state=guessed&code=c").send().await;
    assert_eq!(other.status(), 400);
    let page = browser.http("GET", &server.agrees(&link)).send().await;
    assert_eq!(page.status(), 200);
    let ended = within(child.wait_with_output()).await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_login_at_a_terminal_needs_a_vault_that_can_be_used() {
    let server = protected().await;
    let gateway = Gateway::with("s", server.lines("s", "")).start().await;
    let ended = within(login_command(gateway.folder()).output()).await.unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(3) && told.contains("[vault]"), "{told}");
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
    // A disk without room, as far as a process can be shown one.
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
    // The token is asked for when the server is listed, and nothing more is said.
    within(async {
        while server.token_requests().len() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
    child.kill().await.unwrap();
    // The first refresh token is used up.
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
