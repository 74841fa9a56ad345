//! One exchange with a server: connection, request, answer, and its check.

pub(crate) mod answer;
pub(crate) mod answer_check;
pub(crate) mod connection;
pub(crate) mod fault;
pub(crate) mod request;
pub(crate) mod target;
