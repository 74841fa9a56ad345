//! The network of a child: no traffic bypasses the ports that Landlock restricts.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use crate::{attempt, sandbox};

const NO_PORTS: &str = "{ connect = [], bind = [] }";

#[tokio::test]
async fn a_child_without_ports_has_no_socket_of_any_network() {
    for code in [
        "socket.socket()",
        "socket.socket(socket.AF_INET6)",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_INET, 1 | 1 << 11 | 1 << 19)",
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_VSOCK)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(38, socket.SOCK_SEQPACKET)",
    ] {
        assert_eq!(attempt(code, sandbox(NO_PORTS)).await, "PermissionError", "{code}");
    }
}

#[tokio::test]
async fn with_ports_only_tcp_and_udp_are_left() {
    let https = "{ connect = [443], bind = [] }";
    for (config, code, expected) in [
        (https, "socket.socket()", "done"),
        (https, "socket.socket(socket.AF_INET6, 1 | 1 << 11, 6)", "done"),
        (https, "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "done"),
        (https, "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, 17)", "done"),
        (https, "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)", "PermissionError"),
        (https, "socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 132)", "PermissionError"),
        (https, "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)", "PermissionError"),
        (https, "socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)", "PermissionError"),
        (https, "socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET)", "PermissionError"),
        (https, "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "PermissionError"),
        ("true", "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)", "PermissionError"),
        ("true", "socket.socket(socket.AF_VSOCK)", "PermissionError"),
        // Without a port to connect to, there is no name to resolve.
        ("{ connect = [] }", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "PermissionError"),
        ("{ udp = false }", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "PermissionError"),
        ("{ udp = false }", "socket.socket()", "done"),
    ] {
        assert_eq!(attempt(code, sandbox(config)).await, expected, "{config} {code}");
    }
}

#[tokio::test]
async fn a_first_send_cannot_connect_to_another_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let sendmmsg = if cfg!(target_arch = "x86_64") { 307 } else { 269 };
    let address = format!("('127.0.0.1', {port})");
    let header = format!(
        "import struct; a = ctypes.create_string_buffer(struct.pack('=H', 2) + struct.pack('>H', {port}) \
         + bytes([127, 0, 0, 1]) + bytes(8)); \
         b = ctypes.create_string_buffer(b'x'); v = ctypes.create_string_buffer(struct.pack('PN', ctypes.addressof(b), 1)); \
         h = ctypes.create_string_buffer(struct.pack('PIxxxxPNPNixxxxIxxxx', ctypes.addressof(a), 16, ctypes.addressof(v), 1, 0, 0, 0, 0)); "
    );
    for code in [
        format!("socket.socket().sendto(b'x', 0x20000000, {address})"),
        format!("socket.socket().sendmsg([b'x'], [], 0x20000000, {address})"),
        format!("{header}s = socket.socket(); libc({sendmmsg}, s.fileno(), h, 1, 0x20000000)"),
    ] {
        for config in ["{ connect = [443], bind = [] }", "{ connect = [] }"] {
            assert_eq!(attempt(&code, sandbox(config)).await, "OSError", "{code}");
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "{code}");
        }
    }
}

#[tokio::test]
async fn a_child_that_may_not_bind_cannot_listen_on_a_port_that_the_kernel_picks() {
    let listen = "socket.socket().listen()";
    for (config, expected) in [
        ("{ bind = [] }", "PermissionError"),
        ("{ connect = [443], bind = [] }", "PermissionError"),
        ("{ connect = [] }", "done"),
    ] {
        assert_eq!(attempt(listen, sandbox(config)).await, expected, "{config}");
    }
}

#[tokio::test]
async fn a_tcp_socket_cannot_become_one_of_another_protocol() {
    let replace = "socket.socket().setsockopt(socket.IPPROTO_TCP, 31, b'smc')";
    // Without the guard, there is no such file, if the kernel lacks the module.
    assert_eq!(attempt(replace, sandbox("{ connect = [443] }")).await, "OSError");
}

#[tokio::test]
async fn sockets_of_paths_need_the_setting_and_pairs_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent");
    let _listener = UnixListener::bind(&path).unwrap();
    let connect = format!("socket.socket(socket.AF_UNIX).connect('{}')", path.display());
    let pair = |kind: &str| format!("socket.socketpair(socket.AF_UNIX, socket.{kind})");
    for (config, code, expected) in [
        ("true", connect.clone(), "PermissionError"),
        ("{ unix = true }", connect.clone(), "done"),
        ("{ unix = true, connect = [], bind = [] }", connect, "done"),
        ("{ unix = true, connect = [], bind = [] }", "socket.socket()".into(), "PermissionError"),
        (NO_PORTS, pair("SOCK_STREAM"), "done"),
        (NO_PORTS, pair("SOCK_SEQPACKET"), "done"),
        // Each end could send to any path.
        (NO_PORTS, pair("SOCK_DGRAM"), "PermissionError"),
        ("true", pair("SOCK_RAW"), "PermissionError"),
        ("{ unix = true }", pair("SOCK_DGRAM"), "done"),
    ] {
        assert_eq!(attempt(&code, sandbox(config)).await, expected, "{config} {code}");
    }
}

#[tokio::test]
async fn rings_that_make_sockets_unseen_are_refused_with_every_setting() {
    let ring = "libc(425, 1, ctypes.create_string_buffer(120))";
    for config in ["true", "{ syscalls = false, unix = true, metadata = true, memfd = true }"] {
        assert_eq!(attempt(ring, sandbox(config)).await, "PermissionError", "{config}");
    }
}
