//! Boxes large values where they are created.

/// A box around what `create` returns.
///
/// `Box::new` copies its argument from the stack, all of it: a future is as large as everything
/// that it may ever hold, though nearly nothing of that exists when it is created. Here the memory
/// comes first, so that the compiler writes the few parts that exist straight into it.
#[inline]
pub fn boxed<T>(create: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), create())
}
