//! The stores themselves, and a store that lies.

mod lying_store;
mod one_server;
mod several_servers;
