//! A whole server with a real child, which is a few lines of shell.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;

use super::*;
use crate::call::{Client, Event, Failure, Question, Reply};
use crate::catalog::Kind;
use crate::child::Guardian;
use crate::clock;
use crate::config::{Config, ConfigSource, SystemEnvironment};
use crate::jsonrpc::Response;
use crate::mcp::ProtocolVersion;
use crate::policy::{CallTarget, LimitRegistry, Policy};
use crate::telemetry::metrics::Metrics;
use crate::upstream::lists::store::tests::{Folder, known};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use crate::call::test_support::make_tool_call as call;

/// A Legacy server with the tools `echo`, which responds, and `hang`, which does not. It takes half
/// a second to end.
const CHILD: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
  case $line in
    *server/discover*) say '"error":{"code":-32601,"message":"no"}' ;;
    *'"initialize"'*) say '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *tools/list*) say '"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"hang","inputSchema":{"type":"object"}}]}' ;;
    *'"hang"'*) ;;
    *tools/call*) say '"result":{"content":[]}' ;;
  esac
done
sleep 0.5
"#;

/// Returns a configuration with such children as servers.
pub(crate) fn config(servers: &[(&str, &str)]) -> Config {
    use std::fmt::Write as _;
    let mut text = String::from("[gateway]\nnaming = \"none\"\n");
    for (name, more) in servers {
        let _ = write!(
            text,
            "[servers.{name}]\ncommand = \"sh\"\nargs = [\"-c\", '''{CHILD}''']\n{more}\n"
        );
    }
    let source =
        ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes: text.into_bytes() };
    Config::read(&source, &SystemEnvironment).unwrap()
}

pub(crate) fn surroundings() -> ServerContext {
    ServerContext::new(Guardian::none(), Arc::new(Metrics::new("0")))
}

/// Returns an inbox without a reader.
pub(super) fn inbox() -> Arc<notifications::Inbox> {
    let server = crate::call::ServerName::new("s").unwrap();
    notifications::Inbox::new(Arc::default(), SubscriptionHub::default().at(&server))
}

/// Returns a tool of any server. Arguments are not checked here.
pub(crate) fn target(server: &crate::call::ServerName, tool: &str) -> CallTarget {
    let raw =
        Bytes::from(format!("{{\"name\":\"{tool}\",\"inputSchema\":{{\"type\":\"object\"}}}}"));
    let parsed = crate::catalog::Tool::parse(&raw, crate::catalog::HeaderRules::Ignore).unwrap();
    CallTarget::tool(server, &Arc::new(parsed), Box::default())
}

async fn send(server: &Arc<Server>, config: &Config, tool: &str) -> Result<Reply, Failure> {
    send_with(server, config, tool, b"{}").await
}

/// Sends a call of a client with these capabilities.
async fn send_with(
    server: &Arc<Server>,
    config: &Config,
    tool: &str,
    capabilities: &'static [u8],
) -> Result<Reply, Failure> {
    let target = target(server.name(), tool);
    let policy = Policy::new(LimitRegistry::default().limits(config));
    let mut call = call(tool);
    call.context.session = Some(Arc::from("session"));
    let client =
        Client::new(ProtocolVersion::LATEST_LEGACY, None, Bytes::from_static(capabilities));
    call.context.client = Arc::new(client);
    let permitted = policy.admit(Box::new(call), target).await.unwrap();
    server.call(permitted, &config.servers[0]).await
}

pub(crate) async fn succeeds(reply: Result<Reply, Failure>) {
    let answered = reply.unwrap().next().await;
    assert!(matches!(answered, Some(Event::Answer(Ok(_)))), "{answered:?}");
}

async fn reaches(server: &Server, wanted: LifeState) {
    let mut state = server.main().life().watch_state();
    let reached =
        tokio::time::timeout(Duration::from_secs(30), state.wait_for(|state| *state == wanted));
    reached.await.expect("it gets there").unwrap();
}

fn start(more: &str) -> (Arc<Server>, Config) {
    let config = config(&[("a", more)]);
    (Server::start(Arc::clone(&config.servers[0]), &surroundings()), config)
}

