use super::*;
use crate::catalog::MAX_URI;
use crate::mcp::notification;
use crate::upstream::notifications::News;

fn subscriptions() -> Arc<Subscriptions> {
    Arc::new(Subscriptions::new(ServerName::new("s").unwrap(), None))
}

fn mailbox() -> Arc<Mailbox> {
    Arc::new(Mailbox::new())
}

fn deliver(subscriptions: &Subscriptions, uri: &str) {
    subscriptions.deliver(&Topic::resource(uri), &Bytes::from_static(b"{}"));
}

fn heard(mailbox: &Mailbox) -> Vec<String> {
    std::iter::from_fn(|| mailbox.take()).map(|letter| letter.subject.to_string()).collect()
}

#[test]
fn one_topic_for_many_and_the_last_one_out_ends_it() {
    let (all, one, two) = (subscriptions(), mailbox(), mailbox());
    let changes = all.changes();
    let first = all.add(Topic::resource("a"), &one, Share::uncounted());
    let second = all.add(Topic::resource("a"), &two, Share::uncounted());
    assert_eq!((all.wanted().len(), *changes.borrow()), (1, 1));
    deliver(&all, "a");
    assert_eq!((heard(&one), heard(&two)), (vec!["a".into()], vec!["a".into()]));
    drop(first);
    deliver(&all, "a");
    assert_eq!((heard(&one), heard(&two)), (vec![], vec!["a".into()]));
    drop(second);
    assert!(!all.are_wanted());
    assert_eq!(*changes.borrow(), 2);
}

#[test]
fn updates_of_a_part_go_to_subscribers_of_the_whole_unless_the_part_has_its_own() {
    let (all, dir, part) = (subscriptions(), mailbox(), mailbox());
    let _dir = all.add(Topic::resource("file:///d"), &dir, Share::uncounted());
    for (uri, told) in [("file:///d/x/y", 1), ("file:///d#x", 1), ("file:///dx", 0), ("x", 0)] {
        deliver(&all, uri);
        assert_eq!(heard(&dir).len(), told, "{uri}");
    }
    let _part = all.add(Topic::resource("file:///d/x"), &part, Share::uncounted());
    deliver(&all, "file:///d/x");
    assert_eq!((heard(&dir).len(), heard(&part).len()), (0, 1));
}

#[test]
fn missed_changes_are_reported_once_the_subscription_is_restored_and_only_then() {
    let (all, one) = (subscriptions(), mailbox());
    let topic = Topic::resource("a");
    let _held = all.add(topic.clone(), &one, Share::uncounted());
    all.settle(&topic, Ok(()), Continuity::Broken);
    assert!(heard(&one).is_empty(), "it never stood before");
    all.settle(&topic, Ok(()), Continuity::Kept);
    assert!(heard(&one).is_empty());
    all.settle(&topic, Ok(()), Continuity::Broken);
    assert_eq!(heard(&one), ["a"]);
}

#[tokio::test]
async fn a_refusal_is_heard_and_the_next_one_asks_again() {
    let (all, one) = (subscriptions(), mailbox());
    let topic = Topic::resource("a");
    let held = all.add(topic.clone(), &one, Share::uncounted());
    all.settle(&topic, Err(SubscriptionRefusal::LeftOut), Continuity::Kept);
    assert!(held.verdict().await.is_err());
    let again = all.add(topic.clone(), &one, Share::uncounted());
    let changed = *all.changes().borrow();
    assert_eq!(changed, 2, "asked again");
    all.settle(&topic, Ok(()), Continuity::Kept);
    assert!(again.verdict().await.is_ok());
}

#[test]
fn a_uri_of_nothing_but_slashes_has_few_wholes() {
    let uri = "/".repeat(MAX_URI);
    assert!(wholes(&uri).count() <= 2 * MAX_CONTAINING_LEVELS);
    let (all, dir) = (subscriptions(), mailbox());
    let _dir = all.add(Topic::resource("file:///d"), &dir, Share::uncounted());
    deliver(&all, &format!("file:///d{}", "/x".repeat(MAX_CONTAINING_LEVELS)));
    assert_eq!(heard(&dir).len(), 1, "the last level that counts");
    deliver(&all, &format!("file:///d{}", "/x".repeat(MAX_CONTAINING_LEVELS + 1)));
    assert_eq!(heard(&dir).len(), 0);
}

#[test]
fn news_of_a_uri_that_no_client_can_subscribe_to_is_none() {
    let update = |length| {
        let params = format!("{{\"uri\":\"{}\"}}", "x".repeat(length));
        News::parse(notification::RESOURCE_UPDATED, Some(&params.into()))
    };
    assert!(update(MAX_URI).is_some());
    assert!(update(MAX_URI + 1).is_none());
}
