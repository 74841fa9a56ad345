//! Sandboxes of child processes. A forbidden operation fails in the child, a sandbox that the
//! system cannot enforce prevents the start of the child, and all else is as without one.
#![cfg(target_os = "linux")]
#![allow(
    clippy::disallowed_methods,
    reason = "the tests that wait for processes measure from outside"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::unnecessary_debug_formatting,
    reason = "a path in a configuration is a text in quotes"
)]

#[path = "sandbox/descendants.rs"]
mod descendants;
#[path = "sandbox/files.rs"]
mod files;
#[path = "sandbox/folders.rs"]
mod folders;
#[path = "sandbox/processes.rs"]
mod processes;
#[path = "sandbox/sockets.rs"]
mod sockets;
#[path = "sandbox/starts.rs"]
mod starts;
#[path = "sandbox/temporary_files.rs"]
mod temporary_files;
#[path = "sandbox/users.rs"]
mod users;
#[path = "support/waiting.rs"]
mod waiting;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trunkline::call::ServerName;
use trunkline::child::{
    Child, ChildSpec, Guardian, ResourceBounds, SandboxPolicy, UserIds, probe_sandbox,
};
use trunkline::config::{Config, ConfigSource, SandboxConfig, ServerKind, SystemEnvironment};

const TRUNKLINE: &str = env!("CARGO_BIN_EXE_trunkline");

/// Returns a sandbox from its lines in a configuration.
fn sandbox(lines: &str) -> SandboxConfig {
    let source = ConfigSource {
        name: "gateway.toml".into(),
        folder: "/".into(),
        bytes: format!("[servers.s]\ncommand = \"x\"\nsandbox = {lines}").into_bytes(),
    };
    let config =
        Config::read(&source, &SystemEnvironment).unwrap_or_else(|fault| panic!("{fault}"));
    let ServerKind::Command(command) = &config.servers[0].target else { panic!("a command") };
    command.sandbox.clone().unwrap()
}

fn python(code: &str, sandbox: Option<SandboxConfig>) -> ChildSpec {
    ChildSpec {
        args: vec!["-c".into(), code.into()],
        env: vec![("GREETING".into(), "hello".into())],
        cwd: Some("/usr".into()),
        stop_timeout: Duration::from_millis(300),
        sandbox,
        ..ChildSpec::new("/usr/bin/python3")
    }
}

/// Returns the output of a child, and its exit.
async fn run(spec: &ChildSpec) -> (String, Option<i32>, String) {
    let guardian = Guardian::when_needed(Path::new(TRUNKLINE));
    let (mut child, stdin, mut stdout) =
        Child::spawn(&ServerName::new("test").unwrap(), spec, &guardian).unwrap();
    drop(stdin);
    let mut text = String::new();
    let read = stdout.read_to_string(&mut text);
    tokio::time::timeout(Duration::from_mins(1), read).await.unwrap().unwrap();
    let status = child.exited().await;
    (text.trim().to_owned(), status.code(), child.last_words().join("\n"))
}

/// Returns Python's output for an attempt: `done`, or the name of the error.
async fn attempt(code: &str, sandbox: SandboxConfig) -> String {
    let code = format!(
        "import os, socket, ctypes, sys, time\n\
         def libc(name, *args):\n    \
             c = ctypes.CDLL(None, use_errno=True)\n    \
             if c.syscall(name, *args) < 0:\n        \
                 raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n\
         try:\n    {code}\n    print('done')\n\
         except BaseException as e:\n    print(type(e).__name__)\n"
    );
    let (printed, _, words) = run(&python(&code, Some(sandbox))).await;
    assert!(!printed.is_empty(), "{words}");
    printed
}

#[tokio::test]
async fn files_outside_of_the_allowed_folders_can_be_neither_read_nor_written() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "x").unwrap();
    let inside = tempfile::tempdir().unwrap();
    let file = inside.path().join("file");
    std::fs::write(&file, "x").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let (secret, file, folder) = (secret.display(), file.display(), inside.path().display());
    let read = |path: &dyn std::fmt::Display| format!("open('{path}').read()");
    let write = |path: &dyn std::fmt::Display| format!("open('{path}', 'w').write('y')");
    let reading = format!("{{ read = [\"{folder}\"] }}");
    let writing = format!("{{ write = [\"{folder}\"] }}");
    for (config, code, expected) in [
        ("true", read(&secret), "PermissionError"),
        ("true", write(&secret), "PermissionError"),
        ("true", read(&"/etc/hostname"), "done"),
        ("true", write(&"/etc/trunkline-test"), "PermissionError"),
        ("true", read(&"/etc/shadow"), "PermissionError"),
        ("true", "os.listdir('/root')".into(), "PermissionError"),
        ("true", format!("os.rename('{secret}', '{secret}2')"), "PermissionError"),
        ("true", format!("os.truncate('{secret}', 0)"), "PermissionError"),
        ("true", "open(f'/proc/{os.getppid()}/environ').read()".into(), "PermissionError"),
        (&reading, read(&file), "done"),
        (&reading, write(&file), "PermissionError"),
        (&writing, write(&file), "done"),
        (&writing, format!("os.execv('{file}', ['x'])"), "PermissionError"),
        (&writing, read(&secret), "PermissionError"),
        // Its own folder for temporary files.
        ("true", "open(os.environ['TMPDIR'] + '/x', 'w').write('y')".into(), "done"),
    ] {
        assert_eq!(attempt(&code, sandbox(config)).await, expected, "{config} {code}");
    }
    assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "x");
}

