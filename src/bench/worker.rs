//! One connection, and what is done on it from the first call to the last.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::answer::{Received, Trouble, receive};
use super::clock::{Alarm, Clock, Slot};
use super::judge::{Judge, Right};
use super::plan::Op;
use super::request::{FIRST, Request, session_lines};
use super::script::Script;
use super::tally::{Tally, Times};
use super::wire::{Connection, WireFault};
use crate::mcp::Era;

/// What all connections of a thread write to.
pub struct Desk {
    /// The counts.
    pub tally: RefCell<Tally>,
    /// How many operations are under way.
    pub under_way: Cell<u64>,
    /// When the last answer came.
    pub last: Cell<Instant>,
}

/// One connection's side of the work.
pub struct Worker {
    script: Arc<Script>,
    connection: Option<Connection>,
    /// Whether the connection has had an answer: only then may the server have
    /// closed it because nobody used it.
    used: bool,
    session: Session,
    number: u64,
    /// Which of the arguments come next.
    variant: usize,
    /// How far the schedule is.
    step: usize,
    out: Vec<u8>,
    judges: Judges,
    bytes: u64,
    reconnects: u64,
}

enum Session {
    /// The server is Modern.
    None,
    /// It has to be opened before the next call.
    Lost,
    /// These lines say which it is.
    Open(Arc<str>),
}

struct Judges {
    call: Judge,
    list: Judge,
}

