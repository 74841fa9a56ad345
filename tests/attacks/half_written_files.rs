//! Files that are read during a write, and configurations with a missing part. The missing part
//! must not be a protection of the running configuration.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Process, eventually, text};
use crate::support::gateway::key_digest;
use crate::waiting::holds_within;

#[test]
fn a_file_that_is_written_in_place_is_never_read_half_way() {
    let gateway = Process::start(&guarded("one"));
    let new = text(&guarded("two"));
    let before_clients = new.find("[clients").unwrap();
    // Written piece by piece; the first pieces end at points where the file would be valid.
    let mut file = in_place(&gateway.config());
    let cuts = [new.find("[policy").unwrap(), before_clients, new.len() - 9];
    let mut written = 0;
    for cut in cuts {
        file.write_all(&new.as_bytes()[written..cut]).unwrap();
        written = cut;
        assert!(!holds_within(PAUSE, || !last_reload(&gateway).is_null()), "{}", gateway.log());
        assert_eq!(status_without_key(&gateway), 401);
    }
    file.write_all(&new.as_bytes()[written..]).unwrap();
    drop(file);
    loads(&gateway, 2);
    assert_eq!(last_reload(&gateway)["outcome"], "applied");
    assert_eq!(status_without_key(&gateway), 401);
}

#[test]
fn a_disk_that_fills_during_the_write_takes_no_protection_away() {
    // The first 512 bytes end with a whole line, or within one.
    for (padding, outcome) in [(0, "refused"), (9, "rejected")] {
        let gateway = Process::start(&guarded("one"));
        let head = text("\n[policy.rules.all]\n");
        let pad = 512 - head.len() - "#\n".len() + padding;
        let new = format!("{head}#{}\n{}", " ".repeat(pad), text(&guarded("two")));
        let source = gateway.folder().join("new");
        std::fs::write(&source, new).unwrap();
        // The limit is in blocks of 512 bytes, and ends the write like a full disk.
        let script = "ulimit -f 1; cat \"$0\" > \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&source).arg(gateway.config());
        assert!(!command.output().unwrap().status.success());
        assert_eq!(gateway.config().metadata().unwrap().len(), 512);
        eventually("the half is refused", || last_reload(&gateway)["outcome"] == outcome);
        assert_eq!(generation(&gateway), 1);
        assert_eq!(status_without_key(&gateway), 401);
    }
}

#[test]
fn renamed_files_and_swapped_links_load_at_once() {
    // A file written in place would not load without a terminated last line.
    let version = |name: &str| text(&guarded(name)).trim_end().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start_in(folder, &guarded("one"));
    // As rsync does, and most editors.
    let temporary = gateway.folder().join(".gateway.toml.Xq3f");
    std::fs::write(&temporary, version("two")).unwrap();
    std::fs::rename(&temporary, gateway.config()).unwrap();
    loads(&gateway, 2);
    // A program that renames by itself, without help from this test.
    let sed = Command::new("sed").args(["-i", "s/two/three/"]).arg(gateway.config()).status();
    assert!(sed.unwrap().success());
    loads(&gateway, 3);
    // As Kubernetes does: the first swap makes the file a link, the second one moves its target.
    for (generation, name) in [(4, "four"), (5, "five")] {
        swap_links(gateway.folder(), name, &version(name));
        loads(&gateway, generation);
    }
}

#[test]
fn cp_and_editors_that_write_in_place_load_when_the_file_is_whole() {
    let gateway = Process::start(&guarded("one"));
    let source = gateway.folder().join("new");
    std::fs::write(&source, text(&guarded("two"))).unwrap();
    assert!(Command::new("cp").arg(&source).arg(gateway.config()).status().unwrap().success());
    loads(&gateway, 2);
    // As vim does: the old file is moved away, and a new one is written in its place.
    let new = text(&guarded("three"));
    let (first, second) = new.split_at(new.find("[clients").unwrap());
    std::fs::rename(gateway.config(), gateway.folder().join("gateway.toml~")).unwrap();
    let mut file = File::create(gateway.config()).unwrap();
    file.write_all(first.as_bytes()).unwrap();
    let was_read = || last_reload(&gateway)["outcome"] != "applied" || generation(&gateway) != 2;
    assert!(!holds_within(PAUSE, was_read), "{}", last_reload(&gateway));
    file.write_all(second.as_bytes()).unwrap();
    drop(file);
    loads(&gateway, 3);
    // An unterminated last line may be half a line.
    let partial = text(&guarded("four")).trim_end().to_owned();
    in_place(&gateway.config()).write_all(partial.as_bytes()).unwrap();
    assert_faults(&gateway, "the last line has no line end");
    let mut file = OpenOptions::new().append(true).open(gateway.config()).unwrap();
    file.write_all(b"\n").unwrap();
    loads(&gateway, 4);
    in_place(&gateway.config());
    assert_faults(&gateway, "the file is empty");
    assert_eq!(generation(&gateway), 4);
}

