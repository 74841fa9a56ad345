//! The vocabulary of the Model Context Protocol: versions, methods, headers,
//! `_meta` keys and error codes.
//!
//! Definitions only: rules about their use are in the modules above, and nothing
//! here reads or writes a message.

pub mod code;
pub mod header;
mod header_value;
mod http_head;
mod log_level;
mod media_type;
pub mod meta;
mod method;
pub mod question;
mod version;

pub use header_value::{HeaderValueError, decode_value, encode_value, is_encoded_value};
pub use http_head::{add_modern_headers, add_session_headers, add_stream_headers};
pub use log_level::LogLevel;
pub use media_type::{MediaType, media_type_essence, quote_content_type};
pub use method::{Method, notification};
pub use version::{Era, ProtocolVersion};
