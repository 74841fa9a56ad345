use std::thread::yield_now;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;
use trunkline_core::clock;

fn event(id: &str, kind: EventType, length: usize) -> QueuedEvent {
    let json = Bytes::from(vec![b'x'; length]);
    QueuedEvent { id: id.into(), kind, at: SystemTime::UNIX_EPOCH, json }
}

fn ids(queue: &EventQueue) -> Vec<String> {
    queue.waiting.lock().in_order().map(|event| event.id.to_string()).collect()
}

#[test]
fn a_full_queue_drops_the_oldest_call_events_and_then_the_oldest_of_all() {
    let (server, call) = (EventType::ServerReady, EventType::CallEnded);
    let counts = EventCounts::default();
    let queue = EventQueue::new(counts.clone());
    queue.set_limit(30);
    for (id, kind) in [("a", server), ("b", call), ("c", call), ("d", server)] {
        queue.push(event(id, kind, 10));
    }
    assert_eq!(ids(&queue), ["a", "c", "d"], "the oldest call event went first");
    queue.push(event("e", server, 10));
    assert_eq!(ids(&queue), ["a", "d", "e"]);
    queue.push(event("f", call, 10));
    assert_eq!(ids(&queue), ["a", "d", "e"], "a call event drops no other");
    queue.push(event("g", server, 10));
    assert_eq!(ids(&queue), ["d", "e", "g"]);
    queue.push(event("h", server, 31));
    assert_eq!(ids(&queue), ["d", "e", "g"], "too large for any queue");
    queue.set_limit(20);
    assert_eq!(ids(&queue), ["e", "g"]);
    assert_eq!(counts.of(EventFate::Dropped), 6);
}

#[test]
fn events_of_both_kinds_leave_in_the_order_in_which_they_came() {
    let (server, call) = (EventType::ServerReady, EventType::CallEnded);
    let queue = EventQueue::new(EventCounts::default());
    queue.set_limit(100);
    for (id, kind) in [("a", call), ("b", server), ("c", server), ("d", call), ("e", server)] {
        queue.push(event(id, kind, 10));
    }
    assert_eq!(ids(&queue), ["a", "b", "c", "d", "e"]);
    for left in [vec!["b", "c", "d", "e"], vec!["c", "d", "e"], vec!["d", "e"], vec!["e"]] {
        queue.remove(&queue.first().unwrap(), EventFate::Delivered);
        assert_eq!(ids(&queue), left);
    }
}

#[test]
fn an_event_of_a_call_costs_no_search_in_a_full_queue() {
    let queue = EventQueue::new(EventCounts::default());
    queue.set_limit(100_000);
    for _ in 0..99_999 {
        queue.push(event("s", EventType::ServerReady, 1));
    }
    let begun = clock::now();
    for _ in 0..100_000 {
        queue.push(event("c", EventType::CallEnded, 1));
    }
    let lasted = clock::now() - begun;
    assert!(lasted < Duration::from_secs(20), "{lasted:?}: with a search it is a minute");
}

/// Polls a wait once, and returns true if it is over.
fn is_over(wait: impl Future<Output = ()>) -> bool {
    wait.now_or_never().is_some()
}

#[test]
fn a_queue_is_drained_when_its_last_event_has_left_however_it_left() {
    let queue = EventQueue::new(EventCounts::default());
    queue.set_limit(30);
    assert!(is_over(queue.drained()));
    queue.push(event("a", EventType::ServerReady, 10));
    let mut waiting = Box::pin(queue.drained());
    assert!(!is_over(&mut waiting));
    queue.remove(&queue.first().unwrap(), EventFate::Delivered);
    assert!(is_over(waiting) && is_over(queue.drained()));
    queue.push(event("b", EventType::ServerReady, 10));
    let mut waiting = Box::pin(queue.drained());
    assert!(!is_over(&mut waiting));
    queue.set_limit(0);
    assert!(is_over(waiting) && is_over(queue.drained()));
}

#[test]
fn a_queue_that_was_emptied_while_an_event_was_added_is_drained() {
    let queue = EventQueue::new(EventCounts::default());
    queue.set_limit(1000);
    std::thread::scope(|threads| {
        let receiver = threads.spawn(|| {
            let mut left = ROUNDS;
            while left > 0 {
                let Some(first) = queue.first() else {
                    // On a busy machine the two take turns.
                    yield_now();
                    continue;
                };
                queue.remove(&first, EventFate::Delivered);
                left -= 1;
            }
        });
        for _ in 0..ROUNDS {
            queue.push(event("a", EventType::ServerReady, 1));
            while !queue.waiting.lock().is_empty() {
                yield_now();
            }
            assert!(is_over(queue.drained()));
        }
        receiver.join().unwrap();
    });
}

const ROUNDS: usize = 10_000;

#[test]
fn the_journal_has_twice_the_bytes_of_the_queue_at_most() {
    let queue = EventQueue::new(EventCounts::default());
    queue.set_limit(100);
    queue.keep_journal();
    let (mut file, mut largest) = (Vec::new(), 0);
    for round in 0..1000 {
        queue.push(event("id", EventType::ServerReady, 30));
        if round % 3 == 0
            && let Some(first) = queue.first()
        {
            queue.remove(&first, EventFate::Delivered);
        }
        let changes = queue.take_changes().unwrap();
        if changes.rewrite {
            file.clear();
        }
        file.extend(changes.lines);
        largest = largest.max(file.len());
    }
    assert!((150..=200).contains(&largest), "{largest}");
    // The changes that wait for a slow disk are bounded as well.
    for _ in 0..1000 {
        queue.push(event("id", EventType::ServerReady, 30));
    }
    let changes = queue.take_changes().unwrap();
    assert!(changes.rewrite && changes.lines.len() <= 200, "{}", changes.lines.len());
}
