use serde_json::{Value, json};

use super::*;
use crate::cluster::{MemoryStore, SealedRecordsInTests};
use crate::policy::PinDecision;

/// Returns a digest of 64 equal digits.
fn digest(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn accepted(digit: char, basis: &str) -> Value {
    json!({ "sha256": digest(digit), "basis": basis })
}

fn pending(digit: char, rejected: bool) -> Value {
    json!({ "sha256": digest(digit), "reasons": ["changed"], "rejected": rejected })
}

/// Returns a record with one tool.
fn record(accepted: &[Value], pending: &[Value]) -> BaselineRecord {
    let tool = json!({ "accepted": accepted, "pending": pending });
    serde_json::from_value(json!({ "tools": { "add": tool } })).unwrap()
}

fn server() -> ServerName {
    ServerName::new("s").unwrap()
}

fn replicas<const N: usize>() -> (Arc<MemoryStore>, [SharedBaselines; N]) {
    let store = Arc::new(MemoryStore::default());
    let replica = |_| SharedBaselines::new(SealedRecordsInTests::in_tests(&store));
    let replicas = std::array::from_fn(replica);
    (store, replicas)
}

#[tokio::test]
async fn one_of_three_replicas_approves_a_form() {
    let (_store, [a, b, c]) = replicas();
    let before = record(&[accepted('1', "seen")], &[pending('2', false)]);
    a.edit(&server(), |it| *it = before.clone()).await.unwrap();
    let approve = |it: &mut BaselineRecord| it.decide(PinDecision::Approve, &[digest('2')]);
    let name = server();
    let (a, b, c) =
        tokio::join!(a.edit(&name, approve), b.edit(&name, approve), c.edit(&name, approve));
    let approved = [a, b, c].map(|edited| edited.unwrap().1.len());
    assert_eq!(approved.iter().sum::<usize>(), 1, "{approved:?}");
}

#[tokio::test]
async fn a_version_changes_with_each_write_only() {
    let (_store, [a, b]) = replicas();
    assert!(a.has_version(&server(), None).await.unwrap());
    let first = record(&[accepted('1', "seen")], &[]);
    let (written, ()) = a.edit(&server(), |it| *it = first.clone()).await.unwrap();
    assert!(b.has_version(&server(), written.version.as_ref()).await.unwrap());
    let (read, ()) = b.edit(&server(), |_| ()).await.unwrap();
    assert_eq!((&read.record, &read.version), (&first, &written.version));
    b.edit(&server(), |it| *it = record(&[accepted('2', "seen")], &[])).await.unwrap();
    assert!(!a.has_version(&server(), written.version.as_ref()).await.unwrap());
}

#[tokio::test]
async fn a_large_record_loses_its_texts_and_a_larger_one_is_refused() {
    let (_store, [a]) = replicas();
    let text = "x".repeat(3 << 20);
    let mut form = accepted('1', "approved");
    form["definition"] = json!({ "description": text });
    let large = record(&[form], &[]);
    a.edit(&server(), |it| *it = large.clone()).await.unwrap();
    assert_eq!(a.read(&server()).await.unwrap().record, large.clone().without_texts());
    let tools =
        (0..20_000).map(|n| (format!("tool {n}"), json!({ "accepted": [accepted('1', "seen")] })));
    let many: serde_json::Map<_, _> = tools.collect();
    let many: BaselineRecord = serde_json::from_value(json!({ "tools": many })).unwrap();
    let refused = a.edit(&server(), |it| *it = many.clone()).await;
    assert!(matches!(refused, Err(BaselineError::TooLarge { limit, .. }) if limit == 1 << 20));
    assert_eq!(a.read(&server()).await.unwrap().record, large.without_texts());
}

#[tokio::test]
async fn nothing_is_decided_without_the_store_or_its_key() {
    let (store, [a]) = replicas();
    let first = record(&[accepted('1', "seen")], &[]);
    a.edit(&server(), |it| *it = first.clone()).await.unwrap();
    store.fail(true);
    let refused = a.edit(&server(), |_| ()).await;
    assert!(matches!(refused, Err(BaselineError::Sharing(SharingFault::Unavailable))));
}

/// Pairs of a record and another one whose decisions it adopts, with the result.
#[test]
fn decisions_of_a_file_are_added_and_own_ones_stay() {
    let (seen, approved) = (|digit| accepted(digit, "seen"), |digit| accepted(digit, "approved"));
    let none = BaselineRecord::default;
    let rejected = |digit| pending(digit, true);
    let cases = [
        ("an unknown definition", none(), record(&[seen('1')], &[]), record(&[seen('1')], &[])),
        (
            "a form that was seen first elsewhere",
            record(&[seen('2')], &[]),
            record(&[seen('1')], &[]),
            record(&[seen('2')], &[]),
        ),
        (
            "an approved form is older than own ones",
            record(&[seen('2')], &[]),
            record(&[seen('1'), approved('3')], &[]),
            record(&[approved('3'), seen('2')], &[]),
        ),
        (
            "an approval of a form that waits",
            record(&[seen('1')], &[pending('2', false)]),
            record(&[approved('2')], &[]),
            record(&[approved('2'), seen('1')], &[]),
        ),
        (
            "an approval of a form that was seen",
            record(&[seen('1')], &[]),
            record(&[approved('1')], &[]),
            record(&[approved('1')], &[]),
        ),
        (
            "a rejection of a form that waits",
            record(&[seen('1')], &[pending('2', false)]),
            record(&[seen('1')], &[rejected('2')]),
            record(&[seen('1')], &[rejected('2')]),
        ),
        (
            "a rejection of an approved form",
            record(&[approved('2')], &[]),
            record(&[seen('1')], &[rejected('2')]),
            record(&[approved('2')], &[]),
        ),
        (
            "a form that waits elsewhere",
            record(&[seen('1')], &[]),
            record(&[seen('1')], &[pending('2', false)]),
            record(&[seen('1')], &[]),
        ),
    ];
    for (case, mut own, other, expected) in cases {
        own.adopt(&other);
        assert_eq!(own, expected, "{case}");
        own.adopt(&other);
        assert_eq!(own, expected, "{case}, again");
    }
}
