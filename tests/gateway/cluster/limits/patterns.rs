//! Shared rates under patterns of load, compared with one bucket that admits every call it can.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{MissedTickBehavior, interval};
use trunkline::clock;
use trunkline::cluster::{
    Cluster, ClusterStore, MemoryStore, PermitDemand, PermitGrant, PermitStore as _, RedisStore,
};
use trunkline::config::{DegradeChoice, Rate, StoreUrl};
use trunkline::shares::{PermitSource as _, PermitTaking, SharedPermits, SharedRate};

use crate::cluster::RedisServer;
use crate::cluster::sessions::failures::cluster_with;

/// The calls that each replica makes in a step.
type LoadPattern = fn(step: u32, replica: u32) -> u32;

/// Patterns of load at a rate of 100/s.
const PATTERNS: [(&str, LoadPattern); 5] = [
    ("steady below the rate", |step, _| u32::from(step % 5 == 0)),
    ("steady above the rate", |_, _| 3),
    ("a burst", |step, _| if step == 0 { 500 } else { 2 }),
    ("on and off", |step, _| if step / 50 % 2 == 0 { 6 } else { 0 }),
    ("skewed to one replica", |step, replica| match replica {
        0 => 3,
        _ => u32::from(step % 20 == 0),
    }),
];

/// The calls of one pattern at so many replicas.
struct PatternRun {
    case: String,
    load: LoadPattern,
    replicas: Vec<Arc<dyn SharedPermits>>,
    /// One bucket for the calls of all replicas, which refuses no call that it could admit.
    single: MemoryStore,
    seen: Mutex<SeenCalls>,
}

#[derive(Default)]
struct SeenCalls {
    /// Calls that the single bucket has admitted.
    expected: u32,
    /// The times since the start at which calls were admitted.
    admitted: Vec<Duration>,
}

impl PatternRun {
    fn new(pattern: (&str, LoadPattern), replicas: &[Arc<Cluster>]) -> Self {
        let case = format!("{}, {} replicas", pattern.0, replicas.len());
        let rate = SharedRate { limit: &case, holder: None, rate: rate() };
        let permits = replicas.iter().map(|it| it.shared_rates().find(&rate)).collect();
        let (single, seen) = (MemoryStore::default(), Mutex::default());
        Self { case, load: pattern.1, replicas: permits, single, seen }
    }

    /// Makes the calls of ten seconds.
    async fn run(&self) {
        let start = clock::now();
        let make_calls = async |number: usize| {
            let mut steps = interval(STEP);
            steps.set_missed_tick_behavior(MissedTickBehavior::Burst);
            for step in 0..STEPS {
                steps.tick().await;
                let count = (self.load)(step, u32::try_from(number).unwrap());
                join_all((0..count).map(|_| self.call(number, start))).await;
            }
        };
        join_all((0..self.replicas.len()).map(make_calls)).await;
    }

    async fn call(&self, number: usize, start: tokio::time::Instant) {
        let demand = PermitDemand { rate: rate(), least: 1, most: 1 };
        let reply = self.single.take_permits("single", &demand).await.unwrap();
        let expected = PermitGrant::read(&reply, &demand).unwrap().taken;
        let permits = &self.replicas[number];
        if let Some(wait) = permits.prepare(NonZeroU32::MIN) {
            wait.await;
        }
        let is_admitted = permits.take(NonZeroU32::MIN) == PermitTaking::Taken;
        let mut seen = self.seen.lock().unwrap();
        seen.expected += expected;
        if is_admitted {
            seen.admitted.push(start.elapsed());
        }
    }

    /// Checks that the replicas have admitted at least 95 % of the calls that one bucket would admit, and
    /// in no period more than a burst, the refill of the period, and a batch for each replica. Returns
    /// both numbers.
    fn check(&self) -> [usize; 2] {
        let seen = self.seen.lock().unwrap();
        let (admitted, expected) = (seen.admitted.len(), usize::try_from(seen.expected).unwrap());
        let case = format!("{}: {admitted} of {expected}", self.case);
        assert!(admitted * 100 >= expected * 95, "{case}");
        let bound = f64::from(RATE) + f64::from(RATE / 20) * self.replicas.len() as f64;
        // The calls before a period, less the refill until its beginning: the least value so far.
        let mut least = 0.0_f64;
        for (count, at) in (0_u32..).zip(&seen.admitted) {
            let refilled = at.as_secs_f64() * f64::from(RATE);
            least = least.min(f64::from(count) - refilled);
            let above = f64::from(count + 1) - refilled - least;
            assert!(above <= bound + 1.0, "{case}: {above} in a period that ends at {at:?}");
        }
        [admitted, expected]
    }
}

/// Runs all patterns at one, two and three replicas, at once, and returns the runs.
async fn run_patterns(store: Arc<dyn ClusterStore>) -> Vec<PatternRun> {
    let replicas = [0, 1, 2].map(|_| cluster_with(Arc::clone(&store), DegradeChoice::Refuse));
    let runs: Vec<_> = PATTERNS
        .iter()
        .flat_map(|pattern| (1..=3).map(|count| (*pattern, count)))
        .map(|(pattern, count)| PatternRun::new(pattern, &replicas[..count]))
        .collect();
    join_all(runs.iter().map(PatternRun::run)).await;
    runs
}

fn rate() -> Rate {
    Rate { count: RATE.try_into().unwrap(), per: Duration::from_secs(1) }
}

#[tokio::test(start_paused = true)]
async fn replicas_admit_as_many_calls_as_one_bucket_would() {
    for run in run_patterns(Arc::new(MemoryStore::default())).await {
        let [admitted, expected] = run.check();
        assert!(admitted * 100 <= expected * 105, "{}: {admitted} of {expected}", run.case);
    }
}

/// On a busy machine, calls that wait for a batch are admitted after a pause in which the single bucket
/// is full: the bound of each period holds all the same.
#[tokio::test]
async fn replicas_with_a_real_store_admit_as_many_calls_as_one_bucket_would() {
    let redis = RedisServer::start().await;
    let store = RedisStore::new(&StoreUrl::parse(&redis.url()).unwrap()).unwrap();
    for run in run_patterns(Arc::new(store)).await {
        run.check();
    }
}

/// Permits per second, and of a burst.
const RATE: u32 = 100;
/// Time between two steps of a pattern.
const STEP: Duration = Duration::from_millis(10);
/// The steps of ten seconds.
const STEPS: u32 = 1000;
