//! Every path without the store, for both values of `cluster.degrade`: the table in docs/cluster.md.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use trunkline::call::Principal;
use trunkline::cluster::Cluster;

use crate::cluster::records::grants::{expect_renewal, server_with_tokens};
use crate::cluster::sessions::continuations::{WaitingCall, asking_server, park, retry_parked};
use crate::cluster::sessions::failures::{session_of, silent_replica};
use crate::cluster::{RedisServer, free_port, knows, replica_at, through};
use crate::confirm::{CONFIRM, Question, form, retry};
use crate::oauth::link_in;
use crate::support::gateway::Builder;
use crate::support::{
    Browser, Client, Gateway, OauthServer, Said, Upstream, client_table, poll_for, until_async,
};

/// The paths of the table, in its order.
const PATHS: [&str; 19] = [
    "call without a shared limit",
    "call with a shared rate",
    "call with a `cost` and a shared rate",
    "call within the leased part of a quota",
    "call beyond it",
    "call with a user's consent",
    "failed login",
    "call with a valid token for its server",
    "call whose token needs a renewal",
    "new link to log in",
    "page of a link",
    "response to a login",
    "parked call, resumed through another replica",
    "`initialize`",
    "call in a session, at its owner",
    "call in a session, through another replica",
    "subscription in a session",
    "session of a lost replica",
    "call of a tool with a pinned definition",
];

/// Outcome of a request without the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DegradedOutcome {
    Served,
    Unavailable,
}

impl DegradedOutcome {
    /// Reads a cell of the table, which begins with the outcome.
    fn read(cell: &str) -> Self {
        match cell {
            _ if cell.starts_with("served") => Self::Served,
            _ if cell.starts_with("HTTP 503") => Self::Unavailable,
            _ => panic!("neither \"served\" nor \"HTTP 503\": {cell}"),
        }
    }

    /// Returns the outcome of a request.
    fn of(said: &Said) -> Self {
        if said.status == 503 {
            assert!(said.body.contains("the store"), "{said:?}");
            return Self::Unavailable;
        }
        assert!(matches!(said.status, 200 | 303), "{said:?}");
        let is_page = said.body.starts_with('<');
        assert!(is_page || said.answer()["error"].is_null(), "{said:?}");
        Self::Served
    }
}

/// Two replicas that have lost their store, and requests that were prepared before.
struct DegradedReplicas {
    a: Gateway,
    b: Gateway,
    /// A replica that is lost.
    lost: Arc<Cluster>,
    asking: Upstream,
    valid: OauthServer,
    renewed: OauthServer,
    unknown: OauthServer,
    session: Client,
    question: Question,
    parked: WaitingCall,
    browser: Browser,
    link: String,
    back: String,
}

