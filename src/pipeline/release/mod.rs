//! Release: rewrites a reply on its way back. The server's URIs and task ids become public ones,
//! and members that a Legacy server cannot send are added.
//!
//! A reply that needs no rewrite is forwarded unchanged. Otherwise a large result, which would be
//! streamed, is buffered (`upstream` has bounded its size) and rewritten away from the thread that
//! serves its client.

mod repeated_results;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::call::{
    Answer, Call, ErrorBody, Failure, InternalFault, Notice, Principal, ResultBody, ResultType,
    ServerName,
};
use crate::catalog::{ResultShape, ResultTransform, hide_children, rewrite_uris};
use crate::era::tasks::form;
use crate::era::tasks::rename::TaskIdPlace;
use crate::era::{lift, lower};
use crate::mcp::{Era, Method, notification};
use crate::pipeline::client_view::ClientView;
use crate::pipeline::input::kept_results::ResultOrigin;
use crate::pipeline::input::task_ids::OwnTasks;
use crate::pipeline::input::{InputStore, Requester};
use crate::pipeline::route::Route;
use crate::pipeline::route::task_mode::TaskMode;
use crate::pipeline::tasks;
use crate::policy::{shape_result, shape_task};
use crate::shares::{Holder, LargeWork, Patience};
use crate::snapshot::View;

use repeated_results::RepeatWatch;

/// The rewrites that one call's reply needs.
pub(crate) struct Release {
    view: Arc<View>,
    server: ServerName,
    method: Method,
    /// The members of the result that contain URIs, if they have a public form.
    uris: Option<ResultShape>,
    /// The client expects caching hints with the result of a read.
    caching: bool,
    /// The URI of a read, as the client wrote it.
    asked: Option<String>,
    /// The client's task ids, if the reply may contain some.
    tasks: Option<OwnTasks>,
    /// A Legacy server's task becomes a Modern one for the client.
    lifts_task: bool,
    /// The client has requested progress notifications.
    progress: bool,
    /// Change of a tool's result.
    results: Option<Arc<ResultTransform>>,
    content: ContentForm,
    /// The raw `serverInfo` that replaces the one in results; `None` if the server's own is kept.
    info: Option<Bytes>,
    /// Replacement of a result that the client already has.
    repeats: Option<Box<RepeatWatch>>,
    /// Store for results that exceed the size limit, and their owner.
    keeper: (Arc<InputStore>, Principal, Holder),
    large_work: Arc<LargeWork>,
}

/// Forms of the structured content of a tool's result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContentForm {
    Unchanged,
    /// Within an object, because the client supports no other structured content.
    WithinObject,
}

impl ContentForm {
    fn for_call(call: &Call, route: &Route<'_>) -> Self {
        let is_wrapped = route.wraps_results && lower::sees_legacy_results(&call.context);
        if is_wrapped { Self::WithinObject } else { Self::Unchanged }
    }
}

