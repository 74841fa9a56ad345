//! The table of endpoints. Routing, the check of roles, the answers to unknown paths and methods, the
//! OpenAPI document and the page `docs/api.md` are made from it.

use std::pin::Pin;

use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::admin::audit_log::AuditPage;
use crate::admin::{
    ConfigPlan, RefreshReport, ReloadAnswer, ReloadRequest, ServerStatus, Status, VersionDocument,
};
use crate::config::AdminRole::{self, Admin, Operator, Viewer};
use crate::pipeline::{CallExplanation, CallQuery, OperatorCall, OperatorCallReport};
use crate::snapshot::TrialReport;
use crate::telemetry::CallOutcome;

use super::request::{EndpointAnswer, EndpointRequest};
use super::resources::audit;
use super::resources::calls::{self, CallDetail, CallsPage};
use super::resources::catalog::{self, CatalogPage};
use super::resources::configuration::{
    self, ApplyRequest, ConfigurationPage, PlanRequest, RollbackRequest, VersionsPage,
};
use super::resources::definition_scan::{self, ScanReport};
use super::resources::definitions::{self, Approval, ApprovalReport, PendingPage, RejectionReport};
use super::resources::log::{self, LogLineDocument, LogPage};
use super::resources::servers::history::{self, FaultsPage, OutputPage};
use super::resources::servers::trials::{self, TrialArguments};
use super::resources::servers::{self, ServersPage};
use super::resources::tools::{self, ToolListing, ToolNames};
use super::resources::usage::activity::{self, Activity};
use super::resources::usage::clients::{self, ClientsPage, SessionStatus};
use super::resources::usage::logins::{self, LoginsPage, RevokedLogin};
use super::{openapi, resources};

/// An endpoint.
#[derive(Clone, Copy)]
pub(super) struct ApiEndpoint {
    /// Its method.
    pub(super) method: ApiMethod,
    /// Its path below [`API_PATH`](super::API_PATH), with parameters in braces.
    pub(super) path: &'static str,
    /// The least role.
    pub(super) role: AdminRole,
    /// A sentence for people.
    pub(super) summary: &'static str,
    /// The parameters of path and query.
    pub(super) parameters: &'static [EndpointParameter],
    /// Writes the schema of the body; `None` if there is none.
    pub(super) body: Option<WriteSchema>,
    /// True if the body may be missing.
    pub(super) is_body_optional: bool,
    /// Writes the schema of the answer.
    pub(super) response: WriteSchema,
    /// Answers a request.
    pub(super) answer: AnswerRequest,
    /// True if each request is recorded with its operator.
    pub(super) is_recorded: bool,
    /// True if refusals of an endpoint without such records are recorded.
    pub(super) are_refusals_recorded: bool,
    /// The media type of the answer; events have the answer's schema each.
    pub(super) media: &'static str,
}

/// Writes the schema of a type.
pub(super) type WriteSchema = fn(&mut SchemaGenerator) -> Schema;

/// Answers a request.
type AnswerRequest = fn(EndpointRequest) -> Pin<Box<dyn Future<Output = EndpointAnswer> + Send>>;

/// The methods of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApiMethod {
    /// Reads.
    Get,
    /// Acts.
    Post,
    /// Removes.
    Delete,
}

/// A parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndpointParameter {
    /// Its name.
    pub(super) name: &'static str,
    /// Its place.
    pub(super) place: ArgumentPlace,
    /// The form of its values.
    pub(super) form: ArgumentForm,
    /// Its meaning.
    pub(super) meaning: &'static str,
}

/// Forms of the values of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgumentForm {
    /// Any text.
    Text,
    /// A whole number.
    Count,
    /// A time (RFC 3339).
    Time,
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// Places of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgumentPlace {
    /// A segment of the path.
    Path,
    /// The query; always optional.
    Query,
}

impl ApiMethod {
    /// Returns the method of a request; `None` for one that no endpoint has. `HEAD` is answered like
    /// `GET`, without the body.
    pub(super) fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET | Method::HEAD => Some(Self::Get),
            Method::POST => Some(Self::Post),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }

    /// Returns the name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

