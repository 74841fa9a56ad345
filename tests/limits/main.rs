//! Every limit has a test that exceeds it and observes its effect.
//!
//! The limits are read from the configuration's own JSON Schema: each setting that is a count, a
//! size, a duration or a rate. A new one without an entry in [`TESTS`] fails here. Limits without a
//! setting are in [`FIXED`].
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "the helpers of a test")]

mod shared;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use trunkline::listener::ConnectionLimits;

/// A setting, the file of its test, and the test. In a setting `*` is any name.
const TESTS: [(&str, &str, &str); 121] = [
    ("audit.arguments_size", AUDIT, "values_of_arguments_are_redacted_and_bounded"),
    ("audit.keep", AUDIT, "a_file_rotates_and_a_bounded_number_is_kept"),
    ("audit.queue_size", AUDIT, "a_full_disk_drops_records_and_counts_them"),
    ("audit.rotate_every", AUDIT, "a_file_rotates_and_a_bounded_number_is_kept"),
    ("audit.rotate_size", AUDIT, "a_file_rotates_and_a_bounded_number_is_kept"),
    ("clients.*.quota", QUOTAS, "every_quota_is_enforced_and_named_in_the_error"),
    ("clients.*.rate", LIMITS, "a_client_over_its_own_rate_uses_up_nothing_that_others_share"),
    ("code.calls", CODE, "the_bounds_of_a_run_are_those_of_the_configuration"),
    ("code.cpu_time", CODE, "the_bounds_of_a_run_are_those_of_the_configuration"),
    ("code.cpu_time_each", CODE, "the_processor_time_of_a_client_is_bounded_in_each_minute"),
    ("code.memory", CODE, "the_bounds_of_a_run_are_those_of_the_configuration"),
    ("code.output", CODE, "the_bounds_of_a_run_are_those_of_the_configuration"),
    ("code.runs", CODE, "the_bounds_of_a_run_are_those_of_the_configuration"),
    ("code.parallel", CODE, "many_inner_calls_that_ask_at_once_are_all_answered"),
    ("code.time", CODE, "a_run_that_waits_for_too_long_ends"),
    (
        "profiles.*.slim.descriptions",
        "tests/gateway/discovery.rs",
        "slim_definitions_are_described_in_full_and_checked_in_full",
    ),
    ("events.queue_size", EVENTS, "a_full_queue_drops_events_of_calls_first_and_counts_them"),
    ("events.retry_for", EVENTS, "an_event_is_given_up_when_its_time_is_over"),
    ("events.timeout", EVENTS, "an_event_is_given_up_when_its_time_is_over"),
    ("gateway.command_refresh", RELOAD, "a_commands_new_output_is_sent_without_a_lost_call"),
    ("gateway.client_rate", LIMITS, "every_rate_is_enforced_and_named_in_the_error"),
    (
        "gateway.drain",
        "tests/cli/serve.rs",
        "a_call_longer_than_the_drain_time_is_cut_and_the_exit_is_clean",
    ),
    (
        "admin.recent",
        "tests/gateway/admin_api/calls.rs",
        "calls_are_kept_up_to_the_setting_and_otherwise_from_the_first_look_on",
    ),
    (
        "gateway.failed_logins",
        "tests/gateway/failed_logins.rs",
        "wrong_keys_are_limited_and_the_right_one_is_not",
    ),
    (
        "gateway.keep_alive",
        "tests/gateway/list_changes.rs",
        "quiet_streams_are_kept_alive_with_comments",
    ),
    ("gateway.limits.all_subscriptions", SUBSCRIPTIONS, BOTH_SUBSCRIPTIONS),
    ("gateway.limits.batch", "tests/gateway/legacy.rs", "batches_are_served_to_2025_03_26_alone"),
    (
        "gateway.limits.bodies",
        BODIES,
        "unfinished_bodies_of_all_clients_take_so_much_memory_and_no_more",
    ),
    (
        "gateway.limits.bodies_each",
        BODIES,
        "unfinished_bodies_of_one_client_take_its_own_share_of_memory_and_no_more",
    ),
    ("gateway.limits.body", LIMITS, "bodies_and_headers_and_nesting_are_bounded"),
    (
        "gateway.limits.connections",
        CONNECTIONS,
        "the_configuration_bounds_the_number_of_connections",
    ),
    ("gateway.limits.depth", LIMITS, "bodies_and_headers_and_nesting_are_bounded"),
    (
        "gateway.limits.handshake",
        CONNECTIONS,
        "the_configuration_bounds_the_time_of_a_connection_without_a_request",
    ),
    ("gateway.limits.header", LIMITS, "bodies_and_headers_and_nesting_are_bounded"),
    (
        "gateway.limits.idle",
        CONNECTIONS,
        "the_configuration_bounds_the_time_of_a_connection_without_a_request",
    ),
    (
        "gateway.limits.parked",
        LIVES,
        "all_principals_together_have_so_many_calls_waiting_and_no_more",
    ),
    ("gateway.limits.kept_result_time", KEPT, "a_result_is_kept_for_so_long_and_no_longer"),
    ("gateway.limits.kept_results", KEPT, "so_many_bytes_of_results_are_kept_and_no_more"),
    ("gateway.limits.parked_each", LIVES, "so_many_calls_may_wait_and_no_more"),
    ("gateway.limits.parked_time", LIVES, "an_abandoned_call_is_cancelled_in_time"),
    ("gateway.limits.replay", STREAMS, "a_stream_keeps_no_more_than_it_may"),
    ("gateway.limits.replay_all", STREAMS, "all_streams_together_keep_no_more_than_they_may"),
    (
        "gateway.limits.replay_time",
        STREAMS,
        "only_the_session_of_a_stream_resumes_it_and_not_for_ever",
    ),
    (
        "gateway.limits.session_idle",
        "tests/gateway/legacy.rs",
        "an_idle_session_ends_and_a_busy_one_does_not",
    ),
    (
        "gateway.limits.session_unused",
        "tests/gateway/legacy_sessions.rs",
        "a_session_that_was_only_opened_ends_sooner",
    ),
    (
        "gateway.limits.sessions",
        "tests/attacks/fair_shares.rs",
        "sessions_of_one_client_make_room_for_its_own_alone",
    ),
    (
        "gateway.limits.sessions_each",
        "tests/gateway/legacy_sessions.rs",
        "idle_sessions_make_room_and_others_do_not",
    ),
    (
        "gateway.limits.share",
        "tests/attacks/fair_shares.rs",
        "calls_of_one_client_leave_slots_and_a_queue_to_the_others",
    ),
    ("gateway.limits.streams", "tests/gateway/list_changes.rs", "streams_are_capped_in_number"),
    ("gateway.limits.subscriptions", SUBSCRIPTIONS, BOTH_SUBSCRIPTIONS),
    ("gateway.limits.responses", LARGE_RESULTS, RESULTS_IN_MEMORY),
    ("gateway.limits.responses_each", LARGE_RESULTS, RESULTS_IN_MEMORY),
    ("gateway.limits.unread", UNREAD, UNREAD_ANSWERS),
    ("gateway.limits.unread_each", UNREAD, UNREAD_ANSWERS),
    (
        "gateway.list_ttl",
        "tests/gateway/caching.rs",
        "every_list_has_the_strictest_freshness_of_its_parts",
    ),
    (
        "gateway.list_wait",
        "tests/gateway/starts.rs",
        "a_client_waits_once_for_a_server_that_takes_too_long",
    ),
    (
        "gateway.page_size",
        "tests/gateway/tools.rs",
        "pages_follow_each_other_and_their_cursors_are_sealed",
    ),
    ("gateway.rate", LIMITS, "every_rate_is_enforced_and_named_in_the_error"),
    (
        "gateway.start_parallel",
        "tests/gateway/starts.rs",
        "so_many_children_start_side_by_side_and_no_more",
    ),
    (
        "gateway.threads",
        "tests/cli/serve.rs",
        "clients_are_served_by_as_many_threads_as_the_configuration_says",
    ),
    ("interceptors.*.breaker.failures", INTERCEPTORS, LEFT_ALONE),
    ("interceptors.*.breaker.minimum", BREAKER_PARTS, RATIO),
    ("interceptors.*.breaker.open_time", BREAKER_PARTS, "a_probe_that_fails_opens_it_again"),
    (
        "interceptors.*.breaker.probes",
        BREAKER_PARTS,
        "one_call_at_a_time_probes_and_so_many_close_it",
    ),
    ("interceptors.*.breaker.ratio", BREAKER_PARTS, RATIO),
    ("interceptors.*.breaker.window", BREAKER_PARTS, RATIO),
    (
        "interceptors.*.max_size",
        INTERCEPTORS,
        "without_a_valid_answer_a_call_fails_unless_it_may_go_on",
    ),
    ("interceptors.*.timeout", INTERCEPTORS, LEFT_ALONE),
    ("profiles.*.budget", DISCOVERY, "auto_gives_each_client_a_list_that_it_can_handle"),
    ("profiles.*.quota", QUOTAS, "every_quota_is_enforced_and_named_in_the_error"),
    ("profiles.*.rate", QUOTAS, "rates_of_profiles_and_of_each_client_are_enforced"),
    ("search.embeddings.batch", EMBEDDINGS, BATCHES),
    (
        "search.embeddings.batch_timeout",
        EMBEDDINGS,
        "a_service_that_is_slow_does_not_hold_up_searches",
    ),
    ("search.embeddings.dimensions", EMBEDDINGS, BATCHES),
    ("search.embeddings.max_answer", EMBEDDINGS, "a_service_that_fails_leaves_search_to_the_words"),
    ("search.embeddings.timeout", EMBEDDINGS, "a_service_that_is_slow_does_not_hold_up_searches"),
    ("search.clients.*", DISCOVERY, "auto_gives_each_client_a_list_that_it_can_handle"),
    ("servers.*.breaker.failures", BREAKER, "failures_in_a_row_open_it_and_a_probe_closes_it"),
    ("servers.*.breaker.minimum", BREAKER_PARTS, RATIO),
    ("servers.*.breaker.open_time", BREAKER, "failures_in_a_row_open_it_and_a_probe_closes_it"),
    ("servers.*.breaker.probes", BREAKER_PARTS, "one_call_at_a_time_probes_and_so_many_close_it"),
    ("servers.*.breaker.ratio", BREAKER_PARTS, RATIO),
    ("servers.*.breaker.window", BREAKER_PARTS, RATIO),
    (
        "issuers.*.clock_skew",
        "tests/gateway/tokens/attacks.rs",
        "a_token_with_wrong_claims_is_refused",
    ),
    (
        "issuers.*.jwks_refresh",
        "tests/gateway/tokens/issuers.rs",
        "keys_outlive_a_reload_and_a_failed_fetch",
    ),
    (
        "issuers.*.quota_each",
        "tests/gateway/user_quotas.rs",
        "each_user_of_an_issuer_has_a_quota_of_all_its_calls",
    ),
    (
        "servers.*.capability_idle",
        "tests/gateway/children.rs",
        "a_child_for_capabilities_is_closed_when_nothing_is_pending_on_it",
    ),
    (
        "servers.*.connect_timeout",
        BOUNDS,
        "connecting_to_a_server_that_does_not_answer_is_given_up",
    ),
    (
        "servers.*.idle_stop",
        "tests/gateway/server_life.rs",
        "an_idle_child_is_stopped_and_started_again_by_a_call_with_its_list_kept",
    ),
    ("servers.*.in_flight", LIMITS, "calls_beyond_the_cap_wait_in_a_bounded_queue"),
    ("servers.*.instance_idle", BOUNDS, "an_idle_instance_is_closed"),
    (
        "servers.*.max_instances",
        BOUNDS,
        "so_many_clients_have_an_instance_of_their_own_and_no_more",
    ),
    (
        "servers.*.max_pages",
        "tests/gateway/tools.rs",
        "a_list_without_end_is_given_up_with_a_reason",
    ),
    (
        "servers.*.max_response",
        "tests/gateway/http_servers.rs",
        "an_answer_beyond_the_bound_ends_its_own_call_alone",
    ),
    ("servers.*.max_restarts", BOUNDS, "a_child_is_restarted_so_often_and_no_more"),
    (
        "servers.*.max_timeout",
        "tests/gateway/calls.rs",
        "progress_extends_the_timeout_up_to_the_cap",
    ),
    ("servers.*.max_tools", BOUNDS, "a_server_lists_so_many_tools_and_no_more"),
    (
        "servers.*.oauth.login_time",
        "tests/gateway/oauth/refusals.rs",
        "a_link_is_good_for_a_while_and_then_there_is_another",
    ),
    (
        "servers.*.openapi_refresh",
        "tests/gateway/openapi/documents.rs",
        "a_changed_document_changes_the_list_and_an_unreadable_one_leaves_it",
    ),
    ("servers.*.quota_each", QUOTAS, "every_quota_is_enforced_and_named_in_the_error"),
    ("servers.*.rate_each", QUOTAS, "rates_of_profiles_and_of_each_client_are_enforced"),
    ("servers.*.tools.*.cost", QUOTAS, "a_call_costs_as_many_as_its_tool_in_every_limit"),
    ("servers.*.tools.*.quota_each", QUOTAS, "every_quota_is_enforced_and_named_in_the_error"),
    ("servers.*.tools.*.rate_each", QUOTAS, "rates_of_profiles_and_of_each_client_are_enforced"),
    ("servers.*.queue", LIMITS, "calls_beyond_the_cap_wait_in_a_bounded_queue"),
    ("servers.*.queue_timeout", LIMITS, "waiting_for_a_place_has_an_end"),
    ("servers.*.rate", LIMITS, "every_rate_is_enforced_and_named_in_the_error"),
    (
        "servers.*.read_cache",
        "tests/gateway/caching.rs",
        "a_result_too_large_for_the_cache_is_asked_for_each_time",
    ),
    ("servers.*.restart_window", BOUNDS, "a_failed_child_is_restarted_when_its_window_is_over"),
    ("servers.*.result.max_size", RESULTS, CUT_RESULTS),
    ("servers.*.retries", RETRIES, "only_calls_of_tools_that_may_be_repeated_are_made_again"),
    (
        "servers.*.slow_after",
        SLOW_CALLS,
        "a_client_with_a_token_hears_of_a_slow_call_before_its_result",
    ),
    ("servers.*.start_timeout", BOUNDS, "a_server_that_never_finishes_its_handshake_is_given_up"),
    (
        "servers.*.stop_timeout",
        BOUNDS,
        "a_child_that_ignores_every_request_to_exit_is_killed_after_its_stop_timeout",
    ),
    (
        "servers.*.timeout",
        "tests/gateway/calls.rs",
        "a_silent_call_ends_at_its_timeout_and_the_server_hears_it",
    ),
    ("servers.*.tools.*.rate", LIMITS, "every_rate_is_enforced_and_named_in_the_error"),
    ("servers.*.tools.*.result.max_size", RESULTS, CUT_RESULTS),
    (
        "servers.*.tools.*.retries",
        RETRIES,
        "only_calls_of_tools_that_may_be_repeated_are_made_again",
    ),
    (
        "servers.*.tools.*.slow_after",
        SLOW_CALLS,
        "a_call_that_reports_its_own_progress_is_not_called_slow",
    ),
    (
        "telemetry.interval",
        "tests/gateway/traces.rs",
        "metrics_are_sent_as_often_as_the_configuration_says",
    ),
    ("tools.*.timeout", OWN_TOOLS, "a_batch_that_takes_too_long_ends_and_its_calls_are_cancelled"),
];

