//! Contents of a record, and the number of records that are written together.

use super::*;

#[test]
fn values_of_arguments_are_recorded_only_if_asked_for_and_redacted() {
    let credential = AuditCredential::default();
    let mut call = record(&credential, "t");
    call.arguments = Some(b"{\"path\":\"/x\",\"password\":\"hunter2\"}");
    let redaction = RedactionRules::new(&[], &[]).unwrap();
    let recording = ArgumentRecording { size: 100, redaction };
    let json = Value::Object(written(&call, ArgumentsDigest::Sha256, Some(recording)));
    assert_eq!(json["arguments"]["path"], "/x");
    assert_eq!(json["arguments"]["password"], "[redacted]");
}

#[test]
fn a_digest_of_arguments_is_the_one_that_was_chosen() {
    let credential = AuditCredential::default();
    let mut call = record(&credential, "t");
    call.arguments = Some(b"abc");
    // As `sha256sum` and `b2sum -l 256` print them.
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let blake2b = "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319";
    for (digest, expected) in [
        (ArgumentsDigest::Sha256, [Some(sha256), None]),
        (ArgumentsDigest::Blake2b, [None, Some(blake2b)]),
        (ArgumentsDigest::Off, [None, None]),
    ] {
        let record = written(&call, digest, None);
        let told = ["arguments_sha256", "arguments_blake2b"].map(|field| record.get(field));
        assert_eq!(told.map(|field| field.and_then(Value::as_str)), expected, "{digest:?}");
    }
    call.arguments = None;
    assert_eq!(written(&call, ArgumentsDigest::Sha256, None)["arguments_sha256"], Value::Null);
}

#[test]
fn texts_are_escaped_in_records() {
    let credential = AuditCredential { kind: "key", id: Some("a\"b".into()) };
    let name = "t\n\u{7f}\u{2028}\\";
    let actors = ["x\"".to_owned(), "y".to_owned()];
    let call = AuditRecord {
        actors: &actors,
        code: Some(-32602),
        address: Some("2001:db8::1".parse().unwrap()),
        ..record(&credential, name)
    };
    let record = written(&call, ArgumentsDigest::Off, None);
    for (field, value) in [
        ("tool", Value::from(name)),
        ("credential", serde_json::json!({ "kind": "key", "id": "a\"b" })),
        ("actors", serde_json::json!(["x\"", "y"])),
        ("code", Value::from(-32602)),
        ("address", "2001:db8::1".into()),
        ("time", "2026-07-28T12:00:00.000042Z".into()),
        ("id", "run-7".into()),
    ] {
        assert_eq!(record[field], value, "{field}");
    }
}

#[test]
fn records_that_wait_are_written_together_and_each_into_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (trail, counts) = started(to_file(&path, ONE_FILE, ChainMode::Plain));
    write(&trail, &["a"; 1000]);
    until(|| counts.of(AuditFate::Written) == 1000);
    until(|| trail.overview().unwrap().queued == 0);
    let overview = trail.overview().unwrap();
    assert_eq!((overview.dropped, overview.last_number), (0, 1000));
    let whole = fs::metadata(&path).unwrap().len();
    // From now on, each file holds few records, however many are pending.
    let rotation = FileRotation { size: Some(whole + 5000), age: None, keep: 99 };
    trail.apply(None).unwrap();
    trail.finish(Duration::from_secs(5));
    let (trail, counts) = started(to_file(&path, rotation, ChainMode::Plain));
    write(&trail, &["b"; 20]);
    trail.finish(Duration::from_secs(5));
    assert_eq!(counts.of(AuditFate::Dropped), 0);
    let first = fs::metadata(numbered(&path, 1)).unwrap().len();
    assert!((whole + 3000..=whole + 5000).contains(&first), "{first}");
    let (faults, report) = verify(&[&numbered(&path, 1), &path], ChainMode::Plain);
    assert_eq!((faults, report.records, report.last), (vec![], 1020, 1020));
}

#[test]
fn a_small_queue_is_emptied_without_a_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let settings = to_file(&path, ONE_FILE, ChainMode::Off);
    let (trail, counts) = started(AuditSettings { queue_size: 4000, ..settings });
    for number in 1..100 {
        write(&trail, &["a"]);
        // Room for the next two comes before the writer has rested.
        until(|| trail.overview().unwrap().queued < 2000);
        assert_eq!(counts.of(AuditFate::Dropped), 0, "{number}");
    }
    trail.finish(Duration::from_secs(5));
    assert_eq!(counts.of(AuditFate::Written), 99);
}