impl ApiEndpoint {
    const fn get(path: &'static str, summary: &'static str) -> Self {
        Self {
            method: ApiMethod::Get,
            path,
            role: Viewer,
            summary,
            parameters: &[],
            body: None,
            is_body_optional: false,
            response: schema_of::<serde_json::Value>,
            answer: |_| Box::pin(async { Err(super::unknown_path()) }),
            is_recorded: false,
            are_refusals_recorded: false,
            media: "application/json",
        }
    }

    const fn post(path: &'static str, summary: &'static str) -> Self {
        let read = Self::get(path, summary);
        Self { method: ApiMethod::Post, role: Operator, is_recorded: true, ..read }
    }

    /// An endpoint with a body that changes nothing.
    const fn evaluate(path: &'static str, summary: &'static str) -> Self {
        Self { is_recorded: false, ..Self::post(path, summary) }
    }

    /// An endpoint that answers with events as they happen.
    const fn watch(path: &'static str, summary: &'static str) -> Self {
        Self { media: "text/event-stream", ..Self::get(path, summary) }
    }

    const fn delete(path: &'static str, summary: &'static str) -> Self {
        Self { method: ApiMethod::Delete, ..Self::post(path, summary) }
    }

    /// Sets the parameters.
    const fn takes(self, parameters: &'static [EndpointParameter]) -> Self {
        Self { parameters, ..self }
    }

    /// Has refused requests recorded; others have records of their own.
    const fn records_refusals(self) -> Self {
        Self { are_refusals_recorded: true, ..self }
    }

    /// Sets the least role.
    const fn needs(self, role: AdminRole) -> Self {
        Self { role, ..self }
    }

    /// Sets the type of the body.
    const fn reads<T: JsonSchema>(self) -> Self {
        Self { body: Some(schema_of::<T>), ..self }
    }

    /// Sets the type of a body that may be missing.
    const fn may_read<T: JsonSchema>(self) -> Self {
        Self { is_body_optional: true, ..self.reads::<T>() }
    }

