//! The configuration changes while clients call without pause. Unaffected parts do not notice, and
//! no process or file is left behind.
//!
//! `TRUNKLINE_SOAK=2000` sets the number of reloads of the soak.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::peers::HttpServer;
use super::process::{Process, TRUNKLINE, Tag, eventually, text};
use super::support::{Client, Reply, Upstream};

pub(super) fn example(name: &str, which: &str, env: &str, more: &str) -> String {
    format!(
        "\n[servers.{name}]\ncommand = {TRUNKLINE:?}\nargs = [\"example\", {which:?}]\n\
         env = {{ {env} }}\nstop_timeout = \"1s\"\n{more}"
    )
}

fn normal_http_server() -> HttpServer {
    let script = format!("{}/tests/fixtures/hostile_http.py", env!("CARGO_MANIFEST_DIR"));
    let args = [&script, "--mode", "normal", "--era", "legacy", "--lifetime", "3600"];
    HttpServer::announcing(Command::new("python3").args(args))
}

pub(super) fn generation(gateway: &Process) -> u64 {
    gateway.status()["configuration"]["generation"].as_u64().unwrap()
}

/// Waits until the configuration with this number runs.
#[track_caller]
pub(super) fn loaded(gateway: &Process, expected: u64) {
    eventually(&format!("configuration {expected} runs"), || generation(gateway) >= expected);
}

/// Returns the servers that no reload affects, and a tool of each.
fn steady(tag: &Tag, http: &HttpServer) -> String {
    example("clock", "clock", &tag.env(), "")
        + &example("notes", "notes", &tag.env(), "")
        + &format!("\n[servers.web]\nurl = {:?}\n", http.url())
}

