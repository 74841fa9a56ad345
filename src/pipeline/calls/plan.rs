//! Decisions about a call, made before anything is sent.

use std::sync::Arc;

use crate::call::{Call, Failure, Question, Reply};
use crate::pipeline::client_view::ClientView;
use crate::pipeline::release::Release;
use crate::pipeline::route::Route;
use crate::policy::{CallTarget, Permitted};
use crate::snapshot::{Snapshot, SnapshotServer};
use crate::telemetry::observation::CallTimer;

use super::active_call::ActiveCall;
use super::attempt::{CallAttempt, FirstSend, PlannedAttempt};
use super::confirm::UserAccess;
use super::login::withhold_credentials;
use super::retry::RetryPlan;
use super::slow_notice::SlowSend;

/// Decisions about a call, made before anything is sent.
pub(super) struct CallPlan<'a> {
    pub(super) member: &'a SnapshotServer,
    pub(super) routed: RoutedCall,
    pub(super) attempt: CallAttempt,
    pub(super) retries: Option<RetryPlan>,
    /// The question that the user has to answer first.
    pub(super) question: Option<Question>,
    /// Forms of questions that the client can show its user.
    pub(super) access: UserAccess,
    /// Notification of the client if the call is slow.
    pub(super) notice: SlowSend,
}

/// A call with its destination.
pub(super) struct RoutedCall {
    pub(super) call: Box<Call>,
    pub(super) target: CallTarget,
}

/// The way to send a call that the server has not seen, and its retries.
pub(super) struct SendPlan {
    way: FirstSend,
    retries: Option<RetryPlan>,
    /// The timer of an observed call that is admitted later.
    pub(super) timer: Option<Arc<CallTimer>>,
}

impl<'a> CallPlan<'a> {
    /// Decides how a routed call is sent. Each step needs the earlier ones: the reply is rewritten
    /// for the client's own params and capabilities, every refusal is recorded with the route, the
    /// mirrored headers agree with the client's own params, the attempt rewrites the params for the
    /// server, and the target's edits apply to those.
    ///
    /// # Errors
    /// The failure of a call that is refused before policy sees it.
    #[inline]
    pub(super) fn new(
        client: &ClientView,
        route: Route<'a>,
        mut call: Box<Call>,
        active: &mut ActiveCall,
    ) -> Result<Self, Failure> {
        withhold_credentials(&call, &route.member.config)?;
        let release = Release::plan(&call, &route, client, active.asker())?;
        active.set_route(&route, release, &mut call);
        route.check_headers(&call)?;
        let access = UserAccess::of(&call);
        active.hide_capabilities(&route, &mut call)?;
        let PlannedAttempt { attempt, confirmation } =
            PlannedAttempt::new(&mut call, &route, active.asker())?;
        let retries = RetryPlan::new(&call, &route, &client.snapshot);
        let notice = SlowSend::new(&attempt, active);
        let member = route.member;
        let mut target = route.into_target(&call.params);
        target.confirmation = confirmation.clone();
        active.set_confirmation(confirmation);
        let routed = RoutedCall { call, target };
        Ok(Self { member, routed, attempt, retries, question: None, access, notice })
    }

    /// Adds the question to the user, if the call needs consent that it does not have.
    ///
    /// # Errors
    /// The failure of a call that is refused regardless of the user's answer.
    pub(super) async fn plan_question(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        let RoutedCall { call, target } = &mut self.routed;
        self.question = snapshot.policy.question_before(call, target).await?;
        Ok(())
    }
}

impl SendPlan {
    pub(super) fn new(way: FirstSend, retries: Option<RetryPlan>) -> Self {
        Self { way, retries, timer: None }
    }

    /// Returns the plan of an observed call that is admitted later.
    pub(super) fn timed_by(self, timer: Option<Arc<CallTimer>>) -> Self {
        Self { timer, ..self }
    }

    /// Sends the call, and repeats it if that is planned.
    pub(super) async fn send(
        self,
        snapshot: &Arc<Snapshot>,
        member: &SnapshotServer,
        permitted: Permitted<Call>,
    ) -> Result<Reply, Failure> {
        match self.retries {
            Some(retries) => Ok(retries.send(self.way, snapshot, member, permitted)),
            None => self.way.send(snapshot, member, permitted).await,
        }
    }
}
