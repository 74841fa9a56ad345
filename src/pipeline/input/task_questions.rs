//! Input requests by tasks of Legacy servers, for Modern clients.
//!
//! A Legacy server sends requests on the stream of a `tasks/result` and waits
//! for the responses; a Modern client reads the requests in `tasks/get` and
//! answers with `tasks/update`, as often and as late as it likes. The gateway
//! connects the two with a `tasks/result` of its own for each task that needs
//! input, held open until the task ends or no client has polled it for as long
//! as calls may be parked. These streams count as parked calls.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, OnceCell, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::call::{
    Abilities, Event, Failure, InternalFault, MAX_QUESTIONS, Principal, Question, Reply, ServerName,
};
use crate::clock;
use crate::crypto::random_bytes;
use crate::era::lift;
use crate::jsonrpc::{Id, Response, string};
use crate::upstream::parking::ParkingSlot;

use super::Requester;
use super::refusal::{refusal_reason, refusal_response};
use super::task_at::{TaskAt, raw_object};

/// All tasks that have requested input.
#[derive(Default)]
pub(crate) struct TaskQuestions(Arc<QuestionRegistry>);

/// A cell is empty while its stream is being opened: once for each task, since
/// a server sends its requests on one stream only.
#[derive(Default)]
struct QuestionRegistry(Mutex<HashMap<TaskKey, Cell>>);

type Cell = Arc<OnceCell<Arc<QuestionStream>>>;

/// The owner of a task, its server, and the server's own id.
type TaskKey = (Principal, ServerName, String);

/// The input requests of one task.
struct QuestionStream {
    open: Mutex<OpenTaskQuestions>,
    /// Notified when a request is added or cancelled.
    news: Notify,
    says: mpsc::Sender<(Id, Response)>,
}

struct OpenTaskQuestions {
    questions: Vec<(String, Id, Question)>,
    /// The number of requests so far; keys are numbered by it.
    asked: usize,
    /// Random, so that keys of two streams of one task differ.
    prefix: String,
    /// Time of the client's last poll of the task.
    touched: Instant,
}

impl TaskQuestions {
    /// Returns the pending input requests of a task, as a raw object by key; `None` if there are
    /// none that this client can answer.
    pub(crate) async fn asked(
        &self,
        at: &TaskAt,
        asker: &Requester,
    ) -> Result<Option<Bytes>, Failure> {
        let key = key(at, asker);
        let cell = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        let trying = Trying { all: &self.0, key: &key, cell: Some(cell) };
        let asking = trying.opened(|cell| self.open(&key, cell, at, asker)).await?;
        asking.open().touched = clock::now();
        Ok(asking.requests().await)
    }

    /// Passes a client's answers to the server. Unknown keys are ignored. Returns false if the task
    /// has not requested input.
    pub(crate) fn answer(
        &self,
        at: &TaskAt,
        asker: &Requester,
        responses: Vec<(String, Response)>,
    ) -> bool {
        let cell = self.0.lock().get(&key(at, asker)).cloned();
        let Some(asking) = cell.and_then(|cell| cell.get().cloned()) else { return false };
        let mut open = asking.open();
        open.touched = clock::now();
        for (said, response) in responses {
            if let Some(place) = open.questions.iter().position(|(key, ..)| *key == said) {
                let (_, id, _) = open.questions.swap_remove(place);
                // The channel has room for all pending requests.
                let _ = asking.says.try_send((id, response));
            }
        }
        true
    }

    /// Drops the tasks of unknown principals.
    pub(crate) fn retain(&self, keep: impl Fn(&Principal) -> bool) {
        self.0.lock().retain(|(owner, ..), _| keep(owner));
    }

    async fn open(
        &self,
        key: &TaskKey,
        cell: &Cell,
        at: &TaskAt,
        asker: &Requester,
    ) -> Result<Arc<QuestionStream>, Failure> {
        let bounds = asker.inputs.bounds();
        let place = asker.inputs.parking.enter(&asker.holder(), bounds)?;
        let reply = at.request_outcome().await?;
        let number = random_bytes::<6>().map_err(|_| InternalFault::Random)?;
        let prefix = URL_SAFE_NO_PAD.encode(number);
        let (says, said) = mpsc::channel(MAX_QUESTIONS);
        let touched = clock::now();
        let open = OpenTaskQuestions { questions: Vec::new(), asked: 0, prefix, touched };
        let asking = Arc::new(QuestionStream { open: Mutex::new(open), news: Notify::new(), says });
        let listening = QuestionListener {
            reply,
            said,
            abilities: asker.abilities().clone(),
            lasting: bounds.lasting,
            _place: place,
        };
        let (all, weak) = (Arc::clone(&self.0), Arc::downgrade(&asking));
        let (key, cell) = (key.clone(), Arc::downgrade(cell));
        tokio::spawn(async move {
            listening.run(&weak).await;
            all.forget(&key, &cell);
        });
        Ok(asking)
    }
}

