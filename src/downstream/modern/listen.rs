//! `subscriptions/listen`: the stream of a Modern client's subscriptions.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{Stream, join};
use http::Response;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::call::{Context, Drain, Failure, Params, ParamsFault};
use crate::codec::sse;
use crate::jsonrpc::{self, Id, JsonError, Members};
use crate::mcp::{Method, meta, notification};
use crate::pipeline::{Gateway, SubscribeAnswer, Subscriber, Told, log_refused_stream};
use crate::shares::Holder;
use crate::telemetry::metrics::Entered;

use super::stream_register::ListedStream;
use crate::downstream::access::caller::{AccessWatch, VerifiedCaller};
use crate::downstream::responses::list_changes::{ListChanges, WantedLists};
use crate::downstream::responses::open_streams::StreamPlace;
use crate::downstream::responses::response;
use crate::downstream::{Body, McpService};

/// The filter that a client requests.
#[derive(Debug, Default, PartialEq)]
struct SubscriptionFilter {
    lists: WantedLists,
    uris: Vec<String>,
    tasks: Vec<String>,
    /// Members that the gateway does not know: a raw object, if there are any.
    unknown: Option<String>,
}

impl SubscriptionFilter {
    fn parse(params: &Params) -> Result<Self, ParamsFault> {
        let raw = params.notifications();
        let raw = raw.ok_or(ParamsFault::Missing { member: "notifications" })?;
        let members = Members::parse(raw).map_err(|error| match error {
            JsonError::DuplicateKey { key } => ParamsFault::DuplicateNotification { key },
            _ => ParamsFault::Kind { member: "notifications", kind: "an object" },
        })?;
        let mut filter = Self::default();
        let mut unknown = Vec::new();
        for (key, value) in members.0 {
            match &*key {
                _ if value.get() == "null" => {}
                "toolsListChanged" => filter.lists.tools = flag("toolsListChanged", value)?,
                "promptsListChanged" => filter.lists.prompts = flag("promptsListChanged", value)?,
                "resourcesListChanged" => {
                    filter.lists.resources = flag("resourcesListChanged", value)?;
                }
                "resourceSubscriptions" => filter.uris = names("resourceSubscriptions", value)?,
                "taskIds" => filter.tasks = names("taskIds", value)?,
                _ => unknown.push(format!("{}:{}", jsonrpc::string(&key), value.get())),
            }
        }
        if !unknown.is_empty() {
            let unknown = format!("{{{}}}", unknown.join(","));
            if unknown.len() > MAX_UNKNOWN_MEMBER_BYTES {
                return Err(ParamsFault::UnknownNotifications { limit: MAX_UNKNOWN_MEMBER_BYTES });
            }
            filter.unknown = Some(unknown);
        }
        Ok(filter)
    }

    /// Returns true if it subscribes to more than changes of lists.
    fn has_subjects(&self) -> bool {
        !self.uris.is_empty() || !self.tasks.is_empty() || self.unknown.is_some()
    }
}

fn flag(member: &'static str, value: &RawValue) -> Result<bool, ParamsFault> {
    serde_json::from_str(value.get()).map_err(|_| ParamsFault::Kind { member, kind: "a boolean" })
}

/// Parses distinct names, in order.
fn names(member: &'static str, value: &RawValue) -> Result<Vec<String>, ParamsFault> {
    let mut names: Vec<String> = serde_json::from_str(value.get())
        .map_err(|_| ParamsFault::Kind { member, kind: "an array of strings" })?;
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names)
}

/// A stream that lasts as long as its client reads it.
struct ListenStream {
    subscription: Arc<ClientSubscription>,
    /// The acknowledgement, once the granted subscriptions are known.
    opening: Option<Opening>,
    changes: ListChanges,
    ticks: watch::Receiver<u64>,
    keep_alive: Duration,
    drain: Drain,
    standing: AccessWatch,
    listed: ListedStream,
    _held: (StreamPlace, Entered),
}

type Opening = Pin<Box<dyn Future<Output = Bytes> + Send>>;

/// The client and the subscriptions of a stream.
struct ClientSubscription {
    gateway: Arc<Gateway>,
    subscriber: Subscriber,
    context: Context,
    id: Id,
}

impl ClientSubscription {
    /// Subscribes to all permitted subjects, and returns the acknowledgement that lists them.
    async fn open(self: Arc<Self>, filter: SubscriptionFilter) -> Bytes {
        let (gateway, subscriber, context) = (&self.gateway, &self.subscriber, &self.context);
        let resources = filter.uris.iter().map(|uri| async {
            let answer = gateway.subscribe(subscriber, context, uri).await;
            let answer = answer.inspect_err(|failure| log_refusal(context, failure));
            matches!(answer, Ok(SubscribeAnswer::Subscribed)).then(|| Value::from(uri.as_str()))
        });
        let tasks = filter.tasks.iter().map(|id| async {
            let stands = gateway.subscribe_to_task(subscriber, context, id).await;
            let stands = stands.inspect_err(|failure| log_refusal(context, failure));
            matches!(stands, Ok(true)).then(|| Value::from(id.as_str()))
        });
        let unknown = async {
            let members = filter.unknown.as_ref()?;
            let agreed = gateway.subscribe_to_unknown(subscriber, context, members).await;
            serde_json::from_slice::<Map<String, Value>>(&agreed.ok()??).ok()
        };
        let (uris, ids, more) = join!(join_all(resources), join_all(tasks), unknown);
        let [uris, ids] = [uris, ids].map(|names| names.into_iter().flatten().collect());
        let WantedLists { tools, prompts, resources } = filter.lists;
        let mut agreed = notification::listen_filter([tools, prompts, resources], uris, ids);
        for (key, value) in more.into_iter().flatten() {
            agreed.entry(key).or_insert(value);
        }
        let params = json!({ "_meta": self.tag(), "notifications": agreed }).to_string();
        event(notification::ACKNOWLEDGED, params.as_bytes())
    }

