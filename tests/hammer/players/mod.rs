//! The clients: each checks the mark of every message that it receives.

mod calls;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::key;
use crate::listening::{Heard, public};
use crate::servers::{Server, TOLD, Ties};
use crate::support::{Client, Gateway};
use crate::world::{Counted, Counts, World, whose};

/// Protocol of a client.
#[derive(Debug, Clone, Copy)]
pub enum Speaks {
    Modern,
    Legacy(&'static str),
}

/// A client that checks all its messages.
pub struct Player {
    pub world: Arc<World>,
    pub client: Client,
    /// Name of the principal and of the client.
    pub name: String,
    pub principal: &'static str,
    pub heard: Heard,
    pub listening: Mutex<Option<AbortHandle>>,
    /// The servers that it uses.
    servers: Vec<&'static str>,
    seed: u64,
    next: AtomicU64,
    leaving: AtomicBool,
    counts: Counts,
    /// Ids of the questions that it received.
    asked: Mutex<HashSet<String>>,
    /// Its answered calls, by server.
    answered: Mutex<HashMap<&'static str, u64>>,
}

/// A call, and its results so far.
struct Call<'a> {
    server: &'a Server,
    tool: &'static str,
    arguments: Value,
    mark: String,
    token: u64,
    progress: Vec<u64>,
    lines: u64,
}

/// Number of times that each server had been lost shortly before the last successful call to it.
type Back = HashMap<&'static str, usize>;

/// Returns true if no loss of a server explains the failure of a call to it.
fn is_unexplained(server: &Server, back: &Back) -> bool {
    server.times_lost() == back.get(server.name).copied().unwrap_or(0)
}

const ALL: [&str; 6] = ["lh", "ls", "lc", "lp", "mh", "mp"];
/// Servers to draw from. On shared pipes, some calls should be the only ones in flight.
const LOT: [&str; 14] =
    ["lh", "lh", "lh", "ls", "ls", "ls", "lc", "lc", "lp", "mh", "mh", "mh", "mh", "mp"];

impl Player {
    pub async fn enter(
        world: &Arc<World>,
        gateway: &Gateway,
        principal: &'static str,
        name: &str,
        speaks: Speaks,
        seed: u64,
    ) -> Arc<Self> {
        let address = gateway.running.address;
        Self::at(world, address, (principal, name), speaks, (&ALL, seed)).await
    }

