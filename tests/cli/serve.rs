//! `trunkline serve`: its start, and its reactions to signals.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::process::{Process, TRUNKLINE, Tag, eventually, text};
use super::waiting::holds_within;
use super::{DONE, FAILURE, clock, file, trunkline};

#[test]
fn an_address_in_use_ends_it_before_any_server_is_started() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let server = format!("\n[servers.a]\ncommand = \"touch\"\nargs = [{ran:?}]\n");
    let config = file(folder.path(), &text(&server));
    trunkline(&["serve", "--config", &config, "--listen", &address])
        .exits_with(FAILURE)
        .complains_of(&[
            &format!("gateway.listen: {address} is in use by "),
            &format!("(process {}): stop it", std::process::id()),
        ]);
    assert!(!ran.exists());
}

/// Sends a Modern call of the clock's countdown, without waiting for the answer.
fn countdown(gateway: &Process, seconds: u64) -> TcpStream {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "shell", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": 1,
    });
    let params =
        json!({ "name": "clock__countdown", "arguments": { "seconds": seconds }, "_meta": meta });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: clock__countdown\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).unwrap();
    eventually("the call is in flight", || gateway.server("clock")["in_flight"] == 1);
    socket
}

fn read(mut socket: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn sigterm_and_sigint_let_calls_in_flight_finish() {
    for signal in [Signal::TERM, Signal::INT] {
        let tag = Tag::new();
        let mut gateway = Process::start(&clock(&tag));
        gateway.ready(&["clock"]);
        let call = countdown(&gateway, 1);
        gateway.signal(signal);
        let answer = read(call);
        assert!(answer.contains("finished") && answer.ends_with("0\r\n\r\n"), "{answer}");
        assert_eq!(gateway.ended().code(), Some(DONE));
        assert!(TcpStream::connect(gateway.address).is_err());
        tag.gone();
    }
}

#[test]
fn a_call_longer_than_the_drain_time_is_cut_and_the_exit_is_clean() {
    let tag = Tag::new();
    let mut gateway = Process::start(&clock(&tag));
    gateway.ready(&["clock"]);
    let call = countdown(&gateway, 60);
    let began = Instant::now();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().code(), Some(DONE));
    assert!(text("").contains("drain = \"2s\""));
    let took = began.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(8)).contains(&took), "{took:?}");
    assert!(!read(call).contains("finished"));
    tag.gone();
}

#[test]
fn the_command_line_wins_over_the_file() {
    let tag = Tag::new();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    // An unusable address, and a level that logs nothing.
    let file = text(&clock(&tag))
        .replacen("127.0.0.1:0", "127.0.0.1:1", 1)
        .replace("level = \"info", "level = \"off");
    std::fs::write(&config, file).unwrap();
    let options = ["--listen", "127.0.0.1:0", "--log", "info"];
    let mut gateway = Process::start_with(folder, &config, &options);
    gateway.ready(&["clock"]);
    // It still does after a reload.
    gateway.signal(Signal::HUP);
    eventually("the reload is done", || {
        !gateway.status()["configuration"]["last_reload"].is_null()
    });
    TcpStream::connect(gateway.address).unwrap();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().code(), Some(DONE));
    tag.gone();
}

/// Returns a configuration without servers, with lines of its own in `[gateway]`.
fn with_lines(lines: &str) -> String {
    text("").replacen("[gateway]\n", &format!("[gateway]\n{lines}\n"), 1)
}

fn start(lines: &str) -> Process {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    std::fs::write(&config, with_lines(lines)).unwrap();
    Process::start_with(folder, &config, &[])
}

#[test]
fn clients_are_served_by_as_many_threads_as_the_configuration_says() {
    for threads in [1, 7] {
        let gateway = start(&format!("threads = {threads}"));
        // A thread gets its name a moment after its start.
        eventually("every worker has its name", || gateway.threads("worker-") >= threads);
        assert_eq!(gateway.threads("worker-"), threads);
    }
}

fn generation(gateway: &Process) -> u64 {
    gateway.status()["configuration"]["generation"].as_u64().unwrap()
}

