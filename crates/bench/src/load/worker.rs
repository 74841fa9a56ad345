//! One connection of a run, from its first call to its last.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode};

use trunkline_core::clock;
use trunkline_protocol::mcp::{Era, header};

use super::clock::{PreciseTimer, RunClock, ScheduledStart};
use super::tally::{Tally, Times};
use crate::exchange::answer::{AnswerError, ReceivedAnswer, exchange};
use crate::exchange::answer_check::{AnswerChecker, CorrectAnswer};
use crate::exchange::connection::{BenchConnection, BenchConnectionError};
use crate::exchange::request::{FIRST_NUMBER, RequestTemplate};
use crate::session::plan::Op;
use crate::session::script::Script;

/// The counts of all connections of a thread.
pub(crate) struct ThreadCounts {
    /// The counts.
    pub tally: RefCell<Tally>,
    /// The number of operations in flight.
    pub under_way: Cell<u64>,
    /// Time of the last answer.
    pub last: Cell<Instant>,
}

/// One connection and its schedule.
pub(crate) struct LoadWorker {
    script: Arc<Script>,
    connection: Option<BenchConnection>,
    /// True if the connection has had an answer: only then may the server have closed it because it
    /// was idle.
    used: bool,
    session: WorkerSession,
    number: u64,
    /// The index of the next arguments.
    variant: usize,
    /// The index of the next step of the schedule.
    step: usize,
    judges: AnswerCheckers,
    bytes: u64,
    reconnects: u64,
}

enum WorkerSession {
    /// The server is Modern: no session.
    None,
    /// A session must be opened before the next call.
    Lost,
    /// The session's id, if the server assigned one.
    Open(Option<HeaderValue>),
}

struct AnswerCheckers {
    call: AnswerChecker,
    list: AnswerChecker,
}

impl LoadWorker {
    /// Connects, and opens the session if the server has sessions.
    ///
    /// # Errors
    /// [`AnswerError`] if that fails.
    pub(crate) async fn open(script: Arc<Script>, place: usize) -> Result<Self, AnswerError> {
        let legacy = script.writer.version.era() == Era::Legacy;
        let mut worker = Self {
            connection: None,
            used: false,
            session: if legacy { WorkerSession::Lost } else { WorkerSession::None },
            number: FIRST_NUMBER,
            // Neighbouring connections start with different operations.
            variant: place,
            step: place,
            judges: AnswerCheckers {
                call: AnswerChecker::expecting(script.expect.clone()),
                list: AnswerChecker::default(),
            },
            bytes: 0,
            reconnects: 0,
            script,
        };
        let timeout = worker.script.timeout;
        let opening = async {
            worker.connect().await?;
            worker.session().await
        };
        match tokio::time::timeout(timeout, opening).await {
            Ok(Ok(())) => {
                worker.reconnects = 0;
                Ok(worker)
            }
            Ok(Err(trouble)) => Err(trouble),
            Err(_) => Err(AnswerError::Timeout),
        }
    }

    /// Works until the end of the run.
    pub(crate) async fn work(mut self, clock: Arc<RunClock>, desk: Rc<ThreadCounts>) {
        let mut alarm = PreciseTimer::new();
        let timeout = self.script.timeout;
        while let Some(slot) = clock.next(&mut alarm).await {
            let op = self.script.step(self.step);
            self.step += 1;
            desk.under_way.set(desk.under_way.get() + 1);
            let turn = Turn { clock: &clock, desk: &desk, slot, begun: clock::real_now() };
            let counts = turn.counts();
            let done = match tokio::time::timeout(timeout, self.perform(op, &turn)).await {
                Ok(done) => done,
                Err(_) => Err(AnswerError::Timeout),
            };
            desk.under_way.set(desk.under_way.get() - 1);
            let next = done.as_ref().err().map(Recovery::of);
            if counts {
                turn.count(op, done);
                let mut tally = desk.tally.borrow_mut();
                tally.bytes += std::mem::take(&mut self.bytes);
                tally.reconnects += std::mem::take(&mut self.reconnects);
            }
            if let Some(next) = next {
                self.recover(next).await;
            }
        }
        self.close().await;
    }