/// Settings that are not numbers but still limits.
const CHOICES: [(&str, &str, &str); 1] = [(
    "gateway.reload",
    "tests/cli/serve.rs",
    "a_configuration_is_reloaded_when_it_says_so_and_never_otherwise",
)];

/// Limits of a connection, some of them without a setting: the field of [`ConnectionLimits`].
const FIXED: [(&str, &str, &str); 13] = [
    ("connections", LISTENER, "one_connection_too_many_gets_503_and_freed_room_is_used"),
    ("connections_each", LISTENER, "one_address_has_so_many_connections_and_no_more"),
    ("h2_resets", REPLICAS, "requests_that_are_reset_at_once_leave_the_connection_to_others"),
    ("h2_window", REPLICAS, "the_connection_has_room_for_large_bodies_of_many_requests"),
    ("h2_streams", LISTENER, "one_http_2_stream_too_many_is_reset_and_the_others_are_served"),
    ("handshake", LISTENER, "a_connection_that_never_gets_to_a_request_is_closed"),
    ("header", LISTENER, "headers_over_the_bound_are_answered_with_431_on_both_protocols"),
    ("header_lines", LISTENER, "so_many_header_lines_are_read_and_no_more"),
    ("idle", LISTENER, "a_kept_connection_is_closed_when_it_is_idle_or_stops_in_half_a_head"),
    ("ping", LISTENER, "an_http_2_client_that_answers_no_ping_is_closed"),
    ("stall", "tests/listener/disconnect.rs", "a_client_that_stops_reading_is_cut"),
    ("unread", UNREAD_STREAMS, "responses_that_are_left_unread_hold_so_many_bytes_and_no_more"),
    (
        "unread_each",
        UNREAD_STREAMS,
        "responses_that_are_left_unread_hold_so_many_bytes_and_no_more",
    ),
];

