//! http_servers
