//! Links of two replicas with a store in memory.

use tokio::time::advance;

use trunkline_config::{Config, ConfigSource, SystemEnvironment};
use trunkline_core::shared_records::SharingFault;
use trunkline_core::shared_records::test_records::TestRecords;

use super::*;
use crate::grants::authorizer::ServerAuthorizer;
use crate::grants::browser::BrowserVisit;
use crate::login::discovery::DiscoveredServer;
use crate::login::ticket::{BrowserAnswer, LinkRequest};
use crate::metadata::challenge::{BearerChallenge, RequestedScopes};
use crate::metadata::documents::AuthServerMetadata;
use crate::metadata::scopes::ScopeSet;
use crate::metadata::token_use::TokenUse;
use crate::proofs::authorization::AuthorizationAnswerError;

struct LoginReplica {
    book: Arc<GrantBook>,
    server: Arc<ServerAuthorizer>,
}

fn replicas() -> (Arc<TestRecords>, [LoginReplica; 2]) {
    let records = Arc::new(TestRecords::default());
    let new = || {
        let text = "[servers.s]\nurl = \"https://s.test/mcp\"\noauth = { client_id = \"c\" }\n";
        let (folder, bytes) = (".".into(), text.as_bytes().to_vec());
        let source = ConfigSource { name: "gateway.toml".into(), folder, bytes };
        let config = Config::read(&source, &SystemEnvironment).unwrap();
        let book = Arc::new(GrantBook::default());
        book.set_base("https://g.test".parse().ok());
        book.share_grants(Arc::clone(&records) as _);
        let server = ServerAuthorizer::of(&config.servers[0], &book, None).unwrap();
        LoginReplica { book, server }
    };
    let replicas = [new(), new()];
    (records, replicas)
}

impl LoginReplica {
    fn slot(&self) -> Arc<GrantSlot> {
        self.book.slot(self.server.key_of(&GrantOwner::Gateway))
    }

    /// Issues a link, and returns its ticket.
    async fn issue(&self) -> Result<String, LoginFault> {
        let found = DiscoveredServer {
            resource: self.server.place.url.to_string(),
            scopes: ScopeSet::default(),
            metadata: AuthServerMetadata::with_default_endpoints(&self.server.place.url),
            wants: TokenUse::Bearer,
        };
        let (challenge, asked) = (&BearerChallenge::default(), &ScopeSet::default());
        let known = RequestedScopes { challenge, asked };
        let link = self.server.start_login(&self.slot(), &found, known, None).await?;
        Ok(link.ticket)
    }

    async fn meet(&self) -> BrowserId {
        let address = [192, 0, 2, 1].into();
        let visit = BrowserVisit { link_owner: &GrantOwner::Gateway, address };
        self.book.meet_browser(None, visit).await.unwrap().browser.id
    }

    /// Agrees to a login, and returns the state that the authorization server gets.
    async fn agree(&self, ticket: &str, browser: BrowserId) -> Result<String, LoginFault> {
        let link = self.book.accept_ticket(ticket, Some(browser), Some(browser)).await?.unwrap();
        Ok(link.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned())
    }
}

#[tokio::test]
async fn a_link_is_bound_to_one_of_two_browsers_at_two_replicas() {
    let (_records, [a, b]) = replicas();
    let ticket = a.issue().await.unwrap();
    let (at_a, at_b) = (a.meet().await, b.meet().await);
    for (replica, browser) in [(&a, at_a), (&b, at_b)] {
        assert!(replica.book.read_ticket(&ticket, Some(browser)).await.unwrap().login.is_some());
    }
    // The record that the other replica has read is replaced meanwhile.
    let read = b.book.fetch_link(&ticket).await.unwrap();
    a.agree(&ticket, at_a).await.unwrap();
    let bound = b.book.bind_link(&ticket, read.clone(), Some(at_b)).await;
    assert!(matches!(bound, Err(LoginFault::OtherBrowser)), "{bound:?}");
    let used = b.book.use_link(&ticket, read).await;
    assert!(matches!(used, Err(LoginFault::UnknownLink)), "{used:?}");
    let other = b.agree(&ticket, at_b).await;
    assert!(matches!(other, Err(LoginFault::OtherBrowser)), "{other:?}");
    b.book.decline_ticket(&ticket, Some(at_a)).await.unwrap();
    let gone = a.book.read_ticket(&ticket, Some(at_a)).await;
    assert!(matches!(gone, Err(LoginFault::UnknownLink)), "{gone:?}");
}

