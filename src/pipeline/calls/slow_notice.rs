//! Notification of a client during a slow call: one message, never a result.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use crate::call::{Context, Notice, Reply};
use crate::clock;
use crate::config::TransformSettings;
use crate::jsonrpc::string;
use crate::mcp::{LogLevel, notification};
use crate::snapshot::{Snapshot, SnapshotServer};
use crate::telemetry::observation::CallStep;

use super::active_call::ActiveCall;
use super::attempt::{CallAttempt, FirstSend};
use super::plan::{RoutedCall, SendPlan};

/// The notification of a slow call, and when it is due.
pub(super) struct SlowNotice {
    pub(super) due: Instant,
    pub(super) notice: Notice,
}

impl SlowNotice {
    /// Prepares the notification that this client accepts: progress if it has sent a token,
    /// otherwise a log message if it has requested those; `None` if it accepts neither, or no time
    /// is configured.
    pub(super) fn prepare(settings: &TransformSettings, context: &Context) -> Option<Box<Self>> {
        let due = clock::now() + settings.slow_after?;
        let message = settings.slow_message.as_deref().unwrap_or(DEFAULT_MESSAGE);
        let notice = match &context.progress_token {
            Some(token) => progress_notice(token, message),
            None => log_notice(context.log?, message),
        };
        Some(Box::new(Self { due, notice: notice? }))
    }
}

/// Sending of a call whose client may be notified.
pub(super) enum SlowSend {
    /// The client is not notified.
    Silent,
    /// Admission and sending happen while the client reads the reply, so that it can be notified
    /// before the call is admitted.
    WhileRead(FirstSend),
}

impl SlowSend {
    /// Chooses the way to send a call: only first attempts are announced.
    #[inline]
    pub(super) fn new(attempt: &CallAttempt, active: &ActiveCall) -> Self {
        match attempt {
            CallAttempt::First(way) if active.has_slow_notice() => Self::WhileRead(*way),
            _ => Self::Silent,
        }
    }
}

/// Returns a reply that admits and sends the call while it is read, so that the client can be
/// notified before the call is admitted.
pub(super) fn send_slow(
    snapshot: &Arc<Snapshot>,
    member: &SnapshotServer,
    routed: RoutedCall,
    mut plan: SendPlan,
) -> Reply {
    let (snapshot, member) = (Arc::clone(snapshot), member.clone());
    Reply::starting(async move {
        let RoutedCall { call, target } = routed;
        let permitted = match plan.timer.take() {
            None => snapshot.policy.admit(call, target).await?,
            Some(timer) => {
                let admitted = snapshot.policy.admit_observed(call, target, Arc::clone(&timer));
                let permitted = Box::pin(admitted).await?;
                timer.begin(CallStep::Server, clock::real_now());
                permitted
            }
        };
        plan.send(&snapshot, &member, permitted).await
    })
}

fn progress_notice(token: &Bytes, message: &str) -> Option<Notice> {
    let head = [b"{\"progressToken\":", &token[..], b",\"progress\":0,\"message\":"].concat();
    let params = [&head[..], string(message).as_bytes(), b"}"].concat();
    let notice = Notice::progress(notification::PROGRESS.to_owned(), params.into());
    notice.map(|(notice, _)| notice)
}

fn log_notice(least: LogLevel, message: &str) -> Option<Notice> {
    let params = json!({ "level": "info", "logger": "trunkline", "data": message }).to_string();
    Notice::line(notification::MESSAGE.to_owned(), params.into(), least)
}

/// Default text of the notification.
const DEFAULT_MESSAGE: &str = "Still working on it.";
