//! The log as a whole: written, lost, counted and verified records.

mod operations;
mod records;
mod required;

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::CallSubject;
use trunkline_protocol::call::AuditCredential;

const KEY: [u8; 32] = [7; 32];

fn record<'a>(credential: &'a AuditCredential, tool: &'a str) -> AuditRecord<'a> {
    AuditRecord {
        kind: AuditKind::Call,
        id: None,
        parent: None,
        principal: Some("ann"),
        credential,
        actors: &[],
        address: None,
        profile: "default",
        method: "tools/call",
        public: CallSubject::Tool(tool),
        native: CallSubject::Nothing,
        server: Some("s"),
        decision: AuditDecision::Allow,
        check: "default",
        rule: None,
        condition_fault: None,
        confirmation: None,
        outcome: "ok",
        reason: None,
        code: None,
        duration: Some(Duration::from_micros(1500)),
        upstream: None,
        request_bytes: Some(10),
        response_bytes: Some(20),
        session: None,
        trace_id: None,
        arguments: Some(b"{\"password\":\"hunter2\"}"),
        shown: None,
    }
}

fn to_file(path: &Path, rotation: FileRotation, chain: ChainMode) -> AuditSettings {
    let sink = AuditSinkSettings::File(path.to_owned(), rotation);
    settings(sink, chain)
}

fn settings(sink: AuditSinkSettings, chain: ChainMode) -> AuditSettings {
    let digest = ArgumentsDigest::Sha256;
    AuditSettings { sink, queue_size: 1 << 20, required: false, chain, digest, arguments: None }
}

const ONE_FILE: FileRotation = FileRotation { size: None, age: None, keep: 3 };

fn started(settings: AuditSettings) -> (AuditTrail, AuditCounts) {
    let counts = AuditCounts::default();
    let trail = AuditTrail::new(counts.clone());
    trail.apply(Some(settings)).unwrap();
    (trail, counts)
}

fn write(trail: &AuditTrail, tools: &[&str]) {
    let credential = AuditCredential { kind: "key", id: Some("0badcafe".into()) };
    for tool in tools {
        trail.record(&record(&credential, tool));
    }
}

/// Returns the members of a record.
fn written(
    record: &AuditRecord<'_>,
    digest: ArgumentsDigest,
    arguments: Option<ArgumentRecording>,
) -> serde_json::Map<String, Value> {
    let settings =
        AuditSettings { digest, arguments, ..settings(AuditSinkSettings::Stdout, ChainMode::Off) };
    let time = RecordTime { second: "2026-07-28T12:00:00", micros: 42 };
    let mut json = Vec::new();
    record.write_json(RecordId::New("run", 7), time, &settings, &mut json);
    serde_json::from_slice(&json).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn until(mut it_is_so: impl FnMut() -> bool) {
    let begun = clock::real_now();
    while !it_is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "in vain");
        thread::park_timeout(Duration::from_millis(5));
    }
}

fn verify(paths: &[&Path], mode: ChainMode) -> (Vec<(u64, ChainFault)>, ChainReport) {
    let mut verifier = LogVerifier::new(mode);
    let mut faults = Vec::new();
    for path in paths {
        let file = BufReader::new(fs::File::open(path).unwrap());
        verifier.read_file(file, |line, fault| faults.push((line, fault))).unwrap();
    }
    (faults, verifier.report().clone())
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    PathBuf::from(format!("{}.{number}", path.display()))
}

/// Writes a file with a chain of four records.
fn chained(folder: &Path, mode: ChainMode) -> PathBuf {
    let path = folder.join("audit.jsonl");
    let (trail, _) = started(to_file(&path, ONE_FILE, mode));
    write(&trail, &["a", "b", "c", "d"]);
    trail.finish(Duration::from_secs(5));
    path
}