    async fn at(
        world: &Arc<World>,
        address: SocketAddr,
        (principal, name): (&'static str, &str),
        speaks: Speaks,
        (servers, seed): (&[&'static str], u64),
    ) -> Arc<Self> {
        let client = match speaks {
            Speaks::Modern => Client::modern(address),
            Speaks::Legacy(version) => Client::sessionless(address, version),
        };
        let able = json!({ "sampling": {}, "elicitation": { "form": {} } });
        let client = client.key(&key(principal)).h2().offering(able).await;
        let player = Arc::new(Self {
            world: Arc::clone(world),
            client,
            name: format!("{principal}/{name}"),
            principal,
            heard: Heard::default(),
            listening: Mutex::default(),
            servers: servers.to_vec(),
            seed,
            next: AtomicU64::new(1),
            leaving: AtomicBool::new(false),
            counts: Counts::default(),
            asked: Mutex::default(),
            answered: Mutex::default(),
        });
        if !player.client.is_modern() {
            let level = json!({ "level": "info" });
            let said = player.client.request("logging/setLevel", level).await;
            assert_eq!(said.result(), &json!({}));
        }
        player.listens().await;
        player
    }

    pub fn whose(&self) -> &str {
        whose(&self.name)
    }

    pub fn uses(&self, server: &Server) -> bool {
        self.servers.contains(&server.name)
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    pub fn fault(&self, what: &str, message: &Value) {
        self.world.fault(format!("{}: {what}: {message}", self.name));
    }

    pub fn add(&self, what: Counted) {
        self.counts.add(what);
        self.world.add(what);
    }

    /// Stops listening.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        if let Some(listening) = self.listening.lock().unwrap().take() {
            listening.abort();
        }
    }

    /// Plays while no other client does: no message may be missing then.
    pub async fn alone(&self) {
        let mut back = HashMap::new();
        for server in &self.world.servers {
            let mut call = self.new_call(server, "say", json!({ "times": 3 }));
            self.made(&mut call, &mut back).await;
            assert_eq!((call.lines, &call.progress[..]), (3, &[1, 2, 3][..]), "{}", call.mark);
            self.asks(server, "ask", "both", &mut back).await;
            self.touches(server, &mut back, "touch").await;
        }
        assert_eq!(self.counts.of(Counted::Question), 2 * ALL.len() as u64, "{}", self.name);
        assert_eq!(self.counts.of(Counted::Refused) + self.counts.of(Counted::Failure), 0);
        assert!(self.counts.of(Counted::Update) >= ALL.len() as u64);
    }

    /// Plays until the run is over.
    pub async fn plays(self: Arc<Self>, hand: u64) {
        let mut dice = Rng::with_seed(10 * self.seed + hand);
        let mut back = HashMap::new();
        while !self.world.is_over() {
            self.turn(&mut dice, &mut back).await;
        }
    }

    /// Plays one turn.
    async fn turn(&self, dice: &mut Rng, back: &mut Back) {
        let name = LOT[dice.usize(..LOT.len())];
        let server = self.world.servers.iter().find(|server| server.name == name).unwrap();
        if !self.uses(server) {
            return;
        }
        let way = self.world.way(self.whose(), server.name);
        match dice.u32(..100) {
            0..55 => {
                let _beside = way.read().await;
                let times = dice.u64(2..8);
                let mut call = self.new_call(server, "say", json!({ "times": times }));
                self.made(&mut call, back).await;
            }
            55..78 => {
                let asks = ["form", "prompt", "both"][dice.usize(..3)];
                // A question on a child's pipes goes to the newest call.
                let beside = way.read().await;
                if server.ties == Ties::Child {
                    drop(beside);
                    let _alone = way.write().await;
                    self.asks(server, "ask", asks, back).await;
                } else {
                    self.asks(server, "ask", asks, back).await;
                }
            }
            78..82 if server.legacy && server.ties == Ties::Stream => {
                let _alone = way.write().await;
                self.asks(server, "ask_aside", "form", back).await;
            }
            82..88 if server.own && !self.client.is_modern() => self.is_told(server, back).await,
            78..95 => self.touches(server, back, "touch").await,
            95..97 => self.touches(server, back, "touch_all").await,
            97 if server.ties == Ties::Stream && self.client.is_modern() => {
                let _beside = way.read().await;
                self.abandons(server).await;
            }
            _ => {
                let _beside = way.read().await;
                self.cancels(server, back).await;
            }
        }
    }

    /// Makes a server send an update of its own resource, until the client receives it.
    async fn touches(&self, server: &Server, back: &mut Back, tool: &'static str) {
        let uri = if tool == "touch" { self.own_uri() } else { self.common_uri() };
        let heard = public(server.name, &uri);
        self.until_heard(server, back, (tool, json!({ "uri": uri })), &heard).await;
    }

    /// Makes a server send a notification that belongs to no call.
    async fn is_told(&self, server: &Server, back: &mut Back) {
        self.until_heard(server, back, ("tell", json!({})), TOLD).await;
    }

    async fn until_heard(
        &self,
        server: &Server,
        back: &mut Back,
        (tool, arguments): (&'static str, Value),
        heard: &str,
    ) {
        let before = self.heard.count(heard);
        for attempt in 0..10 {
            let mut call = self.new_call(server, tool, arguments.clone());
            let way = self.world.way(self.whose(), server.name);
            let beside = way.read_owned().await;
            self.made(&mut call, back).await;
            drop(beside);
            if self.heard.more_than(heard, before).await {
                return;
            }
            if attempt == 0 && server.times_lost() == 0 {
                self.add(Counted::Late);
            }
        }
        self.fault("it was never told of", &json!(heard));
    }

    /// Cancels a call once it is in progress.
    async fn cancels(&self, server: &Server, back: &mut Back) {
        let ends = json!({ "ends": server.ties == Ties::Nothing });
        let mut call = self.new_call(server, "slow", ends);
        self.is_doubtful(&call);
        let lost = server.times_lost();
        let ask = self.ask(&call);
        let id = ask.message()["id"].clone();
        let mut reply = ask.send().await;
        while call.progress.is_empty() {
            let message = match reply.is_stream() {
                true => reply.message().await.unwrap_or_default(),
                false => return self.did_not_begin(&call, &reply.said().await.json(), back),
            };
            if message.get("method").is_none() {
                return self.did_not_begin(&call, &message, back);
            }
            self.takes(&mut call, &message).await;
        }
        self.add(Counted::Cancelled);
        if self.client.is_modern() {
            return;
        }
        let params = json!({ "requestId": id });
        let cancel = self.client.ask("notifications/cancelled", params).notification();
        assert_eq!(cancel.send().await.status(), 202);
        while let Some(message) = reply.message().await {
            if message.get("method").is_some() {
                self.takes(&mut call, &message).await;
            } else if let Some(text) = message["result"]["content"][0]["text"].as_str() {
                // The answer may have been faster; it is the call's own then.
                let may_be = text == call.mark && call.arguments["ends"] == true;
                if !may_be && server.times_lost() == lost {
                    self.fault("a cancelled call was answered", &message);
                }
            }
        }
    }

    /// Records a call that was answered at once, which only the loss of its server explains.
    fn did_not_begin(&self, call: &Call<'_>, answer: &Value, back: &Back) {
        self.add(Counted::Failure);
        if is_unexplained(call.server, back) {
            self.fault(&format!("{} of {} did not begin", call.mark, call.server.name), answer);
        }
    }

    /// Makes a call, and never answers its question.
    async fn abandons(&self, server: &Server) {
        if self.counts.of(Counted::Abandoned) >= 8 {
            return;
        }
        let mut call = self.new_call(server, "ask", json!({ "asks": "both" }));
        let ask = self.ask(&call);
        let id = ask.message()["id"].clone();
        if let Some(answer) = self.reads(ask.send().await, &mut call, &id).await
            && answer["result"]["resultType"] == "input_required"
        {
            self.answers_all(&call, &answer["result"]);
            self.add(Counted::Abandoned);
        }
    }

    /// Records that some lines of an unanswered call may be missing.
    fn is_doubtful(&self, call: &Call<'_>) {
        if call.server.ties == Ties::Child {
            self.world.lines(self.whose(), |lines| lines.doubtful += 8);
        }
    }

    /// Checks that it took part in every activity.
    #[track_caller]
    pub fn had_its_share(&self) {
        use Counted::{Answer, Line, Progress, Question, Update};
        let counts = [Answer, Question, Line, Progress, Update].map(|what| self.counts.of(what));
        assert!(counts.iter().all(|count| *count >= 50), "{}: {counts:?}", self.name);
        let answered = self.answered.lock().unwrap();
        assert!(
            ALL.iter().all(|name| answered.get(name) > Some(&5)),
            "{}: {answered:?}",
            self.name
        );
    }
}

/// Opens and closes sessions of a principal.
pub async fn come_and_go(world: Arc<World>, address: SocketAddr, principal: &'static str) {
    let mut dice = Rng::with_seed(principal.len() as u64 + 1_000);
    let mut number = 0;
    while !world.is_over() {
        number += 1;
        let servers = if number % 6 == 1 { &ALL[..] } else { &["lh", "ls", "lp", "mh", "mp"] };
        let name = format!("C{number}");
        let speaks = Speaks::Legacy("2025-11-25");
        let player = Player::at(&world, address, (principal, &name), speaks, (servers, 0)).await;
        let mut back = HashMap::new();
        for _ in 0..20 {
            if !world.is_over() {
                player.turn(&mut dice, &mut back).await;
            }
        }
        player.leaving.store(true, Ordering::SeqCst);
        let ended = player.client.http("DELETE", "/mcp").of_session().send().await;
        if ended.status() >= 300 {
            player.fault("its session did not end", &json!(ended.status()));
        }
        player.leave();
    }
}
