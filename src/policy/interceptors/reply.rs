//! Interception of a server's messages, from its answer to its notifications, before its client
//! gets them.

use std::sync::Arc;

use tokio::task::JoinError;

use crate::call::{
    Answer, Context, ErrorBody, Failure, InterceptorFault, InternalFault, ResultBody, ResultType,
};
use crate::codec::large_message::work_on;
use crate::config::InterceptedPhase;
use crate::mcp::Method;

use super::answers::QuestionResult;
use super::message::{Intercepted, SeenMessage, Verdict};
use super::service::InterceptorService;
use super::{decide, refusal, settle};

/// The interceptors of all messages that a server sends for one call, or outside of calls.
#[derive(Debug)]
pub struct ReplyInterceptors {
    /// All interceptors of the server and the profile, of any kind of message.
    services: Vec<Arc<InterceptorService>>,
    /// The method of the call; `None` outside of calls.
    method: Option<Method>,
    about: Intercepted,
    context: Context,
}

/// A kind of message, by which interceptors are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// The answer to the call: a result, an error, a question.
    Answer,
    /// The state of a task, which contains its result.
    Task,
    /// Any other notification.
    Notification,
}

/// A message that interceptors may change.
pub(super) trait InterceptedMessage: Sized + Send + 'static {
    /// Returns the approximate size in bytes of the form that interceptors get.
    fn size(&self) -> usize;

    /// Returns the form that interceptors get.
    ///
    /// # Errors
    /// [`InterceptorFault`] if it cannot be shown.
    fn seen(&self) -> Result<SeenMessage, InterceptorFault>;

    /// Returns the message with the payload of a mutation.
    ///
    /// # Errors
    /// [`InterceptorFault`] if the payload does not fit.
    fn changed(&self, payload: Vec<u8>) -> Result<Self, InterceptorFault>;
}

impl ReplyInterceptors {
    /// Returns the interceptors that see or withhold messages; `None` if none do.
    pub(super) fn choose(
        services: Vec<Arc<InterceptorService>>,
        method: Option<&Method>,
        about: impl FnOnce() -> Intercepted,
        context: &Context,
    ) -> Option<Arc<Self>> {
        let sees = |kind| services.iter().any(|it| it.sees_kind(kind, method));
        let is_used = [MessageKind::Answer, MessageKind::Task, MessageKind::Notification]
            .into_iter()
            .any(sees);
        is_used.then(|| {
            let (method, context) = (method.cloned(), context.clone().detach());
            Arc::new(Self { services, method, about: about(), context })
        })
    }

    /// Returns true if any sees the answer to the call.
    pub fn see_answers(&self) -> bool {
        self.services.iter().any(|it| it.sees_kind(MessageKind::Answer, self.method.as_ref()))
    }

    /// Passes an answer through the interceptors, which may replace it. Failures lose the server's
    /// text that they quote.
    ///
    /// # Errors
    /// [`Failure::Intercepted`], [`Failure::InterceptorDown`], and the call's own failure.
    pub async fn intercept(&self, answer: Result<Answer, Failure>) -> Result<Answer, Failure> {
        match answer {
            Ok(Answer::Result(result)) if *result.kind() == ResultType::InputRequired => {
                let asked = self.show(MessageKind::Answer, QuestionResult(result)).await?;
                Ok(Answer::Result(asked.0))
            }
            Ok(Answer::Result(result)) => self.intercept_result(result).await.map(Answer::Result),
            Ok(Answer::Error(error)) => self.intercept_error(error).await.map(Answer::Error),
            Err(failure) if self.must_agree() => Err(failure.without_quotes()),
            Err(failure) => Err(failure),
        }
    }

    /// Passes a result that requests no input through the interceptors.
    ///
    /// # Errors
    /// [`Failure::Intercepted`] and [`Failure::InterceptorDown`].
    pub async fn intercept_result(&self, result: ResultBody) -> Result<ResultBody, Failure> {
        self.show(MessageKind::Answer, result).await
    }

    /// Passes an error through the interceptors.
    ///
    /// # Errors
    /// [`Failure::Intercepted`] and [`Failure::InterceptorDown`].
    pub async fn intercept_error(&self, error: ErrorBody) -> Result<ErrorBody, Failure> {
        self.show(MessageKind::Answer, error).await
    }

    /// Shows a message to the interceptors of its kind, one after the other.
    pub(super) async fn show<M: InterceptedMessage>(
        &self,
        kind: MessageKind,
        mut message: M,
    ) -> Result<M, Failure> {
        for service in self.seers(kind) {
            let (same, seen) = show_to(service, message).await?;
            message = same;
            let Some(seen) = settle(service, seen)? else { continue };
            match decide(service, &self.about, Some(&seen), &self.context).await? {
                Verdict::Valid => {}
                Verdict::Refused { reason } => return Err(refusal(service, reason)),
                Verdict::Changed { payload } => {
                    let size = message.size().max(payload.len());
                    let change = move || (message.changed(payload), message);
                    let (changed, same) = work_on(size, change).await.map_err(fail_lost_work)?;
                    message = settle(service, changed)?.unwrap_or(same);
                }
            }
        }
        Ok(message)
    }

    /// Returns the interceptors that see messages of this kind.
    pub(super) fn seers(&self, kind: MessageKind) -> impl Iterator<Item = &InterceptorService> {
        let sees = move |it: &&Arc<InterceptorService>| it.sees_kind(kind, self.method.as_ref());
        self.services.iter().filter(sees).map(|service| &**service)
    }

    /// Returns true if an interceptor has to approve answers.
    pub fn must_agree(&self) -> bool {
        self.services.iter().any(|it| it.must_agree(self.method.as_ref()))
    }

    /// Returns true if the text of notifications is withheld: an interceptor has to approve
    /// answers, and does not see notifications.
    pub(super) fn withhold_notifications(&self) -> bool {
        let phase = InterceptedPhase::Notification;
        self.services.iter().any(|it| it.must_agree(self.method.as_ref()) && !it.sees_any(phase))
    }
}

/// Returns a message, and the form of it that an interceptor gets.
async fn show_to<M: InterceptedMessage>(
    service: &InterceptorService,
    message: M,
) -> Result<(M, Result<SeenMessage, InterceptorFault>), Failure> {
    let (size, limit) = (message.size(), service.config.max_size);
    if size > limit {
        return Ok((message, Err(InterceptorFault::TooLarge { limit })));
    }
    let show = move || (message.seen(), message);
    let (seen, message) = work_on(size, show).await.map_err(fail_lost_work)?;
    Ok((message, seen))
}

/// Returns the failure of work on a large message that panicked.
fn fail_lost_work(_: JoinError) -> Failure {
    InternalFault::LargeWork.into()
}

impl InterceptorService {
    /// Returns true if it sees messages of this kind in calls of this method, or outside of calls.
    fn sees_kind(&self, kind: MessageKind, method: Option<&Method>) -> bool {
        let phase = match kind {
            MessageKind::Answer => InterceptedPhase::Result,
            MessageKind::Task => return self.sees(&Method::TasksGet, InterceptedPhase::Result),
            MessageKind::Notification => InterceptedPhase::Notification,
        };
        method.map_or_else(|| self.sees_any(phase), |method| self.sees(method, phase))
    }

    /// Returns true if it has to approve answers.
    fn must_agree(&self, method: Option<&Method>) -> bool {
        self.is_strict() && self.sees_kind(MessageKind::Answer, method)
    }
}
