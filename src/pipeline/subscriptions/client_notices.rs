//! Notifications and requests of servers outside of calls, and the interceptors that see them before
//! clients do.

use std::fmt;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use crate::call::{Context, ErrorBody, Failure, InternalFault, ResultBody, ServerName};
use crate::mcp::{Method, notification};
use crate::policy::NoticeTreatment;
use crate::snapshot::Snapshots;
use crate::upstream::{ClientNotice, Mailbox, NoticeSubject, Topic};

/// The notification that interceptors are deciding about, for one client.
#[derive(Default)]
pub(crate) struct PendingNotice(Mutex<Option<BoxFuture<'static, Option<ClientNotice>>>>);

impl fmt::Debug for PendingNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingNotice").finish_non_exhaustive()
    }
}

impl PendingNotice {
    /// Returns the next notification that passes the interceptors.
    ///
    /// # Cancel safety
    /// Safe: the decision is kept when the future is dropped.
    pub(crate) async fn next(
        &self,
        mailbox: &Mailbox,
        snapshots: &Snapshots,
        context: &Context,
    ) -> ClientNotice {
        let mut pending = self.0.lock().await;
        loop {
            if let Some(decided) = &mut *pending {
                let notice = decided.await;
                *pending = None;
                match notice {
                    Some(notice) => return notice,
                    None => continue,
                }
            }
            let notice = mailbox.next().await;
            let policy = &snapshots.load().policy;
            let Some(interceptors) = policy.server_interceptors(context, &notice.server) else {
                return notice;
            };
            match interceptors.treat_notice(method_of(&notice), notice.params.as_ref()) {
                NoticeTreatment::Unchanged => return notice,
                NoticeTreatment::Replaced(params) => return with(notice, params),
                NoticeTreatment::Withheld => {}
                NoticeTreatment::Seen(decided) => {
                    let with = |params: Option<Bytes>| params.map(|params| with(notice, params));
                    *pending = Some(decided.map(with).boxed());
                }
            }
        }
    }
}

/// Returns the method of a notification for clients.
fn method_of(notice: &ClientNotice) -> &str {
    match &notice.subject {
        NoticeSubject::Topic(Topic::Task(_)) => notification::TASK,
        NoticeSubject::Topic(Topic::Resource(_) | Topic::Unknown(_)) => {
            notification::RESOURCE_UPDATED
        }
        NoticeSubject::Other(method) => method,
    }
}

fn with(notice: ClientNotice, params: Bytes) -> ClientNotice {
    ClientNotice { params: Some(params), ..notice }
}

/// Returns true if a server's requests outside of calls are withheld from this client: interceptors
/// have to approve the client's answers, and they see answers within calls only.
pub fn withholds_questions(snapshots: &Snapshots, context: &Context, server: &ServerName) -> bool {
    let policy = &snapshots.load().policy;
    let interceptors = policy.server_interceptors(context, server);
    interceptors.is_some_and(|interceptors| interceptors.must_agree())
}

/// Passes a server's error in place of a subscription through the interceptors.
///
/// # Errors
/// [`Failure::Intercepted`] and [`Failure::InterceptorDown`].
pub(super) async fn intercept_refusal(
    snapshots: &Snapshots,
    context: &Context,
    server: &ServerName,
    error: ErrorBody,
) -> Result<ErrorBody, Failure> {
    let method = Method::ResourcesSubscribe;
    let interceptors = snapshots.load().policy.request_interceptors(context, server, &method);
    let Some(interceptors) = interceptors else { return Ok(error) };
    interceptors.intercept_error(error).await
}

/// Passes the filter that a server agreed to through the interceptors.
///
/// # Errors
/// [`Failure::Intercepted`] and [`Failure::InterceptorDown`].
pub(super) async fn intercept_filter(
    snapshots: &Snapshots,
    context: &Context,
    server: &ServerName,
    agreed: Bytes,
) -> Result<Bytes, Failure> {
    let method = Method::Listen;
    let interceptors = snapshots.load().policy.request_interceptors(context, server, &method);
    let Some(interceptors) = interceptors else { return Ok(agreed) };
    let filter = ResultBody::parse(agreed).map_err(InternalFault::Result)?;
    interceptors.intercept_result(filter).await.map(|filter| filter.raw().clone())
}
