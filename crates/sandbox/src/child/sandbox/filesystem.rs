//! Landlock: restricts the files and TCP ports that the process may use from now on.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::policy::{SandboxError, SandboxPolicy};

/// Restricts this process, and all that it runs, to the files, ports and scopes of a policy. Fails
/// if the kernel cannot enforce a restriction.
pub(super) fn restrict_access(policy: &SandboxPolicy) -> Result<(), SandboxError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(FILE_RIGHTS_ABI))
        .map_err(of_files)?;
    let ports = network_access(policy);
    let ruleset = if ports.is_empty() {
        ruleset
    } else {
        ruleset.handle_access(ports).map_err(of_network)?
    };
    let ruleset = if policy.scopes { ruleset.scope(scopes()).map_err(of_scopes)? } else { ruleset };
    let mut created = ruleset.create().map_err(of_files)?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // Root could create a device of the disk and read all of it.
    let devices = AccessFs::MakeBlock | AccessFs::MakeChar;
    for (paths, access) in [
        (&policy.read, read),
        (&policy.write, read | (AccessFs::from_write(FILE_RIGHTS_ABI) & !devices)),
        (&policy.execute, read | AccessFs::Execute),
    ] {
        for path in paths {
            created = allow_path(created, path, access)?;
        }
    }
    for (ports, access) in
        [(&policy.connect, AccessNet::ConnectTcp), (&policy.bind, AccessNet::BindTcp)]
    {
        for port in ports.iter().flatten() {
            created = created.add_rule(NetPort::new(*port, access)).map_err(of_network)?;
        }
    }
    created.restrict_self().map_err(of_files)?;
    Ok(())
}

/// Returns true if the kernel can restrict TCP ports. Restricts nothing.
pub fn can_restrict_ports() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessNet::ConnectTcp | AccessNet::BindTcp).is_ok()
}

/// Returns true if the kernel can restrict signals and abstract sockets. Restricts nothing.
pub fn can_restrict_scopes() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.scope(scopes()).is_ok()
}

/// Returns the restricted scopes: signals to processes outside the sandbox, and their abstract
/// sockets.
fn scopes() -> BitFlags<Scope> {
    Scope::AbstractUnixSocket | Scope::Signal
}

/// Returns the uses of ports that the policy restricts.
fn network_access(policy: &SandboxPolicy) -> BitFlags<AccessNet> {
    let connect = policy.connect.as_ref().map(|_| AccessNet::ConnectTcp);
    let bind = policy.bind.as_ref().map(|_| AccessNet::BindTcp);
    connect.into_iter().chain(bind).collect()
}

fn allow_path(
    ruleset: RulesetCreated,
    path: &PathBuf,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, SandboxError> {
    let unusable = |cause| SandboxError::Path { path: path.clone(), cause };
    let is_folder = path.metadata().map_err(unusable)?.is_dir();
    let opened = PathFd::new(path).map_err(|error| unusable(std::io::Error::other(error)))?;
    // Rights to folders are not defined for files.
    let access = if is_folder { access } else { access & AccessFs::from_file(FILE_RIGHTS_ABI) };
    ruleset.add_rule(PathBeneath::new(opened, access)).map_err(of_files)
}

fn of_files(cause: landlock::RulesetError) -> SandboxError {
    SandboxError::Landlock { what: "files", cause: Box::new(cause) }
}

fn of_network(cause: landlock::RulesetError) -> SandboxError {
    SandboxError::Landlock { what: "network ports", cause: Box::new(cause) }
}

fn of_scopes(cause: landlock::RulesetError) -> SandboxError {
    SandboxError::Landlock { what: "signals and abstract sockets", cause: Box::new(cause) }
}

/// The file rights that are restricted, including rename and truncate, need Linux 6.2. Ports need
/// Linux 6.7, scopes Linux 6.12.
const FILE_RIGHTS_ABI: ABI = ABI::V3;