    /// Builds the last message of a stream that the gateway ends.
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

fn log_refusal(context: &Context, failure: &Failure) {
    log_refused_stream(Some(Method::Listen), context, failure);
}

fn event(method: &str, params: &[u8]) -> Bytes {
    sse::message(&jsonrpc::notification(method, Some(params)))
}

impl ListenStream {
    fn events(self) -> impl Stream<Item = Bytes> + Send {
        stream! {
            // Moved as a whole, with the guards that it holds until its end.
            let mut this = self;
            let subscription = Arc::clone(&this.subscription);
            loop {
                let opened = this.opening.is_none();
                tokio::select! {
                    biased;
                    () = this.drain.started() => {
                        yield subscription.end();
                        return;
                    }
                    () = this.standing.revoked() => return,
                    () = this.listed.ended() => {
                        yield subscription.end();
                        return;
                    }
                    acknowledged = acknowledged(&mut this.opening) => {
                        this.opening = None;
                        yield acknowledged;
                    }
                    Ok(()) = this.ticks.changed(), if opened => {
                        let now = subscription.gateway.shown(&subscription.context);
                        for method in this.changes.to(now) {
                            yield subscription.change(method);
                        }
                    }
                    told = subscription.gateway.news(&subscription.subscriber, &subscription.context),
                        if opened =>
                    {
                        for event in told.iter().filter_map(|told| subscription.news(told)) {
                            yield event;
                        }
                    }
                    () = tokio::time::sleep(this.keep_alive) => yield sse::comment(),
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

impl McpService {
    /// Opens a `subscriptions/listen` stream.
    pub(super) fn listen(
        &self,
        id: &Id,
        params: &Params,
        context: Context,
        caller: &VerifiedCaller,
    ) -> Result<Response<Body>, Failure> {
        let mut filter = SubscriptionFilter::parse(params)?;
        if !filter.tasks.is_empty() && !context.client.abilities().tasks {
            // SEP-2663, "Task Status Notifications".
            return Err(Failure::tasks_needed());
        }
        if filter.has_subjects() {
            // Each subject has a record of its own; the client learns of the missing log here.
            self.gateway.reserve_record()?;
        }
        let [tools, prompts, resources] = self.gateway.tells(&context);
        filter.lists.tools &= tools;
        filter.lists.prompts &= prompts;
        filter.lists.resources &= resources;
        let (streams, keep_alive) = self.limits();
        let limit = self.gateway.snapshots.load().config.gateway.limits.subscriptions;
        if filter.uris.len() + filter.tasks.len() > limit {
            let failure = Failure::TooManySubscriptions { limit };
            log_refusal(&context, &failure);
            return Err(failure);
        }
        let (id, context) = (id.detach(), context.detach());
        let holder = Holder::of_context(&context);
        let narrowing = context.endpoint.narrowing.as_ref();
        let place = self.streams.enter(&holder, narrowing, streams);
        let place = place.inspect_err(|failure| log_refusal(&context, failure))?;
        // In this order, so that changes in between are announced.
        let ticks = self.gateway.changes();
        let listed = self.listeners.enter(&context);
        let changes = ListChanges::since(self.gateway.shown(&context), filter.lists);
        let gateway = Arc::clone(&self.gateway);
        let subscriber = Subscriber::default();
        let subscription = Arc::new(ClientSubscription { gateway, subscriber, context, id });
        let listening = ListenStream {
            opening: Some(Box::pin(Arc::clone(&subscription).open(filter))),
            subscription,
            changes,
            ticks,
            keep_alive,
            drain: self.drain.clone(),
            standing: self.watch_access(caller),
            listed,
            _held: (place, self.gateway.metrics.open_streams().enter()),
        };
        Ok(response::with_events(Body::stream(listening.events())))
    }
}

/// Limit of the bytes of unknown members.
const MAX_UNKNOWN_MEMBER_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Result<SubscriptionFilter, ParamsFault> {
        let params = format!("{{\"notifications\":{text}}}");
        SubscriptionFilter::parse(&Params::parse(Some(params.into())).unwrap())
    }

    #[test]
    fn a_filter_is_read_whole_and_unknown_members_stay_unchanged() {
        let read = filter(
            r#"{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["a","a","b"],
                "com.example/x":{"n": 1.50},"taskIds":["t"],"later":[ 1],"resourcesListChanged":null}"#,
        );
        let expected = SubscriptionFilter {
            lists: WantedLists { tools: true, prompts: false, resources: false },
            uris: vec!["a".into(), "b".into()],
            tasks: vec!["t".into()],
            unknown: Some(r#"{"com.example/x":{"n": 1.50},"later":[ 1]}"#.into()),
        };
        assert_eq!(read, Ok(expected));
        for text in [
            r#"{"toolsListChanged":1}"#,
            r#"{"resourceSubscriptions":"a"}"#,
            r#"{"taskIds":[1]}"#,
            r#"{"x":1,"x":2}"#,
            &format!(r#"{{"x":"{}"}}"#, "x".repeat(MAX_UNKNOWN_MEMBER_BYTES)),
        ] {
            assert!(filter(text).is_err(), "{text:.80}");
        }
    }
}
