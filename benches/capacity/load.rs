//! The resources of a cluster and their limits.

/// A resource that can be exhausted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// CPU of the busiest replica.
    Cpu,
    /// Memory of the largest replica.
    Memory,
    /// Open streams on the busiest connection between two replicas.
    PeerStreams,
    /// Commands of the store.
    StoreCommands,
    /// Memory of the store.
    StoreMemory,
    /// Time in which a replica sends a notification to all its open streams.
    FanOut,
}

impl Resource {
    /// In the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Cpu,
        Self::Memory,
        Self::PeerStreams,
        Self::StoreCommands,
        Self::StoreMemory,
        Self::FanOut,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU of a replica",
            Self::Memory => "memory of a replica",
            Self::PeerStreams => "streams between two replicas",
            Self::StoreCommands => "commands of one store",
            Self::StoreMemory => "memory of one store",
            Self::FanOut => "a list change",
        }
    }

    /// Returns the limit, in the unit of the loads.
    pub fn limit(self) -> f64 {
        match self {
            // Cores, of which one third stays free for peaks.
            Self::Cpu => 4.0 / 1.5,
            Self::Memory => 8e9,
            // `MAX_FORWARDED`: the streams of one connection.
            Self::PeerStreams => 16_384.0,
            // Commands per second, as a share of what one shard executes.
            Self::StoreCommands => 1.0,
            Self::StoreMemory => 16e9,
            // Seconds.
            Self::FanOut => 10.0,
        }
    }

    /// Returns a load as text.
    pub fn show(self, load: f64) -> String {
        match self {
            Self::Cpu => format!("{load:.2} cores"),
            Self::Memory | Self::StoreMemory if load < 1e9 => format!("{:.0} MB", load / 1e6),
            Self::Memory | Self::StoreMemory => format!("{:.1} GB", load / 1e9),
            Self::PeerStreams => format!("{load:.0}"),
            Self::StoreCommands => format!("{:.0} %", load * 100.0),
            Self::FanOut => format!("{load:.1} s"),
        }
    }
}

/// The highest load of each resource.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PeakLoads([f64; 6]);

impl PeakLoads {
    /// Returns the load of a resource.
    pub fn of(&self, resource: Resource) -> f64 {
        self.0[resource as usize]
    }

    /// Keeps a load if it is the highest one.
    pub fn note(&mut self, resource: Resource, load: f64) {
        let peak = &mut self.0[resource as usize];
        *peak = peak.max(load);
    }

    /// Returns the resource that is nearest to its limit, and its share of the limit.
    pub fn first_limit(&self) -> (Resource, f64) {
        let share = |resource: Resource| self.of(resource) / resource.limit();
        let first = Resource::ALL.into_iter().max_by(|a, b| share(*a).total_cmp(&share(*b)));
        let first = first.unwrap_or(Resource::Cpu);
        (first, share(first))
    }
}
