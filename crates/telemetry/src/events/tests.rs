use std::fmt::Write as _;

use super::*;
use crate::{CallOutcome, CallSubject};

/// One event of each type, in the order of [`EventType::ALL`].
fn examples() -> [LifecycleEvent<'static>; EventType::ALL.len()] {
    let call = CallFacts {
        call: "9f2c51d07be3a846-c31",
        client: "ci",
        profile: "support",
        method: "tools/call",
        subject: CallSubject::Tool("files__read"),
    };
    let client = ClientFacts {
        client: "ci",
        name: "build-agent",
        version: "2.1.0",
        protocol_version: "2025-11-25",
    };
    [
        LifecycleEvent::ServerReady {
            server: "files",
            protocol_version: Some("2026-07-28"),
            tools: 14,
        },
        LifecycleEvent::ServerLost { server: "files" },
        LifecycleEvent::ServerFailed { server: "files" },
        LifecycleEvent::BreakerOpened { server: "files" },
        LifecycleEvent::BreakerClosed { server: "files" },
        LifecycleEvent::ListChanged { lists: &["tools"], servers: &["files"] },
        LifecycleEvent::DefinitionsFound { server: "files", held: 1, reported: 0 },
        LifecycleEvent::CallBegun(call),
        LifecycleEvent::CallEnded {
            call,
            server: Some("files"),
            outcome: CallOutcome::Failed { code: -32603, label: "timeout" },
            duration: Duration::from_secs(30),
        },
        LifecycleEvent::ClientOpened(client),
        LifecycleEvent::ClientClosed { client, lasted: Duration::from_mins(30) },
        LifecycleEvent::ConfigApplied { kept: 4, replaced: 1, added: 1, removed: 0 },
        LifecycleEvent::ConfigRejected { faults: 0, losses: 2 },
    ]
}

fn meaning(kind: EventType) -> &'static str {
    match kind {
        EventType::ServerReady => "A server takes calls.",
        EventType::ServerLost => {
            "A server that took calls does not any more, or its first start failed; it is tried again. The log \
             and `/status` have the reason."
        }
        EventType::ServerFailed => {
            "A child process failed more often than `max_restarts` allows, and is tried once in each \
             `restart_window`; or a server failed in a way that an operator has to mend: its program is missing, \
             or it refuses the gateway's credentials. The log and `/status` have the reason."
        }
        EventType::BreakerOpened => {
            "The circuit breaker of a server (`[servers.NAME.breaker]`) has opened: calls are refused for \
             `open_time`."
        }
        EventType::BreakerClosed => {
            "Probes have succeeded, and calls are sent to the server again."
        }
        EventType::ListChanged => {
            "Clients see other lists than before. `lists` are those that changed for all clients, by the member \
             of the list's result; it is empty if only the lists of some clients changed. `servers` have new \
             lists, at most 100 of them."
        }
        EventType::DefinitionsFound => {
            "Definitions of a server have changed since they were accepted, or a scan has found something in \
             them: `held` are absent from lists until they are approved, `reported` are not. `/status` and \
             `trunkline pin diff` name them."
        }
        EventType::CallBegun => {
            "A call was received. `call` is the same in both events of a call; `tool` or `prompt` is the name that \
             the client called."
        }
        EventType::CallEnded => {
            "The call ended: `outcome` is one of `ok`, `tool_error`, `refused`, `failed`, `cancelled` and \
             `input_required`, with the `reason` of the metrics and the JSON-RPC `code` where there is one. \
             Without `server` it was routed to none."
        }
        EventType::ClientOpened => {
            "A Legacy client opened a session. `client` is its name in the configuration; `name` and `version` \
             are from its `clientInfo`. Modern clients have no sessions, and so no such events."
        }
        EventType::ClientClosed => "The session of a Legacy client ended.",
        EventType::ConfigApplied => {
            "A reload put a new configuration in force; the numbers count servers."
        }
        EventType::ConfigRejected => {
            "A reload was rejected, and the old configuration stays in force: the new one has `faults`, or a file \
             that has changed removes or weakens protections (`losses`) and no operator has asked for it. The log \
             and `/status` have each of them."
        }
    }
}

