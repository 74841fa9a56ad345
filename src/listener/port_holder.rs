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
    /// Returns true if it is a process of this program.
    pub fn is_this_program(&self) -> bool {
        self.command == "trunkline"
    }

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
    use std::net::{IpAddr, SocketAddr};
    use std::path::Path;

    use super::PortHolder;
    use crate::text::{clip, escape_controls};

    pub(super) fn find_holder(address: SocketAddr) -> Option<PortHolder> {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).ok());
        let rows = tables.iter().flatten().flat_map(|table| table.lines());
        let inodes: Vec<_> = rows.filter_map(|row| listening_inode(row, address)).collect();
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

    /// Returns the inode of a row of `/proc/net/tcp` or `tcp6` if its socket keeps others from
    /// listening on the address.
    fn listening_inode(row: &str, address: SocketAddr) -> Option<&str> {
        const LISTEN_STATE: &str = "0A";
        let fields: Vec<_> = row.split_ascii_whitespace().collect();
        let (local, state) = (fields.get(1)?, fields.get(3)?);
        let (ip, port) = local.rsplit_once(':')?;
        let (ip, port) = (parse_ip(ip)?, u16::from_str_radix(port, 16).ok()?);
        let wanted = address.ip().to_canonical();
        let is_shared = ip == wanted || ip.is_unspecified() || wanted.is_unspecified();
        let holds = *state == LISTEN_STATE && port == address.port() && is_shared;
        holds.then(|| fields.get(9).copied()).flatten()
    }

    /// Parses an address of 8 or 32 hexadecimal digits: words in the byte order of the machine.
    fn parse_ip(digits: &str) -> Option<IpAddr> {
        let word = |at: usize| u32::from_str_radix(digits.get(at..at + 8)?, 16).ok();
        let bytes = |at: usize| word(at).map(u32::to_ne_bytes);
        match digits.len() {
            8 => Some(IpAddr::from(bytes(0)?)),
            32 => {
                let words = [bytes(0)?, bytes(8)?, bytes(16)?, bytes(24)?];
                let all: [u8; 16] = words.concat().try_into().ok()?;
                Some(IpAddr::from(all).to_canonical())
            }
            _ => None,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_row_that_listens_on_the_port_has_the_inode() {
            let row = "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  \
                       0        0 24567 1 0000000000000000 100 0 0 10 0";
            let inode = |row: &str, address: &str| {
                listening_inode(row, address.parse().unwrap()).map(str::to_owned)
            };
            assert_eq!(inode(row, "127.0.0.1:8080"), Some("24567".to_owned()));
            assert_eq!(inode(row, "0.0.0.0:8080"), Some("24567".to_owned()));
            assert_eq!(inode(row, "127.0.0.1:8081"), None);
            assert_eq!(inode(row, "127.0.0.2:8080"), None);
            assert_eq!(inode(&row.replace(" 0A ", " 01 "), "127.0.0.1:8080"), None);
            assert_eq!(inode("sl local_address", "127.0.0.1:8080"), None);
            let all = row.replace("0100007F:", "00000000000000000000000000000000:");
            assert_eq!(inode(&all, "127.0.0.1:8080"), Some("24567".to_owned()));
            let own = row.replace("0100007F:", "00000000000000000000000001000000:");
            assert_eq!(inode(&own, "[::1]:8080"), Some("24567".to_owned()));
            assert_eq!(inode(&own, "127.0.0.1:8080"), None);
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
