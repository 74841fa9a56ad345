//! A call from its first request to its end, over all rounds and resumed streams.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::outcome::{end_of, refusal};
use super::{Era, PlannedCall, Player};
use crate::history::CallEnd;
use crate::support::client::Ask;
use crate::support::upstream::marked::{answer_to, mark_of};
use crate::support::{Client, Reply};

/// A call in progress.
pub struct Exchange<'a> {
    pub player: &'a Player,
    pub client: &'a Client,
    pub call: &'a PlannedCall,
}

/// The end of one response.
enum ResponseEnd {
    /// A message with the id of the request.
    Answer(Value),
    Call(CallEnd),
}

/// The end of a stream.
enum StreamEnd {
    Answer(Value),
    /// A regular end.
    Closed,
    Broken,
}

impl Exchange<'_> {
    /// Makes the call, and answers its questions.
    pub async fn complete(&self) -> CallEnd {
        let mut ask = self.ask();
        loop {
            let answer = match self.send(ask).await {
                ResponseEnd::Answer(answer) => answer,
                ResponseEnd::Call(end) => return end,
            };
            let result = &answer["result"];
            if result["resultType"] != "input_required" {
                return self.read_answer(&answer);
            }
            let mut responses = json!({});
            for (key, question) in result["inputRequests"].as_object().unwrap() {
                let mark = mark_of(question).unwrap_or_default();
                self.player.receive(mark);
                responses[key] = answer_to(question, mark);
            }
            ask = self.ask().param("inputResponses", responses);
            if let Some(state) = result.get("requestState") {
                ask = ask.param("requestState", state.clone());
            }
        }
    }

    fn ask(&self) -> Ask<'_> {
        let PlannedCall { tool, arguments, token, .. } = self.call;
        let ask = self.client.ask_call(tool, arguments.clone()).token(json!(token));
        match self.player.era {
            Era::Legacy => ask,
            Era::Modern => ask.meta("io.modelcontextprotocol/logLevel", json!("info")),
        }
    }

    /// Records the marks of an answer.
    fn read_answer(&self, answer: &Value) -> CallEnd {
        let end = end_of(answer);
        if end == CallEnd::Answer {
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
            match serde_json::from_str::<Value>(text) {
                Ok(Value::Object(answers)) => answers.values().for_each(|answer| {
                    let content = &answer["content"];
                    let mark = content["mark"].as_str().or(content["text"].as_str());
                    self.receive_own(mark.unwrap_or(text));
                }),
                _ => self.receive_own(text),
            }
        }
        end
    }

    /// Records a message that has to carry the mark of this very call.
    fn receive_own(&self, mark: &str) {
        let own = mark == self.call.mark;
        self.player.receive(if own { mark } else { "of another call" });
        if !own {
            self.player.run.note(&format!("{} has {mark}", self.call.mark));
        }
    }

    async fn send(&self, ask: Ask<'_>) -> ResponseEnd {
        let id = ask.message()["id"].clone();
        self.player.run.begin_round(self.call.place);
        let Ok(mut reply) = ask.try_send().await else {
            return ResponseEnd::Call(CallEnd::Broken);
        };
        if !reply.is_stream() {
            return read_whole(reply).await;
        }
        match self.read_stream(&mut reply, &id).await {
            StreamEnd::Answer(answer) => ResponseEnd::Answer(answer),
            _ if self.player.era == Era::Legacy && !reply.ids.is_empty() => {
                self.resume(reply.last_id().to_owned(), &id).await
            }
            StreamEnd::Closed => ResponseEnd::Call(CallEnd::Silent),
            StreamEnd::Broken => ResponseEnd::Call(CallEnd::Broken),
        }
    }

    /// Reads a stream up to the answer.
    async fn read_stream(&self, reply: &mut Reply, id: &Value) -> StreamEnd {
        loop {
            let message = match reply.try_message().await {
                Ok(Some(message)) => message,
                Ok(None) => return StreamEnd::Closed,
                Err(_) => return StreamEnd::Broken,
            };
            if message.get("method").is_some() {
                self.take(&message).await;
            } else if message["id"] == *id {
                return StreamEnd::Answer(message);
            } else {
                self.receive_own(&format!("an answer to {}", message["id"]));
            }
        }
    }

    /// Resumes a Legacy stream until it has the answer, or an error in place of it.
    async fn resume(&self, mut last: String, id: &Value) -> ResponseEnd {
        loop {
            self.player.run.note("a resumed stream");
            let ask = self.client.get_stream().header("last-event-id", &last);
            let Ok(mut reply) = ask.try_send().await else {
                sleep(RESUME_PAUSE).await;
                continue;
            };
            if reply.status() == 200 && reply.is_stream() {
                if let StreamEnd::Answer(answer) = self.read_stream(&mut reply, id).await {
                    return ResponseEnd::Answer(answer);
                }
                last = reply.ids.last().cloned().unwrap_or(last);
            } else if let ResponseEnd::Call(end @ CallEnd::Error(_)) = read_whole(reply).await
                && !super::outcome::is_of_balancer(&end)
            {
                return ResponseEnd::Call(end);
            }
            sleep(RESUME_PAUSE).await;
        }
    }

    /// Records a message that precedes the answer, and answers a question.
    async fn take(&self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap() {
            "notifications/progress" => {
                let token = params["progressToken"] == self.call.token;
                let mark = params["message"].as_str().unwrap_or_default();
                self.receive_own(if token { mark } else { "another token" });
            }
            "notifications/message" => {
                self.player.receive(params["data"]["mark"].as_str().unwrap_or_default());
            }
            "notifications/cancelled" => {}
            _ => {
                let mark = mark_of(message).unwrap_or_default();
                self.receive_own(mark);
                self.respond(message, mark).await;
            }
        }
    }

    /// Answers a Legacy server's question, again while no replica could take the answer: an owner that
    /// cannot be reached is replaced meanwhile.
    async fn respond(&self, question: &Value, mark: &str) {
        let result = answer_to(question, mark);
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        let accepted = timeout(ANSWER_TIME, async {
            loop {
                let ask = self.client.http("POST", "/mcp").of_session().body(answer.to_string());
                let sent = ask.header("content-type", "application/json").try_send().await;
                match sent.map(|reply| reply.status()) {
                    Ok(202) => return None,
                    // With 502 it may have arrived: a second answer changes nothing.
                    Ok(502 | 503) => {}
                    refused => return Some(refused.ok()),
                }
                sleep(RESUME_PAUSE).await;
            }
        });
        match accepted.await {
            Ok(None) => {}
            Ok(Some(status)) => self.player.run.note(&format!("a response refused: {status:?}")),
            Err(_) => self.player.run.note("a response refused for too long"),
        }
    }
}

/// Reads a response without a stream.
async fn read_whole(reply: Reply) -> ResponseEnd {
    let Ok(said) = reply.try_said().await else { return ResponseEnd::Call(CallEnd::Broken) };
    match said.messages.last() {
        Some(answer) if said.status == 200 => ResponseEnd::Answer(answer.clone()),
        _ => ResponseEnd::Call(refusal(&said)),
    }
}

/// Time between two attempts to resume a stream or to answer.
const RESUME_PAUSE: Duration = Duration::from_millis(300);
/// Time limit of the answer to a question: longer than the lease of a lost replica.
const ANSWER_TIME: Duration = Duration::from_secs(20);
