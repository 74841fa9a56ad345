//! Roles of users, by the groups in their tokens, and the end of roles by a reload.

use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use super::{STATUS, code, send, with_roles};
use crate::support::gateway::Builder;
use crate::support::issuer::{SigningKey, now, with};
use crate::support::{Client, Gateway, Issuer, Said, Upstream, client_table};

/// A request for each role, and the least role as a number.
const REQUESTS: [(&str, &str, usize); 3] = [
    ("GET", STATUS, 1),
    ("POST", "/api/v1/servers/s/refresh", 2),
    ("POST", "/api/v1/servers/s/definitions/approve", 3),
];

/// The URL that names the resource of tokens: that of `/mcp`, also for operators.
const PUBLIC_URL: &str = "public_url = \"http://127.0.0.1:8080\"";
const RESOURCE: &str = "http://127.0.0.1:8080/mcp";

/// A gateway with one issuer that has roles, and one that has none.
struct Offices {
    /// Its groups have roles.
    staff: Issuer,
    /// Its tokens are accepted, and its groups have no roles.
    guests: Issuer,
    gateway: Gateway,
    /// A server that is gone would make each refresh wait.
    _upstream: Upstream,
}

impl Offices {
    async fn open() -> Self {
        let (staff, guests) = (Issuer::start().await, Issuer::start().await);
        let upstream = Upstream::modern().await;
        let roles = "groups_claim = \"groups\"\n\
                     roles = { look = \"viewer\", act = \"operator\", rule = \"admin\" }";
        let gateway = Gateway::with("s", upstream.http())
            .gateway(PUBLIC_URL)
            .toml(&staff.table("staff", roles))
            .toml(&guests.table("guests", "groups_claim = \"groups\""))
            .start()
            .await;
        Self { staff, guests, gateway, _upstream: upstream }
    }

    fn client(&self, token: &str) -> Client {
        self.gateway.remote_operator().key(token)
    }

    /// Returns a client with a token of the issuer that has roles.
    fn member(&self, groups: &Value) -> Client {
        self.client(&self.staff.token(RESOURCE, json!({ "groups": groups })))
    }
}

/// Checks that a client has exactly the rights of a role: 1 is `viewer`, 3 `admin`, 0 none.
async fn has_role(client: &Client, role: usize, name: &str) {
    for (method, path, least) in REQUESTS {
        let said = send(client, method, path).await;
        assert_ne!(said.status, 401, "{name} {path}: {said:?}");
        if role < least {
            assert_eq!(code(&said, 403), "role_needed", "{name} {path}");
        } else {
            assert_ne!(said.status, 403, "{name} {path}: {said:?}");
        }
    }
}

#[track_caller]
fn is_stranger(said: &Said) {
    assert_eq!(code(said, 401), "unauthenticated");
}

#[tokio::test]
async fn a_user_has_the_highest_role_of_the_groups_in_its_token() {
    let offices = Offices::open().await;
    for (groups, role) in [
        (json!([]), 0),
        (json!(["others"]), 0),
        (json!(["look"]), 1),
        (json!(["act"]), 2),
        (json!(["rule"]), 3),
        (json!(["look", "rule", "act"]), 3),
        (json!(["rule", "look"]), 3),
        (json!(["others", "look", "act"]), 2),
        (json!(["look", "look"]), 1),
        // The names of roles are no groups.
        (json!(["admin", "viewer"]), 0),
        (json!(["RULE", "rule "]), 0),
    ] {
        has_role(&offices.member(&groups), role, &groups.to_string()).await;
    }
    let said = send(&offices.member(&json!(["look"])), "POST", REQUESTS[1].1).await;
    let detail = said.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("staff:ann has the role `viewer`"), "{detail}");
}