/// Replaces the file, with another title.
fn retitle(gateway: &Process, lines: &str, title: u64) {
    let new = gateway.folder().join("new");
    std::fs::write(&new, with_lines(&format!("{lines}\ntitle = \"{title}\""))).unwrap();
    std::fs::rename(&new, gateway.config()).unwrap();
}

#[test]
fn a_configuration_is_reloaded_when_it_says_so_and_never_otherwise() {
    let manners = ["reload = \"watch\"", "reload = \"signal\"", "reload = \"off\""];
    let [watch, signal, off] = manners.map(start);
    for change in 1..=3 {
        for (gateway, lines) in [&off, &signal, &watch].into_iter().zip(manners.iter().rev()) {
            retitle(gateway, lines, change);
        }
        eventually("a change is seen", || generation(&watch) == change + 1);
    }
    for gateway in [&signal, &off] {
        // They had as much time to see the changes as the watching one needed.
        assert_eq!(generation(gateway), 1);
        assert!(!holds_within(Duration::from_millis(500), || generation(gateway) != 1));
        gateway.signal(Signal::HUP);
    }
    eventually("SIGHUP reloads", || generation(&signal) == 2);
    eventually("SIGHUP is ignored", || off.log().contains("SIGHUP is ignored"));
    assert_eq!(generation(&off), 1);
}

/// Returns the limits of a process and its children, of one kind.
fn limits(pid: &str, kind: &str) -> Vec<String> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix(kind)).unwrap();
    line.split_whitespace().take(2).map(str::to_owned).collect()
}

#[test]
fn a_crash_writes_no_core_dump_of_the_gateway_or_its_servers_unless_that_is_allowed() {
    let own = limits("self", "Max core file size");
    for (line, expected) in [("", vec!["0".to_owned(); 2]), ("core_dumps = true\n", own)] {
        let tag = Tag::new();
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("gateway.toml");
        let lines = text(&clock(&tag)).replacen("[gateway]\n", &format!("[gateway]\n{line}"), 1);
        std::fs::write(&config, lines).unwrap();
        let gateway = Process::start_with(folder, &config, &[]);
        gateway.ready(&["clock"]);
        let child = gateway.server("clock")["pid"].to_string();
        for pid in [gateway.pid().to_string(), child] {
            assert_eq!(limits(&pid, "Max core file size"), expected, "{line:?} {pid}");
        }
    }
}

#[test]
fn the_other_commands_that_hold_credentials_write_no_core_dumps_either() {
    // A server that never answers: both commands wait for it.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let lines = format!(
        "\n[vault]\npath = \"logins.vault\"\nkeys = [\"a long key of the vault that is random\"]\n\
         [servers.s]\nurl = \"http://{}/mcp\"\n[servers.s.oauth]\n",
        silent.local_addr().unwrap()
    );
    let config = file(folder.path(), &text(&lines));
    for command in [&["stdio"][..], &["login", "s"]] {
        let mut child = Command::new(TRUNKLINE)
            .args(command)
            .args(["--config", &config])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id().to_string();
        eventually("core dumps are forbidden", || limits(&pid, "Max core file size") == ["0", "0"]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn the_memory_of_a_control_group_bounds_the_gateway_at_its_start_and_after_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let group = folder.path().join("group");
    std::fs::create_dir(&group).unwrap();
    std::fs::write(group.join("memory.max"), "157286400\n").unwrap();
    let config = file(folder.path(), &text(""));
    // The file system of control groups, in a mount namespace of the gateway's own.
    let script = "mount --bind \"$0\" /sys/fs/cgroup && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script]).arg(&group).arg(TRUNKLINE);
    command.args(["serve", "--config", &config]).env_remove("TRUNKLINE_LOG");
    let gateway = Process::start_command(folder, command);
    let reduced = "because the control group has little memory";
    eventually("the log names what is reduced", || {
        let log = gateway.log();
        log.lines().any(|line| line.contains("gateway.limits.bodies: ") && line.contains(reduced))
    });
    // The same file has the same bounds, so that nothing changes.
    gateway.signal(Signal::HUP);
    let last_reload = || gateway.status()["configuration"]["last_reload"]["outcome"].clone();
    eventually("it is reloaded", || !last_reload().is_null());
    assert_eq!(last_reload(), "unchanged", "{}", gateway.log());
}