#[test]
fn a_record_names_caller_and_action_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = chained(folder.path(), ChainMode::Off);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let records = lines(&path);
    assert_eq!(records.len(), 4);
    let first = &records[0];
    for (field, value) in [
        ("seq", Value::from(1)),
        ("event", "call".into()),
        ("principal", "ann".into()),
        ("tool", "a".into()),
        ("decision", "allow".into()),
        ("duration_us", 1500.into()),
        ("actors", Value::Array(Vec::new())),
        ("rule", Value::Null),
    ] {
        assert_eq!(first[field], value, "{field}");
    }
    assert_eq!(first["arguments_sha256"].as_str().unwrap().len(), 64);
    assert!(!fs::read_to_string(&path).unwrap().contains("hunter2"));
    assert!(first.get("arguments").is_none() && first.get("hash").is_none());
}

#[test]
fn every_field_of_a_record_is_on_the_page_and_nothing_else() {
    let credential = AuditCredential::default();
    let mut call = record(&credential, "t");
    call.shown = Some((1, b"digest"));
    call.parent = Some("other");
    call.condition_fault = Some("some: arguments.x is missing");
    let redaction = RedactionRules::new(&[], &[]).unwrap();
    let recording = ArgumentRecording { size: 100, redaction };
    let fields = written(&call, ArgumentsDigest::Sha256, Some(recording));
    let added = ["seq", "prev", "hash", "hmac", "records", "arguments_blake2b"].map(str::to_owned);
    let mut fields: Vec<_> = fields.into_iter().map(|(key, _)| key).chain(added).collect();
    let page = include_str!("../../../../docs/audit.md");
    let table = page.split("## Fields").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut told: Vec<_> = rows.map(|row| row.split('`').next().unwrap().to_owned()).collect();
    fields.sort();
    told.sort();
    assert_eq!(told, fields);
}

#[test]
fn an_intact_chain_verifies_with_its_own_key_alone() {
    let folder = tempfile::tempdir().unwrap();
    let keyed = || ChainMode::Keyed(ChainKey::new(&KEY).unwrap());
    let path = chained(folder.path(), keyed());
    let (faults, report) = verify(&[&path], keyed());
    assert_eq!((faults, report.records, report.first, report.last), (vec![], 4, Some(1), 4));
    let (faults, _) = verify(&[&path], ChainMode::Plain);
    assert_eq!(faults[0], (1, ChainFault::OtherKind { keyed: true }));
    let other = ChainMode::Keyed(ChainKey::new(&[8; 32]).unwrap());
    let (faults, _) = verify(&[&path], other);
    assert_eq!(faults[0], (1, ChainFault::Altered { number: 1 }));
    assert!(ChainKey::new(&KEY[..31]).is_none());
}

#[test]
fn a_chain_reveals_every_alteration() {
    let folder = tempfile::tempdir().unwrap();
    let path = chained(folder.path(), ChainMode::Plain);
    let whole = fs::read_to_string(&path).unwrap();
    let four: Vec<_> = whole.lines().collect();
    let last_hash = verify(&[&path], ChainMode::Plain).1.last_hash.unwrap();
    let after = |text: String| {
        fs::write(&path, text).unwrap();
        verify(&[&path], ChainMode::Plain)
    };
    let join = |lines: &[&str]| lines.join("\n") + "\n";
    assert_eq!(after(whole.clone()).0, []);
    let altered = whole.replacen("\"tool\":\"b\"", "\"tool\":\"x\"", 1);
    assert_eq!(after(altered).0, [(2, ChainFault::Altered { number: 2 })]);
    let missing = after(join(&[four[0], four[3]]));
    assert_eq!(missing.0, [(2, ChainFault::Missing { before: 1, number: 4 })]);
    let reordered = after(join(&[four[0], four[2], four[1], four[3]]));
    assert_eq!(reordered.0[1], (3, ChainFault::Reordered { before: 3, number: 2 }));
    let torn = after(whole.trim_end().to_owned());
    assert_eq!(torn.0, [(4, ChainFault::Torn)]);
    let foreign = after(format!("{whole}{{\"seq\":5}}\n"));
    assert_eq!(foreign.0, [(5, ChainFault::NotChained)]);
    let again = after(whole.clone() + &whole);
    assert_eq!(again.0[0], (5, ChainFault::Restarted { number: 1 }));
    // The record of another chain, with a number and a hash of its own.
    let ends = [chain::ChainEnd { number: 1, hash: Some("0".repeat(63) + "1") }];
    let mut other = Vec::new();
    ends[0].append(b"{\"event\":\"call\"}", &ChainMode::Plain, &mut other);
    let other = String::from_utf8(other).unwrap();
    let replaced = after(format!("{}\n{other}", four[0]));
    assert_eq!(replaced.0, [(2, ChainFault::Unlinked { number: 2 })]);
    // Only a record known from elsewhere reveals the missing end.
    let (faults, _) = after(join(&four[..3]));
    assert_eq!(faults, []);
    let mut verifier = LogVerifier::new(ChainMode::Plain);
    verifier.read_file(fs::read(&path).unwrap().as_slice(), |_, _| {}).unwrap();
    let truncated = Some(ChainFault::Truncated { found: 3, expected: 4 });
    assert_eq!(verifier.expect_end(4, &last_hash), truncated);
    assert_eq!(verifier.expect_end(3, &last_hash), Some(ChainFault::OtherEnd { number: 3 }));
}

