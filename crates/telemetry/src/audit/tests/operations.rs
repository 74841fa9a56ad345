//! Records of operations.

use std::collections::BTreeSet;

use super::*;

const ALL: [AuditOperation<'static>; 6] = [
    AuditOperation::LoginLink { owner: Some("ann"), server: None },
    AuditOperation::Login { owner: None, server: Some("s") },
    AuditOperation::Revocation { owner: Some("ann"), server: "s" },
    AuditOperation::Relay { issuer: "corp", endpoint: "token", client_id: Some("app") },
    AuditOperation::Reload { before: "aa", after: None, losses: 2 },
    AuditOperation::Change { method: "POST", path: "/calls", digests: &[], client: Some("ci") },
];

fn operation(
    operation: AuditOperation<'static>,
    actor: OperationActor<'static>,
) -> OperationRecord<'static> {
    let (outcome, reason) = (OperationOutcome::Failed, Some("expired"));
    OperationRecord { operation, actor, address: Some([127, 0, 0, 1].into()), outcome, reason }
}

#[test]
fn operations_are_chained_records_and_their_fields_are_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (trail, _) = started(to_file(&path, ONE_FILE, ChainMode::Plain));
    write(&trail, &["a"]);
    for one in ALL {
        trail.record_operation(&operation(one, OperationActor::Operator(Some("eve"))));
    }
    let digests: Vec<_> = (0..101).map(|number| format!("{number:064x}")).collect();
    let (method, decided) = ("POST", "/servers/s/definitions/approve");
    trail.record_operation(&OperationRecord {
        operation: AuditOperation::Change {
            method,
            path: decided,
            digests: &digests,
            client: None,
        },
        actor: OperationActor::Operator(Some("eve")),
        address: None,
        outcome: OperationOutcome::Ok,
        reason: None,
    });
    trail.finish(Duration::from_secs(10));
    let (faults, report) = verify(&[&path], ChainMode::Plain);
    assert_eq!((faults, report.records), (vec![], 8));
    let records = lines(&path);
    let kinds: Vec<_> = records[1..].iter().map(|it| it["operation"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["login_link", "login", "revocation", "relay", "reload", "change", "change"]);
    assert_eq!(records[6].get("digests"), None);
    assert_eq!((&records[6]["client"], records[7].get("client")), (&"ci".into(), None));
    assert_eq!(records[7]["digests"].as_array().unwrap()[..], digests[..100]);
    assert_eq!(records[7]["digest_count"], 101);
    assert_eq!(records[5]["digest_after"], Value::Null);
    let actor = serde_json::json!({ "kind": "operator", "name": "eve" });
    assert!(records[1..].iter().all(|it| it["event"] == "operation" && it["actor"] == actor));
    let fields: BTreeSet<_> = records[1..]
        .iter()
        .flat_map(|record| record.as_object().unwrap().keys().map(String::as_str))
        .filter(|field| !["seq", "time", "id", "event", "prev", "hash"].contains(field))
        .collect();
    let page = include_str!("../../../../../docs/audit.md");
    let table = page.split("## Operations").nth(1).unwrap().split("\n## ").next().unwrap();
    let table = table.split("| field |").nth(1).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: BTreeSet<_> = rows.map(|row| row.split('`').next().unwrap()).collect();
    assert_eq!(told, fields);
}

#[test]
fn strangers_take_half_of_the_queue_at_most() {
    let full = AuditSettings {
        queue_size: 20_000,
        ..to_file(Path::new("/dev/full"), ONE_FILE, ChainMode::Off)
    };
    let (trail, counts) = started(full);
    for _ in 0..200 {
        trail.record_operation(&operation(ALL[3], OperationActor::Visitor));
        let of_no_login = AuditOperation::Login { owner: None, server: None };
        trail.record_operation(&operation(of_no_login, OperationActor::Visitor));
    }
    let dropped = counts.of(AuditFate::Dropped);
    assert!(dropped > 0 && trail.overview().unwrap().queued <= 10_000);
    trail.record_operation(&operation(ALL[4], OperationActor::Gateway));
    assert_eq!(counts.of(AuditFate::Dropped), dropped, "others have room");
}
