//! Decisions of rules, as tables.

mod names;
mod parts;
mod requests;
mod spelled;
mod types;
mod uri_identity;

use std::sync::Arc;

use serde_json::json;

use crate::call::{Call, Context, Grants, Params, Principal, ProfileName, PublicName, ServerName};
use crate::catalog::{
    CatalogElement, ElementBasis, ElementFilter as _, HeaderRules, Kind, Tool, ToolEntry,
};
use crate::config::{Config, ConfigSource, SystemEnvironment};
use crate::mcp::Method;
use crate::upstream::tests::call;

use super::decision::Judgement;
use super::values::facts::RequestFacts;
use super::{AccessDecision, Authorization, RequestedElement};
use crate::policy::CallTarget;

fn rules(text: &str) -> Arc<Authorization> {
    let bytes = text.as_bytes().to_vec();
    let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
    let config = Config::read(&source, &SystemEnvironment).unwrap_or_else(|it| panic!("{it}"));
    Authorization::compile(&config).unwrap()
}

fn caller(name: &str, groups: &[&str], scopes: &[&str]) -> Context {
    let shared = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
    let claims = json!({ "level": 3, "team": { "name": "web" } });
    let claims = claims.as_object().cloned().unwrap();
    let grants =
        Grants { groups: shared(groups), scopes: shared(scopes), claims, ..Grants::default() };
    let principal = match name {
        "anonymous" => Principal::Anonymous,
        name => Principal::Client(name.into()),
    };
    Context { principal, grants: Some(Arc::new(grants)), ..call("t").context }
}

/// Decides about an element by a rule set: the rule's index, if it allows or denies.
fn decide(
    rules: &Arc<Authorization>,
    context: &Context,
    element: (Kind, &str, &str),
) -> AccessDecision {
    let (kind, server, public) = element;
    let server = ServerName::new(server).unwrap();
    let (native, tool, basis) = (public, None, ElementBasis::Itself);
    let element = CatalogElement { kind, server: Some(&server), public, native, tool, basis };
    let Call { method, params, .. } = call("t");
    let facts = RequestFacts::new(&method, params.arguments(), context);
    rules.rights_of(context).judge_call(&facts, &element).decision
}

const ALLOWED: fn(usize) -> AccessDecision = |rule| AccessDecision::Allowed { rule: Some(rule) };
const DENIED: fn(usize) -> AccessDecision = |rule| AccessDecision::Denied { rule: Some(rule) };
const BY_DEFAULT: AccessDecision = AccessDecision::Denied { rule: None };

#[test]
fn each_condition_decides_and_a_denial_wins() {
    let rules = rules(
        r#"
        [policy.rules.admins]
        groups = ["admin*"]
        [policy.rules.ci]
        principals = ["ci", "ci-*"]
        servers = ["git"]
        tools = ["git__read_*"]
        [policy.rules.never]
        effect = "deny"
        tools = ["*__delete_*"]
        [policy.rules.docs]
        scopes = ["docs:read"]
        resources = ["mcp://files/docs/*"]
        prompts = ["greet"]
        [policy.rules.desk]
        profiles = ["desk"]
        principals = ["anonymous"]
        "#,
    );
    let ci = caller("ci-7", &[], &[]);
    let admin = caller("ann", &["x", "admins"], &[]);
    let reader = caller("bob", &[], &["docs:read"]);
    let anyone = caller("anonymous", &[], &[]);
    let mut desk = anyone.clone();
    desk.endpoint.profile = ProfileName::new("desk").ok();
    let (tools, prompts, resources) = (Kind::Tools, Kind::Prompts, Kind::Resources);
    for (context, element, expected) in [
        (&ci, (tools, "git", "git__read_file"), ALLOWED(1)),
        (&ci, (tools, "other", "git__read_file"), BY_DEFAULT),
        (&ci, (tools, "git", "git__write"), BY_DEFAULT),
        (&ci, (tools, "git", "git__delete_x"), DENIED(2)),
        // A rule about tools applies to tools alone.
        (&ci, (prompts, "git", "git__read_file"), BY_DEFAULT),
        (&admin, (tools, "git", "git__write"), ALLOWED(0)),
        (&admin, (resources, "git", "mcp://git/x"), ALLOWED(0)),
        (&admin, (tools, "git", "git__delete_x"), DENIED(2)),
        (&reader, (resources, "files", "mcp://files/docs/a"), ALLOWED(3)),
        (&reader, (Kind::Templates, "files", "mcp://files/docs/{a}"), ALLOWED(3)),
        (&reader, (resources, "files", "mcp://files/other"), BY_DEFAULT),
        (&reader, (prompts, "files", "greet"), ALLOWED(3)),
        (&reader, (tools, "files", "greet"), BY_DEFAULT),
        (&anyone, (tools, "git", "x"), BY_DEFAULT),
        (&desk, (tools, "git", "x"), ALLOWED(4)),
        (&desk, (tools, "git", "git__delete_x"), DENIED(2)),
    ] {
        assert_eq!(decide(&rules, context, element), expected, "{element:?}");
    }
}