#[test]
fn a_chain_goes_on_after_rotation_and_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let small = FileRotation { size: Some(2500), age: None, keep: 9 };
    for _ in 0..2 {
        let (trail, counts) = started(to_file(&path, small, ChainMode::Plain));
        write(&trail, &["a", "b", "c"]);
        trail.finish(Duration::from_secs(5));
        assert_eq!(counts.of(AuditFate::Dropped), 0);
    }
    assert!(fs::metadata(&path).unwrap().len() <= 2500 && numbered(&path, 1).exists());
    let earlier = (1..9).rev().map(|number| numbered(&path, number));
    let files: Vec<_> = earlier.chain([path.clone()]).filter(|it| it.exists()).collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let (faults, report) = verify(&files, ChainMode::Plain);
    assert_eq!((faults, report.records, report.last), (vec![], 6, 6));
}

#[test]
fn no_more_files_are_kept_than_configured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let tiny = FileRotation { size: Some(1), age: None, keep: 2 };
    let (trail, _) = started(to_file(&path, tiny, ChainMode::Off));
    write(&trail, &["a", "b", "c", "d", "e"]);
    trail.finish(Duration::from_secs(5));
    let tool = |path: &Path| lines(path)[0]["tool"].clone();
    assert_eq!((tool(&path), tool(&numbered(&path, 1)), tool(&numbered(&path, 2))), {
        ("e".into(), "d".into(), "c".into())
    });
    assert!(!numbered(&path, 3).exists());
}

#[test]
fn a_file_that_is_old_is_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let brief = FileRotation { size: None, age: Some(Duration::from_nanos(1)), keep: 5 };
    let (trail, _) = started(to_file(&path, brief, ChainMode::Off));
    write(&trail, &["a", "b"]);
    trail.finish(Duration::from_secs(5));
    assert_eq!((lines(&path).len(), lines(&numbered(&path, 1)).len()), (1, 1));
}

#[test]
fn a_file_that_was_moved_away_is_begun_anew_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let moved = folder.path().join("moved");
    let (trail, counts) = started(to_file(&path, ONE_FILE, ChainMode::Plain));
    write(&trail, &["a", "b"]);
    until(|| counts.of(AuditFate::Written) == 2);
    fs::rename(&path, &moved).unwrap();
    write(&trail, &["c"]);
    until(|| counts.of(AuditFate::Written) == 3);
    fs::remove_file(&path).unwrap();
    trail.reopen();
    until(|| path.exists());
    write(&trail, &["d"]);
    trail.finish(Duration::from_secs(5));
    assert_eq!(lines(&moved).len(), 2);
    assert_eq!(lines(&path)[0]["seq"], 4, "the numbers go on: record 3 was removed by hand");
    let (faults, _) = verify(&[&moved, &path], ChainMode::Plain);
    assert_eq!(faults, [(1, ChainFault::Missing { before: 2, number: 4 })]);
}

