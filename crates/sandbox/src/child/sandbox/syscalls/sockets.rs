//! Sockets: the families and protocols that a child can use.
//!
//! Landlock restricts the ports of plain TCP in `connect` and `bind`. Every other way to a network
//! is refused here.

use super::{ArgumentTest, RefusedCalls};
use crate::child::sandbox::policy::{InetSockets, SandboxError, SocketPolicy};

/// Refuses all sockets except the allowed ones, and socket pairs that can send elsewhere.
pub(super) fn refuse_others(
    allowed: SocketPolicy,
    refused: &mut RefusedCalls,
) -> Result<(), SandboxError> {
    // io_uring creates and connects sockets out of a filter's sight.
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
        refused.refuse(libc::EPERM, call);
    }
    refuse_families(allowed, refused)?;
    if allowed.inet != InetSockets::None {
        for family in INET_FAMILIES {
            refuse_protocols(family, allowed.inet, refused)?;
        }
        refuse_unseen_connections(refused)?;
    }
    if !allowed.listen {
        // The kernel chooses a port for a socket without one, out of Landlock's sight.
        refused.refuse(libc::EACCES, libc::SYS_listen);
    }
    refuse_pairs(allowed, refused)
}

fn refuse_families(allowed: SocketPolicy, refused: &mut RefusedCalls) -> Result<(), SandboxError> {
    let inet = (allowed.inet != InetSockets::None).then_some(INET_FAMILIES).into_iter().flatten();
    let families = inet.chain(allowed.unix.then_some(libc::AF_UNIX));
    let others: Vec<_> =
        families.map(|family| ArgumentTest::is_not(FAMILY_ARGUMENT, family)).collect();
    if others.is_empty() {
        refused.refuse(libc::EACCES, libc::SYS_socket);
        return Ok(());
    }
    refused.refuse_if(libc::EACCES, libc::SYS_socket, &others)
}

/// Refuses MPTCP, raw sockets and the like: all except TCP, and UDP where it is allowed.
fn refuse_protocols(
    family: i32,
    allowed: InetSockets,
    refused: &mut RefusedCalls,
) -> Result<(), SandboxError> {
    let family = || ArgumentTest::is(FAMILY_ARGUMENT, family);
    let kind = |mask, value| ArgumentTest::masked(KIND_ARGUMENT, mask, value);
    let other_than = |protocol| {
        [
            ArgumentTest::is_not(PROTOCOL_ARGUMENT, 0),
            ArgumentTest::is_not(PROTOCOL_ARGUMENT, protocol),
        ]
    };
    let mut refuse = |conditions: Vec<ArgumentTest>| {
        refused.refuse_if(libc::EACCES, libc::SYS_socket, &conditions)
    };
    let [zero, tcp] = other_than(libc::IPPROTO_TCP);
    refuse(vec![family(), kind(KIND_MASK, libc::SOCK_STREAM), zero, tcp])?;
    let datagrams = kind(KIND_MASK, libc::SOCK_DGRAM);
    if allowed == InetSockets::TcpAndUdp {
        let [zero, udp] = other_than(libc::IPPROTO_UDP);
        refuse(vec![family(), datagrams, zero, udp])?;
    } else {
        refuse(vec![family(), datagrams])?;
    }
    // The numbers from 0 to 15 except 1, a stream, and 2, datagrams.
    for (mask, value) in [(0b1000, 0b1000), (0b100, 0b100), (0b11, 0b11), (0b11, 0b00)] {
        refuse(vec![family(), kind(mask, value)])?;
    }
    Ok(())
}

/// Refuses connections by calls other than `connect`, or to a protocol other than TCP: Landlock
/// sees neither.
fn refuse_unseen_connections(refused: &mut RefusedCalls) -> Result<(), SandboxError> {
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        let fast_open = ArgumentTest::masked(flags, FAST_OPEN, FAST_OPEN);
        refused.refuse_if(libc::EOPNOTSUPP, call, &[fast_open])?;
    }
    let option = [ArgumentTest::is(1, libc::IPPROTO_TCP), ArgumentTest::is(2, UPPER_LAYER)];
    refused.refuse_if(libc::EOPNOTSUPP, libc::SYS_setsockopt, &option)
}

/// Refuses socket pairs of families other than `AF_UNIX`. Where Unix sockets are not allowed, also
/// refuses pairs that exchange datagrams, because each end can send to any path. `SOCK_RAW` means
/// the same there.
fn refuse_pairs(allowed: SocketPolicy, refused: &mut RefusedCalls) -> Result<(), SandboxError> {
    let mut refuse = |test| refused.refuse_if(libc::EACCES, libc::SYS_socketpair, &[test]);
    refuse(ArgumentTest::is_not(FAMILY_ARGUMENT, libc::AF_UNIX))?;
    if !allowed.unix {
        refuse(ArgumentTest::masked(KIND_ARGUMENT, KIND_MASK, libc::SOCK_DGRAM))?;
        refuse(ArgumentTest::masked(KIND_ARGUMENT, KIND_MASK, libc::SOCK_RAW))?;
    }
    Ok(())
}

const INET_FAMILIES: [i32; 2] = [libc::AF_INET, libc::AF_INET6];
/// The arguments of `socket` and `socketpair`.
const FAMILY_ARGUMENT: u8 = 0;
const KIND_ARGUMENT: u8 = 1;
const PROTOCOL_ARGUMENT: u8 = 2;
/// Bits of the kind. The others are flags.
const KIND_MASK: i32 = 0xf;
/// `MSG_FASTOPEN`: connects a TCP socket with its first bytes.
const FAST_OPEN: i32 = 0x2000_0000;
/// `TCP_ULP`: puts another protocol in the place of TCP, such as SMC.
const UPPER_LAYER: i32 = 31;
