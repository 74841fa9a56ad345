//! The meta-tools. The gateway answers `find_tools` and `describe_tools` itself from the client's
//! own view, so they reveal only elements that the client may use. A call of `call_tool` is
//! replaced at the start by the call that it names, with that call's record, rates, checks,
//! questions and progress.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::call::{
    Answer, ArgumentsError, Call, CallIntent, Context, Failure, InternalFault, MetaCallError,
    MetaTool, Params, ParamsFault, Reply, ResultBody, tool_error,
};
use crate::catalog::{
    CodeFunction, DEFAULT_FOUND_TOOLS, Kind, MAX_FOUND, TextVector, ToolHints, ToolSignature,
    listed_name, meta_tool,
};
use crate::jsonrpc::{Members, object_of, string, text};
use crate::mcp::Method;
use crate::shares::{Holder, Patience};
use crate::snapshot::{AskedSearch, FoundElement, Snapshot, View};
use crate::text::clip;

use super::calls::ActiveCall;
use super::client_view::ClientView;
use super::own_tools::tool_result;

/// Returns the meta-tool that a call names.
pub(super) fn named_meta_tool(call: &Call) -> Option<MetaTool> {
    let name = call.params.name().filter(|_| call.method == Method::ToolsCall)?;
    MetaTool::with_name(name)
}

/// Returns true if clients of a view have this meta-tool.
pub(super) fn is_offered(view: &View, tool: MetaTool) -> bool {
    view.discovery.as_ref().is_some_and(|discovery| discovery.offers(tool))
}

/// Returns the call inside a call of `call_tool`.
///
/// # Errors
/// [`Failure::InvalidArguments`] if it names none, and [`Failure::MetaCallRefused`] if the tool is
/// for another meta-tool.
pub(super) fn unwrap_call(
    client: &ClientView,
    meta: MetaTool,
    intent: Option<CallIntent>,
    call: &Call,
) -> Result<Box<Call>, Failure> {
    let ClientView { snapshot, view, .. } = client;
    let arguments = checked_arguments(meta, call)
        .map_err(|failure| explain_flattened_call(view, call).unwrap_or(failure))?;
    let asked: AskedCall<'_> = read(&arguments)?;
    if let Some(other) = MetaTool::with_name(&asked.name).filter(|other| is_offered(view, *other)) {
        return Err(MetaCallError::CalledDirectly { name: other.name() }.into());
    }
    if let Some(intent) = intent
        && let Some(right) = intent_of(snapshot, view, &asked.name)
        && right != intent
    {
        let (name, right) = (asked.name.into_owned(), right.tool_name());
        return Err(MetaCallError::OtherIntent { name, right }.into());
    }
    let name = string(&asked.name);
    let inner = asked.arguments.map_or("{}", RawValue::get);
    let members = Members::parse(call.params.raw());
    let members = members.map_err(|_| NO_ARGUMENTS)?;
    let kept = members.0.iter().filter(|(key, _)| key != "name" && key != "arguments");
    let kept = kept.map(|(key, value)| (&**key, Cow::Borrowed(value.get())));
    let own = [("name", Cow::Owned(name)), ("arguments", inner.into())];
    let raw: Bytes = object_of(own.into_iter().chain(kept)).into();
    let params = Params::parse(Some(raw)).map_err(InternalFault::Params)?;
    // The parameters in the headers belong to the meta-tool.
    let context = Context { peer: None, ..call.context.clone() };
    Ok(Box::new(Call { method: Method::ToolsCall, params, context, input: call.input.clone() }))
}

/// Returns the failure, with the tool's schema, of a call that puts the tool's arguments beside
/// `name` instead of into `arguments`; `None` for other mistakes.
fn explain_flattened_call(view: &View, call: &Call) -> Option<Failure> {
    let members = Members::parse(call.params.arguments()?).ok()?;
    let name = text(members.find("name")?)?;
    let others = members.0.iter().filter(|(key, _)| key != "name" && key != "arguments");
    let others: Vec<_> = others.map(|(key, _)| clip(key, MAX_LINE_TEXT_BYTES)).collect();
    let raw = view.catalog.listed_tool(&name).filter(|_| !others.is_empty())?;
    let line = format!(
        "{} belong(s) in `arguments`, the object with the arguments of {name}",
        others.join(", ")
    );
    Some(explain_violations(ArgumentsError::of_line(line), &raw))
}