impl DegradedReplicas {
    /// Starts the replicas, prepares requests, and ends the store and the leases.
    async fn start(degrade: &str) -> Self {
        let mut redis = RedisServer::start().await;
        let asking = asking_server().await;
        asking.resources(&["a:1"]);
        let (valid, renewed) = (server_with_tokens().await, server_with_tokens().await);
        let unknown = server_with_tokens().await;
        let builder = || {
            settings(&asking)
                .server("valid", valid.lines("valid", ""))
                .server("renewed", renewed.lines("renewed", ""))
                .server("unknown", unknown.lines("unknown", ""))
                .server("unasked", unknown.lines("unasked", ""))
        };
        let more = format!("degrade = \"{degrade}\"");
        let a = replica_at(builder(), &redis.url(), free_port(), &more).start().await;
        let b = replica_at(builder(), &redis.url(), free_port(), &more).start().await;
        let lost = silent_replica(&redis, free_port());
        for replica in [&a, &b] {
            knows(replica, 2).await;
            replica.ready("s").await;
        }
        let client = client_of(&a, "free");
        for (name, server) in [("valid", &valid), ("renewed", &renewed)] {
            let link = link_in(&call(&client, name).await);
            let browser = Browser::of(&a);
            let place = browser.agrees(&link).await;
            assert_eq!(browser.opens(&server.agrees(&place)).await.status, 200);
            assert_eq!(call(&client, name).await.text(), "{}");
        }
        let session = Client::sessionless(a.running.address, "2025-11-25").key("key-free");
        let session = session.initialized().await;
        let asked = client_of(&a, "free").offering(form()).await;
        let question = Question::about(&asked, "asks__echo", &json!({})).await;
        let parked = park(&client).await;
        let link = link_in(&call(&client, "unknown").await);
        let browser = Browser::of(&a);
        let back = unknown.agrees(&browser.agrees(&link).await);
        for name in ["rated", "counted"] {
            assert_eq!(call(&client_of(&a, name), "s").await.text(), "{}");
        }
        // Its definition counts from the time at which the store has it.
        until_async(async || call(&client, "pinned").await.answer()["error"].is_null()).await;
        redis.kill();
        expect_renewal(&renewed);
        for replica in [&a, &b] {
            lapse(replica).await;
        }
        Self {
            a,
            b,
            lost,
            asking,
            valid,
            renewed,
            unknown,
            session,
            question,
            parked,
            browser,
            link,
            back,
        }
    }

    /// Makes the request of a path.
    async fn ask(&self, path: &str) -> DegradedOutcome {
        let client = client_of(&self.a, "free");
        let at_b = through(&self.b, &self.session, Some("key-free"));
        let said = match path {
            "call without a shared limit" => call(&client, "s").await,
            "call with a shared rate" => self.call_at_rate("s__echo").await,
            "call with a `cost` and a shared rate" => self.call_at_rate("costly__echo").await,
            "call within the leased part of a quota" => {
                call(&client_of(&self.a, "counted"), "s").await
            }
            "call beyond it" => self.exhaust_quota().await,
            "call with a user's consent" => {
                let client = client.offering(form()).await;
                retry(&client, ("asks__echo", &json!({})), self.question.state(), "accept").await
            }
            "failed login" => return self.fail_login().await,
            "call with a valid token for its server" => call(&client, "valid").await,
            "call whose token needs a renewal" => call(&client, "renewed").await,
            "new link to log in" => call(&client, "unasked").await,
            "page of a link" => self.browser.opens(&self.link).await,
            "response to a login" => self.browser.opens(&self.back).await,
            "parked call, resumed through another replica" => {
                retry_parked(&client_of(&self.b, "free"), &self.parked).send().await.said().await
            }
            "`initialize`" => {
                let params = json!({
                    "protocolVersion": "2025-11-25", "capabilities": {},
                    "clientInfo": { "name": "c", "version": "1" }
                });
                let client = Client::sessionless(self.a.running.address, "2025-11-25");
                client.key("key-free").ask("initialize", params).send().await.said().await
            }
            "call in a session, at its owner" => call(&self.session, "s").await,
            "call in a session, through another replica" => call(&at_b, "s").await,
            "subscription in a session" => {
                self.session.request("resources/subscribe", json!({ "uri": "mcp://s/a:1" })).await
            }
            "session of a lost replica" => {
                let kind = session_of(&self.lost, &Principal::Client("free".into()));
                self.a.plain().becomes(kind).key("key-free").request("ping", json!({})).await
            }
            "call of a tool with a pinned definition" => call(&client, "pinned").await,
            _ => panic!("no request for this path of docs/cluster.md: {path}"),
        };
        DegradedOutcome::of(&said)
    }

    /// Makes calls of a client with a rate until the permits that are held are used up.
    async fn call_at_rate(&self, tool: &str) -> Said {
        let client = client_of(&self.a, "rated");
        let status = async || self.a.status().await["cluster"]["degraded"] == true;
        poll_for(async || {
            let said = client.call(tool, json!({})).await;
            status().await.then_some(said)
        })
        .await;
        client.call(tool, json!({})).await
    }