#[tokio::test]
async fn a_token_of_another_issuer_has_none_of_the_roles_of_this_one() {
    let offices = Offices::open().await;
    let Offices { staff, guests, .. } = &offices;
    let groups = json!({ "groups": ["rule"] });
    // Accepted, but its groups are not those of the other issuer.
    let guest = guests.token(RESOURCE, groups.clone());
    has_role(&offices.client(&guest), 0, "guest").await;
    // Signed with its own key in the name of the other.
    let claims = with(staff.claims(RESOURCE), groups.clone());
    let forged = guests.key.sign(&claims);
    let unknown = Issuer::start().await.token(RESOURCE, groups.clone());
    let stolen_name = SigningKey::p256("first").sign(&claims);
    for token in [forged, unknown, stolen_name] {
        for (method, path, _) in REQUESTS {
            is_stranger(&send(&offices.client(&token), method, path).await);
        }
    }
}

#[tokio::test]
async fn an_expired_token_and_one_for_another_resource_open_nothing() {
    let offices = Offices::open().await;
    let token = |mut more: Value| {
        more["groups"] = json!(["rule"]);
        offices.staff.token(RESOURCE, more)
    };
    has_role(&offices.client(&token(json!({}))), 3, "valid").await;
    for token in [
        token(json!({ "exp": now() - 600 })),
        token(json!({ "nbf": now() + 600 })),
        token(json!({ "aud": "https://other.example.com/mcp" })),
        token(json!({ "sub": null })),
    ] {
        for (method, path, _) in REQUESTS {
            is_stranger(&send(&offices.client(&token), method, path).await);
        }
    }
    // A profile has a resource of its own.
    let profile = format!("{RESOURCE}/p");
    let profile = offices.staff.token(&profile, json!({ "groups": ["rule"] }));
    is_stranger(&send(&offices.client(&profile), "GET", STATUS).await);
}

#[tokio::test]
async fn without_a_public_url_a_refused_token_names_the_missing_setting() {
    let (issuer, upstream) = (Issuer::start().await, Upstream::modern().await);
    let gateway = Gateway::with("s", upstream.http()).toml(&issuer.table("staff", ""));
    let gateway = gateway.start().await;
    let token = issuer.token(RESOURCE, json!({}));
    let said = send(&gateway.remote_operator().key(&token), "GET", STATUS).await;
    is_stranger(&said);
    assert!(said.body.contains("`gateway.public_url`"), "{said:?}");
}

#[tokio::test]
async fn a_token_of_an_issuer_without_keys_is_refused_after_one_wait() {
    let (issuer, upstream) = (Issuer::silent().await, Upstream::modern().await);
    let roles = "groups_claim = \"groups\"\nroles = { rule = \"admin\" }";
    let gateway = Gateway::with("s", upstream.http()).gateway(PUBLIC_URL);
    let gateway = gateway.toml(&issuer.table("staff", roles)).start().await;
    let token = issuer.token(RESOURCE, json!({ "groups": ["rule"] }));
    let said = send(&gateway.remote_operator().key(&token), "GET", STATUS).await;
    is_stranger(&said);
    assert!(!said.body.contains("unknown key"), "it is tried as a token: {said:?}");
}

#[tokio::test]
async fn a_revoked_or_lowered_client_has_its_new_rights_from_the_reload_on() {
    let gateway = with_roles(Gateway::alone()).start().await;
    let kept = gateway.remote_operator().key("rules-key").keep();
    has_role(&kept, 3, "rules").await;
    let reload = async |builder: Builder| {
        assert_eq!(gateway.reload(builder).await, ReloadOutcome::Applied);
    };
    reload(Gateway::alone().toml(&client_table("rules", "rules-key", "role = \"viewer\""))).await;
    has_role(&kept, 1, "lowered").await;
    is_stranger(&send(&gateway.remote_operator().key("looks-key"), "GET", STATUS).await);
    reload(Gateway::alone().toml(&client_table("rules", "rules-key", ""))).await;
    has_role(&kept, 0, "without a role").await;
    reload(Gateway::alone().toml(&client_table("rules", "other-key", "role = \"admin\""))).await;
    for (method, path, _) in REQUESTS {
        is_stranger(&send(&kept, method, path).await);
    }
    has_role(&gateway.remote_operator().key("other-key"), 3, "new key").await;
    // Without any client and issuer, everyone may call tools, and nobody operates over TCP.
    reload(Gateway::alone()).await;
    for (method, path, _) in REQUESTS {
        is_stranger(&send(&gateway.remote_operator().key("other-key"), method, path).await);
    }
}
