//! Grants of two replicas with a store in memory.

use tokio::time::advance;

use trunkline_config::{Config, ConfigSource, SystemEnvironment};
use trunkline_core::shared_records::test_records::TestRecords;

use super::*;
use crate::grants::keeping::test_grants::grant;

/// A replica with one server.
struct TestReplica {
    book: Arc<GrantBook>,
    server: Arc<ServerAuthorizer>,
}

/// Creates a replica. The key of its client is one digit, repeated 64 times.
fn replica(records: &Arc<TestRecords>, client_key: &str) -> TestReplica {
    let text = format!(
        "[servers.s]\nurl = \"https://s.test/mcp\"\noauth = {{ client_id = \"c\", per = \"user\" }}\n\
         [clients.ann]\nkey = \"{}\"\n",
        client_key.repeat(64)
    );
    let bytes = text.into_bytes();
    let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
    let config = Config::read(&source, &SystemEnvironment).unwrap();
    let book = Arc::new(GrantBook::default());
    book.share_grants(Arc::clone(records) as _);
    book.set_knows_clients(true);
    book.set_clients(&config.clients);
    let server = ServerAuthorizer::of(&config.servers[0], &book, None).unwrap();
    TestReplica { book, server }
}

fn ann() -> GrantOwner {
    GrantOwner::Client(Principal::Client("ann".into()))
}

impl TestReplica {
    fn slot(&self) -> Arc<GrantSlot> {
        self.book.slot(self.server.key_of(&ann()))
    }

    async fn log_in(&self, token: &str) -> Result<(), crate::LoginFault> {
        self.book.store_login(&self.slot(), grant(token)).await.map(drop)
    }

    /// Returns the token for the next request.
    async fn token(&self) -> Option<String> {
        let grant = self.server.grant_for(&ann(), None).await?;
        Some(grant.authorization.to_str().unwrap().to_owned())
    }

