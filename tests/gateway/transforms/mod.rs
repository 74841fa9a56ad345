//! What the configuration changes about the arguments and results of a tool.

mod arguments;
mod page;
mod results;
mod slow_calls;
