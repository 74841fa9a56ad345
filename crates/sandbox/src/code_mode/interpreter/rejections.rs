//! Rejected promises that no code awaits.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use rquickjs::runtime::RejectionTracker;
use rquickjs::{Ctx, Persistent, Value};

use super::values::describe_unhandled;
use crate::code_mode::ScriptLimits;
use crate::code_mode::fault::ScriptFault;

/// The first few unhandled rejections.
#[derive(Clone, Default)]
pub(super) struct UnhandledRejections(Rc<RefCell<Vec<Rejection>>>);

struct Rejection {
    /// Identity of the promise, which lives as long as this entry.
    identity: u64,
    _promise: Persistent<Value<'static>>,
    reason: Persistent<Value<'static>>,
}

impl UnhandledRejections {
    /// Returns the callback that the interpreter invokes for each rejection, and again if it is
    /// handled later.
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

/// Large enough to report one even if the earlier ones are handled late.
const MAX_KEPT: usize = 64;
