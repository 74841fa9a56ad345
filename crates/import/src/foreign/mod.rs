//! Configurations of other programs: their files (`clients`, `sources`), and the forms in which they
//! write servers (`shapes`, `systems`). Each is read into the one form of `documents`; nothing here
//! knows the gateway's configuration.

pub(crate) mod clients;
pub(crate) mod shapes;
pub(crate) mod sources;
mod systems;
