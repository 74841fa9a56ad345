//! Guards of the endpoints: each test fails without the line that it is about.

mod endpoints;
mod operator_bounds;
mod revocations;
mod server_tests;
mod streams;
