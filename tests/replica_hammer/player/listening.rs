//! Messages to a client outside of its calls.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Era, Player};
use crate::support::upstream::news::{RESOURCES, TOOLS, UPDATED};
use crate::support::{Client, Reply};

impl Player {
    /// Listens, again whenever the stream ends.
    pub(super) async fn listen(self: Arc<Self>) {
        let (mut last, mut session) = (None, self.client());
        loop {
            let client = self.client();
            if !Arc::ptr_eq(&client, &session) {
                (last, session) = (None, Arc::clone(&client));
            }
            if let Some(mut stream) = self.open_stream(&client, last.as_deref()).await {
                self.run.note("an open stream");
                while let Ok(Some(message)) = stream.try_message().await {
                    self.hear(&message);
                }
                last = stream.ids.last().cloned().or(last);
            }
            sleep(REOPEN_PAUSE).await;
        }
    }

    async fn open_stream(&self, client: &Client, last: Option<&str>) -> Option<Reply> {
        let ask = match (self.era, last) {
            (Era::Legacy, None) => client.get_stream(),
            (Era::Legacy, Some(last)) => client.get_stream().header("last-event-id", last),
            (Era::Modern, _) => {
                let filter = json!({ "resourceSubscriptions": self.own_resources(),
                    "toolsListChanged": true, "resourcesListChanged": true });
                client.ask("subscriptions/listen", json!({ "notifications": filter }))
            }
        };
        let reply = ask.try_send().await.ok()?;
        if reply.status() != 200 || !reply.is_stream() {
            self.run.note(&format!("a stream refused: {}", reply.status()));
            return None;
        }
        Some(reply)
    }

    /// Records a message.
    fn hear(&self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            UPDATED => {
                let uri = params["uri"].as_str().unwrap_or_default();
                let mark = uri.rsplit_once("one:").map_or(uri, |(_, client)| client);
                self.receive(mark);
                if self.is_own(mark) {
                    self.updates.send_modify(|count| *count += 1);
                }
            }
            TOOLS | RESOURCES | "notifications/prompts/list_changed" => self.receive(&self.name),
            "notifications/message" => {
                self.receive(params["data"]["mark"].as_str().unwrap_or_default());
            }
            "notifications/subscriptions/acknowledged" | "notifications/cancelled" => {}
            _ => self.receive(&message.to_string()),
        }
    }
}

/// Time before a stream is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);
