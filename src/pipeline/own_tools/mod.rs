//! Tools of the gateway itself: a configured answer, or one composed of the results of other calls.
//!
//! These inner calls hide the client's capabilities: the client could not answer input requests in
//! a call that it did not make itself.

mod values;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use crate::call::{
    Answer, Call, Failure, InternalFault, Reply, ResultBody, text_content, tool_error,
};
use crate::catalog::Tool;
use crate::codec::large_message::work_on;
use crate::config::{OwnCallConfig, OwnToolConfig};
use crate::jsonrpc::object_of;
use crate::mcp::Method;
use crate::pipeline::Gateway;
use crate::pipeline::calls::{InnerCallFault, InnerCallRequest, await_answer, make_inner_call};
use crate::pipeline::client_view::ClientView;
use crate::policy::ToolAddress;
use crate::snapshot::Snapshot;

use values::KnownValues;
pub(super) use values::value_of;

/// A call of a tool of the gateway itself.
pub(crate) struct OwnCall {
    gateway: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    tool: Arc<Tool>,
    /// Index of its settings.
    place: usize,
    call: Box<Call>,
    /// Tools that it calls unconditionally.
    needed: Vec<ToolAddress>,
    /// Bytes of all results so far.
    held: AtomicUsize,
}

/// A tool of the gateway itself, in a client's view.
pub(crate) struct FoundOwnTool {
    pub(crate) tool: Arc<Tool>,
    /// Index of its settings.
    pub(crate) place: usize,
}

/// Returns the gateway's own tool that a call names; `None` if the tool is a server's, or unknown.
pub(super) fn find_own_tool(client: &ClientView, call: &Call) -> Option<FoundOwnTool> {
    let name = call.params.name().filter(|_| call.method == Method::ToolsCall)?;
    let tool = client.view.catalog.find_own_tool(name)?;
    let tools = &client.snapshot.config.tools;
    let place = tools.iter().position(|own| own.name.as_str() == name)?;
    Some(FoundOwnTool { tool: Arc::clone(tool), place })
}

/// Returns the reply to a call of such a tool. Dropping it cancels the inner calls.
pub(super) fn reply_of_own_tool(
    gateway: &Arc<Gateway>,
    client: &ClientView,
    found: FoundOwnTool,
    call: Box<Call>,
) -> Reply {
    let FoundOwnTool { tool, place } = found;
    let needed = needed_tools(client, place);
    let (gateway, snapshot) = (Arc::clone(gateway), Arc::clone(&client.snapshot));
    let held = AtomicUsize::new(0);
    let own = OwnCall { gateway, snapshot, tool, place, call, needed, held };
    Reply::starting(async move {
        own.snapshot.policy.admit_own_tool(&own.tool, &own.call, &own.needed).await?;
        let raw = own.answer().await?;
        let result = ResultBody::parse(raw.into()).map_err(InternalFault::Result)?;
        Ok(Reply::ready(Ok(Answer::Result(result))))
    })
}

/// Returns the servers' tools that a tool of the gateway requires, as far as the client has them.
pub(super) fn needed_tools(client: &ClientView, place: usize) -> Vec<ToolAddress> {
    let ClientView { snapshot, view, .. } = client;
    let calls = snapshot.config.tools.get(place).map_or(&[][..], |own| &own.calls);
    let needed = calls.iter().filter(|call| !call.optional);
    let entries = needed.filter_map(|call| view.catalog.find_tool(call.tool.as_str()));
    entries.map(|entry| (entry.server.clone(), entry.native().clone())).collect()
}

impl OwnCall {
    fn settings(&self) -> Result<&OwnToolConfig, Failure> {
        let name = || self.call.params.name().unwrap_or_default().to_owned();
        let settings = self.snapshot.config.tools.get(self.place);
        settings.ok_or_else(|| Failure::UnknownTool { name: name() })
    }

    fn arguments(&self) -> &str {
        let raw = self.call.params.arguments().and_then(|raw| std::str::from_utf8(raw).ok());
        raw.unwrap_or("{}")
    }

    /// Returns the result of the call: an error result if an inner call fails, or they take too
    /// long.
    async fn answer(&self) -> Result<Vec<u8>, Failure> {
        let settings = self.settings()?;
        if let Some(object) = &settings.json {
            return Ok(tool_result(object.as_str(), Some(object.as_str())));
        }
        let results = match timeout(settings.timeout, self.make_calls(settings)).await {
            Ok(Ok(results)) => results,
            Ok(Err(fault)) => return Ok(tool_error(&fault)),
            Err(_) => {
                let limit = settings.timeout.as_secs_f64();
                return Ok(tool_error(&format!("The calls of this tool took more than {limit} s")));
            }
        };
        let (arguments, calls) = (self.arguments(), &settings.calls[..]);
        let known = KnownValues { arguments, calls, results: &results };
        let structured = (!calls.is_empty()).then(|| known.all_results());
        let message = match (&settings.text, &structured) {
            (Some(text), _) => known.fill_text(text),
            (None, Some(structured)) => structured.clone(),
            (None, None) => String::new(),
        };
        Ok(tool_result(&message, structured.as_deref()))
    }

