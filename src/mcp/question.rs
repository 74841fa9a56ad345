//! Methods of what servers ask of clients.

/// Asks the client's model.
pub const SAMPLING: &str = "sampling/createMessage";
/// Asks the user, by a form or by a page elsewhere.
pub const ELICITATION: &str = "elicitation/create";
/// Asks which files and folders matter.
pub const ROOTS: &str = "roots/list";
