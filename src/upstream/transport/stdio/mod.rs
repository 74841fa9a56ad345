//! Servers that are child processes, over their standard streams.
//!
//! All calls share the two pipes. The gateway numbers requests itself and uses the numbers as
//! progress tokens, so that equal ids or tokens of two clients do not collide.

mod change_stream;
mod outgoing;
mod pending;
mod reader;
mod streams;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;

use async_stream::stream;
use bytes::Bytes;
use futures_util::Stream;

use crate::call::{Answer, Call, Event, Notice, Reply, ServerName, VersionFault};
use crate::config::{EraChoice, ServerSecrets};
use crate::era::{lift, lower};
use crate::jsonrpc::Id;
use crate::mcp::{Era, LogLevel, Method, ProtocolVersion, notification};
use crate::policy::CallTarget;
use crate::shares::Holder;

use crate::upstream::InstanceKey;
use crate::upstream::UpstreamError;
use crate::upstream::interaction::deadline::Deadline;
use crate::upstream::interaction::questions::{CallOrigin, CallQuestions, SideMessage};
use crate::upstream::interaction::side_queue::SideReceiver;
use crate::upstream::notifications::Inbox;
use crate::upstream::notifications::levels::{self, LogLevelControl};
use crate::upstream::peer::{
    DiscoverVerdict, Peer, initialize_params, judge_discover, judge_initialize, modern_params,
};
use crate::upstream::quoted_output::FirstPrinted;
use crate::upstream::response_memory::ResponseMemory;
pub(crate) use reader::ChildOutput;

use pending::{AwaitedReply, LogSubscription, PendingCaller, PendingEvent, RequestInterest};
use wire::{ChildLink, LinkSettings};

/// A connection to a child of known era and capabilities.
pub(crate) struct StdioServer {
    wire: Arc<ChildLink>,
    peer: Peer,
    levels: LogLevelControl,
    /// Tasks that listen for changes while the connection lives.
    _listening: JoinSet<()>,
}

/// Parameters for opening a connection to a child.
pub(crate) struct StdioOpening {
    pub(crate) server: ServerName,
    /// The instance to which the child belongs.
    pub(crate) owner: Arc<InstanceKey>,
    pub(crate) era: EraChoice,
    /// Time that a probe waits before `initialize` is tried as well.
    pub(crate) patience: Duration,
    /// Maximum size in bytes of a line from the child.
    pub(crate) limit: usize,
    /// Counts the memory of large responses.
    pub(crate) memory: Arc<ResponseMemory>,
    /// Receives the child's messages outside responses.
    pub(crate) inbox: Arc<Inbox>,
    /// Secrets that are hidden in logged lines.
    pub(crate) secrets: ServerSecrets,
    /// Receives the first line of the output that is no message.
    pub(crate) first_printed: Arc<FirstPrinted>,
}

impl StdioServer {
    /// Detects the child's era and introduces the gateway. The caller sets a time limit.
    pub(crate) async fn open(
        opening: StdioOpening,
        input: impl AsyncWrite + Send + 'static,
        output: impl AsyncRead + Send + Unpin + 'static,
    ) -> Result<Self, UpstreamError> {
        let settings = LinkSettings {
            server: opening.server,
            secrets: opening.secrets,
            limit: opening.limit,
            memory: opening.memory,
            inbox: opening.inbox,
            first_printed: opening.first_printed,
        };
        let wire = ChildLink::start(settings, input, output);
        match introduce(&wire, &opening.owner.told.capabilities, opening.era, opening.patience)
            .await
        {
            Ok(peer) => {
                let listening = change_stream::start(&wire, &peer);
                Ok(Self { wire, peer, levels: LogLevelControl::default(), _listening: listening })
            }
            Err(fault) => {
                // Closed here, because the reader keeps the pipes open.
                wire.close();
                Err(wire.complete_exit(fault).await)
            }
        }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Sends one of the gateway's own requests.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Bytes,
    ) -> Result<Answer, UpstreamError> {
        ask(&self.wire, method, &params).await
    }