#[tokio::test]
async fn a_server_at_rest_stays_at_rest_until_it_is_called() {
    let (server, config) = start("start = \"lazy\"\nidle_stop = \"100ms\"");
    // Each of them requests a start, but one start serves all.
    let (one, two, three) = tokio::join!(
        send(&server, &config, "echo"),
        send(&server, &config, "echo"),
        send(&server, &config, "echo"),
    );
    for reply in [one, two, three] {
        succeeds(reply).await;
    }
    reaches(&server, LifeState::Idle).await;
    let mut state = server.main().life().watch_state();
    let stirred = state.wait_for(|state| !matches!(state, LifeState::Idle));
    assert!(tokio::time::timeout(Duration::from_millis(1500), stirred).await.is_err());
    succeeds(send(&server, &config, "echo").await).await;
    server.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_call_that_comes_while_a_server_goes_to_rest_waits_for_the_next_start() {
    let (server, config) = start("idle_stop = \"100ms\"");
    reaches(&server, LifeState::Ready).await;
    for _ in 0..2 {
        reaches(&server, LifeState::Idle).await;
        // Its child takes half a second to end.
        succeeds(send(&server, &config, "echo").await).await;
    }
    server.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_with_kept_lists_starts_a_moment_later_or_with_its_first_call() {
    // A program that cannot be started: its first start fails at once.
    let config = config(&[("s", "cwd = \"/no/such/folder\"\nera = \"legacy\"")]);
    for (is_kept, is_called, least) in
        [(true, false, 300), (true, true, 0), (false, false, 0), (false, true, 0)]
    {
        let folder = Folder::new();
        let store = folder.open(&config.servers[0]).await;
        if is_kept {
            store.keep(&config.servers[0], known("echo")).await;
        }
        let surroundings = surroundings().with_store(folder.open(&config.servers[0]).await);
        let began = clock::now();
        let server = Server::start(Arc::clone(&config.servers[0]), &surroundings);
        let mut state = server.main().life().watch_state();
        let started = state.wait_for(|state| matches!(state, LifeState::Backoff { .. }));
        let call = async {
            if is_called {
                assert!(send(&server, &config, "echo").await.is_err());
            }
        };
        let (started, ()) = tokio::join!(
            async {
                started.await.unwrap();
                began.elapsed()
            },
            call
        );
        let least = Duration::from_millis(least);
        let most = least + Duration::from_millis(50);
        assert!(least <= started && started < most, "{is_kept} {is_called}: {started:?}");
        server.stop(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn an_instance_for_capabilities_ends_a_minute_after_its_last_call() {
    let roots = br#"{"roots":{}}"#;
    for (more, seconds) in [
        ("", 60),
        ("instance_idle = \"20s\"", 20),
        ("capability_idle = \"2m\"", 120),
        ("capability_idle = \"1h\"", 300),
        ("isolation = \"client\"", 300),
    ] {
        let (server, config) = start(more);
        let instances = || server.view().instance_count;
        succeeds(send_with(&server, &config, "echo", roots).await).await;
        let pending = send_with(&server, &config, "hang", roots).await.unwrap();
        tokio::time::pause();
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(instances(), 1, "{more}: a call is pending");
        drop(pending);
        tokio::time::sleep(Duration::from_secs(seconds - 1)).await;
        assert_eq!(instances(), 1, "{more}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(instances(), 0, "{more}");
        tokio::time::resume();
        server.stop(Duration::ZERO).await;
    }
}

/// A client that keeps a stream open while it is true.
struct Stream(AtomicBool);

impl QuestionableSession for Stream {
    fn ask(
        &self,
        _: &crate::call::ServerName,
        _: &Question,
        _: mpsc::Sender<(u64, Response)>,
    ) -> bool {
        false
    }

    fn is_listening(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn an_instance_stays_while_a_client_that_called_it_keeps_a_stream_open() {
    for (more, stays) in
        [("", true), ("isolation = \"client\"", true), ("idle_stop = \"9m\"", false)]
    {
        let (server, config) = start(more);
        let (stream, mailbox) = (Arc::new(Stream(AtomicBool::new(true))), Arc::new(Mailbox::new()));
        let listener: Arc<dyn QuestionableSession> = Arc::clone(&stream) as _;
        mailbox.is_of(Arc::downgrade(&listener));
        server.main().shared().context().hub.enter(&Arc::from("session"), &mailbox);
        let instances = || server.view().instance_count;
        succeeds(send_with(&server, &config, "echo", br#"{"roots":{}}"#).await).await;
        tokio::time::pause();
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(instances(), usize::from(stays), "{more}");
        stream.0.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_mins(6)).await;
        assert_eq!(instances(), 0, "{more}");
        tokio::time::resume();
        server.stop(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn nothing_waits_long_for_a_list_that_is_not_built() {
    let (server, _config) = start("start_timeout = \"500ms\"");
    // Another of its lists is being built: a server builds one at a time.
    let building = Arc::clone(&server.main().shared().lists().building).lock_owned().await;
    let settled = tokio::time::timeout(Duration::from_secs(30), server.settled()).await;
    assert!(settled.is_ok(), "the wait has a bound");
    assert_ne!(server.view().state, LifeState::Ready);
    drop(building);
    reaches(&server, LifeState::Ready).await;
    server.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_server_that_a_client_waits_for_starts_before_those_that_came_first() {
    for is_called in [false, true] {
        let (config, surroundings) = (config(&[("b", ""), ("c", "")]), surroundings());
        surroundings.starts.set_limit(1);
        let place = surroundings.starts.take_place(|| false).await;
        let [first, wanted] =
            [0, 1].map(|n| Server::start(Arc::clone(&config.servers[n]), &surroundings));
        reaches(&first, LifeState::Connecting).await;
        reaches(&wanted, LifeState::Connecting).await;
        let mut call = Box::pin(send(&wanted, &config, "echo"));
        let list = if is_called {
            assert!((&mut call).now_or_never().is_none(), "it waits");
            None
        } else {
            wanted.first_list(None)
        };
        drop(place);
        reaches(&wanted, LifeState::Ready).await;
        assert!(first.view().first_verdict.is_none(), "it came first, and nobody waits for it");
        reaches(&first, LifeState::Ready).await;
        succeeds(call.await).await;
        drop(list);
        first.stop(Duration::ZERO).await;
        wanted.stop(Duration::ZERO).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_or_a_list_tries_a_server_in_backoff_at_once_and_once_a_second() {
    // A program that cannot be started.
    let (server, config) =
        start("cwd = \"/no/such/folder\"\nmax_restarts = 1000\nera = \"legacy\"");
    let mut state = server.main().life().watch_state();
    let is_long = |state: &LifeState| match state {
        LifeState::Backoff { until } => *until > clock::now() + Duration::from_secs(10),
        _ => false,
    };
    let tries = || server.view().restarts;
    for is_called in [false, true] {
        state.wait_for(is_long).await.unwrap();
        let (before, began) = (tries(), clock::now());
        if is_called {
            assert!(send(&server, &config, "echo").await.is_err(), "it waits for the try");
        } else {
            server.wake(Kind::Tools);
            state.wait_for(|_| tries() > before).await.unwrap();
        }
        assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(tries(), before + 1);
    }
    state.wait_for(is_long).await.unwrap();
    let before = tries();
    for _ in 0..30 {
        server.wake(Kind::Tools);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!((2..=4).contains(&(tries() - before)), "{} in three seconds", tries() - before);
    server.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_start_stays_marked_as_failed_with_its_reason() {
    let (server, _config) = start("cwd = \"/no/such/folder\"\nmax_restarts = 2");
    reaches(&server, LifeState::Failed).await;
    let state = server.main().life().watch_state();
    let before = server.view().restarts;
    let tried_again = async {
        while server.view().restarts < before + 5 {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_hours(1), tried_again).await.unwrap();
    assert!(!state.has_changed().unwrap(), "it is tried in each window, and stays as it is");
    let (_, error) = server.view().last_error.unwrap();
    assert!(error.contains("working directory"), "{error}");
    server.stop(Duration::ZERO).await;
}

/// Starts a server with this program.
fn start_program(program: &std::path::Path) -> (Arc<Server>, Config) {
    let text = format!("[servers.a]\ncommand = {:?}\n", program.to_str().unwrap());
    let source =
        ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes: text.into() };
    let config = Config::read(&source, &SystemEnvironment).unwrap();
    (Server::start(Arc::clone(&config.servers[0]), &surroundings()), config)
}

fn write_program(path: &std::path::Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_missing_program_is_tried_after_minutes_and_once_it_exists() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("server");
    let (server, config) = start_program(&program);
    reaches(&server, LifeState::Failed).await;
    let began = clock::now();
    for _ in 0..3 {
        let said = send(&server, &config, "echo").await;
        assert!(said.is_err_and(|fault| fault.to_string().contains("could not be started")));
    }
    assert!(began.elapsed() < Duration::from_secs(1), "calls do not wait");
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(server.view().restarts, 0);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((server.view().restarts, server.view().state), (1, LifeState::Failed));
    // A start follows at once, and fails in another way. The program runs in real time.
    tokio::time::resume();
    write_program(&program, "#!/bin/sh\nexit 3\n");
    let is_tried = || server.view().last_error.unwrap().1.contains("exit status: 3");
    let tried = async {
        while !is_tried() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), tried).await.expect("it is tried");
    assert!(server.view().restarts > 1);
    server.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_program_without_its_interpreter_is_tried_after_minutes_too() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("server");
    write_program(&program, "#!/no/such/interpreter\n");
    let (server, _config) = start_program(&program);
    reaches(&server, LifeState::Failed).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(server.view().restarts, 0);
    server.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_server_is_stopped_when_its_last_call_ends_and_not_before() {
    let (server, config) = start("");
    let reply = send(&server, &config, "hang").await.unwrap();
    let stopping = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.stop(Duration::from_mins(1)).await }
    });
    tokio::task::yield_now().await;
    // Still available to callers that found it before it was removed.
    succeeds(send(&server, &config, "echo").await).await;
    assert_eq!(server.view().state, LifeState::Ready);
    drop(reply);
    stopping.await.unwrap();
    assert_eq!(server.view().state, LifeState::Stopped);
}
