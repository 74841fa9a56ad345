use super::*;
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::snapshot::TokenReport;

struct Told(Status);

#[async_trait]
impl StatusSource for Told {
    fn status(&self) -> Status {
        self.0.clone()
    }

    fn definitions(&self) -> Vec<DefinitionDigestStatus> {
        Vec::new()
    }

    async fn tools(&self) -> ToolsPage {
        ToolsPage::of(&TokenReport::default())
    }

    fn metrics(&self) -> String {
        "# EOF\n".to_owned()
    }

    async fn refresh(
        &self,
        _: &str,
        _: Option<&str>,
    ) -> Result<RefreshReport, RefreshRequestError> {
        Err(RefreshRequestError::UnknownServer)
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn server(name: &str, state: ServerState) -> ServerStatus {
    ServerStatus {
        name: name.to_owned(),
        transport: ServerTransport::Stdio,
        start: ServerStart::Eager,
        era: Some(ServerEra::Legacy),
        eras: vec![ServerEra::Legacy],
        protocol_version: Some("2025-06-18".to_owned()),
        server_info: Some(ServerInfo { name: "Files".to_owned(), version: "1".to_owned() }),
        state,
        since: at(2),
        disabled: None,
        first_verdict_at: (state != ServerState::Connecting).then(|| at(2)),
        last_error: None,
        login: None,
        own_accounts_only: false,
        tools: 3,
        tool_tokens: None,
        restarts: 0,
        in_flight: 0,
        queued: 0,
        breaker: None,
        pid: Some(42),
        replica: None,
        next_retry_at: None,
        cure: None,
        warnings: Vec::new(),
        definitions: DefinitionStatus {
            trusted: false,
            pins: "warn",
            scan: "hold",
            fault: None,
            held: 0,
            rejected: 0,
            reported: 0,
            found: Vec::new(),
        },
        stdout_lines: 0,
        lists_by_capabilities: ListDependenceStatus {
            verdict: DependenceFinding::No,
            since: Some(at(2)),
        },
        capabilities: None,
        instance_count: 0,
        instances: Vec::new(),
    }
}

fn lazy(name: &str, state: ServerState) -> ServerStatus {
    ServerStatus { start: ServerStart::Lazy, first_verdict_at: None, ..server(name, state) }
}

fn status(servers: Vec<ServerStatus>) -> Status {
    Status {
        version: "0.1.0",
        now: at(5),
        expiries: Vec::new(),
        findings: Vec::new(),
        started_at: at(0),
        state: GatewayState::Ready,
        configuration: Some(ConfigurationStatus {
            path: "gateway.toml".to_owned(),
            digest: "c0ffee".to_owned(),
            loaded_at: at(1),
            generation: 1,
            last_reload: None,
        }),
        catalog: CatalogStatus {
            tools: 3,
            prompts: 2,
            resources: 1,
            templates: 0,
            skills: 0,
            digest: "beef".to_owned(),
            etags: [("tools", "\"0f\"".to_owned())].into(),
            changed_at: Some(at(2)),
        },
        clients: Vec::new(),
        sessions: 1,
        issuers: Vec::new(),
        audit: None,
        sinks: Vec::new(),
        cluster: None,
        streams: 2,
        connections: 3,
        servers,
        profiles: Vec::new(),
        embeddings: None,
    }
}

#[test]
fn probes_and_metrics_of_this_machine_need_no_credential_and_nothing_else_does() {
    let listener = |local: &str| {
        let peer = crate::call::PeerAddress {
            addr: "192.0.2.1:1".parse().unwrap(),
            local: local.parse().unwrap(),
            tls: false,
            stdio: false,
        };
        AdminEntrance::Listener(peer)
    };
    for (local, is_near) in [
        ("127.0.0.1:8081", true),
        ("127.9.9.9:8081", true),
        ("[::1]:8081", true),
        ("[::ffff:127.0.0.1]:8081", true),
        ("10.1.2.3:8081", false),
        ("[2001:db8::1]:8081", false),
        ("[::ffff:10.1.2.3]:8081", false),
    ] {
        let entrance = listener(local);
        assert_eq!(entrance.is_loopback(), is_near, "{local}");
        for path in AdminPage::PATHS.into_iter().chain(["/metrics/", "/other"]) {
            let is_open = match path {
                "/healthz" | "/readyz" => true,
                "/metrics" => is_near,
                _ => false,
            };
            assert_eq!(is_open_page(entrance, path), is_open, "{local} {path}");
        }
    }
}

/// Sends a request. Returns the status, headers and body of the answer.
fn ask(method: &str, path: &str, status: Status) -> (http::response::Parts, String) {
    let request = http::Request::builder().method(method).uri(path).body(()).unwrap();
    let told = Told(status);
    let answer = futures_util::FutureExt::now_or_never(respond(&request, &told));
    let (head, mut body) = answer.unwrap().into_parts();
    let frame = futures_util::FutureExt::now_or_never(body.frame()).unwrap();
    let bytes = frame.map_or_else(Bytes::new, |frame| frame.unwrap().into_data().unwrap());
    (head, String::from_utf8(bytes.to_vec()).unwrap())
}

#[test]
fn each_path_answers_in_its_own_media_type_and_is_never_stored() {
    for (path, code, media_type) in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/healthz", 200, "application/json"),
        ("/readyz", 200, "application/json"),
        ("/readyz?verbose", 200, "application/json"),
        ("/status", 200, "application/json"),
        ("/metrics", 200, metrics::CONTENT_TYPE),
        ("/status/", 404, "application/json"),
        ("/mcp", 404, "application/json"),
    ] {
        let (get, body) = ask("GET", path, status(vec![]));
        assert_eq!(get.status, code, "{path}");
        assert_eq!(get.headers[CONTENT_TYPE], media_type, "{path}");
        assert_eq!(get.headers[CACHE_CONTROL], "no-store", "{path}");
        assert_eq!(get.headers[X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
        assert!(!get.headers.contains_key(http::header::ETAG), "{path}");
        assert_eq!(get.headers[CONTENT_LENGTH], body.len().to_string(), "{path}");
    }
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    for path in AdminPage::PATHS {
        let (get, _) = ask("GET", path, status(vec![]));
        let (head, body) = ask("HEAD", path, status(vec![]));
        assert_eq!((head.status, &head.headers), (get.status, &get.headers), "{path}");
        assert_eq!(body, "", "{path}");
    }
}

#[test]
fn other_methods_get_the_list_of_allowed_ones() {
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let (head, _) = ask(method, "/status", status(vec![]));
        assert_eq!(head.status, 405, "{method}");
        assert_eq!(head.headers[ALLOW], "GET, HEAD", "{method}");
    }
}

#[test]
fn an_unknown_path_gets_the_list_of_known_ones() {
    let (_, body) = ask("GET", "/stats", status(vec![]));
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["paths"], json!(AdminPage::PATHS));
}

#[test]
fn every_page_that_is_named_is_there() {
    assert!(AdminPage::PATHS.iter().all(|path| AdminPage::at(path).is_some()));
    assert!(AdminPage::PATHS.iter().skip(1).all(|path| INDEX_PAGE.contains(path)));
}

#[test]
fn the_status_is_json_with_rfc_3339_times_and_lower_case_states() {
    let mut broken = server("files", ServerState::Backoff);
    broken.last_error = Some(LastError { at: at(2), message: "it exited".to_owned() });
    broken.next_retry_at = Some(at(9));
    let (_, body) = ask("GET", "/status", status(vec![broken]));
    let body: Value = serde_json::from_str(&body).unwrap();
    for (pointer, value) in [
        ("/state", json!("ready")),
        ("/started_at", json!("2027-01-15T08:00:00Z")),
        ("/configuration/digest", json!("c0ffee")),
        ("/configuration/last_reload", Value::Null),
        ("/catalog/tools", json!(3)),
        ("/servers/0/transport", json!("stdio")),
        ("/servers/0/era", json!("legacy")),
        ("/servers/0/state", json!("backoff")),
        ("/servers/0/lists_by_capabilities/verdict", json!("no")),
        ("/servers/0/lists_by_capabilities/since", json!("2027-01-15T08:00:02Z")),
        ("/servers/0/last_error/message", json!("it exited")),
        ("/servers/0/next_retry_at", json!("2027-01-15T08:00:09Z")),
    ] {
        assert_eq!(body.pointer(pointer), Some(&value), "{pointer}");
    }
}

#[test]
fn a_rejected_reload_is_reported_with_all_its_faults() {
    let mut status = status(vec![]);
    status.configuration.as_mut().unwrap().last_reload = Some(ReloadStatus {
        at: at(4),
        outcome: metrics::ReloadOutcome::Rejected,
        faults: vec!["gateway.toml:3: servers.a: one".to_owned(), "two".to_owned()],
        losses: Vec::new(),
        accept: None,
    });
    let (_, body) = ask("GET", "/status", status);
    let body: Value = serde_json::from_str(&body).unwrap();
    let reload = &body["configuration"]["last_reload"];
    assert_eq!(reload["outcome"], "rejected");
    assert_eq!(reload["faults"].as_array().unwrap().len(), 2);
}

#[test]
fn a_reload_without_effect_is_a_reason_until_the_next_one() {
    use metrics::ReloadOutcome::{Applied, Refused, Rejected, Unchanged};
    for (outcome, faults, expected) in [
        (Applied, 0, None),
        (Unchanged, 0, None),
        (Rejected, 1, Some("was rejected, it has a fault")),
        (Rejected, 2, Some("was rejected, it has 2 faults")),
        (Refused, 0, Some("was refused, it weakens protection")),
    ] {
        let mut status = status(vec![server("a", ServerState::Ready)]);
        let (faults, losses) = (vec!["the text".to_owned(); faults], Vec::new());
        status.configuration.as_mut().unwrap().last_reload =
            Some(ReloadStatus { at: at(4), outcome, faults, losses, accept: None });
        let reason = |cause| {
            format!("configuration: the reload at 2027-01-15T08:00:04Z {cause}: see /status")
        };
        let reasons = expected.map(reason).into_iter().collect();
        assert_eq!(
            Readiness::of(&status),
            Readiness { ready: true, reasons, cluster: None },
            "{outcome:?}"
        );
    }
}

#[test]
fn a_state_is_written_the_same_in_status_and_in_reasons() {
    use ServerState::{Backoff, Connecting, Failed, Idle, Ready, Stopping};
    for state in [Idle, Connecting, Ready, Backoff, Failed, Stopping] {
        assert_eq!(json!(state), state.as_str());
    }
}

#[test]
fn readiness_waits_for_verdicts_and_forgives_servers_that_are_down() {
    use ServerState::{Backoff, Connecting, Failed, Idle, Ready, Stopping};
    let waking = ServerStatus { first_verdict_at: Some(at(1)), ..server("a", Connecting) };
    let error = LastError { at: at(2), message: "it exited".to_owned() };
    let restarting = ServerStatus { last_error: Some(error), ..waking.clone() };
    let waking_lazily = ServerStatus { start: ServerStart::Lazy, ..restarting.clone() };
    for (name, servers, in_grace, after_grace) in [
        ("no servers", vec![], true, true),
        ("all ready", vec![server("a", Ready), server("b", Ready)], true, true),
        ("one pending", vec![server("a", Ready), server("b", Connecting)], false, true),
        ("one down", vec![server("a", Ready), server("b", Failed)], true, true),
        ("one restarting", vec![restarting.clone(), server("b", Ready)], true, true),
        ("all down", vec![server("a", Backoff), server("b", Failed)], false, false),
        ("all pending", vec![server("a", Connecting)], false, false),
        ("the only one restarting", vec![restarting], false, false),
        ("the only one waking from idleness", vec![waking], true, true),
        ("a lazy one waking after an old error", vec![waking_lazily], true, true),
        ("a lazy one that nobody called", vec![lazy("a", Idle)], true, true),
        ("a lazy one that starts", vec![lazy("a", Connecting)], true, true),
        ("a lazy one beside one down", vec![lazy("a", Idle), server("b", Failed)], true, true),
        (
            "an eager one not begun",
            vec![ServerStatus { first_verdict_at: None, ..server("a", Idle) }],
            false,
            false,
        ),
        ("one on its way out", vec![server("a", Ready), server("b", Stopping)], true, true),
        ("only one on its way out", vec![server("b", Stopping)], true, true),
    ] {
        let early = status(servers);
        let late = Status { now: at(0) + VERDICT_GRACE, ..early.clone() };
        assert_eq!(Readiness::of(&early).ready, in_grace, "{name}, in grace");
        assert_eq!(Readiness::of(&late).ready, after_grace, "{name}, after grace");
    }
}

#[test]
fn a_gateway_that_starts_or_drains_is_not_ready() {
    let running = status(vec![server("a", ServerState::Ready)]);
    for (status, reason) in [
        (Status { state: GatewayState::Starting, ..running.clone() }, "no configuration runs yet"),
        (Status { configuration: None, ..running.clone() }, "no configuration runs yet"),
        (Status { state: GatewayState::Draining, ..running }, "the gateway is draining"),
    ] {
        let (head, body) = ask("GET", "/readyz", status);
        assert_eq!(head.status, 503);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body, json!({ "ready": false, "reasons": [reason] }));
    }
}

