//! Operations of a document as tools: arguments, results and texts.

pub(crate) mod fields;
pub(crate) mod inputs;
pub(crate) mod operation;
pub(crate) mod outputs;
pub(crate) mod reader;
pub(crate) mod text_limits;
pub(crate) mod tool_texts;