impl QuestionRegistry {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskKey, Cell>> {
        self.0.lock()
    }

    fn forget(&self, key: &TaskKey, cell: &Weak<OnceCell<Arc<QuestionStream>>>) {
        let mut all = self.lock();
        if all.get(key).is_some_and(|held| Arc::as_ptr(held) == cell.as_ptr()) {
            all.remove(key);
        }
    }
}

/// A caller that waits for a stream to be opened. The last one removes a cell
/// that has stayed empty.
struct Trying<'a> {
    all: &'a QuestionRegistry,
    key: &'a TaskKey,
    /// `Some` until this is dropped.
    cell: Option<Cell>,
}

impl Trying<'_> {
    async fn opened<'a, F>(
        &'a self,
        open: impl FnOnce(&'a Cell) -> F,
    ) -> Result<Arc<QuestionStream>, Failure>
    where
        F: Future<Output = Result<Arc<QuestionStream>, Failure>>,
    {
        let cell = self.cell.as_ref().ok_or(InternalFault::TaskReleased)?;
        cell.get_or_try_init(|| open(cell)).await.cloned()
    }
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        self.cell = None;
        let unused = |cell: &Cell| cell.get().is_none() && Arc::strong_count(cell) == 1;
        if all.get(self.key).is_some_and(unused) {
            all.remove(self.key);
        }
    }
}

fn key(at: &TaskAt, asker: &Requester) -> TaskKey {
    (asker.principal.clone(), at.server.clone(), at.native.clone())
}

impl QuestionStream {
    fn open(&self) -> MutexGuard<'_, OpenTaskQuestions> {
        self.open.lock()
    }

    /// Returns the pending requests, waiting a short while for the first.
    async fn requests(&self) -> Option<Bytes> {
        let until = clock::now() + FIRST_QUESTION_TIMEOUT;
        loop {
            let news = self.news.notified();
            if !self.open().questions.is_empty() {
                break;
            }
            timeout_at(until, news).await.ok()?;
        }
        // Several requests arrive in quick succession.
        sleep(QUESTION_BATCH_WINDOW).await;
        let open = self.open();
        let requests = open.questions.iter().map(|(key, _, question)| {
            let Question { method, params } = lift::question(question);
            let method = ("method", string(&method).into());
            let params = params.map(|params| ("params", params));
            (key.as_str(), raw_object([method].into_iter().chain(params)))
        });
        (!open.questions.is_empty()).then(|| raw_object(requests))
    }
}

/// The listener on the stream on which one task requests input.
struct QuestionListener {
    reply: Reply,
    said: mpsc::Receiver<(Id, Response)>,
    abilities: Abilities,
    lasting: Duration,
    _place: ParkingSlot,
}

impl QuestionListener {
    /// Listens until the task ends, or no client has polled it for `lasting`.
    async fn run(mut self, asking: &Weak<QuestionStream>) {
        loop {
            let Some(until) = asking.upgrade().map(|it| it.open().touched + self.lasting) else {
                return;
            };
            let event = tokio::select! {
                said = self.said.recv() => {
                    let Some((id, response)) = said else { return };
                    self.reply.answer_question(id, response);
                    continue;
                }
                event = self.reply.next() => event,
                () = sleep_until(until) => {
                    if asking.upgrade().is_none_or(|it| it.open().touched + self.lasting <= clock::now()) {
                        return;
                    }
                    continue;
                }
            };
            match (event, asking.upgrade()) {
                (Some(Event::Asks(id, question)), Some(asking)) => self.asks(&asking, id, question),
                (Some(Event::TookBack(id)), Some(asking)) => {
                    asking.open().questions.retain(|(_, open, _)| *open != id);
                    asking.news.notify_waiters();
                }
                (Some(Event::Notice(_) | Event::Pause(_)), Some(_)) => {}
                // The task has ended: `tasks/get` fetches its result.
                _ => return,
            }
        }
    }

    fn asks(&self, asking: &QuestionStream, id: Id, question: Question) {
        let mut open = asking.open();
        let refusal = refusal_reason(&question, &self.abilities, open.questions.len());
        if let Some(text) = refusal {
            return self.reply.answer_question(id, refusal_response(&text));
        }
        open.asked += 1;
        let key = format!("input-{}-{}", open.prefix, open.asked);
        open.questions.push((key, id, question));
        drop(open);
        asking.news.notify_waiters();
    }
}

/// Limit of the wait of `tasks/get` for a task's first input request.
const FIRST_QUESTION_TIMEOUT: Duration = Duration::from_secs(1);
/// Input requests that arrive within this time of the first are returned with
/// it.
const QUESTION_BATCH_WINDOW: Duration = Duration::from_millis(15);
