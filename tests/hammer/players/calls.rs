//! A call of a client: made, answered, and looked at.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{Back, Call, Player, is_unexplained};
use crate::servers::{Server, Ties};
use crate::support::client::Ask;
use crate::support::upstream::marked::{answer_to, mark_of};
use crate::support::{Reply, Said};
use crate::world::{Counted, is_of_one_principal, whose};

impl Player {
    pub(super) fn new_call<'a>(
        &self,
        server: &'a Server,
        tool: &'static str,
        arguments: Value,
    ) -> Call<'a> {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}#{token}", self.name);
        let mut arguments = arguments;
        arguments["mark"] = json!(mark);
        let progress = Vec::new();
        Call { server, tool, arguments, mark, token, progress, lines: 0 }
    }

    pub(super) fn ask<'a>(&'a self, call: &Call<'_>) -> Ask<'a> {
        let name = format!("{}__{}", call.server.name, call.tool);
        let ask = self.client.ask_call(&name, call.arguments.clone()).token(json!(call.token));
        if self.client.is_modern() {
            return ask.meta("io.modelcontextprotocol/logLevel", json!("info"));
        }
        ask
    }

    /// Makes a call, answers its questions, and checks all messages about it. Returns its text,
    /// unless its server was lost.
    pub(super) async fn made(&self, call: &mut Call<'_>, back: &mut Back) -> Option<String> {
        let behind = call.server.times_left_behind();
        let mut ask = self.ask(call);
        let answer = loop {
            let id = ask.message()["id"].clone();
            let Some(answer) = self.reads(ask.send().await, call, &id).await else {
                break Value::Null;
            };
            if answer["result"]["resultType"] != "input_required" {
                break answer;
            }
            let (answers, state) = self.answers_all(call, &answer["result"]);
            ask = self.ask(call).param("inputResponses", answers);
            if let Some(state) = state {
                ask = ask.param("requestState", state);
            }
        };
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str();
        if result["isError"] != true
            && let Some(text) = text
        {
            back.insert(call.server.name, behind);
            *self.answered.lock().unwrap().entry(call.server.name).or_default() += 1;
            self.is_whole(call, text, &answer);
            return Some(text.to_owned());
        }
        self.add(Counted::Failure);
        self.is_doubtful(call);
        let told = format!("the server {} ", call.server.name);
        let clear = answer.to_string().contains(&told) || answer["error"]["code"] == 50_300;
        if !clear || is_unexplained(call.server, back) {
            self.fault(&format!("{} {} failed", call.mark, call.tool), &answer);
        }
        None
    }

    /// Checks that all messages arrived that have to precede an answer.
    pub(super) fn is_whole(&self, call: &Call<'_>, text: &str, answer: &Value) {
        let times = call.arguments["times"].as_u64();
        let asks = call.arguments["asks"].is_string();
        let times = if asks { Some(2) } else { times }.unwrap_or(0);
        let some = asks && matches!(call.progress[..], [] | [1] | [2]);
        if some {
            // Between the rounds of a call notices may be lost.
            let (mark, server) = (&call.mark, call.server.name);
            println!("{mark} of {server} has progress {:?}", call.progress);
            self.add(Counted::Missing);
        } else if !call.progress.iter().copied().eq(1..=times) {
            self.fault(&format!("{} has progress {:?}", call.mark, call.progress), answer);
        }
        if call.server.ties == Ties::Stream && call.lines != times && !some {
            self.fault(&format!("{} has {} of {times} lines", call.mark, call.lines), answer);
        }
        if call.server.ties == Ties::Child {
            self.world.lines(self.whose(), |lines| lines.written += times);
        }
        if !asks && text != call.mark {
            self.fault(&format!("{} has another's answer", call.mark), answer);
        }
    }

    /// Reads the messages about one request; returns its answer, if there is one.
    pub(super) async fn reads(
        &self,
        mut reply: Reply,
        call: &mut Call<'_>,
        id: &Value,
    ) -> Option<Value> {
        let answer = if reply.is_stream() {
            loop {
                let message = reply.message().await?;
                if message.get("method").is_none() {
                    break message;
                }
                self.takes(call, &message).await;
            }
        } else {
            let said: Said = reply.said().await;
            said.messages.last()?.clone()
        };
        self.add(Counted::Answer);
        if answer["id"] != *id {
            self.fault(&format!("{} has the answer to another request", call.mark), &answer);
        }
        Some(answer)
    }

    /// Checks a message that precedes an answer.
    pub(super) async fn takes(&self, call: &mut Call<'_>, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap() {
            "notifications/progress" => {
                self.add(Counted::Progress);
                if params["message"] != call.mark || params["progressToken"] != call.token {
                    self.fault(&format!("{} has the progress of another", call.mark), message);
                }
                call.progress.extend(params["progress"].as_u64());
            }
            "notifications/message" => {
                self.add(Counted::Line);
                call.lines += 1;
                match call.server.ties {
                    Ties::Stream => {}
                    Ties::Child => self.world.lines(self.whose(), |lines| lines.heard += 1),
                    Ties::Nothing => self.add(Counted::PipeLine),
                }
                let mark = params["data"]["mark"].as_str();
                if call.server.ties == Ties::Nothing && self.has_strayed(call, mark) {
                    self.add(Counted::Strayed);
                } else if !self.is_for(call, mark, false) {
                    let server = call.server.name;
                    self.fault(
                        &format!("{} of {server} has the line of another", call.mark),
                        message,
                    );
                }
            }
            _ => {
                let own = self.own(call, may_be_anothers(call));
                if let Err(fault) = self.answers(message, own).await {
                    self.fault(&format!("{}: {fault}", call.mark), message);
                }
            }
        }
    }

    /// Returns the beginning of the marks that may arrive with a call.
    pub(super) fn own<'a>(&self, call: &'a Call<'_>, aside: bool) -> &'a str {
        match call.server.ties {
            Ties::Stream if !aside => &call.mark,
            _ => whose(&call.mark),
        }
    }

    pub(super) fn is_for(&self, call: &Call<'_>, mark: Option<&str>, aside: bool) -> bool {
        let own = self.own(call, aside);
        mark.is_some_and(|mark| mark == own || whose(mark) == own)
    }

    /// Returns true if a mark belongs to another client of the same principal.
    fn has_strayed(&self, call: &Call<'_>, mark: Option<&str>) -> bool {
        let is_of_principal = mark.is_some_and(|mark| is_of_one_principal(mark, &call.mark));
        is_of_principal && !self.is_for(call, mark, false)
    }

    /// Answers a Legacy server's question, with its own mark.
    pub async fn answers(&self, message: &Value, own: &str) -> Result<(), &'static str> {
        let Some(id) = message.get("id") else {
            // A lost server sends no more questions.
            let id = message["params"]["requestId"].to_string();
            let taken_back = message["method"] == "notifications/cancelled"
                && self.asked.lock().unwrap().remove(&id);
            return taken_back.then_some(()).ok_or("something that nobody asked for");
        };
        let mark = mark_of(message).ok_or("a question without a mark")?;
        if !self.asked.lock().unwrap().insert(id.to_string()) {
            return Err("two questions by one id");
        }
        self.add(Counted::Question);
        self.client.respond(id, answer_to(message, mark)).await;
        if mark == own || whose(mark) == own { Ok(()) } else { Err("a question for another") }
    }

    /// Returns the answers to all questions of a result, and its state.
    pub(super) fn answers_all(&self, call: &Call<'_>, result: &Value) -> (Value, Option<Value>) {
        let mut answers = json!({});
        for (key, question) in result["inputRequests"].as_object().unwrap() {
            self.add(Counted::Question);
            let mark = mark_of(question);
            if !self.is_for(call, mark, may_be_anothers(call)) {
                let fault =
                    format!("{} of {} has the question of another", call.mark, call.server.name);
                self.fault(&fault, question);
            }
            answers[key] = answer_to(question, mark.unwrap_or_default());
        }
        (answers, result.get("requestState").cloned())
    }

    /// Makes a call that asks. The server returns the client's answer, which has to be the answer
    /// to this very call.
    pub(super) async fn asks(
        &self,
        server: &Server,
        tool: &'static str,
        asks: &str,
        back: &mut Back,
    ) {
        let mut call = self.new_call(server, tool, json!({ "asks": asks }));
        let Some(text) = self.made(&mut call, back).await else { return };
        let Ok(Value::Object(said)) = serde_json::from_str(&text) else {
            return self.fault(&format!("{} was not answered", call.mark), &json!(text));
        };
        // On a stream that all share, the recipient of a question is not always certain.
        let may_be_refused = match server.ties {
            Ties::Stream => tool == "ask_aside",
            Ties::Child => false,
            Ties::Nothing => server.legacy,
        };
        for said in said.values() {
            let mark = said["content"]["mark"].as_str().or(said["content"]["text"].as_str());
            match mark {
                Some(mark) if mark == call.mark && server.ties == Ties::Nothing => {
                    self.add(Counted::PipeAnswer);
                }
                Some(mark) if mark == call.mark => {}
                None if may_be_refused && said["code"].is_i64() => self.add(Counted::Refused),
                _ => self.fault(
                    &format!("{} of {} has the answer of another", call.mark, server.name),
                    said,
                ),
            }
        }
    }
}

/// Returns true if a question may belong to another call of the same client: one that is asked on
/// the stream of a session, which may still be read after its own call was lost.
fn may_be_anothers(call: &Call<'_>) -> bool {
    call.tool == "ask_aside" || call.server.is_being_lost()
}
