//! The two pipes of a child, shared by all calls to it: outgoing lines, incoming lines and pending
//! requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use memchr::memmem;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::call::{Answer, Failure, Notice, Question, ServerName};
use crate::codec::large_message::LARGE_MESSAGE;
use crate::codec::lines::LineEnds;
use crate::config::ServerSecrets;
use crate::jsonrpc::{self, Frame, FrameFault, Id, MAX_SERVER_DEPTH, Response, ServerText};
use crate::mcp::{Era, Method, notification};
use crate::upstream::interaction::cancelled_calls::CancelledCalls;
use crate::upstream::interaction::questions::{self, CallMatch, SideMessage, tie, tie_question};
use crate::upstream::interaction::server_link::ServerLink;
use crate::upstream::interaction::side_queue::{SideSender, side_queue};
use crate::upstream::interaction::sizes::admit;
use crate::upstream::notifications::Inbox;
use crate::upstream::notifications::listen::StreamSignal;
use crate::upstream::notifications::routing::{self, LegacyConnection};
use crate::upstream::quoted_output::FirstPrinted;
use crate::upstream::response_memory::ResponseMemory;
use crate::upstream::transport::request_ids::RequestIds;
use crate::upstream::{ChildExit, ExitCause, UpstreamError};

use super::outgoing::{InputClosed, Outgoing};
use super::pending::{
    AwaitedReply, LogSubscription, PendingCaller, PendingEvent, PendingRequest, RequestInterest,
};
use super::reader::{OutputReader, ReaderTask};
use super::streams::OpenStreams;

/// State that the calls to one child share.
pub(super) struct ChildLink {
    pub(super) server: ServerName,
    secrets: ServerSecrets,
    /// Maximum size in bytes of a line.
    limit: usize,
    memory: Arc<ResponseMemory>,
    outgoing: Outgoing,
    /// The runtime that reads the output.
    pub(super) place: ReaderTask,
    pending: Mutex<HashMap<u64, PendingRequest>>,
    cancelled_calls: CancelledCalls,
    pub(super) ids: RequestIds,
    /// The first line of its output that is no message, since its last message.
    first_printed: Arc<FirstPrinted>,
    /// Reason for the loss of the child. `None` while it is in use.
    closed: watch::Sender<Option<ExitCause>>,
    /// Receives the child's messages outside responses.
    pub(super) inbox: Arc<Inbox>,
    /// The streams of a Modern child, by the ids of their requests.
    pub(super) streams: Mutex<OpenStreams>,
}

/// Settings of a child's pipes.
pub(super) struct LinkSettings {
    pub(super) server: ServerName,
    /// Secrets that are hidden in logged lines.
    pub(super) secrets: ServerSecrets,
    /// Maximum size in bytes of a line from the child.
    pub(super) limit: usize,
    /// Counts the memory of large responses.
    pub(super) memory: Arc<ResponseMemory>,
    /// Receives the child's messages outside responses.
    pub(super) inbox: Arc<Inbox>,
    /// Receives the first line of its output that is no message.
    pub(super) first_printed: Arc<FirstPrinted>,
}

impl ChildLink {
    /// Starts to read and write.
    pub(super) fn start(
        settings: LinkSettings,
        input: impl AsyncWrite + Send + 'static,
        output: impl AsyncRead + Send + Unpin + 'static,
    ) -> Arc<Self> {
        let LinkSettings { server, secrets, limit, memory, inbox, first_printed } = settings;
        let wire = Arc::new(Self {
            server,
            secrets,
            limit,
            memory,
            outgoing: Outgoing::start(input),
            place: ReaderTask::default(),
            pending: Mutex::default(),
            cancelled_calls: CancelledCalls::default(),
            ids: RequestIds::default(),
            first_printed,
            closed: watch::Sender::new(None),
            inbox,
            streams: Mutex::default(),
        });
        OutputReader::start(&wire, output, limit);
        wire
    }

    /// Converts an error to its outward form.
    pub(super) fn fail(&self, fault: UpstreamError) -> Failure {
        fault.into_failure(&self.server, &self.secrets)
    }

    /// Registers a pending request before it is sent. Messages that precede the response are kept
    /// only if the caller requests them. The caller must call `forget` or `cancel` afterwards.
    pub(super) fn expect(
        &self,
        id: u64,
        caller: Option<PendingCaller>,
        wants: RequestInterest,
        lines: LogSubscription,
    ) -> AwaitedReply {
        let (answer, answer_rx) = oneshot::channel();
        let (asides, asides_rx) = match wants {
            RequestInterest::Asides => {
                let (sender, receiver) = side_queue();
                (Some(sender), Some(receiver))
            }
            RequestInterest::Answer => (None, None),
        };
        let is_call = caller.is_some();
        let mut pending = self.pending();
        let order = self.ids.issued();
        pending.insert(id, PendingRequest { asides, caller, order, lines, answer });
        let alone = is_call && pending.len() == 1;
        drop(pending);
        if alone {
            self.place.call_here();
        }
        self.inbox.question_routing.note_call();
        AwaitedReply { id, asides: asides_rx, answer: answer_rx }
    }