#[tokio::test]
async fn a_response_is_accepted_once_and_its_link_is_used_up_while_the_code_is_exchanged() {
    let (records, [a, b]) = replicas();
    let ticket = a.issue().await.unwrap();
    let browser = a.meet().await;
    let state = a.agree(&ticket, browser).await.unwrap();
    let (at_b, at_a) = tokio::join!(biased; b.book.take_login(&state), a.book.take_login(&state));
    assert!(at_a.unwrap().is_none(), "both replicas have read the record, one removes it");
    let login = at_b.unwrap().expect("the login of the other replica");
    assert_eq!(login.browser, Some(browser));
    assert_eq!(login.prepared.redirect.as_str(), "https://g.test/oauth/callback");
    for replica in [&a, &b] {
        assert!(replica.book.take_login(&state).await.unwrap().is_none());
        let used = replica.book.read_ticket(&ticket, Some(browser)).await;
        assert!(matches!(used, Err(LoginFault::UnknownLink)), "{used:?}");
    }
    // The replica that waits for the login notices its end.
    a.book.follow_shared().await;
    assert!(a.slot().has_login(), "the code is exchanged");
    b.book.drop_link(&ticket).await;
    a.book.follow_shared().await;
    assert!(!a.slot().has_login());
    assert_eq!(records.count(SharedRecordKind::Link), 0);
    let path = GrantBook::CALLBACK_PATH;
    let answer = |query| BrowserAnswer { path, query, browser: None, address: None, room: None };
    for query in ["code=c", "code=c&state=x", &format!("code=c&state={}", "x".repeat(200))] {
        let fault = b.book.finish_login(answer(query)).await.unwrap_err();
        let unknown = AuthorizationAnswerError::UnknownState;
        assert!(matches!(&fault, LoginFault::Answer(it) if *it == unknown), "{fault}");
    }
}

#[tokio::test]
async fn a_link_to_connections_is_used_once_and_a_browser_is_forgotten_everywhere() {
    let (records, [a, b]) = replicas();
    let request = LinkRequest { address: [192, 0, 2, 1].into(), room: None };
    let link = a.book.make_visit_link(GrantOwner::Gateway, request).await.unwrap();
    let ticket = link.query_pairs().next().unwrap().1.into_owned();
    let (read_a, read_b) =
        (a.book.fetch_link(&ticket).await.unwrap(), b.book.fetch_link(&ticket).await.unwrap());
    assert!(a.book.use_link(&ticket, read_a).await.is_ok());
    assert!(b.book.use_link(&ticket, read_b).await.is_err());
    let visit = BrowserVisit { link_owner: &GrantOwner::Gateway, address: [192, 0, 2, 1].into() };
    let new = a.book.meet_browser(Some(GrantOwner::Gateway), visit).await.unwrap();
    let found = b.book.find_browser(&new.cookie).await.unwrap().unwrap();
    assert!(found.has_sent(&new.browser.form_key) && found.owner == Some(GrantOwner::Gateway));
    b.book.leave_notice(found.id, "done".to_owned()).await.unwrap();
    assert_eq!(a.book.take_notice(found.id).await.unwrap().as_deref(), Some("done"));
    assert_eq!(b.book.take_notice(found.id).await.unwrap(), None);
    b.book.forget_browser(found.id).await.unwrap();
    assert!(a.book.find_browser(&new.cookie).await.unwrap().is_none());
    assert_eq!(records.count(SharedRecordKind::Browser), 0);
}

#[tokio::test]
async fn browsers_that_make_room_are_removed_from_the_store() {
    let (records, [a, _b]) = replicas();
    let address = [192, 0, 2, 1].into();
    for _ in 0..200 {
        let visit = BrowserVisit { link_owner: &GrantOwner::Gateway, address };
        a.book.meet_browser(None, visit).await.unwrap();
    }
    assert_eq!(records.count(SharedRecordKind::Browser), 64);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_issued_or_accepted_without_the_store() {
    let (records, [a, b]) = replicas();
    let ticket = a.issue().await.unwrap();
    let browser = a.meet().await;
    let state = a.agree(&ticket, browser).await.unwrap();
    records.fail(true);
    for replica in [&a, &b] {
        let unavailable =
            |fault: LoginFault| matches!(fault, LoginFault::Shared(SharingFault::Unavailable));
        assert!(replica.issue().await.is_err_and(unavailable));
        assert!(replica.book.read_ticket(&ticket, Some(browser)).await.is_err_and(unavailable));
        assert!(replica.book.take_login(&state).await.is_err_and(unavailable));
        assert!(replica.book.find_browser("x").await.is_err_and(unavailable));
    }
    records.fail(false);
    // A failed look has not used it up.
    advance(Duration::from_secs(1)).await;
    assert!(b.book.take_login(&state).await.unwrap().is_some());
}

#[tokio::test]
async fn a_link_and_a_browser_that_the_store_returns_after_their_time_are_unknown() {
    let (records, [a, b]) = replicas();
    let ticket = a.issue().await.unwrap();
    let visit = BrowserVisit { link_owner: &GrantOwner::Gateway, address: [192, 0, 2, 1].into() };
    let new = a.book.meet_browser(None, visit).await.unwrap();
    let browser = new.browser.id.to_text();
    for (until, is_known) in [(clock::unix_now().as_secs() + 60, true), (1, false)] {
        for (kind, name) in
            [(SharedRecordKind::Browser, &*browser), (SharedRecordKind::Link, &*ticket)]
        {
            let place = place_of(kind, name);
            let before = records.read(place).await.unwrap().unwrap();
            let mut stored: serde_json::Value = serde_json::from_slice(&before.value).unwrap();
            stored["until"] = until.into();
            let value = stored.to_string();
            let changed = NewRecord { value: value.as_bytes(), lifetime: None };
            records.write(place, Some(&before), changed).await.unwrap().expect("written");
        }
        let found = b.book.find_browser(&new.cookie).await.unwrap();
        assert_eq!(found.is_some(), is_known, "{until}");
        b.book.tickets.remove(&ticket);
        assert_eq!(b.book.read_ticket(&ticket, None).await.is_ok(), is_known, "{until}");
    }
}