/// Extends the failure of a tool call through a meta-tool with the facts that a model needs to
/// correct it.
pub(super) fn explain_to_model(active: &mut ActiveCall, client: ClientView, asked: String) {
    let holder = active.asker().holder();
    let ClientView { snapshot, view, .. } = client;
    active.map_failure(move |failure| async move {
        match failure {
            Failure::InvalidArguments(violations) => {
                let raw = view.catalog.listed_tool(&asked);
                explain_violations(violations, raw.as_deref().unwrap_or_default())
            }
            Failure::UnknownTool { name } => {
                let find = move |snapshot: &Snapshot| similar_names(snapshot, &view, &asked);
                let similar = run_search(&snapshot, &holder, find).await.unwrap_or_default();
                MetaCallError::UnknownTool { name, similar }.into()
            }
            failure => failure,
        }
    });
}

/// Returns the reply of `find_tools` or `describe_tools`.
pub(super) fn answer(client: ClientView, tool: MetaTool, call: Box<Call>) -> Reply {
    Reply::starting(async move {
        let arguments = checked_arguments(tool, &call)?;
        let holder = Holder::of_context(&call.context);
        let vector = match tool {
            MetaTool::Find => vector_of_query(&client, &holder, &arguments).await?,
            MetaTool::Describe | MetaTool::Call(_) | MetaTool::RunCode => None,
        };
        let ClientView { snapshot, view, .. } = client;
        let make = move |snapshot: &Snapshot| match tool {
            MetaTool::Find => find_elements(snapshot, &view, &arguments, vector.as_ref()),
            MetaTool::Describe | MetaTool::Call(_) | MetaTool::RunCode => {
                describe_tools(&view, &arguments)
            }
        };
        let raw = run_search(&snapshot, &holder, make).await??;
        let result = ResultBody::parse(raw.into()).map_err(InternalFault::Result)?;
        Ok(Reply::ready(Ok(Answer::Result(result))))
    })
}

/// Searches away from the threads that serve clients: the first search of a view builds its index.
async fn run_search<T: Send + 'static>(
    snapshot: &Arc<Snapshot>,
    holder: &Holder,
    search: impl FnOnce(&Snapshot) -> T + Send + 'static,
) -> Result<T, Failure> {
    let failure = Failure::OverLimit { limit: "searches".into(), retry_after: SEARCH_RETRY_AFTER };
    let patience = Patience { longest: MAX_SEARCH_WAIT, failure };
    let used = Arc::clone(snapshot);
    snapshot.policy.large_work().run(holder, patience, move || search(&used)).await
}

/// Returns the vector of a `find_tools` query, if an embedding service is configured.
async fn vector_of_query(
    client: &ClientView,
    holder: &Holder,
    arguments: &[u8],
) -> Result<Option<TextVector>, Failure> {
    let ClientView { snapshot, view, .. } = client;
    if snapshot.embedder.is_none() {
        return Ok(None);
    }
    let asked: FindArguments<'_> = read(arguments)?;
    let kind = asked.listed_kind();
    if snapshot.awaits_vectors(view, kind) {
        let view = Arc::clone(view);
        run_search(snapshot, holder, move |used| used.prepare_vectors(&view, kind)).await?;
    }
    Ok(snapshot.ask_for_vector(view, kind, &asked.query).await)
}

/// Returns the validated arguments of a meta-tool's call.
pub(super) fn checked_arguments(tool: MetaTool, call: &Call) -> Result<Bytes, Failure> {
    let raw = call.params.arguments().unwrap_or(b"{}");
    if tool == MetaTool::Describe
        && let Some(name) = only_name(raw)
    {
        return Ok(object_of([("names", format!("[{}]", string(&name)).into())]).into());
    }
    let Some(tool) = meta_tool(tool) else { return Ok(Bytes::copy_from_slice(raw)) };
    match tool.arguments.check(Some(raw)) {
        Ok(()) => Ok(Bytes::copy_from_slice(raw)),
        // Models often write an object as a string.
        Err(violations) => match tool.arguments.coerce(raw) {
            Some(coerced) => Ok(coerced.raw.into()),
            None => Err(explain_violations(violations, tool.shown())),
        },
    }
}

