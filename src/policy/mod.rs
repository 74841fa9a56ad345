//! Admission: rates, concurrency and argument checks, in one fixed order, before
//! a server sees a call.
//!
//! [`Policy::admit`] shows the order. The proof that a call was admitted is a
//! type: an upstream accepts a [`Permitted`] call and nothing else, and only this
//! module can make one. Of replies, only the results of tools pass
//! here, in `transforms`: `pipeline` releases them.
//! Who is calling is decided in `identity`, what the caller may see in `catalog`.

mod arguments;
mod definitions;
mod gate;
mod holder_slots;
mod large_work;
mod permit;
mod rate;
mod registry;
mod retry_budget;
mod shares;
mod transforms;

pub use definitions::{
    BaselineError, BaselineFolder, BaselineRecord, DefinitionGuard, DefinitionNews,
    DefinitionScreen, PendingForm, PinBasis, PinnedDefinition, PinnedForm, ScreenReason,
    ScreenedDefinition, pins_of, scan_of,
};
pub use gate::{Gate, GateSettings};
pub use large_work::{LargeWork, Patience};
pub use permit::{CallTarget, Permitted};
pub use registry::{LimitRegistry, PolicyLimits, ServerLimits};
pub use retry_budget::RetryBudget;
pub use shares::{BoundReached, Holder, Share, ShareBounds, SharedAmount};
pub use transforms::{
    KeepWhole, KeptResource, WholeText, shape_result, shape_task, text_of, value_text,
};

use std::net::IpAddr;
use std::sync::Arc;

use arguments::ArgumentsSeen;

use crate::call::{Call, Context, Failure, NativeName, Principal, ServerName};

/// The compiled policy of one snapshot.
#[derive(Debug)]
pub struct Policy {
    limits: PolicyLimits,
}

impl Policy {
    /// A policy that enforces `limits`.
    pub fn new(limits: PolicyLimits) -> Self {
        Self { limits }
    }

    /// Admits a request of any method: the client's own rate, then the whole
    /// gateway's. The narrow limit is first, so that a client over its limit
    /// uses up nothing that others share.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] names the limit and the wait.
    pub fn admit_request(&self, who: &Principal, address: IpAddr) -> Result<(), Failure> {
        match who {
            Principal::Client(name) => self.limits.check_client(name)?,
            Principal::Anonymous => self.limits.check_address(address)?,
        }
        self.limits.check_gateway()
    }

    /// Checks the rate of unauthenticated requests before they are rejected, so
    /// that keys cannot be tried by brute force.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] names the limit and the wait.
    pub fn admit_unauthenticated(&self, address: IpAddr) -> Result<(), Failure> {
        self.limits.check_address(address)
    }

    /// Admits a call: the rates of its tool and its server, the tool's schema,
    /// and a slot among the server's calls in flight. The slot is last, so that
    /// an invalid call never waits for one.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] and [`Failure::InvalidArguments`].
    pub async fn admit(
        &self,
        mut call: Box<Call>,
        mut target: CallTarget,
    ) -> Result<Permitted<Call>, Failure> {
        let limits = self.limits.server(&target.server);
        if let Some(limits) = limits {
            limits.check(&target.server, target.tool_name())?;
        }
        let seen = target.see_arguments(&call.params);
        if seen != ArgumentsSeen::Valid {
            Box::pin(self.judge_arguments(&mut call, &mut target, seen)).await?;
        }
        let slot = match limits {
            Some(limits) => {
                let holder = || charged(&call.context);
                Some(limits.gate().acquire_slot(&target.server, holder).await?)
            }
            None => None,
        };
        Ok(Permitted::new(call, target, slot))
    }

    /// Permits a follow-up of a call that was admitted before: a request about
    /// its task, the same call with task support, or the retry of a parked
    /// call. A parked call still holds its slot, and the digest in its state
    /// guarantees that its arguments are the ones that were checked.
    pub fn readmit(&self, call: Box<Call>, target: CallTarget) -> Permitted<Call> {
        Permitted::new(call, target, None)
    }

    /// Permits a subscription: checks the server's rate.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub fn permit_subscription<T>(
        &self,
        topic: T,
        target: CallTarget,
    ) -> Result<Permitted<T>, Failure> {
        if let Some(limits) = self.limits.server(&target.server) {
            limits.check(&target.server, None)?;
        }
        Ok(Permitted::new(Box::new(topic), target, None))
    }

    /// Runs work on large messages away from the threads that serve clients.
    pub fn large_work(&self) -> &Arc<LargeWork> {
        &self.limits.large_work
    }

    /// The limits of one server.
    pub fn server(&self, server: &ServerName) -> Option<&ServerLimits> {
        self.limits.server(server)
    }
}

/// The holder that a call is charged to.
fn charged(context: &Context) -> Holder {
    Holder::identify(&context.principal, context.address)
}

/// The name of a limit in errors and metrics.
fn limit_name(server: &ServerName, tool: Option<&NativeName>) -> String {
    match tool {
        Some(tool) => format!("tool:{server}/{tool}"),
        None => format!("server:{server}"),
    }
}
