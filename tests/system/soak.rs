//! Everything at once, for long: sessions that begin and end, calls, questions during calls,
//! subscriptions, servers that are lost or killed, and reloads. No call to an undisturbed server
//! may fail, and memory and descriptors must not grow.
//!
//! A test run plays it for a few seconds. For an hour, with 500 sessions and 200 reloads, as a
//! release build:
//!
//! ```sh
//! TRUNKLINE_SOAK_MINUTES=60 cargo test --release --test system soak -- --nocapture
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::task::JoinSet;

use super::process::{Process, Tag};
use super::reload::{example, loaded, unsteady};
use super::support::client::Kind;
use super::support::dialogue::dialogue;
use super::support::upstream::news::{Tell, To, UPDATED};
use super::support::upstream::{Era, Received};
use super::support::{Client, Reply, Step, Upstream};
use crate::waiting::holds_within;

/// Amount and duration of the load.
#[derive(Debug, Clone, Copy)]
struct SoakPlan {
    lasts: Duration,
    sessions: usize,
    reloads: u64,
    /// The pause of a session between two actions.
    pause: Duration,
}

impl SoakPlan {
    fn from_environment() -> Self {
        let minutes = std::env::var("TRUNKLINE_SOAK_MINUTES");
        match minutes.map(|minutes| minutes.parse().expect("TRUNKLINE_SOAK_MINUTES: a number")) {
            Ok(minutes) => Self {
                lasts: Duration::from_mins(minutes),
                sessions: 500,
                reloads: 200,
                pause: Duration::from_millis(500),
            },
            Err(_) => Self {
                lasts: Duration::from_secs(10),
                sessions: 40,
                reloads: 5,
                pause: Duration::from_millis(20),
            },
        }
    }
}

/// State shared by the sessions.
#[derive(Default)]
struct Tally {
    over: AtomicBool,
    calls: AtomicU64,
    dialogues: AtomicU64,
    updates: AtomicU64,
    /// Updates that arrived only after a further change of the resource.
    late: AtomicU64,
    sessions: AtomicU64,
    /// Calls to servers that were lost at the time.
    lost: AtomicU64,
    faults: Mutex<Vec<String>>,
}

impl Tally {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn fault(&self, fault: String) {
        self.faults.lock().unwrap().push(fault);
    }
}

/// One session, or one Modern client, with its actions in turn.
struct Visitor {
    number: usize,
    client: Client,
    /// The same client with a connection for each request: a stream would block all other requests
    /// on a persistent connection.
    aside: Client,
    tally: Arc<Tally>,
}

impl Visitor {
    async fn enter(gateway: &Process, number: usize, tally: &Arc<Tally>) -> Self {
        Tally::add(&tally.sessions);
        let plain = match number % 4 {
            0 => Client::modern(gateway.address),
            1 => Client::sessionless(gateway.address, "2025-03-26"),
            2 => Client::sessionless(gateway.address, "2025-06-18"),
            _ => Client::sessionless(gateway.address, "2025-11-25"),
        };
        // The revision of March 2025 has no elicitation.
        let offers = if number % 4 == 1 { json!({}) } else { json!({ "elicitation": {} }) };
        let client = plain.offering(offers.clone()).await.keep();
        let mut aside = Client::plain(gateway.address).becomes(client.kind());
        aside.capabilities = offers;
        Self { number, client, aside, tally: Arc::clone(tally) }
    }

    async fn stay(&self, plan: SoakPlan, turns: usize) {
        let mut turn = self.number;
        while turn < self.number + turns && !self.tally.over.load(Ordering::Relaxed) {
            match turn % 20 {
                3 => self.call_lost_server().await,
                9 if self.number % 4 != 1 => self.answer_a_question(turn).await,
                13 => self.hear_of_a_resource(turn).await,
                17 => self.list().await,
                _ => self.call(turn).await,
            }
            turn += 1;
            tokio::time::sleep(plan.pause).await;
        }
    }

    async fn call(&self, turn: usize) {
        let (tool, arguments) = STEADY[turn % STEADY.len()];
        let said = self.client.call(tool, serde_json::from_str(arguments).unwrap()).await;
        let result = &said.answer()["result"];
        if !result["content"].is_array() || result["isError"] == true {
            self.fault(tool, &format!("{said:?}"));
        }
        Tally::add(&self.tally.calls);
    }

    async fn list(&self) {
        let names = self.client.tool_names().await;
        for (tool, _) in STEADY {
            if !names.iter().any(|name| name == tool) {
                self.fault("tools/list", &format!("lacks {tool}"));
            }
        }
    }

    /// A call that may fail, but has to be answered.
    async fn call_lost_server(&self) {
        for tool in ["shaken__echo", "killed__list"] {
            let said = self.client.call(tool, json!({})).await;
            let answer = said.answer();
            if answer.get("error").is_some() || answer["result"]["isError"] == true {
                Tally::add(&self.tally.lost);
            }
        }
    }