    /// Makes all calls, each as soon as the results that it needs are there.
    async fn make_calls(&self, settings: &OwnToolConfig) -> Result<Vec<Option<String>>, String> {
        let calls = &settings.calls;
        let mut results: Vec<Option<String>> = vec![None; calls.len()];
        let mut ended = vec![false; calls.len()];
        let mut waiting: Vec<usize> = (0..calls.len()).collect();
        let mut running = FuturesUnordered::new();
        loop {
            let is_ready = |place: &usize| {
                let needed = settings.order.needed_by(*place).iter();
                needed.copied().all(|other| ended.get(other) == Some(&true))
            };
            let (ready, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_ready);
            waiting = others;
            for (place, call) in ready.into_iter().filter_map(|at| Some((at, calls.get(at)?))) {
                let known = KnownValues { arguments: self.arguments(), calls, results: &results };
                let arguments = known.fill_value(&call.arguments).unwrap_or_else(|| "{}".into());
                running.push(async move { (place, self.make_call(call, &arguments).await) });
            }
            let Some((place, outcome)) = running.next().await else { return Ok(results) };
            let Some(call) = calls.get(place) else { continue };
            let outcome = match outcome {
                Ok(value) => Some(value),
                Err(_) if call.optional => None,
                Err(fault) => return Err(format!("{} failed: {fault}", call.name.as_str())),
            };
            if let (Some(result), Some(ended)) = (results.get_mut(place), ended.get_mut(place)) {
                (*result, *ended) = (outcome, true);
            }
        }
    }

    /// Makes one call, and returns its result's raw value, or an error text.
    async fn make_call(&self, call: &OwnCallConfig, arguments: &str) -> Result<String, String> {
        let say = |failure: Failure| failure.to_string();
        self.gateway.admit_inner_call(&self.snapshot, &self.call.context).await.map_err(say)?;
        let inner = self.inner_call(call, arguments).map_err(say)?;
        let mut active = self.gateway.call(Arc::clone(&self.snapshot), inner).await;
        let answer = await_answer(&mut active, |bytes| self.hold(bytes)).await;
        // The client cannot answer the input requests of this call.
        active.cancel_parked();
        match answer.map_err(|fault| fault.to_string())? {
            Answer::Result(result) => {
                let read = work_on(result.raw().len(), move || value_of(&result)).await;
                read.map_err(|_| say(InternalFault::LargeWork.into()))?
            }
            Answer::Error(error) => Err(error.message().to_owned()),
        }
    }

    /// Counts bytes of results against the limit.
    fn hold(&self, bytes: usize) -> Result<(), InnerCallFault> {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed);
        if held + bytes > MAX_RESULTS {
            return Err(InnerCallFault::TooLarge { limit: MAX_RESULTS });
        }
        Ok(())
    }

    /// Builds an inner call without client capabilities, since its input requests could not be
    /// answered.
    fn inner_call(&self, call: &OwnCallConfig, arguments: &str) -> Result<Box<Call>, Failure> {
        let request = InnerCallRequest { tool: call.tool.as_str(), arguments };
        let client = self.call.context.client.without_capabilities().awaiting_tasks();
        make_inner_call(&self.call, Arc::new(client), request, &self.gateway.audit)
    }
}

/// Builds a tool's result with a text and, if there is one, a raw structured value.
pub(super) fn tool_result(message: &str, structured: Option<&str>) -> Vec<u8> {
    object_of(result_members(message, structured))
}

/// Like [`tool_result`], for a call that failed.
pub(super) fn failed_tool_result(message: &str, structured: Option<&str>) -> Vec<u8> {
    let failed = [("isError", "true".into())];
    object_of(result_members(message, structured).into_iter().chain(failed))
}

fn result_members<'a>(
    message: &str,
    structured: Option<&'a str>,
) -> Vec<(&'static str, Cow<'a, str>)> {
    let mut members = vec![("content", Cow::Owned(text_content(message)))];
    members.extend(structured.map(|structured| ("structuredContent", structured.into())));
    members
}

/// Limit of the bytes of all results of one call together.
const MAX_RESULTS: usize = 8 << 20;
