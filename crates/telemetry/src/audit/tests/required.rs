//! A log that is opened before its first record, and one that is required.

use super::*;

fn required(settings: AuditSettings) -> AuditSettings {
    AuditSettings { required: true, ..settings }
}

#[test]
fn a_file_is_opened_before_its_first_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (trail, _) = started(to_file(&path, ONE_FILE, ChainMode::Off));
    trail.await_sink(Duration::from_secs(10));
    assert!(path.exists());
    let report = trail.sink().unwrap();
    assert_eq!((report.place, report.fault), (path.display().to_string(), None));
}

#[test]
fn a_sink_that_cannot_be_opened_is_tried_again_without_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("later");
    let path = inner.join("audit.jsonl");
    let (trail, _) = started(to_file(&path, ONE_FILE, ChainMode::Off));
    trail.await_sink(Duration::from_secs(10));
    let fault = trail.sink().unwrap().fault.unwrap();
    assert!(fault.contains("No such file"), "{fault}");
    fs::create_dir(&inner).unwrap();
    until(|| trail.sink().unwrap().fault.is_none());
    assert!(path.exists());
    // The end does not wait for another attempt.
    fs::remove_dir_all(&inner).unwrap();
    trail.reopen();
    until(|| trail.sink().unwrap().fault.is_some());
    trail.finish(Duration::from_hours(1));
}

#[test]
fn a_required_log_has_room_only_while_it_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("later");
    let path = inner.join("audit.jsonl");
    let (trail, _) = started(required(to_file(&path, ONE_FILE, ChainMode::Off)));
    assert_eq!(trail.reserve_room().unwrap_err(), UnrecordableError, "before the first attempt");
    trail.await_sink(Duration::from_secs(10));
    assert!(trail.reserve_room().is_err() && trail.overview().unwrap().refuses);
    fs::create_dir(&inner).unwrap();
    until(|| trail.reserve_room().is_ok());
    assert!(!trail.overview().unwrap().refuses);
    let optional = to_file(Path::new("/dev/full"), ONE_FILE, ChainMode::Off);
    trail.apply(Some(optional)).unwrap();
    assert!(trail.reserve_room().unwrap().is_none(), "it is not required");
}

#[test]
fn a_required_log_refuses_when_a_write_fails_and_keeps_the_record() {
    let (trail, counts) =
        started(required(to_file(Path::new("/dev/full"), ONE_FILE, ChainMode::Off)));
    trail.await_sink(Duration::from_secs(10));
    let room = trail.reserve_room().expect("it can be opened");
    let credential = AuditCredential::default();
    trail.record_in(room, &record(&credential, "t"));
    until(|| trail.reserve_room().is_err());
    assert_eq!((counts.of(AuditFate::Written), counts.of(AuditFate::Dropped)), (0, 0));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    trail.apply(Some(required(to_file(&path, ONE_FILE, ChainMode::Off)))).unwrap();
    until(|| trail.reserve_room().is_ok());
    until(|| lines(&path).len() == 1);
}

#[test]
fn a_record_with_reserved_room_is_kept_when_a_reload_makes_the_queue_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let settings = || required(to_file(&path, ONE_FILE, ChainMode::Off));
    let (trail, counts) = started(settings());
    trail.await_sink(Duration::from_secs(10));
    let rooms = [(); 3].map(|()| trail.reserve_room().unwrap());
    trail.apply(Some(AuditSettings { queue_size: 1, ..settings() })).unwrap();
    let credential = AuditCredential::default();
    for room in rooms {
        trail.record_in(room, &record(&credential, "t"));
    }
    until(|| lines(&path).len() == 3);
    assert_eq!(counts.of(AuditFate::Dropped), 0);
}

#[test]
fn reserved_room_is_kept_for_its_record_and_freed_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let small = AuditSettings { queue_size: 9000, ..to_file(&path, ONE_FILE, ChainMode::Off) };
    let (trail, counts) = started(required(small));
    trail.await_sink(Duration::from_secs(10));
    let first = trail.reserve_room().unwrap();
    let second = trail.reserve_room().unwrap();
    assert!(trail.reserve_room().is_err(), "there is room for two records");
    // Others leave it free.
    until(|| {
        write(&trail, &["other"; 20]);
        counts.of(AuditFate::Dropped) > 0
    });
    let dropped = counts.of(AuditFate::Dropped);
    let credential = AuditCredential::default();
    trail.record_in(first, &record(&credential, "mine"));
    assert_eq!(counts.of(AuditFate::Dropped), dropped);
    drop(second);
    until(|| trail.reserve_room().is_ok());
    trail.finish(Duration::from_secs(10));
    assert!(lines(&path).iter().any(|record| record["tool"] == "mine"));
}

