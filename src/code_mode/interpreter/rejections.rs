//! Promises that were rejected without anybody waiting for them.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use rquickjs::runtime::RejectionTracker;
use rquickjs::{Ctx, Persistent, Value};

use super::values::describe_unhandled;
use crate::code_mode::ScriptLimits;
use crate::code_mode::fault::ScriptFault;

/// The first few rejections that nothing handles.
#[derive(Clone, Default)]
pub(super) struct UnhandledRejections(Rc<RefCell<Vec<Rejection>>>);

struct Rejection {
    /// Of the promise, which lives as long as this.
    identity: u64,
    _promise: Persistent<Value<'static>>,
    reason: Persistent<Value<'static>>,
}

impl UnhandledRejections {
    /// What the interpreter tells of each rejection, and again if it is handled after all.
    pub(super) fn tracker(&self) -> RejectionTracker {
        let rejections = Rc::clone(&self.0);
        Box::new(move |ctx, promise, reason, is_handled| {
            let identity = identify(&promise);
            let mut rejections = rejections.borrow_mut();
            if is_handled {
                rejections.retain(|rejection| rejection.identity != identity);
            } else if rejections.len() < MAX_KEPT {
                rejections.push(Rejection {
                    identity,
                    _promise: Persistent::save(&ctx, promise),
                    reason: Persistent::save(&ctx, reason),
                });
            }
        })
    }

    pub(super) fn describe_first(
        &self,
        ctx: &Ctx<'_>,
        limits: &ScriptLimits,
    ) -> Option<ScriptFault> {
        let reason = self.0.borrow().first().map(|rejection| rejection.reason.clone())?;
        let reason = reason.restore(ctx).ok()?;
        Some(describe_unhandled(ctx, &reason, limits))
    }
}

fn identify(value: &Value<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Enough to tell of one, also if others before it are handled late.
const MAX_KEPT: usize = 64;
