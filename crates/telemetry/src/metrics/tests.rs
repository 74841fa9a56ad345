use std::fmt::Write as _;

use trunkline_core::clock;

use super::*;
use crate::SinkReport;

const OK: CallOutcome = CallOutcome::Ok;

/// Metrics with a series in every family.
fn poked() -> (Metrics, Vec<Box<dyn std::any::Any>>) {
    let metrics = Metrics::new("0.0.0");
    let server = metrics.server("SERVER");
    let tool = metrics.tool("SERVER", "TOOL");
    let (client, profile) = (metrics.client("CLIENT"), metrics.profile_metrics("PROFILE"));
    metrics.operation_metrics("METHOD").record_duration(&OK, Duration::ZERO);
    server.operation_metrics("METHOD").record_duration(&OK, Duration::ZERO);
    server.record_session(Duration::ZERO);
    for counts in [&client, &profile] {
        counts.record_call(&OK);
    }
    tool.record_call(&OK);
    metrics.count_error(&CallOutcome::Refused { reason: "rate" });
    metrics.count_limit_refused("LIMIT");
    metrics.count_definitions("files", [1, 1]);
    metrics.count_reload(ReloadOutcome::Applied);
    metrics.event_counts().count(EventFate::Delivered, 1);
    metrics.audit_counts().count(AuditFate::Written, 1);
    metrics.cluster_counts().count_forwarded(ForwardResult::Answered);
    metrics.cluster_counts().count_store_error();
    metrics.cluster_counts().count_revival(RevivalResult::Revived);
    metrics.cluster_counts().count_rate_request();
    metrics.cluster_counts().set_replicas(ReplicaLevels::default());
    let counts = metrics.cluster_counts();
    counts.observe_access(StoreOperation::List, AccessOutcome::Answered, clock::now());
    metrics.sink_levels().replace(&[sink("audit", None)]);
    metrics.expiry_times().replace(vec![expiry("NAME", 1.0)]);
    (metrics, vec![Box::new(server), Box::new(tool), Box::new(client), Box::new(profile)])
}

fn expiry(name: &str, at: f64) -> ExpiryTime {
    ExpiryTime { kind: "certificate", name: name.to_owned(), at }
}

fn sink(name: &'static str, fault: Option<&str>) -> SinkReport {
    SinkReport { sink: name, place: "PLACE".to_owned(), fault: fault.map(str::to_owned) }
}

#[test]
fn a_sink_is_up_or_down_and_has_no_series_once_it_is_removed() {
    let metrics = Metrics::new("0.0.0");
    metrics.sink_levels().replace(&[sink("audit", Some("no space")), sink("events", None)]);
    let text = metrics.encode_text();
    assert!(text.contains("trunkline_sink_up{sink=\"audit\"} 0\n"), "{text}");
    assert!(text.contains("trunkline_sink_up{sink=\"events\"} 1\n"), "{text}");
    metrics.sink_levels().replace(&[sink("audit", None)]);
    let text = metrics.encode_text();
    assert!(text.contains("trunkline_sink_up{sink=\"audit\"} 1\n"), "{text}");
    assert!(!text.contains("sink=\"events\""), "{text}");
}

#[test]
fn an_expiry_has_a_series_until_its_element_is_gone() {
    let metrics = Metrics::new("0.0.0");
    let series = "trunkline_expiry_timestamp_seconds{kind=\"certificate\",name=";
    metrics.expiry_times().replace(vec![expiry("a", 5.0), expiry("b", 9.0), expiry("b", 7.0)]);
    let text = metrics.encode_text();
    assert!(text.contains(&format!("{series}\"a\"}} 5.0\n")), "{text}");
    assert!(text.contains(&format!("{series}\"b\"}} 7.0\n")), "the first to end: {text}");
    metrics.expiry_times().replace(vec![expiry("b", 8.0)]);
    let text = metrics.encode_text();
    assert!(text.contains(&format!("{series}\"b\"}} 8.0\n")) && !text.contains("\"a\""), "{text}");
}

