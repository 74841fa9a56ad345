//! The servers: every message about a call carries its mark.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use super::support::Upstream;
use super::support::upstream::marked::{ask, asking, line, progress, require, say, send, touches};
use super::support::upstream::news::{To, UPDATED};
use super::support::upstream::{Era, Inner, Received, Step};
use super::world::{Faults, whose};

pub struct Server {
    pub name: &'static str,
    pub lines: String,
    /// Connection of its messages to calls.
    pub ties: Ties,
    pub legacy: bool,
    /// True if each client has a session, or a child, of its own.
    pub own: bool,
    upstream: Upstream,
    /// Times at which it was lost.
    lost: Mutex<Vec<Instant>>,
}

/// Connection between a server's message before the answer and a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ties {
    /// The call's own stream.
    Stream,
    /// The child, which belongs to one client.
    Child,
    /// None: all share the pipes.
    Nothing,
}

impl Server {
    /// Breaks all its connections, and forgets its sessions.
    pub fn is_lost(&self) {
        self.lost.lock().unwrap().push(Instant::now());
        self.upstream.forget_sessions();
        self.upstream.crash();
    }

    pub fn times_lost(&self) -> usize {
        self.lost.lock().unwrap().len()
    }

    /// Returns the number of losses so long ago that the connections of that time are gone. A call
    /// on a connection that is about to break may still succeed.
    pub fn times_left_behind(&self) -> usize {
        let lost = self.lost.lock().unwrap();
        lost.iter().filter(|at| at.elapsed() > Duration::from_secs(1)).count()
    }

    /// Returns true if its behaviour may still be part of a loss.
    pub fn is_being_lost(&self) -> bool {
        self.times_lost() != self.times_left_behind()
    }
}

pub async fn all() -> (Vec<Server>, Arc<Faults>) {
    let faults = Arc::<Faults>::default();
    let mut servers = Vec::new();
    for (name, era, ties, own) in [
        ("lh", Era::Legacy, Ties::Stream, true),
        ("ls", Era::Legacy, Ties::Stream, false),
        ("lc", Era::Legacy, Ties::Child, true),
        ("lp", Era::Legacy, Ties::Nothing, false),
        ("mh", Era::Modern, Ties::Stream, false),
        ("mp", Era::Modern, Ties::Nothing, false),
    ] {
        let upstream = Upstream::start(era).await;
        upstream.keeps_nothing();
        upstream.can(json!({
            "tools": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "logging": {},
        }));
        let guard = Guard { own, sessions: Mutex::default(), faults: Arc::clone(&faults), name };
        acts(&upstream, era == Era::Legacy, Arc::new(guard));
        if ties == Ties::Nothing {
            // The longer it writes, the more messages could go astray.
            upstream.heeds_no_cancellation();
        }
        let legacy_isolation = if own { "client" } else { "shared" };
        let lines = if ties == Ties::Stream { upstream.http() } else { upstream.stdio() };
        let lines = match era {
            Era::Legacy => format!("{lines}isolation = \"{legacy_isolation}\"\n"),
            Era::Modern => lines,
        };
        let legacy = era == Era::Legacy;
        servers.push(Server { name, lines, ties, legacy, own, upstream, lost: Mutex::default() });
    }
    (servers, faults)
}

/// Checks that a client's own session serves no other client.
struct Guard {
    own: bool,
    name: &'static str,
    sessions: Mutex<HashMap<String, String>>,
    faults: Arc<Faults>,
}

impl Guard {
    /// Returns the mark of a call.
    fn mark(&self, call: &Received) -> String {
        let mark = call.arguments()["mark"].as_str().unwrap().to_owned();
        if self.own {
            let session = call.header("mcp-session-id").unwrap_or_default().to_owned();
            let mut sessions = self.sessions.lock().unwrap();
            let first = sessions.entry(session).or_insert_with(|| whose(&mark).to_owned());
            if first != whose(&mark) {
                self.faults.note(format!("{}: {mark} in a session of {first}", self.name));
            }
        }
        mark
    }
}

fn acts(upstream: &Upstream, legacy: bool, guard: Arc<Guard>) {
    let does = |tool: &str, what: fn(&Received, &str) -> Vec<Step>| {
        let guard = Arc::clone(&guard);
        upstream.does(tool, move |call| what(call, &guard.mark(call)));
    };
    does("say", say);
    does("slow", slow);
    does("ask", if legacy { ask } else { require });
    does("ask_aside", |call, mark| asking(call, mark, Step::AskAside));
    for (tool, tells) in
        [("touch", touches as fn(&Inner, &Received)), ("touch_all", touches_all), ("tell", tells)]
    {
        let (guard, inner) = (Arc::clone(&guard), Arc::downgrade(&upstream.inner));
        upstream.does(tool, move |call| {
            let mark = guard.mark(call);
            tells(&inner.upgrade().unwrap(), call);
            vec![Step::text(mark)]
        });
    }
}

/// Reports progress once, then writes lines. Its answer arrives too late, if at all.
fn slow(call: &Received, mark: &str) -> Vec<Step> {
    let mut steps = vec![progress(call, mark, 1)];
    for _ in 0..4 {
        steps.extend([line(mark), Step::Pause(Duration::from_millis(1))]);
    }
    let ends = call.arguments()["ends"] == true;
    steps.push(if ends { Step::text(mark) } else { Step::Never });
    steps
}

/// Notifies all clients about a resource, subscribed or not.
fn touches_all(inner: &Inner, call: &Received) {
    send(inner, UPDATED, json!({ "uri": call.arguments()["uri"] }), To::Everybody);
}

/// Sends the client of this session a notification that belongs to no call.
fn tells(inner: &Inner, call: &Received) {
    let session = call.header("mcp-session-id").unwrap_or_default();
    let params = json!({ "mark": call.arguments()["mark"] });
    send(inner, TOLD, params, To::In(session.into()));
}

/// A notification with a method unknown to the gateway.
pub const TOLD: &str = "notifications/of/tomorrow";
