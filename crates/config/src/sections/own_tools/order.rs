//! The order of the calls of one tool, by their dependencies.

use super::OwnCallConfig;
use crate::faults::problem::SettingFault;
use crate::sections::transforms::{MessageTemplate, ValuePath};

/// For each call, in file order, the positions of the calls with results that it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallOrder(Vec<Vec<usize>>);

impl CallOrder {
    /// The order of these calls, and of a message of their results.
    ///
    /// # Errors
    /// [`SettingFault`] if there are too many, if a path begins with the name of none, or if calls
    /// wait for one another.
    pub(super) fn new(
        calls: &[OwnCallConfig],
        message: Option<&MessageTemplate>,
    ) -> Result<Self, SettingFault> {
        if calls.len() > MAX_CALLS {
            return Err(SettingFault::TooManyCalls { max: MAX_CALLS });
        }
        let mut needed = Vec::with_capacity(calls.len());
        for call in calls {
            let mut places = Vec::new();
            for path in call.arguments.paths() {
                places.extend(place_of(calls, path)?);
            }
            places.sort_unstable();
            places.dedup();
            needed.push(places);
        }
        for path in message.into_iter().flat_map(MessageTemplate::paths) {
            place_of(calls, path)?;
        }
        let order = Self(needed);
        if order.ends() { Ok(order) } else { Err(SettingFault::CallCycle) }
    }

    /// The positions of the calls with results that this one needs.
    pub fn needed_by(&self, place: usize) -> &[usize] {
        self.0.get(place).map_or(&[], Vec::as_slice)
    }

    /// Returns true if every call is reached.
    fn ends(&self) -> bool {
        let mut done = vec![false; self.0.len()];
        for _ in 0..self.0.len() {
            for (place, needed) in self.0.iter().enumerate() {
                let is_ready = needed.iter().all(|other| done.get(*other) == Some(&true));
                if let Some(done) = done.get_mut(place).filter(|_| is_ready) {
                    *done = true;
                }
            }
        }
        done.iter().all(|done| *done)
    }
}

/// The position of the call that a path begins with; `None` for the client's own arguments.
fn place_of(calls: &[OwnCallConfig], path: &ValuePath) -> Result<Option<usize>, SettingFault> {
    let first = path.steps().next().unwrap_or_default();
    if first == ROOT_ARGUMENTS {
        return Ok(None);
    }
    let place = calls.iter().position(|call| call.name.as_str() == first);
    place.map(Some).ok_or_else(|| SettingFault::NoSuchCall { name: first.to_owned() })
}

/// The first step of paths into the client's own arguments.
pub const ROOT_ARGUMENTS: &str = "arguments";
/// The most calls of one tool.
const MAX_CALLS: usize = 16;