    /// Sends a request under `id`. Waits until the child has read enough of the earlier lines. The
    /// caller sets a time limit.
    ///
    /// # Cancel safety
    /// The request is sent whole or not at all.
    pub(super) async fn send(
        &self,
        id: u64,
        method: &str,
        params: &[u8],
    ) -> Result<(), UpstreamError> {
        let line = jsonrpc::request(&Id::number(id), method, params);
        if let Some(cause) = self.closed.borrow().clone() {
            return Err(self.exit_error(cause));
        }
        let sent = self.outgoing.send(&line).await;
        sent.map_err(|InputClosed| self.exit_error(ExitCause::InputClosed))
    }

    fn exit_error(&self, cause: ExitCause) -> UpstreamError {
        let first_line = self.first_printed.line();
        UpstreamError::Exited(Box::new(ChildExit { cause, first_line, last_line: None }))
    }

    /// Sends the response to a child's request.
    pub(super) async fn respond(&self, id: &Id, response: &Response) -> Result<(), UpstreamError> {
        let line = questions::message(id, response);
        match timeout(RESPONSE_TIMEOUT, self.outgoing.send(&line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(InputClosed)) => Err(ExitCause::InputClosed.into()),
            Err(_) => Err(UpstreamError::Timeout { after: RESPONSE_TIMEOUT }),
        }
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, method: &str, params: Option<&[u8]>) {
        let line = jsonrpc::notification(method, params);
        // A child that has exited needs no notifications.
        let _ = self.outgoing.send(&line).await;
    }

    /// Forgets the pending request `id`. Returns false if there is none.
    pub(super) fn forget(&self, id: u64) -> bool {
        self.pending().remove(&id).is_some()
    }

    /// Cancels the pending request `id` and notifies the child, which may still work on it for
    /// `time`. A Legacy child also receives a ping: the response shows that the child has read the
    /// cancellation.
    pub(super) fn cancel(&self, id: u64, time: Duration, era: Era) {
        let mut pending = self.pending();
        let Some(call) = pending.remove(&id) else { return };
        let ping = (era == Era::Legacy).then(|| self.ids.draw());
        if let Some(caller) = call.caller {
            self.cancelled_calls.add(id, caller.origin.whose, time, ping);
        }
        drop(pending);
        self.send_cancelled(id);
        if let Some(ping) = ping {
            let line = jsonrpc::request(&Id::number(ping), Method::Ping.as_str(), b"{}");
            let _ = self.outgoing.try_send(&line);
        }
    }

    pub(super) fn send_cancelled(&self, id: u64) {
        let line = notification::cancelled(&Id::number(id));
        // A full queue means that the child does not read, and would not see a cancellation either.
        let _ = self.outgoing.try_send(&line);
    }

    /// Closes the child's input, which is the request to exit. Never waits.
    pub(super) fn close(&self) {
        self.outgoing.close();
    }

    /// Waits until the child is lost, and returns the reason.
    pub(super) async fn closed(&self) -> ExitCause {
        let mut closed = self.closed.subscribe();
        let cause = closed.wait_for(Option::is_some).await;
        cause.ok().and_then(|cause| cause.clone()).unwrap_or(ExitCause::Unread)
    }

    /// Adds the first line of the output to the error of a child that has exited. The child's input
    /// may be closed before its output is read.
    pub(super) async fn complete_exit(&self, fault: UpstreamError) -> UpstreamError {
        let UpstreamError::Exited(mut exit) = fault else { return fault };
        let _ = timeout(OUTPUT_PATIENCE, self.closed()).await;
        exit.first_line = self.first_printed.line();
        UpstreamError::Exited(exit)
    }