    async fn perform(
        &mut self,
        op: Op,
        turn: &Turn<'_>,
    ) -> Result<(CorrectAnswer, Times), AnswerError> {
        match op {
            Op::List => {
                self.session().await?;
                let script = Arc::clone(&self.script);
                let (received, times) = self.exchange(&script.list, turn).await?;
                Ok((self.judges.list.judge(&received, self.number)?, times))
            }
            Op::Session => self.whole_session(turn).await,
            _ => self.call(turn).await,
        }
    }

    /// Makes the next call.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub(crate) async fn call(
        &mut self,
        turn: &Turn<'_>,
    ) -> Result<(CorrectAnswer, Times), AnswerError> {
        self.session().await?;
        let script = Arc::clone(&self.script);
        let request = script.call(self.variant)?;
        self.variant += 1;
        let (received, times) = self.exchange(request, turn).await?;
        Ok((self.judges.call.judge(&received, self.number)?, times))
    }

    /// Opens a session, calls in it, and ends it.
    async fn whole_session(
        &mut self,
        turn: &Turn<'_>,
    ) -> Result<(CorrectAnswer, Times), AnswerError> {
        let kept = std::mem::replace(&mut self.session, WorkerSession::Lost);
        let whole = self.in_session_of_its_own(turn).await;
        self.session = kept;
        whole
    }

    async fn in_session_of_its_own(
        &mut self,
        turn: &Turn<'_>,
    ) -> Result<(CorrectAnswer, Times), AnswerError> {
        let sent = clock::real_now();
        self.session().await?;
        let opened = clock::real_now();
        let part = |due, arrived| Times { due, sent: due, arrived };
        turn.count_part(Op::Initialize, CorrectAnswer::Result, part(sent, opened));
        let part_of_turn = Turn { slot: ScheduledStart { due: None }, ..*turn };
        let (right, times) = self.call(&part_of_turn).await?;
        turn.count_part(Op::SessionCall, right.clone(), part(opened, times.arrived));
        let arrived = if self.has_id() {
            let begun = clock::real_now();
            let script = Arc::clone(&self.script);
            let (received, _) = self.exchange(&script.delete, &part_of_turn).await?;
            // 405: servers may leave ending sessions to a timeout.
            let status = received.head.status;
            if !status.is_success() && status != StatusCode::METHOD_NOT_ALLOWED {
                return Err(AnswerError::Status { status, body: received.text() });
            }
            turn.count_part(Op::Delete, CorrectAnswer::Result, part(begun, received.arrived));
            received.arrived
        } else {
            times.arrived
        };
        Ok((right, Times { due: turn.slot.due.unwrap_or(sent), sent, arrived }))
    }

    /// Opens a session if one is needed.
    async fn session(&mut self) -> Result<(), AnswerError> {
        if !matches!(self.session, WorkerSession::Lost) {
            return Ok(());
        }
        let script = Arc::clone(&self.script);
        let received = self.send(&script.initialize, None).await?.0;
        AnswerChecker::default().judge(&received, self.number)?;
        let id = received.head.headers.get(header::SESSION_ID).cloned();
        let (received, _) = self.send(&script.initialized, id.as_ref()).await?;
        let status = received.head.status;
        if !status.is_success() {
            return Err(AnswerError::Status { status, body: received.text() });
        }
        self.session = WorkerSession::Open(id);
        Ok(())
    }

    /// Sends a request within the session, and receives the answer.
    async fn exchange(
        &mut self,
        request: &RequestTemplate,
        turn: &Turn<'_>,
    ) -> Result<(ReceivedAnswer, Times), AnswerError> {
        let id = match &self.session {
            WorkerSession::Open(id) => id.clone(),
            _ => None,
        };
        let (received, sent) = self.send(request, id.as_ref()).await?;
        let arrived = received.arrived;
        Ok((received, Times { due: turn.slot.due.unwrap_or(sent), sent, arrived }))
    }

    async fn send(
        &mut self,
        request: &RequestTemplate,
        session: Option<&HeaderValue>,
    ) -> Result<(ReceivedAnswer, Instant), AnswerError> {
        self.number += 1;
        let sent = clock::real_now();
        if self.connection.is_some() {
            match self.exchange_once(request, session).await {
                // Closed while it was idle: any client would open another
                // connection.
                Err(BenchConnectionError::Unanswered) if self.used => {}
                received => return Ok((received?, sent)),
            }
        }
        self.connect().await?;
        Ok((self.exchange_once(request, session).await?, sent))
    }

    async fn exchange_once(
        &mut self,
        request: &RequestTemplate,
        session: Option<&HeaderValue>,
    ) -> Result<ReceivedAnswer, BenchConnectionError> {
        let mut connection = self.connection.take().ok_or(BenchConnectionError::Closed)?;
        let request = request.build(self.number, session);
        let received = exchange(&mut connection, request, self.number).await?;
        self.bytes += received.message.len() as u64;
        self.used = true;
        self.connection = received.reusable.then_some(connection);
        Ok(received)
    }

    async fn connect(&mut self) -> Result<(), AnswerError> {
        let dialer = &self.script.writer.target.dialer;
        self.connection = Some(dialer.connect().await.map_err(AnswerError::Connect)?);
        self.used = false;
        self.reconnects += 1;
        Ok(())
    }

    /// Recovers after an error. A broken connection is already closed; the next call opens another.
    async fn recover(&mut self, next: Recovery) {
        match next {
            Recovery::Anew if matches!(self.session, WorkerSession::Open(_)) => {
                self.session = WorkerSession::Lost;
            }
            Recovery::Goes | Recovery::Anew => {}
            Recovery::Waits => tokio::time::sleep(RECONNECT_PAUSE).await,
        }
    }

    /// Ends the session, if there is one.
    pub(crate) async fn close(mut self) {
        if self.has_id() && self.connection.is_some() {
            let script = Arc::clone(&self.script);
            let WorkerSession::Open(id) = std::mem::replace(&mut self.session, WorkerSession::None)
            else {
                return;
            };
            let delete = self.send(&script.delete, id.as_ref());
            let _ended = tokio::time::timeout(SESSION_END_TIMEOUT, delete).await;
        }
    }

    fn has_id(&self) -> bool {
        matches!(self.session, WorkerSession::Open(Some(_)))
    }
}

