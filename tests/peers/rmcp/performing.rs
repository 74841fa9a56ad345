//! Steps of a tool or a prompt in `everything.json`: log lines, progress, questions to the client
//! in rounds, and an answer filled from the replies.

use std::time::Duration;

use futures_util::future::try_join_all;
use rmcp::model::{
    ErrorCode, InputRequest, InputRequests, InputRequiredResult, InputResponses, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Map, Value, json};

use super::offered::fill;
use super::server::Everything;

/// The parts of a request that the steps use.
pub struct Asked {
    pub arguments: Map<String, Value>,
    pub responses: Option<InputResponses>,
    pub state: Option<String>,
}

pub enum Performed {
    /// Values for the templates.
    Scope(Value),
    Required(InputRequiredResult),
}

const INFO: LoggingLevel = LoggingLevel::Info;
const PAUSE: Duration = Duration::from_millis(50);

impl Everything {
    pub async fn perform(
        &self,
        asked: Asked,
        does: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<Performed, ErrorData> {
        let declared = json!(context.client_capabilities());
        for (needed, how) in does["needs"].as_object().into_iter().flatten() {
            if declared[needed].is_null() {
                return Err(ErrorData::new(
                    ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY,
                    format!("this needs a client with {needed}"),
                    Some(json!({ "requiredCapabilities": { needed: how } })),
                ));
            }
        }
        for line in does["log"].as_array().into_iter().flatten() {
            self.log(line, context).await;
            tokio::time::sleep(PAUSE).await;
        }
        for made in does["progress"].as_array().into_iter().flatten() {
            progress(made.as_f64().unwrap(), 100.0, context).await;
            tokio::time::sleep(PAUSE).await;
        }
        let mut scope = Value::Object(asked.arguments.clone());
        if does["ask"].is_null() {
            return Ok(Performed::Scope(scope));
        }
        let mut rounds = fill(&does["ask"], &scope);
        if does["declared_only"] == true {
            for questions in rounds.as_array_mut().unwrap() {
                let questions = questions.as_object_mut().unwrap();
                questions.retain(|_, question| !declared[capability(question)].is_null());
            }
        }
        let answers = if super::server::is_modern(context) {
            match self.ask_by_result(asked, does, &rounds)? {
                Ok(answers) => answers,
                Err(required) => return Ok(Performed::Required(required)),
            }
        } else {
            ask_now(&rounds, context).await?
        };
        scope.as_object_mut().unwrap().extend(answers);
        Ok(Performed::Scope(scope))
    }

    async fn log(&self, line: &Value, context: &RequestContext<RoleServer>) {
        let least = if super::server::is_modern(context) {
            context.meta.log_level()
        } else {
            Some(self.session.level())
        };
        if least.is_some_and(|least| json_rank(&INFO) >= json_rank(&least)) {
            let told = LoggingMessageNotificationParam::new(INFO, line.clone())
                .with_logger(self.shared.name());
            let _ = context.peer.notify_logging_message(told).await;
        }
    }

    /// Returns the answers in the request, or the result that asks for the missing ones.
    fn ask_by_result(
        &self,
        asked: Asked,
        does: &Value,
        rounds: &Value,
    ) -> Result<Result<Map<String, Value>, InputRequiredResult>, ErrorData> {
        let codec = &self.shared.codec;
        let keeps_state = does["state"] == true;
        let mut known: Map<String, Value> = match &asked.state {
            None => Map::new(),
            Some(sealed) => codec.open_json(sealed).map_err(|_| {
                ErrorData::invalid_params("the request state is not as it was given", None)
            })?,
        };
        if asked.state.is_some() || !keeps_state {
            let given = asked.responses.into_iter().flatten();
            known.extend(given.filter(|(_, answer)| answer.is_object()));
        }
        for questions in rounds.as_array().unwrap() {
            let mut missing = InputRequests::new();
            for (key, question) in questions.as_object().unwrap() {
                if !known.contains_key(key) {
                    let mut question = question.clone();
                    // The Modern era does not use it.
                    question["params"].as_object_mut().unwrap().shift_remove("elicitationId");
                    missing.insert(key.clone(), super::offered::typed(question)?);
                }
            }
            if !missing.is_empty() {
                let state = keeps_state.then(|| codec.seal_json(&known).unwrap());
                return Ok(Err(InputRequiredResult::new(Some(missing), state)));
            }
        }
        Ok(Ok(known))
    }
}

/// Asks a Legacy client, and returns its answers.
async fn ask_now(
    rounds: &Value,
    context: &RequestContext<RoleServer>,
) -> Result<Map<String, Value>, ErrorData> {
    let mut answers = Map::new();
    for questions in rounds.as_array().unwrap() {
        let asking = questions.as_object().unwrap().iter().map(|(key, question)| async {
            let answer = answer(super::offered::typed(question.clone())?, context).await?;
            Ok::<_, ErrorData>((key.clone(), answer))
        });
        answers.extend(try_join_all(asking).await?);
    }
    Ok(answers)
}

async fn answer(
    question: InputRequest,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    let peer = &context.peer;
    let answer = match question {
        InputRequest::Elicitation(request) => {
            peer.create_elicitation(request.params).await.map(|answer| json!(answer))
        }
        InputRequest::CreateMessage(request) => {
            peer.create_message(request.params).await.map(|answer| json!(answer))
        }
        InputRequest::ListRoots(_) => peer.list_roots().await.map(|answer| json!(answer)),
        _ => return Err(ErrorData::internal_error("no such question", None)),
    };
    answer.map_err(|fault| ErrorData::internal_error(fault.to_string(), None))
}

pub async fn progress(made: f64, total: f64, context: &RequestContext<RoleServer>) {
    if let Some(token) = context.meta.get_progress_token() {
        let told = ProgressNotificationParam::new(token, made)
            .with_total(total)
            .with_message(format!("{made} of {total}"));
        let _ = context.peer.notify_progress(told).await;
    }
}

fn capability(question: &Value) -> &'static str {
    match question["method"].as_str() {
        Some("elicitation/create") => "elicitation",
        Some("sampling/createMessage") => "sampling",
        _ => "roots",
    }
}

/// Returns the severity of a level as a rank.
fn json_rank(level: &LoggingLevel) -> usize {
    const LEVELS: [&str; 8] =
        ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
    LEVELS.iter().position(|name| json!(level) == *name).unwrap()
}