    fn records(&self) -> &Arc<dyn SharedRecords> {
        self.book.shared().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_at_one_replica_is_used_by_others_and_its_revocation_is_followed() {
    let records = Arc::new(TestRecords::default());
    let [a, b, c] = [(); 3].map(|()| replica(&records, "1"));
    assert_eq!(b.token().await, None);
    a.log_in("one").await.unwrap();
    // A replica that has never asked the store does so at once, the other one after a time.
    assert_eq!(c.token().await.as_deref(), Some("Bearer one"));
    assert_eq!(b.token().await, None);
    advance(COMPARISON_INTERVAL).await;
    assert_eq!(b.token().await.as_deref(), Some("Bearer one"));
    a.log_in("two").await.unwrap();
    let slot = b.slot();
    let compared = b.book.compare_shared(&slot, &b.server).await;
    assert!(matches!(compared, Ok(KeptGrant::Newer(_))));
    assert_eq!(b.token().await.as_deref(), Some("Bearer two"));
    b.book.delete_grant(&slot.key).await.unwrap();
    assert_eq!(a.token().await.as_deref(), Some("Bearer two"), "not compared again yet");
    advance(COMPARISON_INTERVAL).await;
    for replica in [&a, &b, &c] {
        assert_eq!(replica.token().await, None);
    }
    assert_eq!(records.count(SharedRecordKind::Grant), 0);
}

#[tokio::test(start_paused = true)]
async fn without_the_store_a_known_token_is_used_and_no_login_or_renewal_is_stored() {
    let records = Arc::new(TestRecords::default());
    let [a, b] = [(); 2].map(|()| replica(&records, "1"));
    a.log_in("one").await.unwrap();
    assert!(b.token().await.is_some());
    records.fail(true);
    advance(COMPARISON_INTERVAL).await;
    assert_eq!(b.token().await.as_deref(), Some("Bearer one"));
    let fault = b.server.refresh_kept(&b.slot(), &grant("one")).await.unwrap_err();
    assert!(fault.is_store_unavailable(), "{fault:?}");
    let fault = b.log_in("two").await.unwrap_err();
    assert!(fault.is_store_unavailable(), "{fault:?}");
    assert_eq!(b.token().await.as_deref(), Some("Bearer one"));
}

#[tokio::test]
async fn a_renewal_that_another_replica_has_overtaken_is_not_stored() {
    let records = Arc::new(TestRecords::default());
    let [a, b] = [(); 2].map(|()| replica(&records, "1"));
    a.log_in("one").await.unwrap();
    assert!(b.token().await.is_some());
    let stored = a.book.share_renewed(a.records(), &a.slot(), grant("two")).await;
    assert!(stored.is_ok());
    let unused = b.book.share_renewed(b.records(), &b.slot(), grant("three")).await;
    assert_eq!(unused.unwrap_err().authorization, "Bearer three");
    assert_eq!(b.token().await.as_deref(), Some("Bearer one"));
    // A record that was read before the replica's own login does not replace it.
    let slot = b.slot();
    let (before, read) = (slot.record.lock().clone(), a.slot().record.lock().clone().unwrap());
    b.log_in("four").await.unwrap();
    assert!(slot.adopt(before.as_ref(), grant("two"), read).is_none());
    assert_eq!(b.token().await.as_deref(), Some("Bearer four"));
}

#[tokio::test(start_paused = true)]
async fn a_renewed_grant_that_the_store_did_not_take_is_written_later() {
    let records = Arc::new(TestRecords::default());
    let [a, b] = [(); 2].map(|()| replica(&records, "1"));
    a.log_in("one").await.unwrap();
    records.fail(true);
    assert!(a.book.share_renewed(a.records(), &a.slot(), grant("two")).await.is_ok());
    assert_eq!(a.token().await.as_deref(), Some("Bearer two"));
    records.fail(false);
    assert_eq!(b.token().await.as_deref(), Some("Bearer one"));
    advance(COMPARISON_INTERVAL).await;
    assert_eq!(a.token().await.as_deref(), Some("Bearer two"));
    assert_eq!(replica(&records, "1").token().await.as_deref(), Some("Bearer two"));
}

#[tokio::test]
async fn the_logins_of_an_earlier_client_with_the_same_name_are_not_used() {
    let records = Arc::new(TestRecords::default());
    replica(&records, "1").log_in("one").await.unwrap();
    let stranger = replica(&records, "2");
    assert_eq!(stranger.token().await, None);
    assert_eq!(replica(&records, "1").token().await.as_deref(), Some("Bearer one"));
    stranger.log_in("two").await.unwrap();
    assert_eq!(stranger.token().await.as_deref(), Some("Bearer two"));
    assert_eq!(replica(&records, "1").token().await, None);
}

#[tokio::test]
async fn a_grant_that_is_too_large_for_the_store_is_refused_with_its_size() {
    let records = Arc::new(TestRecords::default());
    let a = replica(&records, "1");
    let fault = a.log_in(&"x".repeat(17_000)).await.unwrap_err();
    assert!(fault.to_string().contains("takes at most 16384"), "{fault}");
    assert_eq!(a.token().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_replica_waits_for_the_renewal_of_another_and_sends_nothing_itself() {
    let records = Arc::new(TestRecords::default());
    let [a, b] = [(); 2].map(|()| replica(&records, "1"));
    a.log_in("one").await.unwrap();
    assert!(b.token().await.is_some());
    let name = a.slot().key.record_name();
    let lock = RecordPlace { kind: SharedRecordKind::Renewal, name: &name };
    let new = NewRecord { value: b"held", lifetime: None };
    let held = a.records().write(lock, None, new).await.unwrap().unwrap();
    let server = Arc::clone(&b.server);
    let slot = b.slot();
    let waiting = tokio::spawn(async move {
        let renewed = server.refresh_kept(&slot, &grant("one")).await;
        renewed.unwrap().map(|grant| grant.authorization.clone())
    });
    advance(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    a.book.share_renewed(a.records(), &a.slot(), grant("two")).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "Bearer two");
    // A lock that no replica releases: the wait has an end.
    let fault = b.server.refresh_kept(&b.slot(), &grant("two")).await.unwrap_err();
    assert!(matches!(fault, crate::LoginFault::Shared(SharingFault::Busy)), "{fault}");
    assert!(a.records().remove(lock, &held).await.unwrap());
    // Another replica may have renewed it just before this one takes the lock.
    a.book.share_renewed(a.records(), &a.slot(), grant("three")).await.unwrap();
    let renewed = b.server.refresh_locked(b.records(), &b.slot(), &grant("two")).await.unwrap();
    assert_eq!(renewed.unwrap().authorization, "Bearer three");
}

#[tokio::test]
async fn a_login_of_the_vault_replaces_only_an_earlier_one() {
    let records = Arc::new(TestRecords::default());
    let a = replica(&records, "1");
    let key = a.slot().key.clone();
    let stored = |token: &str, since: u64| {
        let grant = OauthGrant { since: Some(Duration::from_secs(since)), ..grant(token) };
        serde_json::to_vec(&StoredGrant::of(&grant).unwrap()).unwrap()
    };
    for (token, since, used) in
        [("five", 5, "five"), ("four", 4, "five"), ("same", 5, "five"), ("six", 6, "six")]
    {
        a.book.move_grant(a.records(), &key, &stored(token, since)).await.unwrap();
        let known = replica(&records, "1").token().await;
        assert_eq!(known.as_deref(), Some(&*format!("Bearer {used}")), "{token}");
    }
}
