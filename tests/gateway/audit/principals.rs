//! Two hundred principals with different rights side by side. The log proves that each saw and ran
//! only elements that it had a right to, and that no action is missing in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use super::{AUDIT, chain_faults};
use crate::certificates::{ClientCa, server_certificates, trust};
use crate::support::client::{Client, Kind, Trust};
use crate::support::gateway::Builder;
use crate::support::{Gateway, Issuer, Said, Step, Upstream, client_table, json_lines};

const PRINCIPALS: usize = 200;
const TEAMS: usize = 10;
const URL: &str = "https://mcp.example.com";

/// Proof of a principal's identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Proof {
    Key,
    Token,
    Certificate,
}

/// One of the principals.
#[derive(Clone, Copy)]
struct Player {
    number: usize,
    proof: Proof,
}

impl Player {
    fn of(number: usize) -> Self {
        let proof = match number % 20 {
            3 => Proof::Certificate,
            rest if rest % 2 == 0 => Proof::Key,
            _ => Proof::Token,
        };
        Self { number, proof }
    }

    fn team(self) -> usize {
        self.number % TEAMS
    }

    /// Returns true if it has the scope that the second tool of its team needs.
    fn may_write(self) -> bool {
        self.number.is_multiple_of(3)
    }

    fn is_modern(self) -> bool {
        (self.number / TEAMS).is_multiple_of(2)
    }

    /// Returns the name in the log.
    fn name(self) -> String {
        match self.proof {
            Proof::Token => format!("idp:u{}", self.number),
            Proof::Key | Proof::Certificate => format!("c{}", self.number),
        }
    }

    /// Returns `[clients.NAME]`, unless it is a user.
    fn table(self) -> String {
        let (number, team) = (self.number, self.team());
        let scopes = if self.may_write() { "\"mcp:write\"" } else { "" };
        let more =
            format!("groups = [\"team{team}\"]\nprofiles = [\"p{team}\"]\nscopes = [{scopes}]\n");
        match self.proof {
            Proof::Key => client_table(&self.name(), &format!("key-{number}"), &more),
            Proof::Certificate => {
                format!("[clients.c{number}]\ncertificates = [\"CN=c{number}\"]\n{more}")
            }
            Proof::Token => String::new(),
        }
    }

    async fn connect(self, house: &House) -> Client {
        let (number, endpoint) = (self.number, format!("/mcp/p{}", self.team()));
        let kind = if self.is_modern() {
            Kind::Modern
        } else {
            Kind::Legacy { session: None, version: "2025-11-25".into() }
        };
        let client = house.gateway.plain().becomes(kind).at(&endpoint).keep();
        let client = match self.proof {
            Proof::Key => client.tls(house.trust.clone()).key(&format!("key-{number}")),
            Proof::Token => {
                let scope = if self.may_write() { "openid mcp:write" } else { "openid" };
                let claims = json!({
                    "sub": format!("u{number}"), "scope": scope,
                    "groups": [format!("team{}", self.team()), "staff"],
                });
                let token = house.issuer.token(&format!("{URL}{endpoint}"), claims);
                client.tls(house.trust.clone()).key(&token)
            }
            Proof::Certificate => {
                client.tls(house.trust.clone().showing(house.ca.issue(&format!("c{number}"))))
            }
        };
        client.initialized().await
    }
}

struct House {
    upstream: Upstream,
    issuer: Issuer,
    ca: ClientCa,
    trust: Trust,
    gateway: Gateway,
}

/// Actions of a principal, made or recorded: their number, by event, method and decision.
type Tally = BTreeMap<String, usize>;

fn count(tally: &mut Tally, event: &str, method: &str, decision: &str) {
    *tally.entry(format!("{event} {method} {decision}")).or_default() += 1;
}

