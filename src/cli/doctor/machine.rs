//! The machine: descriptors, the clock and the support of sandboxes.

use rustix::process::{Resource, getrlimit};

use super::report::{CheckArea, DoctorReport};
use crate::admin::wall_time;
use crate::child::{ChildSpec, probe_sandbox, sandbox_gap};
use crate::config::{Config, ServerKind};

/// Compares the limit of open files with the number that the configuration may need.
pub(super) fn check_descriptors(config: Option<&Config>, report: &mut DoctorReport) {
    let area = CheckArea::Descriptors;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = needed_descriptors(config);
    if limit >= needed {
        return report
            .pass(area, format!("{limit} open files are allowed, {needed} needed at most"));
    }
    let text = format!(
        "{limit} open files are allowed, and with all connections in use {needed} are needed: \
         connections are refused then"
    );
    let cure = format!(
        "raise the limit (ulimit -n {needed}, LimitNOFILE={needed} of a service), or lower \
         gateway.limits.connections"
    );
    report.find_at(area, "gateway.limits.connections", text, &cure);
}

/// Returns the largest number of descriptors that a gateway with this configuration needs.
fn needed_descriptors(config: Option<&Config>) -> u64 {
    let Some(config) = config else { return OWN_DESCRIPTORS };
    let of_servers = config.servers.iter().map(|server| match &server.target {
        ServerKind::Command(_) => CHILD_DESCRIPTORS,
        ServerKind::Http(_) | ServerKind::OpenApi(_) => {
            u64::try_from(server.in_flight).unwrap_or(u64::MAX)
        }
    });
    let connections = u64::try_from(config.gateway.limits.connections).unwrap_or(u64::MAX);
    of_servers.fold(OWN_DESCRIPTORS.saturating_add(connections), u64::saturating_add)
}

/// Checks that the clock is not obviously wrong: certificates, tokens and quotas depend on it.
pub(super) fn check_clock(report: &mut DoctorReport) {
    let now = wall_time();
    if now.as_second() >= RELEASE_SECOND {
        return report.pass(CheckArea::Clock, format!("{now:.0}"));
    }
    let text = format!("the clock shows {now:.0}, before this version of the gateway was made");
    report.find(CheckArea::Clock, text, CLOCK_CURE);
}

/// Checks that this system can enforce the sandboxes of the configuration.
pub(super) fn check_sandboxes(config: &Config, report: &mut DoctorReport) {
    let area = CheckArea::Sandbox;
    let launcher = match std::env::current_exe() {
        Ok(launcher) => launcher,
        Err(error) => return report.skip(area, &format!("the program's own path: {error}")),
    };
    let mut enforced = 0;
    for server in &config.servers {
        let ServerKind::Command(command) = &server.target else { continue };
        if command.sandbox.is_none() {
            continue;
        }
        let setting = format!("servers.{}.sandbox", server.name);
        let spec = ChildSpec::for_server(server, command);
        if let Err(fault) = probe_sandbox(&spec, &launcher) {
            let fault = server.secrets.hide_in(&fault).into_owned();
            report.find_at(area, &setting, fault, "use a kernel with Landlock and seccomp");
        } else if let Some(gap) = sandbox_gap(server) {
            report.find_at(area, &setting, gap.to_owned(), "use a newer kernel");
        } else {
            enforced += 1;
        }
    }
    match enforced {
        0 => report.skip(area, "no server has an enforceable sandbox"),
        _ => report.pass(area, format!("{enforced} sandbox(es) can be enforced")),
    }
}

/// Cure of a wrong clock.
pub(super) const CLOCK_CURE: &str = "synchronise the clock (systemd-timesyncd, chrony)";

/// Descriptors of the gateway itself.
const OWN_DESCRIPTORS: u64 = 64;
/// Descriptors of a child process: its streams, and those of its keeper.
const CHILD_DESCRIPTORS: u64 = 8;
/// A second since 1970 before this version: 1 November 2026.
const RELEASE_SECOND: i64 = 1_793_491_200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::tests::config;

    #[test]
    fn connections_children_and_calls_in_flight_need_descriptors() {
        let mut config = config(&[("s", "in_flight = 5")]);
        config.gateway.limits.connections = 100;
        let target = &config.servers[0].target;
        let of_server =
            if matches!(target, ServerKind::Command(_)) { CHILD_DESCRIPTORS } else { 5 };
        assert_eq!(needed_descriptors(Some(&config)), OWN_DESCRIPTORS + 100 + of_server);
        assert_eq!(needed_descriptors(None), OWN_DESCRIPTORS);
    }
}