fn line(event: &LifecycleEvent<'_>) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_435_200_250);
    let written = write_event(event, "9f2c51d07be3a846-57", "trunkline", at).unwrap();
    String::from_utf8(written).unwrap()
}

#[test]
fn the_examples_are_one_of_each_type() {
    for (kind, event) in EventType::ALL.into_iter().zip(examples()) {
        assert_eq!(event.kind(), kind);
        assert_eq!(EventType::parse(&format!("trunkline.{}", kind.name())), Some(kind));
        let event: serde_json::Value = serde_json::from_str(&line(&event)).unwrap();
        // CloudEvents 1.0, "Required Attributes".
        for attribute in ["specversion", "id", "source", "type"] {
            assert!(event[attribute].as_str().is_some_and(|text| !text.is_empty()), "{event}");
        }
    }
}

#[test]
fn text_of_clients_is_clipped_and_a_uri_is_left_out() {
    let long = "x".repeat(5000);
    let facts = |subject| CallFacts {
        call: "c",
        client: "anonymous",
        profile: "default",
        method: &long,
        subject,
    };
    let client =
        ClientFacts { client: "ci", name: &long, version: &long, protocol_version: "2025-11-25" };
    for event in [
        LifecycleEvent::CallBegun(facts(CallSubject::Tool(&long))),
        LifecycleEvent::CallBegun(facts(CallSubject::Prompt(&long))),
        LifecycleEvent::ClientOpened(client),
    ] {
        assert!(line(&event).len() < 1000, "{}", line(&event));
    }
    let read = line(&LifecycleEvent::CallBegun(facts(CallSubject::Resource("db://hush/hush"))));
    assert!(!read.contains("hush"), "{read}");
}

#[test]
fn only_the_chosen_types_are_built() {
    let sender = EventSender::disabled();
    assert!(sender.tag_call().is_none() && !sender.wants(EventType::ServerReady));
    sender.0.queue.set_limit(10_000);
    sender.0.types.store(EventTypes::from_iter([EventType::ServerLost]).0, Relaxed);
    for event in &examples() {
        sender.send(event);
    }
    let first = sender.0.queue.first().unwrap();
    assert_eq!(first.kind, EventType::ServerLost);
    sender.0.queue.remove(&first, super::super::metrics::EventFate::Delivered);
    assert!(sender.0.queue.first().is_none());
    sender.0.types.store(EventTypes::from_iter([EventType::CallEnded]).0, Relaxed);
    let (one, other) = (sender.tag_call().unwrap(), sender.tag_call().unwrap());
    assert_ne!(one.as_str(), other.as_str());
}

#[test]
fn the_page_on_events_matches_the_code() {
    let mut page = PAGE_HEAD.to_owned();
    for (kind, event) in EventType::ALL.into_iter().zip(examples()) {
        let (name, meaning) = (kind.name(), meaning(kind));
        write!(page, "\n### {name}\n\n{meaning}\n\n```json\n{}\n```\n", line(&event)).unwrap();
    }
    page += &PAGE_TAIL.replace("CONTENT_TYPE", super::webhook::CONTENT_TYPE);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(written, page, "docs/events.md is stale: run the tests with UPDATE_DOCS=1");
}

const PAGE_HEAD: &str =
    "<!-- Generated from the code: UPDATE_DOCS=1 cargo test -p trunkline-telemetry events -->
# Events

