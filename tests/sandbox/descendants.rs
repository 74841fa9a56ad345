//! Processes that leave the group and the session of their child: none outlives the child or the
//! gateway.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use trunkline::call::ServerName;
use trunkline::child::{Child, Guardian};

use crate::waiting::{holds_within, until_blocking};
use crate::{TRUNKLINE, python, sandbox};

/// Starts a process in a session of its own, with a parent that exits, and prints its id.
const DAEMON: &str = "import os, signal, sys, time\n\
    r, w = os.pipe()\n\
    if os.fork() == 0:\n    \
        os.setsid()\n    \
        if os.fork():\n        os._exit(0)\n    \
        [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGHUP)]\n    \
        os.write(w, str(os.getpid()).encode())\n    \
        [os.close(f) for f in (0, 1, 2)]\n    \
        time.sleep(600)\n\
    os.wait()\n\
    print(os.read(r, 99).decode(), flush=True)\n";

/// Forks endlessly, each time in a session of its own.
const CHAIN: &str = "if os.fork() == 0:\n    \
    while True:\n        \
        if os.fork(): os._exit(0)\n        \
        os.setsid()\n\
    time.sleep(600)";

struct DaemonChild {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    daemon: PathBuf,
}

async fn start(rest: &str) -> DaemonChild {
    let spec = python(&format!("{DAEMON}{rest}"), Some(sandbox("true")));
    let guardian = Guardian::when_needed(Path::new(TRUNKLINE));
    let (child, stdin, stdout) =
        Child::spawn(&ServerName::new("test").unwrap(), &spec, &guardian).unwrap();
    let mut stdout = BufReader::new(stdout);
    let mut line = String::new();
    let read = stdout.read_line(&mut line);
    tokio::time::timeout(Duration::from_secs(30), read).await.unwrap().unwrap();
    let daemon = Path::new("/proc").join(line.trim());
    assert!(!line.trim().is_empty() && daemon.exists(), "{line} {:?}", child.last_words());
    DaemonChild { child, stdin, stdout, daemon }
}

fn wait_until_gone(process: &Path) {
    let limit = Duration::from_secs(20);
    assert!(holds_within(limit, || !process.exists()), "{} is left", process.display());
}

#[tokio::test]
async fn a_daemon_ends_with_the_child_that_started_it() {
    let mut running = start("sys.exit(7)").await;
    assert_eq!(running.child.exited().await.code(), Some(7));
    assert!(!running.daemon.exists());
}

#[tokio::test]
async fn a_daemon_ends_when_its_child_is_stopped() {
    let running = start("time.sleep(600)").await;
    drop(running.stdin);
    running.child.stop().await;
    assert!(!running.daemon.exists());
    drop(running.stdout);
}

#[tokio::test]
async fn a_daemon_ends_when_its_child_is_dropped() {
    let running = start("time.sleep(600)").await;
    drop(running.child);
    wait_until_gone(&running.daemon);
}

#[tokio::test]
async fn a_chain_of_daemons_does_not_get_away() {
    let running = start(CHAIN).await;
    let child = running.child.id();
    drop(running.stdin);
    running.child.stop().await;
    wait_until_gone(&running.daemon);
    assert!(!Path::new("/proc").join(child.to_string()).exists());
    let is_left = |folder: &std::fs::DirEntry| {
        let line = std::fs::read_to_string(folder.path().join("cmdline")).unwrap_or_default();
        line.contains(CHAIN)
    };
    let left = std::fs::read_dir("/proc").unwrap().flatten().filter(is_left).count();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_daemon_ends_when_the_gateway_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let id = folder.path().join("id");
    let code = DAEMON.replace(
        "time.sleep(600)",
        &format!(
            "open({:?}, 'w').write(str(os.getpid())); time.sleep(600)",
            id.display().to_string()
        ),
    );
    std::fs::write(folder.path().join("server.py"), code + "time.sleep(600)\n").unwrap();
    let config = folder.path().join("gateway.toml");
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[servers.s]\ncommand = \"/usr/bin/python3\"\n\
         args = [{:?}]\nsandbox = {{ read = [{:?}], write = [{:?}] }}\n",
        folder.path().join("server.py"),
        folder.path().join("server.py"),
        folder.path(),
    );
    std::fs::write(&config, text).unwrap();
    let mut gateway = Command::new(TRUNKLINE);
    let gateway =
        gateway.args(["serve", "-c"]).arg(&config).stderr(Stdio::null()).stdout(Stdio::null());
    let mut gateway = gateway.spawn().unwrap();
    let read = || std::fs::read_to_string(&id).unwrap_or_default();
    until_blocking(|| !read().is_empty());
    let daemon = Path::new("/proc").join(read());
    assert!(daemon.exists());
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    wait_until_gone(&daemon);
}
