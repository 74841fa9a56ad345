//! The rates of one server and its tools, for all callers together and for each of them.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::call::{Context, Failure, Named, NativeName, ServerName};
use crate::policy::target::CallTarget;
use crate::shares::{Bucket, Holder, KeyedBuckets};

use super::taking::{LimitLevel, RateTaker};

/// One token bucket for each caller.
pub(crate) type HolderBuckets = KeyedBuckets<Holder>;

/// The rates of a server.
#[derive(Debug)]
pub(crate) struct ServerRates {
    pub(crate) all: Option<Arc<Bucket>>,
    pub(crate) each: Option<Arc<HolderBuckets>>,
    /// Rates of the tools that have any, or a cost.
    pub(crate) tools: Named<NativeName, ToolRates>,
}

/// The rates of a tool.
#[derive(Debug)]
pub(crate) struct ToolRates {
    pub(crate) all: Option<Arc<Bucket>>,
    pub(crate) each: Option<Arc<HolderBuckets>>,
    /// Number of calls that one call counts as.
    pub(crate) cost: NonZeroU32,
}

impl ToolRates {
    /// Returns true if the tool has no rate or cost of its own.
    pub(crate) fn are_unset(&self) -> bool {
        self.all.is_none() && self.each.is_none() && self.cost == NonZeroU32::MIN
    }
}

impl ServerRates {
    /// Returns true if there is no rate, and no tool with a cost.
    pub(crate) fn are_unset(&self) -> bool {
        self.all.is_none() && self.each.is_none() && self.tools.is_empty()
    }

    /// Checks the rates of a call and returns its cost. The narrow limit is first: the caller's own
    /// before the one that all share, the tool's before the server's.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] names the limit and the wait.
    pub(crate) fn check_call(
        &self,
        target: &CallTarget,
        context: &Context,
        taker: &mut impl RateTaker,
    ) -> Result<NonZeroU32, Failure> {
        let (server, name) = (&target.server, target.tool_name());
        let tool = name.and_then(|name| self.tools.get(name));
        let cost = tool.map_or(NonZeroU32::MIN, |tool| tool.cost);
        let of_tool = tool.and_then(|tool| tool.each.as_ref());
        if of_tool.is_some() || self.each.is_some() {
            let holder = Holder::of_context(context);
            for (buckets, name) in [(of_tool, name), (self.each.as_ref(), None)] {
                if let Some(buckets) = buckets {
                    let limit = || format!("each:{}", Self::limit_name(server, name));
                    taker.take_keyed(buckets, &holder, cost, limit)?;
                }
            }
        }
        if let Some(bucket) = tool.and_then(|tool| tool.all.as_ref()) {
            taker.take(bucket, cost, || Self::limit_name(server, name))?;
        }
        if let Some(bucket) = &self.all {
            taker.take(bucket, cost, || Self::limit_name(server, None))?;
        }
        Ok(cost)
    }

    /// Returns the rest of the rates of each caller that a holder has used.
    pub(crate) fn used_levels(&self, server: &ServerName, holder: &Holder) -> Vec<LimitLevel> {
        let tools = self.tools.iter().map(|(name, tool)| (Some(name), tool.each.as_ref()));
        let all = std::iter::once((None, self.each.as_ref())).chain(tools);
        let used = all.filter_map(|(name, buckets)| {
            let level = buckets?.level(holder);
            let limit = || format!("each:{}", Self::limit_name(server, name));
            let is_used = level.remaining < level.rate.count.get();
            is_used.then(|| LimitLevel::of_bucket(limit(), level))
        });
        used.collect()
    }

    /// Checks the server's own rate alone.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub(crate) fn check_server(&self, server: &ServerName) -> Result<(), Failure> {
        let all = self.all.as_ref();
        all.map_or(Ok(()), |bucket| bucket.check(|| Self::limit_name(server, None)))
    }

    /// Returns the name of a limit in errors and metrics.
    pub(crate) fn limit_name(server: &ServerName, tool: Option<&NativeName>) -> String {
        match tool {
            Some(tool) => format!("tool:{server}/{tool}"),
            None => format!("server:{server}"),
        }
    }
}
