//! Bounds of the state that replicas share: rates, quotas, records of definitions, lists and disabled servers,
//! and the hosts of their store.

use std::collections::BTreeSet;
use std::path::Path;

use super::test_body;

/// Bounds of the state that replicas share, and of the nodes of their store: the constant, the file of its
/// test, and the test.
const SHARED: [(&str, &str, &str); 22] = [
    ("MAX_ACCEPTED_FORMS", PIN_TESTS, FORMS),
    ("MAX_BASELINE", PIN_FILES, "a_large_file_is_neither_written_nor_read"),
    ("MAX_BASELINE_BYTES", RECORDS, LARGE_RECORDS),
    ("MAX_BLOCK", QUOTA_TESTS, "a_block_of_a_large_quota_is_bounded"),
    ("MAX_CHARGES", SHARED_TESTS, "a_bounded_number_of_failed_logins_waits_for_the_store"),
    (
        "MAX_DATABASE_DIGITS",
        STORE_URL,
        "the_place_of_a_store_shows_no_password_and_plain_connections_stay_on_this_machine",
    ),
    ("MAX_DISABLED_BYTES", RECORDS, LARGE_RECORDS),
    (
        "MAX_DISABLED_FILE_BYTES",
        DISABLED,
        "disabled_servers_survive_and_a_damaged_file_is_an_error",
    ),
    (
        "MAX_EDITS",
        "crates/core/src/shared_records/tests.rs",
        "edits_of_a_record_that_never_rests_end",
    ),
    ("MAX_HOST_BYTES", STORES, "a_sentinel_that_answers_nonsense_names_no_primary"),
    ("MAX_KEPT_WITHDRAWALS", FOLLOWING, "a_bounded_number_of_withdrawals_waits_for_the_store"),
    ("MAX_LEASES", QUOTA_TESTS, "holders_of_quotas_are_bounded"),
    ("MAX_LISTS_BYTES", RECORDS, LARGE_RECORDS),
    ("MAX_PENDING_FORMS", PIN_TESTS, FORMS),
    ("MAX_RECENT", STORE_ACCESSES, "the_latency_is_that_of_the_answers_of_the_last_minute"),
    ("MAX_RECORD_BYTES", RECORDS, LARGE_RECORDS),
    ("MAX_REDIRECTIONS", STORES, "a_cluster_without_a_slot_fails_in_time"),
    (
        "MAX_SERVICE_BYTES",
        STORE_URL,
        "the_place_of_a_store_shows_no_password_and_plain_connections_stay_on_this_machine",
    ),
    (
        "MAX_SHARED_RATES",
        SHARED_TESTS,
        "rates_and_holders_are_bounded_and_have_no_names_in_the_store",
    ),
    ("MAX_STORED_DEFINITIONS", PIN_TESTS, "the_definitions_of_a_server_are_bounded"),
    (
        "MAX_STORED_LIST_AGE",
        "src/upstream/lists/store/tests.rs",
        "a_sealed_record_that_no_gateway_writes_is_ignored",
    ),
    (
        "MAX_STORE_HOSTS",
        STORE_URL,
        "the_place_of_a_store_shows_no_password_and_plain_connections_stay_on_this_machine",
    ),
];

/// The files whose bounds are in [`SHARED`].
const SHARED_SOURCES: [&str; 14] = [
    STORE_URL,
    STORE_ACCESSES,
    RECORDS,
    PIN_FILES,
    FOLLOWING,
    DISABLED,
    "crates/core/src/shared_records/mod.rs",
    "src/cluster/store/records.rs",
    "src/policy/definitions/record.rs",
    "src/upstream/lists/store/mod.rs",
    "src/cluster/shared_quotas.rs",
    "src/cluster/shared_rates/mod.rs",
    "src/cluster/shared_rates/permits.rs",
    "src/cluster/store/connection.rs",
];
const DISABLED: &str = "src/snapshot/disabled.rs";
const FOLLOWING: &str = "src/policy/definitions/following.rs";
const FORMS: &str = "the_newest_forms_of_a_definition_stay_and_rejections_longer";
const LARGE_RECORDS: &str = "large_records_and_a_failing_store_are_faults";
const PIN_FILES: &str = "src/policy/definitions/baseline_file.rs";
const PIN_TESTS: &str = "src/policy/definitions/record/tests.rs";
const RECORDS: &str = "src/cluster/sealed_records.rs";
const QUOTA_TESTS: &str = "src/cluster/shared_quotas/tests.rs";
const SHARED_TESTS: &str = "src/cluster/shared_rates/tests.rs";
const STORE_ACCESSES: &str = "crates/telemetry/src/metrics/cluster_counts/store_accesses.rs";
const STORES: &str = "tests/gateway/cluster/stores/several_servers.rs";
const STORE_URL: &str = "crates/config/src/sections/gateway/store_url.rs";

#[test]
fn every_bound_of_shared_state_has_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    for file in SHARED_SOURCES {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let bounds =
            text.lines().filter_map(|line| line.split_once("const MAX_")?.1.split_once(':'));
        found.extend(bounds.map(|(name, _)| format!("MAX_{name}")));
    }
    let covered: BTreeSet<_> = SHARED.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(found, covered, "an entry for each bound");
    for (name, file, test) in SHARED {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        assert!(test_body(&text, test).is_some(), "{name}: no {test} in {file}");
    }
}
