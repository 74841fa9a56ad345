//! arguments
