//! The published protocol versions and their eras.

use std::fmt;

use http::HeaderValue;

/// A protocol era (2026-07-28, Versioning, "Terminology").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// A session opened by `initialize`.
    Legacy,
    /// Stateless, `_meta` on every request.
    Modern,
}

impl Era {
    /// The era's name in logs, metrics and status.
    #[inline]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// A published revision of the protocol, in the order of publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProtocolVersion {
    /// 2024-11-05.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP, batches.
    V2025_03_26,
    /// 2025-06-18: version header, no batches.
    V2025_06_18,
    /// 2025-11-25: polling streams, experimental tasks.
    V2025_11_25,
    /// 2026-07-28: stateless.
    V2026_07_28,
}

impl ProtocolVersion {
    /// All versions, newest first.
    pub const ALL: [Self; 5] = [
        Self::V2026_07_28,
        Self::V2025_11_25,
        Self::V2025_06_18,
        Self::V2025_03_26,
        Self::V2024_11_05,
    ];
    /// The version that Legacy peers are offered first.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;
    /// The version that Modern peers are offered first.
    pub const LATEST_MODERN: Self = Self::V2026_07_28;

    /// The version on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The version as a header value.
    #[inline]
    pub fn to_header(self) -> HeaderValue {
        HeaderValue::from_static(self.as_str())
    }

    /// Parses a version; `None` if it is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// The version's era.
    #[inline]
    pub fn era(self) -> Era {
        if self >= Self::V2026_07_28 { Era::Modern } else { Era::Legacy }
    }

    /// Returns true if clients of this version accept events with an id and no message. Older
    /// clients take the empty data for malformed JSON.
    #[inline]
    pub fn sends_priming_event(self) -> bool {
        self == Self::V2025_11_25
    }

    /// Returns true if a body may be a JSON-RPC batch.
    #[inline]
    pub fn allows_batches(self) -> bool {
        self <= Self::V2025_03_26
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_revision_reads_back_and_has_its_era() {
        for version in ProtocolVersion::ALL {
            assert_eq!(ProtocolVersion::parse(version.as_str()), Some(version));
        }
        assert_eq!(ProtocolVersion::LATEST_LEGACY.era(), Era::Legacy);
        assert_eq!(ProtocolVersion::LATEST_MODERN.era(), Era::Modern);
        assert_eq!(ProtocolVersion::parse("2026-07-29"), None);
    }
}