#[test]
fn a_reason_names_server_state_and_time_but_no_error() {
    let mut down = server("files", ServerState::Backoff);
    down.since = at(2) + SignedDuration::from_millis(400);
    down.last_error = Some(LastError { at: at(2), message: "it exited with 1".to_owned() });
    let reason = "files: backoff since 2027-01-15T08:00:02Z".to_owned();
    let both = Readiness::of(&status(vec![down.clone(), server("b", ServerState::Ready)]));
    assert_eq!(both, Readiness { ready: true, reasons: vec![reason.clone()], cluster: None });
    let alone = Readiness::of(&status(vec![down]));
    assert_eq!(alone.reasons, ["no server can take calls".to_owned(), reason]);
    assert!(!alone.ready);
}

#[test]
fn a_failing_service_of_vectors_and_failed_instances_are_findings_with_cures() {
    let error = |text: &str| Some(LastError { at: at(3), message: text.to_owned() });
    let instance = |reason: &str, state| InstanceStatus {
        reason: reason.to_owned(),
        era: Some(ServerEra::Legacy),
        owner: InstanceOwner::Client,
        client: Some("ci".to_owned()),
        capabilities: json!({}),
        state,
        since: at(2),
        in_flight: 0,
        pid: None,
        last_error: error("it exited"),
    };
    let mut files = server("files", ServerState::Ready);
    files.instances = vec![
        instance("main", ServerState::Ready),
        instance("client ci's own", ServerState::Failed),
        instance("client ann's own", ServerState::Ready),
    ];
    let mut broken = status(vec![files, server("other", ServerState::Ready)]);
    let mut service = EmbeddingsStatus {
        source: "service",
        dimensions: None,
        vectors: 0,
        waiting: 2,
        error: Some("status 503".to_owned()),
    };
    broken.embeddings = Some(service.clone());
    let found = super::findings::find_findings(&broken);
    let lines: Vec<_> =
        found.iter().map(|it| format!("{}: {} ({})", it.subject, it.text, it.cure)).collect();
    assert_eq!(
        lines,
        [
            "servers.files: an instance does not run (client ci's own): it exited (mend the reason, \
             then trunkline restart files)",
            "search.embeddings: no vectors can be made, and search uses words alone: status 503 \
             (correct the settings of the service, or wait for it; it is asked again)",
        ]
    );
    service.error = None;
    broken.embeddings = Some(service);
    broken.servers[0].instances[1].state = ServerState::Ready;
    assert!(super::findings::find_findings(&broken).is_empty());
}
