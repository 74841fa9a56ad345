//! Subscriptions: from a client's URI to its server, and the notifications on the way back.

pub(super) mod client_notices;
mod subscription_audit;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::call::{Context, ErrorBody, Failure, InternalFault, NativeName, ServerName};
use crate::catalog::{ReleasedCheck, ResultShape, TaskForm};
use crate::era::change_notification;
use crate::era::tasks::ids::TaskOrigin;
use crate::era::tasks::rename::TaskIdPlace;
use crate::jsonrpc::Id;
use crate::mcp::{Method, ProtocolVersion, notification};
use crate::pipeline::input::kept_results::ResultOrigin;
use crate::pipeline::input::task_ids::OwnTasks;
use crate::pipeline::input::unknown::{unknown_resource, unknown_task};
use crate::pipeline::release::UriReader;
use crate::pipeline::route::task_mode;
use crate::pipeline::{Gateway, introduce, route};
use crate::policy::{CallTarget, Confirmation, shape_task};
use crate::shares::{Holder, ShareBounds};
use crate::snapshot::{Digests, Snapshot, View};
use crate::upstream::{
    ClientNotice, Mailbox, NoticeSubject, QuestionableSession, SubscriptionGuard,
    SubscriptionRefusal, Topic,
};

use client_notices::{PendingNotice, intercept_filter, intercept_refusal};
use subscription_audit::{AuditedSubscription, SubscriptionOutcome, SubscriptionVerdict};

/// One client with subscriptions: a Legacy session, or one
/// `subscriptions/listen`. Dropping it ends them.
#[derive(Debug, Default)]
pub struct Subscriber {
    mailbox: Arc<Mailbox>,
    subscribed: Mutex<HashMap<AskedTopic, Arc<SubscriptionGuard>>>,
    pending: PendingNotice,
}

/// A client's subscription, in the client's own names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum AskedTopic {
    /// A resource, by its URI.
    Resource(String),
    /// A task, by its id.
    Task(String),
    /// Members of a filter that the gateway does not know, raw.
    Unknown(String),
}

/// The server, its own name for the subject, and the topic to subscribe to.
type FoundTopic = (ServerName, Option<NativeName>, Topic);

/// A notification for a client, with the client's own names.
#[derive(Debug)]
pub struct Told {
    /// The notification.
    pub method: String,
    params: Option<Bytes>,
    renamed: Option<(&'static str, String)>,
}

impl Told {
    /// Returns the notification's params; for a Modern client, tagged with the id of its
    /// subscription.
    pub fn params(&self, subscription: Option<&Id>) -> Option<Bytes> {
        let renamed = self.renamed.as_ref().map(|(key, name)| (*key, name.as_str()));
        let params = self.params.as_ref()?;
        Some(change_notification::params(params, renamed.as_slice(), subscription))
    }
}

impl Subscriber {
    /// Ends the subscription to a resource, if there is one.
    pub fn unsubscribe(&self, uri: &str) {
        self.forget(&AskedTopic::Resource(uri.to_owned()));
    }

    /// Returns the URIs of the resources with subscriptions.
    pub fn resources(&self) -> Vec<String> {
        let subscribed = self.subscribed();
        let uris = subscribed.keys().filter_map(|asked| match asked {
            AskedTopic::Resource(uri) => Some(uri.clone()),
            AskedTopic::Task(_) | AskedTopic::Unknown(_) => None,
        });
        uris.collect()
    }

    fn forget(&self, asked: &AskedTopic) {
        let held = self.subscribed().remove(asked);
        drop(held);
    }

    /// Ends all subscriptions.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.subscribed());
        drop(all);
    }

    /// Returns the client's own names for the topic of a server's notification.
    fn known_as(
        &self,
        view: &View,
        is_released: ReleasedCheck<'_>,
        server: &ServerName,
        topic: &Topic,
    ) -> Vec<String> {
        let subscribed = self.subscribed();
        let own = subscribed.iter().filter(|(_, held)| held.is_of(server, topic));
        let mut known: Vec<_> = own
            .filter_map(|(asked, _)| match asked {
                AskedTopic::Resource(name) | AskedTopic::Task(name) => Some(name.clone()),
                AskedTopic::Unknown(_) => None,
            })
            .collect();
        drop(subscribed);
        let Topic::Resource(native) = topic else { return known };
        if known.is_empty() {
            // A part of the subscribed resource.
            known.push(view.catalog.uris().public_uri(server, native).into_owned());
        }
        // Resources that the client may no longer see are left out.
        known.retain(|uri| {
            let origin = view.catalog.uris().find_origin_or_released(uri, is_released);
            origin.is_some_and(|to| to.server == *server && to.native.as_str() == &**native)
        });
        known
    }

