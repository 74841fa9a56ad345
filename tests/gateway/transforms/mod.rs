//! Changes by the configuration to the arguments and results of a tool.

mod arguments;
mod kept_results;
mod own_tools;
mod page;
mod results;
mod retries;
mod slow_calls;
mod task_results;
