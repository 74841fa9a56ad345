//! Destinations of audit records and events that cannot be opened. A check creates no file, starts
//! no program and uses no network: `serve` finds the other faults, and reports them.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::fs::{Access, access};

use crate::config::{AuditConfig, Config, EventsConfig, LateFault};
use crate::telemetry::audit::SyslogAddress;
use crate::text::error_chain;

/// Returns the faults of an audit log that this user cannot write now.
pub(crate) fn find_audit_faults(audit: &AuditConfig) -> Vec<LateFault> {
    let file = audit.file.iter().filter_map(|path| {
        let place = path.display().to_string();
        if let Err(error) = probe_file(path, FileKinds::Any) {
            return Some(describe_fault("audit.file", &place, &error));
        }
        let rotates = audit.rotate_size.is_some() || audit.rotate_every.is_some();
        let error = probe_rotation(path).err().filter(|_| rotates)?;
        let text = format!("{place} cannot be rotated: {}", error_chain(&error));
        Some(LateFault { text, ..describe_fault("audit.file", &place, &error) })
    });
    let syslog = audit.syslog.iter().filter_map(|address| {
        let error = probe_syslog(address).err()?;
        Some(describe_fault("audit.syslog", &address.to_string(), &error))
    });
    file.chain(syslog).collect()
}

/// Returns the faults of a file for events, and of the folder of events that wait, that this user
/// cannot write now.
pub(super) fn find_event_faults(events: &EventsConfig) -> Vec<LateFault> {
    let file = events.file.iter().filter_map(|path| {
        let error = probe_file(path, FileKinds::Regular).err()?;
        Some(describe_fault("events.file", &path.display().to_string(), &error))
    });
    let folder = events.queue_dir.iter().filter_map(|path| {
        let error = probe_folder(path).err()?;
        Some(describe_fault("events.queue_dir", &path.display().to_string(), &error))
    });
    file.chain(folder).collect()
}

/// Returns the settings of receivers that only the network reaches.
pub(super) fn find_untested_sinks(config: &Config) -> Vec<&'static str> {
    let has_remote_syslog =
        config.audit.syslog.as_ref().is_some_and(|it| !matches!(it, SyslogAddress::Unix(_)));
    let syslog = has_remote_syslog.then_some("audit.syslog");
    let webhook = config.events.url.is_some().then_some("events.url");
    syslog.into_iter().chain(webhook).collect()
}

fn describe_fault(key: &str, place: &str, error: &io::Error) -> LateFault {
    LateFault {
        key: key.to_owned(),
        text: format!("{place} cannot be written: {}", error_chain(error)),
        help: cure_of(error).to_owned(),
    }
}

/// Kinds of files that a sink accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKinds {
    /// Also pipes and devices.
    Any,
    Regular,
}

/// Checks that a file could be opened for appending, or created.
fn probe_file(path: &Path, kinds: FileKinds) -> io::Result<()> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return probe_parent(path),
        Err(error) => return Err(error),
    };
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if metadata.is_file() {
        return File::options().append(true).open(path).map(drop);
    }
    if kinds == FileKinds::Regular {
        return Err(io::Error::other("expected a regular file"));
    }
    // Opening a pipe would disturb its reader.
    Ok(access(path, Access::WRITE_OK)?)
}

/// Checks that a regular file could be renamed, and another one created in its place.
fn probe_rotation(path: &Path) -> io::Result<()> {
    if path.is_file() { probe_parent(path) } else { Ok(()) }
}

/// Checks that a file or a folder could be created at a path.
fn probe_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !fs::metadata(parent)?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    Ok(access(parent, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Checks that a folder could be written, or created with the missing ones above it.
fn probe_folder(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?),
        Ok(_) => Err(ErrorKind::NotADirectory.into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let existing = path.ancestors().skip(1).find(|above| above.exists());
            existing.map_or(Ok(()), probe_folder)
        }
        Err(error) => Err(error),
    }
}

/// Checks that a local socket has a receiver. Nothing is sent to it.
fn probe_syslog(address: &SyslogAddress) -> io::Result<()> {
    let SyslogAddress::Unix(path) = address else { return Ok(()) };
    if !fs::metadata(path)?.file_type().is_socket() {
        return Err(io::Error::other("expected a socket"));
    }
    match UnixDatagram::unbound()?.connect(path) {
        // It is a stream; a connection to it would reach its program.
        Err(error) if error.raw_os_error() == Some(STREAM_SOCKET) => Ok(()),
        connected => connected,
    }
}

fn cure_of(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "create the folder, or correct the path",
        ErrorKind::PermissionDenied => {
            "let the user of the gateway write there, or check as that user"
        }
        ErrorKind::ReadOnlyFilesystem => "choose a place that can be written",
        ErrorKind::ConnectionRefused => "start the receiver",
        _ => "correct the path",
    }
}

/// `EPROTOTYPE`: the socket is a stream.
const STREAM_SOCKET: i32 = rustix::io::Errno::PROTOTYPE.raw_os_error();

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::{ConfigSource, SystemEnvironment};

    #[test]
    fn a_file_that_rotates_needs_a_writable_folder() {
        if rustix::process::geteuid().is_root() {
            // Root may write everywhere.
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.jsonl"), "").unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o500)).unwrap();
        let faults = |more: &str| {
            let text = format!("[audit]\nfile = \"a.jsonl\"\n{more}");
            let name = "gateway.toml".into();
            let source = ConfigSource { name, folder: folder.path().into(), bytes: text.into() };
            find_audit_faults(&Config::read(&source, &SystemEnvironment).unwrap().audit)
        };
        for more in ["rotate_size = \"1MiB\"", "rotate_size = \"off\"\nrotate_every = \"1d\""] {
            let found = faults(more);
            assert!(
                found[0].text.contains("a.jsonl cannot be rotated: Permission denied"),
                "{more}"
            );
        }
        assert!(faults("rotate_size = \"off\"").is_empty());
    }
}
