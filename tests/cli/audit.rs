//! The audit log on standard output, and `trunkline audit verify` with its output and exit codes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::process::{Process, TRUNKLINE, eventually, text};
use super::{CONFIG_FAULT, DONE, FAILURE, Ran, WRONG_USE, contains_all, trunkline};

/// Two records of `trunkline serve`, chained by SHA-256.
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

pub(super) fn log() -> String {
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

#[test]
fn the_logs_of_several_replicas_are_verified_together_and_reported_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, two, rotated) = (path("a.jsonl"), path("b.jsonl"), path("b.jsonl.1"));
    let log = log();
    let (first, second) = log.split_once('\n').unwrap();
    fs::write(&one, &log).unwrap();
    fs::write(&rotated, format!("{first}\n")).unwrap();
    fs::write(&two, second).unwrap();
    let verify = |more: &[&str]| trunkline(&[&["audit", "verify"], more].concat());
    verify(&[&one, &two, &rotated]).exits_with(FAILURE);
    let reported = |name: &str| format!("{name}: the chain is intact: 2 record(s), from 1 to 2");
    let both = verify(&["--separate", &one, &two, &rotated]).exits_with(DONE);
    both.prints(&[&reported(&one), &reported(&two)]);
    // A chain that begins anew within a log, and an altered record, are faults of that log alone.
    fs::write(&two, &log).unwrap();
    let ran = verify(&["--separate", &two, &rotated, &one]).exits_with(FAILURE);
    contains_all(&ran.0.stdout, &[&reported(&one)]);
    contains_all(&ran.0.stderr, &[&format!("{two}: not intact: ")]);
    fs::write(&rotated, "").unwrap();
    fs::write(&one, log.replacen("call", "list", 1)).unwrap();
    let ran = verify(&["--separate", "--json", &one, &two, &rotated]).exits_with(FAILURE);
    let document: Value = serde_json::from_slice(&ran.0.stdout).unwrap();
    let intact: Vec<_> = document["logs"].as_array().unwrap().iter().collect();
    let intact = intact.iter().map(|it| (it["log"].clone(), it["is_intact"].clone()));
    assert_eq!(intact.collect::<Vec<_>>(), [(json!(one), json!(false)), (json!(two), json!(true))]);
    assert_eq!(document["is_intact"], false);
    // A file that cannot be read does not end the verification of the others.
    let ran = verify(&["--separate", &path("nowhere"), &two]).exits_with(CONFIG_FAULT);
    contains_all(&ran.0.stdout, &[&reported(&two)]);
    verify(&["--separate", "--last", "2:aa", &two]).exits_with(WRONG_USE);
}

#[test]
fn a_log_is_verified_with_its_key_only_and_without_one_only_if_it_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (keyed, later, plain, key) = (path("keyed"), path("later"), path("plain"), path("key"));
    let secret = "0123456789abcdef0123456789abcdef";
    let log = log();
    fs::write(&plain, &log).unwrap();
    fs::write(&key, secret).unwrap();
    let (first, second) = keyed_log(secret);
    fs::write(&keyed, &first).unwrap();
    fs::write(&later, &second).unwrap();
    let verify = |more: &[&str]| trunkline(&[&["audit", "verify"], more].concat());
    verify(&["--key-file", &key, &later, &keyed]).exits_with(DONE).prints(&["2 record(s)"]);
    // The configuration has the files and the key.
    let config = path("gateway.toml");
    let audit = |more: &str| {
        fs::write(&config, format!("[audit]\nchain = true\n{more}")).unwrap();
    };
    fs::write(path("log"), &second).unwrap();
    fs::write(path("log.1"), &first).unwrap();
    audit(&format!("file = \"log\"\nchain_key = \"{secret}\"\n"));
    verify(&["-c", &config]).exits_with(DONE).prints(&["2 record(s)"]);
    verify(&["-c", &config, &keyed, &later]).exits_with(DONE).prints(&["2 record(s)"]);
    verify(&["-c", &config, "--key-file", &key]).exits_with(WRONG_USE);
    audit("file = \"log\"\n");
    verify(&["-c", &config]).exits_with(WRONG_USE).complains_of(&["is chained with a key"]);
    audit("stdout = true\n");
    verify(&["-c", &config]).exits_with(WRONG_USE).complains_of(&["no `audit.file`"]);
    audit("nope = 1\n");
    verify(&["-c", &config]).exits_with(CONFIG_FAULT).complains_of(&["nope"]);
    // One sentence, for any number of files and records.
    let missing = verify(&[&keyed, &later]).exits_with(WRONG_USE);
    says_only(
        &missing,
        &format!(
            "trunkline: {keyed} is chained with a key: give the file of the key with --key-file\n"
        ),
    );
    // The key was configured within the file.
    let mixed = path("mixed");
    let first_plain = log.lines().next().unwrap();
    fs::write(&mixed, format!("{first_plain}\n{second}{second}")).unwrap();
    let missing = verify(&[&mixed]).exits_with(WRONG_USE);
    says_only(
        &missing,
        &format!(
            "trunkline: {mixed} is chained with a key: give the file of the key with --key-file\n"
        ),
    );
    let surplus = verify(&["--key-file", &key, &plain]).exits_with(WRONG_USE);
    says_only(
        &surplus,
        &format!(
            "trunkline: {plain} is chained without a key, as anyone could have written it: leave out \
         --key-file if its gateway has no `audit.chain_key`\n"
        ),
    );
    // The second half was replaced by an intruder without the key.
    let replaced = log.lines().nth(1).unwrap().to_owned() + "\n";
    fs::write(&later, replaced).unwrap();
    verify(&["--key-file", &key, &keyed, &later])
        .exits_with(FAILURE)
        .complains_of(&["later:1: the chain is not keyed", "1 fault(s)"]);
    // Another key is a matter of the records.
    fs::write(&key, secret.replace('0', "f")).unwrap();
    verify(&["--key-file", &key, &keyed]).exits_with(FAILURE).complains_of(&["another key"]);
}

