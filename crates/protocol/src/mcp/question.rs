//! Methods of requests from servers to clients.

/// Samples the client's model.
pub const SAMPLING: &str = "sampling/createMessage";
/// Asks the user for input, in a form or on a web page.
pub const ELICITATION: &str = "elicitation/create";
/// Asks for the files and folders that are in scope.
pub const ROOTS: &str = "roots/list";