#[test]
fn the_same_names_give_the_same_handle_while_it_is_held() {
    let metrics = Metrics::new("0.0.0");
    let before = metrics.tool("files", "read");
    before.record_call(&OK);
    let after = metrics.tool("files", "read");
    drop(before);
    after.record_call(&OK);
    after.record_call(&CallOutcome::ToolError);
    let text = metrics.encode_text();
    let series = r#"trunkline_tool_calls_total{server="files",tool="read",outcome="#;
    assert!(text.contains(&format!("{series}\"ok\"}} 2\n")), "{text}");
    assert!(text.contains(&format!("{series}\"tool_error\"}} 1\n")), "{text}");
    assert!(!text.contains(&format!("{series}\"failed\"")), "{text}");
}

#[test]
fn a_server_that_is_gone_leaves_with_its_last_holder() {
    let metrics = Metrics::new("0.0.0");
    let server = metrics.server("files");
    server.set_availability(Availability::Up);
    let call = Arc::clone(&server);
    let entered = call.level(ServerMetric::CallsInFlight).enter();
    drop(server);
    let text = metrics.encode_text();
    assert!(text.contains("trunkline_server_up{server=\"files\"} 1\n"), "{text}");
    assert!(text.contains("trunkline_calls_in_flight{server=\"files\"} 1\n"), "{text}");
    drop(entered);
    assert_eq!(call.level(ServerMetric::CallsInFlight).value(), 0);
    drop(call);
    assert!(!metrics.encode_text().contains("files"));
}

#[test]
fn names_do_not_pile_up_without_scrapes() {
    let entries = Entries::<u8>::default();
    let held = entries.get_or_insert(&["held"], || 1);
    for round in 0..1000 {
        entries.get_or_insert(&[&round.to_string()], || 0);
    }
    assert!(format!("{entries:?}").matches("(Weak)").count() <= 64);
    assert!(Arc::ptr_eq(&held, &entries.get_or_insert(&["held"], || 2)));
}