#[test]
fn a_line_that_a_crash_cut_off_is_removed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = chained(folder.path(), ChainMode::Plain);
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 40]).unwrap();
    let (trail, counts) = started(to_file(&path, ONE_FILE, ChainMode::Plain));
    write(&trail, &["e"]);
    trail.finish(Duration::from_secs(5));
    assert_eq!(counts.of(AuditFate::Dropped), 1);
    let (faults, report) = verify(&[&path], ChainMode::Plain);
    assert_eq!((faults, report.lost), (vec![], 1));
}

#[test]
fn two_gateways_never_write_to_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (first, counts) = started(to_file(&path, ONE_FILE, ChainMode::Plain));
    write(&first, &["a"]);
    until(|| counts.of(AuditFate::Written) == 1);
    let (second, counts) = started(to_file(&path, ONE_FILE, ChainMode::Plain));
    write(&second, &["b"]);
    until(|| counts.of(AuditFate::Failed) > 0);
    let fault = second.overview().unwrap().fault.unwrap();
    assert!(fault.contains("another process"), "{fault}");
    first.finish(Duration::from_secs(5));
    until(|| counts.of(AuditFate::Written) == 1);
    second.finish(Duration::from_secs(5));
    assert_eq!(verify(&[&path], ChainMode::Plain).0, []);
}

#[test]
fn a_full_disk_loses_nothing_silently() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let full = AuditSettings {
        queue_size: 2000,
        ..to_file(Path::new("/dev/full"), ONE_FILE, ChainMode::Plain)
    };
    let (trail, counts) = started(full);
    write(&trail, &["a"; 20]);
    until(|| counts.of(AuditFate::Failed) > 0);
    let dropped = counts.of(AuditFate::Dropped);
    assert!((10..20).contains(&dropped), "{dropped}");
    let overview = trail.overview().unwrap();
    assert!(overview.fault.is_some() && overview.dropped == dropped);
    // There is room again.
    trail.apply(Some(to_file(&path, ONE_FILE, ChainMode::Plain))).unwrap();
    until(|| counts.of(AuditFate::Written) == 20 - dropped);
    write(&trail, &["b"]);
    trail.finish(Duration::from_secs(5));
    let (faults, report) = verify(&[&path], ChainMode::Plain);
    assert_eq!((faults, report.lost), (vec![], dropped));
    let records = lines(&path);
    let lost = records.iter().filter(|it| it["event"] == "lost");
    let told: u64 = lost.map(|it| it["records"].as_u64().unwrap()).sum();
    assert_eq!(told, dropped, "each loss is told once, and each in its place");
    assert_eq!(records.last().unwrap()["tool"], "b", "what came after the loss is after it");
}

#[test]
fn an_unknown_caller_takes_half_of_the_queue_at_most() {
    let full = AuditSettings {
        queue_size: 20_000,
        ..to_file(Path::new("/dev/full"), ONE_FILE, ChainMode::Off)
    };
    let (trail, counts) = started(full);
    let credential = AuditCredential::default();
    for _ in 0..100 {
        trail.record(&AuditRecord { principal: None, ..record(&credential, "t") });
    }
    let dropped = counts.of(AuditFate::Dropped);
    assert!(dropped > 0);
    assert!(trail.overview().unwrap().queued <= 10_000);
    write(&trail, &["a"; 5]);
    assert_eq!(counts.of(AuditFate::Dropped), dropped, "others have room");
}

#[test]
fn a_stop_counts_unwritten_records() {
    let (trail, counts) = started(to_file(Path::new("/dev/full"), ONE_FILE, ChainMode::Off));
    write(&trail, &["a", "b", "c"]);
    until(|| counts.of(AuditFate::Failed) > 0);
    trail.finish(Duration::from_millis(50));
    assert_eq!(counts.of(AuditFate::Dropped), 3);
}

