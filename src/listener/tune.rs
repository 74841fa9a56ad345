//! Socket options for a client's connection.

use std::{io, time::Duration};

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// Sends small answers at once, and makes the kernel close the connection of a client that has
/// vanished or has not read for `stall`.
///
/// Only the kernel can distinguish such a client from one that waits for a long call: for this
/// process both are a response in flight.
pub(super) fn tune(socket: &TcpStream, stall: Duration) -> io::Result<()> {
    // Small JSON answers and single events must not wait for a full segment.
    socket.set_nodelay(true)?;
    if stall.is_zero() {
        return Ok(());
    }
    // Probes detect a client that vanished while nothing was being sent.
    let step = (stall / KEEPALIVE_PROBES).max(MIN_KEEPALIVE_STEP);
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, step)?;
    sockopt::set_tcp_keepintvl(socket, step)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    // RFC 5482: also ends a connection with a window that stays closed. Other systems lack it.
    #[cfg(target_os = "linux")]
    {
        let stall = u32::try_from(stall.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(socket, stall)?;
    }
    Ok(())
}

const KEEPALIVE_PROBES: u32 = 3;
/// The kernel counts in whole seconds.
const MIN_KEEPALIVE_STEP: Duration = Duration::from_secs(1);