const STEADY: [(&str, &str); 5] = [
    ("clock__now", r#"{"zone":"Europe/Berlin"}"#),
    ("notes__list", "{}"),
    ("clock__search", r#"{"query":"Paris"}"#),
    ("web__good", "{}"),
    ("notes__search", r#"{"query":"none"}"#),
];

/// Returns the servers of the `n`-th configuration besides the steady ones: renamed, added,
/// removed, restarted, with other tool rules. Two to four of them.
pub(super) fn unsteady(n: u64, tag: &Tag) -> String {
    // Renamed, every time.
    let mut servers = example(&format!("renamed-{}", n % 7), "clock", &tag.env(), "");
    // Kept, with other rules for its tools; restarted every fifth time.
    let env = format!("{}, ROUND = \"{}\"", tag.env(), n / 5);
    let rules = match n % 3 {
        0 => format!("tools.delete = {{ description = \"{n}\" }}\n"),
        1 => format!("tools.add = {{ name = \"keep_{n}\" }}\n"),
        _ => format!("rate = \"{}/s\"\n", 1000 + n),
    };
    servers += &example("ruled", "notes", &env, &rules);
    // Added and removed.
    if n.is_multiple_of(2) {
        servers += &example("sometimes", "notes", &tag.env(), "");
    }
    if n % 4 == 1 {
        servers += "\n[servers.missing]\ncommand = \"/nowhere/to/be/found\"\n";
    }
    servers
}

/// Returns the number of processes of the `n`-th configuration, including the steady ones.
fn processes(n: u64) -> usize {
    2 + 2 + usize::from(n.is_multiple_of(2))
}

/// Sixty-four clients that call without pause.
struct Load {
    tasks: JoinSet<Vec<String>>,
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
}

impl Load {
    async fn start(gateway: &Process) -> Self {
        let mut load = Self { tasks: JoinSet::new(), stop: Arc::default(), calls: Arc::default() };
        for number in 0..64 {
            let client = match number % 2 {
                0 => Client::modern(gateway.address).keep(),
                _ => {
                    Client::legacy(gateway.address, LEGACY[number / 2 % LEGACY.len()]).await.keep()
                }
            };
            let (stop, calls) = (Arc::clone(&load.stop), Arc::clone(&load.calls));
            load.tasks.spawn(call_on(client, number, stop, calls));
        }
        load
    }

    /// Stops; returns the number of calls and the faults.
    async fn stop(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let faults = self.tasks.join_all().await.concat();
        (self.calls.load(Ordering::Relaxed), faults)
    }
}

const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

async fn call_on(
    client: Client,
    number: usize,
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut turn = number;
    while !stop.load(Ordering::Relaxed) {
        let (tool, arguments) = STEADY[turn % STEADY.len()];
        let said = client.call(tool, serde_json::from_str(arguments).unwrap()).await;
        let result = &said.answer()["result"];
        if !result["content"].is_array() || result["isError"] == true {
            faults.push(format!("client {number}, {tool}: {said:?}"));
        }
        calls.fetch_add(1, Ordering::Relaxed);
        turn += 1;
        // A call to a changing server may fail; it must be answered, and must not hang.
        if turn.is_multiple_of(20) {
            let _ = client.call("ruled__list", json!({})).await.answer();
        }
    }
    faults
}

/// Installs a configuration like Kubernetes: a link to a link to a folder, with a swap of the
/// middle one.
fn swap_links(folder: &Path, n: u64, text: &str) {
    let data = folder.join(format!("..{n}"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("gateway.toml"), text).unwrap();
    let rename = |from: &str, to: &str, target: &str| {
        let _ = std::fs::remove_file(folder.join(from));
        symlink(target, folder.join(from)).unwrap();
        std::fs::rename(folder.join(from), folder.join(to)).unwrap();
    };
    rename("..data_tmp", "..data", &format!("..{n}"));
    let config = folder.join("gateway.toml");
    if !config.symlink_metadata().is_ok_and(|file| file.is_symlink()) {
        rename("gateway.toml.new", "gateway.toml", "..data/gateway.toml");
    }
    if let Some(before) = n.checked_sub(1) {
        let _ = std::fs::remove_dir_all(folder.join(format!("..{before}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_untouched_servers_do_not_notice_200_reloads() {
    let reloads = std::env::var("TRUNKLINE_SOAK").map_or(200, |count| count.parse().unwrap());
    let (tag, http) = (Tag::new(), normal_http_server());
    let servers = |n: u64| steady(&tag, &http) + &unsteady(n, &tag);
    let mut gateway = Process::start(&servers(0));
    gateway.ready(&["clock", "notes", "web"]);
    let (modern, legacy) =
        (Client::modern(gateway.address), Client::legacy(gateway.address, "2025-11-25").await);
    let mut streams = [modern.listen().await, legacy.listen().await];
    let load = Load::start(&gateway).await;
    let started = Instant::now();
    let mut warm = (0, 0);
    for n in 1..=reloads {
        match n * 4 / (reloads + 1) {
            0 | 2 => gateway.replace_config(&servers(n)),
            1 => {
                gateway.replace_config(&servers(n));
                gateway.signal(Signal::HUP);
            }
            _ => swap_links(gateway.folder(), n, &text(&servers(n))),
        }
        loaded(&gateway, n + 1);
        if n == reloads / 5 {
            warm = (gateway.memory("VmRSS"), gateway.files());
        }
        for stream in &mut streams {
            drain(stream).await;
        }
    }
    let took = started.elapsed();
    let hot = gateway.memory("VmRSS");
    let (calls, faults) = load.stop().await;
    println!("{reloads} reloads and {calls} calls in {took:.1?}; memory {} → {hot} KiB", warm.0);
    assert!(
        faults.is_empty(),
        "{} of {calls} calls failed\n{}",
        faults.len(),
        faults[..5.min(faults.len())].join("\n")
    );
    assert_eq!(generation(&gateway), reloads + 1, "a reload for each change, and no other");
    let expected = processes(reloads);
    eventually("the processes are those of the configuration", || {
        tag.processes().len() == expected
    });
    assert!(hot < warm.0 + warm.0 / 2 + 16 * 1024, "memory grew from {} to {hot} KiB", warm.0);
    eventually("no file or socket is left open", || gateway.files() <= warm.1);
    // Streams and sessions have survived all reloads.
    gateway.replace_config(&(servers(reloads) + &example("last", "clock", &tag.env(), "")));
    loaded(&gateway, reloads + 2);
    for stream in &mut streams {
        let message = stream.message().await.unwrap();
        assert_eq!(message["method"], "notifications/tools/list_changed");
    }
    assert!(legacy.tool_names().await.contains(&"clock__now".to_owned()));
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().success());
    tag.gone();
}

/// Reads the messages so far, which are list-changed notifications only.
async fn drain(stream: &mut Reply) {
    while let Ok(message) = tokio::time::timeout(Duration::ZERO, stream.message()).await {
        let message = message.expect("an open stream");
        assert_eq!(message["method"], "notifications/tools/list_changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_notified_of_another_list_and_of_nothing_else() {
    let tag = Tag::new();
    let with = |more: &str| example("notes", "notes", &tag.env(), more);
    let gateway = Process::start(&with(""));
    gateway.ready(&["notes"]);
    let legacy = Client::legacy(gateway.address, "2025-11-25").await;
    let modern = Client::modern(gateway.address);
    let mut streams = [legacy.listen().await, modern.listen().await];
    let configurations = [
        "rate = \"500/s\"\n",
        "timeout = \"7s\"\n",
        // Restarted, with the same list.
        "start_timeout = \"20s\"\n",
        "tools.add = { name = \"first\" }\n",
        "tools.add = { name = \"first\", rate = \"5/s\" }\n",
        "tools.add = { name = \"second\" }\n",
    ];
    for (before, more) in configurations.into_iter().enumerate() {
        gateway.replace_config(&with(more));
        loaded(&gateway, before as u64 + 2);
        let told = match more {
            "tools.add = { name = \"first\" }\n" | "tools.add = { name = \"second\" }\n" => 1,
            _ => 0,
        };
        for stream in &mut streams {
            for _ in 0..told {
                let message = stream.message().await.unwrap();
                assert_eq!(message["method"], "notifications/tools/list_changed");
            }
        }
    }
    // The streams end, and had no other messages.
    gateway.signal(Signal::TERM);
    for mut stream in streams {
        while let Some(message) = stream.message().await {
            assert_eq!(message["method"], Value::Null, "only the end of the subscription is left");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_configuration_changes_nothing_and_every_fault_is_reported() {
    let tag = Tag::new();
    let good = example("notes", "notes", &tag.env(), "");
    let gateway = Process::start(&good);
    gateway.ready(&["notes"]);
    let child = gateway.server("notes")["pid"].clone();
    let client = Client::legacy(gateway.address, "2025-11-25").await;
    let last = |gateway: &Process| gateway.status()["configuration"]["last_reload"].clone();
    let faulty = good.clone() + "timeuot = \"1s\"\nrate = \"often\"\n";
    gateway.replace_config(&faulty);
    eventually("the reload is refused", || last(&gateway)["outcome"] == "rejected");
    let told = last(&gateway)["faults"].to_string();
    let lines = text(&faulty).lines().count();
    let (first, second) = (lines - 1, lines);
    for expected in
        [format!(":{first}: servers.notes.timeuot"), format!(":{second}: servers.notes.rate")]
    {
        assert!(told.contains(&expected), "{expected} in {told}");
        eventually("the log tells it, too", || gateway.log().contains(&expected));
    }
    assert_eq!(generation(&gateway), 1);
    assert_eq!(gateway.server("notes")["pid"], child);
    assert!(!client.call("notes__list", json!({})).await.is_error());
    // A missing file is a fault, too, and a later file is loaded again.
    std::fs::remove_file(gateway.config()).unwrap();
    eventually("the missing file is told", || {
        last(&gateway)["faults"].to_string().contains("cannot read")
    });
    assert!(!client.call("notes__list", json!({})).await.is_error());
    gateway.replace_config(&(good + "rate = \"100/s\"\n"));
    loaded(&gateway, 2);
    // The report follows the change.
    eventually("it is told to be applied", || last(&gateway)["outcome"] == "applied");
    assert!(!client.call("notes__list", json!({})).await.is_error());
}

#[test]
fn a_gateway_that_is_killed_leaves_no_orphan() {
    let tag = Tag::new();
    let hostile = format!("{}/tests/fixtures/hostile.py", env!("CARGO_MANIFEST_DIR"));
    let deaf = format!(
        "\n[servers.deaf]\ncommand = \"python3\"\nargs = [{hostile:?}, \"--mode\", \"deaf\"]\nenv = {{ {} }}\n",
        tag.env()
    );
    // A child with a child of its own, like those of `npx` and `uvx`.
    let shell = format!(
        "\n[servers.shell]\ncommand = \"sh\"\nargs = [\"-c\", '\"{TRUNKLINE}\" example clock; exit']\nenv = {{ {} }}\n",
        tag.env()
    );
    let mut gateway = Process::start(&(deaf + &shell + &example("notes", "notes", &tag.env(), "")));
    gateway.ready(&["deaf", "shell", "notes"]);
    assert!(tag.processes().len() >= 4);
    gateway.signal(Signal::KILL);
    gateway.ended();
    tag.gone();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commands_new_output_is_sent_without_a_lost_call() {
    let upstream = Upstream::modern().await;
    let folder = tempfile::tempdir().unwrap();
    let (script, token) = (folder.path().join("login"), folder.path().join("token"));
    std::fs::write(&script, "cat $1\n").unwrap();
    std::fs::write(&token, "first-token\n").unwrap();
    let command = format!("${{command:sh {} {}}}", script.display(), token.display());
    let lines =
        upstream.http() + &format!("headers = {{ Authorization = \"Bearer {command}\" }}\n");
    let config = text(&format!("[servers.s]\n{lines}")).replacen(
        "[gateway]\n",
        "[gateway]\ncommand_refresh = \"300ms\"\n",
        1,
    );
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, config).unwrap();
    let gateway = Process::start_with(folder, &path, &[]);
    gateway.ready(&["s"]);
    let client = Client::modern(gateway.address);
    let sent =
        || upstream.calls().pop().and_then(|call| Some(call.header("authorization")?.to_owned()));
    let mut calls = 0;
    let mut call_until = async |expected: &str| {
        let until = Instant::now() + Duration::from_secs(20);
        while sent().as_deref() != Some(expected) {
            assert!(Instant::now() < until, "{expected} is not sent: {:?}", sent());
            assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
            calls += 1;
        }
    };
    call_until("Bearer first-token").await;
    std::fs::write(&token, "second-token\n").unwrap();
    call_until("Bearer second-token").await;
    // A failing command has no effect.
    std::fs::write(&script, "echo no session >&2; exit 1\n").unwrap();
    eventually("the failure is told", || gateway.log().contains("no session"));
    call_until("Bearer second-token").await;
    assert_eq!(upstream.calls().len(), calls);
    assert!(
        !gateway.log().contains("second-token")
            && !gateway.status().to_string().contains("second-token")
    );
}
