//! Elements denied by rules, for the output of `trunkline check`.

use crate::catalog::Kind;
use crate::cli::CommonArgs;
use crate::config::Config;
use crate::policy::{BaselineFolder, BaselineRecord, KnownElement, survey_denials};

/// Lists the elements that are known without a connection: tools with settings of their own, and
/// those of stored baselines. Another check reports faults of the baselines.
pub(crate) fn configured_elements(common: &CommonArgs, config: &Config) -> Vec<KnownElement> {
    let mut known = Vec::new();
    let folder = config.gateway.baseline_folder().filter(|folder| folder.exists());
    let folder = folder.and_then(|folder| BaselineFolder::open(folder, &common.config.path).ok());
    for server in &config.servers {
        let element = |kind, native: &str| KnownElement {
            server: server.name.clone(),
            kind,
            native: native.to_owned(),
        };
        let configured = server.tools.overrides.iter();
        known.extend(configured.map(|(native, _)| element(Kind::Tools, native.as_str())));
        let record = folder.as_ref().and_then(|folder| folder.read(&server.name).ok());
        let pinned = record.iter().flat_map(BaselineRecord::definitions);
        known.extend(pinned.filter_map(|(kind, native, _)| Some(element(kind.listed()?, native))));
    }
    known
}

/// Describes the matches of each pattern in the rules that deny, one line for each.
pub(crate) fn describe_denials(config: &Config, mut known: Vec<KnownElement>) -> Vec<String> {
    known.sort_unstable();
    known.dedup();
    let denials = survey_denials(config, &known);
    denials.iter().map(ToString::to_string).collect()
}