impl Worker {
    /// Connects, and opens the session if there are such.
    ///
    /// # Errors
    /// [`Trouble`] where that fails.
    pub async fn open(script: Arc<Script>, place: usize) -> Result<Self, Trouble> {
        let legacy = script.writer.version.era() == Era::Legacy;
        let mut worker = Self {
            connection: None,
            used: false,
            session: if legacy { Session::Lost } else { Session::None },
            number: FIRST,
            // Neighbours do not all do the same at the same time.
            variant: place,
            step: place,
            out: Vec::new(),
            judges: Judges {
                call: Judge::expecting(script.expect.clone()),
                list: Judge::default(),
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
            Err(_) => Err(Trouble::Timeout),
        }
    }

    /// Works until the clock says that it is over.
    pub async fn work(mut self, clock: Arc<Clock>, desk: Rc<Desk>) {
        let mut alarm = Alarm::new();
        let timeout = self.script.timeout;
        while let Some(slot) = clock.next(&mut alarm).await {
            let op = self.script.step(self.step);
            self.step += 1;
            desk.under_way.set(desk.under_way.get() + 1);
            let turn = Turn { clock: &clock, desk: &desk, slot, begun: Instant::now() };
            let counts = turn.counts();
            let done = match tokio::time::timeout(timeout, self.perform(op, &turn)).await {
                Ok(done) => done,
                Err(_) => Err(Trouble::Timeout),
            };
            desk.under_way.set(desk.under_way.get() - 1);
            let next = done.as_ref().err().map(Next::of);
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

    async fn perform(&mut self, op: Op, turn: &Turn<'_>) -> Result<(Right, Times), Trouble> {
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
    /// [`Trouble`].
    pub async fn call(&mut self, turn: &Turn<'_>) -> Result<(Right, Times), Trouble> {
        self.session().await?;
        let script = Arc::clone(&self.script);
        let request = script.call(self.variant)?;
        self.variant += 1;
        let (received, times) = self.exchange(request, turn).await?;
        Ok((self.judges.call.judge(&received, self.number)?, times))
    }

    /// Opens a session, calls in it, ends it.
    async fn whole_session(&mut self, turn: &Turn<'_>) -> Result<(Right, Times), Trouble> {
        let kept = std::mem::replace(&mut self.session, Session::Lost);
        let whole = self.in_session_of_its_own(turn).await;
        self.session = kept;
        whole
    }

    async fn in_session_of_its_own(&mut self, turn: &Turn<'_>) -> Result<(Right, Times), Trouble> {
        let sent = Instant::now();
        self.session().await?;
        let opened = Instant::now();
        let part = |due, arrived| Times { due, sent: due, arrived };
        turn.count_part(Op::Initialize, Right::Result, part(sent, opened));
        let part_of_turn = Turn { slot: Slot { due: None }, ..*turn };
        let (right, times) = self.call(&part_of_turn).await?;
        turn.count_part(Op::SessionCall, right, part(opened, times.arrived));
        let arrived = if self.has_id() {
            let begun = Instant::now();
            let script = Arc::clone(&self.script);
            let (received, _) = self.exchange(&script.delete, &part_of_turn).await?;
            // 405: a server may leave it to time to end sessions.
            if !(200..300).contains(&received.head.status) && received.head.status != 405 {
                let (status, body) = (received.head.status, received.text());
                return Err(Trouble::Status { status, body });
            }
            turn.count_part(Op::Delete, Right::Result, part(begun, received.arrived));
            received.arrived
        } else {
            times.arrived
        };
        Ok((right, Times { due: turn.slot.due.unwrap_or(sent), sent, arrived }))
    }

    /// Opens a session where one is needed.
    async fn session(&mut self) -> Result<(), Trouble> {
        if !matches!(self.session, Session::Lost) {
            return Ok(());
        }
        let script = Arc::clone(&self.script);
        let received = self.send(&script.initialize, "").await?.0;
        Judge::default().judge(&received, self.number)?;
        let lines = session_lines(received.head.session.as_deref());
        let (received, _) = self.send(&script.initialized, &lines).await?;
        if !(200..300).contains(&received.head.status) {
            let (status, body) = (received.head.status, received.text());
            return Err(Trouble::Status { status, body });
        }
        self.session = Session::Open(lines.into());
        Ok(())
    }

    /// Sends a request within the session, and receives what comes.
    async fn exchange(
        &mut self,
        request: &Request,
        turn: &Turn<'_>,
    ) -> Result<(Received, Times), Trouble> {
        let lines = match &self.session {
            Session::Open(lines) => Some(Arc::clone(lines)),
            _ => None,
        };
        let (received, sent) = self.send(request, lines.as_deref().unwrap_or_default()).await?;
        let arrived = received.arrived;
        Ok((received, Times { due: turn.slot.due.unwrap_or(sent), sent, arrived }))
    }

    async fn send(
        &mut self,
        request: &Request,
        lines: &str,
    ) -> Result<(Received, Instant), Trouble> {
        self.number += 1;
        let sent = Instant::now();
        request.write(&mut self.out, self.number, lines);
        if let Some(mut connection) = self.connection.take() {
            match once(&mut connection, &self.out, self.number).await {
                Ok(received) => return Ok((self.took(received, connection), sent)),
                // Closed while it was not used: any client would open another.
                Err(WireFault::Unanswered) if self.used => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        self.connect().await?;
        match self.connection.take() {
            Some(mut connection) => {
                let received = once(&mut connection, &self.out, self.number).await?;
                Ok((self.took(received, connection), sent))
            }
            None => Err(Trouble::Wire(WireFault::Closed)),
        }
    }

    fn took(&mut self, received: Received, connection: Connection) -> Received {
        self.bytes += received.message.len() as u64;
        self.used = true;
        self.connection = received.reusable.then_some(connection);
        received
    }

    async fn connect(&mut self) -> Result<(), Trouble> {
        let dial = &self.script.writer.target.dial;
        self.connection = Some(Connection::open(dial).await.map_err(Trouble::Connect)?);
        self.used = false;
        self.reconnects += 1;
        Ok(())
    }

    /// What follows something that went wrong. A connection that broke is not
    /// there any more, and is opened by the next call.
    async fn recover(&mut self, next: Next) {
        match next {
            Next::Anew if matches!(self.session, Session::Open(_)) => self.session = Session::Lost,
            Next::Goes | Next::Anew => {}
            Next::Waits => tokio::time::sleep(PAUSE).await,
        }
    }

    /// Ends the session, if there is one.
    pub async fn close(mut self) {
        if self.has_id() && self.connection.is_some() {
            let script = Arc::clone(&self.script);
            let Session::Open(lines) = std::mem::replace(&mut self.session, Session::None) else {
                return;
            };
            let _ended = tokio::time::timeout(FAREWELL, self.send(&script.delete, &lines)).await;
        }
    }

    fn has_id(&self) -> bool {
        matches!(&self.session, Session::Open(lines) if !lines.is_empty())
    }
}

/// How it goes on after something went wrong.
#[derive(Clone, Copy)]
enum Next {
    /// As before: the server is there, and does not like the call.
    Goes,
    /// In another session: the server does not know the one there was.
    Anew,
    /// After a moment: there is nobody to connect to.
    Waits,
}

impl Next {
    fn of(trouble: &Trouble) -> Self {
        match trouble {
            Trouble::Connect(_) => Self::Waits,
            Trouble::Status { status: 400 | 404, .. } => Self::Anew,
            _ => Self::Goes,
        }
    }
}

/// One operation's place in the run.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// The run's time.
    pub clock: &'a Clock,
    /// Where it is counted.
    pub desk: &'a Desk,
    /// When it was due.
    pub slot: Slot,
    /// When it began.
    pub begun: Instant,
}

impl Turn<'_> {
    fn counts(&self) -> bool {
        self.slot.due.unwrap_or(self.begun) >= self.clock.counted
    }

    fn count(&self, op: Op, done: Result<(Right, Times), Trouble>) {
        let mut tally = self.desk.tally.borrow_mut();
        match done {
            Ok((right, times)) => {
                tally.right(op, right, &times, self.clock.end);
                self.desk.last.set(self.desk.last.get().max(times.arrived));
                self.clock.done.fetch_add(1, Relaxed);
            }
            Err(trouble) => {
                tally.wrong(op, &trouble, self.slot.due.unwrap_or(self.begun));
                self.clock.failed.fetch_add(1, Relaxed);
            }
        }
    }

    fn count_part(&self, op: Op, right: Right, times: Times) {
        if self.counts() {
            self.desk.tally.borrow_mut().right(op, right, &times, self.clock.end);
        }
    }
}

async fn once(
    connection: &mut Connection,
    request: &[u8],
    number: u64,
) -> Result<Received, WireFault> {
    connection.send(request).await?;
    receive(connection, number).await
}

/// How long nobody tries to connect after it failed.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the end of a session may take.
const FAREWELL: Duration = Duration::from_secs(1);