#[test]
fn the_record_of_a_login_is_kept_in_the_room_that_was_reserved_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let small = AuditSettings { queue_size: 9000, ..to_file(&path, ONE_FILE, ChainMode::Off) };
    let (trail, counts) = started(required(small));
    assert_eq!(trail.await_sink(Duration::from_secs(10)), None);
    let room = trail.reserve_room().unwrap();
    let other = trail.reserve_room().unwrap();
    until(|| {
        write(&trail, &["other"; 20]);
        counts.of(AuditFate::Dropped) > 0
    });
    let dropped = counts.of(AuditFate::Dropped);
    let login = OperationRecord {
        operation: AuditOperation::Login { owner: None, server: None },
        actor: OperationActor::Visitor,
        address: None,
        outcome: OperationOutcome::Ok,
        reason: None,
    };
    trail.record_operation_in(room, &login);
    assert_eq!(counts.of(AuditFate::Dropped), dropped);
    drop(other);
    let is_login = |record: &Value| record["operation"] == "login";
    until(|| lines(&path).iter().any(is_login));
}

#[test]
fn a_sink_that_cannot_be_opened_is_reported_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (trail, _) = started(to_file(&folder.path().join("no/a"), ONE_FILE, ChainMode::Off));
    let fault = trail.await_sink(Duration::from_secs(10)).unwrap();
    assert!(fault.contains("No such file"), "{fault}");
}

#[test]
fn the_running_log_serves_until_the_sink_of_a_prepared_one_has_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let settings = |name: &str| required(to_file(&path(name), ONE_FILE, ChainMode::Plain));
    let within = Duration::from_secs(10);
    let (trail, counts) = started(settings("first"));
    assert_eq!(trail.await_sink(within), None);
    let fault = trail.prepare(settings("no/second")).unwrap_err();
    assert_eq!(fault.kind(), std::io::ErrorKind::NotFound);
    assert!(trail.reserve_room().is_ok(), "the running sink is as it was");
    let prepared = trail.prepare(settings("second")).unwrap();
    write(&trail, &["before"]);
    until(|| lines(&path("first")).len() == 1);
    trail.switch(prepared, within).unwrap();
    assert!(trail.reserve_room().is_ok());
    write(&trail, &["after"]);
    until(|| lines(&path("second")).len() == 1);
    assert_eq!(trail.overview().unwrap().sink, path("second").display().to_string());
    // A log that was off, and the running file by another name or with another rotation.
    std::os::unix::fs::symlink(path("second"), path("link")).unwrap();
    trail.apply(None).unwrap();
    let kept = FileRotation { keep: 7, ..ONE_FILE };
    for next in [settings("link"), required(to_file(&path("link"), kept, ChainMode::Plain))] {
        trail.switch(trail.prepare(next).unwrap(), within).unwrap();
        assert!(trail.reserve_room().is_ok());
    }
    write(&trail, &["last"]);
    until(|| lines(&path("second")).len() == 2);
    assert_eq!(counts.of(AuditFate::Dropped), 0);
    assert!(verify(&[&path("second")], ChainMode::Plain).0.is_empty());
}

#[test]
fn a_prepared_log_takes_the_records_that_the_running_one_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let file = |path: &Path| required(to_file(path, ONE_FILE, ChainMode::Off));
    let (trail, _) = started(file(&folder.path().join("no/audit.jsonl")));
    let within = Duration::from_secs(10);
    assert!(trail.await_sink(within).is_some());
    write(&trail, &["pending"]);
    let full = trail.prepare(file(Path::new("/dev/full"))).unwrap();
    let prepared = trail.prepare(file(&path)).unwrap();
    // It can be opened, and takes no record.
    assert!(trail.switch(full, within).unwrap_err().contains("No space left"));
    assert!(trail.reserve_room().is_err());
    trail.switch(prepared, within).unwrap();
    assert!(trail.reserve_room().is_ok());
    until(|| lines(&path).len() == 1);
}

#[test]
fn a_rotation_that_fails_is_a_fault_of_the_sink_and_no_record_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    // A folder with a file in it cannot be replaced.
    fs::create_dir_all(numbered(&path, 1).join("full")).unwrap();
    let tiny = FileRotation { size: Some(1), age: None, keep: 1 };
    let (trail, counts) = started(required(to_file(&path, tiny, ChainMode::Plain)));
    write(&trail, &["a", "b", "c"]);
    until(|| counts.of(AuditFate::Written) == 3 && trail.sink().unwrap().fault.is_some());
    let fault = trail.sink().unwrap().fault.unwrap();
    assert!(fault.starts_with("the audit log could not be rotated: "), "{fault}");
    assert_eq!((lines(&path).len(), counts.of(AuditFate::Failed)), (3, 0));
    assert!(trail.reserve_room().is_ok(), "requests are still served");
    // Another program does the work.
    fs::rename(&path, folder.path().join("moved")).unwrap();
    write(&trail, &["d"]);
    until(|| counts.of(AuditFate::Written) == 4 && trail.sink().unwrap().fault.is_none());
    trail.finish(Duration::from_secs(5));
}
