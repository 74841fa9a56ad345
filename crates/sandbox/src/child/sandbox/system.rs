//! System files and folders that every program needs, and those that a child's start implies.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use trunkline_config::SandboxConfig;

use super::super::ChildSpec;
use super::policy::{SandboxPolicy, UserIds};

/// Adds the paths that programs need from the system, as far as they exist.
pub(super) fn add_system(
    policy: &mut SandboxPolicy,
    config: &SandboxConfig,
    spec: &ChildSpec,
    environment: &[(OsString, OsString)],
) {
    let gateway_files = &config.gateway_files;
    let existing = |paths: &[&str]| {
        let paths: Vec<_> = paths.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
        paths
    };
    let without_files = |paths: Vec<PathBuf>| {
        let rest = paths.into_iter().map(|path| {
            if gateway_files.are_in(&path) { gateway_files.leave_out_of(&path) } else { vec![path] }
        });
        rest.flatten()
    };
    policy.execute.extend(without_files(existing(&PROGRAM_FOLDERS)));
    policy.read.extend(without_files(existing(&READABLE_PATHS)));
    policy.read.extend(existing(if runs_as_root(policy) { &OWN_PROCESS } else { &["/proc"] }));
    policy.write.extend(existing(&HARMLESS_DEVICES));
    let folders = ImpliedFolders::find(spec, environment);
    policy.execute.extend(folders.program_files);
    let is_free = |folder: &PathBuf| !gateway_files.are_in(folder);
    let of_programs = folders.of_program.into_iter().chain(folders.of_path);
    policy.execute.extend(of_programs.filter(is_free));
    // Not the gateway's own working directory, which may contain its configuration.
    policy.read.extend(spec.cwd.clone().filter(is_free));
}

/// A folder that is withheld from a child because it contains a file of the gateway.
pub(crate) struct WithheldFolder {
    folder: PathBuf,
    /// The rest of its content.
    others: Vec<PathBuf>,
}

impl fmt::Display for WithheldFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        write!(f, "sandbox: {folder} contains files of the gateway, so the child cannot read it")?;
        if self.others.is_empty() {
            return Ok(());
        }
        let more = self.others.len().saturating_sub(MAX_NAMED);
        let others: Vec<_> = self
            .others
            .iter()
            .take(MAX_NAMED)
            .map(|path| format!("{:?}", path.display().to_string()))
            .collect();
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        write!(f, "; if it needs more than its program: read = [{}{more}]", others.join(", "))
    }
}

/// Returns the folders that are withheld from a child.
pub(crate) fn withheld_folders(
    config: &SandboxConfig,
    spec: &ChildSpec,
    environment: &[(OsString, OsString)],
) -> Vec<WithheldFolder> {
    if !config.system {
        return Vec::new();
    }
    let is_given = |folder: &PathBuf| {
        let mut given = config.read.iter().chain(&config.write).chain(&config.execute);
        given.any(|path| path.starts_with(folder) || folder.starts_with(path))
    };
    let files = &config.gateway_files;
    let of_program = ImpliedFolders::find(spec, environment).of_program.into_iter();
    let folders: BTreeSet<_> = of_program.chain(spec.cwd.clone()).collect();
    let withheld = folders.into_iter().filter(|folder| files.are_in(folder) && !is_given(folder));
    withheld.map(|folder| WithheldFolder { others: files.leave_out_of(&folder), folder }).collect()
}

/// Returns true if the program of a child exists. Its folders are those of the child's `PATH`.
pub(crate) fn finds_program(spec: &ChildSpec, environment: &[(OsString, OsString)]) -> bool {
    !ImpliedFolders::find(spec, environment).program_files.is_empty()
}

/// Returns true if the launcher of a sandbox could not find the program: the gateway would only see
/// that the launcher has exited.
pub(crate) fn is_program_missing(spec: &ChildSpec, environment: &[(OsString, OsString)]) -> bool {
    let has_path = environment.iter().any(|(name, _)| name == "PATH");
    let is_searched = has_path || spec.program.contains('/');
    // A missing working directory has a fault of its own.
    let has_cwd = spec.cwd.as_ref().is_none_or(|cwd| cwd.is_dir());
    is_searched && has_cwd && !finds_program(spec, environment)
}

/// The files and folders that the start of a child implies.
struct ImpliedFolders {
    /// The program, and the file to which it links.
    program_files: Vec<PathBuf>,
    /// Their folders.
    of_program: Vec<PathBuf>,
    /// Those of `PATH`.
    of_path: Vec<PathBuf>,
}

impl ImpliedFolders {
    fn find(spec: &ChildSpec, environment: &[(OsString, OsString)]) -> Self {
        let path = environment.iter().rfind(|(name, _)| name == "PATH");
        let folders: Vec<_> =
            path.map_or_else(Vec::new, |(_, path)| std::env::split_paths(path).collect());
        let program_files = find_program(&spec.program, spec.cwd.as_deref(), &folders);
        let of_program =
            program_files.iter().filter_map(|path| Some(path.parent()?.to_owned())).collect();
        let is_usable = |path: &PathBuf| path.is_absolute() && path.is_dir();
        Self { program_files, of_program, of_path: folders.into_iter().filter(is_usable).collect() }
    }
}

fn runs_as_root(policy: &SandboxPolicy) -> bool {
    match policy.user {
        Some(UserIds { user, .. }) => user == 0,
        None => rustix::process::geteuid().is_root(),
    }
}

/// Returns the program, and the file to which it links, as far as they exist.
fn find_program(program: &str, cwd: Option<&Path>, folders: &[PathBuf]) -> Vec<PathBuf> {
    let found = if program.contains('/') {
        let file = cwd.unwrap_or(Path::new(".")).join(program);
        file.exists().then_some(file)
    } else {
        let named = folders.iter().map(|folder| folder.join(OsStr::new(program)));
        named.into_iter().find(|path| path.is_file())
    };
    let Some(found) = found else { return Vec::new() };
    let real = found.canonicalize().ok();
    [Some(found), real].into_iter().flatten().collect()
}

/// Folders with programs and libraries.
const PROGRAM_FOLDERS: [&str; 7] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store"];
/// Files that programs read: name resolution, certificates, libraries, users, time, and the number
/// of processors. No other files of `/etc`, because services keep credentials there.
const READABLE_PATHS: [&str; 30] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
];
/// Parts of `/proc` that root reads: the child itself and the machine. Landlock blocks access to
/// the environment of processes outside the sandbox, but not for root, which can read all memory.
const OWN_PROCESS: [&str; 10] = [
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/uptime",
    "/proc/version",
];
/// Devices that reveal nothing.
const HARMLESS_DEVICES: [&str; 5] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Maximum number of paths that a warning names.
const MAX_NAMED: usize = 20;
