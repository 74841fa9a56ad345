//! The clients: each records its calls, and the mark of every message that it receives.

mod exchange;
mod listening;
mod outcome;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::history::{CallEnd, client_of};
use crate::run::Run;
use crate::servers::NAMES;
use crate::support::{Client, poll_for};
use exchange::Exchange;

/// A client of one era.
pub struct Player {
    run: Arc<Run>,
    address: SocketAddr,
    /// Its name, which is the beginning of its marks.
    name: String,
    key: String,
    era: Era,
    /// The client with its current session.
    client: watch::Sender<Arc<Client>>,
    next: AtomicU64,
    seed: u64,
    /// The number of received updates of its own resource.
    updates: watch::Sender<u64>,
    listening: Mutex<Option<AbortHandle>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

/// A call to make.
struct PlannedCall {
    tool: String,
    arguments: Value,
    mark: String,
    token: u64,
    /// Its place in the history.
    place: usize,
}

impl Player {
    /// Opens a session, if the era has one, and subscribes.
    pub async fn enter(
        run: &Arc<Run>,
        address: SocketAddr,
        principal: &str,
        era: Era,
    ) -> Arc<Self> {
        let suffix = if era == Era::Legacy { "L" } else { "M" };
        let name = format!("{principal}-{suffix}");
        let key = key(principal);
        let client = open(address, &key, era).await.expect("a session before the first fault");
        let player = Arc::new(Self {
            run: Arc::clone(run),
            address,
            seed: name.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte)),
            name,
            key,
            era,
            client: watch::Sender::new(Arc::new(client)),
            next: AtomicU64::new(1),
            updates: watch::Sender::new(0),
            listening: Mutex::default(),
        });
        player.prepare_session().await;
        let task = tokio::spawn(Arc::clone(&player).listen());
        *player.listening.lock().unwrap() = Some(task.abort_handle());
        player
    }

    /// Returns the client with its current session.
    fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client.borrow())
    }

    /// Makes calls until the run is over.
    pub async fn play(self: Arc<Self>) {
        let mut dice = Rng::with_seed(self.seed);
        while !self.run.is_over() {
            let server = NAMES[dice.usize(..NAMES.len())];
            let (tool, arguments) = match dice.u32(..100) {
                0..55 => ("say", json!({ "times": dice.u64(2..8) })),
                55..80 => {
                    let kind = ["form", "prompt", "both"][dice.usize(..3)];
                    ("ask", json!({ "asks": kind }))
                }
                80..90 => ("linger", json!({ "times": dice.u64(2..20) })),
                _ => ("touch", json!({ "uri": self.own_uri() })),
            };
            if self.make(server, tool, arguments).await != CallEnd::Answer {
                // A client that waits less than it is asked to, but does not spin.
                sleep(Duration::from_millis(300)).await;
            }
        }
    }

    /// Makes a call, and records it.
    async fn make(&self, server: &str, tool: &str, mut arguments: Value) -> CallEnd {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}#{token}", self.name);
        arguments["mark"] = json!(mark);
        let client = self.client();
        let session = (self.era == Era::Legacy).then(|| client.session().to_owned());
        let place = self.run.begin_call(&mark, session);
        let call = PlannedCall { tool: format!("{server}__{tool}"), arguments, mark, token, place };
        let exchange = Exchange { player: self, client: &client, call: &call };
        let end = timeout(CALL_LIMIT, exchange.complete()).await.unwrap_or(CallEnd::Hung);
        self.run.end_call(place, end.clone());
        if self.era == Era::Legacy && outcome::is_lost_session(&end) {
            self.run.note("a lost session");
            self.reopen(&client).await;
        }
        end
    }

    /// Opens another session in place of a lost one.
    async fn reopen(&self, lost: &Arc<Client>) {
        if !Arc::ptr_eq(lost, &self.client()) {
            return;
        }
        let opened = poll_for(async || open(self.address, &self.key, self.era).await).await;
        self.client.send_replace(Arc::new(opened));
        self.prepare_session().await;
    }

    /// Sets the log level of a Legacy session, and subscribes.
    async fn prepare_session(&self) {
        if self.era == Era::Modern {
            return;
        }
        let client = self.client();
        let level = ("logging/setLevel", json!({ "level": "info" }));
        let subscriptions = self
            .own_resources()
            .into_iter()
            .map(|uri| ("resources/subscribe", json!({ "uri": uri })));
        for (method, params) in std::iter::once(level).chain(subscriptions) {
            poll_for(async || {
                let reply = client.ask(method, params.clone()).try_send().await.ok()?;
                let said = reply.try_said().await.ok()?;
                said.messages.last()?.get("result").map(|_| ())
            })
            .await;
        }
    }

    /// Checks that calls to all servers succeed again, and updates arrive. Returns the faults.
    pub async fn recover(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for server in NAMES {
            let answered = async {
                while self.make(server, "ask", json!({ "asks": "both" })).await != CallEnd::Answer {
                    sleep(Duration::from_millis(300)).await;
                }
                let before = *self.updates.borrow();
                let mut updates = self.updates.subscribe();
                loop {
                    self.make(server, "touch", json!({ "uri": self.own_uri() })).await;
                    let heard = updates.wait_for(|count| *count > before);
                    if timeout(Duration::from_secs(2), heard).await.is_ok() {
                        return;
                    }
                }
            };
            if timeout(RECOVERY_LIMIT, answered).await.is_err() {
                faults.push(format!("{} has not recovered at {server}", self.name));
            }
        }
        faults
    }

    /// Stops listening.
    pub fn leave(&self) {
        if let Some(listening) = self.listening.lock().unwrap().take() {
            listening.abort();
        }
    }

    /// Records a message to this client, with its mark.
    fn receive(&self, mark: &str) {
        self.run.deliver(&self.name, mark);
    }

    fn own_uri(&self) -> String {
        format!("one:{}", self.name)
    }

    /// Returns its resource at each server, as clients see it.
    fn own_resources(&self) -> Vec<String> {
        NAMES.iter().map(|server| format!("mcp://{server}/{}", self.own_uri())).collect()
    }

    /// Returns true if a mark is this client's.
    fn is_own(&self, mark: &str) -> bool {
        client_of(mark) == self.name
    }
}

/// Opens a session; a Modern client needs none.
async fn open(address: SocketAddr, key: &str, era: Era) -> Option<Client> {
    let able = json!({ "sampling": {}, "elicitation": { "form": {} } });
    let mut client = match era {
        Era::Modern => Client::modern(address),
        Era::Legacy => Client::sessionless(address, "2025-11-25"),
    };
    client = client.key(key);
    client.capabilities = able;
    client.try_initialized().await
}

/// Returns the key of a principal.
pub fn key(principal: &str) -> String {
    format!("key-of-{principal}")
}

/// Time within which each call has to end.
const CALL_LIMIT: Duration = Duration::from_secs(50);
/// Time within which a client has to be served as usual after the last fault.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
