//! Bounds of the rates and quotas that replicas share, and of the hosts of their store.

use std::collections::BTreeSet;
use std::path::Path;

use super::test_body;

/// Bounds of the rates and quotas that replicas share, and of the nodes of their store: the constant, the
/// file of its test, and the test.
const SHARED: [(&str, &str, &str); 10] = [
    ("MAX_BLOCK", QUOTA_TESTS, "a_block_of_a_large_quota_is_bounded"),
    ("MAX_CHARGES", SHARED_TESTS, "a_bounded_number_of_failed_logins_waits_for_the_store"),
    (
        "MAX_DATABASE_DIGITS",
        STORE_URL,
        "the_place_of_a_store_shows_no_password_and_plain_connections_stay_on_this_machine",
    ),
    ("MAX_HOST_BYTES", STORES, "a_sentinel_that_answers_nonsense_names_no_primary"),
    ("MAX_LEASES", QUOTA_TESTS, "holders_of_quotas_are_bounded"),
    ("MAX_RECENT", STORE_ACCESSES, "the_latency_is_that_of_the_answers_of_the_last_minute"),
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
    (
        "MAX_STORE_HOSTS",
        STORE_URL,
        "the_place_of_a_store_shows_no_password_and_plain_connections_stay_on_this_machine",
    ),
];

/// The files whose bounds are in [`SHARED`].
const SHARED_SOURCES: [&str; 6] = [
    STORE_URL,
    STORE_ACCESSES,
    "src/cluster/shared_quotas.rs",
    "src/cluster/shared_rates/mod.rs",
    "src/cluster/shared_rates/permits.rs",
    "src/cluster/store/connection.rs",
];
const QUOTA_TESTS: &str = "src/cluster/shared_quotas/tests.rs";
const SHARED_TESTS: &str = "src/cluster/shared_rates/tests.rs";
const STORE_ACCESSES: &str = "crates/telemetry/src/metrics/cluster_counts/store_accesses.rs";
const STORES: &str = "tests/gateway/cluster/stores/several_servers.rs";
const STORE_URL: &str = "crates/config/src/sections/gateway/store_url.rs";

#[test]
fn every_bound_of_shared_rates_and_quotas_has_a_test() {
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