const BREAKER: &str = "tests/gateway/breaker.rs";
const BREAKER_PARTS: &str = "src/policy/limits/breaker.rs";
const RATIO: &str = "a_ratio_needs_a_minimum_of_calls_within_the_window";
const INTERCEPTORS: &str = "tests/gateway/interceptors/mod.rs";
const LEFT_ALONE: &str = "an_interceptor_that_is_late_or_fails_often_is_left_alone";
const QUOTAS: &str = "tests/gateway/quotas.rs";
const BODIES: &str = "tests/attacks/unfinished_bodies.rs";
const BOUNDS: &str = "tests/gateway/bounds.rs";
const CODE: &str = "tests/gateway/code.rs";
const CONNECTIONS: &str = "tests/gateway/connections.rs";
const SLOW_CALLS: &str = "tests/gateway/transforms/slow_calls.rs";
const RESULTS: &str = "tests/gateway/transforms/results.rs";
const CUT_RESULTS: &str = "a_large_result_is_cut_and_stays_json_or_is_an_error";
const AUDIT: &str = "tests/gateway/audit.rs";
const DISCOVERY: &str = "tests/gateway/discovery.rs";
const EMBEDDINGS: &str = "tests/gateway/embeddings.rs";
const BATCHES: &str = "a_service_is_sent_definitions_in_batches_and_one_query_for_each_search";
const EVENTS: &str = "tests/gateway/events.rs";
const LIMITS: &str = "tests/gateway/limits.rs";
const LISTENER: &str = "tests/listener/limits.rs";
const LIVES: &str = "tests/gateway/input/lives.rs";
const KEPT: &str = "tests/gateway/transforms/kept_results.rs";
const OWN_TOOLS: &str = "tests/gateway/transforms/own_tools.rs";
const RELOAD: &str = "tests/system/reload.rs";
const REPLICAS: &str = "tests/gateway/cluster/peers/connections.rs";
const RETRIES: &str = "tests/gateway/transforms/retries.rs";
const STREAMS: &str = "tests/gateway/streams.rs";
const SUBSCRIPTIONS: &str = "tests/gateway/subscriptions/mod.rs";
const LARGE_RESULTS: &str = "tests/attacks/large_results.rs";
const RESULTS_IN_MEMORY: &str = "results_in_memory_are_bounded_for_each_client_and_for_all";
const UNREAD: &str = "tests/attacks/unread_answers.rs";
const UNREAD_ANSWERS: &str = "answers_that_are_left_unread_hold_so_many_bytes_and_no_more";
const UNREAD_STREAMS: &str = "tests/listener/slow_reads.rs";
const BOTH_SUBSCRIPTIONS: &str = "subscriptions_are_bounded_for_each_client_and_in_all";

