//! Interception of servers' notifications, and treatment of those that no interceptor sees.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use crate::call::InterceptorFault;
use crate::jsonrpc::{Members, object_of, string, text};
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::notification;

use super::message::SeenMessage;
use super::reply::{InterceptedMessage, MessageKind, ReplyInterceptors};

/// The treatment of one notification.
pub enum NoticeTreatment {
    /// It passes as it is.
    Unchanged,
    /// It passes with these params.
    Replaced(Bytes),
    /// It does not pass.
    Withheld,
    /// Interceptors decide: the params, or `None` if it does not pass.
    Seen(BoxFuture<'static, Option<Bytes>>),
}

impl fmt::Debug for NoticeTreatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "Unchanged",
            Self::Replaced(_) => "Replaced",
            Self::Withheld => "Withheld",
            Self::Seen(_) => "Seen",
        })
    }
}

impl ReplyInterceptors {
    /// Decides about a notification. Interceptors of results see the state of a task; those of
    /// notifications see the others. The text of those others is withheld if an interceptor that
    /// has to approve results does not see notifications.
    pub fn treat_notice(self: &Arc<Self>, method: &str, params: Option<&Bytes>) -> NoticeTreatment {
        let is_task = matches!(method, notification::TASK | notification::TASK_STATUS)
            && self.seers(MessageKind::Task).next().is_some();
        let kind = if is_task { MessageKind::Task } else { MessageKind::Notification };
        let is_bare = kind == MessageKind::Notification && self.withhold_notifications();
        let bare = is_bare.then(|| bare_params(method, params)).flatten();
        if is_bare && bare.is_none() {
            return NoticeTreatment::Withheld;
        }
        if self.seers(kind).next().is_none() {
            return bare.map_or(NoticeTreatment::Unchanged, NoticeTreatment::Replaced);
        }
        let params = bare.or_else(|| params.cloned()).unwrap_or_else(|| Bytes::from_static(b"{}"));
        let notice = SeenNotice { method: method.to_owned(), params };
        let all = Arc::clone(self);
        let seen = async move {
            let shown = all.show(kind, notice).await;
            shown.map(|notice| notice.params).map_err(|failure| {
                tracing::info!(%failure, "a notification is withheld");
            })
        };
        NoticeTreatment::Seen(seen.map(Result::ok).boxed())
    }
}

/// Returns the params of a notification without the server's text: numbers, and identifiers that
/// clients know already; `None` if nothing is left.
fn bare_params(method: &str, params: Option<&Bytes>) -> Option<Bytes> {
    let members = Members::parse(params?).ok()?;
    let kept: &[&str] = match method {
        notification::PROGRESS => &[PROGRESS_TOKEN, "progress", "total"],
        notification::RESOURCE_UPDATED => &["uri"],
        notification::ELICITATION_COMPLETE => &["elicitationId"],
        _ => return None,
    };
    let is_number =
        |raw: &RawValue| raw.get().starts_with(|c: char| c == '-' || c.is_ascii_digit());
    let is_kept = |key: &str, value: &RawValue| {
        kept.contains(&key) && (!matches!(key, "progress" | "total") || is_number(value))
    };
    let bare: Vec<_> = members.0.iter().filter(|(key, value)| is_kept(key, value)).collect();
    let is_whole =
        method != notification::PROGRESS || bare.iter().any(|(key, _)| key == "progress");
    is_whole.then(|| {
        let bare = bare.iter().map(|(key, value)| (&**key, Cow::Borrowed(value.get())));
        object_of(bare).into()
    })
}

/// A notification, without its progress token: that belongs to the gateway.
struct SeenNotice {
    method: String,
    params: Bytes,
}

impl InterceptedMessage for SeenNotice {
    fn size(&self) -> usize {
        self.params.len()
    }

    fn seen(&self) -> Result<SeenMessage, InterceptorFault> {
        let members = Members::parse(&self.params).map_err(|_| InterceptorFault::Ambiguous)?;
        let shown = members.0.iter().filter(|(key, _)| key != PROGRESS_TOKEN);
        let params = object_of(shown.map(|(key, value)| (&**key, Cow::Borrowed(value.get()))));
        let params = String::from_utf8_lossy(&params);
        let payload = object_of([("method", string(&self.method).into()), ("params", params)]);
        SeenMessage::notification(&self.method, &payload)
    }