#[tokio::test]
async fn only_the_ports_that_are_allowed_can_be_connected_to_and_listened_on() {
    let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, other] = listeners.each_ref().map(|it| it.local_addr().unwrap().port());
    let connect = |port: u16| format!("socket.create_connection(('127.0.0.1', {port}), 5)");
    let listen = |port: u16| format!("socket.socket().bind(('127.0.0.1', {port}))");
    for (config, code, expected) in [
        ("true".to_owned(), connect(one), "done"),
        (format!("{{ connect = [{one}] }}"), connect(one), "done"),
        (format!("{{ connect = [{one}] }}"), connect(other), "PermissionError"),
        ("{ connect = [] }".to_owned(), connect(one), "PermissionError"),
        ("{ connect = [] }".to_owned(), listen(0), "done"),
        ("{ bind = [] }".to_owned(), listen(0), "PermissionError"),
    ] {
        assert_eq!(attempt(&code, sandbox(&config)).await, expected, "{config} {code}");
    }
}

#[tokio::test]
async fn dangerous_system_calls_fail() {
    let x86 = cfg!(target_arch = "x86_64");
    let (ptrace, mount, unshare) = if x86 { (101, 165, 272) } else { (117, 40, 97) };
    // PTRACE_TRACEME; a file system in memory; a user namespace, also by `clone`.
    for (code, expected) in [
        (format!("libc({ptrace}, 0, 0, 0, 0)"), "PermissionError"),
        (format!("libc({mount}, b'none', b'/mnt', b'tmpfs', 0, None)"), "PermissionError"),
        (format!("libc({unshare}, 0x10000000)"), "PermissionError"),
        ("os.waitpid(os.fork() or os._exit(0), 0)".to_owned(), "done"),
    ] {
        let found = attempt(&code, sandbox("true")).await;
        assert!(found.starts_with(expected), "{code}: {found}");
    }
    let clone = if x86 { 56 } else { 220 };
    let namespace = format!("libc({clone}, 0x10000000 | 17, 0, 0, 0, 0)");
    assert_eq!(attempt(&namespace, sandbox("true")).await, "PermissionError");
    let traced = format!("libc({ptrace}, 0, 0, 0, 0)");
    assert_eq!(attempt(&traced, sandbox("{ syscalls = false }")).await, "done");
}

#[tokio::test]
async fn a_bomb_of_memory_or_processes_ends_the_child_alone() {
    let bomb = "x = bytearray(1 << 30)";
    assert_eq!(attempt(bomb, sandbox("{ memory = \"256MiB\" }")).await, "MemoryError");
    let files = "[open('/dev/null') for _ in range(100)]";
    assert_eq!(attempt(files, sandbox("{ open_files = 32 }")).await, "OSError");
    let large = "open(os.environ['TMPDIR'] + '/x', 'wb').write(bytes(1 << 20))";
    assert_eq!(attempt(large, sandbox("{ file_size = \"64KiB\" }")).await, "OSError");
    let (_, code, _) =
        run(&python("while True: pass", Some(sandbox("{ cpu_time = \"1s\" }")))).await;
    assert_eq!(code, None, "it was killed");
    if rustix::process::geteuid().is_root() {
        // Each lives until its parent has ended.
        let forks = "r, w = os.pipe(); \
                     [os.fork() or (os.close(w), os.read(r, 1), os._exit(0)) for _ in range(60)]";
        let bounded = sandbox("{ user = \"64123:64123\", processes = 20 }");
        assert_eq!(attempt(forks, bounded).await, "BlockingIOError");
    }
}