impl Release {
    /// Returns the rewrites that the reply to `call` needs; `None` if it needs none.
    pub(super) fn plan(
        call: &Call,
        route: &Route<'_>,
        client: &ClientView,
        asker: &Requester,
    ) -> Result<Option<Self>, Failure> {
        let ClientView { snapshot, view, .. } = client;
        let server = route.server();
        let has_tasks = || view.list(server).is_some_and(|list| list.offers.task_form().is_some());
        let knows_tasks = call.context.client.abilities().tasks;
        let may_be_one = call.method.is_task_request()
            || (call.method == Method::ToolsCall && (knows_tasks || has_tasks()));
        let reads = call.method == Method::ResourcesRead;
        let cacheable = reads || call.method == Method::SkillsGet;
        let results = route.results.filter(|it| it.settings.changes_results());
        // Rules decide about a task by its tool.
        let of_rules = route.requested.as_ref().and_then(|requested| requested.tool.as_ref());
        let of_wrapped = route.tool.filter(|_| route.wraps_results).map(|tool| &tool.native);
        let tool = results.map(|results| results.native()).or(of_wrapped);
        let tool = tool.or(of_rules.map(|tool| &tool.native)).cloned();
        let tasks = may_be_one.then(|| asker.tasks()).transpose()?;
        let tasks = tasks.map(|tasks| OwnTasks { tool, ..tasks });
        let hides = call.method == Method::DirectoryRead;
        let shape = ResultShape::for_method(&call.method);
        let uris = shape.filter(|_| hides || view.catalog.uris().treats_uris(server));
        let repeats = RepeatWatch::for_call(call, route, view)?;
        let content = ContentForm::for_call(call, route);
        let info = view.info_instead(server).cloned();
        let is_plain = tasks.is_none()
            && uris.is_none()
            && results.is_none()
            && content == ContentForm::Unchanged;
        if !cacheable && is_plain && repeats.is_none() && info.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            tasks,
            uris,
            caching: cacheable && call.context.client.version.era() == Era::Modern,
            asked: call.params.uri().filter(|_| reads).map(str::to_owned),
            method: call.method.clone(),
            server: server.clone(),
            view: Arc::clone(view),
            lifts_task: route.task_mode == TaskMode::Requested,
            progress: call.context.progress_token.is_some(),
            results: results.cloned(),
            content,
            info,
            repeats,
            keeper: (Arc::clone(&asker.inputs), asker.principal.clone(), asker.holder()),
            large_work: Arc::clone(snapshot.policy.large_work()),
        }))
    }

    /// Returns true if a result of a server of that era has to be buffered to be rewritten.
    pub(super) fn needs_whole(&self, era: Era) -> bool {
        self.uris.is_some()
            || self.results.is_some()
            || self.repeats.is_some()
            || self.content == ContentForm::WithinObject
            || self.info.is_some()
            || (self.caching && era == Era::Legacy)
            || self.method.is_task_request()
    }

    /// Rewrites an answer for the client.
    pub(super) fn release_answer(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Result(result) => {
                let result = self.release_result(result);
                match &self.info {
                    Some(info) => lift::name_sender(&result, info),
                    None => Answer::Result(result),
                }
            }
            Answer::Error(error) => Answer::Error(self.release_error(error)),
        }
    }

    /// Returns true if the rewrite of this answer would hold up the other clients of its thread.
    pub(super) fn is_large(&self, answer: &Answer) -> bool {
        let length = match answer {
            Answer::Result(result) => result.raw().len(),
            Answer::Error(error) => error.raw().len(),
        };
        let cheap = self.results.as_ref().map_or(LARGE_ANSWER_BYTES, |results| {
            // The first check compiles the schema.
            results.cheap_length().unwrap_or(0).min(LARGE_ANSWER_BYTES)
        });
        length > cheap
    }

    /// Rewrites a large answer on another thread, for this holder.
    ///
    /// # Errors
    /// [`InternalFault::LargeWork`] after a long wait for other work.
    pub(super) async fn release_large(
        self,
        holder: Holder,
        answer: Answer,
    ) -> Result<Answer, Failure> {
        let large_work = Arc::clone(&self.large_work);
        // Not retryable: the server has already processed the call.
        let failure = InternalFault::LargeWork.into();
        let patience = Patience { longest: MAX_LARGE_ANSWER_WAIT, failure };
        large_work.run(&holder, patience, move || self.release_answer(answer)).await
    }

    fn release_result(&self, result: ResultBody) -> ResultBody {
        let lifted = self.lifts_task.then(|| form::lift_created(result.raw())).flatten();
        let result = with_raw(result, lifted);
        let shape = self.uris.filter(|_| *result.kind() != ResultType::InputRequired);
        let (inputs, principal, holder) = &self.keeper;
        let client = UriReader { view: &self.view, inputs, principal, holder };
        let rewritten =
            shape.and_then(|shape| client.publish_uris(&self.server, result.raw(), shape));
        let result = with_raw(result, rewritten);
        let hidden = shape.filter(|shape| *shape == ResultShape::Directory).and_then(|_| {
            let uris = self.view.catalog.uris();
            hide_children(result.raw(), |public| {
                uris.find_origin_or_released(public, &|_, _| true).is_some()
            })
        });
        let result = with_raw(result, hidden);
        let renamed = self.tasks.as_ref().and_then(|tasks| {
            let place = tasks::task_id_place(&self.method, &result);
            tasks.rename_ids(&self.server, result.raw(), place)
        });
        let result = with_raw(result, renamed);
        let is_cached = self.caching && *result.kind() == ResultType::Complete;
        let told = is_cached.then(|| lift::uncacheable(result.raw())).flatten();
        let result = with_raw(result, told);
        let shaped = self.shape_outcome(&result);
        let result = with_raw(result, shaped);
        let is_outcome = matches!(self.method, Method::ToolsCall | Method::TasksResult);
        let is_complete = is_outcome && *result.kind() == ResultType::Complete;
        let is_wrapped = self.content == ContentForm::WithinObject && is_complete;
        let wrapped = is_wrapped.then(|| lower::wrap_structured(result.raw()));
        let result = with_raw(result, wrapped.flatten());
        let referred = self.repeats.as_ref().and_then(|repeats| repeats.replace(&result));
        with_raw(result, referred)
    }

    /// Changes the outcome of a tool call: a result, or the task that contains it. An answer about
    /// a task without an outcome stays as it is.
    fn shape_outcome(&self, result: &ResultBody) -> Option<Bytes> {
        let transform = self.results.as_ref()?;
        let (inputs, owner, holder) = &self.keeper;
        let keep = |text| {
            let (server, tool) = (self.server.clone(), transform.native().clone());
            let origin = ResultOrigin { owner: owner.clone(), server, tool };
            inputs.keep_result(text, origin, holder.clone())
        };
        match self.method {
            Method::TasksGet => shape_task(transform, &self.server, result.raw(), &keep),
            Method::ToolsCall | Method::TasksResult => {
                shape_result(transform, &self.server, result, &keep)
            }
            _ => None,
        }
    }

    /// Renames the task ids in the params of a notification or a request from the server.
    pub(super) fn rename_task_ids(&self, params: &mut Bytes) {
        let place = TaskIdPlace::Meta;
        if let Some(tasks) = &self.tasks
            && let Some(renamed) = tasks.rename_ids(&self.server, params, place)
        {
            *params = renamed;
        }
    }

    /// Rewrites a notification; `None` if the client must not receive it. A task's progress carries
    /// the token of the call that created it: a client that sent no token with this call would
    /// attribute it to another one.
    pub(super) fn release_notice(&self, notice: Notice) -> Option<Notice> {
        if notice.token.is_some() && !self.progress {
            return None;
        }
        let Some(tasks) = &self.tasks else { return Some(notice) };
        let is_status = matches!(&*notice.method, notification::TASK | notification::TASK_STATUS);
        let place = if is_status { TaskIdPlace::Task } else { TaskIdPlace::Meta };
        Some(match tasks.rename_ids(&self.server, &notice.params, place) {
            Some(params) => notice.with(params),
            None => notice,
        })
    }

    /// Returns a read's error in the Modern form, with the client's URI.
    fn release_error(&self, error: ErrorBody) -> ErrorBody {
        match &self.asked {
            Some(asked) => lift::read_error(&error, asked).unwrap_or(error),
            None => error,
        }
    }
}

