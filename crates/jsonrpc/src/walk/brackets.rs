//! The stack of open brackets around a value.

/// The open brackets, one bit for each: set for an object.
#[derive(Debug, Default)]
pub(super) struct Brackets {
    pub(super) depth: usize,
    last: u64,
    before: Vec<u64>,
}

impl Brackets {
    #[inline]
    pub(super) fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.spill();
        }
        self.last = self.last << 1 | u64::from(is_object);
        self.depth += 1;
    }

    #[cold]
    fn spill(&mut self) {
        self.before.push(self.last);
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.fetch();
        } else {
            self.last >>= 1;
        }
    }

    #[cold]
    fn fetch(&mut self) {
        self.last = self.before.pop().unwrap_or_default();
    }

    /// Returns true if the innermost bracket is an object's; `None` if none is open.
    #[inline]
    pub(super) fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.last & 1 == 1)
    }
}