#[tokio::test]
async fn a_child_runs_as_the_user_that_is_configured_without_any_other_group() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let code = "import os; print(os.getuid(), os.geteuid(), os.getgid(), os.getgroups()); \
                print(oct(os.stat(os.environ['TMPDIR']).st_mode), os.access(os.environ['TMPDIR'], 7))";
    let (printed, _, words) = run(&python(code, Some(sandbox("{ user = \"64123:64124\" }")))).await;
    assert_eq!(printed, "64123 64123 64124 []\n0o40700 True", "{words}");
    let (printed, ..) = run(&python(code, Some(sandbox("{ user = \"nobody\" }")))).await;
    assert!(printed.starts_with("65534 65534"), "{printed}");
}

#[tokio::test]
async fn environment_streams_and_exit_are_those_of_the_child() {
    let code = "import os, sys\n\
                print(os.environ['GREETING'], os.getcwd(), os.getpid() == os.getpgid(0))\n\
                print(sys.stdin.read(), file=sys.stderr)\nsys.exit(7)";
    for sandbox in [None, Some(sandbox("true"))] {
        let spec = python(code, sandbox);
        let guardian = Guardian::when_needed(Path::new(TRUNKLINE));
        let (mut child, mut stdin, mut stdout) =
            Child::spawn(&ServerName::new("test").unwrap(), &spec, &guardian).unwrap();
        stdin.write_all(b"input").await.unwrap();
        drop(stdin);
        let mut text = String::new();
        stdout.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello /usr True\n");
        assert_eq!(child.exited().await.code(), Some(7));
        assert_eq!(child.last_words(), ["input"]);
    }
}

#[tokio::test]
async fn a_sandboxed_child_is_stopped_with_its_group_and_leaves_no_files() {
    let code = "import os, time\nprint(os.environ['TMPDIR'], flush=True)\n\
                open(os.environ['TMPDIR'] + '/x', 'w')\nos.fork()\ntime.sleep(60)";
    let guardian = Guardian::when_needed(Path::new(TRUNKLINE));
    let spec = python(code, Some(sandbox("true")));
    let (child, stdin, mut stdout) =
        Child::spawn(&ServerName::new("test").unwrap(), &spec, &guardian).unwrap();
    let mut line = [0; 256];
    let read = stdout.read(&mut line).await.unwrap();
    let folder = PathBuf::from(String::from_utf8_lossy(&line[..read]).trim());
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    drop(stdin);
    child.stop().await;
    let mut rest = Vec::new();
    // The forked process held the pipe.
    tokio::time::timeout(Duration::from_secs(10), stdout.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    waiting::until(|| !folder.exists()).await;
}

/// Runs the launcher with a policy.
fn launch(policy: &SandboxPolicy, command: &[&str]) -> Output {
    let mut launcher = Command::new(TRUNKLINE);
    launcher.args(["sandbox", "--policy", &policy.to_json().unwrap(), "--"]).args(command);
    launcher.stdin(Stdio::null()).output().unwrap()
}

fn everything() -> BTreeSet<PathBuf> {
    BTreeSet::from([PathBuf::from("/")])
}

/// A kernel without Landlock, or with an old one: the system call fails.
#[test]
fn restrictions_that_the_kernel_cannot_enforce_keep_the_program_from_running() {
    let without_landlock = SandboxPolicy {
        execute: everything(),
        write: everything(),
        denied: vec!["landlock_create_ruleset".into()],
        ..SandboxPolicy::default()
    };
    let inner = SandboxPolicy { execute: everything(), ..SandboxPolicy::default() };
    let inner = inner.to_json().unwrap();
    let nested = [TRUNKLINE, "sandbox", "--policy", &inner, "--", "echo", "ran"];
    let output = launch(&without_landlock, &nested);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(126), "{words}");
    assert!(words.contains("this kernel cannot restrict files"), "{words}");
    assert!(output.stdout.is_empty());
    // The same with the kernel as it is.
    let output = launch(&SandboxPolicy { denied: Vec::new(), ..without_landlock }, &nested);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n");
}

/// Returns a command on a kernel with another version of Landlock.
fn on_kernel(abi: u32) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/old_kernel.py")]);
    command.args([&abi.to_string(), TRUNKLINE]).stdin(Stdio::null());
    command
}

