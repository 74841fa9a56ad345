//! Limits of links, per client and per address.

use trunkline_config::{Config, ConfigSource, SystemEnvironment};
use trunkline_protocol::call::Principal;
use trunkline_protocol::call::test_support::make_tool_call;

use super::*;
use crate::grants::authorizer::ServerAuthorizer;
use crate::grants::ticket_book::TICKET_BOUNDS;
use crate::login::discovery::DiscoveredServer;
use crate::metadata::challenge::{BearerChallenge, RequestedScopes};
use crate::metadata::documents::AuthServerMetadata;
use crate::metadata::scopes::ScopeSet;
use crate::metadata::token_use::TokenUse;

const ADDRESS: [u8; 4] = [192, 0, 2, 1];

fn book() -> GrantBook {
    let book = GrantBook::default();
    book.set_base("https://g.test".parse().ok());
    book
}

async fn link(book: &GrantBook, client: &str, address: [u8; 4]) -> String {
    let owner = match client {
        "" => GrantOwner::Gateway,
        name => GrantOwner::Client(Principal::Client(name.into())),
    };
    let request = LinkRequest { address: address.into(), room: None };
    let link = book.make_visit_link(owner, request).await.unwrap();
    link.query_pairs().next().unwrap().1.into_owned()
}

#[tokio::test]
async fn ten_thousand_links_of_one_client_leave_those_of_others_alone() {
    let book = book();
    let others = link(&book, "bystander", ADDRESS).await;
    let first = link(&book, "attacker", ADDRESS).await;
    for _ in 0..25_000 {
        link(&book, "attacker", ADDRESS).await;
    }
    assert!(book.read_ticket(&others, None).await.is_ok());
    assert!(book.read_ticket(&first, None).await.is_err(), "its own oldest link made room");
    let new = link(&book, "bystander", ADDRESS).await;
    assert!(book.read_ticket(&new, None).await.is_ok());
    assert!(book.tickets.count() <= OWNER_SHARE + 2);
}

#[tokio::test]
async fn addresses_and_clients_fill_no_more_than_the_table_and_lock_no_client_out() {
    let book = book();
    let others = link(&book, "bystander", [198, 51, 100, 7]).await;
    for number in 0..15_300_u32 {
        let [.., third, last] = number.to_be_bytes();
        // Clients without a name are distinguished by their addresses.
        link(&book, "", [10, 0, third, last]).await;
        link(&book, &format!("attacker{}", number % 200), ADDRESS).await;
    }
    let tickets = book.tickets.count();
    assert!(tickets <= TICKET_BOUNDS.all, "{tickets}");
    assert!(book.read_ticket(&others, None).await.is_ok());
    let new = link(&book, "bystander", [198, 51, 100, 7]).await;
    assert!(book.read_ticket(&new, None).await.is_ok());
}

/// Servers at which each client logs in by itself.
fn authorizers(book: &Arc<GrantBook>, count: usize) -> Vec<Arc<ServerAuthorizer>> {
    let tables = (0..count).map(|number| {
        format!(
            "[servers.s{number}]\nurl = \"https://s.test/mcp\"\n\
             oauth = {{ client_id = \"c\", per = \"user\" }}\n"
        )
    });
    let bytes = tables.collect::<String>().into_bytes();
    let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
    let config = Config::read(&source, &SystemEnvironment).unwrap();
    let servers = config.servers.iter();
    servers.map(|server| ServerAuthorizer::of(server, book, None).unwrap()).collect()
}

/// Makes a call of a client from an address, which is answered with a link. Returns its ticket.
async fn call_for_link(server: &ServerAuthorizer, name: &str, address: [u8; 4]) -> String {
    let mut context = make_tool_call("t").context;
    context.principal = Principal::Client(name.into());
    context.address = address.into();
    server.note_caller(&context);
    let slot = server.book.slot(server.key_of(&server.owner_of(Some(&context.principal))));
    let found = DiscoveredServer {
        resource: server.place.url.to_string(),
        scopes: ScopeSet::default(),
        metadata: AuthServerMetadata::with_default_endpoints(&server.place.url),
        wants: TokenUse::Bearer,
    };
    let (challenge, asked) = (&BearerChallenge::default(), &ScopeSet::default());
    let known = RequestedScopes { challenge, asked };
    server.start_login(&slot, &found, known, None).await.unwrap().ticket
}

#[tokio::test]
async fn links_that_calls_of_one_address_get_are_shared_by_its_clients() {
    let book = Arc::new(book());
    let servers = authorizers(&book, 60);
    let others = call_for_link(&servers[0], "bystander", [198, 51, 100, 7]).await;
    for number in 0..100 {
        for server in &servers {
            call_for_link(server, &format!("attacker{number}"), ADDRESS).await;
        }
    }
    assert_eq!(book.tickets.count(), TICKET_BOUNDS.each_address + 1);
    assert!(book.tickets.is_open(&others));
    // Another client of that address has its link all the same.
    let new = call_for_link(&servers[0], "neighbour", ADDRESS).await;
    assert!(book.tickets.is_open(&new) && book.tickets.is_open(&others));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_time_of_its_login_is_refused() {
    let book = Arc::new(book());
    let servers = authorizers(&book, 1);
    let ticket = call_for_link(&servers[0], "client", ADDRESS).await;
    let link = book.accept_ticket(&ticket, None, None).await.unwrap().unwrap();
    let state = link.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
    tokio::time::advance(servers[0].login_time()).await;
    let query = format!("code=c&state={state}");
    let path = GrantBook::CALLBACK_PATH;
    let answer = BrowserAnswer { path, query: &query, browser: None, address: None, room: None };
    let fault = book.finish_login(answer).await.unwrap_err();
    assert!(matches!(fault, LoginFault::Answer(AuthorizationAnswerError::UnknownState)), "{fault}");
}

#[tokio::test]
async fn a_new_link_ends_the_earlier_one_of_the_same_server() {
    let book = Arc::new(book());
    let servers = authorizers(&book, 2);
    let first = call_for_link(&servers[0], "client", ADDRESS).await;
    let other = call_for_link(&servers[1], "client", ADDRESS).await;
    let neighbours = call_for_link(&servers[0], "neighbour", ADDRESS).await;
    let second = call_for_link(&servers[0], "client", ADDRESS).await;
    assert!(!book.tickets.is_open(&first));
    for ticket in [other, neighbours, second] {
        assert!(book.tickets.is_open(&ticket));
    }
}

#[test]
fn logins_that_fail_one_after_the_other_are_logged_once() {
    let [one, other] = ["failing-one", "failing-other"].map(|it| ServerName::new(it).unwrap());
    let line = describe_failure(&one, &LoginFault::OtherBrowser).unwrap();
    assert!(line.starts_with("a login did not succeed: "), "{line}");
    assert_eq!(describe_failure(&one, &LoginFault::OtherBrowser), None);
    let metadata = LoginFault::NoMetadata { issuer: "https://idp.example".into() };
    let line = describe_failure(&one, &metadata).expect("a user's failures hide no other fault");
    assert!(line.contains("no metadata"), "{line}");
    assert!(describe_failure(&other, &LoginFault::OtherBrowser).is_some());
}