/// Makes calls, lists, reads and forbidden requests until the end.
async fn play(house: &House, player: Player, end: Instant) -> Tally {
    let client = player.connect(house).await;
    let (own, other) = (player.team(), (player.team() + 1) % TEAMS);
    let who = player.name();
    let mut tally = Tally::default();
    let [ours, theirs] = [own, other].map(|team| format!("mcp://s/db://{team}"));
    // A stream of its own, which ends at once, on a separate connection.
    let subscriber = player.connect(house).await;
    for (uri, is_ours) in [(&ours, true), (&theirs, false)] {
        assert_eq!(subscriber.subscribes(uri).await, is_ours, "{who} {uri}");
        subscriber.disconnect().await;
        let method =
            if player.is_modern() { "subscriptions/listen" } else { "resources/subscribe" };
        let event = if is_ours || player.is_modern() { "subscribe" } else { "request" };
        count(&mut tally, event, method, if is_ours { "allow" } else { "deny" });
    }
    loop {
        let call = async |tool: String| client.call(&tool, json!({ "of": player.number })).await;
        let is_unknown = |said: &Said| {
            assert!([-32602, -32002].contains(&said.code()), "{who}: {said:?}");
        };
        let said = call(format!("s__t{own}")).await;
        assert!(!said.is_error(), "{who}: {said:?}");
        count(&mut tally, "call", "tools/call", "allow");
        is_unknown(&call(format!("s__t{other}")).await);
        count(&mut tally, "call", "tools/call", "deny");
        let said = call(format!("s__w{own}")).await;
        assert_eq!(said.status, if player.may_write() { 200 } else { 403 }, "{who}: {said:?}");
        count(&mut tally, "call", "tools/call", if player.may_write() { "allow" } else { "deny" });
        let listed = client.tool_names().await;
        assert_eq!(listed, [format!("s__t{own}"), format!("s__w{own}")], "{who}");
        count(&mut tally, "list", "tools/list", "allow");
        for (method, key, mine, foreign) in [
            ("prompts/get", "name", format!("s__p{own}"), format!("s__p{other}")),
            ("resources/read", "uri", ours.clone(), theirs.clone()),
        ] {
            let said = client.request(method, json!({ key: mine })).await;
            assert!(said.answer().get("result").is_some(), "{who}: {said:?}");
            count(&mut tally, "call", method, "allow");
            is_unknown(&client.request(method, json!({ key: foreign })).await);
            count(&mut tally, "call", method, "deny");
        }
        let stray = client.ask_call(&format!("s__t{other}"), json!({}));
        let said = stray.at(&format!("/mcp/p{other}")).send().await.said().await;
        // A token is for one profile, and does not authenticate its user at another.
        let is_token = player.proof == Proof::Token;
        assert_eq!(said.status, if is_token { 401 } else { 404 }, "{who}: {said:?}");
        count(&mut tally, if is_token { "stray" } else { "request" }, "", "deny");
        if Instant::now() >= end {
            return tally;
        }
    }
}

/// Returns the configuration; the reload in the middle renames the rules.
fn builder(upstream: &Upstream, issuer: &Issuer, folder: &std::path::Path, rule: &str) -> Builder {
    let mut lines = upstream.http() + "in_flight = 1000\n";
    let mut tables = String::new();
    for team in 0..TEAMS {
        writeln!(lines, "tools.w{team}.scopes = [\"mcp:write\"]").unwrap();
        writeln!(
            tables,
            "[profiles.p{team}]\n[policy.rules.{rule}{team}]\ngroups = [\"team{team}\"]\n\
             tools = [\"s__t{team}\", \"s__w{team}\"]\nprompts = [\"s__p{team}\"]\n\
             resources = [\"mcp://s/db://{team}\"]"
        )
        .unwrap();
    }
    tables.extend((0..PRINCIPALS).map(|number| Player::of(number).table()));
    let place = folder.display();
    Gateway::with("s", lines)
        .gateway(&format!(
            "public_url = \"{URL}\"\ntls = {{ cert = '{place}/server.pem', \
             key = '{place}/server.key', client_ca = '{place}/clients.pem' }}"
        ))
        .toml("[gateway.limits]\nconnections = 10000\nshare = \"100%\"\n")
        .toml(&issuer.table("idp", "groups_claim = \"groups\""))
        .toml(&format!("{tables}{AUDIT}"))
}

