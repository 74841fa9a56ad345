//! The private socket: a Unix socket, for commands of the gateway's own user.
//!
//! Three checks keep other users out, each sufficient by itself: the folder belongs to the gateway's
//! user and no other user can write to it, the file has mode 0600, and the system names the user of
//! each connection (`SO_PEERCRED`). The gateway's own child processes have its user, and are refused
//! as well. A file of a gateway that was killed is replaced; a socket that accepts connections is not.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::call::PeerAddress;
use crate::codec::own_folder::{OwnFolder, OwnFolderError};
use crate::shares::SharedAmount;
use crate::telemetry::log::SharedFaultLog;

use super::connection;
use super::edge::Edge;
use super::request_body::RequestBody;
use super::socket::{ListenerContext, finish};
use super::{BoxError, Drain, LiveSettings, Settings};

/// Reason that there is no private socket.
#[derive(Debug, thiserror::Error)]
pub enum PrivateSocketError {
    /// The path has no folder, or no name.
    #[error("expected the path of a file")]
    NoFile,
    /// The path does not fit into a socket's address.
    #[error("the path has {size} bytes, and a socket's may have {MAX_SOCKET_PATH_BYTES}")]
    TooLong {
        /// Bytes of the path.
        size: usize,
    },
    /// The folder cannot be used.
    #[error("{}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        source: OwnFolderError,
    },
    /// The folder is a symbolic link, which another user may have made.
    #[error("{} is a symbolic link: expected a folder", folder.display())]
    LinkedFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// There is another file at the path.
    #[error("the file exists, and is no socket")]
    NotSocket,
    /// Another process listens.
    #[error("another process listens there")]
    InUse,
    /// The system's error.
    #[error("cannot listen")]
    System(#[from] io::Error),
}

/// A bound private socket. Commands may connect from here on; they wait until
/// [`serve`](Self::serve). Dropping it removes the file.
#[derive(Debug)]
pub struct PrivateSocket {
    listener: UnixListener,
    file: SocketFile,
    /// Its faults in the log.
    faults: SharedFaultLog,
}

/// The file of a socket, removed on drop unless another process has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// The user on the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalUser {
    /// Its id.
    pub uid: u32,
}

