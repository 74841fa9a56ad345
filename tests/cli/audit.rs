//! `trunkline audit verify`: what it says of a log, and how it exits.

use std::fs;

use super::{CONFIG_FAULT, DONE, FAILURE, WRONG_USE, trunkline};

/// Two records that `trunkline serve` has chained by SHA-256.
const LOG: &str = concat!(
    "{\"seq\":1,\"event\":\"call\",\"prev\":\"",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "\",\"hash\":\"HASH1\"}\n",
    "{\"seq\":2,\"event\":\"lost\",\"records\":3,\"prev\":\"HASH1\",\"hash\":\"HASH2\"}\n",
);

fn hash_of(line: &str) -> String {
    let covered = line.split(",\"hash\":").next().unwrap();
    data_encoding::HEXLOWER.encode(&trunkline::crypto::sha256(covered.as_bytes()))
}

fn log() -> String {
    let first = hash_of(LOG.lines().next().unwrap());
    let log = LOG.replace("HASH1", &first);
    let second = hash_of(log.lines().nth(1).unwrap());
    log.replace("HASH2", &second)
}

#[test]
fn a_log_is_verified_and_its_faults_have_a_line_and_an_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, two, key) = (path("audit.jsonl.1"), path("audit.jsonl"), path("key"));
    let log = log();
    let (first, second) = log.split_once('\n').unwrap();
    fs::write(&one, format!("{first}\n")).unwrap();
    fs::write(&two, second).unwrap();
    fs::write(&key, "0123456789abcdef0123456789abcdef\n").unwrap();
    let verify = |more: &[&str]| trunkline(&[&["audit", "verify"], more].concat());
    let last = second.split("\"hash\":\"").nth(1).unwrap().get(..64).unwrap();
    let whole = verify(&[&two, &one]).exits_with(DONE);
    whole.prints(&["intact", "2 record(s)", "3 lost", &format!("last: 2:{last}")]);
    verify(&["--last", &format!("2:{last}"), &two, &one]).exits_with(DONE);
    verify(&["--last", &format!("3:{last}"), &two, &one])
        .exits_with(FAILURE)
        .complains_of(&["ends with record 2, expected 3"]);
    verify(&["--key-file", &key, &one]).exits_with(FAILURE).complains_of(&["not keyed"]);
    fs::write(&one, format!("{}\n", first.replace("call", "list"))).unwrap();
    verify(&[&one, &two])
        .exits_with(FAILURE)
        .complains_of(&["audit.jsonl.1:1: record 1 was altered", "1 fault(s)"]);
    fs::write(&one, "").unwrap();
    verify(&[&one]).exits_with(FAILURE).complains_of(&["no records"]);
    verify(&[&path("nowhere")]).exits_with(CONFIG_FAULT).complains_of(&["nowhere"]);
    verify(&["--key-file", &one, &two]).exits_with(CONFIG_FAULT).complains_of(&["32 bytes"]);
    verify(&[]).exits_with(WRONG_USE);
    verify(&["--last", "7", &two]).exits_with(WRONG_USE).complains_of(&["SEQ:HASH"]);
    verify(&["--help"]).exits_with(DONE).prints(&["Exit codes", "--key-file", "--last"]);
}
