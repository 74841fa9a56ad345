//! The tools of `trunkline example clock`.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::stdio::ExampleCall;
use super::tool::{Effect, ToolFault, Toolbox, read, tool, within, written};

/// A database of time zones, and the current time.
pub(super) struct ClockTools {
    zones: TimeZoneDatabase,
    now: fn() -> Timestamp,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Now {
    /// IANA time zone, such as `Europe/Berlin` or `UTC`.
    #[serde(default = "utc")]
    zone: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Convert {
    /// Date and time, such as `2026-03-01T09:30` or `2026-03-01T09:30:00+01:00`.
    time: String,
    /// IANA time zone of `time` if it has no offset of its own.
    #[serde(default = "utc")]
    from: String,
    /// IANA time zone to convert to.
    to: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ZoneSearch {
    /// Part of a zone's name, such as a city or a continent.
    query: String,
    /// Maximum number of zones to return.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Countdown {
    /// Number of seconds to count.
    #[schemars(range(min = 1, max = 60))]
    seconds: u32,
}

#[derive(Serialize, JsonSchema)]
struct Moment {
    /// Date and time with offset, by RFC 3339.
    time: String,
    /// IANA time zone.
    zone: String,
    /// Abbreviation of the zone at that time, such as `CEST`.
    abbreviation: String,
    weekday: String,
    /// Seconds since 1970-01-01T00:00:00Z.
    unix: i64,
}

#[derive(Serialize, JsonSchema)]
struct Converted {
    from: Moment,
    to: Moment,
    /// Explains the chosen time if the clocks were changed at that time.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    note: &'static str,
}

#[derive(Serialize, JsonSchema)]
struct Zones {
    /// The zones found, with the current time in each.
    zones: Vec<Moment>,
    /// Number of zones found; at most `limit` are returned.
    total: usize,
}

#[derive(Serialize, JsonSchema)]
struct Finished {
    seconds: u32,
    /// End of the countdown, by RFC 3339.
    finished: String,
}

impl ClockTools {
    pub(super) fn new() -> Self {
        // The database built into the binary: the same zones on every machine.
        Self { zones: TimeZoneDatabase::bundled(), now: Timestamp::now }
    }

    #[cfg(test)]
    pub(super) fn at(now: fn() -> Timestamp) -> Self {
        Self { now, ..Self::new() }
    }

    fn zone(&self, name: &str) -> Result<TimeZone, ToolFault> {
        self.zones.get(name).map_err(|_| {
            ToolFault::refused(format_args!(
                "unknown time zone `{name}`: use an IANA name such as `Europe/Berlin`; \
                 the tool `search` finds them"
            ))
        })
    }

    fn convert(&self, arguments: &Convert) -> Result<Converted, ToolFault> {
        let text = arguments.time.trim();
        let to = self.zone(&arguments.to)?;
        let from = self.zone(&arguments.from)?;
        let (from, note) = match text.parse::<Timestamp>() {
            Ok(instant) => (instant.to_zoned(from), ""),
            Err(_) => in_zone(text, &from)?,
        };
        Ok(Converted { to: moment(&from.with_time_zone(to)), from: moment(&from), note })
    }

    fn search(&self, arguments: &ZoneSearch) -> Result<Zones, ToolFault> {
        within("limit", arguments.limit, 1..=100)?;
        let query = arguments.query.trim().to_lowercase().replace(' ', "_");
        let names = self.zones.available().map(|name| name.to_string());
        let found: Vec<_> = names.filter(|name| name.to_lowercase().contains(&query)).collect();
        let now = (self.now)();
        let shown = found.iter().take(usize::try_from(arguments.limit).unwrap_or(usize::MAX));
        let zones = shown
            .map(|name| Ok(moment(&now.to_zoned(self.zone(name)?))))
            .collect::<Result<_, ToolFault>>()?;
        Ok(Zones { zones, total: found.len() })
    }

    async fn countdown(
        &self,
        arguments: &Countdown,
        call: &ExampleCall,
    ) -> Result<Finished, ToolFault> {
        let seconds = arguments.seconds;
        within("seconds", seconds, 1..=60)?;
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.tick().await;
        for passed in 1..=seconds {
            tokio::select! {
                _ = second.tick() => {}
                () = call.server_closes() => {
                    return Err(ToolFault::refused("the countdown was ended: the server closes"));
                }
            }
            call.progress(passed, seconds, &format!("{} s to go", seconds - passed)).await;
        }
        Ok(Finished { seconds, finished: (self.now)().to_string() })
    }
}

impl Toolbox for ClockTools {
    const NAME: &'static str = "clock";
    const INSTRUCTIONS: &'static str = "Tells the time anywhere and converts between time zones. \
        Zones are IANA names; find one with `search`.";

    fn tools(&self) -> Vec<Value> {
        vec![
            tool::<Now, Moment>(
                "now",
                "Current time",
                Effect::Reads,
                "Tell the current date, time and weekday in a time zone.",
            ),
            tool::<Convert, Converted>(
                "convert",
                "Convert a time",
                Effect::Reads,
                "Convert a date and time from one time zone to another, daylight saving included.",
            ),
            tool::<ZoneSearch, Zones>(
                "search",
                "Search time zones",
                Effect::Reads,
                "Find time zones by a part of their name, with their current time.",
            ),
            tool::<Countdown, Finished>(
                "countdown",
                "Countdown",
                Effect::Reads,
                "Wait for a number of seconds, reporting progress each second. Can be cancelled.",
            ),
        ]
    }

    async fn call(
        &self,
        name: &str,
        arguments: Value,
        call: &ExampleCall,
    ) -> Result<Value, ToolFault> {
        match name {
            "now" => {
                let zone = self.zone(&read::<Now>(arguments)?.zone)?;
                written(moment(&(self.now)().to_zoned(zone)))
            }
            "convert" => written(self.convert(&read(arguments)?)?),
            "search" => written(self.search(&read(arguments)?)?),
            "countdown" => written(self.countdown(&read(arguments)?, call).await?),
            _ => Err(ToolFault::UnknownTool),
        }
    }
}

/// Returns a time without offset in a zone, where it may be skipped or ambiguous.
fn in_zone(text: &str, zone: &TimeZone) -> Result<(Zoned, &'static str), ToolFault> {
    let unreadable = || {
        ToolFault::refused(format_args!(
            "cannot read the time `{text}`: write it as `2026-03-01T09:30`, \
             or with an offset as `2026-03-01T09:30:00+01:00`"
        ))
    };
    // A zone in brackets would be ignored rather than parsed.
    let time: DateTime = Some(text)
        .filter(|text| !text.contains('['))
        .and_then(|text| text.parse().ok())
        .ok_or_else(unreadable)?;
    let ambiguous = zone.to_ambiguous_zoned(time);
    let note = match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => "",
        AmbiguousOffset::Gap { .. } => {
            "the clocks skip this time: it is taken as if they had not been put forward yet"
        }
        AmbiguousOffset::Fold { .. } => "the clocks show this time twice: the first is taken",
    };
    Ok((ambiguous.compatible().map_err(|_| unreadable())?, note))
}

fn moment(time: &Zoned) -> Moment {
    Moment {
        time: time.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        zone: time.time_zone().iana_name().unwrap_or("UTC").to_owned(),
        abbreviation: time.strftime("%Z").to_string(),
        weekday: time.strftime("%A").to_string(),
        unix: time.timestamp().as_second(),
    }
}

fn utc() -> String {
    "UTC".to_owned()
}

fn ten() -> u32 {
    10
}