/// Checks one record of a principal by itself.
fn check_rights(record: &Value, player: Player, rules: &mut BTreeSet<String>) {
    let team = player.team();
    assert_eq!(record["profile"], format!("p{team}"), "{record}");
    let kind = match player.proof {
        Proof::Key => "key",
        Proof::Token => "token",
        Proof::Certificate => "certificate",
    };
    assert_eq!(record["credential"]["kind"], kind, "{record}");
    let is_call = ["call", "subscribe"].contains(&record["event"].as_str().unwrap());
    if !is_call || record["decision"] != "allow" {
        return;
    }
    let rule = record["rule"].as_str().unwrap_or_else(|| panic!("{record}"));
    assert!(rule.ends_with(&format!("m{team}")) || rule.ends_with(&format!("w{team}")), "{record}");
    rules.insert(rule.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned());
    let subject = ["tool", "prompt", "resource"].into_iter().find_map(|it| record[it].as_str());
    let subject = subject.unwrap();
    assert!(subject.ends_with(&team.to_string()), "{record}");
    assert!(!subject.starts_with("s__w") || player.may_write(), "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_principals_see_and_run_their_own_tools_and_the_log_proves_it() {
    let seconds = std::env::var("TRUNKLINE_AUDIT_SECONDS").ok().and_then(|text| text.parse().ok());
    let lasts = Duration::from_secs(seconds.unwrap_or(2));
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    upstream.offers_everything();
    for team in 0..TEAMS {
        for name in [format!("t{team}"), format!("w{team}")] {
            upstream.does(&name, |_| vec![Step::Result(json!({ "content": [] }))]);
        }
    }
    upstream.lists("prompts", (0..TEAMS).map(|team| json!({ "name": format!("p{team}") })));
    let uris: Vec<_> = (0..TEAMS).map(|team| format!("db://{team}")).collect();
    upstream.resources(&uris.iter().map(String::as_str).collect::<Vec<_>>());
    let (folder, ca) = (tempfile::tempdir().unwrap(), ClientCa::new());
    server_certificates(folder.path());
    std::fs::write(folder.path().join("clients.pem"), ca.0.pem()).unwrap();
    let gateway = builder(&upstream, &issuer, folder.path(), "team").start().await;
    let house = House { upstream, issuer, ca, trust: trust(folder.path()), gateway };

    let begun = Instant::now();
    let all = (0..PRINCIPALS).map(|number| play(&house, Player::of(number), begun + lasts));
    let reload = async {
        house.upstream.heard("tools/call", PRINCIPALS).await;
        let after = builder(&house.upstream, &house.issuer, folder.path(), "crew");
        assert_eq!(house.gateway.reload(after).await, ReloadOutcome::Applied);
    };
    let (tallies, ()) = tokio::join!(join_all(all), reload);
    let House { upstream, gateway, .. } = house;
    let status = gateway.status().await;
    let log = gateway.stop().await;
    let path = log.path().join("audit.jsonl");
    assert_eq!((chain_faults(&path), &status["audit"]["dropped"]), (String::new(), &json!(0)));

    let players: BTreeMap<_, _> =
        (0..PRINCIPALS).map(|number| (Player::of(number).name(), number)).collect();
    let (mut recorded, mut strays) = (vec![Tally::default(); PRINCIPALS], 0);
    let (mut lists, mut rules) = (BTreeMap::new(), BTreeSet::new());
    let mut written = json_lines(&path);
    // The reload.
    written.retain(|record| record["event"] != "operation");
    for record in &written {
        let [event, decision] =
            ["event", "decision"].map(|name| record[name].as_str().unwrap().to_owned());
        let Some(name) = record["principal"].as_str() else {
            assert_eq!(
                (&*event, &*decision, &record["check"]),
                ("request", "deny", &json!("token"))
            );
            strays += 1;
            continue;
        };
        let number = players[name];
        let is_stray = record["check"] == "profile" && event == "request";
        let method = if is_stray { "" } else { record["method"].as_str().unwrap() };
        count(&mut recorded[number], &event, method, &decision);
        if is_stray {
            continue;
        }
        let player = Player::of(number);
        check_rights(record, player, &mut rules);
        if event == "list" {
            assert_eq!(record["items"], 2, "{record}");
            let digest = record["list_digest"].as_str().unwrap().to_owned();
            assert_eq!(lists.entry(player.team()).or_insert_with(|| digest.clone()), &digest);
        }
    }
    let expected: Vec<Tally> = tallies
        .iter()
        .map(|tally| tally.iter().filter(|(it, _)| !it.starts_with("stray")))
        .map(|kept| kept.map(|(label, times)| (label.clone(), *times)).collect())
        .collect();
    assert_eq!(recorded, expected, "as many records as requests, principal by principal");
    let of = |label: &str| tallies.iter().filter_map(|tally| tally.get(label)).sum::<usize>();
    assert_eq!(strays, of("stray  deny"));
    let digests: BTreeSet<_> = lists.values().collect();
    assert_eq!(digests.len(), TEAMS, "no two teams were shown the same");
    assert_eq!(rules, BTreeSet::from(["crew".to_owned(), "team".to_owned()]), "before and after");
    assert_eq!(upstream.calls().len(), of("call tools/call allow"));
    assert_eq!(upstream.all("prompts/get").len(), of("call prompts/get allow"));
    let requests: usize = tallies.iter().flat_map(Tally::values).sum();
    assert_eq!(written.len(), requests);
    println!(
        "{requests} requests, {} records, {} allowed calls of tools",
        written.len(),
        upstream.calls().len()
    );
}
