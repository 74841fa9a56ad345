//! server_life
