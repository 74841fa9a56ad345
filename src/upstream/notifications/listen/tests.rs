use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::*;
use crate::call::{ErrorBody, ServerName};
use crate::jsonrpc::Response;
use crate::shares::Share;
use crate::upstream::notifications::changes::ChangedLists;
use crate::upstream::notifications::{Mailbox, SubscriptionHub};

/// A server's end of its streams.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    /// Filters of the requests, one for each opening.
    asked: Vec<Value>,
    /// Events in their order.
    log: Vec<String>,
    /// The streams' signals.
    streams: Vec<mpsc::Sender<StreamSignal>>,
    /// Failures of the next openings.
    fails: Vec<StreamRefused>,
    /// URIs that are left out of acknowledgements.
    unknown: Vec<&'static str>,
}

struct Open(Scripted, usize);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.lock().log.push(format!("-{}", self.1));
    }
}

impl ListenTransport for Scripted {
    async fn open(&self, params: Bytes, _: StreamPurpose) -> Result<ChangeStream, StreamRefused> {
        let params: Value = serde_json::from_slice(&params).unwrap();
        let mut script = self.0.lock();
        let mut filter = params["notifications"].clone();
        script.asked.push(filter.clone());
        if let Some(fault) = script.fails.pop() {
            return Err(fault);
        }
        let (sender, signals) = ChangeStream::channel();
        let uris = filter.get_mut("resourceSubscriptions").and_then(Value::as_array_mut);
        if let Some(uris) = uris {
            uris.retain(|uri| !script.unknown.contains(&uri.as_str().unwrap()));
        }
        let acknowledged = json!({ "notifications": filter }).to_string();
        sender.try_send(StreamSignal::Acknowledged(acknowledged.into())).unwrap();
        script.streams.push(sender);
        let number = script.streams.len();
        script.log.push(format!("+{number}"));
        Ok(ChangeStream::new(signals, Open(self.clone(), number)))
    }
}

struct World {
    server: Scripted,
    inbox: Arc<Inbox>,
    relist: Arc<ChangedLists>,
    mailbox: Arc<Mailbox>,
    task: JoinHandle<()>,
}

impl World {
    fn start(tells: ChangeCapabilities, server: Scripted) -> Self {
        let name = ServerName::new("s").unwrap();
        let relist = Arc::new(ChangedLists::default());
        let inbox = Inbox::new(Arc::clone(&relist), SubscriptionHub::default().at(&name));
        let peer = Peer {
            version: ProtocolVersion::LATEST_MODERN,
            info: Bytes::new(),
            tells,
            offers: Arc::default(),
            assumed: Arc::default(),
        };
        let task = tokio::spawn(listen(server.clone(), peer, Arc::clone(&inbox)));
        Self { server, inbox, relist, mailbox: Arc::default(), task }
    }

    fn add(&self, uri: &str) -> crate::upstream::SubscriptionGuard {
        self.inbox.subscriptions.add(Topic::resource(uri), &self.mailbox, Share::uncounted())
    }

    fn asked(&self) -> Vec<Value> {
        self.server.0.lock().asked.clone()
    }

    fn log(&self) -> Vec<String> {
        self.server.0.lock().log.clone()
    }

    async fn end(&self, stream: usize) {
        let sender = self.server.0.lock().streams[stream].clone();
        sender.send(StreamSignal::Ended(None)).await.unwrap();
    }