    /// Sets the type of the answer, and the function that answers.
    const fn answers<T: JsonSchema>(self, answer: AnswerRequest) -> Self {
        Self { response: schema_of::<T>, answer, ..self }
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Every endpoint, in the order of the documents.
pub(super) const API_ENDPOINTS: &[ApiEndpoint] = &[
    ApiEndpoint::get("/openapi.json", "This API, as an OpenAPI 3.1 document")
        .answers::<serde_json::Value>(|_| Box::pin(async { openapi::answer_document() })),
    ApiEndpoint::get("/status", "Everything about servers and configuration, and all findings")
        .answers::<Status>(|request| {
        Box::pin(async move { resources::overview::answer_status(&request) })
    }),
    ApiEndpoint::get("/activity", "Totals since the start, and current levels: two give rates")
        .answers::<Activity>(|it| Box::pin(async move { activity::show_activity(&it) })),
    ApiEndpoint::get("/servers", "Every server")
        .answers::<ServersPage>(|it| Box::pin(async move { servers::list_servers(&it) })),
    ApiEndpoint::get("/servers/{server}", "A server")
        .takes(&[SERVER_PARAMETER])
        .answers::<ServerStatus>(|it| Box::pin(async move { servers::show_server(&it) })),
    ApiEndpoint::post(
        "/servers/{server}/restart",
        "Starts a server anew. The new one takes over once it is ready or has failed; calls in \
         flight finish at the old one",
    )
    .takes(&[SERVER_PARAMETER, WAIT_PARAMETER])
    .answers::<ServerStatus>(|it| Box::pin(servers::restart_server(it))),
    ApiEndpoint::post(
        "/servers/{server}/disable",
        "Removes a server's elements from the catalog, and ends it after its calls in flight. It \
         stays disabled over reloads and, with `gateway.state_dir`, restarts of the gateway",
    )
    .takes(&[SERVER_PARAMETER])
    .answers::<ServerStatus>(|it| Box::pin(servers::disable_server(it))),
    ApiEndpoint::post("/servers/{server}/enable", "Starts a server that was disabled")
        .takes(&[SERVER_PARAMETER, WAIT_PARAMETER])
        .answers::<ServerStatus>(|it| Box::pin(servers::enable_server(it))),
    ApiEndpoint::post(
        "/servers/{server}/test",
        "Starts a server apart from the running one, lists it, and calls a tool if one is named \
         (role admin)",
    )
    .takes(&[SERVER_PARAMETER, TESTED_TOOL])
    .may_read::<TrialArguments>()
    .answers::<TrialReport>(|it| Box::pin(trials::test_server(it))),
    ApiEndpoint::get("/servers/{server}/faults", "The last faults of a server, with their counts")
        .takes(&[SERVER_PARAMETER])
        .answers::<FaultsPage>(|it| Box::pin(async move { history::list_faults(&it) })),
    ApiEndpoint::get(
        "/servers/{server}/output",
        "The last lines that a server's processes wrote to standard error",
    )
    .needs(Operator)
    .takes(&[SERVER_PARAMETER])
    .answers::<OutputPage>(|it| Box::pin(async move { history::list_output(&it) })),
    ApiEndpoint::get(
        "/catalog",
        "Every tool, prompt, resource and template, with its names, tokens and profiles, and the \
         reasons that it is held or hidden",
    )
    .answers::<CatalogPage>(|it| Box::pin(catalog::list_elements(it))),
    ApiEndpoint::get("/tools", "The lists of tools that clients get, with signatures and tokens")
        .takes(&[PROFILE_PARAMETER])
        .answers::<ToolListing>(|it| Box::pin(tools::list_tools(it))),
    ApiEndpoint::get("/tools/names", "The public names of all tools")
        .answers::<ToolNames>(|it| Box::pin(async move { tools::list_names(&it) })),
    ApiEndpoint::get(
        "/scan",
        "Scans every definition, also approved ones and those of trusted servers",
    )
    .answers::<ScanReport>(|it| Box::pin(definition_scan::scan_definitions(it))),
    ApiEndpoint::get(
        "/clients",
        "Every client with the rest of its limits and its refusals, the open sessions of Legacy \
         clients, and the Modern clients of the last hour",
    )
        .answers::<ClientsPage>(|it| Box::pin(async move { clients::list_clients(&it) })),
    ApiEndpoint::delete(
        "/sessions/{session}",
        "Ends a session with its calls and streams, or the streams of a Modern client, which may open \
         new ones",
    )
        .takes(&[SESSION_PARAMETER])
        .answers::<SessionStatus>(|it| Box::pin(async move { clients::end_session(&it) })),
    ApiEndpoint::get("/logins", "Every login at a server, without its tokens")
        .answers::<LoginsPage>(|it| Box::pin(async move { logins::list_logins(&it) })),
    ApiEndpoint::delete(
        "/logins/{login}",
        "Revokes a login at its authorization server, deletes it, and ends the sessions that use it",
    )
    .takes(&[LOGIN_PARAMETER])
    .answers::<RevokedLogin>(|it| Box::pin(logins::revoke_login(it))),
    ApiEndpoint::get("/definitions", "Every definition that waits for approval, with its changes")
        .answers::<PendingPage>(|it| Box::pin(definitions::list_pending(it))),
    ApiEndpoint::post("/servers/{server}/definitions/approve", "Approves forms by their digests")
        .needs(Admin)
        .takes(&[SERVER_PARAMETER])
        .reads::<Approval>()
        .answers::<ApprovalReport>(|it| Box::pin(definitions::approve_forms(it))),
    ApiEndpoint::post(
        "/servers/{server}/definitions/reject",
        "Rejects forms by their digests: they stay held, and are not reported any more",
    )
    .needs(Admin)
    .takes(&[SERVER_PARAMETER])
    .reads::<Approval>()
    .answers::<RejectionReport>(|it| Box::pin(definitions::reject_forms(it))),
    ApiEndpoint::post("/servers/{server}/refresh", "Lists a server anew, and reports the changes")
        .takes(&[SERVER_PARAMETER, REFRESH_CLIENT])
        .answers::<RefreshReport>(|request| Box::pin(resources::servers::refresh_server(request))),
    ApiEndpoint::get("/calls", "Recent calls, the newest first, without arguments and results")
        .takes(&[
            SERVER_FILTER,
            CLIENT_FILTER,
            OUTCOME_FILTER,
            SINCE_FILTER,
            PAGE_LIMIT,
            PAGE_BEFORE,
        ])
        .answers::<CallsPage>(|it| Box::pin(async move { calls::list_calls(&it) })),
    ApiEndpoint::watch("/calls/live", "Each call as it ends, with its steps, as an event stream")
        .takes(&[SERVER_FILTER, CLIENT_FILTER, OUTCOME_FILTER, SINCE_FILTER, PAST_LIMIT])
        .answers::<CallDetail>(|it| Box::pin(async move { calls::watch_calls(&it) })),
    ApiEndpoint::get("/calls/{id}", "A recent call, with the times of its steps")
        .takes(&[CALL_PARAMETER])
        .answers::<CallDetail>(|it| Box::pin(async move { calls::show_call(&it) })),
    ApiEndpoint::get(
        "/log",
        "The last lines of the log, with the role `operator` also those of servers' standard error",
    )
        .takes(&[SERVER_FILTER, LEVEL_FILTER, SINCE_FILTER, PAGE_LIMIT, PAGE_BEFORE])
        .answers::<LogPage>(|it| Box::pin(async move { log::list_lines(&it) })),
    ApiEndpoint::watch(
        "/log/live",
        "Each line of the log as it is written, as an event stream; those of servers' standard error \
         with the role `operator`",
    )
        .takes(&[SERVER_FILTER, LEVEL_FILTER, SINCE_FILTER, PAST_LIMIT])
        .answers::<LogLineDocument>(|it| Box::pin(async move { log::watch_lines(it) })),
    ApiEndpoint::get("/configuration", "The running configuration, and its file on disk")
        .answers::<ConfigurationPage>(|it| Box::pin(configuration::show_configuration(it))),
    ApiEndpoint::evaluate(
        "/configuration/plan",
        "The consequences of the configuration file, or of another text",
    )
    .reads::<PlanRequest>()
    .answers::<ConfigPlan>(|it| Box::pin(configuration::plan_reload(it))),
    ApiEndpoint::post("/configuration/reload", "Reads the file again, or applies exactly one plan")
        .needs(Admin)
        .reads::<ReloadRequest>()
        .answers::<ReloadAnswer>(|it| Box::pin(configuration::reload(it))),
    ApiEndpoint::post("/configuration/apply", "Replaces the file by the text of a plan")
        .needs(Admin)
        .reads::<ApplyRequest>()
        .answers::<ReloadAnswer>(|it| Box::pin(configuration::apply_text(it))),
    ApiEndpoint::get("/configuration/history", "The last versions of the file that were applied")
        .answers::<VersionsPage>(|it| Box::pin(configuration::list_versions(it))),
    ApiEndpoint::get("/configuration/history/{version}", "A version, with its text and changes")
        .needs(Admin)
        .takes(&[VERSION_PARAMETER])
        .answers::<VersionDocument>(|it| Box::pin(configuration::show_version(it))),
    ApiEndpoint::post(
        "/configuration/rollback/{version}",
        "Replaces the file by a version, as its plan shows",
    )
    .needs(Admin)
    .takes(&[VERSION_PARAMETER])
    .reads::<RollbackRequest>()
    .answers::<ReloadAnswer>(|it| Box::pin(configuration::roll_back(it))),
    // The call has a record of its own, and ends with the connection of its operator.
    ApiEndpoint::evaluate(
        "/calls",
        "Makes a call, as the operator or with the profile, rules and limits of a client (role \
         `admin`)",
    )
    .records_refusals()
    .reads::<OperatorCall>()
    .answers::<OperatorCallReport>(|request| {
        Box::pin(resources::operator_calls::make_call(request))
    }),
    ApiEndpoint::get(
        "/audit",
        "Records of the audit log, the newest first; each page searches at most 32 MiB",
    )
    .needs(Operator)
    .takes(AUDIT_FILTER)
    .answers::<AuditPage>(|it| Box::pin(audit::search_records(it))),
    ApiEndpoint::watch(
        "/audit/live",
        "Each record of the audit log as it is written, as an event stream; past ones come from the \
         newest 32 MiB. A record beyond 64 KiB counts as missed",
    )
    .needs(Operator)
    .takes(LIVE_AUDIT_FILTER)
    .answers::<serde_json::Value>(|it| Box::pin(audit::watch_records(it))),
    ApiEndpoint::evaluate("/why", "Evaluates a call against every check without making it")
        .reads::<CallQuery>()
        .answers::<CallExplanation>(|request| {
            Box::pin(resources::explanations::explain_call(request))
        }),
];

const SERVER_PARAMETER: EndpointParameter = path_parameter("server", "its name");
const PROFILE_PARAMETER: EndpointParameter =
    query_parameter("profile", "the profile; by default all");
const WAIT_PARAMETER: EndpointParameter = query_parameter(
    "wait",
    "`false` answers before the server is ready or has failed; by default `true`",
)
.with_form(ArgumentForm::Flag);
const TESTED_TOOL: EndpointParameter =
    query_parameter("tool", "the server's own name of a tool to call; by default none is called");

const AUDIT_FILTER: &[EndpointParameter] = &[
    query_parameter("id", "the id of a record"),
    AUDIT_CLIENT,
    AUDIT_TOOL,
    AUDIT_SERVER,
    AUDIT_DECISION,
    AUDIT_KIND,
    query_parameter("since", "the earliest time").with_form(ArgumentForm::Time),
    query_parameter("until", "the latest time").with_form(ArgumentForm::Time),
    query_parameter("after", "only records with a higher `seq`").with_form(ArgumentForm::Count),
    query_parameter("limit", "1 to 1000 records; by default 100").with_form(ArgumentForm::Count),
    query_parameter("cursor", "`next` of the page before"),
];

const LIVE_AUDIT_FILTER: &[EndpointParameter] =
    &[AUDIT_CLIENT, AUDIT_TOOL, AUDIT_SERVER, AUDIT_DECISION, AUDIT_KIND, SINCE_FILTER, PAST_LIMIT];

const AUDIT_CLIENT: EndpointParameter =
    query_parameter("client", "the principal, or the name of an operator");
const AUDIT_TOOL: EndpointParameter =
    query_parameter("tool", "the public or native name of the tool");
const AUDIT_SERVER: EndpointParameter = query_parameter("server", "the server");
const AUDIT_DECISION: EndpointParameter = query_parameter(
    "decision",
    "`allow`, `deny`, `confirm`, `none`, or the outcome of an operation",
);
const AUDIT_KIND: EndpointParameter = query_parameter("kind", "the event, or the operation");

const VERSION_PARAMETER: EndpointParameter =
    path_parameter("version", "its number in the history").with_form(ArgumentForm::Count);
const SESSION_PARAMETER: EndpointParameter =
    path_parameter("session", "`session` from the list of clients");
const LOGIN_PARAMETER: EndpointParameter =
    path_parameter("login", "`login` from the list of logins");
const REFRESH_CLIENT: EndpointParameter =
    query_parameter("client", "the client whose lists are requested; by default all");
const CALL_PARAMETER: EndpointParameter = path_parameter("id", "its `id`");
const SERVER_FILTER: EndpointParameter = query_parameter("server", "only those of this server");
const CLIENT_FILTER: EndpointParameter = query_parameter("client", "only those of this client");
const OUTCOME_FILTER: EndpointParameter =
    query_parameter("outcome", "only those with this outcome")
        .with_form(ArgumentForm::Word(&CallOutcome::LABELS));
const LEVEL_FILTER: EndpointParameter =
    query_parameter("level", "only those of this level (`error`, `warn`, `info`, …) and above")
        .with_form(ArgumentForm::Word(&log::LEVEL_NAMES));
const SINCE_FILTER: EndpointParameter =
    query_parameter("since", "only those from this time on").with_form(ArgumentForm::Time);
const PAGE_LIMIT: EndpointParameter =
    query_parameter("limit", "the number of records, at most 1000; by default 100")
        .with_form(ArgumentForm::Count);
const PAGE_BEFORE: EndpointParameter =
    query_parameter("before", "only those before the one with this number")
        .with_form(ArgumentForm::Count);
const PAST_LIMIT: EndpointParameter =
    query_parameter("limit", "the number of past records at the beginning; by default none")
        .with_form(ArgumentForm::Count);

const fn path_parameter(name: &'static str, meaning: &'static str) -> EndpointParameter {
    let place = ArgumentPlace::Path;
    EndpointParameter { name, place, form: ArgumentForm::Text, meaning }
}

const fn query_parameter(name: &'static str, meaning: &'static str) -> EndpointParameter {
    EndpointParameter { place: ArgumentPlace::Query, ..path_parameter(name, meaning) }
}

impl EndpointParameter {
    /// Sets the form of its values.
    const fn with_form(self, form: ArgumentForm) -> Self {
        Self { form, ..self }
    }
}