    fn subscribed(&self) -> MutexGuard<'_, HashMap<AskedTopic, Arc<SubscriptionGuard>>> {
        self.subscribed.lock()
    }
}

/// Answer to a client's request for a subscription.
#[derive(Debug)]
pub enum SubscribeAnswer {
    /// The subscription is in effect.
    Subscribed,
    /// The server's own error.
    RefusedByServer(ErrorBody),
}

impl Gateway {
    /// Subscribes a client to a resource. Waits a while for the server's response. If the server is
    /// down, the request is sent once it is back.
    ///
    /// # Errors
    /// [`Failure`] if the resource does not exist in the client's view, no server offers updates
    /// for it, or there are too many subscriptions.
    ///
    /// # Cancel safety
    /// If the future is dropped, the client may or may not be subscribed.
    pub async fn subscribe(
        &self,
        subscriber: &Subscriber,
        context: &Context,
        uri: &str,
    ) -> Result<SubscribeAnswer, Failure> {
        let asked = AskedTopic::Resource(uri.to_owned());
        let find = |_: &Snapshot, view: &View| {
            let is_released = self.released_to(context);
            let origin = view.catalog.uris().find_origin_or_released(uri, &is_released);
            let origin = origin.ok_or_else(|| unknown_resource(uri))?;
            let topic = Topic::resource(origin.native.as_str());
            Ok((origin.server, Some(origin.native), topic))
        };
        match self.ask(subscriber, context, asked, find).await? {
            SubscriptionVerdict::Subscribed(_) => Ok(SubscribeAnswer::Subscribed),
            SubscriptionVerdict::Refused(SubscriptionRefusal::Said(error)) => {
                let snapshot = self.snapshots.load_full();
                let view = snapshot.view(&self.view_key(context), context);
                let server = find(&snapshot, &view)?.0;
                let error = intercept_refusal(&self.snapshots, context, &server, error).await?;
                Ok(SubscribeAnswer::RefusedByServer(error))
            }
            SubscriptionVerdict::Refused(
                SubscriptionRefusal::Unsupported | SubscriptionRefusal::LeftOut,
            ) => Err(Failure::NoUpdates { uri: uri.to_owned() }),
        }
    }

    /// Subscribes a client to a task, by its id. Returns whether the server
    /// sends notifications for it.
    ///
    /// # Errors
    /// [`Failure`] if the id does not belong to this client, or there are too
    /// many subscriptions.
    pub async fn subscribe_to_task(
        &self,
        subscriber: &Subscriber,
        context: &Context,
        id: &str,
    ) -> Result<bool, Failure> {
        let TaskOrigin { server, tool, native } =
            self.inputs.tasks(&context.principal)?.find_origin(id)?;
        let find = |snapshot: &Snapshot, view: &View| {
            let has_rules = snapshot.policy.authorization().is_some();
            let is_seen = match &tool {
                Some(tool) => view.catalog.find_listed_tool(&server, tool).is_some(),
                None => !has_rules,
            };
            if !view.scope().admits_server(&server) || (has_rules && !is_seen) {
                return Err(unknown_task(id));
            }
            let list = view.list(&server);
            if list.and_then(|list| list.offers.task_form()) == Some(TaskForm::Legacy) {
                // Status notifications are optional there, and never carry the
                // whole task (2025-11-25, Tasks, "Task Notifications"): nothing
                // is promised.
                return Err(unknown_task(id));
            }
            Ok((server, Some(NativeName::new(native)), Topic::task(native)))
        };
        let asked = AskedTopic::Task(id.to_owned());
        Ok(self.ask(subscriber, context, asked, find).await?.guard().is_some())
    }

    /// Forwards the members of a `subscriptions/listen` filter that the gateway does not know, raw,
    /// to the only server that they can be meant for. Returns the part that the server agreed to,
    /// as a raw object.
    ///
    /// # Errors
    /// [`Failure`] if there is no such server, or there are too many subscriptions.
    pub async fn subscribe_to_unknown(
        &self,
        subscriber: &Subscriber,
        context: &Context,
        members: &str,
    ) -> Result<Option<Bytes>, Failure> {
        let find = |snapshot: &Snapshot, view: &View| {
            let server = route::find_owner(snapshot, view, &Method::Listen)?.config.name.clone();
            Ok((server, None, Topic::unknown(members)))
        };
        let asked = AskedTopic::Unknown(members.to_owned());
        let verdict = self.ask(subscriber, context, asked, find).await?;
        let Some((held, agreed)) =
            verdict.guard().and_then(|held| Some((held.clone(), held.agreed()?)))
        else {
            return Ok(None);
        };
        let agreed = intercept_filter(&self.snapshots, context, held.server(), agreed);
        agreed.await.map(Some)
    }

