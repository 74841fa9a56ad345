//! The costs of tools, compared with the rates and quotas that their calls are charged to.

use crate::faults::problem::SettingFault;
use crate::reader::setting::Section;
use crate::reader::values::numbers::Count32;
use crate::reader::{ConfigReader, ConfigTable, setting_value};
use crate::sections::clients::ClientConfig;
use crate::sections::gateway::GatewayConfig;
use crate::sections::issuers::IssuerConfig;
use crate::sections::profiles::ProfileConfig;
use crate::sections::quota::Quota;
use crate::sections::rate::Rate;
use crate::sections::server::ServerConfig;
use crate::sections::server::tools::ToolOverride;

/// A configured rate or quota: its key, and the calls that it allows at once.
type Allowance = (String, u32);

/// The tables with rates and quotas of calls.
#[derive(Clone, Copy)]
pub(crate) struct ChargedTables<'a, 'b> {
    pub(crate) servers: &'a [ConfigTable<'b>],
    pub(crate) profiles: &'a [ConfigTable<'b>],
    pub(crate) clients: &'a [ConfigTable<'b>],
    pub(crate) issuers: &'a [ConfigTable<'b>],
}

/// Checks that no call costs more than a rate or a quota allows at once: it could never be made.
pub(crate) fn check_costs(
    root: &ConfigTable<'_>,
    tables: ChargedTables<'_, '_>,
    reader: &mut ConfigReader<'_>,
) {
    let mut shared = Vec::new();
    if let Some(gateway) = root.find_table("gateway") {
        add_rates::<GatewayConfig>(&gateway, &["rate", "client_rate"], &mut shared, reader);
    }
    for profile in tables.profiles {
        add_rates::<ProfileConfig>(profile, &["rate"], &mut shared, reader);
        add_quota::<ProfileConfig>(profile, "quota", &mut shared, reader);
    }
    for issuer in tables.issuers {
        add_quota::<IssuerConfig>(issuer, "quota_each", &mut shared, reader);
    }
    for client in tables.clients {
        add_rates::<ClientConfig>(client, &["rate"], &mut shared, reader);
        add_quota::<ClientConfig>(client, "quota", &mut shared, reader);
    }
    for server in tables.servers {
        let mut of_server = shared.clone();
        add_rates::<ServerConfig>(server, &["rate", "rate_each"], &mut of_server, reader);
        add_quota::<ServerConfig>(server, "quota_each", &mut of_server, reader);
        for tool in server.find_tables("tools") {
            check_cost(&tool, of_server.clone(), reader);
        }
    }
}

fn check_cost(tool: &ConfigTable<'_>, mut all: Vec<Allowance>, reader: &mut ConfigReader<'_>) {
    let Some(node) = tool.find_node("cost") else { return };
    let cost = setting_value::<ToolOverride, Count32<1, 1_000_000>>(tool, "cost", reader);
    add_rates::<ToolOverride>(tool, &["rate", "rate_each"], &mut all, reader);
    add_quota::<ToolOverride>(tool, "quota_each", &mut all, reader);
    let exceeded = all.into_iter().find(|(_, most)| cost.is_some_and(|cost| cost > *most));
    if let Some((limit, most)) = exceeded {
        node.report_fault(reader, SettingFault::CostTooHigh { limit, most });
    }
}

fn add_rates<S: Section>(
    table: &ConfigTable<'_>,
    keys: &[&str],
    all: &mut Vec<Allowance>,
    reader: &ConfigReader<'_>,
) {
    for key in keys {
        let rate = setting_value::<S, Option<Rate>>(table, key, reader).flatten();
        all.extend(rate.map(|rate| (format!("{}.{key}", table.key), rate.count.get())));
    }
}

fn add_quota<S: Section>(
    table: &ConfigTable<'_>,
    key: &str,
    all: &mut Vec<Allowance>,
    reader: &ConfigReader<'_>,
) {
    let quota = setting_value::<S, Option<Quota>>(table, key, reader).flatten();
    all.extend(quota.map(|quota| (format!("{}.{key}", table.key), quota.calls())));
}