    async fn answer_a_question(&self, turn: usize) {
        let tool = if turn % 40 < 20 { "legacy__ask" } else { "modern__ask" };
        let name = format!("visitor {} in turn {turn}", self.number);
        let accepted = json!({ "action": "accept", "content": { "name": name } });
        let said = dialogue(&self.aside, tool, |_| accepted.clone()).await;
        if !said.answer()["result"]["content"][0]["text"]
            .as_str()
            .is_some_and(|t| t.contains(&name))
        {
            self.fault(tool, &format!("{said:?}"));
        }
        Tally::add(&self.tally.dialogues);
    }

    /// Subscribes to a resource of its own, and changes it until an update arrives.
    async fn hear_of_a_resource(&self, turn: usize) {
        let server = if turn % 40 < 20 { "modern" } else { "legacy" };
        let native = format!("mem://visitor/{}", self.number);
        let public = format!("mcp://{server}/{native}");
        let mut stream = self.subscribe(&public).await;
        for attempt in 0..3 {
            let touch = format!("{server}__touch");
            let said = self.client.call(&touch, json!({ "uri": native })).await;
            if said.answer()["result"]["content"][0]["text"] != "touched" {
                self.fault(&touch, &format!("{said:?}"));
            }
            let limit = Duration::from_secs(5);
            if tokio::time::timeout(limit, update_of(&mut stream, &public)).await == Ok(true) {
                if attempt > 0 {
                    Tally::add(&self.tally.late);
                }
                Tally::add(&self.tally.updates);
                return self.unsubscribe(&public).await;
            }
        }
        self.fault("resources/subscribe", &format!("never heard of {public}"));
    }