    /// Marks the child as lost. The first reason counts.
    pub(super) fn lost(&self, cause: &ExitCause) {
        let first = self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            closed.get_or_insert_with(|| cause.clone());
            first
        });
        if !first {
            return;
        }
        let pending: Vec<_> = self.pending().drain().collect();
        for (_, pending) in pending {
            let _ = pending.answer.send(PendingEvent::Answer(Err(self.exit_error(cause.clone()))));
        }
        self.streams().clear();
    }

    /// Handles a line over the limit, which has been skipped.
    pub(super) fn too_long(&self, limit: usize, ends: &LineEnds) {
        if self.inbox.is_worth_a_warning() {
            tracing::warn!(server = %self.server, limit, "a line is too long and is skipped");
        }
        self.fail_one(id_in(ends), UpstreamError::TooLarge { limit });
    }

    pub(super) fn take(self: &Arc<Self>, line: &Bytes) {
        match jsonrpc::parse(line, MAX_SERVER_DEPTH) {
            Ok(frame) => admit(self, frame).into_iter().for_each(|frame| self.dispatch(frame)),
            Err(fault) => self.take_unusual(line, fault),
        }
    }

    #[cold]
    fn take_unusual(self: &Arc<Self>, line: &Bytes, fault: FrameFault) {
        let frames = match jsonrpc::parse_unusual(line, MAX_SERVER_DEPTH, fault) {
            Ok(ServerText::Message(frame)) => vec![frame],
            Ok(ServerText::Batch(frames)) => frames,
            Ok(ServerText::Nothing) | Err(_) => return self.useless(line, fault),
        };
        let frames = frames.into_iter().filter_map(|frame| admit(self, frame));
        frames.for_each(|frame| self.dispatch(frame));
    }

    /// Delivers a message to its recipient.
    fn dispatch(self: &Arc<Self>, frame: Frame) {
        self.first_printed.forget();
        match frame {
            Frame::Response { id: Some(id), response } => self.answer(&id, response),
            Frame::Response { id: None, response } => {
                let raw = match response {
                    Response::Result(raw) | Response::Error(raw) => raw,
                };
                if self.inbox.is_worth_a_warning() {
                    // The field of every excerpt: viewers do not see it.
                    tracing::warn!(server = %self.server, line = %self.excerpt(&raw), "an answer without an id");
                }
            }
            Frame::Notification { method, params } => self.notice(method, params),
            Frame::Request { id, method, params } => {
                routing::asked(self, id, Question { method, params: params.map(Bytes::from) });
            }
        }
    }

    /// Handles a line that is not a valid message.
    fn useless(&self, line: &[u8], fault: FrameFault) {
        if line.first() != Some(&b'{') {
            return self.printed(line);
        }
        // Many programs log JSON. It matters if no message ever follows.
        self.first_printed.keep(|| self.excerpt(line));
        if self.inbox.is_worth_a_warning() {
            tracing::warn!(server = %self.server, %fault, line = %self.excerpt(line), "not a message");
        }
        if let Some(id) = find_id(line) {
            self.fail_one(Some(id), UpstreamError::Frame(fault));
        }
    }

    /// Handles a line that was printed to standard output by mistake.
    fn printed(&self, line: &[u8]) {
        self.first_printed.keep(|| self.excerpt(line));
        if self.inbox.is_first_stdout_line() {
            tracing::warn!(
                server = %self.server,
                line = %self.excerpt(line),
                "the server prints text to standard output, which is reserved for messages: such \
                 lines are ignored, and counted as `stdout_lines` in /status; print text to \
                 standard error"
            );
        } else {
            tracing::debug!(server = %self.server, line = %self.excerpt(line), "not a message");
        }
    }

    fn answer(&self, id: &Id, response: Response) {
        let number = id.answered_number();
        let pending = number.and_then(|id| self.pending().remove(&id));
        if let Some(pending) = pending {
            let answer = Answer::parse(response).map_err(UpstreamError::from);
            let answer = answer.and_then(|answer| self.charge(pending.caller.as_ref(), answer));
            let _ = pending.answer.send(PendingEvent::Answer(answer));
        } else if let Some(stream) = number.and_then(|id| self.streams().remove(&id)) {
            let _ = stream.0.try_send(StreamSignal::Ended(Answer::parse(response).ok()));
        } else {
            if let Some(number) = number {
                self.cancelled_calls.answered(number);
            }
            tracing::debug!(server = %self.server, ?id, "an answer to no pending request");
        }
    }

    /// Charges the memory of an answer to the client of its call, if it is large.
    fn charge(
        &self,
        caller: Option<&PendingCaller>,
        answer: Answer,
    ) -> Result<Answer, UpstreamError> {
        let (size, Some(caller)) = (answer.raw().len(), caller) else { return Ok(answer) };
        if size <= LARGE_MESSAGE {
            return Ok(answer);
        }
        let mut charge = self.memory.charge(&caller.holder, self.limit);
        charge.count(size)?;
        Ok(answer.map_raw(|raw| charge.hold(raw)))
    }

    fn notice(&self, method: String, params: Option<Bytes>) {
        match method.as_str() {
            notification::ACKNOWLEDGED => self.acknowledge(params),
            notification::PROGRESS => {
                let Some((notice, token)) =
                    params.and_then(|params| Notice::progress(method, params))
                else {
                    return;
                };
                let id = std::str::from_utf8(&token).ok().and_then(|token| token.parse().ok());
                let pending = self.pending();
                let waiting = id.and_then(|id: u64| pending.get(&id));
                if let Some(asides) = waiting.and_then(|waiting| waiting.asides.as_ref()) {
                    // A slow client loses progress, never its response.
                    asides.send(SideMessage::Notice(notice));
                }
            }
            notification::CANCELLED => {
                let Some(id) = params.as_ref().and_then(notification::cancelled_request) else {
                    return;
                };
                // Only the calls know which of them has the request.
                for asides in self.pending().values().filter_map(|call| call.asides.as_ref()) {
                    asides.send(SideMessage::TookBack(id.clone()));
                }
            }
            notification::MESSAGE => self.line(method, params),
            _ => {
                if let Err((method, params)) = self.carry(method, params) {
                    self.inbox.hear(&method, params.as_ref());
                }
            }
        }
    }

    /// Handles a line of the child's log, which names no call.
    fn line(&self, method: String, params: Option<Bytes>) {
        let Some(params) = params else { return };
        let mut pending = self.pending();
        let calls = pending.iter().filter_map(|(number, call)| {
            let hears = (call.lines == LogSubscription::Heard).then_some(*number);
            call.caller.as_ref().map(|caller| (call.order, &caller.origin.whose, hears))
        });
        let tied = tie(calls, &self.cancelled_calls);
        let call = match tied {
            CallMatch::To(number) => pending.get_mut(&number),
            CallMatch::Mute => return,
            CallMatch::Nobody => None,
        };
        match call {
            // A slow client loses lines, never its response.
            Some(call) => {
                call.asides().send(SideMessage::Line(method, params));
            }
            None => self.inbox.line(&method, &params),
        }
    }

    /// Sends a line without waiting: a child that sends requests without reading must not block the
    /// responses behind them.
    pub(super) fn write_aside(&self, line: &[u8]) {
        let _ = self.outgoing.try_send(line);
    }

    /// Returns the beginning of a line, for the log.
    pub(super) fn excerpt(&self, line: &[u8]) -> String {
        let cut = String::from_utf8_lossy(line.get(..MAX_EXCERPT_BYTES).unwrap_or(line));
        self.secrets.hide_in_cut(&cut).escape_debug().to_string()
    }

    /// Fails the call to which a malformed response belongs: the one with its id, or otherwise the
    /// only one in flight. With several in flight and no id, the calls run into their deadlines.
    fn fail_one(&self, id: Option<u64>, fault: UpstreamError) {
        let mut pending = self.pending();
        let only = (pending.len() == 1).then(|| pending.keys().next().copied()).flatten();
        let found = id.or(only).and_then(|id| pending.remove(&id));
        if let Some(found) = found {
            let _ = found.answer.send(PendingEvent::Answer(Err(fault)));
        }
    }

    /// Returns the number of pending requests.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.pending().len()
    }

    fn pending(&self) -> parking_lot::MutexGuard<'_, HashMap<u64, PendingRequest>> {
        // No code that can panic runs while the lock is held.
        self.pending.lock()
    }
}

