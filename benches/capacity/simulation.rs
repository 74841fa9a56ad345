//! Two minutes of a cluster, second by second.

use fastrand::Rng;

use crate::load::{PeakLoads, Resource};
use crate::{Costs, Plan};

/// The state of all replicas.
pub struct Simulation<'a> {
    plan: Plan,
    costs: &'a Costs,
    random: Rng,
    /// Sessions that each replica owns.
    sessions: Vec<f64>,
    /// Sessions of a lost replica that no request has revived yet.
    orphans: f64,
    peaks: PeakLoads,
}

impl<'a> Simulation<'a> {
    /// Distributes the sessions: each is opened at a random replica.
    pub fn new(plan: Plan, costs: &'a Costs) -> Self {
        let mut random = Rng::with_seed(1);
        let mean = plan.sessions as f64 / plan.replicas as f64;
        let sessions = (0..plan.replicas).map(|_| vary(&mut random, mean)).collect();
        Self { plan, costs, random, sessions, orphans: 0.0, peaks: PeakLoads::default() }
    }

    /// Runs it, and returns the highest loads.
    pub fn run(mut self) -> PeakLoads {
        for second in 0..DURATION {
            if second == LOSS && self.sessions.len() > 1 {
                self.orphans = self.sessions.pop().unwrap_or(0.0);
            }
            self.run_second();
        }
        self.measure_list_change();
        self.peaks
    }

    fn run_second(&mut self) {
        let replicas = self.sessions.len();
        let begun = self.plan.sessions as f64 / SESSION_SECONDS / replicas as f64;
        // Each orphan is revived where its next call arrives.
        let revived = self.orphans * (1.0 - (-crate::CALLS_PER_SESSION).exp());
        self.orphans -= revived;
        let calls: Vec<f64> = (0..replicas).map(|owner| self.calls_of(owner)).collect();
        let all: f64 = calls.iter().sum();
        let opened: Vec<f64> = (0..replicas)
            .map(|_| vary(&mut self.random, begun + revived / replicas as f64))
            .collect();
        for (owner, (calls, opened)) in calls.iter().zip(&opened).enumerate() {
            self.measure_replica(owner, *calls, all, *opened);
            // As many end as begin.
            self.sessions[owner] += opened - begun;
        }
        self.measure_store(all, opened.iter().sum(), revived);
    }

    /// Returns the calls of an owner's sessions in this second.
    fn calls_of(&mut self, owner: usize) -> f64 {
        vary(&mut self.random, self.sessions[owner] * crate::CALLS_PER_SESSION)
    }

    fn measure_replica(&mut self, owner: usize, calls: f64, all: f64, opened: f64) {
        let (costs, replicas) = (self.costs, self.sessions.len() as f64);
        let away = 1.0 - 1.0 / replicas;
        // Of a forwarded call, the first replica has the part that exceeds a call at the owner.
        let executed = calls * costs.at_owner;
        let passed_on =
            (costs.forwarded - costs.at_owner) * away * vary(&mut self.random, all / replicas);
        let busy = costs.call_us * (executed + passed_on)
            + costs.session_us * opened
            + costs.lease_us * replicas / LEASE_SECONDS;
        self.peaks.note(Resource::Cpu, busy / 1e6);
        let sessions = self.sessions[owner];
        // A stream of a session is open at the owner, and usually at the replica that forwards it.
        let streams = sessions * STREAMS_PER_SESSION * (1.0 + away);
        let memory = IDLE_BYTES
            + sessions * costs.session_bytes
            + streams * costs.stream_bytes
            + (replicas - 1.0) * costs.connection_bytes;
        self.peaks.note(Resource::Memory, memory);
        if replicas > 1.0 {
            let pair = vary(&mut self.random, sessions * STREAMS_PER_SESSION / replicas);
            self.peaks.note(Resource::PeerStreams, pair);
        }
    }

    fn measure_store(&mut self, calls: f64, opened: f64, revived: f64) {
        let (costs, replicas) = (self.costs, self.sessions.len() as f64);
        // A lease is written with two commands, and all are read with one and one for each.
        let leases = replicas / LEASE_SECONDS * (3.0 + replicas);
        let sessions: f64 = self.sessions.iter().sum::<f64>() + self.orphans;
        // A session has a record, which is renewed at each third of its lifetime, and read before it
        // is replaced.
        let records = opened + revived + sessions / (RECORD_SECONDS / 3.0);
        let commands = leases + records + calls * COMMANDS_PER_CALL;
        self.peaks.note(Resource::StoreCommands, commands / costs.store_commands_per_second);
        self.peaks.note(Resource::StoreMemory, sessions * costs.record_bytes);
    }

    /// Measures a change of a list that all sessions see: each replica notifies its own streams, with
    /// the cores that it has beside its calls.
    fn measure_list_change(&mut self) {
        let most = self.sessions.iter().copied().fold(0.0, f64::max) * STREAMS_PER_SESSION;
        let work = most * self.costs.notification_us / 1e6;
        self.peaks.note(Resource::FanOut, work / FAN_OUT_CORES);
    }
}

/// Returns a random number with this mean, and a deviation as that of a Poisson distribution.
fn vary(random: &mut Rng, mean: f64) -> f64 {
    // The sum of twelve uniform numbers has the deviation 1, and is nearly normal.
    let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    (mean + mean.sqrt() * normal).max(0.0)
}

/// The simulated seconds, and the one in which a replica is lost.
const DURATION: u32 = 120;
const LOSS: u32 = 30;
/// The mean lifetime of a session in seconds.
const SESSION_SECONDS: f64 = 3600.0;
/// The lifetime of its record.
const RECORD_SECONDS: f64 = 1800.0;
/// The interval of the leases.
const LEASE_SECONDS: f64 = 3.0;
/// Open streams of a session: half of the clients keep one.
const STREAMS_PER_SESSION: f64 = 0.5;
/// Commands of the store for rates and quotas: the calls of a busy rate take permits in batches.
const COMMANDS_PER_CALL: f64 = 0.07;
/// Memory of a replica without sessions.
const IDLE_BYTES: f64 = 25e6;
/// The cores that send notifications.
const FAN_OUT_CORES: f64 = 1.0;
