//! Bounded readers for network, pipe and file input: HTTP bodies, lines, server-sent events and
//! files of the configuration. Beside them are the writer of server-sent events, files that are
//! replaced atomically, private folders of such files, and work on large messages away from the
//! threads that serve clients.
//!
//! Every reader takes a limit and reports the violation once the limit is exceeded, so that no peer
//! decides how much memory it gets. `jsonrpc` parses the output of these readers; this module knows
//! no messages and no protocol eras.

pub mod body;
pub mod file;
pub mod large_message;
pub mod lines;
pub mod own_folder;
pub mod replace_file;
pub mod sse;
