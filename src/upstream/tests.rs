//! A whole server with a real child, which is a few lines of shell.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;

use super::*;
use crate::call::{
    Call, Client, Context, Endpoint, Event, Failure, Params, Principal, Reply, Trace,
};
use crate::config::{Config, ConfigSource, SystemEnvironment};
use crate::mcp::{Method, ProtocolVersion};
use crate::policy::{CallTarget, LimitRegistry, Policy};
use crate::telemetry::metrics::Metrics;
use crate::upstream::transport::child::Guardian;
use std::sync::Arc;
use std::time::Duration;

/// A Legacy server with the tools `echo`, which answers, and `hang`, which
/// does not; takes half a second to end.
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

/// A configuration whose servers are such children.
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

/// An inbox without a reader.
pub(super) fn inbox() -> Arc<notifications::Inbox> {
    let server = crate::call::ServerName::new("s").unwrap();
    notifications::Inbox::new(Arc::default(), SubscriptionHub::default().at(&server))
}

pub(crate) fn call(tool: &str) -> Call {
    let params = format!("{{\"name\":\"{tool}\",\"arguments\":{{}}}}");
    let client = Client::new(ProtocolVersion::LATEST_LEGACY, None, Bytes::from_static(b"{}"));
    Call {
        method: Method::ToolsCall,
        params: Params::parse(Some(params.into())).unwrap(),
        context: Context {
            principal: Principal::Anonymous,
            endpoint: Endpoint::default(),
            session: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            peer: None,
            transport: "http1",
            client: Arc::new(client),
            log: None,
            progress_token: None,
            trace: Trace::default(),
            headers: Arc::default(),
        },
        input: None,
    }
}

/// A tool of any server. Arguments are not checked here.
pub(crate) fn target(server: &crate::call::ServerName, tool: &str) -> CallTarget {
    let raw =
        Bytes::from(format!("{{\"name\":\"{tool}\",\"inputSchema\":{{\"type\":\"object\"}}}}"));
    let parsed = crate::catalog::Tool::parse(&raw, crate::catalog::HeaderRules::Ignore).unwrap();
    CallTarget::tool(server, &Arc::new(parsed), Box::default())
}

async fn send(server: &Arc<Server>, config: &Config, tool: &str) -> Result<Reply, Failure> {
    let target = target(server.name(), tool);
    let policy = Policy::new(LimitRegistry::default().limits(config));
    let permitted = policy.admit(Box::new(call(tool)), target).await.unwrap();
    server.call(permitted, &config.servers[0]).await
}

pub(crate) async fn succeeds(reply: Result<Reply, Failure>) {
    let answered = reply.unwrap().next().await;
    assert!(matches!(answered, Some(Event::Answer(Ok(_)))), "{answered:?}");
}

async fn reaches(server: &Server, wanted: LifeState) {
    let mut state = server.main().state.subscribe();
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
    // Each of them requests a start; one start serves all.
    let (one, two, three) = tokio::join!(
        send(&server, &config, "echo"),
        send(&server, &config, "echo"),
        send(&server, &config, "echo"),
    );
    for reply in [one, two, three] {
        succeeds(reply).await;
    }
    reaches(&server, LifeState::Idle).await;
    let mut state = server.main().state.subscribe();
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

#[tokio::test]
async fn nothing_waits_long_for_a_list_that_is_not_built() {
    let (server, _config) = start("start_timeout = \"500ms\"");
    // Another of its lists is being built: a server builds one at a time.
    let building = Arc::clone(&server.main().kin.lists.building).lock_owned().await;
    let settled = tokio::time::timeout(Duration::from_secs(30), server.settled()).await;
    assert!(settled.is_ok(), "the wait has a bound");
    assert_ne!(server.view().state, LifeState::Ready);
    drop(building);
    reaches(&server, LifeState::Ready).await;
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
