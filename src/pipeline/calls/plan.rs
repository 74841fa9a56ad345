//! Decisions about a call, made before anything is sent.

use std::sync::Arc;

use crate::call::{Call, Failure, Question, Reply};
use crate::policy::{CallTarget, Permitted};
use crate::snapshot::{Snapshot, SnapshotServer};

use super::attempt::FirstSend;
use super::confirm::UserAccess;
use super::retry::RetryPlan;

/// A call with its destination.
pub(super) struct RoutedCall {
    pub(super) call: Box<Call>,
    pub(super) target: CallTarget,
}

/// The way to send a call that the server has not seen, and its retries.
pub(super) struct SendPlan {
    pub(super) way: FirstSend,
    pub(super) retries: Option<RetryPlan>,
}

impl SendPlan {
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

/// A question to the user, and the form in which the client can show it.
pub(super) struct UserQuestion {
    pub(super) question: Question,
    pub(super) access: UserAccess,
}