/// Returns the single name in arguments of `describe_tools` that should be a list of names; `None`
/// if there is none.
fn only_name(raw: &[u8]) -> Option<String> {
    let members = Members::parse(raw).ok()?;
    let [(key, value)] = &members.0[..] else { return None };
    let name = text(value).filter(|name| key == "names" && !name.trim_start().starts_with('['));
    name.map(Cow::into_owned)
}

fn read<'a, T: Deserialize<'a>>(arguments: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(arguments).map_err(|_| NO_ARGUMENTS.into())
}

#[derive(Deserialize)]
struct AskedCall<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct FindArguments<'a> {
    #[serde(borrow)]
    query: Cow<'a, str>,
    limit: Option<usize>,
    kind: Option<AskedKind>,
}

impl FindArguments<'_> {
    fn listed_kind(&self) -> Kind {
        match self.kind {
            None | Some(AskedKind::Tools) => Kind::Tools,
            Some(AskedKind::Prompts) => Kind::Prompts,
            Some(AskedKind::Resources) => Kind::Resources,
            Some(AskedKind::Skills) => Kind::Skills,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum AskedKind {
    Tools,
    Prompts,
    Resources,
    Skills,
}

#[derive(Deserialize)]
struct AskedNames {
    names: Vec<String>,
}

/// Returns the result of `find_tools`.
fn find_elements(
    snapshot: &Snapshot,
    view: &View,
    arguments: &[u8],
    vector: Option<&TextVector>,
) -> Result<Vec<u8>, Failure> {
    let asked: FindArguments<'_> = read(arguments)?;
    let kind = asked.listed_kind();
    let limit = asked.limit.unwrap_or(DEFAULT_FOUND_TOOLS).min(MAX_FOUND);
    let found = snapshot.search(view, AskedSearch { kind, query: &asked.query, limit, vector });
    let by_intent = view.discovery.as_ref().is_some_and(|discovery| discovery.by_intent);
    let functions = code_functions(view);
    let lines = found.iter().map(|one| {
        let line = line_of(kind, one, functions);
        let intent =
            (by_intent && kind == Kind::Tools).then(|| intent_of_found(snapshot, view, one));
        match intent.flatten() {
            Some(intent) => format!("{line} [{}]", intent.tool_name()),
            None => line,
        }
    });
    let lines: Vec<_> = lines.collect();
    let count = view.catalog.list(kind).len();
    let noun = kind.member();
    let head = match found.first() {
        None if count == 0 => format!("There are no {noun}."),
        None => format!("None of {count} {noun} matches. Try other words, in English."),
        Some(best) if !best.is_confident => {
            format!("None of {count} {noun} fits well. The nearest:")
        }
        Some(_) => format!("{} of {count} {noun}, the best first:", lines.len()),
    };
    let message = [&[head][..], &lines].concat().join("\n");
    let structured = json!({ noun: lines }).to_string();
    Ok(tool_result(&message, Some(&structured)))
}

/// Returns the functions of code; empty if clients cannot send code.
fn code_functions(view: &View) -> &[CodeFunction] {
    let is_code = view.discovery.as_ref().is_some_and(|it| it.offers(MetaTool::RunCode));
    if is_code { view.catalog.code_functions() } else { &[] }
}

/// Describes an element in one line.
fn line_of(kind: Kind, found: &FoundElement, functions: &[CodeFunction]) -> String {
    if kind == Kind::Tools {
        let name = listed_name(&found.raw).unwrap_or_default();
        return match functions.iter().find(|function| function.public == *name) {
            Some(function) => ToolSignature::with_name(&function.identifier, &found.raw),
            None => ToolSignature::from_raw(&found.raw),
        }
        .to_string();
    }
    let members = Members::parse(&found.raw).ok();
    let member = |name: &str| text(members.as_ref()?.find(name)?);
    let name = member(if kind == Kind::Prompts { "name" } else { "uri" }).unwrap_or_default();
    match member("description").or_else(|| member("title")).or_else(|| member("name")) {
        Some(words) => {
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("{name} — {}", clip(&words, MAX_LINE_TEXT_BYTES))
        }
        None => name.into_owned(),
    }
}

/// Returns the effect that a call of a found tool may have.
fn intent_of_found(snapshot: &Snapshot, view: &View, found: &FoundElement) -> Option<CallIntent> {
    intent_of(snapshot, view, &listed_name(&found.raw)?)
}

/// Returns the result of `describe_tools`.
fn describe_tools(view: &View, arguments: &[u8]) -> Result<Vec<u8>, Failure> {
    let asked: AskedNames = read(arguments)?;
    let (mut described, mut missing, mut size) = (Vec::new(), Vec::new(), 0);
    let functions = code_functions(view);
    let named = |identifier: &str| functions.iter().find(|one| one.identifier == *identifier);
    for name in asked.names {
        let found = view.catalog.listed_tool(&name);
        let found = found.or_else(|| view.catalog.listed_tool(&named(&name)?.public));
        match found {
            Some(raw) if size + raw.len() <= MAX_DESCRIBED_BYTES => {
                size += raw.len();
                described.push(String::from_utf8_lossy(&raw).into_owned());
            }
            Some(_) => missing.push(format!("{name} (too long to come with the others)")),
            None => missing.push(name),
        }
    }
    if described.is_empty() {
        return Ok(tool_error(&format!(
            "There is no tool {}: find_tools finds the names of tools",
            missing.join(", ")
        )));
    }
    let list = format!("[{}]", described.join(","));
    let structured = object_of([("tools", list.into())]);
    let structured = String::from_utf8_lossy(&structured).into_owned();
    let missing = (!missing.is_empty()).then(|| format!("Not described: {}", missing.join(", ")));
    let message = described.into_iter().chain(missing).collect::<Vec<_>>().join("\n");
    Ok(tool_result(&message, Some(&structured)))
}

/// Returns names of tools that resemble an unknown one.
fn similar_names(snapshot: &Snapshot, view: &View, name: &str) -> Vec<String> {
    let asked =
        AskedSearch { kind: Kind::Tools, query: name, limit: MAX_SUGGESTED_NAMES, vector: None };
    let found = snapshot.search_names(view, asked);
    let names = found.iter().filter_map(|one| listed_name(&one.raw).map(Cow::into_owned));
    names.collect()
}

/// Returns the failure for arguments that violate a tool's schema, with that schema unless it is
/// too long for a hint.
pub(super) fn explain_violations(violations: ArgumentsError, raw: &[u8]) -> Failure {
    let members = Members::parse(raw).ok();
    let schema = members.and_then(|members| members.find("inputSchema")).map(RawValue::get);
    let schema = schema.filter(|schema| schema.len() <= MAX_SHOWN_SCHEMA_BYTES);
    Failure::InvalidArguments(match schema {
        Some(schema) => violations.with_schema(schema),
        None => violations,
    })
}

/// Returns the effect that a call of a tool may have; `None` if there is no such tool.
fn intent_of(snapshot: &Snapshot, view: &View, name: &str) -> Option<CallIntent> {
    let Some(entry) = view.catalog.find_tool(name) else {
        // The gateway's own tools call others, with any effect.
        return view.catalog.find_own_tool(name).map(|_| CallIntent::Destructive);
    };
    let is_trusted = snapshot.server(&entry.server)?.config.definitions.trusted;
    let hints = if is_trusted { entry.tool.hints() } else { ToolHints::default() };
    Some(match (hints.read_only, hints.destructive) {
        (Some(true), _) => CallIntent::Read,
        (_, Some(false)) => CallIntent::Write,
        _ => CallIntent::Destructive,
    })
}

/// Fault of arguments that fit their schema but cannot be read.
const NO_ARGUMENTS: ParamsFault = ParamsFault::Missing { member: "arguments" };
/// Limit of a search's wait for other searches, and the time after which it may be tried again.
const MAX_SEARCH_WAIT: Duration = Duration::from_secs(10);
const SEARCH_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Limit of the bytes of an element's text in a line, and of the schema that a refusal carries.
const MAX_LINE_TEXT_BYTES: usize = 160;
const MAX_SHOWN_SCHEMA_BYTES: usize = 16 << 10;
/// Limit of the bytes of all definitions in one answer.
const MAX_DESCRIBED_BYTES: usize = 256 << 10;
/// Limit of the names suggested for an unknown one.
const MAX_SUGGESTED_NAMES: usize = 3;
