//! One call: the HTTP request, and the result made of the response.

pub(crate) mod answer;
pub(crate) mod request;
pub(crate) mod resources;