impl ServerLink for ChildLink {
    fn server(&self) -> &ServerName {
        self.inbox.server()
    }

    fn is_worth_a_warning(&self) -> bool {
        self.inbox.is_worth_a_warning()
    }

    fn send(self: &Arc<Self>, message: Bytes) {
        self.write_aside(&message);
    }
}

impl LegacyConnection for ChildLink {
    fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    fn tied(&self, question: &Question) -> CallMatch<SideSender> {
        let pending = self.pending();
        let calls = pending.values().filter_map(|call| {
            call.caller.as_ref().map(|caller| (call.order, &caller.origin, call.asides.clone()))
        });
        tie_question(question, calls, &self.cancelled_calls)
    }
}

/// Returns the id at either end of a line over the limit.
fn id_in(ends: &LineEnds) -> Option<u64> {
    find_id(&ends.head).or_else(|| find_id(&ends.tail))
}

/// Returns the number after the first `"id":` of a text that is not a valid message.
fn find_id(text: &[u8]) -> Option<u64> {
    let key = b"\"id\":";
    let at = memmem::find(text, key)? + key.len();
    let rest = text.get(at..)?.trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()
}

/// Time that a response may wait for a child that does not read.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of logged bytes of an unusable line.
const MAX_EXCERPT_BYTES: usize = 120;
/// Time limit for reading the rest of the output of a child whose input is closed.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(500);
