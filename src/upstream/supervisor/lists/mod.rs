//! Requests of a server's lists by its instances, and the tasks that wait for them.
//!
//! [`listing`] requests the lists of an instance, [`dependence`] compares those of clients that
//! differ, and [`keeping`] stores them for the next run. [`first_list`] and [`due_listing`] wait for
//! a request. The lists themselves are in [`crate::upstream::lists`].

mod dependence;
pub(crate) mod due_listing;
pub(crate) mod first_list;
mod keeping;
mod listing;