    /// Sends a client's call.
    pub(crate) async fn call(
        &self,
        call: &Call,
        target: &CallTarget,
        mut deadline: Deadline,
    ) -> Result<Reply, UpstreamError> {
        tokio::select! {
            // The usual call sets no level and does not poll its deadline here.
            biased;
            () = self.set_level(call.context.log) => {}
            after = deadline.passed() => return Err(UpstreamError::Timeout { after }),
        }
        let id = self.wire.ids.draw();
        let number = id.to_string();
        let wanted = call.context.progress_token.as_ref();
        let token = wanted.map(|_| number.as_bytes());
        let params = match self.peer.era() {
            Era::Modern => lift::request(call, &target.edits, self.peer.version, token).finish(),
            Era::Legacy => lower::request(call, &target.edits, token).finish(),
        };
        let hears = call.context.hears();
        let lines = if hears.is_some() { LogSubscription::Heard } else { LogSubscription::Unheard };
        // The child may write log lines for a call that requested none. They must not reach another
        // call.
        let context = &call.context;
        let caller = Some(PendingCaller {
            origin: CallOrigin::of(call, target),
            holder: Holder::of_context(context),
        });
        let (questions, answers) = CallQuestions::of(call, self.peer.era(), &self.wire);
        let asides = questions.can_be() || wanted.is_some();
        let wants = if asides { RequestInterest::Asides } else { RequestInterest::Answer };
        // Registered before the call is sent, so that it is cancelled however it ends.
        let mut on_its_way = OnItsWay {
            waiting: self.wire.expect(id, caller, wants, lines),
            wire: Arc::clone(&self.wire),
            deadline,
            questions,
            hears,
            era: self.peer.era(),
            info: self.peer.info.clone(),
        };
        tokio::select! {
            sent = self.wire.send(id, call.method.as_str(), &params) => sent?,
            after = on_its_way.deadline.passed() => return Err(UpstreamError::Timeout { after }),
        }
        let reply = Reply::stream(on_its_way.events());
        Ok(reply.with_answers(answers))
    }

    /// Sets a Legacy child's log level to the most detailed one that its clients request. Waits for
    /// the response, because a child may handle the call that follows at the same time.
    async fn set_level(&self, wants: Option<LogLevel>) {
        if self.peer.era() == Era::Modern || !self.peer.offers.has_capability("logging") {
            return;
        }
        let Some(level) = self.levels.before(wants, 0) else { return };
        // Boxed to keep the usual call small: most calls set no level.
        let setting = Box::pin(self.request(Method::SetLevel.as_str(), levels::params(level)));
        // A call must not fail because its log lines are missing.
        let response = timeout(LEVEL_PATIENCE, setting).await;
        if !matches!(response, Ok(Ok(Answer::Result(_)))) {
            tracing::debug!(server = %self.wire.server, ?level, "the log level is not set");
        }
    }

    /// Waits until the child is lost, and returns the reason.
    pub(crate) async fn closed(&self) -> UpstreamError {
        self.wire.closed().await.into()
    }

    /// Closes the child's input, which asks it to exit.
    pub(crate) fn close(&self) {
        self.wire.close();
    }
}

/// A call in flight. Dropping it before the response cancels it.
struct OnItsWay {
    wire: Arc<ChildLink>,
    waiting: AwaitedReply,
    deadline: Deadline,
    questions: CallQuestions,
    /// The lowest log level that the client receives.
    hears: Option<LogLevel>,
    era: Era,
    info: Bytes,
}

impl OnItsWay {
    fn events(mut self) -> impl Stream<Item = Event> + Send {
        stream! {
            let answer = loop {
                tokio::select! {
                    // The deadline first: a flood of progress must not postpone it
                    // forever.
                    biased;
                    after = self.deadline.passed() => break Err(UpstreamError::Timeout { after }),
                    (id, response) = self.questions.answer() => {
                        if self.closes(&id)
                            && let Err(fault) = self.wire.respond(&id, &response).await
                        {
                            break Err(fault);
                        }
                    }
                    Some(aside) = next_aside(&mut self.waiting.asides) => {
                        if let Some(event) = self.aside(aside) {
                            yield event;
                        }
                    }
                    came = &mut self.waiting.answer => match came {
                        Ok(PendingEvent::Answer(answer)) => break answer,
                        Ok(PendingEvent::Asides(asides, answer)) => {
                            self.waiting.asides = Some(asides);
                            self.waiting.answer = answer;
                        }
                        Err(_) => break Err(UpstreamError::NoAnswer),
                    },
                }
            };
            let answer = answer
                .map(|answer| answer.sent_by(&self.info))
                .map_err(|fault| self.wire.fail(fault));
            // Dropped before the client has its answer, because this cancels a call that timed out.
            drop(self);
            yield Event::Answer(answer);
        }
    }

    fn aside(&mut self, aside: SideMessage) -> Option<Event> {
        match aside {
            SideMessage::Notice(notice) => {
                self.deadline.extend();
                Some(Event::Notice(notice))
            }
            SideMessage::Line(method, params) => {
                Notice::line(method, params, self.hears?).map(Event::Notice)
            }
            SideMessage::Asks(id, question)
                if self.questions.open(&id, &question, &mut self.deadline) =>
            {
                Some(Event::Asks(id, question))
            }
            SideMessage::Asks(id, question) => {
                self.wire.write_aside(&self.questions.refusal(&id, &question));
                None
            }
            SideMessage::TookBack(id) => self.closes(&id).then_some(Event::TookBack(id)),
        }
    }