#[test]
fn every_limit_of_the_configuration_has_a_test() {
    let mut found = BTreeSet::new();
    collect_limits(&trunkline::config::json_schema(), String::new(), &mut found);
    let covered: BTreeSet<_> = TESTS.iter().map(|(key, ..)| (*key).to_owned()).collect();
    assert_eq!(covered.len(), TESTS.len(), "one entry for each setting");
    let without: Vec<_> = found.difference(&covered).collect();
    let stale: Vec<_> = covered.difference(&found).collect();
    assert!(without.is_empty(), "write a test that exceeds these, and name it here: {without:?}");
    assert!(stale.is_empty(), "no settings: {stale:?}");
}

#[test]
fn every_limit_of_a_connection_has_a_test() {
    let debug = format!("{:#?}", ConnectionLimits::default());
    // One field a line, indented once.
    let fields = debug.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
    let found: Vec<_> = fields.map(|(field, _)| field.to_owned()).collect();
    let found: BTreeSet<_> = found.into_iter().collect();
    let covered: BTreeSet<_> = FIXED.iter().map(|(field, ..)| (*field).to_owned()).collect();
    assert_eq!(found, covered, "an entry for each field of ConnectionLimits");
}

#[test]
fn the_tests_in_the_table_exist_and_set_the_limit() {
    for (key, file, test) in TESTS.iter().chain(&CHOICES).chain(&FIXED) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let body = test_body(&text, test).unwrap_or_else(|| panic!("{key}: no {test} in {file}"));
        assert!(!body.contains("#[ignore"), "{test} is ignored");
        let setting = key.rsplit('.').find(|part| *part != "*").unwrap();
        assert!(sets(&text, setting), "{key}: {file} does not set {setting}");
    }
}

