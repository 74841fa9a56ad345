//! What a reply passes on its way back: its server's URIs become those that
//! clients know, and what a Legacy server cannot say is said for it.
//!
//! Where nothing can have to change, the reply passes as it is. Otherwise a
//! large result, which would be handed on piece by piece, is read whole: the
//! link has bounded its size.

use std::borrow::Cow;
use std::sync::Arc;

use crate::call::{Answer, Call, ErrorBody, ResultBody, ResultType, ServerName};
use crate::catalog::{Shape, rewrite};
use crate::era::lift;
use crate::mcp::{Era, Method};
use crate::snapshot::View;

/// What has to be done to one call's reply.
pub(super) struct Release {
    view: Arc<View>,
    server: ServerName,
    method: Method,
    /// Where URIs stand that clients know in another form.
    uris: Option<Shape>,
    /// The client has to be told how long it may keep what it read.
    caching: bool,
    /// The URI that a read asked for, as the client wrote it.
    asked: Option<String>,
}

impl Release {
    /// What the reply to `call` from `server` needs.
    pub(super) fn of(call: &Call, server: &ServerName, view: &Arc<View>) -> Self {
        let plain = view.catalog.uris().is_plain(server);
        let reads = call.method == Method::ResourcesRead;
        Self {
            uris: Shape::of(&call.method).filter(|_| !plain),
            caching: reads && call.context.client.version.era() == Era::Modern,
            asked: call.params.uri().filter(|_| reads).map(str::to_owned),
            method: call.method.clone(),
            server: server.clone(),
            view: Arc::clone(view),
        }
    }

    /// Whether anything may have to be rewritten.
    pub(super) fn is_needed(&self) -> bool {
        self.uris.is_some() || self.caching || self.method == Method::ResourcesRead
    }

    /// Whether a result of a server of that era can only go on whole.
    pub(super) fn needs_whole(&self, era: Era) -> bool {
        self.uris.is_some() || (self.caching && era == Era::Legacy)
    }

    /// An answer as the client is to have it.
    pub(super) fn answer(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Result(result) => Answer::Result(self.result(result)),
            Answer::Error(error) => Answer::Error(self.error(error)),
        }
    }

    fn result(&self, result: ResultBody) -> ResultBody {
        let uris = self.view.catalog.uris();
        let public = |native: &str| match uris.public(&self.server, native) {
            Cow::Owned(public) => Some(public),
            Cow::Borrowed(_) => None,
        };
        let shape = self.uris.filter(|_| *result.kind() != ResultType::InputRequired);
        let rewritten = shape.and_then(|shape| rewrite(result.raw(), shape, public));
        let result = match rewritten {
            Some(raw) => result.with(raw).unwrap_or(result),
            None => result,
        };
        let told = if self.caching && *result.kind() == ResultType::Complete {
            lift::uncacheable(result.raw())
        } else {
            None
        };
        match told {
            Some(raw) => result.with(raw).unwrap_or(result),
            None => result,
        }
    }

    /// A read's error as a Modern server would put it, with the URI that the
    /// client asked for.
    fn error(&self, error: ErrorBody) -> ErrorBody {
        match &self.asked {
            Some(asked) => lift::read_error(&error, asked).unwrap_or(error),
            None => error,
        }
    }
}
