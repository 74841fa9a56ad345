//! Messages to a player outside of its calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::players::Player;
use super::servers::TOLD;
use super::support::Reply;
use super::support::upstream::news::{RESOURCES, TOOLS, UPDATED};
use super::world::{Counted, whose};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Counts of the received messages, by their URI.
pub struct Heard {
    counts: Mutex<HashMap<String, u64>>,
    news: watch::Sender<()>,
}

impl Default for Heard {
    fn default() -> Self {
        Self { counts: Mutex::default(), news: watch::Sender::new(()) }
    }
}

impl Heard {
    pub fn count(&self, uri: &str) -> u64 {
        self.counts.lock().unwrap().get(uri).copied().unwrap_or(0)
    }

    fn add(&self, uri: &str) {
        *self.counts.lock().unwrap().entry(uri.to_owned()).or_default() += 1;
        self.news.send_replace(());
    }

    /// Waits until the count of a URI exceeds `before`. Returns false after a time limit, because
    /// its server must have been lost.
    pub async fn more_than(&self, uri: &str, before: u64) -> bool {
        let mut news = self.news.subscribe();
        let heard = async {
            while self.count(uri) <= before {
                news.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(2), heard).await.is_ok()
    }
}

impl Player {
    /// Returns the URI that only this player is subscribed to.
    pub fn own_uri(&self) -> String {
        format!("one:{}", self.name.replace('/', "-"))
    }

    /// Returns the URI that all clients of its principal are subscribed to.
    pub fn common_uri(&self) -> String {
        format!("all:{}", self.principal)
    }

    /// Returns all URIs that it is subscribed to, in its public form.
    fn uris(&self) -> Vec<String> {
        let uris = [self.own_uri(), self.common_uri()];
        let servers = self.world.servers.iter().filter(|server| self.uses(server));
        servers.flat_map(|server| uris.each_ref().map(|uri| public(server.name, uri))).collect()
    }

    /// Subscribes, and listens from now on.
    pub async fn listens(self: &Arc<Self>) {
        let uris = self.uris();
        let (stream, id) = if self.client.is_modern() {
            let mut filter = json!({ "resourceSubscriptions": uris });
            for list in ["toolsListChanged", "resourcesListChanged"] {
                filter[list] = json!(true);
            }
            let filter = json!({ "notifications": filter });
            let ask = self.client.ask("subscriptions/listen", filter.clone());
            let id = ask.message()["id"].clone();
            let mut stream = ask.send().await;
            let first = stream.message().await.expect("an acknowledgement");
            assert_eq!(first["params"]["notifications"], filter["notifications"], "{first}");
            (stream, id)
        } else {
            for uri in &uris {
                let subscribed = self.client.request("resources/subscribe", json!({ "uri": uri }));
                assert_eq!(subscribed.await.result(), &json!({}));
            }
            (self.client.listen().await, Value::Null)
        };
        let task = tokio::spawn(Arc::clone(self).hears_all(stream, uris, id));
        *self.listening.lock().unwrap() = Some(task.abort_handle());
    }

    async fn hears_all(self: Arc<Self>, mut stream: Reply, uris: Vec<String>, id: Value) {
        while let Some(message) = stream.message().await {
            if message["params"]["_meta"].get(SUBSCRIPTION).cloned().unwrap_or_default() != id {
                self.fault("a message of another subscription", &message);
            }
            if let Some(fault) = self.hears(&message, &uris).await {
                self.fault(fault, &message);
            }
        }
        if !self.is_leaving() {
            self.fault("the end of its stream", &Value::Null);
        }
    }

    /// Returns the fault of a received message.
    async fn hears(&self, message: &Value, uris: &[String]) -> Option<&'static str> {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            UPDATED => {
                let uri = params["uri"].as_str().unwrap_or_default();
                if !uris.iter().any(|own| own == uri) {
                    return Some("an update that it did not ask for");
                }
                self.add(Counted::Update);
                self.heard.add(uri);
            }
            TOOLS | RESOURCES => self.add(Counted::Update),
            TOLD => {
                if params["mark"].as_str().map(whose) != Some(self.whose()) {
                    return Some("what another was told");
                }
                self.add(Counted::Told);
                self.heard.add(TOLD);
            }
            "notifications/message" => {
                if params["data"]["mark"].as_str().map(whose) != Some(self.whose()) {
                    return Some("a line of another's");
                }
                self.add(Counted::Line);
            }
            _ => match self.answers(message, whose(&self.name)).await {
                Ok(()) => {}
                Err(fault) => return Some(fault),
            },
        }
        None
    }
}

pub fn public(server: &str, uri: &str) -> String {
    format!("mcp://{server}/{uri}")
}
