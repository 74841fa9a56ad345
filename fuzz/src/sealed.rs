//! Sealed values that clients keep for the gateway: cursors, state, ids of tasks.

use std::time::Duration;

use trunkline::call::{CursorError, StateError};
use trunkline::call::{NativeName, Principal, ServerName};
use trunkline::catalog::{Kind, ListPosition, SealedCursors};
use trunkline::era::lower::with_input;
use trunkline::era::state::{RequestState, Seals, StateBinding, digest};
use trunkline::era::tasks::ids::{TaskIds, TaskOrigin};
use trunkline::jsonrpc::Members;

/// No invented value is accepted as sealed. A sealed value opens for the client that received it,
/// and no byte of it can be changed.
pub fn sealed(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let place = data.iter().fold(0, |sum, byte| sum + usize::from(*byte));
    cursors(&text, place);
    states(&text, place);
    tasks(&text);
    digests(data);
}

fn cursors(text: &str, place: usize) {
    let cursors = SealedCursors::new([[7; 32].as_slice()]).expect("a key");
    let list = [1; 32];
    for kind in Kind::ALL {
        assert_eq!(cursors.open(kind, text, &list), Err(CursorError::Invalid));
    }
    let cursor = cursors.seal(Kind::Tools, ListPosition(place), &list).expect("a cursor");
    assert_eq!(cursors.open(Kind::Tools, &cursor, &list), Ok(ListPosition(place)));
    assert_eq!(cursors.open(Kind::Tools, &cursor, &[2; 32]), Err(CursorError::Stale));
    assert_eq!(cursors.open(Kind::Prompts, &cursor, &list), Err(CursorError::Invalid));
    let changed = change(&cursor, place);
    assert_eq!(cursors.open(Kind::Tools, &changed, &list), Err(CursorError::Invalid));
    let longer = format!("{cursor}{text}");
    assert!(text.is_empty() || cursors.open(Kind::Tools, &longer, &list).is_err());
}

fn states(text: &str, place: usize) {
    let seals = Seals::new([&b"new"[..], b"old"]).expect("keys");
    let request = digest("tools/call", b"{}");
    let bound = StateBinding { principal: "ann", request: &request };
    let open = |text: &str, principal, now| seals.open(text, principal, || request, now);
    assert_eq!(open(text, "ann", NOW), Err(StateError::Invalid));
    let state = RequestState::Server { server: "s".into(), state: text.into() };
    let sealed = seals.seal(state.clone(), bound, NOW, LASTING).expect("a state");
    let changed = change(&sealed, place);
    assert_eq!(open(&changed, "ann", NOW), Err(StateError::Invalid));
    assert_eq!(open(&sealed, "bob", NOW), Err(StateError::Invalid));
    assert_eq!(open(&sealed, "ann", NOW + LASTING), Err(StateError::Expired));
    assert_eq!(open(&sealed, "ann", NOW).map(|it| it.state), Ok(state));
}

fn tasks(text: &str) {
    let ids = TaskIds::new([&b"new"[..], b"old"]);
    let server = ServerName::new("s").expect("a name");
    let ann = Principal::Client("ann".into());
    assert_eq!(ids.origin(&ann, text), None);
    for owner in [Principal::Anonymous, ann] {
        for tool in [None, Some(NativeName::new(text))] {
            let task = TaskOrigin { server: server.clone(), tool, native: text };
            let public = ids.public(&owner, &task);
            assert_eq!(ids.origin(&owner, &public), Some(task));
            assert_eq!(ids.origin(&Principal::Client("bob".into()), &public), None);
        }
    }
}

/// A retry has the digest of its request.
fn digests(data: &[u8]) {
    let own = digest("tools/call", data);
    assert_ne!(own, digest("prompts/get", data));
    let Ok(members) = Members::parse_with_duplicates(data) else { return };
    if ["inputResponses", "requestState"].iter().all(|key| members.find(key).is_none()) {
        assert_eq!(digest("tools/call", &with_input(data, b"{}", Some("\"s\""))), own);
    }
}

/// The same text with one character changed.
fn change(text: &str, place: usize) -> String {
    let at = place % text.len();
    let other = if text[at..].starts_with('A') { "B" } else { "A" };
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}

const NOW: Duration = Duration::from_hours(500_000);
const LASTING: Duration = Duration::from_mins(10);