    fn heard(&self) -> Vec<String> {
        std::iter::from_fn(|| self.mailbox.take())
            .map(|letter| letter.subject.to_string())
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

const TOOLS: ChangeCapabilities = ChangeCapabilities {
    tools: true,
    prompts: false,
    resources: false,
    updates: true,
    tasks: false,
};

async fn a_while() {
    sleep(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_asks_for_declared_and_wanted_changes_and_is_replaced_before_it_closes() {
    let world = World::start(TOOLS, Scripted::default());
    a_while().await;
    let first = world.add("a:1");
    let second = world.add("a:2");
    first.verdict().await.unwrap();
    second.verdict().await.unwrap();
    assert_eq!(world.log(), ["+1", "+2"], "what is on its way on the first is still heard");
    a_while().await;
    drop(first);
    a_while().await;
    assert_eq!(
        world.asked(),
        [
            json!({ "toolsListChanged": true }),
            json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:1", "a:2"] }),
            json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:2"] }),
        ],
        "both at once, and the server is told when one is over"
    );
    assert_eq!(world.log(), ["+1", "+2", "-1", "+3", "-2"]);
    assert!(world.heard().is_empty(), "nothing was missed");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_is_reopened_and_possibly_missed_changes_are_reported() {
    let world = World::start(TOOLS, Scripted::default());
    let held = world.add("a:1");
    held.verdict().await.unwrap();
    world.end(0).await;
    timeout(Duration::from_secs(5), world.relist.notified()).await.expect("listed again");
    a_while().await;
    assert_eq!(world.heard(), ["a:1"]);
    assert_eq!(world.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn topics_that_the_server_omits_are_refused_and_not_requested_again() {
    let server = Scripted::default();
    server.0.lock().unknown.push("a:no");
    let world = World::start(TOOLS, server);
    let (good, bad) = (world.add("a:1"), world.add("a:no"));
    good.verdict().await.unwrap();
    assert!(matches!(bad.verdict().await, Err(SubscriptionRefusal::LeftOut)));
    let _more = world.add("a:2");
    a_while().await;
    let last = world.asked().pop().unwrap();
    assert_eq!(last["resourceSubscriptions"], json!(["a:1", "a:2"]));
}

#[tokio::test(start_paused = true)]
async fn a_server_without_updates_refuses_at_once() {
    let world = World::start(ChangeCapabilities { updates: false, ..TOOLS }, Scripted::default());
    let held = world.add("a:1");
    assert!(matches!(held.verdict().await, Err(SubscriptionRefusal::Unsupported)));
    assert_eq!(world.asked(), [json!({ "toolsListChanged": true })]);
    let silent = World::start(ChangeCapabilities::default(), Scripted::default());
    a_while().await;
    assert!(silent.asked().is_empty(), "there is nothing to listen for");
}

#[tokio::test(start_paused = true)]
async fn a_refused_stream_leaves_the_one_that_stands() {
    let world = World::start(TOOLS, Scripted::default());
    let good = world.add("a:1");
    good.verdict().await.unwrap();
    let error = Bytes::from_static(br#"{"code":-32602,"message":"no such resource"}"#);
    let Ok(Answer::Error(error)) = Answer::parse(Response::Error(error.into())) else { panic!() };
    let error: ErrorBody = error;
    world.server.0.lock().fails.push(StreamRefused::Refused(SubscriptionRefusal::Said(error)));
    let bad = world.add("a:2");
    let Err(SubscriptionRefusal::Said(said)) = bad.verdict().await else { panic!("it is refused") };
    assert_eq!(said.code(), -32602);
    a_while().await;
    assert_eq!(world.log(), ["+1"]);
    drop(bad);
    a_while().await;
    assert_eq!(world.asked().len(), 2, "what stands is what is wanted");
    let _next = world.add("a:3").verdict().await;
    assert_eq!(world.asked().pop().unwrap()["resourceSubscriptions"], json!(["a:1", "a:3"]));
}

#[tokio::test(start_paused = true)]
async fn a_fault_is_tried_again_ever_more_rarely() {
    let server = Scripted::default();
    let faults = (0..100).map(|_| StreamRefused::Fault(UpstreamError::NoAnswer));
    server.0.lock().fails.extend(faults);
    let world = World::start(TOOLS, server);
    sleep(Duration::from_mins(5)).await;
    let tries = world.asked().len();
    assert!((5..15).contains(&tries), "{tries} tries");
}

#[tokio::test(start_paused = true)]
async fn unknown_topics_have_a_stream_of_their_own() {
    let world = World::start(TOOLS, Scripted::default());
    a_while().await;
    let topic = Topic::unknown(r#"{"com.example/x":[1]}"#);
    let held = world.inbox.subscriptions.add(topic, &world.mailbox, Share::uncounted());
    held.verdict().await.unwrap();
    assert_eq!(held.agreed().unwrap(), r#"{"com.example/x":[1]}"#);
    assert_eq!(world.asked().pop().unwrap(), json!({ "com.example/x": [1] }));
    let sender = world.server.0.lock().streams[1].clone();
    let params = Some(Bytes::from_static(b"{}"));
    sender.send(StreamSignal::Told("x/y".into(), params)).await.unwrap();
    a_while().await;
    assert_eq!(world.heard(), ["x/y"]);
    world.end(1).await;
    a_while().await;
    assert_eq!(world.asked().len(), 3, "asked again");
    drop(held);
    a_while().await;
    assert_eq!(world.log(), ["+1", "+2", "-2", "+3", "-3"]);
}
