//! The sections of the configuration: one file or folder per table of `gateway.toml`. A section
//! declares its settings (`section!`) and the values that only it has; rules between settings of
//! several sections are in `checks`.

pub(crate) mod call_text;
pub(crate) mod clients;
pub(crate) mod confirm;
pub(crate) mod definitions;
pub(crate) mod gateway;
pub(crate) mod interceptors;
pub(crate) mod issuers;
pub(crate) mod named_tables;
pub(crate) mod own_tools;
pub(crate) mod policy;
pub(crate) mod profiles;
pub(crate) mod quota;
pub(crate) mod rate;
pub(crate) mod server;
pub(crate) mod subject_name;
pub(crate) mod count_unit;
pub(crate) mod transforms;