The gateway reports events to a program of yours: the state of servers, changed lists, connected clients and, if you
want, each call. It sends [CloudEvents](https://cloudevents.io) 1.0 as JSON to one receiver, which the
section `[events]` of the configuration names ([its settings](configuration.md#events)).

A webhook gets one request for each event:

```toml gateway
[events]
url = \"https://hooks.example.com/trunkline\"
secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"   # or \"${env:WEBHOOK_SECRET}\"
types = [\"server.*\", \"config.rejected\"]
queue_dir = \"events\"
```

A program reads one event per line from its standard input, and a file gets one line for each:

```toml gateway
[events]
command = \"./on-event.sh\"
```

```toml gateway
[events]
file = \"events.jsonl\"
types = [\"*\"]
```

## What is in an event

`type` is `trunkline.` and one of the names below; `types` chooses them by these names, by default all but `call.*`.
`id` is unique, `source` is the setting of that name, `subject` is the server or the client that the event is about,
and `time` is when it happened. An event never holds arguments, results, headers, URIs, session ids, keys or the text
of a server's errors.
";

const PAGE_TAIL: &str = "
## Webhooks

The request is a `POST` with `Content-Type: CONTENT_TYPE` and one event as its body, signed
by the scheme of [Standard Webhooks](https://www.standardwebhooks.com): `webhook-id` is the event's `id`,
`webhook-timestamp` is when the request was sent, in seconds since 1970, and `webhook-signature` is `v1,` and the
HMAC-SHA256, in Base64, of `ID.TIMESTAMP.BODY`. The libraries of Standard Webhooks verify it with the same `secret`;
`echo \"whsec_$(openssl rand -base64 32)\"` makes one. A receiver should reject timestamps that are more than some
minutes old.

The address is `https`, or `http` on this machine: with `localhost`, `127.0.0.0/8` or `::1`. Certificates are checked
against the roots of trust of the platform. Any status from 200 to 299 means that the event was taken, whatever
the body of the response. Redirects are not followed.

## Programs

`command` has to exist at the start of the gateway. It is started with the first event, with the environment that child processes of servers have, and again when
it has ended. Its standard error is in the log, as `server=events`. When the gateway stops, its standard
input ends; then follow SIGTERM and SIGKILL. An event counts as delivered when it is in the pipe: events
that the program has not read when it ends are lost.

## Files

`file` is created at the start of the gateway, with mode 0600, and only ever appended to. It is opened for each event,
so that it can be rotated. It has no limit of its own.

## Delivery

Events are sent one after the other, in the order in which they happened, and at least once: a receiver may get an
event twice, with the same `id`. No call waits for it.

- **Retries.** An event that the receiver does not take within `timeout` (10 s) is sent again, after half a second at
  first and a minute at most, until it is older than `retry_for` (1 day). A webhook that answers with a status from
  400 to 499 (but 408, 425 and 429) rejects the event, which is then sent five times at most.
- **The queue** has `queue_size` bytes (1 MiB). When it is full, the oldest events of calls are dropped first, and then
  the oldest of all; this is logged once, and `trunkline_events_total{outcome=\"dropped\"}` counts them.
- **Restarts.** With `queue_dir`, the events that wait are also kept in that folder, with mode 0600, and the next start
  sends them first. They survive the end of the process; a power failure can lose the changes of the last half minute, so
  that an event is lost or sent again. Without it they are lost.
- **The end.** When the gateway stops, it delivers queued events for as long as the drain time lasts, and for one second
  at least.
- **Reloads** change everything but `queue_dir`; events that wait go to the new receiver.

A receiver that cannot be opened or written keeps no gateway from starting, and is tried again. `trunkline check` warns of
it where no network is needed. While the gateway runs, its path, or the scheme and host of a webhook, is reported with the
reason: once in the log, in the reasons of `/readyz`, which stays ready, and in `sinks` of `/status`;
`trunkline_sink_up{sink=\"events\"}` is 0. The same holds for `queue_dir`, as `events_queue`. Events tell of changes and decide
nothing, so no call depends on them: records that must not be lost belong in the [audit log](audit.md).

Each event that leaves the queue is counted in `trunkline_events_total`, by `outcome`: `delivered`, `dropped` or
`given_up`.
";