/// Checks that standard error is this text, and standard output is empty.
#[track_caller]
fn says_only(ran: &Ran, text: &str) {
    assert_eq!(std::str::from_utf8(&ran.0.stderr).unwrap(), text);
    assert!(ran.0.stdout.is_empty(), "{:?}", ran.0);
}

/// Returns the two records of [`LOG`], chained with a key.
fn keyed_log(secret: &str) -> (String, String) {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes());
    let sign = |line: &str| {
        let covered = line.split(",\"hmac\":").next().unwrap();
        data_encoding::HEXLOWER.encode(aws_lc_rs::hmac::sign(&key, covered.as_bytes()).as_ref())
    };
    let log = LOG.replace("\"hash\"", "\"hmac\"");
    let log = log.replace("HASH1", &sign(log.lines().next().unwrap()));
    let log = log.replace("HASH2", &sign(log.lines().nth(1).unwrap()));
    let (first, second) = log.split_once('\n').unwrap();
    (format!("{first}\n"), second.to_owned())
}

/// Calls a tool of a gateway, and reads the answer.
fn call(gateway: &Process, number: usize) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "shell", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "hours", "arguments": {}, "_meta": meta });
    let request =
        json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params });
    let body = request.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: hours\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("from nine to five"), "{answer}");
}

#[test]
fn records_on_standard_output_are_lines_and_a_closed_pipe_stops_no_call() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let lines = "[audit]\nstdout = true\nchain = true\nqueue_size = \"8KiB\"\n\
                 [tools.hours]\ntext = \"from nine to five\"\n";
    fs::write(&config, text(lines)).unwrap();
    let mut command = Command::new(TRUNKLINE);
    command.args(["serve", "--config"]).arg(&config).env_remove("TRUNKLINE_LOG");
    let mut gateway = Process::start_with_stdout(folder, command, Stdio::piped());
    let mut stdout = BufReader::new(gateway.take_stdout());
    let mut log = String::new();
    for number in 1..=3 {
        call(&gateway, number);
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let record: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&record["seq"], &record["tool"]), (&json!(number), &json!("hours")), "{line}");
        log += &line;
    }
    // Standard output has only records: a chain as in a file.
    let path = gateway.folder().join("stdout.jsonl");
    fs::write(&path, log).unwrap();
    trunkline(&["audit", "verify", path.to_str().unwrap()]).exits_with(DONE).prints(&["3"]);
    drop(stdout);
    let mut numbers = 4..;
    let mut call_next = || call(&gateway, numbers.next().unwrap());
    let status = || gateway.status()["audit"].clone();
    // A process that another test is starting may hold the pipe for a moment.
    eventually("the closed pipe is noticed", || {
        call_next();
        status()["error"].is_string()
    });
    let written = status()["written"].clone();
    (0..30).for_each(|_| call_next());
    eventually("the loss is counted", || status()["dropped"].as_u64() > Some(0));
    let status = status();
    assert!(status["error"].as_str().unwrap().contains("pipe"), "{status}");
    assert_eq!(status["written"], written, "{status}");
    assert!(gateway.log().contains("the audit log cannot be written"), "{}", gateway.log());
}