#[test]
fn an_older_kernel_refuses_unknown_restrictions() {
    let plain = || SandboxPolicy { execute: everything(), ..SandboxPolicy::default() };
    let connecting = || SandboxPolicy { connect: Some(BTreeSet::from([443])), ..plain() };
    let listening = || SandboxPolicy { bind: Some(BTreeSet::new()), ..plain() };
    let scoped = || SandboxPolicy { scopes: true, ..plain() };
    for (abi, policy, refused) in [
        (2, plain(), Some("files")),
        (3, plain(), None),
        (3, connecting(), Some("network ports")),
        (3, listening(), Some("network ports")),
        (4, connecting(), None),
        (4, listening(), None),
        (5, scoped(), Some("signals and abstract sockets")),
        (6, scoped(), None),
    ] {
        let mut launcher = on_kernel(abi);
        launcher.args(["sandbox", "--policy", &policy.to_json().unwrap(), "--", "echo", "ran"]);
        let output = launcher.output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        let ran = String::from_utf8_lossy(&output.stdout);
        match refused {
            Some(what) => {
                assert_eq!((output.status.code(), &*ran), (Some(126), ""), "{abi} {words}");
                let says = format!("this kernel cannot restrict {what}");
                assert!(words.contains(&says), "{abi} {words}");
            }
            None => assert_eq!((output.status.code(), &*ran), (Some(0), "ran\n"), "{abi} {words}"),
        }
    }
}

#[test]
fn a_check_refuses_scopes_that_are_asked_for_and_warns_of_those_that_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let missing = "cannot block signals";
    for (abi, sandbox, code, says, is_silent_of) in [
        (5, "true", 0, "warning: servers.s: the sandbox cannot block", "cannot restrict"),
        (5, "{ scopes = true }", 1, "cannot restrict signals and abstract sockets", missing),
        (5, "{ scopes = false }", 0, "", missing),
        (6, "true", 0, "", missing),
        (6, "{ scopes = true }", 0, "", missing),
    ] {
        let text = format!("[servers.s]\ncommand = \"/bin/true\"\nsandbox = {sandbox}\n");
        std::fs::write(&file, text).unwrap();
        let output = on_kernel(abi).args(["check", "-c"]).arg(&file).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{abi} {sandbox}: {words}");
        assert!(words.contains(says), "{abi} {sandbox}: {words}");
        assert!(!words.contains(is_silent_of), "{abi} {sandbox}: {words}");
    }
}

#[tokio::test]
async fn processes_outside_of_the_sandbox_are_out_of_reach() {
    let outside = "import os, time, socket\ns = socket.socket(socket.AF_UNIX)\n\
                   s.bind('\\0trunkline-' + str(os.getpid()))\ns.listen()\n\
                   print(os.getpid(), flush=True)\ntime.sleep(60)";
    let mut other = Command::new("/usr/bin/python3");
    let mut other = other.args(["-c", outside]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let id = line.trim();
    let signal = format!("os.kill({id}, 0)");
    let connect = format!("socket.socket(socket.AF_UNIX).connect('\\0trunkline-{id}')");
    for (config, expected) in [
        ("{ unix = true }", "PermissionError"),
        ("{ scopes = true, unix = true }", "PermissionError"),
        ("{ scopes = false, unix = true }", "done"),
    ] {
        for code in [&signal, &connect] {
            assert_eq!(attempt(code, sandbox(config)).await, expected, "{config} {code}");
        }
    }
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn an_impossible_confinement_is_an_error_with_the_reason() {
    let root = rustix::process::geteuid().is_root();
    let plain = || SandboxPolicy { execute: everything(), ..SandboxPolicy::default() };
    let unknown = SandboxPolicy { denied: vec!["no_such_call".into()], ..plain() };
    let missing = SandboxPolicy { read: BTreeSet::from(["/no/such".into()]), ..plain() };
    let bounds = ResourceBounds { open_files: Some(1 << 62), ..ResourceBounds::default() };
    let over = SandboxPolicy { bounds, ..plain() };
    let user = Some(UserIds { user: 0, group: 0 });
    for (policy, says) in [
        (unknown, "unknown system call \"no_such_call\""),
        (missing, "cannot open /no/such"),
        (over, "cannot limit open_files"),
        (SandboxPolicy { user, ..plain() }, if root { "" } else { "as user 0:0" }),
    ] {
        let output = launch(&policy, &["echo", "ran"]);
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), says.is_empty(), "{words}");
        assert!(words.contains(says), "{words}");
    }
    let output = launch(&plain(), &["no-such-program"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot run \"no-such-program\""));
    let spec = python("", Some(sandbox("{ read = [\"/no/such\"] }")));
    let fault = probe_sandbox(&spec, Path::new(TRUNKLINE)).unwrap_err();
    assert!(fault.contains("/no/such"), "{fault}");
    let spec = python("", Some(sandbox("{ user = \"no-such-user\" }")));
    let fault = probe_sandbox(&spec, Path::new(TRUNKLINE)).unwrap_err();
    assert!(fault.contains("no-such-user"), "{fault}");
    let fine = python("", Some(sandbox("true")));
    assert_eq!(probe_sandbox(&fine, Path::new(TRUNKLINE)), Ok(()));
}
