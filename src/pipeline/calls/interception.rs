//! Interception of one call's reply: each event that has text of the server passes the interceptors
//! before the client gets it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::call::{Answer, Event, Notice};
use crate::policy::{NoticeTreatment, ReplyInterceptors};

/// Intercepts a reply, one event after the other.
pub(super) struct ReplyInterception {
    interceptors: Arc<ReplyInterceptors>,
    /// The event that interceptors are deciding about.
    pending: Option<BoxFuture<'static, Option<Event>>>,
}

impl ReplyInterception {
    pub(super) fn new(interceptors: Arc<ReplyInterceptors>) -> Self {
        Self { interceptors, pending: None }
    }

    /// Returns true if an event waits for a decision: call [`Self::decided`] before taking up the
    /// next one.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns an event that passes at once. Any other waits for a decision, or is withheld.
    pub(super) fn take_up(&mut self, event: Event) -> Option<Event> {
        let all = Arc::clone(&self.interceptors);
        match event {
            Event::Answer(answer) if all.see_answers() => {
                self.wait_for(async move { Some(Event::Answer(all.intercept(answer).await)) })
            }
            Event::Passing(passing) if all.see_answers() => self.wait_for(async move {
                let whole = passing.whole().await.map(Answer::Result);
                Some(Event::Answer(all.intercept(whole).await))
            }),
            Event::Notice(notice) => self.take_up_notice(notice),
            other => Some(other),
        }
    }

    fn take_up_notice(&mut self, notice: Notice) -> Option<Event> {
        match self.interceptors.treat_notice(&notice.method, Some(&notice.params)) {
            NoticeTreatment::Unchanged => Some(Event::Notice(notice)),
            NoticeTreatment::Replaced(params) => Some(Event::Notice(notice.with(params))),
            NoticeTreatment::Withheld => None,
            NoticeTreatment::Seen(decided) => {
                let with = |params: Bytes| Event::Notice(notice.with(params));
                self.wait_for(decided.map(|params| params.map(with)))
            }
        }
    }

    fn wait_for(
        &mut self,
        decided: impl Future<Output = Option<Event>> + Send + 'static,
    ) -> Option<Event> {
        self.pending = Some(decided.boxed());
        None
    }

    /// Waits for the decision about the pending event; `None` if it is withheld.
    ///
    /// # Cancel safety
    /// Safe: the decision is kept when the future is dropped.
    pub(super) async fn decided(&mut self) -> Option<Event> {
        let event = self.pending.as_mut()?.await;
        self.pending = None;
        event
    }
}