    async fn subscribe(&self, uri: &str) -> Reply {
        if self.aside.is_modern() {
            let filter = json!({ "notifications": { "resourceSubscriptions": [uri] } });
            let mut stream = self.aside.ask("subscriptions/listen", filter).send().await;
            stream.message().await.expect("an acknowledgement");
            return stream;
        }
        let stream = self.aside.listen().await;
        let said = self.client.request("resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(*said.result(), json!({}), "{said:?}");
        stream
    }

    async fn unsubscribe(&self, uri: &str) {
        if !self.client.is_modern() {
            let said = self.client.request("resources/unsubscribe", json!({ "uri": uri })).await;
            assert_eq!(*said.result(), json!({}), "{said:?}");
        }
    }

    async fn leave(self) {
        if let Kind::Legacy { .. } = self.client.kind() {
            let ended = self.client.http("DELETE", "/mcp").of_session().send().await;
            if ended.status() >= 300 {
                self.fault("DELETE", &ended.status().to_string());
            }
        }
    }

    fn fault(&self, what: &str, why: &str) {
        self.tally.fault(format!("visitor {}, {what}: {why}", self.number));
    }
}

/// Reads a stream until it has an update of a resource; returns false if the stream ends before.
async fn update_of(stream: &mut Reply, uri: &str) -> bool {
    while let Some(message) = stream.message().await {
        if message["method"] == UPDATED && message["params"]["uri"] == *uri {
            return true;
        }
    }
    false
}

/// Tools of undisturbed servers.
const STEADY: [(&str, &str); 5] = [
    ("clock__now", r#"{"zone":"Europe/Berlin"}"#),
    ("notes__list", "{}"),
    ("legacy__echo", r#"{"a":[1,2,3]}"#),
    ("modern__echo", r#"{"b":"two"}"#),
    ("clock__search", r#"{"query":"Paris"}"#),
];

/// Starts a scripted server that sends questions and notifications.
async fn scripted(era: Era) -> Upstream {
    let upstream = Upstream::start(era).await;
    upstream.keeps_nothing();
    upstream.can(json!({
        "tools": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
    }));
    upstream.does("ask", move |call| ask_for_name(call, era));
    let inner = Arc::downgrade(&upstream.inner);
    upstream.does("touch", move |call| {
        let params = json!({ "uri": call.arguments()["uri"] });
        let tell = Tell { method: UPDATED.into(), params, to: To::Asked, asks: None };
        let _ = inner.upgrade().unwrap().tells.send(tell);
        vec![Step::text("touched")]
    });
    upstream
}

fn ask_for_name(call: &Received, era: Era) -> Vec<Step> {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let form = json!({ "mode": "form", "message": "Who?", "requestedSchema": schema });
    match (era, call.params.get("inputResponses")) {
        (Era::Legacy, _) => {
            vec![Step::Ask("q", "elicitation/create", form), Step::Await("q"), Step::Answers]
        }
        (Era::Modern, Some(answers)) => vec![Step::text(answers.to_string())],
        (Era::Modern, None) => vec![Step::Result(json!({
            "resultType": "input_required",
            "inputRequests": { "q": { "method": "elicitation/create", "params": form } },
        }))],
    }
}

/// Kills the process of a server that is a child, if it runs.
fn kill_child(gateway: &Process, name: &str) {
    let pid = gateway.server(name)["pid"].as_i64();
    if let Some(pid) = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Resources of the gateway at a time: KiB of memory, and descriptors.
#[derive(Debug, Clone, Copy)]
struct Held {
    memory: u64,
    files: usize,
}

impl Held {
    fn by(gateway: &Process) -> Self {
        Self { memory: gateway.memory("VmRSS"), files: gateway.files() }
    }

    /// Returns the medians of some samples.
    fn median(samples: &[Self]) -> Self {
        let mut memory: Vec<_> = samples.iter().map(|sample| sample.memory).collect();
        let mut files: Vec<_> = samples.iter().map(|sample| sample.files).collect();
        memory.sort_unstable();
        files.sort_unstable();
        Self { memory: memory[memory.len() / 2], files: files[files.len() / 2] }
    }
}

/// Runs sessions one after another until the end.
async fn come_and_go(gateway: Arc<Process>, number: usize, plan: SoakPlan, tally: Arc<Tally>) {
    while !tally.over.load(Ordering::Relaxed) {
        let visitor = Visitor::enter(&gateway, number, &tally).await;
        // Every fourth session stays; the others leave after some time.
        let turns = if number % 4 == 3 { usize::MAX / 2 } else { 50 };
        visitor.stay(plan, turns).await;
        visitor.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_under_everything_at_once_fails_no_call_and_does_not_grow() {
    let plan = SoakPlan::from_environment();
    let tag = Tag::new();
    let [legacy, modern] = [scripted(Era::Legacy).await, scripted(Era::Modern).await];
    let shaken = Upstream::legacy().await;
    shaken.keeps_nothing();
    // For the gateway all sessions belong to one client: they have no key, and one address.
    let limits = format!("\n[gateway.limits]\nparked_each = {}\n", 2 * plan.sessions);
    let servers = |n: u64| {
        limits.clone()
            + &example("clock", "clock", &tag.env(), "")
            + &example("notes", "notes", &tag.env(), "")
            + &example("killed", "notes", &tag.env(), "")
            + &format!("\n[servers.legacy]\n{}", legacy.http())
            + &format!("\n[servers.modern]\n{}", modern.http())
            + &format!("\n[servers.shaken]\n{}", shaken.http())
            + &unsteady(n, &tag)
    };
    let gateway = Process::start(&servers(0));
    gateway.ready(&["clock", "notes", "killed", "legacy", "modern", "shaken"]);
    let gateway = Arc::new(gateway);
    let (idle, tally) = (Held::by(&gateway), Arc::new(Tally::default()));
    let mut visitors = JoinSet::new();
    for number in 0..plan.sessions {
        visitors.spawn(come_and_go(Arc::clone(&gateway), number, plan, Arc::clone(&tally)));
    }
    let began = Instant::now();
    let mut samples = Vec::new();
    for n in 1..=plan.reloads {
        let due = plan.lasts.mul_f64(n as f64 / plan.reloads as f64);
        tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        samples.push(Held::by(&gateway));
        gateway.replace_config(&servers(n));
        loaded(&gateway, n + 1);
        shaken.forget_sessions();
        shaken.crash();
        kill_child(&gateway, "killed");
    }
    tally.over.store(true, Ordering::Relaxed);
    visitors.join_all().await;
    let part = samples.len() / 5;
    let (early, late) = (
        Held::median(&samples[part..=2 * part]),
        Held::median(&samples[samples.len() - 1 - part..]),
    );
    report(&tally, idle, early, late, began.elapsed());
    let faults = tally.faults.lock().unwrap();
    assert!(
        faults.is_empty(),
        "{} faults, the first: {:#?}",
        faults.len(),
        &faults[..5.min(faults.len())]
    );
    for (what, counter) in
        [("dialogues", &tally.dialogues), ("updates", &tally.updates), ("calls", &tally.calls)]
    {
        assert!(counter.load(Ordering::Relaxed) >= plan.sessions as u64, "too few {what}");
    }
    assert!(
        late.memory < early.memory + early.memory / 4 + 8 * 1024,
        "memory: {early:?} → {late:?}"
    );
    assert!(late.files < early.files + early.files / 4 + 16, "descriptors: {early:?} → {late:?}");
    // Idle connections to the servers are kept for 90 seconds at most.
    let closed = || gateway.files() <= idle.files + early.files / 4;
    let files = || format!("{} of {early:?}, {idle:?}", gateway.files());
    assert!(holds_within(Duration::from_mins(2), closed), "open descriptors: {}", files());
}

fn report(tally: &Tally, idle: Held, early: Held, late: Held, took: Duration) {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{} sessions, {} calls, {} dialogues, {} updates ({} late), {} answers of lost servers \
         in {took:.0?}; idle {idle:?}, early {early:?}, late {late:?}",
        count(&tally.sessions),
        count(&tally.calls),
        count(&tally.dialogues),
        count(&tally.updates),
        count(&tally.late),
        count(&tally.lost),
    );
}
