//! The environment variables that a child inherits from the gateway: few, by
//! name.

use std::ffi::OsString;

use trunkline_config::child_inherits;

use super::ChildSpec;

/// Returns the environment of a child: the safe variables of `inherited`, those that the
/// configuration passes, and those that it sets, which take precedence.
pub(super) fn of(
    spec: &ChildSpec,
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let passes =
        |name: &OsString| name.to_str().is_some_and(|name| child_inherits(&spec.pass_env, name));
    let mut environment: Vec<_> = inherited.into_iter().filter(|(name, _)| passes(name)).collect();
    environment.extend(spec.env.iter().map(|(name, value)| (name.into(), value.into())));
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_and_configured_names_pass_and_set_ones_win() {
        let spec = ChildSpec {
            env: vec![("TERM".into(), "dumb".into()), ("MODE".into(), "x".into())],
            pass_env: vec!["NODE_*".into(), "PROXY".into()],
            ..ChildSpec::new("server")
        };
        let inherited = [
            "PATH",
            "LC_ALL",
            "TERM",
            "XDG_CONFIG_HOME",
            "NODE_ENV",
            "PROXY",
            "PROXY_KEY",
            "TOKEN",
        ]
        .map(|name| (OsString::from(name), OsString::from("kept")));
        let seen: Vec<_> = of(&spec, inherited)
            .into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        assert_eq!(
            seen,
            [
                "PATH=kept",
                "LC_ALL=kept",
                "TERM=kept",
                "XDG_CONFIG_HOME=kept",
                "NODE_ENV=kept",
                "PROXY=kept",
                "TERM=dumb",
                "MODE=x"
            ]
        );
    }
}
