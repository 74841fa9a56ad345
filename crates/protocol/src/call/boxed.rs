//! Boxes large values where they are created.

/// Creates a box for the value that `create` returns.
///
/// `Box::new` copies its whole argument from the stack: a future is as large as everything that it
/// may ever hold, though nearly nothing of that exists when it is created. Here the memory is
/// allocated first, so that the compiler writes the few existing parts straight into it.
#[inline]
pub fn boxed<T>(create: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), create())
}