impl PrivateSocket {
    /// Binds the socket. Creates its folder if it is missing.
    ///
    /// # Errors
    /// [`PrivateSocketError`].
    pub fn bind(path: &Path) -> Result<Self, PrivateSocketError> {
        let size = path.as_os_str().len();
        if size > MAX_SOCKET_PATH_BYTES {
            return Err(PrivateSocketError::TooLong { size });
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let (Some(folder), Some(_)) = (folder, path.file_name()) else {
            return Err(PrivateSocketError::NoFile);
        };
        let opened = open_folder(folder)?;
        // Two gateways that start at once must not replace each other's socket.
        let lock = opened.lock(LOCK_FILE)?;
        make_room(path)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
        let made = fs::symlink_metadata(path)?;
        drop(lock);
        let file = SocketFile { path: path.to_owned(), device: made.dev(), inode: made.ino() };
        Ok(Self { listener, file, faults: SharedFaultLog::new() })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Serves connections of the gateway's own user and of root until `drain` is over, then removes
    /// the file. `edge` creates the stack of each connection.
    ///
    /// # Cancel safety
    /// Dropping this future cuts every connection at once.
    pub async fn serve<F, S, R>(self, edge: F, drain: Drain)
    where
        F: Fn(LocalUser, PeerAddress) -> S + Clone + Send + Sync + 'static,
        S: Edge<RequestBody, R>,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let settings = LiveSettings::new(Settings::default());
        let unread: Arc<SharedAmount> = Arc::default();
        let places = Arc::new(Semaphore::new(MAX_PRIVATE_CONNECTIONS));
        let mut connections = JoinSet::new();
        let mut started = pin!(drain.started());
        loop {
            let (stream, user, place) = tokio::select! {
                biased;
                () = started.as_mut() => break,
                Some(_) = connections.join_next() => continue,
                accepted = self.accept(&places) => accepted,
            };
            let edge = edge.clone();
            let context = Arc::new(ListenerContext {
                edge: move |peer| edge(user, peer),
                settings: settings.clone(),
                unread: Arc::clone(&unread),
                drain: drain.clone(),
            });
            let settings = settings.load();
            connections.spawn(async move {
                let served = connection::run_private(stream, &settings, context).await;
                if let Err(fault) = served {
                    let fault = &fault as &dyn std::error::Error;
                    tracing::debug!(uid = user.uid, fault, "private connection ended early");
                }
                drop(place);
            });
        }
        drop(self);
        finish(connections, &drain).await;
    }

    /// Returns the next connection of a permitted user, once there is a place for it.
    ///
    /// Cancel safe: at most a place is taken and given back.
    async fn accept(
        &self,
        places: &Arc<Semaphore>,
    ) -> (UnixStream, LocalUser, Option<OwnedSemaphorePermit>) {
        // The semaphore is never closed.
        let place = Arc::clone(places).acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    if let Some(user) = permitted_user(&stream) {
                        return (stream, user, place);
                    }
                    if let Some(line) =
                        self.faults.note_about(REFUSED_CONNECTION, REFUSED_CONNECTION)
                    {
                        tracing::warn!("{line}");
                    }
                }
                Err(fault) => {
                    let text = format!("cannot accept private connections: {fault}");
                    if let Some(line) = self.faults.note_about(&text, &text) {
                        tracing::warn!("{line}");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Returns the user of a connection, if it is the gateway's own or root, and its process is no child
/// of the gateway: a sandboxed server with Unix sockets must not operate its gateway.
fn permitted_user(stream: &UnixStream) -> Option<LocalUser> {
    let peer = stream.peer_cred().ok()?;
    let uid = peer.uid();
    // A process of another user is no child. Root's may be invisible.
    let is_child = uid == geteuid().as_raw() && peer.pid().is_some_and(is_descendant);
    (is_trusted_user(uid) && !is_child).then_some(LocalUser { uid })
}

/// Returns true if a process descends from this one, or has ended: its descendants can hold its
/// connection.
fn is_descendant(pid: i32) -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let mut ancestor = pid;
    for _ in 0..MAX_ANCESTORS {
        if ancestor <= 1 {
            return false;
        }
        match parent_of(ancestor) {
            Some(parent) if parent == own => return true,
            Some(parent) => ancestor = parent,
            None => return true,
        }
    }
    true
}

/// Returns the parent of a process (`proc_pid_stat(5)`).
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, and may contain some.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// Returns true for the user of this process and for root.
pub fn is_trusted_user(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

fn open_folder(folder: &Path) -> Result<OwnFolder, PrivateSocketError> {
    let is_link = fs::symlink_metadata(folder).is_ok_and(|found| found.is_symlink());
    if is_link {
        return Err(PrivateSocketError::LinkedFolder { folder: folder.to_owned() });
    }
    OwnFolder::open(folder)
        .map_err(|source| PrivateSocketError::Folder { folder: folder.to_owned(), source })
}

/// Removes the socket of a gateway that was killed.
fn make_room(path: &Path) -> Result<(), PrivateSocketError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(found) if !found.file_type().is_socket() => return Err(PrivateSocketError::NotSocket),
        Ok(_) => {}
    }
    // Without blocking: a listener with a full queue would make the connection wait.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let connected = probe.and_then(|probe| connect(&probe, &SocketAddrUnix::new(path)?));
    match connected {
        Err(Errno::CONNREFUSED) => Ok(fs::remove_file(path)?),
        _ => Err(PrivateSocketError::InUse),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| found.dev() == self.device && found.ino() == self.inode);
        if is_own {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Bytes of a socket's path (`sun_path`, less the end).
const MAX_SOCKET_PATH_BYTES: usize = 107;
/// Only the owner may connect.
const SOCKET_MODE: u32 = 0o600;
/// The lock of a folder while one of its sockets is bound.
const LOCK_FILE: &str = ".lock";
/// Connections at a time. Further ones wait to be accepted.
const MAX_PRIVATE_CONNECTIONS: usize = 32;
/// Ancestors of a process that are looked at.
const MAX_ANCESTORS: usize = 256;
/// The line about connections of other users and of children.
const REFUSED_CONNECTION: &str = "refused a connection to the private socket: it is not of this user, \
    or of a child process of the gateway";
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_ended_processes_descend_from_this_one() {
        let own = std::process::id();
        assert!(!is_descendant(own.try_into().unwrap()));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().try_into().unwrap();
        let is_child = is_descendant(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_child);
        assert!(is_descendant(pid), "it has ended");
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_or_another_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let live = PrivateSocket::bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(folder.path().join(LOCK_FILE).exists(), "two at once exclude each other");
        assert!(matches!(PrivateSocket::bind(&path), Err(PrivateSocketError::InUse)));
        drop(live);
        assert!(!path.exists(), "removed");
        // The file stays if its process is killed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = PrivateSocket::bind(&path).unwrap();
        // Another process has replaced it: the file is not removed.
        fs::remove_file(&path).unwrap();
        let third = PrivateSocket::bind(&path).unwrap();
        drop(second);
        assert!(path.exists());
        drop(third);
        fs::write(&path, "text").unwrap();
        assert!(matches!(PrivateSocket::bind(&path), Err(PrivateSocketError::NotSocket)));
        assert_eq!(fs::read(&path).unwrap(), b"text");
    }

    #[tokio::test]
    async fn a_folder_that_others_can_write_to_or_that_is_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let bound = PrivateSocket::bind(&open.join("a.sock"));
        assert!(matches!(bound, Err(PrivateSocketError::Folder { .. })), "{bound:?}");
        let (own, link) = (folder.path().join("own"), folder.path().join("link"));
        fs::create_dir(&own).unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let bound = PrivateSocket::bind(&link.join("a.sock"));
        assert!(matches!(bound, Err(PrivateSocketError::LinkedFolder { .. })), "{bound:?}");
        let long = own.join("x".repeat(MAX_SOCKET_PATH_BYTES));
        assert!(matches!(PrivateSocket::bind(&long), Err(PrivateSocketError::TooLong { .. })));
        for nowhere in ["a.sock", "/", ".."] {
            let bound = PrivateSocket::bind(Path::new(nowhere));
            assert!(matches!(bound, Err(PrivateSocketError::NoFile)), "{nowhere}: {bound:?}");
        }
        let made = own.join("new/a.sock");
        let bound = PrivateSocket::bind(&made).unwrap();
        assert_eq!(fs::metadata(own.join("new")).unwrap().mode() & 0o777, 0o700);
        assert_eq!(bound.path(), made);
    }
}