#[test]
fn a_folder_without_permission_delays_records_and_loses_none() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("later");
    let path = inner.join("audit.jsonl");
    let (trail, counts) = started(to_file(&path, ONE_FILE, ChainMode::Plain));
    write(&trail, &["a", "b"]);
    until(|| counts.of(AuditFate::Failed) > 0);
    fs::create_dir(&inner).unwrap();
    fs::set_permissions(&inner, Permissions::from_mode(0o700)).unwrap();
    trail.finish(Duration::from_secs(10));
    assert_eq!((lines(&path).len(), counts.of(AuditFate::Dropped)), (2, 0));
}

#[test]
fn a_syslog_that_comes_back_gets_every_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let sink = AuditSinkSettings::Syslog(SyslogAddress::Unix(path.clone()));
    let chain = ChainMode::Plain;
    let (trail, counts) = started(settings(sink, chain));
    write(&trail, &["a", "b"]);
    until(|| counts.of(AuditFate::Failed) > 0);
    let receiver = UnixDatagram::bind(&path).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let read = || {
        let mut buffer = [0; 4096];
        let length = receiver.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    for tool in ["a", "b"] {
        let message = read();
        let (head, json) = message.split_at(message.find('{').unwrap());
        assert!(head.starts_with("<110>1 20") && head.ends_with(" audit - "), "{head}");
        assert_eq!(serde_json::from_str::<Value>(json).unwrap()["tool"], tool);
    }
    trail.finish(Duration::from_secs(5));
    assert_eq!(counts.of(AuditFate::Dropped), 0);
}

#[test]
fn a_syslog_that_closed_its_connection_is_connected_again() {
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = SyslogAddress::Tcp(receiver.local_addr().unwrap().to_string());
    let sink = AuditSinkSettings::Syslog(address);
    let chain = ChainMode::Off;
    let (trail, counts) = started(settings(sink, chain));
    for tool in ["a", "b", "c"] {
        write(&trail, &[tool]);
        let (mut connection, _) = receiver.accept().unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut message = vec![0; 60];
        connection.read_exact(&mut message).unwrap();
        let length: usize =
            str::from_utf8(&message).unwrap().split(' ').next().unwrap().parse().unwrap();
        message.resize(length + length.to_string().len() + 1, 0);
        connection.read_exact(&mut message[60..]).unwrap();
        assert!(String::from_utf8(message).unwrap().contains(&format!("\"tool\":\"{tool}\"")));
        drop(connection);
    }
    trail.finish(Duration::from_secs(5));
    assert_eq!(counts.of(AuditFate::Written), 3);
}

#[test]
fn syslog_by_udp_and_by_a_stream_of_this_machine_gets_every_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let by_stream = UnixListener::bind(&path).unwrap();
    let by_udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    by_udp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let udp = SyslogAddress::Udp(by_udp.local_addr().unwrap().to_string());
    for address in [SyslogAddress::Unix(path.clone()), udp] {
        let is_udp = matches!(address, SyslogAddress::Udp(_));
        let (sink, chain) = (AuditSinkSettings::Syslog(address), ChainMode::Off);
        let (trail, counts) = started(settings(sink, chain));
        write(&trail, &["a", "b"]);
        let messages: Vec<String> = if is_udp {
            let datagram = |_| {
                let mut buffer = [0; 4096];
                let length = by_udp.recv(&mut buffer).unwrap();
                String::from_utf8(buffer[..length].to_vec()).unwrap()
            };
            (0..2).map(datagram).collect()
        } else {
            let (stream, _) = by_stream.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            BufReader::new(stream).lines().take(2).map(Result::unwrap).collect()
        };
        for (message, tool) in messages.iter().zip(["a", "b"]) {
            let (head, json) = message.split_at(message.find('{').unwrap());
            assert!(head.starts_with("<110>1 20") && head.ends_with(" audit - "), "{head}");
            assert_eq!(serde_json::from_str::<Value>(json).unwrap()["tool"], tool);
        }
        trail.finish(Duration::from_secs(5));
        assert_eq!((counts.of(AuditFate::Written), counts.of(AuditFate::Dropped)), (2, 0));
    }
}

#[test]
fn a_session_cannot_be_entered_with_data_from_the_log() {
    let digest = session_digest("the-session-id");
    assert_eq!(digest.len(), 16);
    assert!(!digest.contains("session"));
}