    fn changed(&self, payload: Vec<u8>) -> Result<Self, InterceptorFault> {
        let before = Members::parse(&self.params).map_err(|_| InterceptorFault::Ambiguous)?;
        let after = Members::parse(&payload).map_err(|_| NOT_A_NOTICE)?;
        let method = after.find("method").and_then(text);
        let params = after.find("params").map(|raw| Members::parse(raw.get().as_bytes()));
        let (Some(method), Some(Ok(params))) = (method, params) else { return Err(NOT_A_NOTICE) };
        let names = |all: &Members<'_>, key| all.find(key).map(|raw| raw.get().to_owned());
        let is_same = method == self.method
            && IDENTIFYING_MEMBERS
                .into_iter()
                .all(|key| names(&before, key) == names(&params, key));
        if !is_same {
            return Err(OTHER_NOTICE);
        }
        let token = before.0.iter().filter(|(key, _)| key == PROGRESS_TOKEN);
        let others = params.0.iter().filter(|(key, _)| key != PROGRESS_TOKEN);
        let all = token.chain(others).map(|(key, value)| (&**key, Cow::Borrowed(value.get())));
        Ok(Self { method: self.method.clone(), params: object_of(all).into() })
    }
}

/// Members that identify the subject of a notification.
const IDENTIFYING_MEMBERS: [&str; 3] = ["taskId", "uri", "elicitationId"];
const NOT_A_NOTICE: InterceptorFault =
    InterceptorFault::Mutation("is not a notification with an object of params");
const OTHER_NOTICE: InterceptorFault =
    InterceptorFault::Mutation("changes the subject of the notification");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_notification_has_numbers_and_identifiers_alone() {
        for (method, params, bare) in [
            (
                "notifications/progress",
                r#"{"progressToken":"t","progress":1,"total":2,"message":"text","x":"text"}"#,
                Some(r#"{"progressToken":"t","progress":1,"total":2}"#),
            ),
            (
                "notifications/progress",
                r#"{"progressToken":7,"progress":0.5,"total":["text"]}"#,
                Some(r#"{"progressToken":7,"progress":0.5}"#),
            ),
            (
                "notifications/resources/updated",
                r#"{"uri":"a:b","title":"text","_meta":{"x":"text"}}"#,
                Some(r#"{"uri":"a:b"}"#),
            ),
            (
                "notifications/elicitation/complete",
                r#"{"elicitationId":"1","message":"text"}"#,
                Some(r#"{"elicitationId":"1"}"#),
            ),
            ("notifications/progress", r#"{"progressToken":7,"progress":"text"}"#, None),
            ("notifications/message", r#"{"level":"info","data":"text"}"#, None),
            ("notifications/tasks/status", r#"{"taskId":"1","statusMessage":"text"}"#, None),
            ("acme/unknown", r#"{"a":1}"#, None),
            ("notifications/progress", r#"{"progressToken":1,"progressToken":2}"#, None),
        ] {
            let params = Bytes::from_static(params.as_bytes());
            let found = bare_params(method, Some(&params));
            assert_eq!(found.as_deref(), bare.map(str::as_bytes), "{method} {params:?}");
        }
        assert_eq!(bare_params("acme/unknown", None), None);
    }

    #[test]
    fn a_mutation_keeps_the_subject_and_the_token_of_a_notification() {
        let params = Bytes::from_static(br#"{"progressToken":7,"progress":1,"message":"text"}"#);
        let notice = SeenNotice { method: "notifications/progress".into(), params };
        let payload = |params: &str| {
            format!(r#"{{"method":"notifications/progress","params":{params}}}"#).into_bytes()
        };
        let changed = notice.changed(payload(r#"{"progress":1,"progressToken":8}"#)).unwrap();
        assert_eq!(changed.params, r#"{"progressToken":7,"progress":1}"#);
        let task = SeenNotice {
            method: "notifications/tasks".into(),
            params: Bytes::from_static(br#"{"taskId":"1"}"#),
        };
        let other = br#"{"method":"notifications/tasks","params":{"taskId":"2"}}"#.to_vec();
        assert_eq!(task.changed(other).err(), Some(OTHER_NOTICE));
        assert_eq!(task.changed(b"{}".to_vec()).err(), Some(NOT_A_NOTICE));
        assert_eq!(notice.changed(payload("7")).err(), Some(NOT_A_NOTICE));
    }
}
