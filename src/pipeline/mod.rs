//! Entry point for calls, list requests and introductions.
//!
//! Read this module first, then `calls`. `downstream` has turned a client's request into a [`Call`];
//! [`Gateway::call`], `route_and_send` and `send` show the steps of a call line by line:
//!
//! route in the catalog → plan → admit (policy) → send to the server → release the reply
//!
//! An [`ActiveCall`] is the reply as the client reads it. However the call ends, it writes the
//! access log, the metrics and the trace. If a server requests input in the middle of a call, the
//! client's request ends with an `InputRequiredResult`. The client's retry takes the same steps and
//! finds the parked call, or its server, by the sealed state that it carries.
//!
//! This module knows neither HTTP nor the eras' wire formats: `downstream` and `upstream` adapt to
//! those.

mod call_time;
mod calls;
mod client_view;
mod code;
mod entry;
mod explain;
mod gateway;
mod input;
mod introduce;
mod listing;
mod meta_tools;
mod operator_calls;
mod own_tools;
mod record;
mod release;
mod route;
mod stores;
mod subscriptions;
mod tasks;

pub(crate) use call_time::longest_call;
pub use calls::{ActiveCall, CallAwaitingClient, StartingCall};
pub use entry::EntryCredentials;
pub use entry::login_consents::{ConsentBinding, ConsentStep};
pub(crate) use explain::hiding_setting;
pub use explain::{CallExplanation, CallQuery, ExplainedGate, ExplainedVerdict, TokenFacts};
pub use gateway::{Gateway, own_info};
pub use input::StateSender;
pub use input::kept_results::KEPT_RESULT_SCHEME;
pub use introduce::Introduction;
pub use listing::Listed;
pub use operator_calls::{CallingOperator, OperatorCall, OperatorCallError, OperatorCallReport};
pub(crate) use record::answered::{log_refused_request, log_refused_stream};
pub use record::audit::{RefusedRequest, audit_notes};
pub use stores::seen_clients::{ClientSighting, SeenClient};
pub use subscriptions::client_notices::withholds_questions;
pub use subscriptions::{SubscribeAnswer, Subscriber, Told};

use std::sync::Arc;

use crate::call::{Call, Failure, MetaTool, Reply, boxed};
use crate::snapshot::Snapshot;

use calls::await_reply;
use client_view::ClientView;
use input::Requester;
use own_tools::{find_own_tool, reply_of_own_tool};
use record::{Record, RecordOrigin};

impl Gateway {
    /// Makes one call of any method that servers answer. A failure becomes the active call's
    /// answer.
    ///
    /// # Cancel safety
    /// Dropping the future, or the active call, cancels the call.
    pub fn call(self: &Arc<Self>, snapshot: Arc<Snapshot>, call: Box<Call>) -> StartingCall {
        match self.reserve_record() {
            Ok(room) => self.start(snapshot, call, RecordOrigin::New(room)),
            Err(failure) => self.refuse_unrecorded(&snapshot, call, failure),
        }
    }

    /// Makes a call again for a Legacy client, with its answers to the server's input requests. The
    /// client has sent one request, so the record continues.
    ///
    /// # Cancel safety
    /// As [`Gateway::call`].
    pub fn call_again(
        self: &Arc<Self>,
        mut earlier: Box<ActiveCall>,
        call: Box<Call>,
    ) -> StartingCall {
        let snapshot = self.snapshots.load_full();
        let record = earlier.take_record().map(Record::mark_resumed);
        // It was admitted to the audit log with its first attempt.
        let record =
            record.map_or(RecordOrigin::New(None), |it| RecordOrigin::Earlier(boxed(|| it)));
        self.start(snapshot, call, record)
    }

    /// Refuses a call that a required audit log cannot record. It has no record there.
    fn refuse_unrecorded(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        mut call: Box<Call>,
        failure: Failure,
    ) -> StartingCall {
        call.context.audit = None;
        let record = Record::begin(self, snapshot, &call, None);
        let mut active = boxed(|| ActiveCall::begin(record, Requester::bind(&self.inputs, &call)));
        active.attach_reply(Reply::ready(Err(failure)));
        Box::pin(async { active })
    }

    /// Makes a call with its record. A call of `call_tool` is replaced by the call
    /// that it names.
    fn start(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        call: Box<Call>,
        record: RecordOrigin,
    ) -> StartingCall {
        if snapshot.has_meta_tools()
            && let Some(tool) = meta_tools::named_meta_tool(&call)
            && let key = self.view_key(&call.context)
            && let client = ClientView::find(Arc::clone(&snapshot), key, &call.context)
            && meta_tools::is_offered(&client.view, tool)
        {
            return self.call_meta_tool(client, tool, call, record);
        }
        let record = record.begin(self, &snapshot, &call);
        self.begin(snapshot, call, record)
    }

    fn call_meta_tool(
        self: &Arc<Self>,
        client: ClientView,
        tool: MetaTool,
        call: Box<Call>,
        record: RecordOrigin,
    ) -> StartingCall {
        let snapshot = &client.snapshot;
        let unwrapped = match tool {
            MetaTool::Call(intent) => Some(meta_tools::unwrap_call(&client, tool, intent, &call)),
            MetaTool::Find | MetaTool::Describe | MetaTool::RunCode => None,
        };
        let meant = match &unwrapped {
            Some(Ok(inner)) => inner,
            _ => &call,
        };
        let record = record.begin(self, snapshot, meant);
        if let Some(Ok(inner)) = unwrapped {
            let asked = inner.params.name().unwrap_or_default().to_owned();
            let begun = self.begin(Arc::clone(snapshot), inner, record);
            return Box::pin(async move {
                let mut active = begun.await;
                meta_tools::explain_to_model(&mut active, client, asked);
                active
            });
        }
        let active = boxed(|| ActiveCall::begin(record, Requester::bind(&self.inputs, &call)));
        if tool == MetaTool::RunCode {
            return Box::pin(code::begin_or_resume(Arc::clone(self), client, call, active));
        }
        let mut active = active;
        active.attach_reply(match unwrapped {
            Some(Err(refused)) => Reply::ready(Err(refused)),
            _ => meta_tools::answer(client, tool, call),
        });
        Box::pin(async { active })
    }

    fn begin(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        call: Box<Call>,
        record: Record,
    ) -> StartingCall {
        // Created before the first await, so that a call that is cancelled during routing or
        // sending is logged, too.
        let asker = Requester::bind(&self.inputs, &call);
        let active = boxed(|| ActiveCall::begin(record, asker));
        let key = self.view_key(&call.context);
        let client = boxed(|| ClientView::find(snapshot, key, &call.context));
        if !client.snapshot.config.tools.is_empty()
            && let Some(tool) = find_own_tool(&client, &call)
        {
            let mut active = active;
            active.attach_reply(reply_of_own_tool(self, &client, tool, call));
            return Box::pin(async { active });
        }
        Box::into_pin(boxed(|| await_reply(client, call, active)))
    }
}
