//! All tools of one server, as it listed them last.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::tool::{self, HeaderRules, InvalidTool, Tool};
use crate::call::ServerName;

/// Who may keep a listing (MCP 2026-07-28, Caching).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheScope {
    /// Anyone, for anyone.
    Public,
    /// Only for the principal it was made for.
    Private,
}

/// How long a listing stays fresh, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// How long; zero means that it may be stale at once.
    pub ttl: Duration,
    /// For whom.
    pub scope: CacheScope,
}

impl Default for Freshness {
    /// Nothing may be kept: what a server means that says nothing.
    fn default() -> Self {
        Self { ttl: Duration::ZERO, scope: CacheScope::Private }
    }
}

/// What a server's `tools/list` said, all pages together.
#[derive(Debug)]
pub struct ServerList {
    /// The server.
    pub server: ServerName,
    /// Its valid tools in its own order, each native name once.
    pub tools: Vec<Arc<Tool>>,
    /// What the server said about caching; for the link to set. Until then it
    /// is the strictest there is.
    pub freshness: Freshness,
    rules: HeaderRules,
}

/// A tool that was left out, by its name (or its place) and the reason.
pub type Refused = (String, InvalidTool);

impl ServerList {
    /// Checks the tools of a server. Those whose bytes are the same as in the
    /// `old` list are taken over, not compiled again.
    pub fn build(
        server: ServerName,
        raws: &[Bytes],
        rules: HeaderRules,
        old: Option<&Self>,
    ) -> (Self, Vec<Refused>) {
        let old = old.filter(|old| old.rules == rules).map_or(&[][..], |old| &old.tools);
        let known: HashMap<&[u8], &Arc<Tool>> =
            old.iter().map(|tool| (tool.raw().as_ref(), tool)).collect();
        let mut names = HashSet::with_capacity(raws.len());
        let (mut tools, mut refused) = (Vec::with_capacity(raws.len()), Vec::new());
        for (position, raw) in raws.iter().enumerate() {
            let parsed = match known.get(raw.trim_ascii()) {
                Some(tool) => Ok(Arc::clone(tool)),
                None => Tool::parse(raw, rules).map(Arc::new),
            };
            match parsed {
                Ok(tool) if names.insert(tool.native.clone()) => tools.push(tool),
                Ok(tool) => refused.push((tool.native.to_string(), InvalidTool::Repeated)),
                Err(reason) => refused.push((tool::label(raw, position), reason)),
            }
        }
        (Self { server, tools, freshness: Freshness::default(), rules }, refused)
    }

    /// Whether it says the same as `other`, in the same order. Tools that were
    /// taken over from `other` are told by where they are.
    pub fn is_same(&self, other: &Self) -> bool {
        let tools = self.tools.iter().zip(&other.tools);
        self.freshness == other.freshness
            && self.tools.len() == other.tools.len()
            && tools.into_iter().all(|(one, two)| Arc::ptr_eq(one, two))
    }
}