/// Replaces the text of a result, if there is a new one.
fn with_raw(result: ResultBody, raw: Option<Bytes>) -> ResultBody {
    match raw {
        Some(raw) => result.with(raw).unwrap_or(result),
        None => result,
    }
}

/// Rewrites a server's URIs for one client.
pub(crate) struct UriReader<'a> {
    pub(super) view: &'a View,
    pub(super) inputs: &'a InputStore,
    pub(super) principal: &'a Principal,
    pub(super) holder: &'a Holder,
}

impl UriReader<'_> {
    /// Replaces the server's URIs with the public URIs of the client's view; `None` if there is
    /// nothing to replace. The client may request URIs of a guarded server from then on.
    pub(super) fn publish_uris(
        &self,
        server: &ServerName,
        raw: &[u8],
        shape: ResultShape,
    ) -> Option<Bytes> {
        let uris = self.view.catalog.uris();
        let is_guarded = uris.guards(server);
        rewrite_uris(raw, shape, |native| {
            if is_guarded {
                self.inputs.released.note((self.principal, self.holder), server, native);
            }
            match uris.public_uri(server, native) {
                Cow::Owned(public) => Some(public),
                Cow::Borrowed(_) => None,
            }
        })
    }
}

/// Limit of an answer's bytes that are rewritten on the thread that serves its client.
const LARGE_ANSWER_BYTES: usize = 256 * 1024;
/// Limit of a large answer's wait for other work: as long as most clients wait for an answer.
pub(super) const MAX_LARGE_ANSWER_WAIT: Duration = Duration::from_mins(1);