#[test]
fn a_secret_that_is_written_in_place_is_not_read_half_way_and_never_empty() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("ci.sha256");
    std::fs::write(&key, key_digest("one") + "\n").unwrap();
    let client = "\n[clients.ci]\nkey = \"${file:ci.sha256}\"\n";
    let gateway = Process::start_in(folder, client);
    let new = key_digest("two") + "\n";
    let mut file = in_place(&key);
    file.write_all(&new.as_bytes()[..20]).unwrap();
    assert!(!holds_within(PAUSE, || !last_reload(&gateway).is_null()));
    file.write_all(&new.as_bytes()[20..]).unwrap();
    loads(&gateway, 2);
    in_place(&key);
    assert_faults(&gateway, "found an empty file");
    assert_eq!(status_without_key(&gateway), 401);
}

#[test]
fn a_watched_file_that_weakens_protection_is_refused_until_an_operator_accepts_it() {
    let gateway = Process::start(&guarded("one"));
    let weak = guarded("two").replace(DENY, "").replace("pins = \"hold\"\n", "");
    gateway.replace_config(&weak);
    eventually("the reload is refused", || last_reload(&gateway)["outcome"] == "refused");
    let refused = last_reload(&gateway);
    let losses = [
        "policy.rules.secrets: the deny rule is removed",
        "servers.web.pins: `hold` is weakened to `warn`",
    ];
    assert_eq!(refused["losses"], Value::from(losses.to_vec()));
    let accept = format!("kill -HUP {}", gateway.pid());
    assert!(refused["accept"].as_str().unwrap().contains(&accept), "{refused}");
    eventually("the log names the losses and the way out", || {
        let log = gateway.log();
        losses.iter().chain([&accept.as_str()]).all(|part| log.contains(part))
    });
    assert!(
        gateway.operator("/metrics").contains("trunkline_reloads_total{outcome=\"refused\"} 1")
    );
    assert_eq!(generation(&gateway), 1);
    // The file changes once more: the operator accepts the file in its current state.
    gateway.replace_config(&weak.replace("two", "three"));
    eventually("it is refused again", || {
        gateway.operator("/metrics").contains("trunkline_reloads_total{outcome=\"refused\"} 2")
    });
    gateway.signal(Signal::HUP);
    loads(&gateway, 2);
    let accepted = last_reload(&gateway);
    assert_eq!((&accepted["outcome"], &accepted["accept"]), (&"applied".into(), &Value::Null));
    assert_eq!(accepted["losses"], Value::from(losses.to_vec()), "the log and status name them");
    let said = format!("protection is weakened: {}", losses[0]);
    eventually("the log names what was accepted", || gateway.log().contains(&said));
    // A stricter configuration still loads.
    gateway.replace_config(&guarded("four"));
    loads(&gateway, 3);
}

/// Returns a configuration with a rule that denies, a server with held definitions, and its client
/// at the end.
fn guarded(title: &str) -> String {
    format!(
        "\n[gateway.limits]\nbatch = 8\n\n[profiles.{title}]\n\n[policy.rules.all]\n{DENY}\n\
         [servers.web]\nurl = \"http://127.0.0.1:9/mcp\"\nstart = \"lazy\"\npins = \"hold\"\n\n\
         [clients.ci]\nkey = \"{}\"\n",
        key_digest("ci")
    )
}

const DENY: &str = "[policy.rules.secrets]\neffect = \"deny\"\ntools = [\"delete_*\"]\n";

/// Opens a file like `cp` and `cat >`.
fn in_place(path: &Path) -> File {
    OpenOptions::new().write(true).truncate(true).open(path).unwrap()
}

/// Installs a configuration like Kubernetes: a link to a link to a folder, with a swap of the
/// middle one.
fn swap_links(folder: &Path, version: &str, text: &str) {
    let data = folder.join(format!("..{version}"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("gateway.toml"), text).unwrap();
    let swap = |temporary: &str, name: &str, target: &str| {
        symlink(target, folder.join(temporary)).unwrap();
        std::fs::rename(folder.join(temporary), folder.join(name)).unwrap();
    };
    swap("..data_tmp", "..data", &format!("..{version}"));
    if !folder.join("gateway.toml").is_symlink() {
        swap("gateway.toml.new", "gateway.toml", "..data/gateway.toml");
    }
}

fn last_reload(gateway: &Process) -> Value {
    gateway.status()["configuration"]["last_reload"].clone()
}

fn generation(gateway: &Process) -> u64 {
    gateway.status()["configuration"]["generation"].as_u64().unwrap()
}

#[track_caller]
fn loads(gateway: &Process, expected: u64) {
    let is_loaded = holds_within(Duration::from_secs(20), || generation(gateway) >= expected);
    assert!(is_loaded, "{}\n{}", last_reload(gateway), gateway.log());
    eventually("the report follows", || last_reload(gateway)["outcome"] == "applied");
    assert_eq!(generation(gateway), expected);
}

#[track_caller]
fn assert_faults(gateway: &Process, part: &str) {
    eventually(part, || last_reload(gateway)["faults"].to_string().contains(part));
}

/// Returns the HTTP status of a call without a key.
fn status_without_key(gateway: &Process) -> u16 {
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
                content-length: 2\r\n\r\n{}";
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer);
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Time for the gateway to read a partial file: longer than the quiet time after an event, and
/// shorter than the time that a file needs to settle.
const PAUSE: Duration = Duration::from_millis(400);
