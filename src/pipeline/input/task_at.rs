//! One task at its server, and the requests about it on a client's behalf.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::call::{
    Answer, Call, Context, Event, Failure, InternalFault, NativeName, Params, Reply, ServerFault,
    ServerName, TaskFault,
};
use crate::config::ServerConfig;
use crate::mcp::Method;
use crate::policy::{CallTarget, Confirmation, Permitted};
use crate::snapshot::{Snapshot, SnapshotServer};
use crate::upstream::ServerAccess;

use super::refusal::refusal_response;

/// One task at its server.
#[derive(Clone)]
pub(crate) struct TaskAt {
    snapshot: Arc<Snapshot>,
    pub(crate) server: ServerName,
    /// The server's own id.
    pub(crate) native: String,
    /// Context of the client that the requests are sent for.
    context: Context,
    /// Access to the server, held while the result is awaited: the client's
    /// session may be over by the time that the task is cancelled.
    reach: Option<Arc<ServerAccess>>,
}

impl TaskAt {
    pub(crate) fn new(
        snapshot: &Arc<Snapshot>,
        server: &ServerName,
        native: String,
        context: &Context,
    ) -> Self {
        // The client's progress token does not belong to these requests.
        let context = Context { progress_token: None, ..context.clone() };
        let (snapshot, server) = (Arc::clone(snapshot), server.clone());
        Self { snapshot, server, native, context, reach: None }
    }

    /// Returns the location of a task that this call is about to create.
    pub(crate) async fn for_new_task(
        snapshot: &Arc<Snapshot>,
        permitted: &Permitted<Call>,
    ) -> Result<Self, Failure> {
        let context = &permitted.get().context;
        let mut at = Self::new(snapshot, &permitted.target().server, String::new(), context);
        at.reach = Some(Arc::new(at.member()?.server.reach(permitted.get()).await?));
        Ok(at)
    }

    /// Sends the call that creates the task.
    pub(crate) async fn create_task(&self, permitted: Permitted<Call>) -> Result<Reply, Failure> {
        self.call(permitted, &self.member()?.config).await
    }

    async fn call(
        &self,
        permitted: Permitted<Call>,
        config: &ServerConfig,
    ) -> Result<Reply, Failure> {
        match &self.reach {
            Some(reach) => reach.call(permitted, config).await,
            None => self.member()?.server.call(permitted, config).await,
        }
    }

    fn member(&self) -> Result<&SnapshotServer, Failure> {
        let gone = || InternalFault::ServerMissing { server: self.server.clone() };
        Ok(self.snapshot.server(&self.server).ok_or_else(gone)?)
    }

    /// Returns the time limit of the server's calls.
    pub(crate) fn patience(&self) -> Result<Duration, Failure> {
        Ok(self.member()?.config.max_timeout)
    }

    /// Sends a request about the task, with members besides its id.
    async fn send_request(
        &self,
        method: Method,
        more: Map<String, Value>,
        lasting: Option<Duration>,
    ) -> Result<Reply, Failure> {
        let mut params = json!({ "taskId": self.native });
        params.as_object_mut().into_iter().for_each(|params| params.extend(more.clone()));
        let params =
            Params::parse(Some(params.to_string().into())).map_err(InternalFault::Params)?;
        let call = Box::new(Call { method, params, context: self.context.clone(), input: None });
        let target = CallTarget {
            server: self.server.clone(),
            native: Some(NativeName::new(&self.native)),
            tool: None,
            requested: None,
            confirmation: Confirmation::default(),
            edits: Box::default(),
        };
        let permitted = self.snapshot.policy.readmit(call, target);
        let member = self.member()?;
        match lasting {
            None => self.call(permitted, &member.config).await,
            Some(lasting) => {
                let mut config = (*member.config).clone();
                config.timeout = lasting;
                config.max_timeout = lasting;
                self.call(permitted, &config).await
            }
        }
    }

    /// Requests the result of the task, which the server sends when the task
    /// has ended (Legacy).
    pub(crate) async fn request_outcome(&self) -> Result<Reply, Failure> {
        self.send_request(Method::TasksResult, Map::new(), Some(self.patience()?)).await
    }

    /// Sends a request about the task and awaits the answer.
    pub(crate) async fn request_answer(&self, method: Method) -> Result<Answer, Failure> {
        self.ask_with(method, Map::new()).await
    }

    /// Like [`Self::request_answer`], with additional params.
    pub(crate) async fn ask_with(
        &self,
        method: Method,
        more: Map<String, Value>,
    ) -> Result<Answer, Failure> {
        await_answer(self.send_request(method, more, None).await?).await
    }

    /// Cancels the task in the background, when its client is gone.
    pub(crate) fn cancel_task(self) {
        tokio::spawn(async move {
            let said = timeout(TASK_CANCEL_TIMEOUT, self.request_answer(Method::TasksCancel)).await;
            tracing::debug!(server = %self.server, ?said, "a task is cancelled");
        });
    }

    pub(crate) fn bad_answer(&self, fault: ServerFault) -> Failure {
        Failure::bad_answer(self.server.clone(), fault)
    }

    pub(crate) fn bad_task(&self, fault: TaskFault) -> Failure {
        self.bad_answer(ServerFault::Task(fault))
    }
}

/// Awaits the answer of a reply. Input requests are refused, since no client could answer them.
pub(crate) async fn await_answer(mut reply: Reply) -> Result<Answer, Failure> {
    loop {
        match reply.next().await {
            Some(Event::Answer(answer)) => return answer,
            Some(Event::Passing(passing)) => return passing.whole().await.map(Answer::Result),
            Some(Event::Asks(id, question)) => {
                let text = format!("{question} is not supported in a request about a task");
                reply.answer_question(id, refusal_response(&text));
            }
            Some(Event::Notice(_) | Event::TookBack(_) | Event::Pause(_)) => {}
            None => return Err(Failure::Cancelled),
        }
    }
}

/// Builds a raw object from raw members.
pub(super) fn raw_object<'a>(members: impl IntoIterator<Item = (&'a str, Bytes)>) -> Bytes {
    let members = members.into_iter().map(|(key, value)| {
        format!("{}:{}", crate::jsonrpc::string(key), String::from_utf8_lossy(&value))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(",")).into()
}

/// Time limit for the cancellation of a task.
const TASK_CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
