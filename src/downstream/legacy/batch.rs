//! Batches (2025-03-26): an array of messages, answered by an array.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::TryStreamExt;
use futures_util::future::join_all;
use http::{Response, StatusCode};

use crate::call::{Failure, RequestFault};
use crate::config::LimitsConfig;
use crate::downstream::requests::refused_requests::{AuditedRequest, RefusedMessage};
use crate::downstream::requests::request::{self, Posted};
use crate::downstream::responses::response::{self, AcceptedForm};
use crate::downstream::{Body, McpService};
use crate::jsonrpc::{self, Frame, Id};
use crate::mcp::Method;

use super::session::ClientSession;
use super::{SessionRequest, notice};

/// Bytes left for the answers to a batch.
struct AnswerRoom(AtomicUsize);

/// The answers have used up their bytes.
struct NoRoom;

/// The response to one message of a batch.
struct MemberAnswer {
    id: Option<Id>,
    response: Response<Body>,
}

impl McpService {
    /// Serves an array of messages: all at once, with the answers in one array.
    pub(in crate::downstream) async fn batch(
        self: Arc<Self>,
        mut posted: Posted,
    ) -> Response<Body> {
        posted.count_messages();
        let refuse = |failure: &Failure| response::refusal(None, failure);
        let session = match self.session_of(&posted.headers, &posted.caller) {
            Ok(session) => session,
            Err(failure) => return refuse(&failure),
        };
        if !session.client().version.allows_batches() {
            let version = session.client().version;
            return refuse(&RequestFault::Batch { version }.into());
        }
        let limits = posted.limits();
        let messages = match split(&posted.body, limits) {
            Ok(messages) => messages,
            Err(failure) => return refuse(&failure),
        };
        let audited = self.gateway.audit.is_on().then(|| {
            AuditedRequest::new(&posted.headers, &posted.body, &posted.caller, posted.peer)
        });
        let audited = audited.as_ref();
        let room = AnswerRoom(AtomicUsize::new(limits.unread_each));
        let answers = join_all(messages.into_iter().map(|message| {
            let member = Arc::clone(&self).member(message.clone(), &session, &posted);
            let (mcp, room) = (&self, &room);
            async move {
                let answer = member.await?;
                if let Some(audited) = audited {
                    audited.audit_message(&mcp.gateway, &message, &answer.response);
                }
                room.collect(answer).await
            }
        }));
        let answers: Vec<Vec<Bytes>> = answers.await.into_iter().flatten().collect();
        if answers.is_empty() {
            return response::empty(StatusCode::ACCEPTED);
        }
        response::with_json(StatusCode::OK, array(answers))
    }

    /// Serves one message of a batch. Returns its answer, if it has one.
    async fn member(
        self: Arc<Self>,
        message: Bytes,
        session: &Arc<ClientSession>,
        posted: &Posted,
    ) -> Option<MemberAnswer> {
        let parsed = jsonrpc::parse(&message, posted.limits().depth);
        // Each counts: many calls in one body must not bypass a limit.
        if let Err(failure) = self.admit(parsed.as_ref().ok(), posted) {
            let frame = parsed.as_ref().ok();
            self.log_refused_message(&RefusedMessage::of_posted(posted, frame), &failure);
            let id = frame.and_then(request::id_of);
            let response = response::refusal(id, &failure);
            return Some(MemberAnswer { id: id.cloned(), response });
        }
        let answer = match parsed {
            Ok(Frame::Request { id, method, params }) => {
                let method = Method::parse(&method);
                let wants = AcceptedForm::Json;
                let asked = SessionRequest { id: id.clone(), method, params, wants };
                let response = self.serve_legacy(session, asked, posted).await;
                MemberAnswer { id: Some(id), response }
            }
            Ok(Frame::Notification { method, params }) => {
                notice(session, &method, params.as_ref());
                return None;
            }
            Ok(Frame::Response { id, response }) => {
                // A response has no answer of its own in a batch.
                let _ = session.responded(id.as_ref(), response);
                return None;
            }
            Err(fault) => {
                let response = response::refusal(None, &fault.into());
                MemberAnswer { id: None, response }
            }
        };
        Some(answer)
    }
}

impl AnswerRoom {
    /// Returns the pieces of an answer that does not break off, or those of an error if there is no
    /// room.
    async fn collect(&self, answer: MemberAnswer) -> Option<Vec<Bytes>> {
        let pieces = match answer.response.into_body() {
            Body::Whole(whole) => self.take(whole.len()).map(|()| vec![whole]),
            Body::Pieces(pieces) => {
                self.take(pieces.iter().map(Bytes::len).sum()).map(|()| pieces.into_vec())
            }
            Body::Stream(mut pieces) => {
                let mut whole = BytesMut::new();
                loop {
                    match pieces.try_next().await.ok()? {
                        Some(piece) if self.take(piece.len()).is_ok() => whole.put(piece),
                        Some(_) => {
                            self.0.fetch_add(whole.len(), Ordering::Relaxed);
                            break Err(NoRoom);
                        }
                        None => break Ok(vec![whole.freeze()]),
                    }
                }
            }
        };
        let dropped = Failure::AnswerDropped { limit: "unread_each" };
        let error = |NoRoom| vec![jsonrpc::error(answer.id.as_ref(), &dropped.to_error())];
        Some(pieces.unwrap_or_else(error))
    }

    fn take(&self, bytes: usize) -> Result<(), NoRoom> {
        let left = |left: usize| left.checked_sub(bytes);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        taken.map(drop).map_err(|_| NoRoom)
    }
}

fn split(body: &Bytes, limits: &LimitsConfig) -> Result<Vec<Bytes>, Failure> {
    let messages = jsonrpc::split_batch(body, limits.depth)?;
    if messages.is_empty() || messages.len() > limits.batch {
        let found = messages.len();
        return Err(RequestFault::BatchSize { found, limit: limits.batch }.into());
    }
    Ok(messages)
}

/// Builds an array of answers. Large pieces are not copied into it: lists are shared by all
/// clients.
fn array(answers: Vec<Vec<Bytes>>) -> Body {
    let (mut pieces, mut copied) = (Vec::new(), BytesMut::new());
    for (at, answer) in answers.into_iter().enumerate() {
        copied.put_u8(if at == 0 { b'[' } else { b',' });
        for piece in answer {
            if piece.len() > MAX_COPIED_BYTES {
                pieces.extend([copied.split().freeze(), piece]);
            } else {
                copied.put_slice(&piece);
            }
        }
    }
    copied.put_u8(b']');
    pieces.push(copied.freeze());
    Body::pieces(pieces)
}

/// Limit of the bytes of a piece that is copied.
const MAX_COPIED_BYTES: usize = 16 * 1024;
