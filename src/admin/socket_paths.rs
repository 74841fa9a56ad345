//! The path of the private socket: the gateway binds it, and commands look for it.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rustix::process::geteuid;

use crate::codec::file::is_own;
use crate::config::SocketPlace;
use crate::crypto::sha256;
use crate::text::clip;

/// The folders of this machine for sockets.
#[derive(Debug)]
struct SocketFolders {
    /// The user of this process.
    uid: u32,
    /// `$XDG_RUNTIME_DIR`, if it is a folder.
    runtime: Option<PathBuf>,
    /// The folder of services.
    service: PathBuf,
    /// The folder for temporary files.
    temporary: PathBuf,
}

/// Returns the path where a gateway binds its socket; `None` if it has none.
pub fn socket_path(place: &SocketPlace, config: &Path) -> Option<PathBuf> {
    match place {
        SocketPlace::Off => None,
        SocketPlace::Path(path) => Some(path.clone()),
        SocketPlace::Auto => {
            Some(SocketFolders::of_process().folder_to_bind().join(socket_name(config)))
        }
    }
}

/// Returns the paths where the socket of a gateway may be, in the order in which a command tries
/// them: the gateway may run as a service, or with other variables.
pub fn socket_candidates(place: &SocketPlace, config: &Path) -> Vec<PathBuf> {
    match place {
        SocketPlace::Off => Vec::new(),
        SocketPlace::Path(path) => vec![path.clone()],
        SocketPlace::Auto => {
            let name = socket_name(config);
            let folders = SocketFolders::of_process().folders_to_try();
            folders.into_iter().map(|folder| folder.join(&name)).collect()
        }
    }
}

impl SocketFolders {
    fn of_process() -> Self {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        Self {
            uid: geteuid().as_raw(),
            runtime: runtime.filter(|folder| folder.is_absolute() && folder.is_dir()),
            service: PathBuf::from("/run/trunkline"),
            temporary: std::env::temp_dir(),
        }
    }

    fn folder_to_bind(&self) -> PathBuf {
        if let Some(runtime) = &self.runtime {
            return runtime.join("trunkline");
        }
        // A service that runs as another user has the folder from its service manager.
        let is_given = fs::metadata(&self.service).is_ok_and(|found| is_own(&found));
        let may_create = self.uid == 0 && self.service.parent().is_some_and(Path::is_dir);
        if is_given || may_create { self.service.clone() } else { self.user_folder() }
    }

    fn folders_to_try(&self) -> Vec<PathBuf> {
        let runtime = self.runtime.iter().map(|folder| folder.join("trunkline"));
        let service = Some(self.service.clone()).filter(|folder| folder.is_dir());
        runtime.chain(service).chain([self.user_folder()]).collect()
    }

    /// Returns the folder of a user without a better one.
    fn user_folder(&self) -> PathBuf {
        self.temporary.join(format!("trunkline-{}", self.uid))
    }
}

/// Returns the name of the socket of a configuration: its file's name without the extension, and
/// digits of the digest of its path.
fn socket_name(config: &Path) -> String {
    let path = stable_path(config);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let stem: String = stem.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let digest = sha256(path.as_os_str().as_bytes());
    let digits = HEXLOWER.encode(digest.first_chunk::<NAME_DIGEST_BYTES>().unwrap_or(&[0; 6]));
    format!("{}-{digits}.sock", clip(&stem, MAX_STEM_BYTES))
}

/// Returns the absolute path of a configuration, with the links of its folder followed. A link in
/// place of the file itself is not followed: Kubernetes replaces the link at each change.
pub fn stable_path(config: &Path) -> PathBuf {
    let absolute = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
    match (absolute.parent().map(fs::canonicalize), absolute.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => absolute,
    }
}

/// Bytes of a digest in the name of a socket.
const NAME_DIGEST_BYTES: usize = 6;
/// Limit of the bytes of a configuration's name in the name of a socket.
const MAX_STEM_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_socket_is_named_after_its_configuration_through_links_of_folders() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        fs::write(real.join("my gateway.toml"), "").unwrap();
        let name = socket_name(&real.join("my gateway.toml"));
        let digits = name.strip_prefix("my_gateway-").and_then(|rest| rest.strip_suffix(".sock"));
        assert!(digits.is_some(), "{name}");
        assert_eq!(name.len(), "my_gateway-.sock".len() + 12);
        assert_eq!(socket_name(&link.join("my gateway.toml")), name);
        assert_ne!(socket_name(&real.join("other/my gateway.toml")), name);
        // A file that is replaced by a link to another keeps its name.
        symlink(real.join("my gateway.toml"), real.join("current.toml")).unwrap();
        assert!(socket_name(&real.join("current.toml")).starts_with("current-"));
        let long = socket_name(&real.join("x".repeat(200)));
        assert!(long.len() <= MAX_STEM_BYTES + 18, "{long}");
    }

    #[test]
    fn the_runtime_folder_comes_first_then_that_of_services_then_the_users_own() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let folders = |uid: u32, runtime: bool| SocketFolders {
            uid,
            runtime: runtime.then(|| place("user")),
            service: place("service"),
            temporary: place("tmp"),
        };
        let own = place("tmp").join("trunkline-7");
        assert_eq!(folders(0, true).folder_to_bind(), place("user/trunkline"));
        assert_eq!(folders(0, false).folder_to_bind(), place("service"));
        assert_eq!(folders(7, false).folder_to_bind(), own);
        assert_eq!(folders(7, true).folders_to_try(), [place("user/trunkline"), own.clone()]);
        fs::create_dir(place("service")).unwrap();
        fs::set_permissions(place("service"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(folders(7, false).folder_to_bind(), place("service"), "made for it");
        fs::set_permissions(place("service"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(folders(7, false).folder_to_bind(), own);
        assert_eq!(folders(7, false).folders_to_try(), [place("service"), own]);
    }
}
