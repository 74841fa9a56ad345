use super::*;

/// Returns the tool `add` in one of its forms.
fn form(number: usize) -> DefinitionKey {
    named("add".to_owned(), number)
}

fn named(name: String, number: usize) -> DefinitionKey {
    let kind = DefinitionKind::ALL[0];
    let sha256 = DefinitionDigest::compute(kind, &number.to_string());
    DefinitionKey { kind, name, sha256, definition: None }
}

fn digest(number: usize) -> String {
    form(number).sha256.to_string()
}

fn changed(number: usize) -> BaselineChange {
    BaselineChange::Await(form(number), vec!["changed".to_owned()])
}

/// Returns the digests of the accepted and of the pending forms of the tool `add`.
fn forms(record: &BaselineRecord) -> [Vec<String>; 2] {
    let pinned = record.find(DefinitionKind::ALL[0], "add").unwrap();
    let accepted = pinned.accepted.iter().map(|form| form.sha256.to_string());
    [accepted.collect(), pinned.pending.iter().map(|form| form.sha256.to_string()).collect()]
}

#[test]
fn the_newest_forms_of_a_definition_stay_and_rejections_longer() {
    let mut record = BaselineRecord::default();
    record.apply(changed(0));
    record.decide(PinDecision::Reject, &[digest(0)]);
    for number in 1..=MAX_PENDING_FORMS {
        record.apply(changed(number));
    }
    let newest: Vec<_> = (2..=MAX_PENDING_FORMS).map(digest).collect();
    assert_eq!(forms(&record)[1], [vec![digest(0)], newest].concat());
    let mut other = BaselineRecord::default();
    for record in [&mut record, &mut other] {
        for number in 10..=10 + MAX_ACCEPTED_FORMS {
            record.apply(changed(number));
            let all: Vec<_> = (0..=number).map(digest).collect();
            assert_eq!(record.decide(PinDecision::Approve, &all).len(), 1);
        }
        let newest: Vec<_> = (11..=10 + MAX_ACCEPTED_FORMS).map(digest).collect();
        assert_eq!(forms(record)[0], newest);
    }
    // Those of another record are older than own ones.
    for number in 30..30 + MAX_ACCEPTED_FORMS - 1 {
        record.apply(changed(number));
        record.decide(PinDecision::Approve, &[digest(number)]);
    }
    let own = forms(&record)[0].clone();
    record.adopt(&other);
    assert_eq!(forms(&record)[0], own);
    for number in 50..=50 + MAX_PENDING_FORMS {
        other.apply(changed(number));
        other.decide(PinDecision::Reject, &[digest(number)]);
    }
    record.apply(changed(60));
    record.adopt(&other);
    assert_eq!(forms(&record)[1].len(), MAX_PENDING_FORMS);
}

#[test]
fn the_definitions_of_a_server_are_bounded() {
    let mut record = BaselineRecord::default();
    for number in 0..MAX_STORED_DEFINITIONS {
        record.accept_seen(named(number.to_string(), number));
    }
    let full = record.clone();
    record.apply(BaselineChange::Accept(form(1)));
    record.apply(changed(1));
    record.apply(BaselineChange::Serve(DefinitionKind::ALL[0], "add".to_owned()));
    let mut other = BaselineRecord::default();
    other.apply(BaselineChange::Accept(form(1)));
    record.adopt(&other);
    assert!(record == full, "nothing is added");
    record.apply(BaselineChange::Serve(DefinitionKind::ALL[0], "1".to_owned()));
    assert!(record != full, "known ones change");
}
