//! The network of a run: a namespace for each replica where the system permits it, and loopback
//! addresses otherwise.
//!
//! The test program runs in a namespace of its own, with nginx, the store and the scripted servers
//! on one end of a bridge. Addresses are loopback addresses in all namespaces, so that the gateway
//! needs no certificates: they are routed over the bridge because `127.0.0.0/8` is not local to
//! `lo`. A partition maps the other side's address to a hardware address that does not exist:
//! packets are lost without any error.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use crate::support::redis::free_port;
use crate::support::waiting::until_blocking;

/// Addresses and partitions of a run.
pub enum Network {
    Namespaces(Vec<Namespace>),
    Loopback,
}

impl Network {
    /// Returns the prefix of a command that runs in a network namespace of its own, if the system
    /// permits one.
    pub fn isolation() -> Option<&'static [&'static str]> {
        let ways: [&[&str]; 2] =
            [&["unshare", "--net", "--"], &["unshare", "--net", "--map-root-user", "--"]];
        // A module of the kernel may be missing, too.
        let trial = "ip link add front type bridge && ip link add end0 type veth peer name end1";
        ways.into_iter().find(|way| {
            let mut command = Command::new(way[0]);
            command.args(&way[1..]).args(["sh", "-c", trial]).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        })
    }

    /// Builds the network of so many replicas. `is_isolated`: this program is in a namespace of its
    /// own.
    pub fn build(replicas: u8, is_isolated: Isolation) -> Self {
        if is_isolated == Isolation::Loopback {
            return Self::Loopback;
        }
        run("ip", &["link", "set", "lo", "up"]);
        free_loopback(&|program, args| run(program, args));
        run("ip", &["link", "add", "front", "type", "bridge"]);
        run("ip", &["link", "set", "front", "up"]);
        for address in [FRONT, STORE] {
            run("ip", &["addr", "add", &format!("{address}/24"), "dev", "front"]);
        }
        Self::Namespaces((0..replicas).map(Namespace::connect).collect())
    }

    /// Returns an unused address of a replica.
    pub fn replica_address(replica: u8) -> SocketAddr {
        (replica_ip(replica), free_port()).into()
    }

    /// Returns a command that runs a program in the namespace of a replica.
    pub fn command(&self, replica: u8, program: &str) -> Command {
        match self {
            Self::Loopback => Command::new(program),
            Self::Namespaces(all) => all[usize::from(replica)].command(program),
        }
    }

    /// Cuts or restores the way from a replica to others or to the store.
    pub fn set_way(&self, way: Way, state: WayState) {
        let Self::Namespaces(all) = self else { return };
        let (from, to) = match way {
            Way::ToReplica(from, to) => (from, replica_ip(to)),
            Way::ToStore(from) => (from, STORE),
        };
        let to = to.to_string();
        let args: &[&str] = match state {
            WayState::Cut => {
                &["neigh", "replace", &to, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent"]
            }
            WayState::Open => &["neigh", "del", &to, "dev", "eth0"],
        };
        all[usize::from(from)].run("ip", args);
    }
}

/// The place of the test program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    Namespace,
    Loopback,
}

/// A way of packets, in one direction.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    ToReplica(u8, u8),
    ToStore(u8),
}

/// State of a way.
#[derive(Debug, Clone, Copy)]
pub enum WayState {
    Open,
    Cut,
}

/// The namespace of a replica, which ends with this program.
pub struct Namespace {
    /// A process that waits in it, for the end of its input.
    holder: Child,
}

impl Namespace {
    /// Creates a namespace, and connects it to the bridge.
    fn connect(replica: u8) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let namespace = Self { holder: command.spawn().unwrap() };
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        until_blocking(|| {
            let path = format!("/proc/{}/ns/net", namespace.holder.id());
            std::fs::read_link(path).is_ok_and(|other| other != own)
        });
        let (device, pid) = (format!("replica{replica}"), namespace.holder.id().to_string());
        let peer = ["peer", "name", "eth0", "netns", &pid];
        run("ip", &[&["link", "add", &device, "type", "veth"][..], &peer].concat());
        run("ip", &["link", "set", &device, "master", "front", "up"]);
        namespace.run("ip", &["link", "set", "lo", "up"]);
        free_loopback(&|program, args| namespace.run(program, args));
        namespace.run("ip", &["link", "set", "eth0", "up"]);
        let address = format!("{}/24", replica_ip(replica));
        namespace.run("ip", &["addr", "add", &address, "dev", "eth0"]);
        namespace
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        // It becomes the program, with the same id.
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).args(["--", program]);
        command
    }

    fn run(&self, program: &str, args: &[&str]) {
        finish(self.command(program).args(args));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Leaves one address to `lo`, and lets the others leave the namespace.
fn free_loopback(run: &dyn Fn(&str, &[&str])) {
    run("ip", &["addr", "del", "127.0.0.1/8", "dev", "lo"]);
    run("ip", &["addr", "add", "127.0.0.1/32", "dev", "lo"]);
    run("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet"]);
}

fn run(program: &str, args: &[&str]) {
    finish(Command::new(program).args(args));
}

fn finish(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn replica_ip(replica: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 77, 0, 11 + replica)
}

/// The address of the scripted servers.
pub const FRONT: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
/// The address of the store.
pub const STORE: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 2);
/// A hardware address without a device.
const NOWHERE: &str = "02:00:00:00:00:fe";