    fn closes(&mut self, id: &Id) -> bool {
        self.questions.close(id, &mut self.deadline)
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        // Does nothing if the response has arrived.
        self.wire.cancel(self.waiting.id, self.deadline.quiet(), self.era);
    }
}

async fn next_aside(asides: &mut Option<SideReceiver>) -> Option<SideMessage> {
    match asides {
        Some(asides) => asides.next().await,
        None => None,
    }
}

async fn ask(wire: &Arc<ChildLink>, method: &str, params: &[u8]) -> Result<Answer, UpstreamError> {
    let id = wire.ids.draw();
    let waiting = wire.expect(id, None, RequestInterest::Answer, LogSubscription::Unheard);
    let _guard = Forget { wire, id };
    wire.send(id, method, params).await?;
    match waiting.answer.await {
        Ok(PendingEvent::Answer(answer)) => answer,
        Ok(PendingEvent::Asides(..)) | Err(_) => Err(UpstreamError::NoAnswer),
    }
}

/// Forgets one of the gateway's own requests when dropped.
struct Forget<'a> {
    wire: &'a ChildLink,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.wire.forget(self.id);
    }
}

async fn introduce(
    wire: &Arc<ChildLink>,
    told: &[u8],
    era: EraChoice,
    patience: Duration,
) -> Result<Peer, UpstreamError> {
    let peer = match era {
        EraChoice::Legacy => initialize(wire, told).await?,
        EraChoice::Modern => discover(wire).await?,
        EraChoice::Auto => probe(wire, told, patience).await?,
    };
    if peer.era() == Era::Legacy {
        wire.notify(notification::INITIALIZED, None).await;
    }
    Ok(peer)
}

async fn initialize(wire: &Arc<ChildLink>, told: &[u8]) -> Result<Peer, UpstreamError> {
    let answer = ask(wire, Method::Initialize.as_str(), &initialize_params(told)).await?;
    judge_initialize(&answer)
}

async fn ask_discover(
    wire: &Arc<ChildLink>,
    version: ProtocolVersion,
) -> Result<Answer, UpstreamError> {
    let params = modern_params(version, serde_json::json!({}));
    ask(wire, Method::Discover.as_str(), &params).await
}

async fn discover(wire: &Arc<ChildLink>) -> Result<Peer, UpstreamError> {
    let mut version = ProtocolVersion::LATEST_MODERN;
    for _ in 0..=ProtocolVersion::ALL.len() {
        match judge_discover(&ask_discover(wire, version).await?) {
            DiscoverVerdict::Modern(peer) => return Ok(*peer),
            DiscoverVerdict::Retry(other) => version = other,
            DiscoverVerdict::Incompatible(fault) => return Err(fault),
            DiscoverVerdict::Legacy => break,
        }
    }
    Err(UpstreamError::Versions(VersionFault::NotModern))
}

/// Sends `server/discover` first. A child that is silent for `patience` may be a Legacy one that
/// ignores the request, or one that starts slowly. In that case `initialize` is sent as well, and
/// the first conclusive response counts.
async fn probe(
    wire: &Arc<ChildLink>,
    told: &[u8],
    patience: Duration,
) -> Result<Peer, UpstreamError> {
    let mut discover = Box::pin(ask_discover(wire, ProtocolVersion::LATEST_MODERN));
    let first = timeout(patience, &mut discover).await;
    let verdict = if let Ok(answer) = first {
        judge_probe(answer)?
    } else {
        let mut initialize = Box::pin(initialize(wire, told));
        tokio::select! {
            answer = &mut discover => match judge_probe(answer)? {
                DiscoverVerdict::Legacy => return initialize.await,
                verdict => verdict,
            },
            peer = &mut initialize => match peer {
                Err(UpstreamError::Refused { .. }) => judge_probe(discover.await)?,
                settled => return settled,
            },
        }
    };
    match verdict {
        DiscoverVerdict::Modern(peer) => Ok(*peer),
        DiscoverVerdict::Retry(_) => self::discover(wire).await,
        DiscoverVerdict::Incompatible(fault) => Err(fault),
        DiscoverVerdict::Legacy => self::initialize(wire, told).await,
    }
}

/// Interprets the response to a probe. Any failure means Legacy, because it is not a recognised
/// Modern response: a live child may still respond to `initialize`.
fn judge_probe(answer: Result<Answer, UpstreamError>) -> Result<DiscoverVerdict, UpstreamError> {
    match answer {
        Ok(answer) => Ok(judge_discover(&answer)),
        Err(gone @ (UpstreamError::Exited(_) | UpstreamError::NoAnswer)) => Err(gone),
        Err(_) => Ok(DiscoverVerdict::Legacy),
    }
}

/// Time limit for the response to a log level.
const LEVEL_PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