    /// Subscribes to the topic that `find` returns, and audits the outcome.
    async fn ask(
        &self,
        subscriber: &Subscriber,
        context: &Context,
        asked: AskedTopic,
        find: impl FnOnce(&Snapshot, &View) -> Result<FoundTopic, Failure>,
    ) -> SubscriptionOutcome {
        let room = self.reserve_record()?;
        let Some(notes) = context.audit.as_ref().filter(|_| self.audit.is_on()) else {
            return self.ask_server(subscriber, context, &asked, find).await;
        };
        let notes = notes.for_part();
        let context = Context { audit: Some(Arc::clone(&notes)), ..context.clone() };
        let outcome = self.ask_server(subscriber, &context, &asked, find).await;
        let uri = match &asked {
            AskedTopic::Resource(uri) => Some(uri.as_str()),
            AskedTopic::Task(_) | AskedTopic::Unknown(_) => None,
        };
        self.audit_subscription(&context, &notes, AuditedSubscription { uri, room }, &outcome);
        outcome
    }

    /// Subscribes to the topic that `find` returns, and waits a while for the
    /// server's verdict.
    async fn ask_server(
        &self,
        subscriber: &Subscriber,
        context: &Context,
        asked: &AskedTopic,
        find: impl FnOnce(&Snapshot, &View) -> Result<FoundTopic, Failure>,
    ) -> SubscriptionOutcome {
        let there = subscriber.subscribed().get(asked).cloned();
        let held = match there {
            Some(held) => held,
            None => self.admit_subscription(subscriber, context, asked, find).await?,
        };
        // A slow or absent server answers later; the subscription is in effect until then.
        let verdict = timeout(SUBSCRIPTION_TIMEOUT, held.verdict()).await.unwrap_or(Ok(()));
        if verdict.is_err() {
            subscriber.forget(asked);
        }
        Ok(match verdict {
            Ok(()) => SubscriptionVerdict::Subscribed(held),
            Err(refusal) => SubscriptionVerdict::Refused(refusal),
        })
    }

    async fn admit_subscription(
        &self,
        subscriber: &Subscriber,
        context: &Context,
        asked: &AskedTopic,
        find: impl FnOnce(&Snapshot, &View) -> Result<FoundTopic, Failure>,
    ) -> Result<Arc<SubscriptionGuard>, Failure> {
        let snapshot = self.snapshots.load_full();
        let limits = &snapshot.config.gateway.limits;
        let view = snapshot.view(&self.view_key(context), context);
        let (server, native, topic) = find(&snapshot, &view)?;
        let gone = || InternalFault::ServerMissing { server: server.clone() };
        let member = snapshot.server(&server).ok_or_else(gone)?;
        let requested = snapshot.policy.authorization().and_then(|_| match asked {
            AskedTopic::Resource(_) => {
                let native = native.as_ref()?.as_str();
                Some(Arc::new(route::requested_resource(&view, &server, native)))
            }
            AskedTopic::Task(id) => {
                let tool = self.inputs.tasks(&context.principal).ok()?.find_origin(id).ok()?.tool?;
                route::requested_task(&view, &server, &tool).map(Arc::new)
            }
            AskedTopic::Unknown(_) => None,
        });
        let (confirmation, edits) = (Confirmation::default(), Box::default());
        let target = CallTarget { server, native, tool: None, requested, confirmation, edits };
        let permitted = snapshot.policy.permit_subscription(topic, target, context)?;
        let all = limits.all_subscriptions;
        let bounds = ShareBounds { all, each: snapshot.config.share_of(all) };
        let held = member.server.subscribe(context, &permitted, &subscriber.mailbox, bounds);
        let held = Arc::new(held.await?);
        let limit = limits.subscriptions;
        let mut all = subscriber.subscribed();
        if all.len() >= limit {
            return Err(Failure::TooManySubscriptions { limit });
        }
        // Another request may have subscribed meanwhile: one subscription is enough.
        Ok(Arc::clone(all.entry(asked.clone()).or_insert(held)))
    }

    /// Returns the kinds of list changes that a client can be notified of: tools, prompts,
    /// resources.
    pub fn tells(&self, context: &Context) -> [bool; 3] {
        let snapshot = self.snapshots.load();
        let view = snapshot.view(&self.view_key(context), context);
        let capabilities =
            introduce::capabilities(&snapshot, &view, ProtocolVersion::LATEST_MODERN);
        ["tools", "prompts", "resources"].map(|kind| capabilities.contains_key(kind))
    }

    /// Returns the digests of the lists that a client sees.
    pub fn shown(&self, context: &Context) -> Digests {
        let snapshot = self.snapshots.load();
        let view = snapshot.view(&self.view_key(context), context);
        snapshot.digests_for(&view, &context.client)
    }