/// Recovery of a worker after an error.
#[derive(Clone, Copy)]
enum Recovery {
    /// Unchanged: the server answered, with an error.
    Goes,
    /// In a new session: the server no longer knows the old one.
    Anew,
    /// After a pause: the server rejects connections.
    Waits,
}

impl Recovery {
    fn of(trouble: &AnswerError) -> Self {
        match trouble {
            AnswerError::Connect(_) => Self::Waits,
            AnswerError::Status {
                status: StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND, ..
            } => Self::Anew,
            _ => Self::Goes,
        }
    }
}

/// One operation of the run.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    /// The clock of the run.
    pub clock: &'a RunClock,
    /// The counts to add to.
    pub desk: &'a ThreadCounts,
    /// Due time of the operation.
    pub slot: ScheduledStart,
    /// Time at which the operation began.
    pub begun: Instant,
}

impl Turn<'_> {
    fn counts(&self) -> bool {
        self.slot.due.unwrap_or(self.begun) >= self.clock.counted
    }

    fn count(&self, op: Op, done: Result<(CorrectAnswer, Times), AnswerError>) {
        let mut tally = self.desk.tally.borrow_mut();
        match done {
            Ok((right, times)) => {
                let count = match right {
                    CorrectAnswer::Result => &self.clock.done,
                    CorrectAnswer::ToolError(_) => &self.clock.failed,
                };
                tally.right(op, right, &times, self.clock.end);
                self.desk.last.set(self.desk.last.get().max(times.arrived));
                count.fetch_add(1, Relaxed);
            }
            Err(trouble) => {
                tally.wrong(op, &trouble, self.slot.due.unwrap_or(self.begun));
                self.clock.failed.fetch_add(1, Relaxed);
            }
        }
    }

    fn count_part(&self, op: Op, right: CorrectAnswer, times: Times) {
        if self.counts() {
            self.desk.tally.borrow_mut().right(op, right, &times, self.clock.end);
        }
    }
}

/// The pause after a failed connection attempt.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
/// Time limit for the end of a session.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(1);
