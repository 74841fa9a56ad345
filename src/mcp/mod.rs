mod header_value;

pub use header_value::{HeaderValueError, decode_value, encode_value};
