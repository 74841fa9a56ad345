//! `subscriptions/listen`: the stream on which a Modern client hears of what it
//! asked for, and of nothing else.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::call::{Context, Drain, Failure, Params};
use crate::jsonrpc::{self, Id, sse};
use crate::mcp::{meta, notification};
use crate::pipeline::{Gateway, Subscriber, Told};
use crate::telemetry::metrics::Entered;

use super::answer;
use super::caller::{Caller, Standing};
use super::changes::{Changes, Wanted};
use super::stream::Place;
use super::{Body, Front};

/// What a client asks for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Filter {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
}

impl Filter {
    fn parse(params: &Params) -> Result<Self, Failure> {
        let invalid = |detail: String| Failure::InvalidParams { detail };
        let raw = params
            .notifications()
            .ok_or_else(|| invalid("invalid params: `notifications` is missing".into()))?;
        let mut filter: Self = jsonrpc::object(raw)
            .map_err(|error| invalid(format!("invalid params: notifications: {error}")))?;
        let mut seen = HashSet::new();
        filter.resource_subscriptions.retain(|uri| seen.insert(uri.clone()));
        Ok(filter)
    }

    fn lists(&self) -> Wanted {
        Wanted {
            tools: self.tools_list_changed,
            prompts: self.prompts_list_changed,
            resources: self.resources_list_changed,
        }
    }
}

/// A stream for as long as its client reads it.
struct Listening {
    subscription: Arc<Subscription>,
    /// The acknowledgement, once it is known what can be honoured.
    opening: Option<Opening>,
    /// Events on their way.
    ready: VecDeque<Bytes>,
    changes: Changes,
    ticks: watch::Receiver<u64>,
    keep_alive: Duration,
    drain: Drain,
    standing: Standing,
    _held: (Place, Entered),
}

type Opening = Pin<Box<dyn Future<Output = Bytes> + Send>>;

/// What a stream is about.
struct Subscription {
    gateway: Arc<Gateway>,
    subscriber: Subscriber,
    context: Context,
    id: Id,
}

impl Subscription {
    /// Subscribes to all resources that can be had; says which these are.
    async fn open(self: Arc<Self>, filter: Filter) -> Bytes {
        let mut agreed = Map::new();
        let lists = filter.lists();
        for (key, wanted) in [
            ("toolsListChanged", lists.tools),
            ("promptsListChanged", lists.prompts),
            ("resourcesListChanged", lists.resources),
        ] {
            if wanted {
                agreed.insert(key.into(), Value::Bool(true));
            }
        }
        let asked = filter.resource_subscriptions;
        let subscribed = join_all(asked.iter().map(|uri| async {
            let answer = self.gateway.subscribe(&self.subscriber, &self.context, uri).await;
            matches!(answer, Ok(Ok(())))
        }))
        .await;
        let agreed_to = asked.into_iter().zip(subscribed).filter(|(_, stands)| *stands);
        let uris: Vec<_> = agreed_to.map(|(uri, _)| Value::from(uri)).collect();
        if !uris.is_empty() {
            agreed.insert("resourceSubscriptions".into(), Value::Array(uris));
        }
        let params = json!({ "_meta": self.tag(), "notifications": agreed }).to_string();
        event(notification::ACKNOWLEDGED, params.as_bytes())
    }

    /// The last message of a stream that the gateway ends.
    fn end(&self) -> Bytes {
        let result = json!({ "resultType": "complete", "_meta": self.tag() });
        sse::message(&jsonrpc::response(&self.id, result.to_string().as_bytes()))
    }

    fn change(&self, method: &str) -> Bytes {
        event(method, json!({ "_meta": self.tag() }).to_string().as_bytes())
    }

    fn news(&self, told: &Told) -> Option<Bytes> {
        let params = told.params(Some(&self.id))?;
        Some(event(&told.method, &params))
    }

    fn tag(&self) -> Value {
        let id: Value = serde_json::from_slice(self.id.raw()).unwrap_or_default();
        json!({ meta::SUBSCRIPTION_ID: id })
    }
}

fn event(method: &str, params: &[u8]) -> Bytes {
    sse::message(&jsonrpc::notification(method, Some(params)))
}

impl Listening {
    async fn step(listening: Option<Self>) -> Option<(Bytes, Option<Self>)> {
        let mut this = listening?;
        let subscription = Arc::clone(&this.subscription);
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Some((event, Some(this)));
            }
            let opened = this.opening.is_none();
            tokio::select! {
                biased;
                () = this.drain.started() => return Some((subscription.end(), None)),
                () = this.standing.lost() => return None,
                acknowledged = acknowledged(&mut this.opening) => {
                    this.opening = None;
                    return Some((acknowledged, Some(this)));
                }
                Ok(()) = this.ticks.changed(), if opened => {
                    let now = subscription.gateway.shown(&subscription.context);
                    let changed = this.changes.to(now);
                    this.ready.extend(changed.map(|method| subscription.change(method)));
                }
                told = subscription.gateway.news(&subscription.subscriber, &subscription.context),
                    if opened =>
                {
                    this.ready.extend(told.iter().filter_map(|told| subscription.news(told)));
                }
                () = tokio::time::sleep(this.keep_alive) => {
                    return Some((sse::comment(), Some(this)));
                }
            }
        }
    }
}

async fn acknowledged(opening: &mut Option<Opening>) -> Bytes {
    match opening {
        Some(opening) => opening.await,
        None => std::future::pending().await,
    }
}

impl Front {
    /// Opens a `subscriptions/listen` stream.
    pub(super) fn listen(
        &self,
        id: Id,
        params: &Params,
        context: Context,
        caller: &Caller,
    ) -> Result<Response<Body>, Failure> {
        let filter = Filter::parse(params)?;
        let (streams, keep_alive) = self.limits();
        let limit = self.gateway.snapshots.load().config.gateway.limits.subscriptions;
        if filter.resource_subscriptions.len() > limit {
            return Err(Failure::TooManySubscriptions { limit });
        }
        let place = self.streams.enter(streams)?;
        // In this order: what changes in between is told.
        let ticks = self.gateway.changes();
        let changes = Changes::since(self.gateway.shown(&context), filter.lists());
        let gateway = Arc::clone(&self.gateway);
        let subscriber = Subscriber::default();
        let subscription = Arc::new(Subscription { gateway, subscriber, context, id });
        let listening = Listening {
            opening: Some(Box::pin(Arc::clone(&subscription).open(filter))),
            subscription,
            ready: VecDeque::new(),
            changes,
            ticks,
            keep_alive,
            drain: self.drain.clone(),
            standing: self.standing(caller),
            _held: (place, self.gateway.metrics.streams().enter()),
        };
        Ok(answer::with_events(Body::stream(stream::unfold(Some(listening), Listening::step))))
    }
}