#[test]
fn a_hostile_name_stays_inside_its_label() {
    let metrics = Metrics::new("0.0.0");
    let tool = metrics.tool("files", "a\"} 1\nforged{x=\"\\");
    tool.record_call(&OK);
    let text = metrics.encode_text();
    assert!(text.contains(r#"tool="a\"} 1\nforged{x=\"\\",outcome="ok"} 1"#), "{text}");
}

#[test]
fn durations_are_separated_by_method_and_outcome() {
    let (metrics, _held) = poked();
    let failed = CallOutcome::Failed { code: -32603, label: "timeout" };
    metrics.operation_metrics("tools/call").record_duration(&failed, Duration::from_millis(30));
    metrics.count_error(&failed);
    let text = metrics.encode_text();
    for line in [
        r#"mcp_server_operation_duration_seconds_bucket{le="0.02",method="tools/call",outcome="failed"} 0"#,
        r#"mcp_server_operation_duration_seconds_bucket{le="0.05",method="tools/call",outcome="failed"} 1"#,
        r#"mcp_server_operation_duration_seconds_sum{method="tools/call",outcome="failed"} 0.03"#,
        r#"mcp_client_operation_duration_seconds_count{server="SERVER",method="METHOD",outcome="ok"} 1"#,
        r#"trunkline_errors_total{outcome="failed",reason="timeout"} 1"#,
        r#"trunkline_build_info{version="0.0.0"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn rare_events_of_a_server_appear_with_the_first_one() {
    let metrics = Metrics::new("0.0.0");
    let server = metrics.server("files");
    let series = |name: &str| {
        let text = metrics.encode_text();
        let found = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        found.map(|line| line.rsplit(' ').next().unwrap().to_owned())
    };
    assert_eq!(series("trunkline_server_restarts_total").as_deref(), Some("0"));
    assert_eq!(series("trunkline_server_breaker"), None);
    for (event, name) in [
        (ServerMetric::StepUps, "trunkline_server_step_ups_total"),
        (ServerMetric::RepeatedResults, "trunkline_server_repeated_results_total"),
        (ServerMetric::LostLines, "trunkline_server_lost_log_lines_total"),
        (ServerMetric::StdoutLines, "trunkline_server_stdout_lines_total"),
    ] {
        assert_eq!(series(name), None);
        assert_eq!((server.count(event), server.count(event)), (0, 1));
        assert_eq!(series(name).as_deref(), Some("2"), "{name}");
    }
    server.set_breaker(BreakerLevel::Open);
    server.set_breaker(BreakerLevel::Closed);
    assert_eq!(series("trunkline_server_breaker").as_deref(), Some("0"), "it has opened before");
    assert_eq!(series("trunkline_server_breaker_opened_total").as_deref(), Some("1"));
    server.set_definition_tokens(7);
    assert_eq!(series("trunkline_server_definition_tokens").as_deref(), Some("7"));
}

#[test]
fn the_page_on_metrics_matches_the_code() {
    let (metrics, _held) = poked();
    let page = page(&metrics.encode_text());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(written, page, "docs/metrics.md is stale: run the tests with UPDATE_DOCS=1");
}

/// The text of `docs/metrics.md`, generated from a scrape with every family.
fn page(scrape: &str) -> String {
    let mut page = PAGE_HEAD.to_owned();
    for family in scrape.split("# HELP ").skip(1) {
        let (name, rest) = family.split_once(' ').unwrap();
        let (help, rest) = rest.split_once('\n').unwrap();
        let kind = rest.lines().next().unwrap().rsplit(' ').next().unwrap();
        let samples: Vec<_> = rest.lines().filter(|line| !line.starts_with('#')).collect();
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let labels = samples.first().and_then(|line| line.split_once('{')).map_or_else(
            String::new,
            |(_, rest)| {
                let pairs = rest.split_once('}').unwrap().0.split(',');
                let names = pairs.map(|pair| pair.split_once('=').unwrap().0);
                names
                    .filter(|n| *n != "le")
                    .map(|n| format!("`{n}`"))
                    .collect::<Vec<_>>()
                    .join(", ")
            },
        );
        writeln!(page, "| `{name}{suffix}` | {kind} | {labels} | {help} |").unwrap();
    }
    let bounds = BUCKET_BOUNDS.map(|bound| bound.to_string()).join(", ");
    let store_bounds = cluster_counts::store_accesses::STORE_BUCKET_BOUNDS
        .map(|bound| bound.to_string())
        .join(", ");
    page + &PAGE_TAIL
        .replace("BUCKET_BOUNDS", &bounds)
        .replace("STORE_BOUNDS", &store_bounds)
        .replace("OUTCOMES", &CallOutcome::LABELS.join("`, `"))
}

const PAGE_HEAD: &str = "<!-- Generated from the code: UPDATE_DOCS=1 cargo test -p trunkline-telemetry metrics -->
# Metrics

`/metrics` on the admin listener serves these in the OpenMetrics text format, which Prometheus reads.
With an OTLP endpoint set, the four durations are also pushed there, from the same counts, under their
OpenTelemetry names: `mcp.server.operation.duration`, `mcp.client.operation.duration`,
`mcp.server.session.duration` and `mcp.client.session.duration`.

`mcp_server_*` measure the gateway in its role as a server for clients, `mcp_client_*` in its role as a client
of servers, as in the semantic conventions for MCP.

| name | type | labels | meaning |
|---|---|---|---|
";

const PAGE_TAIL: &str = "
`outcome` of a call is one of `OUTCOMES`;
of a reload `applied`, `unchanged`, `rejected` (it has faults) or `refused` (it weakens protection); of a [lifecycle event](events.md) `delivered`, `dropped` (the queue
was full) or `given_up` (the receiver did not take it in time); of a record of the [audit log](audit.md) `written`,
`dropped` (lost for good) or `failed` (one attempt to open the log or to write the record); of a request for a session of
another [replica](cluster.md) `answered`, `owner_gone` (it cannot be reached), `broken` (the connection failed before the
answer) or, at the owner, `refused` (no replica has forwarded it); of a session whose replica is gone `revived` (here),
`moved` (another replica has revived it), `lost` (it has no record left, or a limit is reached) or `unreachable` (its replica
has a lease but cannot be reached, or the store cannot be); of a request to the store `ok` or `error`. `store` is `replicas`,
`sessions` or `rates`. `configuration` of another replica is `same`, `other`, or `skewed` for one that is ignored because of its
clock. `sink` is `audit`, `events`, or
`events_queue` for `events.queue_dir`.
A series with an outcome appears with its first event. `server`, `tool`, `client` and `profile` are names from the
configuration and from the servers' own lists, never a client's input. When they are removed from the configuration,
their series disappear with the last call that uses them.

Durations have the buckets of the semantic conventions, in seconds:
BUCKET_BOUNDS. Those of requests to the store have smaller ones:
STORE_BOUNDS.
";