#[test]
fn an_encoded_uri_escapes_no_denial_and_gains_nothing() {
    let rules = rules(
        r#"
        [policy.rules.all]
        resources = ["mcp://f/public/*", "mcp://f/%70rivate/*"]
        [policy.rules.secret]
        effect = "deny"
        resources = ["mcp://f/public/secret*"]
        "#,
    );
    let context = caller("ann", &[], &[]);
    for (uri, expected) in [
        ("mcp://f/public/a", ALLOWED(0)),
        ("mcp://f/public/a%20b", ALLOWED(0)),
        ("mcp://f/public/secret", DENIED(1)),
        ("mcp://f/public/%73ecret", DENIED(1)),
        ("mcp://f/%70ublic/a", BY_DEFAULT),
        ("mcp://f/%70rivate/a", BY_DEFAULT),
    ] {
        assert_eq!(decide(&rules, &context, (Kind::Resources, "f", uri)), expected, "{uri}");
    }
}

#[test]
fn a_user_interface_goes_with_its_tool_unless_a_rule_denies_it() {
    let rules = rules(
        r#"
        [policy.rules.tool]
        tools = ["s__view"]
        [policy.rules.no]
        effect = "deny"
        resources = ["ui://s/bad"]
        "#,
    );
    let rights = rules.rights_of(&caller("ann", &[], &[]));
    let server = ServerName::new("s").unwrap();
    let shows = |public, basis| {
        let (kind, native, tool) = (Kind::Resources, public, None);
        rights.shows(&CatalogElement { kind, server: Some(&server), public, native, tool, basis })
    };
    assert!(shows("ui://s/good", ElementBasis::Interface));
    assert!(!shows("ui://s/good", ElementBasis::Itself));
    assert!(!shows("ui://s/bad", ElementBasis::Interface));
}

#[test]
fn equal_rights_share_a_view_and_other_rules_do_not() {
    let text = "[policy.rules.a]\ngroups = [\"x\"]\n[policy.rules.b]\neffect = \"deny\"\n";
    let (one, same) = (rules(text), rules(text));
    let other = rules(&text.replace("\"x\"", "\"y\""));
    let [ann, bob] = ["ann", "bob"].map(|name| caller(name, &["x"], &[name]));
    let outsider = caller("eve", &[], &[]);
    assert_eq!(one.rights_of(&ann), same.rights_of(&bob));
    assert_ne!(one.rights_of(&ann), one.rights_of(&outsider));
    assert_eq!(one.rights_of(&outsider), same.rights_of(&outsider));
    // Its applicable rules have the same indexes, but another meaning.
    assert_ne!(one.rights_of(&outsider), other.rights_of(&outsider));
}

#[test]
fn requests_that_name_nothing_need_a_rule_about_the_whole_server() {
    let rules = rules(
        r#"
        [policy.rules.some]
        servers = ["a"]
        tools = ["*"]
        [policy.rules.whole]
        servers = ["b"]
        "#,
    );
    let rights = rules.rights_of(&caller("ann", &[], &[]));
    let shows = |server| rights.shows_unlisted(&ServerName::new(server).unwrap());
    assert_eq!(["a", "b", "c"].map(shows), [false, true, false]);
}

/// Decides about a call of a tool of a server, with these annotations.
fn decide_tool(
    rules: &Arc<Authorization>,
    server: &str,
    annotations: &str,
    arguments: Option<&str>,
) -> AccessDecision {
    judge_tool(rules, server, annotations, arguments).decision
}