#[test]
fn the_reader_of_the_schema_sees_every_kind_of_limit() {
    let schema = serde_json::json!({
        "properties": {
            "a": { "properties": {
                "count": { "type": "integer" },
                "size": { "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" },
                "off": { "anyOf": [{ "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$" }, { "const": "off" }] },
                "text": { "type": "string" },
                "name": { "type": "string", "pattern": "^[a-z]{1,64}$" },
            } },
            "b": { "additionalProperties": { "properties": {
                "rate": { "type": "string", "pattern": "^[0-9]+/(s|min|h|d)$" },
            } } },
        },
    });
    let mut found = BTreeSet::new();
    collect_limits(&schema, String::new(), &mut found);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a.count", "a.off", "a.size", "b.*.rate"]);
    assert_eq!(test_body("#[test]\nfn a() {}\n\n#[tokio::test]\nasync fn b() {}\n", "c"), None);
    assert!(test_body("#[test]\nfn a() {}\n\n#[tokio::test]\nasync fn b() {}\n", "b").is_some());
    assert_eq!(test_body("fn helper() {}\n", "helper"), None);
}

/// Collects every setting below a schema with a number as its value, by its path.
fn collect_limits(schema: &Value, path: String, found: &mut BTreeSet<String>) {
    if is_number(schema) {
        found.insert(path);
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        collect_limits(schema, below(key), found);
    }
    if schema["additionalProperties"].is_object() {
        collect_limits(&schema["additionalProperties"], below("*"), found);
    }
}

/// Returns true if a value is a whole number, with or without a unit.
fn is_number(schema: &Value) -> bool {
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    let any = schema["anyOf"].as_array();
    schema["type"] == "integer"
        || pattern.starts_with("^[0-9]+")
        || any.is_some_and(|any| any.iter().any(is_number))
}

/// Returns the attributes and the code of the test with this name, if there is one.
fn test_body<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut items = text.split("\n\n");
    items.find(|item| {
        let is_test = item.contains("#[test]") || item.contains("#[tokio::test");
        is_test && item.contains(&format!("fn {name}()"))
    })
}

/// Returns true if a text sets a value for a setting, as TOML or as a field.
fn sets(text: &str, setting: &str) -> bool {
    let given = |end: &str| text.contains(&format!("{setting}{end}"));
    given(" = ") || given(": ") || given(",")
}