    /// Returns a check of whether a URI was released to the client.
    fn released_to(&self, context: &Context) -> impl Fn(&ServerName, &str) -> bool {
        let holder = Holder::of_context(context);
        move |server, native| self.inputs.released.has(&holder, server, native)
    }

    /// Waits for the next notifications of the client's subscriptions.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn news(&self, subscriber: &Subscriber, context: &Context) -> Vec<Told> {
        loop {
            let mailbox = &*subscriber.mailbox;
            let notice = subscriber.pending.next(mailbox, &self.snapshots, context).await;
            let ClientNotice { server, subject, params } = notice;
            let topic = match subject {
                NoticeSubject::Topic(topic) => topic,
                NoticeSubject::Other(method) => {
                    let params = params.map(|raw| self.own(context, &server, &method, raw));
                    return vec![Told { method, params, renamed: None }];
                }
            };
            let view = self.snapshots.load().view(&self.view_key(context), context);
            let known = subscriber.known_as(&view, &self.released_to(context), &server, &topic);
            if !known.is_empty() {
                let known = known.into_iter().filter_map(|name| {
                    let params = match (&topic, params.clone()) {
                        (Topic::Task(_), Some(raw)) => {
                            Some(self.released_task(context, &view, &name, raw).ok()?)
                        }
                        (_, params) => params,
                    };
                    Some(told(&topic, params, name))
                });
                return known.collect();
            }
        }
    }

    /// Returns a task in a notification as its client gets it, under this id.
    fn released_task(
        &self,
        context: &Context,
        view: &View,
        id: &str,
        raw: Bytes,
    ) -> Result<Bytes, Failure> {
        let tasks = self.inputs.tasks(&context.principal)?;
        let TaskOrigin { server, tool, .. } = tasks.find_origin(id)?;
        let results = match &tool {
            Some(tool) => task_mode::find_tool_of_task(view, &server, tool, id)?.results.as_ref(),
            None => None,
        };
        let results = results.filter(|results| results.settings.changes_results());
        let tasks = OwnTasks { tool: tool.clone(), ..tasks };
        let raw = tasks.rename_ids(&server, &raw, TaskIdPlace::Task).unwrap_or(raw);
        let holder = Holder::of_context(context);
        let (inputs, principal) = (&self.inputs, &context.principal);
        let client = UriReader { view, inputs, principal, holder: &holder };
        let raw = client.publish_uris(&server, &raw, ResultShape::Task).unwrap_or(raw);
        let keep = |text| {
            let (owner, server) = (context.principal.clone(), server.clone());
            let origin = ResultOrigin { owner, server, tool: tool.clone()? };
            self.inputs.keep_result(text, origin, holder.clone())
        };
        Ok(results.and_then(|results| shape_task(results, &server, &raw, &keep)).unwrap_or(raw))
    }

    /// Returns a notification's params with this client's task ids.
    fn own(&self, context: &Context, server: &ServerName, method: &str, raw: Bytes) -> Bytes {
        let Ok(tasks) = self.inputs.tasks(&context.principal) else { return raw };
        let is_status = matches!(method, notification::TASK | notification::TASK_STATUS);
        let place = if is_status { TaskIdPlace::Task } else { TaskIdPlace::Meta };
        let named = tasks.rename_ids(server, &raw, place).unwrap_or(raw);
        if !is_status {
            return named;
        }
        let view = self.snapshots.load().view(&self.view_key(context), context);
        let holder = Holder::of_context(context);
        let (view, inputs, principal) = (&*view, &*self.inputs, &context.principal);
        let client = UriReader { view, inputs, principal, holder: &holder };
        client.publish_uris(server, &named, ResultShape::Task).unwrap_or(named)
    }

    /// Delivers the unsolicited notifications of a Legacy client's own server
    /// instances to the client. `listener` receives their requests.
    pub fn client_came(
        &self,
        session: &Arc<str>,
        subscriber: &Subscriber,
        listener: Weak<dyn QuestionableSession>,
    ) {
        subscriber.mailbox.is_of(listener);
        self.snapshots.hub().enter(session, &subscriber.mailbox);
    }
}

fn told(topic: &Topic, params: Option<Bytes>, name: String) -> Told {
    let (method, key) = match topic {
        Topic::Task(_) => (notification::TASK, "taskId"),
        Topic::Resource(_) | Topic::Unknown(_) => (notification::RESOURCE_UPDATED, "uri"),
    };
    Told { method: method.to_owned(), params, renamed: Some((key, name)) }
}

/// Limit of a client's wait for a server's response to its subscription.
const SUBSCRIPTION_TIMEOUT: Duration = Duration::from_secs(5);