fn judge_tool(
    rules: &Arc<Authorization>,
    server: &str,
    annotations: &str,
    arguments: Option<&str>,
) -> Judgement {
    let context = caller("ann", &["web"], &[]);
    let raw =
        format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#);
    let tool = Tool::parse(raw.as_bytes(), HeaderRules::Ignore).unwrap();
    let server = ServerName::new(server).unwrap();
    let public = format!("{server}__t");
    let element = CatalogElement {
        kind: Kind::Tools,
        server: Some(&server),
        public: &public,
        native: "t",
        tool: Some(&tool),
        basis: ElementBasis::Itself,
    };
    let rights = rules.rights_of(&context);
    let Some(arguments) = arguments else {
        return Judgement { decision: rights.decide_listing(&element), fault: None };
    };
    let raw = Some(arguments.as_bytes());
    let facts = RequestFacts::new(&Method::ToolsCall, raw, &context);
    let judged = rights.judge_call(&facts, &element);
    // The same from the outline of a message, and with the results that are settled before a call.
    let params = format!(r#"{{"name":"t","arguments":{arguments}}}"#);
    let params = Params::parse(Some(params.into())).unwrap();
    let call = Call { params, context: context.clone(), ..call("t") };
    let settled = rights.settle(&element);
    for facts in [RequestFacts::of(&call), RequestFacts::of(&call).settled_by(&settled)] {
        assert_eq!(rights.judge_call(&facts, &element), judged, "{arguments}");
    }
    judged
}

#[test]
fn a_condition_about_arguments_decides_when_they_are_there() {
    let rules = rules(
        r#"
        [policy.rules.own]
        when = "arguments.owner == principal.name"
        [policy.rules.large]
        effect = "deny"
        when = "arguments.limit > 100"
        "#,
    );
    for (arguments, expected) in [
        (None, AccessDecision::Depends),
        (Some(r#"{"owner":"ann","limit":1}"#), ALLOWED(0)),
        (Some(r#"{"owner":"ann","limit":1.5}"#), ALLOWED(0)),
        (Some(r#"{"owner":"bob","limit":1}"#), BY_DEFAULT),
        (Some(r#"{"owner":"ann","limit":101}"#), DENIED(1)),
        (Some(r#"{"owner":"ann","limit":100.5}"#), DENIED(1)),
        // A condition that fails to evaluate denies, and allows nothing.
        (Some(r#"{"owner":"ann","limit":"101"}"#), DENIED(1)),
        (Some(r#"{"owner":"ann"}"#), DENIED(1)),
        (Some(r#"{"limit":1}"#), BY_DEFAULT),
        (Some(r#"{"owner":"ann","limit":1,"limit":500}"#), DENIED(1)),
    ] {
        assert_eq!(decide_tool(&rules, "s", "{}", arguments), expected, "{arguments:?}");
    }
}

#[test]
fn annotations_of_an_untrusted_server_open_nothing() {
    let text = r#"
        [servers.good]
        command = "x"
        trusted = true
        [servers.bad]
        command = "x"
        [policy.rules.reads]
        when = "annotations.readOnlyHint && !annotations.destructiveHint"
        [policy.rules.other]
        effect = "deny"
        when = "annotations.openWorldHint && tool.server != 'good'"
        "#;
    let rules = rules(text);
    let harmless = r#"{"readOnlyHint":true,"destructiveHint":false,"openWorldHint":false}"#;
    for (server, annotations, expected) in [
        ("good", harmless, ALLOWED(0)),
        ("good", "{}", BY_DEFAULT),
        ("good", r#"{"readOnlyHint":true}"#, BY_DEFAULT),
        ("bad", harmless, DENIED(1)),
    ] {
        let decided = decide_tool(&rules, server, annotations, Some("{}"));
        assert_eq!(decided, expected, "{server} {annotations}");
    }
}

#[test]
fn claims_and_groups_are_read_of_the_caller_alone() {
    let rules = rules(
        r#"
        [policy.rules.level]
        when = "claims.level >= 3 && claims.team.name in principal.groups"
        tools = ["s__*"]
        [policy.rules.missing]
        when = "claims.nothing == 1"
        [policy.rules.denies]
        effect = "deny"
        when = "claims.none == 1"
        prompts = ["x"]
        "#,
    );
    assert_eq!(decide_tool(&rules, "s", "{}", Some("{}")), ALLOWED(0));
    assert_eq!(decide_tool(&rules, "z", "{}", Some("{}")), BY_DEFAULT);
    let element = (Kind::Prompts, "s", "x");
    assert_eq!(decide(&rules, &caller("ann", &[], &[]), element), DENIED(2));
    // Callers with claims that decide the same share a view.
    let [one, two] = ["ann", "bob"].map(|name| rules.rights_of(&caller(name, &["web"], &[])));
    assert_eq!(one, two);
}

#[test]
fn callers_with_other_actors_have_other_rights() {
    // No decision before the element is known: the callers' facts are kept.
    let condition = "item.name == 'x' && 'agent' in principal.actors";
    let rules = rules(&format!("[policy.rules.a]\nwhen = {condition:?}"));
    let acting = |name: &str| {
        let mut context = caller("ann", &[], &[]);
        let claims = json!({ "act": { "sub": "first", "act": { "sub": name } } });
        let claims = claims.as_object().cloned().unwrap();
        context.grants = Some(Arc::new(Grants { claims, ..Grants::default() }));
        context
    };
    let element = (Kind::Prompts, "s", "x");
    assert_eq!(decide(&rules, &acting("agent"), element), ALLOWED(0));
    assert_eq!(decide(&rules, &acting("other"), element), BY_DEFAULT);
    let rights = |name| rules.rights_of(&acting(name));
    assert_eq!(rights("agent"), rights("agent"));
    assert_ne!(rights("agent"), rights("other"));
}

#[test]
fn a_rule_about_tools_says_nothing_of_other_elements() {
    let rules = rules(
        r#"
        [policy.rules.all]
        [policy.rules.bad]
        effect = "deny"
        when = "tool.name.startsWith('s__')"
        [policy.rules.arguments]
        effect = "deny"
        when = "arguments.x == 1"
        "#,
    );
    let ann = caller("ann", &[], &[]);
    assert_eq!(decide_tool(&rules, "s", "{}", None), DENIED(1));
    assert_eq!(decide(&rules, &ann, (Kind::Resources, "s", "mcp://s/x")), ALLOWED(0));
    assert_eq!(decide_tool(&rules, "z", "{}", None), AccessDecision::Depends);
}

#[test]
fn arguments_that_cost_too_much_are_not_evaluated_and_allow_nothing() {
    let rules = rules(
        r#"
        [policy.rules.pairs]
        when = "arguments.l.all(x, arguments.l.all(y, x.startsWith(y) || true))"
        "#,
    );
    let list = |count: usize| json!({ "l": vec!["text"; count] }).to_string();
    assert_eq!(decide_tool(&rules, "s", "{}", Some(&list(20))), ALLOWED(0));
    let before = crate::clock::thread_cpu_time();
    assert_eq!(decide_tool(&rules, "s", "{}", Some(&list(20_000))), BY_DEFAULT);
    let taken = crate::clock::thread_cpu_time().saturating_sub(before);
    assert!(taken < std::time::Duration::from_secs(2), "{taken:?}");
}

/// A call of the tool `t` with these arguments, and a view's decisions about the tool by these
/// rules.
fn known_call(rules: &Arc<Authorization>, name: &str, arguments: &str) -> (Call, CallTarget) {
    let server = ServerName::new("s").unwrap();
    let mut target = crate::upstream::tests::target(&server, "t");
    let tool = Arc::clone(target.tool.as_ref().unwrap());
    let public = PublicName::new("s__t");
    let entry = ToolEntry { public, server, tool, is_redescribed: false, results: None };
    let params = format!(r#"{{"name":"s__t","arguments":{arguments}}}"#);
    let params = Params::parse(Some(params.into())).unwrap();
    let call = Call { params, context: caller(name, &[], &[]), ..call("t") };
    let rights = rules.rights_of(&call.context);
    target.requested = Some(Arc::new(RequestedElement::tool_for(&rights, &entry)));
    (call, target)
}

#[test]
fn decisions_settled_by_a_view_are_immediate_and_use_the_same_rules_alone() {
    let open = rules("[policy.rules.all]");
    let closed = rules("[policy.rules.none]\nprincipals = [\"nobody\"]");
    let (call, target) = known_call(&open, "ann", "{}");
    assert!(matches!(open.decide_at_once(&call, target.access()), Some(Ok(()))));
    assert!(
        closed.decide_at_once(&call, target.access()).is_none(),
        "other rules decide for themselves"
    );
}

#[test]
fn small_arguments_are_judged_at_once_and_large_ones_are_not() {
    let own = rules("[policy.rules.own]\nwhen = \"arguments.owner == principal.name\"");
    let at_once = |arguments: &str| {
        let (call, target) = known_call(&own, "ann", arguments);
        own.decide_at_once(&call, target.access()).map(|decided| decided.is_ok())
    };
    assert_eq!(at_once(r#"{"owner":"ann"}"#), Some(true));
    assert_eq!(at_once(r#"{"owner":"bob"}"#), Some(false));
    assert_eq!(at_once(&format!(r#"{{"owner":"{}"}}"#, "a".repeat(2000))), None);
    let loops = rules("[policy.rules.own]\nwhen = \"arguments.all(a, arguments.all(b, a != b))\"");
    let (call, target) = known_call(&loops, "ann", "{}");
    assert!(
        loops.decide_at_once(&call, target.access()).is_none(),
        "its cost depends on the arguments"
    );
}