    /// Makes calls until the leased part of a quota is used up.
    async fn exhaust_quota(&self) -> Said {
        let client = client_of(&self.a, "counted");
        for _ in 0..20 {
            let said = call(&client, "s").await;
            if !said.answer()["error"].is_null() {
                return said;
            }
        }
        panic!("a block of the quota has ten calls");
    }

    /// Fails until the address is locked out, which is how the replica serves it.
    async fn fail_login(&self) -> DegradedOutcome {
        let client = client_of(&self.a, "stranger");
        let mut statuses = Vec::new();
        for _ in 0..5 {
            statuses.push(client.ask_call("s__echo", json!({})).send().await.status());
        }
        assert_eq!(statuses, [401, 401, 401, 429, 429]);
        DegradedOutcome::Served
    }
}

/// Servers and clients of both replicas.
fn settings(asking: &Upstream) -> Builder {
    let costly = format!("{}[servers.costly.tools.echo]\ncost = 3\n", asking.http());
    let clients =
        [("free", ""), ("rated", "rate = \"1000/h\""), ("counted", "quota = \"640/day\"")];
    let mut builder = Gateway::with("s", asking.http())
        .gateway("failed_logins = \"3/h\"")
        .server("asks", asking.http() + CONFIRM)
        .server("costly", costly)
        .server("pinned", asking.http() + "trusted = true\npins = \"hold\"\n");
    for (name, more) in clients {
        builder = builder.toml(&client_table(name, &format!("key-{name}"), more));
    }
    builder
}

fn client_of(replica: &Gateway, name: &str) -> Client {
    replica.modern().key(&format!("key-{name}"))
}

async fn call(client: &Client, server: &str) -> Said {
    client.call(&format!("{server}__echo"), json!({})).await
}

/// Waits until the lease of a replica is over, and others may have revived its sessions.
async fn lapse(replica: &Gateway) {
    let time = |value: &serde_json::Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
    let is_over = |status: &serde_json::Value| {
        let age = time(&status["now"]).duration_since(time(&status["cluster"]["renewed_at"]));
        age > SignedDuration::from_secs(9)
    };
    poll_for(async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        is_over(&replica.status().await).then_some(())
    })
    .await;
}

/// Reads the rows of the table: path, `"local"`, `"refuse"`.
fn documented_paths() -> Vec<[String; 3]> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cluster.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("## Without the store\n").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = |row: &str| {
        let cells: Vec<_> =
            row.trim_matches('|').split(" | ").map(|it| it.trim().to_owned()).collect();
        cells.try_into().unwrap_or_else(|_| panic!("three cells: {row}"))
    };
    rows.map(cells).collect()
}

#[tokio::test]
async fn each_path_without_the_store_is_decided_as_documented() {
    let rows = documented_paths();
    assert_eq!(rows.iter().map(|row| &*row[0]).collect::<Vec<_>>(), PATHS);
    let check = async |degrade: &'static str, column: usize| {
        let replicas = Box::pin(DegradedReplicas::start(degrade)).await;
        let mut differences = Vec::new();
        for row in &rows {
            let (documented, path) = (DegradedOutcome::read(&row[column]), &row[0]);
            let found = Box::pin(replicas.ask(path)).await;
            if found != documented {
                differences.push(format!("{path}: {found:?}, with degrade = {degrade:?}"));
            }
        }
        assert!(differences.is_empty(), "{differences:#?}");
        // Nothing was sent to an authorization server, and no call that was refused to a server.
        assert_eq!(replicas.valid.token_requests().len(), 1);
        assert_eq!(replicas.renewed.token_requests().len(), 1);
        assert!(replicas.unknown.token_requests().is_empty());
        assert_eq!(replicas.asking.all("resources/subscribe").is_empty(), degrade == "refuse");
    };
    tokio::join!(check("local", 1), check("refuse", 2));
}
