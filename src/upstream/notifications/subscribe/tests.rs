use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::*;
use crate::call::ServerName;
use crate::jsonrpc::Response;
use crate::shares::Share;
use crate::upstream::notifications::{Mailbox, SubscriptionGuard, SubscriptionHub};

#[derive(Clone)]
struct Scripted {
    asked: Arc<Mutex<Vec<String>>>,
    sessions: watch::Sender<u64>,
    /// Number of next requests that fail.
    broken: Arc<Mutex<usize>>,
}

impl SubscribeTransport for Scripted {
    async fn ask(&self, method: &Method, params: Bytes) -> Result<Answer, UpstreamError> {
        let params: Value = serde_json::from_slice(&params).unwrap();
        let uri = params["uri"].as_str().unwrap();
        let verb = method.as_str().trim_start_matches("resources/");
        self.asked.lock().push(format!("{verb} {uri}"));
        let mut broken = self.broken.lock();
        if *broken > 0 {
            *broken -= 1;
            return Err(UpstreamError::NoAnswer);
        }
        let response = match uri {
            "a:no" => Response::Error(r#"{"code":-32002,"message":"no"}"#.into()),
            _ => Response::Result("{}".into()),
        };
        Ok(Answer::parse(response).unwrap())
    }

    fn sessions(&self) -> watch::Receiver<u64> {
        self.sessions.subscribe()
    }
}

struct World {
    server: Scripted,
    inbox: Arc<Inbox>,
    mailbox: Arc<Mailbox>,
    task: JoinHandle<()>,
}

impl World {
    fn start(tells: ChangeCapabilities) -> Self {
        let server = Scripted {
            asked: Arc::default(),
            sessions: watch::Sender::new(1),
            broken: Arc::default(),
        };
        let inbox = Inbox::new(
            Arc::default(),
            SubscriptionHub::default().at(&ServerName::new("s").unwrap()),
        );
        let task = tokio::spawn(subscribe(server.clone(), tells, Arc::clone(&inbox)));
        Self { server, inbox, mailbox: Arc::default(), task }
    }

    fn add(&self, uri: &str) -> SubscriptionGuard {
        self.inbox.subscriptions.add(Topic::resource(uri), &self.mailbox, Share::uncounted())
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.server.asked.lock())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

const UPDATES: ChangeCapabilities = ChangeCapabilities {
    tools: false,
    prompts: false,
    resources: false,
    updates: true,
    tasks: false,
};

#[tokio::test(start_paused = true)]
async fn each_resource_is_asked_for_once_and_given_up_with_its_last_subscriber() {
    let world = World::start(UPDATES);
    let (one, two) = (world.add("a:1"), world.add("a:1"));
    one.verdict().await.unwrap();
    two.verdict().await.unwrap();
    drop(one);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.asked(), ["subscribe a:1"]);
    drop(two);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.asked(), ["unsubscribe a:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_reaches_the_subscriber() {
    let world = World::start(UPDATES);
    let Err(SubscriptionRefusal::Said(error)) = world.add("a:no").verdict().await else { panic!() };
    assert_eq!(error.code(), -32002);
    let silent = World::start(ChangeCapabilities::default());
    assert!(matches!(silent.add("a:1").verdict().await, Err(SubscriptionRefusal::Unsupported)));
    assert!(silent.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_session_renews_all_subscriptions_and_reports_missed_changes() {
    let world = World::start(UPDATES);
    let held = world.add("a:1");
    held.verdict().await.unwrap();
    assert_eq!(world.mailbox.take(), None);
    world.server.sessions.send_replace(2);
    let letter = timeout(Duration::from_secs(5), world.mailbox.next()).await.unwrap();
    assert_eq!(letter.subject.to_string(), "a:1");
    assert_eq!(letter.params.unwrap(), r#"{"uri":"a:1"}"#);
    assert_eq!(world.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_subscription_is_tried_again() {
    let world = World::start(UPDATES);
    *world.server.broken.lock() = 2;
    world.add("a:1").verdict().await.unwrap();
    assert_eq!(world.asked().len(), 3);
}
