//! The process that holds a port, for the message about an address in use.

use std::fmt;
use std::net::SocketAddr;

/// A process that listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortHolder {
    pid: u32,
    command: String,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.command, self.pid)
    }
}

impl PortHolder {
    /// Finds the process that listens on the port of an address, among those that this user may
    /// inspect. Linux only.
    pub(super) fn find(address: SocketAddr) -> Option<Self> {
        linux::find_holder(address)
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    pub(super) fn find_holder(_: std::net::SocketAddr) -> Option<super::PortHolder> {
        None
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::net::SocketAddr;
    use std::path::Path;

    use super::PortHolder;
    use crate::text::{clip, escape_controls};

    pub(super) fn find_holder(address: SocketAddr) -> Option<PortHolder> {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).ok());
        let rows = tables.iter().flatten().flat_map(|table| table.lines());
        let inodes: Vec<_> = rows.filter_map(|row| listening_inode(row, address.port())).collect();
        let sockets: Vec<_> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
        let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        let holds = |pid: &u32| {
            let files = fs::read_dir(format!("/proc/{pid}/fd"));
            let targets = files
                .into_iter()
                .flatten()
                .filter_map(|file| fs::read_link(file.ok()?.path()).ok());
            targets.into_iter().any(|target| sockets.iter().any(|it| target == Path::new(it)))
        };
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let pid = pids.into_iter().find(holds)?;
        // The program alone: arguments may hold secrets.
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(PortHolder { pid, command: escape_controls(clip(command.trim(), 64)) })
    }

    /// Returns the inode of a row of `/proc/net/tcp` if it listens on the port.
    fn listening_inode(row: &str, port: u16) -> Option<&str> {
        const LISTEN_STATE: &str = "0A";
        let fields: Vec<_> = row.split_ascii_whitespace().collect();
        let (local, state) = (fields.get(1)?, fields.get(3)?);
        let (_, found) = local.rsplit_once(':')?;
        let is_port = u16::from_str_radix(found, 16).is_ok_and(|found| found == port);
        (is_port && *state == LISTEN_STATE).then(|| fields.get(9).copied()).flatten()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_row_that_listens_on_the_port_has_the_inode() {
            let row = "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  \
                       0        0 24567 1 0000000000000000 100 0 0 10 0";
            assert_eq!(listening_inode(row, 8080), Some("24567"));
            assert_eq!(listening_inode(row, 8081), None);
            assert_eq!(listening_inode(&row.replace(" 0A ", " 01 "), 8080), None);
            assert_eq!(listening_inode("sl local_address", 8080), None);
        }

        #[test]
        fn the_holder_of_a_port_is_this_process() {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let holder = find_holder(socket.local_addr().unwrap()).unwrap();
            assert_eq!(holder.pid, std::process::id());
            drop(socket);
        }
    }
}
